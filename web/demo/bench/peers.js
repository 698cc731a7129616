// Other libraries that multiply matrices in a page, behind one small interface, for the benchmark and its page. They are not part of
// py_gemm and are never fetched from another host: they lie in a folder `root` beside the page once `npm run bench` has installed them.
// `prepare` makes one product ready; the job's `run(count)` makes it so many times, each waited for, and gives seconds for one.

import { matMulModel } from "./onnx.js";

/**
 * @typedef {object} Product
 * @property {number} m
 * @property {number} k
 * @property {number} n
 * @property {string} a  element type: "float32", "float16", "int8", "uint8"
 * @property {string} b
 * @property {boolean} transposed  whether B is stored n by k
 *
 * @typedef {Float32Array | Int32Array | Uint16Array} Numbers
 * @typedef {object} Job
 * @property {(count: number) => Promise<number>} run
 * @property {() => Numbers} result  of the last run
 * @property {() => void} close
 *
 * @typedef {(root: URL, product: Product, a: Uint8Array, b: Uint8Array) => Promise<Job>} Maker
 */

/**
 * @param {() => Promise<Numbers>} multiply
 * @param {() => void} close
 * @returns {Job}
 */
function jobOf(multiply, close) {
  /** @type {Numbers} */
  let last = new Float32Array(0);
  return {
    async run(count) {
      const started = performance.now();
      for (let turn = 0; turn < count; turn += 1) {
        last = await multiply();
      }
      return (performance.now() - started) / 1000 / count;
    },
    result: () => last,
    close,
  };
}

/**
 * As `jobOf`, without a promise in each turn: a library that answers at once shall not pay for one.
 * @param {() => Numbers} multiply
 * @param {() => void} close
 * @returns {Job}
 */
function promptJobOf(multiply, close) {
  /** @type {Numbers} */
  let last = new Float32Array(0);
  return {
    run(count) {
      const started = performance.now();
      for (let turn = 0; turn < count; turn += 1) {
        last = multiply();
      }
      return Promise.resolve((performance.now() - started) / 1000 / count);
    },
    result: () => last,
    close,
  };
}

/** @type {Record<string, { code: number, view: (bytes: Uint8Array) => any }>} */
const ELEMENTS = {
  float32: { code: 1, view: (bytes) => new Float32Array(bytes.slice().buffer) },
  uint8: { code: 2, view: (bytes) => bytes.slice() },
  int8: { code: 3, view: (bytes) => new Int8Array(bytes.slice().buffer) },
  float16: { code: 10, view: (bytes) => new Uint16Array(bytes.slice().buffer) },
};

/** @param {string} type */
function elementOf(type) {
  const found = ELEMENTS[type];
  if (!found) {
    throw new Error(`no element type ${type}`);
  }
  return found;
}

/** @param {Product} product */
function shapeOfB({ k, n, transposed }) {
  return transposed ? [n, k] : [k, n];
}

/**
 * @param {Product} product
 * @param {string[]} types
 */
function requireTypes({ a, b }, types) {
  if (a !== b || !types.includes(a)) {
    throw new Error(`multiplies ${types.join(", ")} only`);
  }
}

/** @type {Map<string, Promise<any>>} */
const modules = new Map();

/**
 * A module, and what is done once with it.
 * @param {URL} address
 * @param {(module: any) => Promise<any>} [prepareOnce]
 */
function load(address, prepareOnce = async (module) => module) {
  let loading = modules.get(address.href);
  if (!loading) {
    loading = import(address.href).then(prepareOnce);
    modules.set(address.href, loading);
  }
  return loading;
}

/**
 * onnxruntime-web and a session of it for one product, on one thread.
 * @param {URL} root
 * @param {Product} product
 * @param {"wasm" | "webgpu"} provider
 */
async function onnx(root, product, provider) {
  const folder = new URL("onnxruntime-web/dist/", root);
  const ort = await load(new URL(`ort.${provider}.min.mjs`, folder), async (module) => {
    module.env.wasm.wasmPaths = folder.href;
    module.env.wasm.numThreads = 1;
    module.env.logLevel = "error";
    return module;
  });
  const session = await ort.InferenceSession.create(matMulModel(product, codesOf(product)), { executionProviders: [provider] });
  return { ort, session };
}

