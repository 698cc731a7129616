// Runs tests/cpu/pyodide_smoke.py in a Pyodide under Node and prints its answer as JSON.
// node run_in_node.mjs FOLDER-OF-PYODIDE ROOT-OF-THE-CHECKOUT
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder = "", root = ""] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")).href);
const pyodide = await loadPyodide({ indexURL: `${folder}/` });
pyodide.FS.mkdir("/checkout");
pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root }, "/checkout");
const code = `
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, "/checkout")
import json
from tests.cpu.pyodide_smoke import check
json.dumps(check())
`;
try {
  console.log(pyodide.runPython(code));
} catch (error) {
  console.error(String(error)); // uncaught, Node would print the whole of Pyodide's own source around it
  process.exitCode = 1;
}
