"""The splitting engine: an exact matrix product out of ordinary float64 matrix products (Ozaki, Ogita, Oishi and Rump, "Error-free
transformations of matrix multiplication by using fast routines of matrix multiplication", Numer. Algorithms 59, 2012).

How it works. Let t = floor((53 - ceil(log2 k)) / 2). A row of A is scaled by a power of two so that all its elements lie below
2**t; the first slice is each element rounded to an integer, the rest is at most 1/2, is multiplied by 2**(t + 1) and cut again,
until nothing is left. Columns of B likewise. So A = sum of A_p * 2**(-(t + 1) p) and B the same, all slices integers of magnitude
at most 2**t, and A_p @ B_q is a matrix of sums of k products of at most 2**(2 t) each.
Why it is exact. Every partial sum, in whatever order and fused or not, is an integer of magnitude at most k * 2**(2 t) <= 2**53,
and those float64 has; scaling by powers of two and subtracting the rounded part lose nothing (the rest is a whole multiple of the
element's lowest bit and smaller than the element). The products with p + q = s share the weight 2**(-(t + 1) s): they are added as
integers into limb s of a FixedPoint.
Integers are cut into digits of t bits instead, the top digit signed. Slices that only few rows or columns need are multiplied for
those alone. Never rounds; what cannot be split (spans of more than MOST_SLICES slices) is an UnsupportedError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UnsupportedError
from .engines import MOST_SLICES, Matrix, Multiply, slice_bits
from .fixedpoint import FixedPoint, Long
from .formats import Format

Stack = NDArray[np.float64]
MatrixProduct = Callable[[Stack, Stack], Stack]

# A slice is cut down to the lines that it does not leave zero where those are at most this share: gathering costs a pass, too.
FEW_LINES = 0.5
# Scaled elements below this could have lost bits to underflow (and would need more than MOST_SLICES slices).
SMALLEST = 2.0**-900
LOWEST_BIT = -400  # formats above this (all but float64) have too small a range for that


@dataclass(frozen=True, slots=True)
class Slice:
    """values: integers [g, m, k] (of A) or [g, k, n] (of B); lines: the rows (columns) they belong to, None for all of them."""

    values: Stack
    lines: NDArray[np.intp] | None


@dataclass(frozen=True, slots=True)
class Split:
    """slices, and the exponents of the lines: the operand is the sum of slices[p] * 2**(exponent - step * p)."""

    slices: list[Slice]
    exponent: Long
    step: int


def start(b: Matrix) -> Multiply:
    """See engines.py; b is split once."""
    k = b.values.shape[1]
    bits = slice_bits(k)
    if bits < 1:
        raise UnsupportedError(f"the engine ozaki sums up to 2**51 products; k is {k}")
    right = split(b.values, b.form, 1, bits)
    product = matrix_product(sys.platform)

    def multiply(a: Matrix) -> FixedPoint:
        left = split(a.values, a.form, 2, bits)
        shape = (len(a.values), a.values.shape[1], b.values.shape[2])
        count = len(left.slices) + len(right.slices) - 1
        limbs = np.zeros((count, *shape), np.int64)
        for p, row_slice in enumerate(left.slices):
            for q, column_slice in enumerate(right.slices):
                limb = limbs[count - 1 - p - q]
                found = product(row_slice.values, column_slice.values)
                _add(limb, found, row_slice.lines, column_slice.lines)
        exponent = left.exponent + right.exponent - right.step * (count - 1)
        return FixedPoint(limbs, right.step, exponent)

    return multiply


def _add(limb: Long, found: Stack, rows: NDArray[np.intp] | None, columns: NDArray[np.intp] | None) -> None:
    whole = found.astype(np.int64)
    if rows is None and columns is None:
        limb += whole
    elif columns is None:
        limb[:, rows] += whole
    elif rows is None:
        limb[:, :, columns] += whole
    else:
        limb[:, rows[:, None], columns] += whole


def split(values: NDArray[Any], form: Format, axis: int, bits: int) -> Split:
    """Cut stacked matrices of values of a format into slices; `axis` is that of k."""
    if values.dtype.kind in "iu":
        return _split_integers(values, bits)
    largest = np.maximum(values.max(axis=axis, keepdims=True, initial=0.0), -values.min(axis=axis, keepdims=True, initial=0.0))
    exponent = np.frexp(largest)[1].astype(np.int64)
    rest = _scale(values, bits - exponent)
    if form.lowest_bit < LOWEST_BIT and np.abs(rest).min(where=values != 0, initial=1.0) < SMALLEST:
        raise UnsupportedError(f"the engine ozaki cuts operands into at most {MOST_SLICES} slices; one spans more")
    slices: list[Slice] = []
    lines: NDArray[np.intp] | None = None
    factor = float(1 << (bits + 1))
    while True:
        if len(slices) == MOST_SLICES:
            raise UnsupportedError(f"the engine ozaki cuts operands into at most {MOST_SLICES} slices; one spans more")
        whole = np.rint(rest)
        rest -= whole
        slices.append(Slice(whole, lines))
        left_over = rest != 0
        if not left_over.any():
            break
        filled = np.asarray(left_over.any(axis=(0, axis)))
        count = int(np.count_nonzero(filled))
        if count <= FEW_LINES * len(filled):
            keep = np.flatnonzero(filled)
            lines = keep if lines is None else lines[keep]
            rest = rest[:, keep] if axis == 2 else rest[:, :, keep]
        rest *= factor
    return Split(slices, exponent - bits, bits + 1)


def _scale(values: Stack, exponent: Long) -> Stack:
    """The values times 2**exponent, in new memory."""
    if exponent.size and int(exponent.min()) >= -1022 and int(exponent.max()) <= 1023:
        found: Stack = values * ((exponent + 1023) << 52).view(np.float64)
    else:
        found = np.ldexp(values, exponent.astype(np.int32))
    return found


def _split_integers(values: NDArray[Any], bits: int) -> Split:
    """Digits of `bits` bits, the most significant first, so that the exponent of the last is 0."""
    rest = values
    digits = []
    mask = (1 << bits) - 1
    limit = 1 << bits
    while not bool(((rest < limit) & (rest >= -limit)).all() if rest.dtype.kind == "i" else (rest < limit).all()):
        digits.append(Slice((rest & rest.dtype.type(mask)).astype(np.float64), None))
        rest = rest >> rest.dtype.type(bits)
    digits.append(Slice(rest.astype(np.float64), None))
    exponent = np.full((1, 1, 1), bits * (len(digits) - 1), np.int64)
    return Split(digits[::-1], exponent, bits)


def matrix_product(platform: str) -> MatrixProduct:
    """How slices are multiplied: NumPy's BLAS; in Pyodide, whose NumPy has none, py_gemm's own float64 kernels."""
    return _kernel_product if platform == "emscripten" else np.matmul


def _kernel_product(a: Stack, b: Stack) -> Stack:
    from ..api import matmul

    found: Stack = matmul(a, b, device="cpu")
    return found