/** @type {Maker} */
async function onnxCpu(root, product, a, b) {
  const { ort, session } = await onnx(root, product, "wasm");
  const feeds = {
    a: new ort.Tensor(product.a, elementOf(product.a).view(a), [product.m, product.k]),
    b: new ort.Tensor(product.b, elementOf(product.b).view(b), shapeOfB(product)),
  };
  return jobOf(
    async () => (await session.run(feeds)).d.data,
    () => session.release(),
  );
}

/** @type {Maker} */
async function onnxGpu(root, product, a, b) {
  requireTypes(product, ["float32", "float16"]);
  const { ort, session } = await onnx(root, product, "webgpu");
  const device = await ort.env.webgpu.device;
  if (product.a === "float16" && !device.features.has("shader-f16")) {
    session.release();
    throw new Error("float16 needs shader-f16, which this adapter lacks");
  }
  /** @type {(bytes: Uint8Array) => GPUBuffer} */
  const upload = (bytes) => {
    const size = Math.ceil(bytes.byteLength / 16) * 16;
    const buffer = device.createBuffer({ size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });
    device.queue.writeBuffer(buffer, 0, bytes);
    return buffer;
  };
  const buffers = { a: upload(a), b: upload(b) };
  const feeds = {
    a: ort.Tensor.fromGpuBuffer(buffers.a, { dataType: product.a, dims: [product.m, product.k] }),
    b: ort.Tensor.fromGpuBuffer(buffers.b, { dataType: product.b, dims: shapeOfB(product) }),
  };
  return jobOf(
    async () => (await session.run(feeds)).d.data,
    () => {
      session.release();
      buffers.a.destroy();
      buffers.b.destroy();
    },
  );
}

/** @param {Product} product */
function codesOf({ a, b }) {
  return { a: elementOf(a).code, b: elementOf(b).code };
}

const IN_NODE = typeof (/** @type {any} */ (globalThis).process?.versions?.node) === "string";

/**
 * TensorFlow.js with one of its back ends. In a page its files are scripts that hang themselves on the global object, modules or not.
 * @param {URL} root
 * @param {"wasm" | "webgpu"} backend
 */
async function tensorflow(root, backend) {
  const kind = IN_NODE ? "node" : "min";
  const core = await load(new URL(`@tensorflow/tfjs-core/dist/tf-core.${kind}.js`, root));
  const tf = core.default ?? /** @type {any} */ (globalThis).tf;
  const folder = new URL(`@tensorflow/tfjs-backend-${backend}/dist/`, root);
  await load(new URL(`tf-backend-${backend}.${kind}.js`, folder), async (module) => {
    const wasm = module.default ?? tf.wasm;
    if (backend === "wasm") {
      wasm.setWasmPaths(IN_NODE ? decodeURIComponent(folder.pathname) : folder.href);
      wasm.setThreadsCount(1);
    }
  });
  if (!(await tf.setBackend(backend))) {
    throw new Error(`its ${backend} back end does not start here`);
  }
  await tf.ready();
  return tf;
}

/**
 * @param {any} tf
 * @param {Product} product
 * @param {Uint8Array} a
 * @param {Uint8Array} b
 */
function tensorsOf(tf, product, a, b) {
  return [tf.tensor2d(elementOf(product.a).view(a), [product.m, product.k]), tf.tensor2d(elementOf(product.b).view(b), shapeOfB(product))];
}

/** @type {Maker} */
async function tensorflowCpu(root, product, a, b) {
  requireTypes(product, ["float32"]);
  const tf = await tensorflow(root, "wasm");
  const [left, right] = tensorsOf(tf, product, a, b);
  return promptJobOf(
    () => {
      tf.setBackend("wasm"); // the other back end may have worked in between
      const made = tf.matMul(left, right, false, product.transposed);
      const values = made.dataSync();
      made.dispose();
      return values;
    },
    () => tf.dispose([left, right]),
  );
}

