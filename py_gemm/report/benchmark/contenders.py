"""Everyone who takes part: py_gemm on its roads, NumPy, scipy and torch where they are installed, and the libraries of a page.

Each function gives an Entrant for one product. Operands are ready before the clock starts (on the device, for GPUs); the result
counts when it is back in the host's memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import py_gemm as pg

from ...configuration import KNOBS
from ...devices import IN_BROWSER
from ...errors import UnsupportedError
from . import loop
from .clock import Contender, Entrant, awaited, prompt
from .products import Array, Product, wide

# A library that has not made its first product by then does not answer here.
PATIENCE_S = 120


def _arguments(product: Product) -> dict[str, Any]:
    """The `dtype_a` and `dtype_b` that mark bits as bfloat16."""
    return {"dtype_a": "bfloat16", "dtype_b": "bfloat16"} if product.type == "bfloat16" else {}


def call_on_cpu(product: Product, a: Array, b: Array) -> Callable[[], Array]:
    """The product by the front door, on the CPU."""
    right = b.T if product.transposed else b
    if product.is_integer:
        return partial(pg.int8_gemm, a, right, device="cpu")
    return partial(pg.matmul, a, right, device="cpu", **_arguments(product))


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread on the CPU road, where there is a knob for more."""
    if "threads" not in KNOBS:
        yield
        return
    pg.configure(threads=1)
    try:
        yield
    finally:
        pg.configure(threads=None)


async def start_threads(threads: int) -> None:
    """Return once so many are there. UnsupportedError where the CPU road runs on one only. Leaves the knob at 1."""
    if "threads" not in KNOBS:
        raise UnsupportedError("one thread only here: the kernels of this version run on the calling thread")
    pg.configure(threads=threads)
    try:
        gemm = pg.request_device("cpu").gemm
        await gemm.threads_up(1 << 40)
        told: str = gemm.info["threads"]
    finally:
        pg.configure(threads=1)
    if told.split()[0] != str(threads):
        raise UnsupportedError(f"one thread only here: {told}")


def ours_on_cpu(
    product: Product, a: Array, b: Array, name: str = "py_gemm", *, token: str | None = None, threads: int = 1
) -> Entrant:
    """py_gemm's CPU road; `token` forced for this contender alone."""
    call = call_on_cpu(product, a, b)
    last: list[Array] = []
    note = [""]
    forced: dict[str, Any] = {} if token is None else {"token": token}
    if threads > 1:
        forced["threads"] = threads
    usual = {knob: 1 if knob == "threads" else None for knob in forced}

    async def make() -> Contender:
        if threads > 1:
            await start_threads(threads)
        plain = prompt(lambda: last.__setitem__(slice(None), [call()]))

        async def run(count: int) -> float:
            if not forced:
                seconds = await plain(count)
            else:
                pg.configure(**forced)
                try:
                    await plain(1)  # setting a knob made py_gemm forget its plans
                    seconds = await plain(count)
                finally:
                    pg.configure(**usual)
            note[0] = _last_variant()
            return seconds

        return Contender(name, run, "ours", lambda: wide(last[0], product.type), lambda: note[0])

    return Entrant(name, "ours", make)


def _last_variant() -> str:
    report = pg.last_run()
    return report.variant if report else ""


def ours_on_gpu(product: Product, a: Array, b: Array, device: Any, name: str = "py_gemm") -> Entrant:
    """py_gemm on a GPU: operands there, the result read back. In a page it is awaited, outside it is not."""
    last: list[Array] = []
    note = [""]
    types = {"dtype": "bfloat16"} if product.type == "bfloat16" else {}
    told: dict[str, Any] = {"transpose_b": product.transposed, "dtype": "float32"}

    async def make() -> Contender:
        left, right = [
            await pg.asarray_async(each, device=device, **types) if IN_BROWSER else pg.asarray(each, device=device, **types)
            for each in (a, b)
        ]

        async def call_in_page() -> None:
            last[:] = [await (await pg.gemm_async(left, right, **told)).numpy_async()]

        def call() -> None:
            last[:] = [pg.gemm(left, right, **told).numpy()]

        plain = awaited(call_in_page) if IN_BROWSER else prompt(call)

        async def run(count: int) -> float:
            seconds = await plain(count)
            note[0] = _last_variant()
            return seconds

        async def gpu_seconds() -> float | None:
            """Of a product of host arrays: py_gemm reads the device's clock together with the result."""
            host = {**told, **_arguments(product), "device": device}
            if IN_BROWSER:
                await pg.gemm_async(a, b, **host)
            else:
                pg.gemm(a, b, **host)
            report = pg.last_run()
            return report.gpu_seconds if report else None

        def close() -> None:
            left.release()
            right.release()

        return Contender(name, run, "ours", lambda: last[0], lambda: note[0], gpu_seconds=gpu_seconds, close=close)

    return Entrant(name, "ours", make)


