"""Implementations of a dot product to judge tolerances by: random members of the classes that exact/tolerance.py defines, each
step rounded to a compute format, worked out in Fractions.

An implementation is drawn from a random.Random: how it rounds or fuses products, where it applies alpha and adds beta * C, and
the tree of its additions.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from py_gemm.exact.formats import Format

from .numbers import nearest_even


@dataclass(frozen=True)
class Machine:
    """Arithmetic in a format: every operation exact, then rounded once."""

    form: Format

    def round(self, x: Fraction) -> Fraction:
        return Fraction(nearest_even(x, self.form))

    def add(self, x: Fraction, y: Fraction) -> Fraction:
        return self.round(x + y)

    def multiply(self, x: Fraction, y: Fraction) -> Fraction:
        return self.round(x * y)


@dataclass(frozen=True)
class Problem:
    a: list[Fraction]
    b: list[Fraction]
    c: Fraction | None
    alpha: Fraction
    beta: Fraction


# A term on its way: a product that is still to be made (and may be fused), or a sum.
Term = tuple[Fraction, Fraction] | Fraction


def any_order(rng: random.Random, machine: Machine, problem: Problem) -> Fraction:
    """Any tree over any order of the terms, beta * C among them."""
    place = rng.choice(("operand", "product", "partial", "whole"))
    leaves = _leaves(rng, machine, problem, place)
    rng.shuffle(leaves)
    if place in ("partial", "whole") and leaves:
        cuts = 1 if place == "whole" else rng.randrange(1, 4)
        groups = [leaves[index::cuts] for index in range(cuts)]
        leaves = [machine.multiply(problem.alpha, _tree(rng, machine, group)) for group in groups if group]
    leaves += _addend(machine, problem)
    rng.shuffle(leaves)
    return _tree(rng, machine, leaves)


def normal(rng: random.Random, machine: Machine, problem: Problem) -> Fraction:
    """Blocks, lanes and brackets over the terms in index order; beta * C first or last."""
    place = rng.choice(("operand", "product", "block", "whole"))
    leaves = _leaves(rng, machine, problem, place)
    lanes = rng.choice((1, 1, 2, 4, 8))
    rows = -(-len(leaves) // lanes)
    cuts = sorted({0, rows, *(rng.randrange(rows + 1) for _ in range(rng.randrange(3)))}) if leaves else [0]
    totals: list[Term] = []
    for start, stop in pairwise(cuts):
        total = _block(rng, machine, leaves[start * lanes : stop * lanes], lanes)
        totals.append(machine.multiply(problem.alpha, total) if place == "block" else total)
    addend = _addend(machine, problem)
    first = rng.random() < 0.5 and place != "whole"
    if first and addend:
        return _bracket(rng, machine, addend + totals, chain=rng.random() < 0.5)
    total = _bracket(rng, machine, totals, chain=rng.random() < 0.5)
    if place == "whole":
        total = machine.multiply(problem.alpha, total)
    return _bracket(rng, machine, [total, *addend], chain=True)


def _leaves(rng: random.Random, machine: Machine, problem: Problem, place: str) -> list[Term]:
    scale = machine.round(problem.alpha)
    fused = rng.choice((0.0, 0.5, 1.0))
    leaves: list[Term] = []
    for a, b in zip(problem.a, problem.b, strict=True):
        left, right = a, b
        if place == "operand":
            left, right = (machine.multiply(scale, a), b) if rng.random() < 0.5 else (a, machine.multiply(scale, b))
        if place == "product":
            leaves.append(machine.multiply(scale, machine.multiply(left, right)))
        else:
            leaves.append((left, right) if rng.random() < fused else machine.multiply(left, right))
    return leaves


def _addend(machine: Machine, problem: Problem) -> list[Term]:
    return [] if problem.c is None else [machine.multiply(machine.round(problem.beta), problem.c)]


def _value(machine: Machine, term: Term) -> Fraction:
    return machine.multiply(*term) if isinstance(term, tuple) else term


def _sum(machine: Machine, x: Term, y: Term) -> Fraction:
    """One addition, fused where one side is a product still to be made."""
    if isinstance(y, tuple):
        return machine.round(_value(machine, x) + y[0] * y[1])
    if isinstance(x, tuple):
        return machine.round(x[0] * x[1] + y)
    return machine.add(x, y)


def _tree(rng: random.Random, machine: Machine, terms: list[Term]) -> Fraction:
    if not terms:
        return Fraction(0)
    terms = list(terms)
    while len(terms) > 1:
        x = terms.pop(rng.randrange(len(terms)))
        y = terms.pop(rng.randrange(len(terms)))
        terms.append(_sum(machine, x, y))
    return _value(machine, terms[0])


def _bracket(rng: random.Random, machine: Machine, terms: list[Term], *, chain: bool) -> Fraction:
    """The terms in order, in brackets: a chain from the left, or any."""
    if not terms:
        return Fraction(0)
    if len(terms) == 1:
        return _value(machine, terms[0])
    if len(terms) == 2:
        return _sum(machine, terms[0], terms[1])
    cut = len(terms) - 1 if chain else rng.randrange(1, len(terms))
    left = _bracket(rng, machine, terms[:cut], chain=chain)
    if cut == len(terms) - 1:
        return _sum(machine, left, terms[-1])
    return _sum(machine, left, _bracket(rng, machine, terms[cut:], chain=chain))


def _block(rng: random.Random, machine: Machine, terms: list[Term], lanes: int) -> Fraction:
    chain = rng.random() < 0.5
    totals: list[Term] = [_bracket(rng, machine, terms[lane::lanes], chain=chain) for lane in range(lanes)]
    way = rng.choice(("order", "pairs", "halves"))
    if way == "order":
        return _bracket(rng, machine, totals, chain=True)
    while len(totals) > 1:
        half = len(totals) // 2
        if way == "pairs":
            totals = [_sum(machine, totals[2 * index], totals[2 * index + 1]) for index in range(half)]
        else:
            totals = [_sum(machine, totals[index], totals[index + half]) for index in range(half)]
    return _value(machine, totals[0])
