"""Measures an exact product of one format next to NumPy's float64 product of the same size, and prints JSON:
`python -m scripts.bench_exact FORMAT SIZE`. A process of its own, so that the BLAS can be told beforehand to stay on one thread.
"""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

import py_gemm as pg
import py_gemm.exact as er


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


def main(name: str, size: int) -> None:
    """Seconds of NumPy's float64 product, of the reference and of `mode="exact"`; memory as a multiple of the operands."""
    rng = np.random.default_rng(0)
    wide = [rng.standard_normal((size, size)) for _ in range(2)]
    a, b = (each.astype(name) for each in wide)
    figures = {
        "numpy": seconds(lambda: wide[0] @ wide[1]),
        "exact": seconds(lambda: er.matmul(a, b).rounded),
        "mode": seconds(lambda: pg.matmul(a, b, mode="exact", device="cpu")),
        "memory": memory(name, size),
    }
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