/** @type {Maker} */
async function tensorflowGpu(root, product, a, b) {
  requireTypes(product, ["float32"]);
  const tf = await tensorflow(root, "webgpu");
  const [left, right] = tensorsOf(tf, product, a, b);
  return jobOf(
    async () => {
      const made = tf.matMul(left, right, false, product.transposed);
      const values = await made.data();
      made.dispose();
      return values;
    },
    () => tf.dispose([left, right]),
  );
}

/**
 * @param {URL} root
 * @param {Product} product
 * @param {Uint8Array} a
 * @param {Uint8Array} b
 * @param {"wasm" | "webgpu"} device
 */
async function jax(root, product, a, b, device) {
  const [library, devices] = await withoutWorkers(async () => {
    const module = await load(new URL("@jax-js/jax/dist/index.js", root)); // it looks for workers while it loads
    return [module, await module.init(device)];
  });
  if (!devices.includes(device)) {
    throw new Error(`its ${device} device does not start here`);
  }
  const { numpy, jit } = library;
  const dtype = product.a;
  /** @type {(bytes: Uint8Array) => any} */
  const values = (bytes) => (dtype === "float16" ? new /** @type {any} */ (globalThis).Float16Array(bytes.slice().buffer) : elementOf(dtype).view(bytes));
  const left = numpy.array(values(a), { shape: [product.m, product.k], dtype, device });
  const right = numpy.array(values(b), { shape: shapeOfB(product), dtype, device });
  const multiply = jit((/** @type {any} */ x, /** @type {any} */ y) => numpy.matmul(x, product.transposed ? numpy.transpose(y) : y), { device });
  return jobOf(
    () => multiply(left.ref, right.ref).data(),
    () => {
      left.dispose();
      right.dispose();
      multiply.dispose();
    },
  );
}

/** @type {Maker} */
async function jaxCpu(root, product, a, b) {
  requireTypes(product, ["float32"]);
  return withoutWorkers(async () => {
    const job = await jax(root, product, a, b, "wasm");
    await job.run(1); // its kernels are made for the first product
    return job;
  });
}

/** @type {Maker} */
async function jaxGpu(root, product, a, b) {
  requireTypes(product, ["float32", "float16"]);
  return jax(root, product, a, b, "webgpu");
}

/**
 * jax-js starts a worker for each processor where it finds workers, and has no switch for it; without, it works on this thread.
 * @template T
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
async function withoutWorkers(work) {
  const scope = /** @type {any} */ (globalThis);
  const kept = Object.getOwnPropertyDescriptor(scope, "Worker");
  Object.defineProperty(scope, "Worker", { value: undefined, configurable: true, writable: true });
  try {
    return await work();
  } finally {
    if (kept) {
      Object.defineProperty(scope, "Worker", kept);
    } else {
      delete scope.Worker;
    }
  }
}

/** @type {Record<string, Record<string, Maker>>} */
const MAKERS = {
  cpu: { "onnxruntime-web wasm": onnxCpu, "tfjs-wasm": tensorflowCpu, "jax-js wasm": jaxCpu },
  gpu: { "onnxruntime-web WebGPU": onnxGpu, "tfjs-webgpu": tensorflowGpu, "jax-js WebGPU": jaxGpu },
};

/**
 * The libraries of a road, "cpu" or "gpu".
 * @param {string} road
 */
export function names(road) {
  return Object.keys(MAKERS[road] ?? {});
}

/**
 * Make a product ready. Rejects with what the library says where it cannot.
 * @param {string} root  address of the folder with the libraries
 * @param {string} road
 * @param {string} name
 * @param {Product} product
 * @param {Uint8Array} a
 * @param {Uint8Array} b
 */
export async function prepare(root, road, name, product, a, b) {
  const maker = MAKERS[road]?.[name];
  if (!maker) {
    throw new Error(`no library ${name} for ${road}`);
  }
  return maker(new URL(root), product, a, b);
}
