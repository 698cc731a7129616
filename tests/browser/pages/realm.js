// A Pyodide for tests, the same in a page and in a worker: starts it, installs py_gemm, runs Python and hands back JSON.
// Two ways for Python to get its bridge: registered beforehand (as under a strict CSP), or loaded by Python from its own text.

import { installWheel, loadPyGemm } from "../../../web/index.js";

/**
 * @typedef {object} RealmOptions
 * @property {string} pyodide  address of the folder with Pyodide
 * @property {string[]} packages  what Pyodide loads of its own
 * @property {string} wheel  address of the wheel
 * @property {boolean} registered  whether the bridge is registered beforehand
 * @property {string} conformance  address of a zip of the table of cases
 * @property {Record<string, string>} environment  for os.environ
 *
 * @typedef {{ result: string } | { error: { type: string, message: string } }} Outcome
 */

const HELPERS = `
import json

def as_json(value):
    def convert(other):
        if hasattr(other, "to_py"):
            return other.to_py()
        if hasattr(other, "tolist"):
            return other.tolist()
        raise TypeError(f"a test's result must be JSON, not {type(other).__name__}")
    return json.dumps(value, default=convert)

def scope(names):
    return {"__name__": "__main__", **json.loads(names)}
`;

export class Realm {
  /** @param {any} pyodide */
  constructor(pyodide) {
    this.pyodide = pyodide;
    const helpers = pyodide.toPy({});
    pyodide.runPython(HELPERS, { globals: helpers });
    this.asJson = helpers.get("as_json");
    this.scope = helpers.get("scope");
  }

  /**
   * @param {RealmOptions} options
   * @returns {Promise<Realm>}
   */
  static async start(options) {
    const { loadPyodide } = await import(new URL("pyodide.mjs", options.pyodide).href);
    const pyodide = await loadPyodide({ indexURL: options.pyodide, packages: options.packages, env: options.environment });
    if (options.registered) {
      await loadPyGemm(pyodide, { wheel: options.wheel });
    } else {
      await installWheel(pyodide, options.wheel);
    }
    pyodide.unpackArchive(await download(options.conformance), "zip", { extractDir: "/checkout" });
    pyodide.runPython("import sys; sys.path.insert(0, '/checkout')");
    return new Realm(pyodide);
  }

  /**
   * Run code in a namespace of its own; the value of its last expression comes back as JSON.
   * `promising` enters Python so that it may wait for promises; without it Python is entered as a plain synchronous call does.
   * @param {boolean} promising
   * @param {string} code
   * @param {string} names  JSON object of the names that the code sees
   * @returns {Promise<Outcome>}
   */
  async run(promising, code, names) {
    const globals = this.scope(names);
    let value;
    try {
      value = promising ? await this.pyodide.runPythonAsync(code, { globals }) : this.pyodide.runPython(code, { globals });
      return { result: this.asJson(value) };
    } catch (error) {
      if (error instanceof Error && error.name === "PythonError") {
        return { error: { type: /** @type {any} */ (error).type, message: error.message } };
      }
      throw error;
    } finally {
      value?.destroy?.();
      globals.destroy();
    }
  }

  /**
   * @param {string} name
   * @param {string} base64
   */
  putFile(name, base64) {
    this.pyodide.FS.writeFile(name, Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
  }
}

/** @param {string} address */
async function download(address) {
  const response = await fetch(address);
  if (!response.ok) {
    throw new Error(`${address}: ${response.status}`);
  }
  return response.arrayBuffer();
}
