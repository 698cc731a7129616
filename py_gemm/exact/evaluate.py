"""From an Expression to numbers: drives an engine block by block, finishes the exact sums with alpha, beta and C, and rounds once.

`rounded` gives the stored elements of the result; `nearest` gives the exact values as pairs of float64 (the nearest one and
what is left, rounded to odd), which the tolerance needs. Nothing is rounded before the end: alpha and beta are integers times
powers of two in fixed point, and Fractions where they are not (1/3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import GemmError
from .codes import encode, storage_dtype
from .engines import Matrix, Traits, choose_engine, find_engine, slice_bits, slices
from .expression import BLOCK, Block, Expression, Operand, Part, exponents
from .fixedpoint import FixedPoint, Sums, addends_only, dyadic, halved, leading, scaled, settle, with_addend
from .formats import FLOAT64, Format
from .rounding import Rounding, round_digits, round_fraction, round_integer, round_leading, round_special
from .special import Coefficient, Floats, negative_zeros, special_addend, special_products, without_specials

Exact = FixedPoint | list[Fraction]

HIGHEST = float(FLOAT64.highest)
LONGEST_FACTOR = 600  # bits of alpha or beta that fixed point multiplies by; longer ones go to Fractions
PIECE = 3 * BLOCK // 8  # elements that are finished at a time


@dataclass(frozen=True, slots=True)
class Terms:
    """One part of a block of results, flat: value = sum of coefficient * sums + sum of coefficient * addends.

    special: NaN and infinities where the value is none of the finite ones, else 0 (None: finite everywhere).
    negative: of given exact zeros (flat), which are negative; takes the mask and whether the rounding is down.
    """

    size: int
    sums: list[tuple[Fraction, Sums]]
    addends: list[tuple[Fraction, NDArray[Any]]]
    special: Floats | None
    negative: Callable[[NDArray[np.bool_], bool], NDArray[np.bool_]]


def engine_for(expression: Expression) -> str:
    """The engine that an expression is computed by: the one forced, or the choice of choose_engine."""
    if expression.engine is not None:
        return expression.engine
    a, b = expression.a, expression.b
    if a is None or b is None:
        return "none"
    k = expression.k * len(expression.parts)
    products = expression.groups * expression.m * expression.n * k * len(expression.parts)
    integers = expression.form.kind == "int"
    bits = [_format_span(each.form) for each in (a, b)]
    if _format_slices(bits, k) > 4 and products > 0:
        bits = [min(bits[0], _measured_span(a, expression, 2)), min(bits[1], _measured_span(b, expression, 1))]
    return choose_engine(Traits(products, k, bits[0], bits[1], integers, has_superaccumulator()))


@cache
def has_superaccumulator() -> bool:
    """Whether an engine for WebAssembly can be had here."""
    from ..cpu.engines import default_engine

    try:
        default_engine()
    except GemmError:
        return False
    return True


def _format_span(form: Format) -> int:
    """The most bits between the highest and the lowest bit of values of a format."""
    return 8 * form.size if form.kind == "int" else form.part.emax - form.part.lowest_bit + 1


def _format_slices(bits: list[int], k: int) -> int:
    return slices(bits[0], k) * slices(bits[1], k) if slice_bits(k) > 0 else 1 << 30


def _measured_span(operand: Operand, expression: Expression, axis: int) -> int:
    """The bits that the widest row (axis 2) or column (axis 1) spans."""
    if operand.form.kind == "int":
        return 8 * operand.form.size
    widest = 0
    for groups in expression.group_blocks():
        for rows in expression.row_blocks() if axis == 2 else [slice(None)]:
            values = operand.block(groups, rows)
            parts = [values.real, values.imag] if np.iscomplexobj(values) else [values]
            found = [exponents(without_specials(part)[0], axis) for part in parts]
            high, low = np.maximum.reduce([each[0] for each in found]), np.minimum.reduce([each[1] for each in found])
            widest = max(widest, int((high - low).max(initial=0)))
    return widest + operand.form.part.significand_bits


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand of a block, as a sum takes it: its values, the same with 0 for infinities and NaNs, whether there are any."""

    values: NDArray[Any]
    finite: NDArray[Any]
    has_specials: bool


