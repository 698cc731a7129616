// The page's side of the Python worker: requests as promises, events to whoever listens, stop and restart.
// Knows nothing of what the requests mean and touches no element of the page.

/** @import { Happening, Ready, Reply } from "./types.js" */

/** What a request rejects with when Python was stopped before it answered. */
export class Stopped extends Error {}

export class Engine {
  /** @param {"demo" | "bench"} session  which Python session the worker holds */
  constructor(session = "demo") {
    this.session = session;
    /** @type {Worker | null} */
    this.worker = null;
    /** @type {Map<number, { resolve: (value: any) => void, reject: (error: Error) => void }>} */
    this.waiting = new Map();
    /** @type {Map<string, (data: any) => void>} */
    this.listeners = new Map();
    this.next = 1;
    /** @type {Int32Array | null} */
    this.interrupt = null;
    this.interrupted = false;
  }

  /** Starts the worker; "progress", then "ready" or "failed" follow as events. */
  start() {
    this.worker = new Worker(new URL(`worker.js?session=${this.session}`, import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => this.receive(data);
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.happen("failed", event.message || "The worker of this page could not be started.");
    };
  }

  /**
   * @param {string} event
   * @param {(data: any) => void} listener
   */
  on(event, listener) {
    this.listeners.set(event, listener);
  }

  /**
   * Calls a method of the Python session. Rejects with the text of a Python exception.
   * @param {string} verb
   * @param {unknown[]} args
   * @param {Transferable[]} [transfer]
   * @returns {Promise<any>}
   */
  call(verb, args, transfer = []) {
    const id = this.next++;
    if (verb === "run" || verb === "execute") {
      this.#forgetStop();
    }
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker?.postMessage({ id, verb, args }, transfer);
    });
  }

  /** A stop that came too late for one piece of work must not end the next. */
  #forgetStop() {
    this.#mark(0, 0);
    this.#mark(1, 0);
    this.interrupted = false;
  }

  /**
   * @param {number} index
   * @param {number} value
   */
  #mark(index, value) {
    if (this.interrupt) {
      Atomics.store(this.interrupt, index, value);
    }
  }

  /**
   * Stops Python where memory can be shared with it; a second time, or where it cannot, starts Python anew.
   * @param {"code" | "run"} what  code is interrupted wherever it is, a run between two products
   * @returns {boolean} whether Python starts anew, so that its matrices are gone
   */
  stop(what) {
    if (this.interrupt && !this.interrupted) {
      this.#mark(what === "code" ? 0 : 1, what === "code" ? 2 : 1);
      this.interrupted = true;
      return false;
    }
    this.worker?.terminate();
    const waiting = [...this.waiting.values()];
    this.waiting.clear();
    this.interrupt = null;
    for (const { reject } of waiting) {
      reject(new Stopped("Python was stopped."));
    }
    this.start();
    return true;
  }

  /** @param {Reply | Happening} message */
  receive(message) {
    if ("event" in message) {
      if (message.event === "ready") {
        const { interrupt } = /** @type {Ready} */ (message.data);
        this.interrupt = interrupt && new Int32Array(interrupt);
      }
      this.happen(message.event, message.data);
      return;
    }
    const waiting = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (this.waiting.size === 0) {
      this.#forgetStop();
    }
    if (message.fault === undefined) {
      waiting?.resolve(message.value);
    } else {
      waiting?.reject(new Error(message.fault));
    }
  }

  /**
   * @param {string} event
   * @param {unknown} data
   */
  happen(event, data) {
    this.listeners.get(event)?.(data);
  }
}
