"""`npm run bench [-- --quick]`: how fast it is, as ratios within one run, printed as Markdown tables.

In headless Chromium, one thread: the CPU road against NumPy's `@` in the same Pyodide and against a loop of nothing but fused
multiply-adds (the ceiling of 128-bit SIMD on this machine); a small product through the front door; transfers to and from WebGPU
against bare JavaScript on the same buffers. Outside: the CPU road under wasmtime against NumPy. Medians of interleaved, warm runs.
Machines share their cores, so only the ratios mean something.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser.conftest import BASE_ARGUMENTS, WEBGPU_ARGUMENTS
from tests.browser.harness import Complaints, PyodideHost, address_of, library_table, serve

from .browser import VARIABLE
from .bundle import pyodide_bundle
from .paths import ROOT
from .server import ISOLATED
from .test import prepare
from .wheel import build_wheel

FOLDER = Path(__file__).parent
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")


def build_ceiling(folder: Path) -> bytes:
    """The fused multiply-add loop as WebAssembly."""
    target = folder / "ceiling.wasm"
    flags = ["-target", "wasm32-freestanding", "-mcpu=generic+simd128+relaxed_simd", "-O3", "-nostdlib", "-Wl,--no-entry", "-s"]
    command = [sys.executable, "-m", "ziglang", "cc", *flags, "-o", str(target), str(FOLDER / "bench_ceiling.c")]
    subprocess.run(command, check=True)
    return target.read_bytes()


def table(title: str, header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table under a heading."""
    lines = [f"### {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows), ""])


def cubes(results: list[dict[str, Any]], where: str, other: str) -> str:
    """Rates of products of square matrices."""
    rows = [
        [
            f"{row['dtype']} {row['size']}³",
            row["variant"],
            f"{row['ours']:.1f}",
            f"{row['numpy']:.2f}",
            f"**{row['ours'] / row['numpy']:.{2 if row['ours'] < row['numpy'] else 1}f}**",
            f"{row['ours'] / row['ceiling']:.2f}" if row.get("ceiling") else "",
        ]
        for row in results
    ]
    return table(where, ["product", "kernel", "py_gemm GFLOP/s", f"{other} GFLOP/s", "ratio", "of the ceiling"], rows)


def exact_native(name: str) -> dict[str, float]:
    """The figures of scripts/bench_exact.py, on one thread."""
    command = [sys.executable, "-m", "scripts.bench_exact", name, "512"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **ONE_THREAD})
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def exact_table(native: dict[str, dict[str, float]], page: dict[str, float]) -> str:
    """Correctly rounded products next to NumPy's ordinary ones."""
    rows = [
        [
            f"{name} 512³, outside, to NumPy's float64 `@`",
            f"**{row['exact'] / row['numpy']:.1f}**",
            f"**{row['mode'] / row['numpy']:.1f}**",
            f"{row['memory']:.1f}",
        ]
        for name, row in native.items()
    ]
    ratios = [f"**{page[name] / page['numpy']:.2f}**" for name in ("reference", "mode")]
    rows.append(["float32 512³, Chromium, to NumPy's float32 `@`", *ratios, ""])
    header = ["correctly rounded product", "py_gemm.exact, times", 'mode="exact", times', "memory, times the operands"]
    return table("Exact products (lower is better)", header, rows)


def main() -> int:
    """Run all of it and print."""
    parser = argparse.ArgumentParser(prog="npm run bench --")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, no 1024 cubed")
    parser.add_argument("--json", metavar="FILE", help="write the raw figures as well")
    options = parser.parse_args()
    variables = prepare()
    sizes = [256, 512] if options.quick else [256, 512, 1024]
    repeat = 3 if options.quick else 7
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        ceiling = build_ceiling(folder)
        wheel = build_wheel(folder)
        server = serve(library_table(wheel, pyodide_bundle()), ISOLATED)
        browser = playwright.chromium.launch(executable_path=variables[VARIABLE], args=[*BASE_ARGUMENTS, *WEBGPU_ARGUMENTS])
        host = PyodideHost(Complaints().watch(browser.new_context()), address_of(server), wheel.name)
        host.put_file("/tmp/ceiling.wasm", ceiling)
        host.put_file("/tmp/bench_measure.py", (FOLDER / "bench_measure.py").read_bytes())
        code = "import sys; sys.path.insert(0, '/tmp'); import bench_measure as measure\n"
        figures["chromium"] = host.run(code + "measure.cubes(sizes, repeat, measure.ceiling_loop())", sizes=sizes, repeat=repeat)
        figures["small"] = host.run(code + "measure.small(repeat)", repeat=4 * repeat)
        figures["transfers"] = host.run(code + "await measure.transfers(repeat)", repeat=2 * repeat)
        figures["exact"] = host.run(code + "measure.exact(repeat)", repeat=repeat)
        figures["version"] = browser.version
        browser.close()
        server.close()
    script = "import json; from scripts import bench_measure; print(json.dumps(bench_measure.cubes(SIZES, REPEAT, None)))"
    script = script.replace("SIZES", str(sizes)).replace("REPEAT", str(repeat))
    environment = {**os.environ, **ONE_THREAD}
    native = subprocess.run(
        [sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    figures["native"] = json.loads(native.stdout)
    figures["reference"] = {name: exact_native(name) for name in ("float32", "float16", "float64")}
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1))

    print(cubes(figures["chromium"], f"Chromium {figures['version']}, Pyodide, one thread", "NumPy `@`"))
    small = figures["small"]
    print(
        table(
            "A 16 x 16 float32 product through the front door, Chromium",
            ["py_gemm µs", "NumPy `@` µs", "ratio (lower is better)"],
            [[f"{small['ours']:.1f}", f"{small['numpy']:.1f}", f"**{small['ours'] / small['numpy']:.1f}**"]],
        )
    )
    print(
        table(
            "16 MB of float32 to and from WebGPU (SwiftShader), Chromium",
            ["way", "py_gemm ms", "bare JavaScript ms", "ratio (lower is better)"],
            [
                [name, f"{row['ours']:.1f}", f"{row['bare']:.1f}", f"**{row['ours'] / row['bare']:.2f}**"]
                for name, row in figures["transfers"].items()
            ],
        )
    )
    print(cubes(figures["native"], "Outside the browser: wasmtime, one thread, against native NumPy", "NumPy `@`"))
    print(exact_table(figures["reference"], figures["exact"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
