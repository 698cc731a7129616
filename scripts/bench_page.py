"""The part of the benchmark that runs in Chromium: Pyodide with py_gemm and the other libraries, all in one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage

from py_gemm.__main__ import say
from tests.browser.harness import Complaints, PyodideHost, address_of, library_table, serve

from . import bundle
from .paths import ROOT
from .server import ISOLATED
from .site import PACKAGES, Table, tree

PEERS_MODULE = "web/demo/bench/peers.js"
SAID = "benchmark: "

_MEASURE = """
import json, js
from pyodide.code import run_js
from py_gemm.report.bench import bench_async
from py_gemm.report.benchmark.contenders import PagePeers
peers = PagePeers(await run_js("(address) => import(address)")(module), root, unavailable)
tell = lambda text: js.console.info(said + text)
found = await bench_async(device, extent=extent, progress=tell, peers=peers)
json.dumps(next(iter(found.places.values())))
"""


class BenchPage:
    """A page with everything in it. `peers`: the libraries' files; `unavailable` says why there are none."""

    def __init__(self, browser: Browser, wheel: Path, peers: Table, unavailable: str, module: str = PEERS_MODULE) -> None:
        place = bundle.pyodide_bundle()
        packages = (*PACKAGES, "scipy")
        files = library_table(wheel, place)
        files.update({f"pyodide/{name}": place / name for name in bundle.package_files(place, packages)})
        files[f"pyodide/{bundle.LOCK}"] = bundle.lock_for(place, packages)
        files.update(tree((ROOT / module).parent, "bench/"))
        files.update(peers)
        self.unavailable = unavailable
        self.version = browser.version
        self._server = serve(files, ISOLATED)
        self._root = address_of(self._server)
        self._module = f"{self._root}bench/{Path(module).name}"
        self.host = PyodideHost(Complaints().watch(browser.new_context()), self._root, wheel.name, packages=packages)
        self.host.page.on("console", _repeat)

    def measure(self, device: str, extent: str) -> dict[str, Any]:
        """The figures of a road, "cpu" or "webgpu". RuntimeError with what Python said where it cannot be measured."""
        names = {"device": device, "extent": extent, "module": self._module, "root": f"{self._root}peers/"}
        names |= {"said": SAID, "unavailable": self.unavailable}
        # Not host.run, which ends after minutes.
        outcome = self.host.page.evaluate("(parts) => host.run(parts)", [True, _MEASURE, json.dumps(names)])
        if "error" in outcome:
            raise RuntimeError(outcome["error"]["message"].strip().splitlines()[-1])
        figures: dict[str, Any] = json.loads(json.loads(outcome["result"]))
        figures["about"]["host"] = f"Chromium {self.version}"
        return figures

    def close(self) -> None:
        """Stop serving; the browser closes the page."""
        self._server.close()


def _repeat(message: ConsoleMessage) -> None:
    if message.text.startswith(SAID):
        say(message.text.removeprefix(SAID))
