// The worker of the demo and of the benchmark page: loads Pyodide, NumPy and py_gemm with honest progress, then carries requests to the
// Python session that its address names, and answers back.
// It decides nothing about matrices and touches no page; everything it fetches lies beside it.

/** @import { Happening, Progress, Reply, Request } from "./types.js" */

/**
 * What this file uses of the scope of a dedicated worker.
 * @typedef {object} Scope
 * @property {(message: Reply | Happening, transfer?: Transferable[]) => void} postMessage
 * @property {((event: MessageEvent<Request>) => void) | null} onmessage
 * @property {typeof fetch} fetch
 * @property {boolean} crossOriginIsolated
 */

/**
 * @typedef {object} Site
 * @property {string} wheel
 * @property {string} pyodide
 * @property {string[]} packages
 * @property {boolean} peers  whether the libraries to compare with lie in peers/
 * @property {Record<string, number>} bytes
 */

const scope = /** @type {Scope} */ (/** @type {unknown} */ (self));
const root = new URL("./", import.meta.url);
/** The Python files of each session; the last one has the class. */
const SESSIONS = /** @type {Record<string, string[]>} */ ({
  demo: ["demo_matrices", "demo_measure", "demo_console", "demo"],
  bench: ["demo_bench"],
});
const wanted = new URL(import.meta.url).searchParams.get("session") ?? "";
const modules = SESSIONS[wanted] ?? [];

/**
 * @param {string} event
 * @param {unknown} data
 */
function tell(event, data) {
  scope.postMessage({ event, data });
}

/** Counts the bytes that arrive through fetch, of which the total is known beforehand, and tells the page. */
class Meter {
  /** @param {Record<string, number>} sizes  bytes of each file of the site */
  constructor(sizes) {
    const fetched = Object.entries(sizes).filter(([name]) => /\.(wasm|zip|whl|py)$|pyodide-lock\.json$/u.test(name));
    this.total = fetched.reduce((sum, [, size]) => sum + size, 0);
    this.loaded = 0;
    this.text = "Loading Python";
    this.told = 0;
  }

  /** @param {string} text */
  step(text) {
    this.text = text;
    this.tell();
  }

  tell() {
    /** @type {Progress} */
    const progress = { text: this.text, loaded: Math.min(this.loaded, this.total), total: this.total };
    tell("progress", progress);
    this.told = this.loaded;
  }

  /**
   * Runs the work while every response of fetch is counted.
   * @template T
   * @param {() => Promise<T>} work
   * @returns {Promise<T>}
   */
  async during(work) {
    const plain = scope.fetch;
    scope.fetch = async (input, init) => {
      const response = await plain.call(scope, input, init);
      if (!response.ok || !response.body) {
        return response;
      }
      const counted = response.body.pipeThrough(
        new TransformStream({
          transform: (chunk, controller) => {
            this.loaded += chunk.byteLength;
            if (this.loaded - this.told > this.total / 100) {
              this.tell();
            }
            controller.enqueue(chunk);
          },
        }),
      );
      return new Response(counted, { status: response.status, statusText: response.statusText, headers: response.headers });
    };
    try {
      return await work();
    } finally {
      scope.fetch = plain;
    }
  }
}

/**
 * @param {string} name
 * @returns {Promise<Response>}
 */
async function get(name) {
  const response = await scope.fetch(new URL(name, root));
  if (!response.ok) {
    throw new Error(`${name} could not be loaded (${response.status} ${response.statusText}).`);
  }
  return response;
}

/** @returns {Promise<{ session: any, ready: object }>} */
async function start() {
  /** @type {Site} */
  const site = await (await get("site.json")).json();
  const meter = new Meter(site.bytes);
  return meter.during(async () => {
    meter.step("Loading Python");
    const indexURL = new URL(site.pyodide, root).href;
    const { loadPyodide } = await import(new URL("pyodide.mjs", indexURL).href);
    const pyodide = await loadPyodide({ indexURL, stdin: () => null });
    meter.step("Loading NumPy");
    await pyodide.loadPackage(site.packages, { messageCallback: () => {} });
    meter.step("Loading py_gemm");
    const { loadPyGemm } = await import(new URL("pygemm.js", root).href);
    await loadPyGemm(pyodide, { wheel: new URL(site.wheel, root) });
    for (const name of modules) {
      pyodide.FS.writeFile(`/home/pyodide/${name}.py`, await (await get(`python/${name}.py`)).text());
    }
    // Pyodide looks at the first of these numbers wherever Python is, the session at the second between two products.
    const interrupt = scope.crossOriginIsolated ? new SharedArrayBuffer(8) : null;
    const marks = interrupt ? new Int32Array(interrupt) : new Int32Array(2);
    if (interrupt) {
      pyodide.setInterruptBuffer(marks);
    }
    meter.step("Starting Python and asking for the GPU");
    const compares = wanted === "bench" && site.peers;
    const libraries = compares ? [await import(new URL("bench/peers.js", root).href), new URL("peers/", root).href] : [];
    const session = pyodide.pyimport(modules.at(-1)).Session(tell, () => Atomics.load(marks, 1) === 1, ...libraries);
    const facts = await session.start();
    return { session, ready: { ...facts, pyodide: pyodide.version, interrupt } };
  });
}

/**
 * The buffers in an answer that can be handed over instead of copied.
 * @param {any} value
 * @returns {Transferable[]}
 */
function buffersOf(value) {
  const found = [value, value?.picture?.values, value?.errors?.map?.values];
  return found.filter((item) => ArrayBuffer.isView(item)).map((item) => /** @type {ArrayBuffer} */ (item.buffer));
}

/** Answers one request after the other, in the order in which they came. */
async function serve() {
  /** @type {Promise<unknown>} */
  let before = Promise.resolve();
  const started = start();
  scope.onmessage = ({ data: { id, verb, args } }) => {
    before = before.then(async () => {
      try {
        const { session } = await started;
        const value = await session[verb](...args);
        scope.postMessage({ id, value }, buffersOf(value));
      } catch (error) {
        scope.postMessage({ id, fault: error instanceof Error ? error.message : String(error) });
      }
    });
  };
  try {
    const { ready } = await started;
    tell("ready", ready);
  } catch (error) {
    tell("failed", error instanceof Error ? error.message : String(error));
  }
}

void serve();