def numpy_product(product: Product, a: Array, b: Array) -> Entrant:
    """NumPy's `@`: of bfloat16 in float32, of integers in int32."""
    last: list[Array] = []

    async def make() -> Contender:
        left, right = (wide(each, product.type) for each in (a, b))
        if product.is_integer:
            left, right = left.astype(np.int32), right.astype(np.int32)
        right = right.T if product.transposed else right
        return Contender("NumPy @", prompt(lambda: last.__setitem__(slice(None), [left @ right])), result=lambda: last[0])

    return Entrant("NumPy @", "peer", make)


def scipy_product(product: Product, a: Array, b: Array) -> Entrant:
    """BLAS as scipy calls it. Row-major operands are the transposed ones in column order: D' = B' A', no copy."""
    kind = {"float32": "sgemm", "float64": "dgemm"}[product.type]
    name = "scipy BLAS"
    last: list[Array] = []

    async def make() -> Contender:
        from scipy.linalg import blas

        multiply = getattr(blas, kind)
        right = b.T if product.transposed else b

        def call() -> None:
            last[:] = [multiply(1.0, right.T, a.T)]

        return Contender(name, prompt(call), result=lambda: last[0].T)

    return Entrant(name, "peer", make)


def torch_product(product: Product, a: Array, b: Array) -> Entrant:
    """torch.matmul on the CPU, one thread."""
    last: list[Any] = []

    async def make() -> Contender:
        import torch

        torch.set_num_threads(1)
        left, right = torch.from_numpy(a), torch.from_numpy(b)
        right = right.T if product.transposed else right
        call = prompt(lambda: last.__setitem__(slice(None), [left @ right]))
        return Contender("torch", call, result=lambda: last[0].numpy())

    return Entrant("torch", "peer", make)


def the_loop(type_name: str, name: str = "FMA loop") -> Entrant:
    """The ceiling of this engine (loop.py)."""

    async def make() -> Contender:
        return Contender(name, prompt(loop.ready(type_name)), "loop", operations=loop.flops(type_name))

    return Entrant(name, "loop", make)


class PagePeers:
    """The libraries of a page: `module` is web/demo/bench/peers.js, `root` the address of the folder where they lie.

    unavailable: why none of them is there; each is then named with this reason.
    """

    def __init__(self, module: Any, root: str, unavailable: str = "") -> None:
        self._module, self._root, self._unavailable = module, root, unavailable

    def entrants(self, road: str, product: Product, a: Array, b: Array) -> list[Entrant]:
        """All of a road ("cpu", "gpu"), each of which may find that it cannot do this product."""
        return [self._entrant(road, name, product, a, b) for name in self._module.names(road)]

    def entrant(self, name: str, product: Product, label: str, a: Array, b: Array) -> Entrant:
        """One library of the CPU road under a label of one's own."""
        return self._entrant("cpu", name, product, a, b, label)

    def _entrant(self, road: str, name: str, product: Product, a: Array, b: Array, label: str = "") -> Entrant:
        async def make() -> Contender:
            if self._unavailable:
                raise UnsupportedError(self._unavailable)
            import js
            from pyodide.ffi import to_js

            told = {"m": product.m, "k": product.k, "n": product.n, "a": product.type, "b": product.type}
            described = to_js({**told, "transposed": product.transposed}, dict_converter=js.Object.fromEntries)
            views = [to_js(memoryview(np.ascontiguousarray(each).data).cast("B")) for each in (a, b)]
            preparing = self._module.prepare(self._root, road, name, described, *views)
            try:
                job = await asyncio.wait_for(preparing, PATIENCE_S)
            except TimeoutError as error:
                raise UnsupportedError(f"gave no answer in {PATIENCE_S} s") from error

            async def run(count: int) -> float:
                return float(await job.run(count))

            def result() -> Array:
                values: Array = np.asarray(job.result().to_py())
                return values.view(np.float16) if product.type == "float16" and values.dtype == np.uint16 else values

            return Contender(label or name, run, result=result, close=job.close)

        return Entrant(label or name, "peer", make)
