// Runs tests/exact/pyodide_check.py in a Pyodide with NumPy under Node and prints its answer as JSON.
// node run_in_node.mjs FOLDER-OF-PYODIDE ROOT-OF-THE-CHECKOUT
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder = "", root = ""] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")).href);
const pyodide = await loadPyodide({ indexURL: `${folder}/` });
await pyodide.loadPackage("numpy", { messageCallback: () => {} });
pyodide.FS.mkdir("/checkout");
pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root }, "/checkout");
const code = `
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, "/checkout")
import json
from tests.exact.pyodide_check import check
json.dumps(check())
`;
try {
  console.log(pyodide.runPython(code));
} catch (error) {
  console.error(String(error)); // uncaught, Node would print the whole of Pyodide's own source around it
  process.exitCode = 1;
}
