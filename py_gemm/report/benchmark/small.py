"""A small product as one call into WebAssembly, its arguments ready: what the kernel costs without the Python above it.

In a page the call is repeated by JavaScript, so that not even the way from Python counts; outside, by Python, operands copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...cpu.engines.host_memory import PinnedBuffer
from ...cpu.gemm import CpuGemm
from ...devices import IN_BROWSER
from ...dtypes import FLOAT32
from ...problem import Layout, Problem
from .clock import Contender, prompt
from .products import Array, Product

# Calls an exported kernel with the two numbers that it takes, so many times; seconds for one.
_REPEAT = """(kernel, block, scratch, count) => {
    const started = performance.now();
    for (let turn = 0; turn < count; turn += 1) {
        kernel(block, scratch);
    }
    return (performance.now() - started) / 1000 / count;
}"""


def ready_call(product: Product, a: Array, b: Array) -> Contender:
    """The contender. RuntimeError where the engine's kernel cannot be called alone."""
    gemm = CpuGemm()
    d = np.empty((product.m, product.n), np.float32)
    held = [PinnedBuffer(each, writable=each is d) for each in (a, b, d)]
    left, right, result = (Layout(FLOAT32, columns, 1) for columns in (product.k, product.n, product.n))
    problem = Problem(product.m, product.n, product.k, left, right, result)
    call = gemm.prepare(problem)
    addresses = (held[0].address, held[1].address, 0, held[2].address, 0)
    if not IN_BROWSER:
        return Contender("py_gemm", prompt(lambda: call(*addresses)), "ours", lambda: d, lambda: call.variant)
    kernel, numbers = _overheard(gemm, problem, addresses)
    from pyodide.code import run_js

    repeat = run_js(_REPEAT)

    async def run(count: int) -> float:
        return float(repeat(kernel, *numbers, count))

    def close() -> None:
        for each in held:
            each.release()

    return Contender("py_gemm", run, "ours", lambda: d, lambda: call.variant, close=close)


class _Listener:
    """Stands in for a module's exports and notes what a kernel is called with."""

    def __init__(self, exports: Any) -> None:
        self._exports = exports
        self.heard: list[tuple[Any, tuple[int, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._exports, name)

        def call(*numbers: int) -> Any:
            self.heard.append((kernel, numbers))
            return kernel(*numbers)

        return call


def _overheard(gemm: CpuGemm, problem: Problem, addresses: tuple[int, int, int, int, int]) -> tuple[Any, tuple[int, ...]]:
    """The exported kernel of a product and the numbers it is called with."""
    engine: Any = gemm.engine
    load = engine.load
    listeners: list[_Listener] = []

    def load_listening(module: str) -> Any:
        listeners.append(_Listener(load(module)))
        return listeners[-1]

    engine.load = load_listening
    try:
        call = gemm.prepare(problem)
        call(*addresses)
    finally:
        del engine.load
    heard = [each for listener in listeners for each in listener.heard]
    if len(heard) != 1:
        raise RuntimeError(f"the engine made {len(heard)} calls for one product")
    _keep.append(call)
    return heard[0]


# The block of arguments lives as long as the call that made it.
_keep: list[Any] = []