def _factors(parts: list[NDArray[Any]]) -> list[Factor]:
    return [Factor(each, *((each, False) if each.dtype.kind in "iu" else without_specials(each))) for each in parts]


def terms_of(expression: Expression) -> Iterator[tuple[Block, list[Terms]]]:
    """Every block of results with its parts, in order."""
    engine = find_engine(engine_for(expression), integers=expression.form.kind == "int") if expression.has_products else None
    for groups in expression.group_blocks():
        right: list[Factor] = []
        if engine is not None and expression.b is not None:
            right = _factors(expression.right(expression.b.block(groups)))
            form = expression.b.form.part
            multiplies = [engine.start(Matrix(each.finite, form)) for each in right]
        for rows in expression.row_blocks():
            left: list[Factor] = []
            sums: list[Sums] = []
            if right and expression.a is not None:
                left = _factors(expression.left(expression.a.block(groups, rows)))
                form = expression.a.form.part
                sums = [multiply(Matrix(each.finite, form)).flat() for multiply, each in zip(multiplies, left, strict=True)]
            addends = [] if expression.c is None else _factors(expression.addends(expression.c.block(groups, rows)))
            shape = (len(groups), rows.stop - rows.start, expression.n)
            yield Block(groups, rows), [_terms(part, shape, left, right, sums, addends) for part in expression.parts]


def _terms(
    part: Part, shape: tuple[int, ...], left: list[Factor], right: list[Factor], sums: list[Sums], addends: list[Factor]
) -> Terms:
    products = [each for each in zip(part.sums, left, right, sums, strict=False) if each[0] != 0]
    others = [each for each in zip(part.addends, addends, strict=False) if each[0] != 0]
    regular = all(isinstance(number, Fraction) and not (a.has_specials or b.has_specials) for number, a, b, _ in products)
    regular &= all(isinstance(number, Fraction) and not c.has_specials for number, c in others)

    def negative(zeros: NDArray[np.bool_], down: bool) -> NDArray[np.bool_]:
        factors = [(number, a.values, b.values) for number, a, b, _ in products]
        found = negative_zeros(zeros.reshape(shape), factors, [(number, c.values) for number, c in others], down=down)
        return found.reshape(-1)

    return Terms(
        prod(shape),
        [(number, exact) for number, _, _, exact in products if isinstance(number, Fraction)],
        [(number, c.finite.reshape(-1)) for number, c in others if isinstance(number, Fraction)],
        None if regular else _special(shape, products, others),
        negative,
    )


def _special(
    shape: tuple[int, ...],
    products: list[tuple[Coefficient, Factor, Factor, Sums]],
    others: list[tuple[Coefficient, Factor]],
) -> Floats:
    """NaN and infinities, flat, where the terms sum to them."""
    special = np.zeros(shape)
    with np.errstate(invalid="ignore"):
        for number, a, b, exact in products:
            signs = None if isinstance(number, Fraction) else _signs(exact).reshape(shape)
            special = special + special_products(number, a.values, b.values, signs)
        for number, c in others:
            special = special + special_addend(number, c.values)
    return special.reshape(-1)


def _signs(sums: Sums) -> Floats:
    """-1, 0 or 1 for each exact sum."""
    if isinstance(sums, FixedPoint):
        found = leading(settle(sums))
        return np.where(found.mantissa == 0, 0.0, np.where(found.negative, -1.0, 1.0))
    return np.array([(value > 0) - (value < 0) for value in sums.values.tolist()], np.float64)


def combine(terms: Terms, where: slice, *, integers: bool = False) -> Exact:
    """The exact values of some elements; of integers on the grid of exponent 0."""
    size = min(where.stop, terms.size) - where.start
    sums = [(coefficient, each.part(where)) for coefficient, each in terms.sums]
    addends = [(coefficient, each[where]) for coefficient, each in terms.addends]
    if not sums and not addends:
        return FixedPoint(np.zeros((1, size), np.int64), 24, np.zeros(size, np.int64))
    found = _in_fixed_point(sums, addends, whole if integers else dyadic)
    return found if found is not None else _in_fractions(size, sums, addends)


def whole(value: Fraction) -> tuple[int, int]:
    """An integral coefficient as it is: integer sums stay on the grid of exponent 0."""
    return value.numerator, 0


