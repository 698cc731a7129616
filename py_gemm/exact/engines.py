"""The engines that sum products exactly, and the one function that picks one.

The interface. An engine is a function of the right operand that returns a function of row blocks of the left operand:
    start = ENGINES[name].start
    multiply = start(b)                  # b: Matrix [g, k, n], finite; whatever can be prepared once is prepared here
    sums = multiply(a)                   # a: Matrix [g, m, k], finite; any number of calls with different m
`sums` (FixedPoint or Integers, see fixedpoint.py) has the shape [g, m, n] and holds every sum of k products exactly: no rounding,
no overflow, no order. Formats of a and b may differ; both are floats, or both are integers. All engines give the same numbers.

The superaccumulator (superaccumulator.py) is met through `dot_products(a, b, format_name) -> (limbs, exponent)`: a [m, k] and
b [k, n] elements of the named float format (bfloat16: its bits); limbs uint32 [m, n, L], least significant first, in two's
complement; exponent: that of the lowest bit.

Engines do not see infinities, NaNs, alpha, beta or C; special.py and products.py deal with those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UnsupportedError
from .codes import encode
from .fixedpoint import FixedPoint, Integers, Sums
from .formats import FLOAT16, Format, promote


@dataclass(frozen=True, slots=True)
class Matrix:
    """Stacked matrices for an engine. values: finite float64, or int64 or uint64, [g, rows, columns]; form: what they come from."""

    values: NDArray[Any]
    form: Format


Multiply = Callable[[Matrix], Sums]
Start = Callable[[Matrix], Multiply]


@dataclass(frozen=True, slots=True)
class Engine:
    """A row of the table. `start`: see above; `integers`: whether it takes integers too."""

    name: str
    start: Start
    integers: bool


@dataclass(frozen=True, slots=True)
class Traits:
    """What the choice of an engine depends on, and nothing else.

    products: m * n * k of all products together. k: the terms of a sum. bits_a, bits_b: the bits that the widest row of A
    (column of B) spans, from its highest to its lowest set bit, or a bound of that. integers: whether the operands are.
    has_superaccumulator: whether WebAssembly can run here.
    """

    products: int
    k: int
    bits_a: int
    bits_b: int
    integers: bool
    has_superaccumulator: bool


# Up to this many products Python's integers answer sooner than the splitting engine has set up its arrays (measured: 0.4 ms).
SMALL_PRODUCTS = 64
# Matrix products that splitting may take. At 64 and one thread it takes about as long as the superaccumulator (8 ns a product).
MOST_SLICE_PRODUCTS = 64
# Without the superaccumulator splitting wins over Python's integers for as long as its scaled slices cannot underflow.
MOST_SLICES = 30


def slice_bits(k: int) -> int:
    """The bits of a slice, such that k products of two slices sum exactly in float64: 2 t + log2 k <= 53."""
    return (53 - max(k - 1, 0).bit_length()) // 2


def slices(bits: int, k: int) -> int:
    """How many slices rows of `bits` bits need: the first holds t bits and each further one t + 1 (see ozaki.py)."""
    first = slice_bits(k)
    return max(1, 1 + -(-(bits - first) // (first + 1)))


def choose_engine(traits: Traits) -> str:
    """The engine for a product: a pure function."""
    if traits.products <= SMALL_PRODUCTS:
        return "rational"
    count_a, count_b = slices(traits.bits_a, traits.k), slices(traits.bits_b, traits.k)
    has_superaccumulator = traits.has_superaccumulator and not traits.integers
    if slice_bits(traits.k) < 8:
        return "superaccumulator" if has_superaccumulator else "rational"
    if count_a * count_b <= MOST_SLICE_PRODUCTS:
        return "ozaki"
    if has_superaccumulator:
        return "superaccumulator"
    return "ozaki" if max(count_a, count_b) <= MOST_SLICES else "rational"


def find_engine(name: str, *, integers: bool) -> Engine:
    """The engine of that name; ValueError that lists the known ones; UnsupportedError where it does not take integers."""
    if name not in ENGINES:
        raise ValueError(f"engine={name!r} is unknown; known: {', '.join(ENGINES)}")
    engine = ENGINES[name]
    if integers and not engine.integers:
        raise UnsupportedError(f"the engine {name} sums products of floats; these are integers")
    return engine


def start_rational(b: Matrix) -> Multiply:
    """The reference: every element as an integer over the common exponent of its row or column, summed by Python's integers.

    float32 takes at most 554 bits and log2 k, float64 4,198 and log2 k.
    """
    columns = [_as_integers(matrix.T) for matrix in b.values]

    def multiply(a: Matrix) -> Integers:
        shape = (len(a.values), a.values.shape[1], b.values.shape[2])
        values = np.zeros(shape, object)
        exponent = np.zeros(shape, np.int64)
        for group, matrix in enumerate(a.values):
            for row, (left, left_exponent) in enumerate(_as_integers(matrix)):
                for column, (right, right_exponent) in enumerate(columns[group]):
                    values[group, row, column] = sum(x * y for x, y in zip(left, right, strict=True))
                    exponent[group, row, column] = left_exponent + right_exponent
        return Integers(values, exponent)

    return multiply


def _as_integers(rows: NDArray[Any]) -> list[tuple[list[int], int]]:
    """Each row as integers and the exponent that they share."""
    if rows.dtype.kind in "iu":
        return [(row, 0) for row in rows.tolist()]
    found = []
    fractions, exponents = np.frexp(rows)
    for row, places in zip(np.ldexp(fractions, 53).astype(np.int64).tolist(), exponents.tolist(), strict=True):
        filled = [place for value, place in zip(row, places, strict=True) if value]
        lowest = min(filled, default=53) - 53
        found.append(([value << place - 53 - lowest if value else 0 for value, place in zip(row, places, strict=True)], lowest))
    return found


def start_fsum(b: Matrix) -> Multiply:
    """math.fsum (Shewchuk's exact partial sums, rounded once), asked again for what it left over until nothing is left.

    The terms are exact in float64: products of two floats of up to 26 bits as they are; wider ones are first cut into halves of
    26 bits, four products a pair. Rows and columns are scaled by powers of two to below 1, so nothing overflows;
    UnsupportedError where a product could then underflow (rows that span more than 2**460).
    """
    columns = [_scaled_halves(matrix.T, b.form) for matrix in b.values]

    def multiply(a: Matrix) -> Integers:
        shape = (len(a.values), a.values.shape[1], b.values.shape[2])
        values = np.zeros(shape, object)
        exponent = np.zeros(shape, np.int64)
        for group, matrix in enumerate(a.values):
            left, left_exponent = _scaled_halves(matrix, a.form)
            right, right_exponent = columns[group]
            for row in range(shape[1]):
                # [halves of a, halves of b, columns, k]
                products = left[:, None, row, None, :] * right[None, :, :, :]
                for column in range(shape[2]):
                    value, place = _sum_exactly(products[:, :, column].reshape(-1).tolist())
                    values[group, row, column] = value
                    exponent[group, row, column] = place + int(left_exponent[row]) + int(right_exponent[column])
        return Integers(values, exponent)

    return multiply


def _scaled_halves(rows: NDArray[np.float64], form: Format) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """[halves, rows, k] with magnitudes below 1, and the exponents by which the rows were divided."""
    size = np.abs(rows)
    exponent = np.frexp(size.max(axis=1, initial=0.0))[1].astype(np.int64)
    scaled = np.ldexp(rows, -exponent[:, None].astype(np.int32))
    filled = np.abs(scaled[rows != 0])
    if filled.size and float(filled.min()) < 2.0**-460:
        raise UnsupportedError("the engine fsum takes rows and columns that span at most 2**460; use rational or superaccumulator")
    if form.significand_bits <= 26:
        return scaled[None], exponent
    shifted = scaled * float((1 << 27) + 1)  # Veltkamp's splitting: the rounding of `high` leaves 26 bits and a sign for the rest
    high = shifted - (shifted - scaled)
    return np.stack([high, scaled - high]), exponent


def _sum_exactly(terms: list[float]) -> tuple[int, int]:
    """The exact sum of floats as an integer and an exponent."""
    parts = []
    while part := fsum(terms):
        parts.append(part)
        terms.append(-part)
    # every part is a whole multiple of 2**-1074; each takes at least 53 bits off, so a handful suffices
    total, place = 0, 0
    for part in parts:
        number, denominator = part.as_integer_ratio()
        exponent = 1 - denominator.bit_length()
        if exponent < place:
            total, place = total << place - exponent, exponent
        total += number << exponent - place
    return total, place


def start_superaccumulator(b: Matrix) -> Multiply:
    """Fixed-point sums in WebAssembly (superaccumulator.py)."""
    from .superaccumulator import dot_products

    def multiply(a: Matrix) -> FixedPoint:
        form = promote(a.form, b.form)
        form = form if form.size > 1 else FLOAT16  # which has every value of the 8-bit formats
        found = [
            dot_products(encode(left, form), encode(right, form), form.name) for left, right in zip(a.values, b.values, strict=True)
        ]
        limbs = np.stack([_signed(each) for each, _ in found])
        return FixedPoint(np.ascontiguousarray(np.moveaxis(limbs, -1, 0)), 32, np.full((1, 1, 1), found[0][1], np.int64))

    return multiply


def _signed(limbs: NDArray[np.uint32]) -> NDArray[np.int64]:
    found = limbs.astype(np.int64)
    found[..., -1] = limbs[..., -1].astype(np.int32)
    return found


def start_ozaki(b: Matrix) -> Multiply:
    """Error-free splitting over float64 matrix products (ozaki.py)."""
    from .ozaki import start

    return start(b)


ENGINES: dict[str, Engine] = {
    row.name: row
    for row in (
        Engine("rational", start_rational, True),
        Engine("fsum", start_fsum, False),
        Engine("ozaki", start_ozaki, True),
        Engine("superaccumulator", start_superaccumulator, False),
    )
}
