"""Times one product on the GPU, on the CPU and in NumPy, and measures each result against a float64 or wider reference.

Host arrays in, host arrays out: GPU times include upload and read-back. Holds no page state and draws nothing.
Knows py_gemm's public front door only.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import py_gemm as pg
from demo_matrices import Array, Matrix, convert, round_to_bfloat16, widen_bfloat16

# One answer of a clock is trusted when it spans this much: browsers round the clock to 0.1 ms where the page is not isolated.
SHORTEST_SAMPLE_S = 0.004
# The most calls timed as one sample.
LARGEST_GROUP = 1000
# A lane is repeated until it has used this time or given this many samples; the median is shown.
PATIENCE_S = 0.8
MOST_SAMPLES = 9
LONG_CALL_S = 8.0
# What a reference may cost (floating-point operations): about 3 s at what Pyodide's NumPy and py_gemm's float64 kernel do.
NUMPY_REFERENCE_FLOPS = 2e9
FAST_REFERENCE_FLOPS = 2e10
# NumPy's long double is computed in software here, at about 5e7 a second.
LONG_REFERENCE_FLOPS = 1e8
# Rows of a fast reference which NumPy computes again, as proof that is independent of py_gemm.
PROOF_ROWS = 3


class StoppedError(Exception):
    """Somebody asked to stop; nothing is wrong."""


@dataclass(frozen=True)
class Timing:
    """Seconds of the first call (with compiling and warming up), and the median of `samples` further ones."""

    first: float
    median: float
    samples: int


async def time_calls(call: Callable[[], Awaitable[object]], proceed: Callable[[], None]) -> Timing:
    """Times an awaitable call; short calls are timed in groups, and a call that takes many seconds is made once.

    `proceed` is asked before each sample and may raise StoppedError.
    """
    proceed()
    start = time.perf_counter()
    await call()
    first = time.perf_counter() - start
    if first > LONG_CALL_S:
        return Timing(first, first, 1)
    proceed()
    start = time.perf_counter()
    await call()
    second = time.perf_counter() - start
    group = max(1, min(LARGEST_GROUP, int(SHORTEST_SAMPLE_S / max(second, 1e-6))))
    samples = [second] if second >= SHORTEST_SAMPLE_S else []
    deadline = start + PATIENCE_S
    while len(samples) < MOST_SAMPLES and (not samples or time.perf_counter() < deadline):
        proceed()
        start = time.perf_counter()
        for _ in range(group):
            await call()
        spent = time.perf_counter() - start
        if spent < SHORTEST_SAMPLE_S and group < LARGEST_GROUP:
            # The call before was slowed by something else; a sample this short may read as no time at all.
            group = min(LARGEST_GROUP, 2 * group)
            continue
        samples.append(spent / group)
    return Timing(first, statistics.median(samples), len(samples))


def flops(a: Matrix, b: Matrix) -> float:
    """Multiplications and additions of the product."""
    return 2.0 * a.shape[0] * a.shape[1] * b.shape[1]


def type_arguments(a: Matrix, b: Matrix) -> dict[str, Any]:
    """The `dtype_a` and `dtype_b` that mark uint16 bits as bfloat16."""
    return {f"dtype_{name}": "bfloat16" for name, matrix in (("a", a), ("b", b)) if matrix.type == "bfloat16"}


def result_type(a: Matrix, b: Matrix) -> str:
    """The element type py_gemm gives the product of these two."""
    if a.type == b.type:
        return a.type
    return "float64" if "float64" in (a.type, b.type) else "float32"


def numpy_product(a: Matrix, b: Matrix) -> Matrix:
    """What NumPy's matmul gives; bfloat16 operands take part as float32, and the result is rounded to the product's type."""
    values = np.matmul(a.numbers(), b.numbers())
    name = result_type(a, b)
    return Matrix(round_to_bfloat16(values), name) if name == "bfloat16" else Matrix(values, values.dtype.name)


def estimate_numpy(a: Matrix, b: Matrix) -> float:
    """Seconds NumPy's matmul would take, from a few rows of A times the whole of B."""
    rows = max(1, min(a.shape[0], int(1e7 / (2 * a.shape[1] * b.shape[1]))))
    left, right = a.numbers()[:rows], b.numbers()
    start = time.perf_counter()
    np.matmul(left, right)
    return (time.perf_counter() - start) * a.shape[0] / rows


