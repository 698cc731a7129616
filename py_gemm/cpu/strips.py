"""Cuts a plan into strips that run side by side, one a thread, and says how many are worth it. Pure.

         n                        a strip is a plan of its own: some rows, some columns or some products of the batch,
   +-----------+                  and how far from the operands' first elements its own begin
m  | strip 0   |
   |-----------|                  The order of summation depends on k alone, and every strip keeps the row and the blocking
   | strip 1   |                  that the whole plan has: so no bit of a result tells on how many threads it was computed.
   +-----------+
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

from .families import Row
from .plan import Matrix, Plan

# Columns are cut where a cache line of D begins, if D does (float32): two threads then write no line in common.
COLUMNS_OF_A_LINE = 16

# Strips that would take more than this part of the time of one thread are not worth it.
WORTH_IT = 0.75

# A batch this many times as long as there are strips is cut evenly enough whatever its length.
LONG_BATCH = 4


@dataclass(frozen=True, slots=True)
class Strip:
    """plan: of the strip. row, column: its place in the whole product. a, b, c, d, bias: byte offsets of its first elements.

    An integer product's block lies whole at the address of the bias: `row` and `column` say where the strip is in its vectors.
    """

    plan: Plan
    row: int = 0
    column: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    bias: int = 0


def multiply_adds(plan: Plan) -> int:
    """How many multiply-adds the plan is; 0 where it packs an operand or reads none."""
    return 0 if plan.packs else plan.m * plan.n * plan.k * prod(plan.batch)


def count_threads(work: int, limit: int, threshold: int, per_thread: int) -> int:
    """For a product of `work` multiply-adds: 1 below `threshold`, else at most `limit`, each with `per_thread` or more."""
    if limit < 2 or work < max(threshold, 1):
        return 1
    return max(1, min(limit, work // max(per_thread, 1)))


def split(plan: Plan, row: Row, shares: tuple[float, ...]) -> tuple[Strip, ...]:
    """The plan in at most as many strips as there are `shares` (their sizes, in the ratio of these); fewer where it is too small.

    A batch is cut into products where that comes out even; else the longer of m and n is cut, at the edges of tiles, so that
    what every strip packs for itself is the smaller operand. A prepacked operand is never cut.
    """
    if plan.packs or len(shares) < 2:
        return (Strip(plan),)
    count = len(shares)
    for index, size in enumerate(plan.batch):
        if size >= LONG_BATCH * count or size % count == 0:
            return tuple(_products(plan, index, begin, end) for begin, end in _cut(size, 1, shares))
    rows = (plan.m, row.rows) if plan.packed_a is None else (1, 1)
    columns = (plan.n, max(row.columns, COLUMNS_OF_A_LINE)) if plan.packed_b is None else (1, 1)
    if rows[0] > rows[1] and (rows[0] >= columns[0] or columns[0] <= columns[1]):
        return tuple(_rows(plan, begin, end) for begin, end in _cut(*rows, shares))
    if columns[0] > columns[1]:
        return tuple(_columns(plan, begin, end) for begin, end in _cut(*columns, shares))
    if plan.batch:
        index = plan.batch.index(max(plan.batch))
        return tuple(_products(plan, index, begin, end) for begin, end in _cut(plan.batch[index], 1, shares))
    return (Strip(plan),)


def _cut(size: int, unit: int, shares: tuple[float, ...]) -> list[tuple[int, int]]:
    """0 .. size in pieces that end at multiples of `unit` (the last one at `size`): one a share, while units last."""
    units, total = -(-size // unit), sum(shares)
    pieces: list[tuple[int, int]] = []
    begin = 0
    for index, part in enumerate(accumulate(shares)):
        most = units - (len(shares) - 1 - index)
        end = min(units, max(begin + 1, min(most, round(units * part / total))))
        if begin < end:
            pieces.append((begin * unit, min(size, end * unit)))
        begin = end
    return pieces


def _rows(plan: Plan, begin: int, end: int) -> Strip:
    part = replace(plan, m=end - begin)
    c = begin * plan.c.row if plan.c else 0
    return Strip(part, row=begin, a=begin * plan.a.row, c=c, d=begin * plan.d.row, bias=begin * plan.bias_row)


def _columns(plan: Plan, begin: int, end: int) -> Strip:
    part = replace(plan, n=end - begin)
    c = begin * plan.c.column if plan.c else 0
    return Strip(part, column=begin, b=begin * plan.b.column, c=c, d=begin * plan.d.column, bias=begin * plan.bias_column)


def _products(plan: Plan, index: int, begin: int, end: int) -> Strip:
    part = replace(plan, batch=(*plan.batch[:index], end - begin, *plan.batch[index + 1 :]))

    def offset(matrix: Matrix | None) -> int:
        return begin * matrix.batch[index] if matrix else 0

    return Strip(part, a=offset(plan.a), b=offset(plan.b), c=offset(plan.c), d=offset(plan.d))
