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
from .packing import Packing


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
    packed_a, packed_b: how an operand is prepacked (None: it lies as its strides say); packs: not a product at all, D becomes the
    packed form of the one operand that is read.
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
    packed_a: Packing | None = None
    packed_b: Packing | None = None
    packs: Packing | None = None

    @property
    def shape_a(self) -> tuple[int, int]:
        """Rows and columns of A as it lies in memory."""
        return (self.packed_a.padded(self.m), self.packed_a.depth(self.k)) if self.packed_a else (self.m, self.k)

    @property
    def shape_b(self) -> tuple[int, int]:
        """Rows and columns of B as it lies in memory."""
        return (self.packed_b.depth(self.k), self.packed_b.padded(self.n)) if self.packed_b else (self.k, self.n)

    @property
    def shape_d(self) -> tuple[int, int]:
        """Rows and columns of what is written."""
        if self.packs is None:
            return self.m, self.n
        depth = self.packs.depth(self.k)
        return (self.packs.padded(self.m), depth) if self.packs.side == "a" else (depth, self.packs.padded(self.n))

    @property
    def bias_places(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and byte strides of what lies at the address of the bias."""
        if self.block_words:
            return (self.block_words,), (BIAS_TYPE.size,)
        return (self.m, self.n), (self.bias_row, self.bias_column)

    @property
    def work(self) -> Work:
        """The plan as the choice of a kernel sees it."""
        unit_stride = not self.packed_b and self.b.type.size in (self.b.row, self.b.column)
        return Work(self.m, self.n, self.k, unit_stride, self.a.type, self.b.type, self.d.type)


def make_plan(
    problem: Problem,
    activation: Activation = Activation.NONE,
    has_bias: bool = False,
    *,
    block_words: int = 0,
    keep_rows: bool = False,
    packed_a: Packing | None = None,
    packed_b: Packing | None = None,
    bias_by_row: bool = False,
) -> Plan:
    """The plan of a problem that is not empty. Offsets of the layouts play no part: addresses are those of the first elements.

    block_words: the length of an integer product's block, which takes the place of the bias; where the operands are swapped, it
    has to be that of the transposed product (int8_block.py). keep_rows: rows keep their numbers,
    because something is stated for each of them. packed_a, packed_b: how an operand is prepacked; it
    keeps its side then. bias_by_row: the bias has an element for each row, not for each column.
    """
    layouts = [problem.a, problem.b, problem.c or problem.d, problem.d]
    batch, strides = collapse_batch(problem.batch, tuple(layout.batch_strides for layout in layouts))
    a, b, c, d = (_matrix(layout, steps) for layout, steps in zip(layouts, strides, strict=True))
    m, n = problem.m, problem.n
    if packed_a:
        a = Matrix(a.type, packed_a.depth(problem.k) * a.type.size, a.type.size, a.batch)
    if packed_b:
        b = Matrix(b.type, packed_b.padded(n) * b.type.size, b.type.size, b.batch)
    step = BIAS_TYPE.size if has_bias else 0
    bias_row, bias_column = (step, 0) if bias_by_row else (0, step)
    may_swap = not (packed_a or packed_b)
    swapped = d.column != d.type.size and d.row == d.type.size and n > 1 and may_swap and not block_words
    if swapped:
        m, n = n, m
        bias_row, bias_column = bias_column, bias_row
        a, b, c, d = _transpose(b), _transpose(a), _transpose(c), _transpose(d)
    while batch and b.batch[-1] == 0 and not (bias_row or keep_rows or packed_a):
        if m == 1:
            a, c, d = (_with_rows_of_batch(matrix) for matrix in (a, c, d))
        elif any(matrix.batch[-1] != m * matrix.row for matrix in (a, c, d)):
            break
        m *= batch[-1]
        batch = batch[:-1]
        a, b, c, d = (_without_last(matrix) for matrix in (a, b, c, d))
    if n <= FEW_ROWS_LIMIT < m and may_swap:
        m, n, swapped = n, m, not swapped
        bias_row, bias_column = bias_column, bias_row
        a, b, c, d = _transpose(b), _transpose(a), _transpose(c), _transpose(d)
    reads_c = problem.c is not None and problem.beta != 0.0
    return Plan(
        m, n, problem.k if problem.reads_operands else 0, batch, a, b, c if reads_c else None, d,
        problem.alpha, problem.beta if reads_c else 0.0, activation, has_bias or block_words > 0,
        bias_row, bias_column, swapped, block_words, packed_a, packed_b,
    )  # fmt: skip


def make_packing_plan(packing: Packing, layout: Layout, lanes: int, k: int, batch: tuple[int, ...]) -> Plan:
    """The plan that packs a batch of operands: `lanes` rows of A (lanes x k) or columns of B (k x lanes), none of them empty.

    The packed operands lie one after the other.
    """
    sizes, (strides,) = collapse_batch(batch, (layout.batch_strides,))
    operand = _matrix(layout, strides)
    m, n = (lanes, 1) if packing.side == "a" else (1, lanes)
    element = packing.element
    width = packing.depth(k) if packing.side == "a" else packing.padded(lanes)
    step = packing.padded(lanes) * packing.depth(k) * element.size
    steps = []
    for size in reversed(sizes):
        steps.append(step)
        step *= size
    d = Matrix(element, width * element.size, element.size, tuple(reversed(steps)))
    return Plan(m, n, k, sizes, operand, operand, None, d, 1.0, 0.0, Activation.NONE, False, 0, 0, False, packs=packing)


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
