"""Problem -> Plan: the shape in which a kernel gets a product, chosen so that the kernel has little to do. Pure.

Merges batch dimensions into each other and into m, and swaps the operands where D is stored by columns or has few of them. None of
this changes a bit of the result: the order of summation depends on k alone, and a product does not mind which factor comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import FLOAT32, ElementType
from ..epilogue import Activation
from ..problem import Layout, Problem, collapse_batch
from .families import FEW_ROWS_LIMIT, Work


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

    bias_row, bias_column: the strides of the bias, in bytes; zero where there is none, and in the direction it does not depend on.
    swapped: the plan's a is the problem's B and the other way round (D and C are transposed).
    block_words: the 32-bit words of an integer product's block, which lies where the bias of others does; 0: it is a float product.
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
    bias_row: int
    bias_column: int
    swapped: bool
    block_words: int = 0

    @property
    def bias_places(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and byte strides of what lies at the address of the bias."""
        if self.block_words:
            return (self.block_words,), (BIAS_TYPE.size,)
        return (self.m, self.n), (self.bias_row, self.bias_column)

    @property
    def work(self) -> Work:
        """The plan as the choice of a kernel sees it."""
        return Work(self.m, self.n, self.k, self.b.type.size in (self.b.row, self.b.column))


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
    layouts = [problem.a, problem.b, problem.c or problem.d, problem.d]
    batch, strides = collapse_batch(problem.batch, tuple(layout.batch_strides for layout in layouts))
    a, b, c, d = (_matrix(layout, steps) for layout, steps in zip(layouts, strides, strict=True))
    m, n = problem.m, problem.n
    bias_row, bias_column = 0, BIAS_TYPE.size if has_bias else 0
    swapped = d.column != d.type.size and d.row == d.type.size and n > 1 and not block_words
    if swapped:
        m, n = n, m
        bias_row, bias_column = bias_column, bias_row
        a, b, c, d = _transpose(b), _transpose(a), _transpose(c), _transpose(d)
    while batch and b.batch[-1] == 0 and not bias_row and not keep_rows:
        if m == 1:
            a, c, d = (_with_rows_of_batch(matrix) for matrix in (a, c, d))
        elif any(matrix.batch[-1] != m * matrix.row for matrix in (a, c, d)):
            break
        m *= batch[-1]
        batch = batch[:-1]
        a, b, c, d = (_without_last(matrix) for matrix in (a, b, c, d))
    if n <= FEW_ROWS_LIMIT < m and not block_words:
        m, n, swapped = n, m, not swapped
        bias_row, bias_column = bias_column, bias_row
        a, b, c, d = _transpose(b), _transpose(a), _transpose(c), _transpose(d)
    reads_c = problem.c is not None and problem.beta != 0.0
    return Plan(
        m, n, problem.k if problem.reads_operands else 0, batch, a, b, c if reads_c else None, d,
        problem.alpha, problem.beta if reads_c else 0.0, activation, has_bias or block_words > 0,
        bias_row, bias_column, swapped, block_words,
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
