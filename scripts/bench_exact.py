"""`python -m scripts.bench_exact`: exact products next to NumPy's ordinary ones, in time and memory, as a Markdown table (README).

Outside the browser in processes of their own (`python -m scripts.bench_exact FORMAT SIZE` prints JSON), so that the BLAS can be
told beforehand to stay on one thread; inside in headless Chromium. Machines share their cores: only the ratios mean something.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

import py_gemm as pg
import py_gemm.exact as er
from tests.browser.conftest import BASE_ARGUMENTS
from tests.browser.harness import Complaints, PyodideHost, address_of, library_table, serve

from .browser import find_browser, install_browser
from .bundle import pyodide_bundle
from .paths import ROOT
from .server import ISOLATED
from .wheel import build_wheel

FORMATS = ("float32", "float16", "float64")
PAGE_SIZES = (256, 512)
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")


def seconds(function: Callable[[], object]) -> float:
    """The least of several runs, in processor time: whatever else the machine does."""
    times = []
    for _ in range(5):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def memory(name: str, size: int) -> float:
    """The most memory that an exact product holds at once, its result included, as a multiple of its operands."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(name) for _ in range(2))
    er.matmul(a, b)  # what is loaded once does not count
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        _ = er.matmul(a, b).rounded
        return (tracemalloc.get_traced_memory()[1] - before) / (a.nbytes + b.nbytes)
    finally:
        tracemalloc.stop()


def measure(name: str, size: int) -> dict[str, float]:
    """Seconds of NumPy's float64 product, of the reference and of `mode="exact"`; memory as a multiple of the operands."""
    rng = np.random.default_rng(0)
    wide = [rng.standard_normal((size, size)) for _ in range(2)]
    a, b = (each.astype(name) for each in wide)
    return {
        "numpy": seconds(lambda: wide[0] @ wide[1]),
        "exact": seconds(lambda: er.matmul(a, b).rounded),
        "mode": seconds(lambda: pg.matmul(a, b, mode="exact", device="cpu")),
        "memory": memory(name, size),
    }


def measure_alone(name: str, size: int) -> dict[str, float]:
    """`measure` in a process of its own, on one thread."""
    command = [sys.executable, "-m", "scripts.bench_exact", name, str(size)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **ONE_THREAD})
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measure_page() -> dict[int, dict[str, float]]:
    """Seconds of float32 products in a page, by size: the reference, `mode="exact"`, NumPy's own."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        wheel = build_wheel(Path(folder))
        server = serve(library_table(wheel, pyodide_bundle()), ISOLATED)
        browser = playwright.chromium.launch(executable_path=find_browser() or install_browser(), args=BASE_ARGUMENTS)
        host = PyodideHost(Complaints().watch(browser.new_context()), address_of(server), wheel.name)
        host.put_file("/tmp/bench_measure.py", (Path(__file__).parent / "bench_measure.py").read_bytes())
        code = "import sys; sys.path.insert(0, '/tmp'); import bench_measure as measure; measure.exact(7, size)"
        figures = {size: host.run(code, size=size) for size in PAGE_SIZES}
        browser.close()
        server.close()
    return figures


def rows() -> list[list[str]]:
    """The table: product, the reference, the mode, memory."""
    found = [["correctly rounded product", "`py_gemm.exact`", '`mode="exact"`', "memory, times the operands"], ["---"] * 4]
    for name in FORMATS:
        figures = measure_alone(name, 512)
        ratios = [f"**{figures[way] / figures['numpy']:.1f}**" for way in ("exact", "mode")]
        found.append([f"{name} 512³, outside the page, to NumPy's float64 `@`", *ratios, f"{figures['memory']:.1f}"])
    for size, figures in measure_page().items():
        ratios = [f"**{figures[way] / figures['numpy']:.2f}**" for way in ("reference", "mode")]
        found.append([f"float32 {size}³, in the page, to NumPy's float32 `@`", *ratios, ""])
    return found


def main(words: list[str]) -> None:
    """The table, or the figures of one format and size."""
    if words:
        print(json.dumps(measure(words[0], int(words[1]))))
    else:
        print("\n".join(f"| {' | '.join(row)} |" for row in rows()))


if __name__ == "__main__":
    main(sys.argv[1:])
