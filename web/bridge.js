// The bridge between Python in a page (or a worker) and WebGPU. Python hands over one job in one call: uploads, dispatches and
// read-backs. Everything up to the submission happens during that call; only the read-back is waited for.
//
// Bytes never pass through JavaScript arrays of their own: uploads go from Python's memory to the queue, read-backs from the
// mapped staging buffer to Python's memory. A view of that memory is used in the step that takes it, never across an await:
// once the memory grows, every older view is empty.
//
// One ES module without imports and without eval, so that Python can load it from its text and a page under a strict
// Content-Security-Policy can serve it. It decides nothing: shaders, grids and buffer re-use come from py_gemm/gpu.

/**
 * A Python object that has the buffer protocol, as Pyodide hands it over. Always asked for bytes: Pyodide has no float16 view.
 * @typedef {object} PyBytes
 * @property {(format: "u8") => { data: Uint8Array<ArrayBuffer>, release: () => void }} getBuffer
 * @property {() => void} destroy
 */

/** @typedef {{ kind: "validation" | "out-of-memory" | "internal" | "lost", message: string }} Fault */
/** What a dispatch binds: a buffer, or a window of it. @typedef {number | [buffer: number, offset: number, size: number]} Bound */
/** @typedef {[shader: number, buffers: Bound[], parameters: string, x: number, y: number, z: number]} Dispatch */

/**
 * What Python asks for; proxies follow in the order of `u`, then `r`.
 * @typedef {object} Job
 * @property {[buffer: number, offset: number][]} u  uploads
 * @property {Dispatch[]} d  dispatches, `parameters` being the uniform block in hexadecimal
 * @property {[buffer: number, offset: number, nbytes: number][]} r  read-backs
 * @property {1} [t]  bring times back now, as a read does
 */

/**
 * A pipeline's text, the bindings of its group 0 ("uniform", "read", "write"), what it became; bind groups, least recently used first.
 * @typedef {{ label: string, code: string, bindings: string[], pipeline?: GPUComputePipeline, groups: Map<string, GPUBindGroup> }} Shader
 */

/** An error of the device or of a call, in the device's own words. */
export class GpuError extends Error {
  /** @param {Fault["kind"] | "unsupported"} kind @param {string} message */
  constructor(kind, message) {
    super(message);
    this.name = "GpuError";
    this.kind = kind;
  }
}

// A slot holds any uniform block; 256 is the alignment of dynamic offsets that WebGPU guarantees.
const SLOT_BYTES = 256;
const ARENA_SLOTS = 256;
const BIND_GROUPS = 64;
const STAGING_BYTES = 64 * 2 ** 20;
// Jobs whose times can wait for a read-back, and the bytes of their timestamps.
const CLOCK_SLOTS = 64;
const STAMPS_BYTES = 16 * CLOCK_SLOTS;
// Closed in the other order: what is reported first where one cause shows in several.
const SCOPES = /** @type {const} */ (["validation", "internal", "out-of-memory"]);
const RAISED_LIMITS = /** @type {const} */ ([
  "maxStorageBufferBindingSize",
  "maxBufferSize",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
]);
const WANTED_FEATURES = /** @type {const} */ (["timestamp-query", "subgroups"]);

/** @param {number} bytes  rounded up to whole words */
const words = (bytes) => Math.ceil(bytes / 4) * 4;

/**
 * Where the script of the CPU road's threads lies: beside this file. Null where this file has no address, made from its text.
 * @type {string | null}
 */
export const threadScript = /^https?:/u.test(import.meta.url) ? new URL("./thread.js", import.meta.url).href : null;

/** @param {unknown} error */
const textOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Timestamps around compute passes, in a ring of slots. A read-back brings the times of all jobs since the one before; of more jobs than
 * there are slots the first go without. A job is named by its ticket.
 */
class Clock {
  /** @param {GPUDevice} device */
  constructor(device) {
    this.#set = device.createQuerySet({ type: "timestamp", count: 2 * CLOCK_SLOTS });
    // Resolved times begin at a multiple of 256 bytes; those of a ring that has wrapped lie in two runs.
    this.#resolved = device.createBuffer({ size: 2 * STAMPS_BYTES, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
  }

