"""What the tests of the CPU kernels share: NumPy arrays in, the kernels' result out, and exact arithmetic to compare it with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import py_gemm
from py_gemm.cpu.engines import copying
from py_gemm.cpu.families import ROWS, Row
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32, ElementType
from py_gemm.epilogue import Activation
from py_gemm.problem import Layout, Problem

Array = npt.NDArray[Any]

NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype(np.float64),
}
ELEMENT_TYPES: dict[np.dtype[Any], ElementType] = {
    NUMPY_TYPES[element.name]: element for element in (FLOAT32, FLOAT16, BFLOAT16, FLOAT64)
}
# Rows that take any types; those of the half families are HALF_ROWS.
FLOAT32_ROWS = [row.name for row in ROWS if row.accumulator is FLOAT32 and row.inputs is None]
FLOAT64_ROWS = [row.name for row in ROWS if row.accumulator is FLOAT64]
ROW_NAMES = [row.name for row in ROWS if row.accumulator is not INT32 and row.inputs is None]
HALF_ROWS = [row.name for row in ROWS if row.inputs is not None]


def row_named(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


@cache
def gemm_of(name: str) -> CpuGemm:
    """A CpuGemm that is forced to one row."""
    return CpuGemm(family=name)


def layout_of(array: Array) -> Layout:
    element = ELEMENT_TYPES[array.dtype]
    strides = [stride // element.size for stride in array.strides]
    return Layout(element, strides[-2], strides[-1], tuple(strides[:-2]))


def address_of(array: Array | None) -> int:
    return 0 if array is None else int(array.__array_interface__["data"][0])


def problem_of(a: Array, b: Array, d: Array, c: Array | None = None, *, alpha: float = 1.0, beta: float | None = None) -> Problem:
    batch = d.shape[:-2]
    a, b = np.broadcast_to(a, (*batch, *a.shape[-2:])), np.broadcast_to(b, (*batch, *b.shape[-2:]))
    if c is not None:
        c = np.broadcast_to(c, d.shape)
    return Problem(
        a.shape[-2],
        b.shape[-1],
        a.shape[-1],
        layout_of(a),
        layout_of(b),
        layout_of(d),
        None if c is None else layout_of(c),
        batch,
        alpha,
        (0.0 if c is None else 1.0) if beta is None else beta,
    )


def multiply(
    gemm: CpuGemm,
    a: Array,
    b: Array,
    d: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    bias: Array | None = None,
    bias_by_row: bool = False,
    activation: Activation = Activation.NONE,
    deterministic: bool = False,
) -> Array:
    """D, written into `d`; batch dimensions broadcast to those of `d`."""
    problem = problem_of(a, b, d, c, alpha=alpha, beta=beta)
    call = gemm.prepare(
        problem, activation=activation, has_bias=bias is not None, bias_by_row=bias_by_row, deterministic=deterministic
    )
    call(address_of(a), address_of(b), address_of(c), address_of(d), address_of(bias))
    return d


def small_integers(generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any] | str) -> Array:
    """-3 .. 3: products and sums of up to 28 of them are exact in every type, of up to 1.8 million in float32."""
    return generator.integers(-3, 4, shape).astype(NUMPY_TYPES[dtype] if isinstance(dtype, str) else dtype)


def laid_out(array: Array, how: str) -> Array:
    """The same values in another arrangement: plain, transposed, reversed (negative strides), or spread (gaps on both axes)."""
    if how == "plain":
        return np.ascontiguousarray(array)
    if how == "transposed":
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    if how == "reversed":
        return np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]
    assert how == "spread"
    shape = (*array.shape[:-2], 2 * array.shape[-2] + 1, 3 * array.shape[-1] + 2)
    room = np.full(shape, 99, array.dtype)
    view = room[..., 1::2, 2::3]
    view[...] = array
    return view


LAYOUTS = ("plain", "transposed", "reversed", "spread")


def framed(shape: tuple[int, ...], dtype: np.dtype[Any], how: str = "plain") -> tuple[Array, Array]:
    """An output to write and the whole room around it, filled with the sentinel -77, so that `frame_is_whole` can tell."""
    pad = [(2, 3)] * len(shape)
    if how == "transposed":
        shape = (*shape[:-2], shape[-1], shape[-2])
    steps = {"plain": 1, "transposed": 1, "reversed": -1, "spread": 2}[how]
    room = np.full([abs(steps) * size + sum(sides) for size, sides in zip(shape, pad, strict=True)], -77, dtype)
    inner = tuple(slice(sides[0], sides[0] + abs(steps) * size, abs(steps)) for size, sides in zip(shape, pad, strict=True))
    view = room[inner]
    if how == "reversed":
        view = view[..., ::-1, ::-1]
    if how == "transposed":
        view = view.swapaxes(-1, -2)
    return view, room


def frame_is_whole(view: Array, room: Array) -> bool:
    """Whether everything around `view` is still the sentinel. Overwrites `view`."""
    view[...] = -77
    return bool(np.all(room == np.asarray(-77, room.dtype)))


@contextmanager
def every_product_is_worth_a_thread() -> Iterator[None]:
    """Strips on as many threads as are asked for, whatever they cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "MULTIPLY_ADDS_A_BYTE", 0)
        py_gemm.configure(parallel_threshold=0, par_mnk_per_worker=1)
        yield
    py_gemm.configure(parallel_threshold=None, par_mnk_per_worker=None)


def last_variant() -> str:
    """The row that the front door's last product ran on."""
    report = py_gemm.last_run()
    assert report is not None
    return report.variant
