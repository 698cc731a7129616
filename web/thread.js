// A thread of the CPU road: the script of a worker that runs kernels on shared memory. Waits for work without a turn of its event
// loop, so that a call in Python needs none either; knows nothing of what a kernel computes.
//
// The first bytes of the shared memory are one line of words for each worker (py_gemm/cpu/engines/workers.py writes them):
//
//   GO            a number that changes when there is work      DONE         that number, once the work is done
//   UP            1 once the worker waits for work; 0: leave    STATUS       what the kernel returned; FAILED where there was none
//   BLOCK         where the argument block lies                 SCRATCH      where the scratch memory begins
//   CODE, LENGTH  where the module lies, and its bytes          MODULE       its number: a worker compiles a module once
//   NAME, LETTERS where the kernel's name lies, and its bytes

const GO = 0;
const DONE = 1;
const UP = 2;
const STATUS = 3;
const BLOCK = 4;
const SCRATCH = 5;
const CODE = 6;
const LENGTH = 7;
const MODULE = 8;
const NAME = 9;
const LETTERS = 10;
const WORDS = 16;
const FAILED = -1;

/** @typedef {{ memory: WebAssembly.Memory, index: number }} Seat */

/**
 * What this file uses of the scope of a dedicated worker.
 * @typedef {object} Scope
 * @property {((event: MessageEvent<Seat>) => void) | null} onmessage
 * @property {(message: "up") => void} postMessage
 */

const scope = /** @type {Scope} */ (/** @type {unknown} */ (self));

/** @param {Seat} seat */
function work({ memory, index }) {
  const words = new Int32Array(memory.buffer, index * WORDS * 4, WORDS);
  /** @param {number} at */
  const word = (at) => Atomics.load(words, at);
  /** A copy: neither the compiler nor the decoder of text takes shared memory. @param {number} at @param {number} length */
  const bytes = (at, length) => new Uint8Array(memory.buffer, word(at) >>> 0, word(length)).slice();
  /** @type {Map<number, WebAssembly.Exports>} */
  const modules = new Map();

  const run = () => {
    let exports = modules.get(word(MODULE));
    if (!exports) {
      exports = new WebAssembly.Instance(new WebAssembly.Module(bytes(CODE, LENGTH)), { env: { memory } }).exports;
      modules.set(word(MODULE), exports);
    }
    const kernel = /** @type {(block: number, scratch: number) => number} */ (exports[new TextDecoder().decode(bytes(NAME, LETTERS))]);
    return kernel(word(BLOCK), word(SCRATCH));
  };

  let seen = word(GO);
  Atomics.store(words, UP, 1);
  scope.postMessage("up");
  for (;;) {
    Atomics.wait(words, GO, seen);
    if (word(GO) === seen) {
      continue;
    }
    seen = word(GO);
    if (word(UP) === 0) {
      Atomics.store(words, DONE, seen);
      return; // to the event loop, where terminate() takes effect at once
    }
    let status = FAILED;
    try {
      status = run();
    } catch (error) {
      console.error("py_gemm: a kernel cannot run in this worker:", error);
    }
    Atomics.store(words, STATUS, status);
    Atomics.store(words, DONE, seen);
    Atomics.notify(words, DONE);
  }
}

scope.onmessage = ({ data }) => work(data);

export {};