def _in_fixed_point(
    sums: list[tuple[Fraction, Sums]],
    addends: list[tuple[Fraction, NDArray[Any]]],
    factor_of: Callable[[Fraction], tuple[int, int] | None],
) -> FixedPoint | None:
    sum_factors, addend_factors = [factor_of(each) for each, _ in sums], [factor_of(each) for each, _ in addends]
    for factor in (*sum_factors, *addend_factors):
        if factor is None or factor[0].bit_length() > LONGEST_FACTOR:
            return None
    total: FixedPoint | None = None
    narrow = any(factor is not None and abs(factor[0]) != 1 for factor in (*sum_factors, *addend_factors))
    if sums:
        lowest = min(factor[1] for factor in sum_factors if factor is not None)
        for factor, (_, each) in zip(sum_factors, sums, strict=True):
            if factor is None or not isinstance(each, FixedPoint) or factor[1] - lowest > LONGEST_FACTOR:
                return None
            number = factor[0] << factor[1] - lowest
            fixed = halved(each) if each.width > 27 and (narrow or abs(number) != 1) else each
            fixed = scaled(fixed, number)
            total = fixed if total is None else _added(total, fixed)
            if total is None:
                return None
        if total is not None:
            total = FixedPoint(total.limbs, total.width, total.exponent + lowest)
    if total is None:
        total = addends_only([(values, factor[1]) for factor, (_, values) in zip(addend_factors, addends, strict=True) if factor])
    for factor, (_, values) in zip(addend_factors, addends, strict=True):
        if factor is None or total is None:
            return None
        total = with_addend(total, values, *factor)
    return total


def _added(first: FixedPoint, second: FixedPoint) -> FixedPoint | None:
    """The sum of two on the same grid (real and imaginary sums are: they have the same largest elements); None on others."""
    if first.width != second.width or not np.array_equal(first.exponent, second.exponent):
        return None
    count = max(len(first.limbs), len(second.limbs))
    limbs = np.zeros((count, *first.shape), np.int64)
    limbs[: len(first.limbs)] += first.limbs
    limbs[: len(second.limbs)] += second.limbs
    return FixedPoint(limbs, first.width, first.exponent)


def _in_fractions(size: int, sums: list[tuple[Fraction, Sums]], addends: list[tuple[Fraction, NDArray[Any]]]) -> list[Fraction]:
    found = [Fraction(0)] * size
    for coefficient, each in sums:
        found = [total + coefficient * value for total, value in zip(found, each.integers().fractions(), strict=True)]
    for coefficient, values in addends:
        found = [total + coefficient * Fraction(value) for total, value in zip(found, values.tolist(), strict=True)]
    return found


def round_part(terms: Terms, form: Format, rounding: Rounding, overflow: str) -> NDArray[Any]:
    """The values of one part, flat, rounded once; float64, or integers of the format."""
    if form.kind == "int":
        return _round_integers(terms, form, overflow)
    found = np.empty(terms.size, np.float64)
    zeros = np.zeros(terms.size, np.bool_)
    for start in range(0, terms.size, PIECE):
        where = slice(start, start + PIECE)
        exact = combine(terms, where)
        if isinstance(exact, FixedPoint):
            front = leading(settle(exact))
            found[where] = round_leading(front, form, rounding, overflow)
            zeros[where] = front.mantissa == 0
        else:
            found[where] = [_round_signed(each, form, rounding, overflow) for each in exact]
            zeros[where] = [each == 0 for each in exact]
    if zeros.any():
        found[terms.negative(zeros, rounding is Rounding.DOWN)] = -0.0
    if not form.has_negative_zero:
        found += 0.0
    if terms.special is not None:
        where_special = np.flatnonzero(~np.isfinite(terms.special))
        found[where_special] = [round_special(each, form, overflow) for each in terms.special[where_special].tolist()]
    return found


def _round_signed(x: Fraction, form: Format, rounding: Rounding, overflow: str) -> float:
    value = round_fraction(x, form, rounding, overflow)
    return -0.0 if value == 0 and x < 0 else value