@dataclass(frozen=True)
class Reference:
    """The product for some rows (evenly spaced; all where that is affordable), and how it was come by.

    `values` are float64; long double where a result that is correctly rounded shall be told from its neighbours.
    """

    rows: NDArray[np.intp]
    values: NDArray[np.floating[Any]]
    scale: float
    method: str

    @property
    def long(self) -> bool:
        """Whether this is precise enough to say how each element should have been rounded."""
        return self.values.dtype == np.longdouble


def make_reference(a: Matrix, b: Matrix, mode: str) -> Reference:
    """The float64 product of the operands as they are, narrow types widened without loss; mode "exact": the long double one."""
    long = mode == "exact"
    by_numpy = long or "float64" in (a.type, b.type) or flops(a, b) <= NUMPY_REFERENCE_FLOPS
    most = LONG_REFERENCE_FLOPS if long else NUMPY_REFERENCE_FLOPS if by_numpy else FAST_REFERENCE_FLOPS
    wide = np.longdouble if long else np.float64
    height = a.shape[0]
    count = max(1, min(height, int(height * most / max(flops(a, b), 1.0))))
    rows = ((np.arange(count) + 0.5) * height / count).astype(np.intp)
    left = a.numbers()[rows].astype(wide)
    right = b.numbers().astype(wide)
    # Infinities among the operands make NaN in the reference as they do in the result; NumPy need not warn of it.
    with np.errstate(all="ignore"):
        if by_numpy:
            values = np.matmul(left, right)
            method = f"NumPy's product in {np.finfo(wide).nmant + 1}-bit arithmetic" if long else "NumPy's float64 product"
        else:
            values = pg.matmul(left, right, device="cpu")
            _prove(left, right, values)
            method = f"py_gemm's float64 product, {min(PROOF_ROWS, count)} rows of it proved by NumPy"
    finite = np.abs(values[np.isfinite(values)])
    return Reference(rows, values, float(finite.max()) if finite.size else 0.0, method)


def _prove(left: Array, right: Array, values: Array) -> None:
    """GemmError unless NumPy gives the same rows, up to the error bound of a float64 sum of this length."""
    chosen = np.unique(np.linspace(0, left.shape[0] - 1, PROOF_ROWS).astype(np.intp))
    expected = np.matmul(left[chosen], right)
    bound = 4 * left.shape[1] * np.finfo(np.float64).eps * np.matmul(np.abs(left[chosen]), np.abs(right))
    different = np.abs(values[chosen] - expected) > bound
    if different.any():
        raise pg.GemmError("The float64 reference does not agree with NumPy; no error can be measured against it.")


def errors_of(result: Matrix, reference: Reference) -> NDArray[np.float64]:
    """|D - reference| / max|reference| for the rows of the reference; infinite where one is finite and the other is not."""
    values = Matrix(result.values[reference.rows], result.type).numbers().astype(reference.values.dtype)
    expected = reference.values
    with np.errstate(all="ignore"):
        scaled: NDArray[np.float64] = (np.abs(values - expected) / (reference.scale or 1.0)).astype(np.float64)
    same = (values == expected) | (np.isnan(values) & np.isnan(expected))
    scaled[same] = 0.0
    scaled[~same & ~(np.isfinite(values) & np.isfinite(expected))] = np.inf
    return scaled


def differing(result: Matrix, reference: Reference) -> int:
    """How many elements are not the long double reference rounded once to the type of the result."""
    got = Matrix(result.values[reference.rows], result.type).numbers()
    with np.errstate(all="ignore"):
        expected = _round_once(reference.values, result.type)
    return int(np.count_nonzero((got != expected) & ~(np.isnan(got) & np.isnan(expected))))


