"""Problem -> Plan: the shape in which a kernel gets a product, chosen so that the kernel has little to do. Pure.

Merges batch dimensions into each other and into m, and swaps the operands where D is stored by columns. None of this changes a bit
of the result: the order of summation depends on k alone, and a product does not mind which factor comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import FLOAT32, ElementType
from ..epilogue import Activation
from ..problem import Layout, Problem, collapse_batch


@dataclass(frozen=True, slots=True)
class Matrix:
    """One operand of the plan. Strides are bytes; `batch` has one for each batch dimension of the plan."""

    type: ElementType
    row: int
    column: int
    batch: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A batched product ready for a kernel. `k` is 0 where A and B are not read, `c` None where C is not read.

    swapped: the plan's a is the problem's B and the other way round (D and C are transposed). bias_words: 32-bit words at the
    address of the bias: n numbers, or the block of an integer product.
    """

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    a: Matrix
    b: Matrix
    c: Matrix | None
    d: Matrix
    alpha: float
    beta: float
    activation: Activation
    has_bias: bool
    swapped: bool
    bias_words: int = 0


def make_plan(
    problem: Problem,
    activation: Activation = Activation.NONE,
    has_bias: bool = False,
    *,
    block_words: int = 0,
    keep_rows: bool = False,
) -> Plan:
    """The plan of a problem that is not empty. Offsets of the layouts play no part: addresses are those of the first elements.

    block_words: the length of an integer product's block, which takes the place of the bias. keep_rows: rows keep their numbers,
    because something is stated for each of them.
    """
    has_bias = has_bias or block_words > 0
    layouts = [problem.a, problem.b, problem.c or problem.d, problem.d]
    batch, strides = collapse_batch(problem.batch, tuple(layout.batch_strides for layout in layouts))
    a, b, c, d = (_matrix(layout, steps) for layout, steps in zip(layouts, strides, strict=True))
    m, n = problem.m, problem.n
    swapped = not has_bias and d.column != d.type.size and d.row == d.type.size and n > 1
    if swapped:
        m, n = n, m
        a, b, c, d = _transpose(b), _transpose(a), _transpose(c), _transpose(d)
    while batch and b.batch[-1] == 0 and not keep_rows:
        if m == 1:
            a, c, d = (_with_rows_of_batch(matrix) for matrix in (a, c, d))
        elif any(matrix.batch[-1] != m * matrix.row for matrix in (a, c, d)):
            break
        m *= batch[-1]
        batch = batch[:-1]
        a, b, c, d = (_without_last(matrix) for matrix in (a, b, c, d))
    reads_c = problem.c is not None and problem.beta != 0.0
    return Plan(
        m, n, problem.k if problem.reads_operands else 0, batch, a, b, c if reads_c else None, d,
        problem.alpha, problem.beta if reads_c else 0.0, activation, has_bias, swapped, block_words or (n if has_bias else 0),
    )  # fmt: skip


BIAS_TYPE = FLOAT32


def _matrix(layout: Layout, batch_strides: tuple[int, ...]) -> Matrix:
    size = layout.type.size
    return Matrix(layout.type, layout.row_stride * size, layout.column_stride * size, tuple(each * size for each in batch_strides))


def _transpose(matrix: Matrix) -> Matrix:
    return Matrix(matrix.type, matrix.column, matrix.row, matrix.batch)


def _with_rows_of_batch(matrix: Matrix) -> Matrix:
    """A matrix of one row: its row stride means nothing, the batch steps from row to row."""
    return Matrix(matrix.type, matrix.batch[-1], matrix.column, matrix.batch)


def _without_last(matrix: Matrix) -> Matrix:
    return Matrix(matrix.type, matrix.row, matrix.column, matrix.batch[:-1])