def _round_integers(terms: Terms, form: Format, overflow: str) -> NDArray[Any]:
    found = np.empty(terms.size, form.name)
    for start in range(0, terms.size, PIECE):
        where = slice(start, start + PIECE)
        exact = combine(terms, where, integers=True)
        if isinstance(exact, FixedPoint):
            values, past = round_digits(settle(exact), form, overflow)
            found[where] = values
            if overflow == "error" and past.any():
                raise PastRangeError(start + int(np.flatnonzero(past)[0]))
        else:
            for index, value in enumerate(exact, start):
                try:
                    found[index] = round_integer(int(value), form, overflow)
                except OverflowError:
                    raise PastRangeError(index) from None
    return found


class PastRangeError(Exception):
    """An integer result past its range, at a flat index within its block."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def rounded(expression: Expression) -> NDArray[Any]:
    """The stored elements of the result, in its shape. OverflowError where an integer is past its range and the rule is "error"."""
    form = expression.form
    stored = np.empty((expression.groups, expression.m, expression.n), storage_dtype(form))
    for block, parts in terms_of(expression):
        target = stored[block.groups, block.rows] if len(block.groups) > 1 else stored[block.groups[0], block.rows][None]
        try:
            values = [round_part(each, form.part, expression.rounding, expression.overflow).reshape(target.shape) for each in parts]
        except PastRangeError as past:
            raise OverflowError(_past_range(expression, block, past.index)) from None
        if form.kind == "complex":
            target.real, target.imag = values
        else:
            target[...] = encode(values[0], form)
        if len(block.groups) > 1:
            stored[block.groups, block.rows] = target
    return stored.reshape(expression.shape)


def _past_range(expression: Expression, block: Block, index: int) -> str:
    rows = block.rows.stop - block.rows.start
    group, row, column = np.unravel_index(index, (len(block.groups), rows, expression.n))
    flat = (int(block.groups[group]) * expression.m + block.rows.start + int(row)) * expression.n + int(column)
    where = tuple(int(each) for each in np.unravel_index(flat, expression.shape))
    return f"the exact result at {where} is past the range of {expression.form}"


def nearest_part(terms: Terms) -> tuple[Floats, Floats]:
    """The exact values as float64 pairs (nearest, the rest rounded to odd: 0 only where there is none); past float64's range its
    highest value, with a rest of 0."""
    high, low = np.empty(terms.size), np.zeros(terms.size)
    for start in range(0, terms.size, PIECE):
        where = slice(start, start + PIECE)
        exact = combine(terms, where)
        if isinstance(exact, FixedPoint):
            high[where], low[where] = _nearest_fixed(exact)
        else:
            for index, value in enumerate(exact, start):
                high[index] = round_fraction(value, FLOAT64)
                if np.isfinite(high[index]):
                    low[index] = round_fraction(value - Fraction(high[index]), FLOAT64, Rounding.ODD)
    return np.clip(high, -HIGHEST, HIGHEST), low


def _nearest_fixed(exact: FixedPoint) -> tuple[Floats, Floats]:
    high = round_leading(leading(settle(exact)), FLOAT64, Rounding.NEAREST_EVEN, "ieee")
    rest = with_addend(exact, np.where(np.isfinite(high), high, 0.0), -1, 0)
    if rest is None:
        pairs = [(each, round_fraction(each, FLOAT64)) for each in exact.integers().fractions()]
        return high, np.array([round_fraction(x - Fraction(h), FLOAT64, Rounding.ODD) if np.isfinite(h) else 0.0 for x, h in pairs])
    low = round_leading(leading(settle(rest)), FLOAT64, Rounding.ODD, "ieee")
    return high, np.where(np.isfinite(high), low, 0.0)


def nearest(expression: Expression) -> list[tuple[Floats, Floats]]:
    """The exact values [groups, m, n] of each part as pairs; NaN and infinities (as on the page) with a rest of 0."""
    shape = (expression.groups, expression.m, expression.n)
    found = [(np.zeros(shape), np.zeros(shape)) for _ in expression.parts]
    for block, parts in terms_of(expression):
        for (high, low), terms in zip(found, parts, strict=True):
            first, second = nearest_part(terms)
            if terms.special is not None:
                irregular = ~np.isfinite(terms.special)
                first, second = np.where(irregular, terms.special, first), np.where(irregular, 0.0, second)
            size = (len(block.groups), block.rows.stop - block.rows.start, expression.n)
            high[block.groups, block.rows] = first.reshape(size)
            low[block.groups, block.rows] = second.reshape(size)
    return found
