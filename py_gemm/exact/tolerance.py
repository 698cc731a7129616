"""How far a correct implementation may be from the exact value: error bounds for classes of implementations, with their proofs.

An implementation computes in the compute format (float64 where float64 takes part, else float32), rounding to nearest; a C of a
wider format is rounded to it first. Let u be the format's relative error, eta its absolute error below the normal range,
t_k = alpha a_k b_k the exact terms, T = sum |t_k|, and n the number of terms, those of beta * C among them. It may round each
product or fuse it into an addition, apply alpha once on every product's way (to an operand, a product, a partial sum or the whole),
round beta * C once and add it first or last, and add in any order of its class.
  Leaves. A term passes at most r roundings besides additions: its product (none where that is exact by format), alpha (none for
    powers of two; one more where the format has not got alpha; one more for a complex alpha). Error: at most r u / (1 - r u) *
    T, and eta for each; where alpha meets an operand, eta times the other operand.
  Additions. The error of one is at most u |exact partial sum + errors so far| <= u (M + D), where M bounds the exact partial
    sums of the class and D is the whole error. There are at most n - 1. So D <= leaves + beta + (n - 1) u M + (n + r) u D,
    hence
        D <= (leaves + beta + (n - 1) u M) / (1 - (n + r) u).
  any_order: any tree over any order. A partial sum is that of a subset, within [-N, P]: M = max(P, N), P the sum of the
    positive terms and -N that of the negative ones.
  normal: the terms in index order, cut into consecutive blocks (or none); in a block that begins at a multiple of L, L lanes (1,
    2, 4, ... 256), each over the terms k = l mod L, in order; lane totals added up in lane order, in neighbouring pairs, or by
    halving (l with l + L/2);
    lanes, blocks and chains may be bracketed in any way that keeps their order. Every partial sum is then that of a consecutive
    range of one residue class, or of a range of whole rows of lanes cut to the first lanes or to an aligned group of 2, 4, 8,
    ... lanes: M is the largest of those, from running sums, and |beta c| more. A complex alpha mixes two sums: then normal is
    any_order.
All is computed in float64 and rounded outward. Nothing here looks at a result; intervals.py compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .expression import Block, Expression, Part
from .fixedpoint import dyadic
from .formats import FLOAT64, Format, holds
from .ozaki import matrix_product
from .rounding import round_fraction
from .special import Floats, without_specials

STANDARDS = ("normal", "any_order")
MOST_LANES = 256  # the widest accumulation in use: 16 vectors of 16 lanes
PIECE = 1 << 18  # terms whose partial sums are looked at at a time: 2 MB
FEW_COLUMNS = 64  # up to here one call of NumPy's cumsum beats a call for every row


@dataclass(frozen=True, slots=True)
class Leaves:
    """What happens to a term before additions, for one part of an expression.

    roundings, beta_roundings: the most relative errors u that a term (of C) meets; product_eta, addend_eta: absolute errors for
    each product, and for each element of C, in eta; scales_operands: whether alpha may meet an operand (then eta times the other
    operand is possible, too).
    """

    roundings: int
    beta_roundings: int
    product_eta: float
    addend_eta: float
    scales_operands: bool
    alpha: float


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the terms of a block of results, one part, all [g, m, n] (or broadcastable): of the magnitudes, of the terms, of
    the magnitudes of beta * C and of the operands, and the largest operand."""

    magnitude: Floats
    signed: Floats
    addend: Floats
    addend_signed: Floats
    operands: Floats
    largest_operand: float
    terms: int
    products: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """error: [groups, m, n], the most by which a correct result differs before the final rounding; overflows: where an intermediate
    value may pass the compute format's range, so that infinities and NaN are correct, too."""

    error: Floats
    overflows: NDArray[np.bool_]


def find_standard(expression: Expression, standard: str) -> str:
    """The class in force: "any_order" for complex alphas. ValueError for an unknown one."""
    if standard not in STANDARDS:
        raise ValueError(f"standard={standard!r} is unknown; known: {', '.join(STANDARDS)}")
    return "any_order" if expression.alpha[1] != 0 else standard


def leaves(expression: Expression, part: Part) -> Leaves:
    """See Leaves; pure."""
    compute = expression.compute
    factors = [each for each in part.sums if isinstance(each, Fraction) and each != 0]
    scales = max((_scaling(each, compute) for each in factors), default=0) + (len(factors) > 1)
    a, b = expression.a, expression.b
    exact_width = exact_range = False
    if a is not None and b is not None:
        bits = a.form.part.significand_bits + b.form.part.significand_bits
        exact_width = scales == 0 and bits <= compute.significand_bits
        lowest = a.form.part.lowest_bit + b.form.part.lowest_bit
        exact_range = exact_width and lowest >= compute.lowest_bit
    alpha = _float(sum(map(abs, factors), Fraction(0)))
    unscaled = all(abs(each) == 1 for each in factors)
    c = expression.c
    betas = [abs(each) for each in part.addends if isinstance(each, Fraction) and each != 0 and c is not None]
    narrowed = c is not None and not holds(compute, c.form.part)
    return Leaves(
        (0 if exact_width else 1) + scales,
        max((_scaling(each, compute) for each in betas), default=0) + narrowed,
        (0.0 if exact_range else alpha) + (0.0 if unscaled else 2.0 * len(factors)),
        sum(each != 1 for each in betas) + (_float(sum(betas, Fraction(0))) if narrowed else 0.0),
        not unscaled,
        alpha,
    )


