// Measures the CPU road in a Pyodide under Node and prints the figures as JSON; progress goes to stderr.
// node bench_node.mjs FOLDER-OF-PYODIDE ROOT-OF-THE-CHECKOUT EXTENT PEERS-MODULE FOLDER-OF-PEERS WHY-THERE-ARE-NONE
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder = "", root = "", extent = "", peersModule = "", peersFolder = "", unavailable = ""] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")).href);
const pyodide = await loadPyodide({ indexURL: `${folder}/` });
await pyodide.loadPackage(["numpy", "scipy"], { messageCallback: () => {} });
pyodide.FS.mkdir("/checkout");
pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root }, "/checkout");
pyodide.registerJsModule("py_gemm_bench_host", {
  extent,
  unavailable,
  peers: await import(pathToFileURL(peersModule).href),
  root: `${pathToFileURL(peersFolder).href}/`,
  say: (/** @type {string} */ text) => process.stderr.write(`  ${text}\n`),
});
const code = `
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, "/checkout")
import json
import py_gemm_bench_host as host
from py_gemm.report.bench import bench_async
from py_gemm.report.benchmark.contenders import PagePeers
peers = PagePeers(host.peers, host.root, host.unavailable)
found = await bench_async("cpu", extent=host.extent, progress=host.say, peers=peers)
json.dumps(next(iter(found.places.values())))
`;
try {
  console.log(await pyodide.runPythonAsync(code));
  process.exit(0); // libraries may have left workers behind
} catch (error) {
  console.error(String(error)); // uncaught, Node would print the whole of Pyodide's own source around it
  process.exit(1);
}
