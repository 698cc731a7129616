"""Measures an exact product of one format next to NumPy's float64 product of the same size, and prints JSON:
`python -m tests.exact.cost FORMAT SIZE`. A process of its own, so that the BLAS can be told beforehand to stay on one thread."""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

import py_gemm.exact as er


def seconds(function: Callable[[], object]) -> float:
    """The least of several runs, in processor time: whatever else the machine does."""
    times = []
    for _ in range(5):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def main(name: str, size: int) -> None:
    rng = np.random.default_rng(0)
    wide = [rng.standard_normal((size, size)) for _ in range(2)]
    a, b = (each.astype(name) for each in wide)
    numpy = seconds(lambda: wide[0] @ wide[1])
    exact = seconds(lambda: er.matmul(a, b).rounded)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    result = er.matmul(a, b).rounded
    peak = tracemalloc.get_traced_memory()[1] - before
    sys.stdout.write(
        json.dumps({"times_numpy": exact / numpy, "times_operands": peak / (a.nbytes + b.nbytes), "shape": result.shape})
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
