// The page in which tests run Python: `host.start(options)` makes a Pyodide here or in a worker, the other calls drive it.
// Tests reach it through Playwright only; it draws nothing.

import { Realm } from "./realm.js";

/** @typedef {import("./realm.js").RealmOptions} RealmOptions */
/** @typedef {import("./realm.js").Outcome} Outcome */

/** @type {(action: string, ...parts: unknown[]) => Promise<unknown>} */
let call = () => Promise.reject(new Error("host.start comes first"));

/** @param {RealmOptions} options */
async function startHere(options) {
  const realm = await Realm.start(options);
  call = async (action, ...parts) => /** @type {any} */ (realm)[action](...parts);
}

/** @param {RealmOptions} options */
async function startWorker(options) {
  const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  /** @type {Map<number, { resolve: (value: unknown) => void, reject: (reason: Error) => void }>} */
  const waiting = new Map();
  let count = 0;
  worker.onmessage = ({ data }) => {
    const promise = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.failure === undefined) {
      promise?.resolve(data.value);
    } else {
      promise?.reject(new Error(data.failure));
    }
  };
  worker.onerror = (event) => {
    const reason = new Error(`the worker failed: ${event.message}`);
    waiting.forEach(({ reject }) => reject(reason));
    waiting.clear();
  };
  call = (action, ...parts) =>
    new Promise((resolve, reject) => {
      count += 1;
      waiting.set(count, { resolve, reject });
      worker.postMessage({ id: count, action, parts });
    });
  await call("start", options);
}

const host = {
  /** @param {RealmOptions & { worker: boolean }} options */
  start: ({ worker, ...options }) => (worker ? startWorker(options) : startHere(options)),
  /** @param {[boolean, string, string]} parts */
  run: (parts) => /** @type {Promise<Outcome>} */ (call("run", ...parts)),
  /** @param {[string, string]} parts */
  putFile: (parts) => call("putFile", ...parts),
};
/** @type {any} */ (globalThis).host = host;