def _round_once(values: NDArray[np.floating[Any]], name: str) -> Array:
    """The values rounded to nearest, as numbers of the type (float32 for bfloat16, float64 for integer types)."""
    nearest = values.astype(np.float64)
    if name not in ("float32", "float16", "bfloat16"):
        return nearest
    # Rounded to odd first, so that the narrower rounding decides alone (Boldo and Melquiond 2008).
    bits = nearest.view(np.int64).copy()
    inexact = np.isfinite(values) & (nearest != values)
    bits -= inexact & (np.abs(nearest) > np.abs(values))
    bits |= inexact
    return convert(bits.view(np.float64), name).numbers()


def largest(errors: NDArray[np.float64], reference: Reference) -> dict[str, object]:
    """The largest error and where it lies (row, column; counted from 0)."""
    row, column = divmod(int(np.argmax(errors)), errors.shape[1])
    return {"error": float(errors[row, column]), "row": int(reference.rows[row]), "column": column}


def worst(errors: NDArray[np.float64], result: Matrix, reference: Reference, count: int = 5) -> list[dict[str, object]]:
    """The `count` largest errors with the values that were got and expected."""
    flat = errors.ravel()
    order = np.argpartition(flat, -min(count, flat.size))[-min(count, flat.size) :]
    found = []
    for index in order[np.argsort(-flat[order], kind="stable")]:
        row, column = divmod(int(index), errors.shape[1])
        at = int(reference.rows[row])
        bits = result.values[at, column : column + 1]
        got = widen_bfloat16(bits) if result.type == "bfloat16" else bits
        found.append(
            {
                "row": at,
                "column": column,
                "error": float(flat[index]),
                "got": f"{float(got[0]):.9g}",
                "expected": f"{float(reference.values[row, column]):.9g}",
            }
        )
    return found


def reduce_by_maximum(errors: NDArray[np.float64], most: int = 128) -> dict[str, object]:
    """At most `most` x `most` cells, each with the largest error of the elements it stands for, as a flat float32 array."""
    height, width = (min(size, most) for size in errors.shape)
    tops = np.arange(height) * errors.shape[0] // height
    lefts = np.arange(width) * errors.shape[1] // width
    cells = np.maximum.reduceat(np.maximum.reduceat(errors, tops, axis=0), lefts, axis=1)
    return {"height": height, "width": width, "values": np.ascontiguousarray(cells, np.float32).ravel()}


def describe(errors: NDArray[np.float64], result: Matrix, reference: Reference) -> dict[str, object]:
    """All that the page says and draws about the errors of one result."""
    finite = errors[np.isfinite(errors)]
    return {
        **largest(errors, reference),
        "median": float(np.median(finite)) if finite.size else None,
        "most": float(np.quantile(finite, 0.99)) if finite.size else None,
        "exact": int(np.count_nonzero(errors == 0)),
        "count": int(errors.size),
        "unfinite": int(errors.size - finite.size),
        "differing": differing(result, reference) if reference.long else None,
        "scale": reference.scale,
        "method": reference.method,
        "rows_checked": len(reference.rows),
        "rows": result.shape[0],
        "columns": result.shape[1],
        "type": result.type,
        "worst": worst(errors, result, reference),
        "map": reduce_by_maximum(errors),
    }


async def time_product(
    a: Matrix, b: Matrix, device: Any, mode: str, proceed: Callable[[], None]
) -> tuple[Matrix, Timing, pg.RunReport | None]:
    """The product through py_gemm on one device: result, timing and py_gemm's own report of the last call."""
    results: list[Array] = []

    async def call() -> None:
        results[:] = [await pg.gemm_async(a.values, b.values, device=device, mode=mode, **type_arguments(a, b))]

    timing = await time_calls(call, proceed)
    return Matrix(np.asarray(results[0]), result_type(a, b)), timing, pg.last_run()


async def time_numpy(a: Matrix, b: Matrix, proceed: Callable[[], None]) -> tuple[Matrix, Timing]:
    """The product by NumPy's matmul: result and timing. bfloat16 operands are widened beforehand, outside the timing."""
    left, right = a.numbers(), b.numbers()

    async def call() -> None:
        with np.errstate(all="ignore"):
            np.matmul(left, right)

    timing = await time_calls(call, proceed)
    with np.errstate(all="ignore"):
        return numpy_product(a, b), timing
