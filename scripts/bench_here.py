"""Measures one road of this interpreter and prints the figures as JSON: `python -m scripts.bench_here cpu|wgpu EXTENT`.

A process of its own, so that BLAS can be told beforehand to stay on one thread. Progress goes to stderr.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from py_gemm.__main__ import say
from py_gemm.report.bench import bench
from py_gemm.report.benchmark import loop
from py_gemm.report.benchmark.clock import Contender, Entrant, prompt

SOURCE = Path(__file__).parent / "bench_loop.c"


def native_loop(folder: Path) -> Entrant:
    """The loop of bench_loop.c as native code; CalledProcessError's reason where it cannot be compiled."""

    async def make() -> Contender:
        library = folder / "loop.so"
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "cc",
            "-O3",
            "-march=native",
            "-shared",
            "-fPIC",
            "-o",
            str(library),
            str(SOURCE),
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"bench_loop.c cannot be compiled: {done.stderr.strip()}")
        function = ctypes.CDLL(str(library)).loop
        function.argtypes, function.restype = (ctypes.c_int, ctypes.c_float, ctypes.c_float), ctypes.c_float
        call = prompt(lambda: function(loop.STEPS, 1.0, 1e-9))
        return Contender("FMA loop, native", call, "loop", operations=loop.flops("float32"))

    return Entrant("FMA loop, native", "loop", make)


def main(road: str, extent: str) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        more = (native_loop(Path(folder)),) if road == "cpu" else ()
        found = bench(road, extent=extent, progress=say, more=more)
    sys.stdout.write(json.dumps(next(iter(found.places.values()))))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