def _scaling(factor: Fraction, compute: Format) -> int:
    """The roundings that a multiplication by a factor costs."""
    found = dyadic(abs(factor))
    if found is not None and found[0] == 1:
        return 0
    nearest = round_fraction(factor, compute)
    return 1 if isfinite(nearest) and Fraction(nearest) == factor else 2


def totals(part: Part, left: list[Floats], right: list[Floats], addends: list[Floats]) -> Totals:
    """See Totals; the operands are finite."""
    magnitude: Any = 0.0
    signed: Any = 0.0
    operands: Any = 0.0
    largest, terms, products = 0.0, 0, 0
    product = matrix_product(sys.platform)
    with np.errstate(over="ignore", invalid="ignore"):
        for coefficient, a, b in zip(part.sums, left, right, strict=False):
            if coefficient == 0 or not isinstance(coefficient, Fraction):
                continue
            size_a, size_b, factor = np.abs(a), np.abs(b), _float(coefficient)
            magnitude = magnitude + product(size_a, size_b) * abs(factor)
            signed = signed + product(a, b) * factor
            operands = operands + size_a.sum(axis=2)[:, :, None] + size_b.sum(axis=1)[:, None, :]
            largest = max(largest, float(size_a.max(initial=0.0)), float(size_b.max(initial=0.0)))
            terms += a.shape[2]
            products += a.shape[2]
        addend: Any = 0.0
        addend_signed: Any = 0.0
        for coefficient, c in zip(part.addends, addends, strict=False):
            if coefficient == 0 or not isinstance(coefficient, Fraction):
                continue
            addend = addend + np.abs(c) * abs(_float(coefficient))
            addend_signed = addend_signed + c * _float(coefficient)
            terms += 1
    return Totals(magnitude, signed, addend, addend_signed, operands, largest, terms, products)


def _float(factor: Fraction) -> float:
    return round_fraction(factor, FLOAT64)


