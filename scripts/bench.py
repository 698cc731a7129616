"""`npm run bench [-- OPTIONS]`: how fast it is, as ratios within one run, printed as Markdown tables.

The CPU road in Chromium, in Node and outside (wasmtime), WebGPU in Chromium and the GPU outside (wgpu), each next to other
libraries; exact products; transfers. Without options all of it. `python -m py_gemm bench` hands over to this in a checkout.
What cannot be installed or measured is named with its reason. Machines share their cores, so only the ratios mean something.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from py_gemm.__main__ import add_options, extent_of
from py_gemm.report.bench import Benchmark
from py_gemm.report.benchmark.show import table
from tests.browser.conftest import BASE_ARGUMENTS, WEBGPU_ARGUMENTS

from . import bench_peers
from .bench_page import PEERS_MODULE, BenchPage
from .browser import VARIABLE
from .bundle import pyodide_bundle
from .paths import ROOT
from .site import Table
from .test import prepare
from .wheel import build_wheel

FOLDER = Path(__file__).parent
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")
PLACES = ("chromium", "node", "wasmtime", "webgpu", "wgpu")
EXACT_TYPES = ("float32", "float16", "float64")


@dataclass(frozen=True)
class Peers:
    """The libraries to compare with: their files, the module that knows how to drive them, and why there are none, if so."""

    files: Table = field(default_factory=dict)
    folder: Path = field(default_factory=bench_peers.modules)
    module: str = PEERS_MODULE
    unavailable: str = ""

    @staticmethod
    def installed() -> Peers:
        """What is pinned, installed now where it is not there."""
        try:
            bench_peers.install()
        except (OSError, RuntimeError) as error:
            print(f"py_gemm: the libraries to compare with are missing: {error}", file=sys.stderr)
            return Peers(unavailable=f"not installed: {error}")
        return Peers(bench_peers.table())


def places_of(options: argparse.Namespace) -> tuple[str, ...]:
    """What the options ask for."""
    if options.device:
        return (options.device,)
    if options.engine:
        return (options.engine,)
    return PLACES[:3] if options.cpu else PLACES


def measure(places: Sequence[str], extent: str, variables: dict[str, str], peers: Peers) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures by place, and the further figures of a page."""
    figures: dict[str, Any] = {}
    further: dict[str, Any] = {}
    if {"chromium", "webgpu"} & set(places):
        with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
            # Variables that choose the Vulkan driver of native tests would hide the browser's own.
            plain: dict[str, str | float | bool] = {key: value for key, value in os.environ.items() if not key.startswith("VK_")}
            arguments = [*BASE_ARGUMENTS, *WEBGPU_ARGUMENTS]
            browser = playwright.chromium.launch(executable_path=variables[VARIABLE], args=arguments, env=plain)
            wheel = build_wheel(Path(name))
            _measure_pages(browser, wheel, places, extent, peers, figures, further)
            browser.close()
    environment = {**os.environ, **variables, **ONE_THREAD}
    if "node" in places:
        figures["node"] = _attempt(lambda: _node(extent, peers))
    for place, road in (("wasmtime", "cpu"), ("wgpu", "wgpu")):
        if place in places:
            words = [sys.executable, "-m", "scripts.bench_here", road, extent]
            figures[place] = _attempt(lambda words=words: _json_of(words, environment))  # type: ignore[misc]
    return {place: figures[place] for place in PLACES if place in figures}, further


def _measure_pages(
    browser: Browser,
    wheel: Path,
    places: Sequence[str],
    extent: str,
    peers: Peers,
    figures: dict[str, Any],
    further: dict[str, Any],
) -> None:
    """A page for each road: a library's work on one must not disturb the other."""
    for place, device in (("chromium", "cpu"), ("webgpu", "webgpu")):
        if place not in places:
            continue
        page = BenchPage(browser, wheel, peers.files, peers.unavailable, peers.module)
        figures[place] = _attempt(lambda page=page, device=device: page.measure(device, extent))  # type: ignore[misc]
        page.host.put_file("/tmp/bench_measure.py", (FOLDER / "bench_measure.py").read_bytes())
        code = "import sys; sys.path.insert(0, '/tmp'); import bench_measure as measure\n"
        if place == "chromium" and extent != "quick":
            further["exact"] = page.host.run(code + "measure.exact(7)")
        if place == "webgpu":
            elements = 4 << 20 if extent != "quick" else 1 << 16
            further["transfers"] = page.host.run(code + "await measure.transfers(14, elements)", elements=elements)
            further["megabytes"] = elements * 4 / 1e6
        page.host.page.close()
        page.close()


