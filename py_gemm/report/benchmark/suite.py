"""What is measured, row by row: entrants for each product, their times, their errors. Gives plain data (see `Figures`)."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import py_gemm as pg

from ...cpu.families import ROWS
from ...devices import IN_BROWSER
from ...dtypes import FLOAT32, FLOAT64, INT32
from . import contenders as who
from .clock import FULL, QUICK, USUAL, Contender, Entrant, Pace, Times, failures, first_line, interleaved
from .products import GPU_FULL, GPU_QUICK, GPU_USUAL, Product, Reference, cube, operands
from .small import ready_call

# {"about": {...}, "rows": [{"section", "id", "label", "operations", "entries": [...]}]}; an entry has "name", "kind", "note" and
# either "seconds" (the median of "turns"), "rate" (10^9 operations a second), "error", "gpu_seconds" or "failure".
Figures = dict[str, Any]

EXTENTS = ("quick", "usual", "full")
_PACES: dict[str, Pace] = dict(zip(EXTENTS, (QUICK, USUAL, FULL), strict=True))
_ACCUMULATORS = {"float64": FLOAT64, "int8": INT32, "uint8": INT32}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """extent: "quick", "usual" or "full". tell: hears what is being measured, and may raise to stop. peers: of the page, if any.

    more: further contenders of the float32 rows, such as a native loop.
    """

    extent: str
    tell: Callable[[str], None]
    peers: who.PagePeers | None = None
    more: tuple[Entrant, ...] = ()

    @property
    def pace(self) -> Pace:
        return _PACES[self.extent]


async def measure_cpu(around: Surroundings) -> Figures:
    """The CPU road of this interpreter, on one thread unless a row says otherwise."""
    with who.one_thread():
        rows = [await _row(around, *parts) for parts in _cpu_rows(around)]
        rows += [await _small_call(around), await _front_door(around)]
        rows += [await _row(around, *parts) for parts in _thread_rows(around)]
    return {"about": about("cpu"), "rows": rows}


async def measure_gpu(around: Surroundings, device: Any) -> Figures:
    """A GPU: operands on the device, every result read back, host clock for everybody."""
    products = {"quick": GPU_QUICK, "usual": GPU_USUAL, "full": GPU_FULL}[around.extent]
    rows = []
    for product in products:
        a, b = operands(product)
        entrants = [who.ours_on_gpu(product, a, b, device)]
        if around.peers:
            entrants += around.peers.entrants("gpu", product, a, b)
        else:
            entrants += [who.numpy_product(product, a, b)] + ([] if IN_BROWSER else [who.torch_product(product, a, b)])
        rows.append(await _row(around, "gpu", product, a, b, entrants))
    return {"about": about(device), "rows": rows}


async def measure_product(around: Surroundings, product: Product, device: Any) -> dict[str, Any]:
    """One row for a page to show: py_gemm on "cpu" or on a GPU device, NumPy, and the other libraries of that road."""
    a, b = operands(product)
    on_cpu = device == "cpu"
    entrants = [who.ours_on_cpu(product, a, b), who.the_loop(product.type)] if on_cpu else [who.ours_on_gpu(product, a, b, device)]
    shared = ("float32",) if on_cpu else ("float32", "float16")  # the types that other libraries know on this road
    if around.peers and product.type in shared:
        entrants += around.peers.entrants("cpu" if on_cpu else "gpu", product, a, b)
    entrants.append(who.numpy_product(product, a, b))
    with who.one_thread():
        return await _row(around, "products" if on_cpu else "gpu", product, a, b, entrants)


def about(device: Any) -> dict[str, str]:
    """Where the figures come from."""
    found = {"py_gemm": pg.__version__, "numpy": np.__version__, "python": platform.python_version()}
    if device == "cpu":
        return {**found, "engine": pg.request_device("cpu").info["engine"]}
    return {**found, "adapter": device.adapter}


def tokens(type_name: str) -> list[str]:
    """The tokens that the table of kernels has for products of this type."""
    accumulator = _ACCUMULATORS.get(type_name, FLOAT32)
    return list(dict.fromkeys(row.token for row in ROWS if row.accumulator is accumulator))


_Parts = tuple[str, Product, Any, Any, list[Entrant]]


def _cpu_rows(around: Surroundings) -> Iterator[_Parts]:
    sizes = (64,) if around.extent == "quick" else (256, 512, 1024)
    middle = sizes[0] if around.extent == "quick" else 512
    for size in sizes:
        product = cube(size)
        a, b = operands(product)
        forced = _forced(product, a, b) if size == middle else []
        yield "products", product, a, b, [who.ours_on_cpu(product, a, b), *forced, *_float32_peers(around, product, a, b)]
    for name in ("float64", "float16", "bfloat16"):
        product = cube(middle, name)
        a, b = operands(product)
        others = [who.scipy_product(product, a, b)] if name == "float64" else []
        entrants = [who.ours_on_cpu(product, a, b), *_forced(product, a, b), _in_float32(middle), who.the_loop(name), *others]
        yield "products", product, a, b, [*entrants, who.numpy_product(product, a, b)]
    product = cube(middle, "int8")
    a, b = operands(product)
    entrants = [who.ours_on_cpu(product, a, b), *_forced(product, a, b), _in_float32(middle), who.the_loop("float32"), *around.more]
    if around.peers:
        for kind in ("uint8", "int8"):
            each = cube(middle, kind)
            left, right = operands(each)
            entrants.append(around.peers.entrant("onnxruntime-web wasm", each, f"onnxruntime-web {kind}", left, right))
    yield "products", product, a, b, [*entrants, who.numpy_product(product, a, b)]
    yield _vector_row(around)


def _float32_peers(around: Surroundings, product: Product, a: Any, b: Any) -> list[Entrant]:
    page = around.peers.entrants("cpu", product, a, b) if around.peers else []
    torch = [] if IN_BROWSER else [who.torch_product(product, a, b)]
    found = [who.the_loop("float32"), *around.more, who.numpy_product(product, a, b), who.scipy_product(product, a, b)]
    return [*found, *torch, *page]


def _forced(product: Product, a: Any, b: Any) -> list[Entrant]:
    return [who.ours_on_cpu(product, a, b, f"py_gemm {token}", token=token) for token in tokens(product.type)]


def _in_float32(size: int) -> Entrant:
    """py_gemm's float32 in the same round, to compare with."""
    product = cube(size)
    return who.ours_on_cpu(product, *operands(product), "py_gemm float32")