def subset_bound(sums: Totals) -> Floats:
    """M of any_order: max(P, N), and what float64 may have lost of it."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = sums.magnitude + sums.addend
        found: Floats = (size + np.abs(sums.signed + sums.addend_signed)) / 2 + size * ((sums.products + 8) * 2.0**-52)
    return found


def least_bound(sums: Totals) -> Floats:
    """A number that M of normal cannot be below: the whole sum is a partial sum, and so is the largest term."""
    with np.errstate(invalid="ignore", over="ignore"):
        slack = sums.magnitude * ((sums.products + 8) * 2.0**-52)
        found: Floats = np.maximum(np.abs(sums.signed) - slack, (sums.magnitude - slack) / max(sums.products, 1)) + sums.addend
    return found


def range_bound(terms: Floats) -> Floats:
    """M of normal for terms [k, n] in index order: see the head of this file. [n]"""
    k, count = terms.shape
    largest = np.zeros(count)
    lanes = 1
    while lanes <= min(MOST_LANES, k):
        rows = -(-k // lanes)
        padded = terms
        if rows * lanes != k:
            padded = np.zeros((rows * lanes, count))
            padded[:k] = terms
        running = _running_sums(padded.reshape(rows, lanes, count))
        np.maximum(largest, _widest_range(running).max(axis=0), out=largest)
        if lanes > 2:
            first_lanes = running[:, 0].copy()
            for lane in range(1, lanes):
                first_lanes += running[:, lane]
                np.maximum(largest, _widest_range(first_lanes), out=largest)
        while running.shape[1] > 2:
            running = running[:, ::2] + running[:, 1::2]
            np.maximum(largest, _widest_range(running).max(axis=0), out=largest)
        lanes *= 2
    slack: Floats = np.abs(terms).sum(axis=0) * ((k + 8) * 2.0**-51)
    return largest + slack


def _running_sums(values: Floats) -> Floats:
    """Sums of the first rows [rows, lanes, n], of every number of them."""
    if values[0].size <= FEW_COLUMNS:
        return np.cumsum(values, axis=0)
    found = np.empty(values.shape)
    found[0] = values[0]
    for row in range(1, len(values)):
        np.add(found[row - 1], values[row], out=found[row])
    return found


def _widest_range(running: Floats) -> Floats:
    """The largest sum over consecutive rows, from running sums [rows, ...]."""
    high = np.maximum(running.max(axis=0), 0.0)
    low = np.minimum(running.min(axis=0), 0.0)
    found: Floats = high - low
    return found


def error_bound(expression: Expression, leaf: Leaves, sums: Totals, partial: Floats) -> Bounds:
    """The formula at the head of this file, rounded outward. partial: M, [g, m, n]."""
    compute = expression.compute
    unit = float(compute.unit)
    eta = max(float(compute.half_subnormal), 5e-324)
    denominator = 1.0 - (sums.terms + leaf.roundings + 2) * unit
    if denominator <= 0:
        return Bounds(np.full(np.shape(partial), np.inf), np.ones(np.shape(partial), np.bool_))
    with np.errstate(over="ignore", invalid="ignore"):
        error = sums.magnitude * (leaf.roundings * unit / (1.0 - leaf.roundings * unit))
        error = error + sums.addend * (leaf.beta_roundings * unit / (1.0 - leaf.beta_roundings * unit))
        absolute = leaf.product_eta * sums.products + leaf.addend_eta
        error = error + absolute * eta
        if leaf.scales_operands:
            error = error + sums.operands * (2 * eta)
        error = error + partial * (max(sums.terms - 1, 0) * unit)
        error = error / denominator
        outward = 1.0 + (sums.products + 64) * 2.0**-50
        error = np.where(error > 0, error * outward + 5e-324, 0.0)
        reach = (partial + error) * max(1.0, 1.0 / leaf.alpha if leaf.alpha else 1.0)
        overflows = ~(reach <= float(compute.highest))
        if leaf.alpha * sums.largest_operand > float(compute.highest):
            overflows |= True
    return Bounds(np.where(np.isnan(error), np.inf, error), overflows)


def blocks(expression: Expression) -> Iterator[tuple[Block, list[Floats], list[Floats], list[Floats]]]:
    """(block, left, right, addends): the finite operands of every block of results, with their parts as the sums take them."""
    for groups in expression.group_blocks():
        right = [] if expression.b is None else [_finite(each) for each in expression.right(expression.b.block(groups))]
        for rows in expression.row_blocks():
            left = [] if expression.a is None else [_finite(each) for each in expression.left(expression.a.block(groups, rows))]
            c = [] if expression.c is None else expression.addends(expression.c.block(groups, rows))
            addends = [_finite(each) for each in c]
            yield Block(groups, rows), left, right, addends


def _finite(values: Floats) -> Floats:
    return without_specials(values)[0]


def bounds(expression: Expression, standard: str, *, only: list[NDArray[np.bool_]] | None = None) -> list[Bounds]:
    """The bounds of every part of a float or complex expression.

    only: for each part, the elements [groups, m, n] for which the bounds of "normal" are wanted in full; the others get bounds
    that may be smaller, for next to no work. A result that those cover is covered.
    """
    standard = find_standard(expression, standard)
    shape = (expression.groups, expression.m, expression.n)
    found = [Bounds(np.zeros(shape), np.zeros(shape, np.bool_)) for _ in expression.parts]
    for block, left, right, addends in blocks(expression):
        size = (len(block.groups), block.rows.stop - block.rows.start, expression.n)
        place = (block.groups, block.rows)
        for index, part in enumerate(expression.parts):
            leaf, sums = leaves(expression, part), totals(part, left, right, addends)
            if standard == "any_order":
                partial = np.broadcast_to(subset_bound(sums), size)
            else:
                partial = np.array(np.broadcast_to(least_bound(sums), size))
                missing = np.ones(size, np.bool_) if only is None else only[index][place]
                _complete(expression, part, sums, left, right, partial, missing)
                np.minimum(partial, subset_bound(sums), out=partial)  # which bounds every partial sum, those of normal, too
            bound = error_bound(expression, leaf, sums, partial)
            found[index].error[place], found[index].overflows[place] = bound.error, bound.overflows
    return found


def _complete(
    expression: Expression,
    part: Part,
    sums: Totals,
    left: list[Floats],
    right: list[Floats],
    partial: Floats,
    missing: NDArray[np.bool_],
) -> None:
    """Put M of normal, with |beta c|, in the place of its lower bound where it is missing."""
    used = [(a, b, each) for a, b, each in zip(left, right, part.sums, strict=False) if each != 0 and isinstance(each, Fraction)]
    if not used:
        return
    addend = np.broadcast_to(sums.addend, partial.shape)
    step = max(1, PIECE // max(sums.products, 1))
    for group in np.flatnonzero(missing.any(axis=(1, 2))).tolist():
        turned = [a[group].T for a, _, _ in used]
        rows, columns = np.nonzero(missing[group])
        for start in range(0, len(rows), step):
            row, column = rows[start : start + step], columns[start : start + step]
            with np.errstate(over="ignore", invalid="ignore"):
                terms = [a[:, row] * b[group][:, column] * _float(factor) for a, (_, b, factor) in zip(turned, used, strict=True)]
                found = range_bound(_in_order(np.concatenate(terms), expression))
            partial[group, row, column] = found + addend[group, row, column]


def _in_order(terms: Floats, expression: Expression) -> Floats:
    """Complex terms with the two products of each k side by side: sums of them together and apart (lanes) are then both normal."""
    if not expression.is_complex or expression.has_real_left:
        return terms
    return terms.reshape(2, -1, terms.shape[1]).transpose(1, 0, 2).reshape(-1, terms.shape[1])
