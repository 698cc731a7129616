"""The normal answer: what the reference BLAS computes. Products in index order, each rounded and added to the sum so far, then
fl(fl(alpha * sum) + fl(beta * C)), every step in the compute format to nearest; at last the rounding into the format of the result.

Complex numbers by the schoolbook rule, part by part. Integers have no roundings: their normal answer is the exact one.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .codes import encode, storage_dtype
from .evaluate import Terms, round_part, rounded
from .expression import Expression
from .formats import FLOAT64, Format
from .rounding import Rounding, round_floats, round_fraction
from .special import Coefficient

Parts = list[NDArray[Any]]


def normal_answer(expression: Expression) -> NDArray[Any]:
    """The stored elements, in the shape of the result."""
    form = expression.form
    if form.kind == "int":
        return rounded(expression)
    compute = expression.compute
    stored = np.empty((expression.groups, expression.m, expression.n), storage_dtype(form))
    for groups in expression.group_blocks():
        b = None if expression.b is None else _parts(expression, expression.b.block(groups), compute)
        for rows in expression.row_blocks():
            size = (len(groups), rows.stop - rows.start, expression.n)
            total: Parts | None = None
            with np.errstate(over="ignore", invalid="ignore"):
                if b is not None and expression.a is not None:
                    a = _parts(expression, expression.a.block(groups, rows), compute)
                    sums = _sum_in_order(a[:1] if expression.has_real_left else a, b, size)
                    total = _scaled(expression.alpha, sums, compute)
                if expression.c is not None:
                    addend = _scaled(expression.beta, _parts(expression, expression.c.block(groups, rows), compute), compute)
                    total = addend if total is None else [x + y for x, y in zip(total, addend, strict=True)]
            if total is None:
                total = [np.zeros(size)] * len(expression.parts)
            values = [
                round_floats(each.astype(np.float64), form.part, expression.rounding, expression.overflow)
                for each in total[: len(expression.parts)]
            ]
            stored[groups, rows] = encode(values[0], form) if len(values) == 1 else _complex(values, form)
    return stored.reshape(expression.shape)


def _complex(values: Parts, form: Format) -> NDArray[Any]:
    found = np.empty(values[0].shape, storage_dtype(form))
    found.real, found.imag = values
    return found


def _parts(expression: Expression, values: NDArray[Any], compute: Format) -> Parts:
    """The real and the imaginary part in the compute format (which has the values of every operand)."""
    if not expression.is_complex:
        return [values.astype(compute.name)]
    imaginary = values.imag if np.iscomplexobj(values) else np.zeros_like(values)
    return [values.real.astype(compute.name), imaginary.astype(compute.name)]


def _sum_in_order(a: Parts, b: Parts, size: tuple[int, ...]) -> Parts:
    total: Parts = [np.zeros(size, each.dtype) for each in b]
    for k in range(a[0].shape[2]):
        left, right = [each[:, :, k, None] for each in a], [each[:, k, None, :] for each in b]
        if len(a) == 1:
            products = [left[0] * each for each in right]
        else:
            products = [left[0] * right[0] - left[1] * right[1], left[0] * right[1] + left[1] * right[0]]
        total = products if k == 0 else [x + y for x, y in zip(total, products, strict=True)]
    return total


def _scaled(factor: tuple[Coefficient, Coefficient], values: Parts, compute: Format) -> Parts:
    """fl(factor * values); a complex factor by parts, where a part of zero adds no term."""
    if len(values) == 1:
        return [_times(factor[0], values[0], compute)]
    found = []
    for terms in (((factor[0], values[0]), (-factor[1], values[1])), ((factor[0], values[1]), (factor[1], values[0]))):
        products = [_times(number, each, compute) for number, each in terms if number != 0]
        found.append(products[0] if len(products) == 1 else products[0] + products[1])
    return found


def _times(factor: Coefficient, values: NDArray[Any], compute: Format) -> NDArray[Any]:
    """The exact product with a factor, rounded once to the compute format."""
    if not isinstance(factor, Fraction):
        special: NDArray[Any] = values * values.dtype.type(factor)
        return special
    nearest = round_fraction(factor, compute)
    if np.isfinite(nearest) and Fraction(nearest) == factor:
        product: NDArray[Any] = values * values.dtype.type(nearest)
        return product
    flat = values.astype(np.float64).reshape(-1)
    finite = np.isfinite(flat)
    exact = Terms(flat.size, [], [(factor, np.where(finite, flat, 0.0))], None, lambda zeros, _: np.zeros_like(zeros))
    found = round_part(exact, compute, Rounding.NEAREST_EVEN, "ieee")
    plain = flat * round_fraction(factor, FLOAT64)  # right for infinities, NaNs and the signs of zeros
    found = np.where(finite & (flat != 0), found, plain)
    return found.astype(compute.name).reshape(values.shape)