def _vector_row(around: Surroundings) -> _Parts:
    """One row of A: the time is that of reading B."""
    size = 512 if around.extent == "quick" else 4096
    entrants = []
    for name in ("float32", "bfloat16", "int8"):
        product = Product(1, size, size, name)
        entrants.append(who.ours_on_cpu(product, *operands(product), f"py_gemm {name}"))
    product = Product(1, size, size)
    a, b = operands(product)
    page = around.peers.entrants("cpu", product, a, b) if around.peers else []
    return "vectors", product, a, b, [*entrants, who.numpy_product(product, a, b), *page]


def _thread_rows(around: Surroundings) -> Iterator[_Parts]:
    for size in (64,) if around.extent == "quick" else (128, 1024):
        product = cube(size)
        a, b = operands(product)
        names = {1: "1 thread", 2: "2 threads"}
        yield "threads", product, a, b, [who.ours_on_cpu(product, a, b, name, threads=count) for count, name in names.items()]


async def _front_door(around: Surroundings) -> dict[str, Any]:
    product = cube(16)
    a, b = operands(product)
    return await _row(around, "front door", product, a, b, [who.ours_on_cpu(product, a, b), who.numpy_product(product, a, b)])


async def _small_call(around: Surroundings) -> dict[str, Any]:
    """One call into WebAssembly with its arguments ready, next to the loop."""
    product = cube(64)
    a, b = operands(product)

    async def make() -> Contender:
        return ready_call(product, a, b)

    entrants = [Entrant("py_gemm", "ours", make), who.the_loop("float32")]
    return await _row(around, "one call", product, a, b, entrants)


async def _row(around: Surroundings, section: str, product: Product, a: Any, b: Any, entrants: list[Entrant]) -> dict[str, Any]:
    title = f"{section}: {product.label}" if section not in ("products", "gpu") else product.label
    field_ = await interleaved(entrants, around.pace, lambda name: around.tell(f"{title}, {name}"))
    reference = Reference(product, a, b)
    entries = [_entry(times, product, reference) for times in field_]
    return {
        "section": section,
        "id": f"{section}/{product.label}",
        "label": product.label,
        "k": product.k,
        "operations": product.flops,
        "entries": entries,
    }


# Contenders that multiply other numbers than the row's: their results are not compared with its reference.
_OTHER_NUMBERS = ("py_gemm float32", "py_gemm bfloat16", "py_gemm int8", "onnxruntime-web uint8")


def _entry(times: Times, product: Product, reference: Reference) -> dict[str, Any]:
    entrant, contender = times.entrant, times.contender
    entry: dict[str, Any] = {"name": entrant.name, "kind": entrant.kind, "note": ""}
    seconds = times.median
    if contender is None or seconds is None:
        return {**entry, "failure": times.failure or "not measured"}
    operations = contender.operations or product.flops
    entry |= {
        "note": contender.note(),
        "seconds": seconds,
        "rate": operations / seconds / 1e9,
        "turns": times.seconds,
        "operations": operations,
    }
    if times.gpu_seconds:
        entry["gpu_seconds"] = float(np.median(times.gpu_seconds))
    try:
        result = contender.result() if entrant.name not in _OTHER_NUMBERS else None
        if result is not None:
            entry["error"] = reference.error(result)
    except failures() as error:
        entry["failure"] = f"its result cannot be read: {first_line(error)}"
    finally:
        contender.close()
    return entry