def _attempt(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The figures, or the reason why there are none, in their place."""
    try:
        return work()
    except RuntimeError as error:
        print(f"py_gemm: {error}", file=sys.stderr)
        return {"about": {}, "rows": [], "failure": str(error)}


def _node(extent: str, peers: Peers) -> dict[str, Any]:
    program = bench_peers.node()
    words = [program, str(FOLDER / "bench_node.mjs"), str(pyodide_bundle()), str(ROOT), extent]
    words += [str(ROOT / peers.module), str(peers.folder), peers.unavailable]
    figures = _json_of(words, dict(os.environ))
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    figures["about"]["host"] = f"Node {version.removeprefix('v')}"
    return figures


def _json_of(words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """What a program prints as its last line; RuntimeError with its last words where it fails."""
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        last = ""
        for line in process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            last = line.strip() or last
        printed = process.stdout.read()
    if process.returncode != 0:
        raise RuntimeError(f"{Path(words[0]).name} ended with status {process.returncode}: {last}")
    figures: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return figures


def exact_native(name: str) -> dict[str, float]:
    """The figures of scripts/bench_exact.py, on one thread."""
    return _json_of([sys.executable, "-m", "scripts.bench_exact", name, "512"], {**os.environ, **ONE_THREAD})


def further_tables(further: dict[str, Any]) -> str:
    """Exact products and transfers."""
    parts = []
    if "transfers" in further:
        rows = [
            [name, f"{row['ours']:.1f}", f"{row['bare']:.1f}", f"**{row['ours'] / row['bare']:.2f}**"]
            for name, row in further["transfers"].items()
        ]
        header = ["way", "py_gemm, ms", "bare JavaScript, ms", "ratio (lower is better)"]
        parts.append(f"## {further['megabytes']:.3g} MB of float32 to and from WebGPU, Chromium\n\n{table(header, rows)}")
    if "reference" in further:
        rows = [
            [f"{name} 512³, outside, to NumPy's float64 @", f"**{row['exact'] / row['numpy']:.1f}**",
             f"**{row['mode'] / row['numpy']:.1f}**", f"{row['memory']:.1f}"]
            for name, row in further["reference"].items()
        ]  # fmt: skip
        page = further.get("exact")
        if page:
            ratios = [f"**{page[name] / page['numpy']:.2f}**" for name in ("reference", "mode")]
            rows.append(["float32 512³, Chromium, to NumPy's float32 @", *ratios, ""])
        header = ["correctly rounded product", "py_gemm.exact, times", 'mode="exact", times', "memory, times the operands"]
        parts.append(f"## Exact products (lower is better)\n\n{table(header, rows)}")
    return "\n".join(parts)


def write_picture(picture: Path, drawn: str, browser: str) -> None:
    """The SVG itself, or a browser's picture of it (.png)."""
    if picture.suffix != ".png":
        picture.write_text(drawn, encoding="utf-8")
        return
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=browser, args=BASE_ARGUMENTS).new_page(device_scale_factor=2)
        page.set_content(f"<style>body {{ margin: 0 }} svg {{ display: block }}</style>{drawn}")
        page.locator("svg").screenshot(path=picture)


def main(words: Sequence[str] | None = None, peers: Peers | None = None) -> int:
    """Run what is asked for, print and write."""
    parser = argparse.ArgumentParser(prog="npm run bench --", description="How fast it is, next to other libraries.")
    add_options(parser, required=False)
    options = parser.parse_args(words)
    if options.picture and options.picture.suffix not in (".svg", ".png"):
        parser.error("--picture takes a .svg or a .png")
    extent, places = extent_of(options), places_of(options)
    variables = prepare()
    needs_peers = bool({"chromium", "node", "webgpu"} & set(places))
    figures, further = measure(places, extent, variables, (peers or Peers.installed()) if needs_peers else Peers())
    everything = not (options.cpu or options.device or options.engine)
    if everything and extent != "quick":
        further["reference"] = {name: exact_native(name) for name in EXACT_TYPES}
    found = Benchmark(figures)
    print(found)
    print(further_tables(further))
    if needs_peers:
        print(f"Compared with {bench_peers.versions()}.")
    if options.json:
        options.json.write_text(json.dumps({**found.to_dict(), **further}, indent=1, ensure_ascii=False), encoding="utf-8")
    if options.picture:
        write_picture(options.picture, found.to_svg(), variables[VARIABLE])
    return 1 if any("failure" in each for each in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
