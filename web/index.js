// The JS side of py_gemm for pages that load Pyodide themselves: hands the bridge to Python and installs the wheel.
// It loads no Pyodide, fetches nothing but the wheel it is given, and needs no `eval`: fit for a strict Content-Security-Policy.

import * as bridge from "./bridge.js";

export * from "./bridge.js";
export { bridge };

/**
 * The part of a loaded Pyodide that is used here.
 * @typedef {object} PyodideLike
 * @property {(name: string, module: object) => void} registerJsModule
 * @property {(buffer: ArrayBuffer, format: string, options?: { extractDir?: string }) => void} unpackArchive
 * @property {(code: string) => any} runPython
 * @property {(name: string) => any} pyimport
 */

/** The name under which Python looks for a bridge before it loads its own from the package's text. */
export const BRIDGE_MODULE = "py_gemm_bridge";

/**
 * Make `import py_gemm` work in a loaded Pyodide: registers the bridge and installs the wheel.
 *
 * Rejects with the reason when the wheel cannot be had.
 * @param {PyodideLike} pyodide
 * @param {{ wheel: string | URL }} options  the address of `py_gemm-VERSION-py3-none-any.whl`, absolute or relative to the document
 * @returns {Promise<void>}
 */
export async function loadPyGemm(pyodide, { wheel }) {
  pyodide.registerJsModule(BRIDGE_MODULE, bridge);
  await installWheel(pyodide, wheel);
}

/**
 * Install the wheel alone: by micropip where it is loaded, dependencies included; else by unpacking it as it is, and then whoever
 * calls loads NumPy.
 * @param {PyodideLike} pyodide
 * @param {string | URL} wheel
 * @returns {Promise<void>}
 */
export async function installWheel(pyodide, wheel) {
  const address = new URL(wheel, globalThis.location?.href).href;
  if (pyodide.runPython("import importlib.util; importlib.util.find_spec('micropip') is not None")) {
    const micropip = pyodide.pyimport("micropip");
    try {
      await micropip.install(address);
    } finally {
      micropip.destroy();
    }
    return;
  }
  const response = await fetch(address);
  if (!response.ok) {
    throw new Error(`py_gemm: ${address}: ${response.status} ${response.statusText}`);
  }
  const extractDir = pyodide.runPython("import sysconfig; sysconfig.get_path('purelib')");
  pyodide.unpackArchive(await response.arrayBuffer(), "wheel", { extractDir });
  pyodide.runPython("import importlib; importlib.invalidate_caches()");
}
