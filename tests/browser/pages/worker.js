// The worker's half of host.js: a Realm behind messages {id, action, parts} -> {id, value} or {id, failure}.

import { Realm } from "./realm.js";

/** @type {Realm | undefined} */
let realm;

/**
 * @param {string} action
 * @param {unknown[]} parts
 */
async function act(action, parts) {
  if (action === "start") {
    realm = await Realm.start(/** @type {import("./realm.js").RealmOptions} */ (parts[0]));
    return undefined;
  }
  return /** @type {any} */ (realm)[action](...parts);
}

self.onmessage = async ({ data: { id, action, parts } }) => {
  try {
    self.postMessage({ id, value: await act(action, parts) });
  } catch (error) {
    self.postMessage({ id, failure: String(error) });
  }
};