  /** @type {GPUQuerySet} */ #set;
  /** @type {GPUBuffer} */ #resolved;
  #next = 0;
  /** Slots in the order of their jobs, which is that of the ring. @type {Map<number, number>} */ #expected = new Map();
  /** @type {Map<number, number>} */ #seconds = new Map();

  get isWaiting() {
    return this.#expected.size > 0;
  }

  /** What the next job's pass writes; the slot is taken from the job that had it. @returns {GPUComputePassTimestampWrites} */
  writes() {
    this.#expected.delete(this.#next);
    return { querySet: this.#set, beginningOfPassWriteIndex: 2 * this.#next, endOfPassWriteIndex: 2 * this.#next + 1 };
  }

  /**
   * Copy all times that are expected to `staging`, that of this job's pass too where it has one. Returns whose they are, in that order.
   * @param {GPUCommandEncoder} encoder @param {GPUBuffer} staging @param {number} offset @param {number | null} ticket
   */
  resolve(encoder, staging, offset, ticket) {
    const slots = [...this.#expected.keys(), ...(ticket === null ? [] : [this.#next])];
    let at = 0;
    while (at < slots.length) {
      const first = /** @type {number} */ (slots[at]);
      const count = Math.min(slots.length - at, CLOCK_SLOTS - first);
      const place = at === 0 ? 0 : STAMPS_BYTES;
      encoder.resolveQuerySet(this.#set, 2 * first, 2 * count, this.#resolved, place);
      encoder.copyBufferToBuffer(this.#resolved, place, staging, offset + 16 * at, 16 * count);
      at += count;
    }
    return [...this.#expected.values(), ...(ticket === null ? [] : [ticket])];
  }

  /** A job was submitted. Only now: a time that no job writes must not be asked for. @param {number | null} ticket @param {boolean} brought */
  submitted(ticket, brought) {
    if (brought) {
      this.#expected.clear();
    } else if (ticket !== null) {
      this.#expected.set(this.#next, ticket);
    }
    this.#next = ticket === null ? this.#next : (this.#next + 1) % CLOCK_SLOTS;
  }

  /** @param {number[]} tickets @param {BigUint64Array} stamps */
  tell(tickets, stamps) {
    tickets.forEach((ticket, index) => {
      const [begin = 0n, end = 0n] = stamps.subarray(2 * index, 2 * index + 2);
      this.#seconds.set(ticket, end >= begin ? Number(end - begin) * 1e-9 : -1);
    });
    const old = [...this.#seconds.keys()].slice(0, Math.max(this.#seconds.size - 4 * CLOCK_SLOTS, 0));
    old.forEach((ticket) => this.#seconds.delete(ticket));
  }

  /** The seconds that a job took on the device, -1 where they are not known. @param {number} ticket */
  seconds(ticket) {
    return this.#seconds.get(ticket) ?? -1;
  }
}

/** One device and what was made on it. Buffers and shaders are numbers on Python's side. */
export class Bridge {
  /**
   * Ask the browser for a device. Rejects with a GpuError of kind "unsupported" that says why there is none.
   * @param {{ powerPreference?: GPUPowerPreference, gpu?: GPU }} [options]  `gpu` in place of navigator.gpu
   * @returns {Promise<Bridge>}
   */
  static async request(options = {}) {
    const gpu = options.gpu ?? globalThis.navigator?.gpu;
    if (!gpu) {
      const why = globalThis.isSecureContext === false ? "the page is not a secure context (https or localhost)" : "no navigator.gpu";
      throw new GpuError("unsupported", `this browser offers no WebGPU here: ${why}`);
    }
    const adapter = await gpu.requestAdapter({ powerPreference: options.powerPreference ?? "high-performance" });
    if (!adapter) {
      throw new GpuError("unsupported", "WebGPU is here, but it has no adapter (no usable GPU or driver, or the browser blocks it)");
    }
    const requiredLimits = Object.fromEntries(RAISED_LIMITS.map((name) => [name, adapter.limits[name]]));
    const requiredFeatures = WANTED_FEATURES.filter((name) => adapter.features.has(name));
    try {
      const device = await adapter.requestDevice({ requiredFeatures, requiredLimits });
      return new Bridge(device, adapter.info, [...(gpu.wgslLanguageFeatures ?? [])]);
    } catch (error) {
      throw new GpuError("unsupported", `the adapter gave no device: ${textOf(error)}`);
    }
  }

  /**
   * @param {GPUDevice} device  also a page's own
   * @param {GPUAdapterInfo} adapterInfo
   * @param {string[]} languageFeatures
   */
  constructor(device, adapterInfo, languageFeatures) {
    this.device = device;
    /** @type {string | null} why the device is gone */
    this.lost = null;
    this.#info = adapterInfo;
    this.#languageFeatures = languageFeatures;
    this.#gone = device.lost.then(({ reason, message }) => {
      this.lost ??= [reason === "unknown" ? "" : reason, message].filter(Boolean).join(": ") || "no reason given";
    });
    this.#timed = device.features.has("timestamp-query");
  }

  /** @type {GPUAdapterInfo} */ #info;
  /** @type {string[]} */ #languageFeatures;
  /** @type {Promise<void>} */ #gone;
  /** @type {boolean} */ #timed;
  /** @type {Clock | null} */ #clock = null;
  #tickets = 0;
  /** @type {Map<number, GPUBuffer>} */ #buffers = new Map();
  /** @type {WeakMap<GPUBuffer, number>} */ #numbers = new WeakMap();
  #nextNumber = 1;
  /** @type {Shader[]} */ #shaders = [];
  /** @type {Map<string, { group: GPUBindGroupLayout, pipeline: GPUPipelineLayout }>} */ #layouts = new Map();
  /** @type {GPUBuffer | null} */ #arena = null;
  #arenaNumber = 0;
  /** @type {Map<string, number>} */ #slots = new Map();
  /** @type {GPUBuffer[]} */ #staging = [];
  #stagingBytes = 0;
  /** Outcomes of jobs that nobody has waited for yet. @type {Set<Promise<Fault | null>>} */ #unreported = new Set();
  #counts = { buffers: 0, bind_groups: 0, parameter_slots: 0, pipelines: 0, staging_buffers: 0 };

  /** The device in words and figures, as JSON. */
  describe() {
    const { vendor, architecture, device, description, isFallbackAdapter } = this.#info;
    const { features, limits } = this.device;
    return JSON.stringify({
      info: { vendor, architecture, device, description },
      fallback: Boolean(isFallbackAdapter),
      // The names are getters of the prototype: a copy by spreading would be empty.
      limits: Object.fromEntries(Object.keys(Object.getPrototypeOf(limits)).map((name) => [name, /** @type {any} */ (limits)[name]])),
      features: [...features],
      language_features: this.#languageFeatures,
    });
  }

  /** How many objects were created since the start, as JSON. */
  counts() {
    return JSON.stringify(this.#counts);
  }

  destroy() {
    this.lost ??= "destroyed";
    this.device.destroy();
  }

  // Buffers

  /** @param {number} bytes @returns {number} the new buffer's number */
  createBuffer(bytes) {
    this.#requireAlive();
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const buffer = this.#watched(() => this.device.createBuffer({ size: bytes, usage }));
    this.#counts.buffers++;
    return this.adopt(buffer);
  }

  /** The number of any buffer of this device, the same whenever it is asked. @param {GPUBuffer} buffer */
  adopt(buffer) {
    let number = this.#numbers.get(buffer);
    if (number === undefined) {
      number = this.#nextNumber++;
      this.#numbers.set(buffer, number);
    }
    this.#buffers.set(number, buffer);
    return number;
  }

  /** @param {number} number @returns {GPUBuffer} */
  buffer(number) {
    const buffer = this.#buffers.get(number);
    if (!buffer) {
      throw new GpuError("validation", `there is no buffer ${number}`);
    }
    return buffer;
  }

  /** Free a buffer, and forget the bind groups that hold it. @param {number} number */
  destroyBuffer(number) {
    this.#buffers.get(number)?.destroy();
    this.#buffers.delete(number);
    for (const { groups } of this.#shaders) {
      const holds = (/** @type {string} */ key) => key.split(" ").some((each, at) => at > 0 && each.split(",")[0] === String(number));
      [...groups.keys()].filter(holds).forEach((key) => groups.delete(key));
    }
  }

  // Pipelines

  /** @param {string} label @param {string} code  WGSL with the entry point `main` @param {string} bindings  separated by spaces */
  define(label, code, bindings) {
    return this.#shaders.push({ label, code, bindings: bindings.split(" "), groups: new Map() }) - 1;
  }

  /** Compile without blocking. @param {string} numbers  shaders, separated by spaces @returns {Promise<void>} */
  async prepare(numbers) {
    this.#requireAlive();
    const shaders = numbers.split(" ").map((number) => this.#shader(Number(number)));
    await Promise.all(shaders.filter(({ pipeline }) => !pipeline).map((shader) => this.#compile(shader)));
  }

  /** @param {Shader} shader */
  async #compile(shader) {
    this.device.pushErrorScope("validation");
    const descriptor = this.#descriptor(shader);
    const faulty = this.device.popErrorScope();
    try {
      shader.pipeline = await this.device.createComputePipelineAsync(descriptor);
      this.#counts.pipelines++;
    } catch (error) {
      throw await this.#explained(error, `${shader.label}: ${(await faulty)?.message ?? textOf(error)}`);
    }
  }

  /** Drop the bind groups of one shader. @param {number} number */
  releaseBindings(number) {
    this.#shader(number).groups.clear();
  }

  // Work

  /**
   * Record into a caller's encoder; submits nothing.
   * @param {GPUCommandEncoder} encoder
   * @param {string} dispatches  JSON of Dispatch[]
   */
  record(encoder, dispatches) {
    this.#requireAlive();
    this.#watched(() => this.#encode(encoder, JSON.parse(dispatches), null));
  }

  /** Finish an encoder and submit it. @param {GPUCommandEncoder} encoder */
  submit(encoder) {
    this.#requireAlive();
    this.#watched(() => this.device.queue.submit([encoder.finish()]));
  }

  /**
   * Run a job. Where it brings nothing back, returns its ticket for `seconds`, or nothing where its time is not taken: `settle` waits for
   * those and reports their faults, and so does the next read-back. Otherwise a promise of the seconds that the device took (-1 where
   * unknown), settled when all has arrived.
   * @param {string} text  JSON of Job
   * @param {PyBytes[]} proxies  for its uploads and its reads; each is destroyed when it is done with
   * @returns {Promise<number> | number | undefined}
   */
  execute(text, ...proxies) {
    /** @type {Job} */
    const job = JSON.parse(text);
    const sources = proxies.slice(0, job.u.length);
    const destinations = proxies.slice(job.u.length);
    const brings = job.r.length > 0 || (job.t === 1 && this.#timed);
    const total = job.r.reduce((sum, [, , nbytes]) => sum + words(nbytes), 0);
    const stampsAt = Math.ceil(total / 8) * 8;
    const stagingBytes = stampsAt + (this.#timed ? STAMPS_BYTES : 0);
    /** @type {Clock | null} */
    let clock = null;
    /** @type {number | null} */
    let ticket = null;
    /** @type {number[]} */
    let tickets = [];
    /** @type {GPUBuffer | null} */
    let staging = null;
    let started = false;
    try {
      this.#requireAlive();
      this.#watched(() => {
        job.u.forEach(([number, offset], index) => this.#write(number, offset, /** @type {PyBytes} */ (sources[index])));
        if (job.d.length === 0 && !brings) {
          return;
        }
        const encoder = this.device.createCommandEncoder();
        clock = this.#timed ? (this.#clock ??= new Clock(this.device)) : null;
        ticket = clock && job.d.length > 0 ? ++this.#tickets : null;
        this.#encode(encoder, job.d, clock);
        if (brings) {
          staging = this.#takeStaging(stagingBytes);
          let at = 0;
          for (const [number, offset, nbytes] of job.r) {
            encoder.copyBufferToBuffer(this.buffer(number), offset, staging, at, words(nbytes));
            at += words(nbytes);
          }
          tickets = clock?.resolve(encoder, staging, stampsAt, ticket) ?? [];
        }
        this.device.queue.submit([encoder.finish()]);
        clock?.submitted(ticket, brings);
      });
      started = true;
    } finally {
      sources.forEach((proxy) => proxy.destroy());
      if (!started) {
        destinations.forEach((proxy) => proxy.destroy());
      }
    }
    if (staging) {
      return this.#readBack(staging, stagingBytes, job.r, destinations, { clock, tickets, ticket, stampsAt });
    }
    return ticket ?? undefined;
  }

  /** The seconds that the device took for a job, -1 while they are not known. @param {number} ticket */
  seconds(ticket) {
    return this.#clock?.seconds(ticket) ?? -1;
  }

  /** Wait until the device has finished everything submitted, and report what failed meanwhile. @returns {Promise<void>} */
  async settle() {
    this.#requireAlive();
    if (this.#clock?.isWaiting) {
      await this.execute('{"u":[],"d":[],"r":[],"t":1}');
      return;
    }
    const outcomes = this.#takeOutcomes();
    await this.device.queue.onSubmittedWorkDone();
    await this.#report(outcomes);
  }

  // What lasts: words by name, in this origin's IndexedDB

  /** Keep a word. Rejects where the browser keeps nothing here. @param {string} key @param {string} value @returns {Promise<void>} */
  async remember(key, value) {
    await this.#stored("readwrite", (store) => store.put(value, key));
  }

  /** What was kept, or "": also where the browser keeps nothing here. @param {string} key @returns {Promise<string>} */
  async recall(key) {
    return this.#stored("readonly", (store) => store.get(key)).then(
      (value) => (typeof value === "string" ? value : ""),
      () => "",
    );
  }

  /** @template T @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest<T>} action @returns {Promise<T>} */
  async #stored(mode, action) {
    /** @type {<R>(request: IDBRequest<R>) => Promise<R>} */
    const settled = (request) =>
      new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      });
    const opening = indexedDB.open("py_gemm", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("words");
    const database = await settled(opening);
    try {
      return await settled(action(database.transaction("words", mode).objectStore("words")));
    } finally {
      database.close();
    }
  }

  // What those are made of

  #requireAlive() {
    if (this.lost !== null) {
      throw new GpuError("lost", this.lost);
    }
  }

  /** Do something under error scopes; what they catch is kept until somebody waits. @template T @param {() => T} action @returns {T} */
  #watched(action) {
    SCOPES.forEach((scope) => this.device.pushErrorScope(scope));
    try {
      return action();
    } catch (error) {
      throw error instanceof GpuError ? error : new GpuError("validation", textOf(error));
    } finally {
      const closed = [...SCOPES].reverse().map(async (kind) => {
        const error = await this.device.popErrorScope();
        return error && { kind, message: error.message };
      });
      /** @type {Promise<Fault | null>} */
      const outcome = Promise.all(closed).then(
        (faults) => faults.find(Boolean) ?? null,
        (error) => ({ kind: "lost", message: this.lost ?? textOf(error) }),
      );
      this.#unreported.add(outcome);
      outcome.then((fault) => fault === null && this.#unreported.delete(outcome));
    }
  }

  #takeOutcomes() {
    const outcomes = [...this.#unreported];
    this.#unreported.clear();
    return outcomes;
  }

  /** Throw the first fault among these. @param {Promise<Fault | null>[]} outcomes */
  async #report(outcomes) {
    const fault = (await Promise.all(outcomes)).find((each) => each !== null);
    if (this.lost !== null) {
      throw new GpuError("lost", this.lost);
    }
    if (fault?.kind === "out-of-memory") {
      // Whatever was made since may be dead; the next job makes these anew.
      this.#arena = null;
      this.#slots.clear();
      this.#clock = null;
    }
    if (fault) {
      throw new GpuError(fault.kind, fault.message);
    }
  }

  /** A rejection in our words. A lost device rejects promises first and says why later. @param {unknown} error @param {string} text */
  async #explained(error, text) {
    if (this.lost === null) {
      await Promise.race([this.#gone, new Promise((resolve) => setTimeout(resolve, 50))]);
    }
    const reason = /** @type {any} */ (error)?.reason;
    return this.lost === null ? new GpuError(reason === "internal" ? "internal" : "validation", text) : new GpuError("lost", this.lost);
  }

  /** @param {number} number */
  #shader(number) {
    const shader = this.#shaders[number];
    if (!shader) {
      throw new GpuError("validation", `there is no shader ${number}`);
    }
    return shader;
  }

  /** @param {Shader} shader @returns {GPUComputePipelineDescriptor} */
  #descriptor({ label, code, bindings }) {
    const module = this.device.createShaderModule({ label, code });
    return { label, layout: this.#layout(bindings).pipeline, compute: { module, entryPoint: "main" } };
  }

  /** @param {string[]} bindings */
  #layout(bindings) {
    const key = bindings.join(" ");
    let layout = this.#layouts.get(key);
    if (!layout) {
      /** @type {Record<string, GPUBufferBindingType>} */
      const types = { uniform: "uniform", read: "read-only-storage", write: "storage" };
      const entries = bindings.map((each, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type: types[each] ?? "storage", hasDynamicOffset: each === "uniform" },
      }));
      const group = this.device.createBindGroupLayout({ entries });
      layout = { group, pipeline: this.device.createPipelineLayout({ bindGroupLayouts: [group] }) };
      this.#layouts.set(key, layout);
    }
    return layout;
  }

  /** @param {GPUCommandEncoder} encoder @param {Dispatch[]} dispatches @param {Clock | null} clock */
  #encode(encoder, dispatches, clock) {
    if (dispatches.length === 0) {
      return;
    }
    const pass = encoder.beginComputePass(clock ? { timestampWrites: clock.writes() } : {});
    for (const [number, buffers, parameters, x, y, z] of dispatches) {
      const shader = this.#shader(number);
      if (!shader.pipeline) {
        shader.pipeline = this.device.createComputePipeline(this.#descriptor(shader));
        this.#counts.pipelines++;
      }
      // The slot first: it may open the arena that the bind group names.
      const offset = this.#slot(parameters);
      pass.setPipeline(shader.pipeline);
      pass.setBindGroup(0, this.#bindGroup(shader, buffers), [offset]);
      pass.dispatchWorkgroups(x, y, z);
    }
    pass.end();
  }

  /**
   * The dynamic offset of a slot that holds these parameters. Slots are never overwritten, so an encoder may be submitted at any
   * later time; a full arena is forgotten, and whatever was recorded with it keeps it alive.
   * @param {string} parameters
   */
  #slot(parameters) {
    let offset = this.#slots.get(parameters);
    if (offset === undefined) {
      if (!this.#arena || this.#slots.size === ARENA_SLOTS) {
        const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
        this.#arena = this.device.createBuffer({ size: ARENA_SLOTS * SLOT_BYTES, usage });
        this.#arenaNumber++;
        this.#slots.clear();
      }
      offset = this.#slots.size * SLOT_BYTES;
      const bytes = Uint8Array.from(parameters.match(/../g) ?? [], (pair) => parseInt(pair, 16));
      this.device.queue.writeBuffer(this.#arena, offset, bytes);
      this.#slots.set(parameters, offset);
      this.#counts.parameter_slots++;
    }
    return offset;
  }

  /** @param {Shader} shader @param {Bound[]} bound @returns {GPUBindGroup} */
  #bindGroup({ groups, bindings }, bound) {
    const key = [this.#arenaNumber, ...bound].join(" ");
    let group = groups.get(key);
    if (group) {
      groups.delete(key);
    } else {
      const uniform = { binding: 0, resource: { buffer: /** @type {GPUBuffer} */ (this.#arena), size: SLOT_BYTES } };
      const storage = bound.map((each, index) => {
        const [number, ...window] = typeof each === "number" ? [each] : each;
        const [offset = 0, size = this.buffer(number).size] = window;
        return { binding: index + 1, resource: { buffer: this.buffer(number), offset, size } };
      });
      group = this.device.createBindGroup({ layout: this.#layout(bindings).group, entries: [uniform, ...storage] });
      this.#counts.bind_groups++;
      if (groups.size === BIND_GROUPS) {
        groups.delete(/** @type {string} */ (groups.keys().next().value));
      }
    }
    groups.set(key, group);
    return group;
  }

  /**
   * From Python's memory to the queue in one step. The queue takes whole words; what is left over goes in a word of its own.
   * @param {number} number @param {number} offset @param {PyBytes} source
   */
  #write(number, offset, source) {
    const buffer = this.buffer(number);
    const view = source.getBuffer("u8");
    try {
      const { data } = view;
      const whole = data.length - (data.length % 4);
      if (whole > 0) {
        this.device.queue.writeBuffer(buffer, offset, data, 0, whole);
      }
      if (whole < data.length) {
        const last = new Uint8Array(4);
        last.set(data.subarray(whole));
        this.device.queue.writeBuffer(buffer, offset + whole, last);
      }
    } finally {
      view.release();
    }
  }

  /** An unused staging buffer of this size, rounded up to a quarter of an octave so that many sizes share one. @param {number} bytes */
  #takeStaging(bytes) {
    const quarter = 2 ** Math.max(Math.ceil(Math.log2(bytes)) - 3, 8);
    const size = Math.min(Math.ceil(bytes / quarter) * quarter, this.device.limits.maxBufferSize);
    const index = this.#staging.findIndex((each) => each.size === size);
    const [found] = index < 0 ? [] : this.#staging.splice(index, 1);
    if (found) {
      this.#stagingBytes -= size;
      return found;
    }
    this.#counts.staging_buffers++;
    return this.device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  }

  /** @param {GPUBuffer} staging */
  #giveStaging(staging) {
    this.#staging.push(staging);
    this.#stagingBytes += staging.size;
    while (this.#stagingBytes > STAGING_BYTES) {
      const oldest = /** @type {GPUBuffer} */ (this.#staging.shift());
      this.#stagingBytes -= oldest.size;
      oldest.destroy();
    }
  }

  /**
   * @param {GPUBuffer} staging @param {number} bytes @param {Job["r"]} reads @param {PyBytes[]} destinations
   * @param {{ clock: Clock | null, tickets: number[], ticket: number | null, stampsAt: number }} times
   */
  async #readBack(staging, bytes, reads, destinations, { clock, tickets, ticket, stampsAt }) {
    const outcomes = this.#takeOutcomes();
    let mapped = false;
    let seconds = -1;
    try {
      const refusal = await staging.mapAsync(GPUMapMode.READ, 0, bytes).then(
        () => null,
        (error) => error ?? new Error("mapAsync failed"),
      );
      mapped = refusal === null;
      await this.#report(outcomes);
      if (refusal !== null) {
        throw await this.#explained(refusal, textOf(refusal));
      }
      const range = staging.getMappedRange(0, bytes);
      let at = 0;
      reads.forEach(([, , nbytes], index) => {
        const view = /** @type {PyBytes} */ (destinations[index]).getBuffer("u8");
        view.data.set(new Uint8Array(range, at, nbytes));
        view.release();
        at += words(nbytes);
      });
      if (clock) {
        clock.tell(tickets, new BigUint64Array(range, stampsAt, 2 * tickets.length));
        seconds = ticket === null ? -1 : clock.seconds(ticket);
      }
    } finally {
      if (mapped && this.lost === null) {
        staging.unmap();
        this.#giveStaging(staging);
      } else {
        staging.destroy();
      }
      destinations.forEach((proxy) => proxy.destroy());
    }
    return seconds;
  }
}
