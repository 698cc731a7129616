"""Operands that pass the binding limit: which part of its buffer a dispatch binds, and how large a piece may then be. Pure.

A window is (first byte, bytes), begins at a multiple of 256 bytes and holds all that one dispatch touches. A piece is cut so small
that every operand has such a window; k is cut only at whole units of the order of summation, so that no bit changes. Where the
elements of a piece lie so far apart that no window holds them, they are gathered first, into a dense panel of float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ..dtypes import FLOAT32
from ..errors import UnsupportedError
from ..problem import Layout

Window = tuple[int, int]

# WebGPU guarantees that a binding may begin at any multiple of this.
ALIGNMENT = 256
# The longest load of a kernel: a window ends behind a whole one.
_LOAD = 16


def largest(most: int, fits: Callable[[int], bool], step: int = 1) -> int:
    """`most` where it fits, else the largest multiple of `step` below it that does, else 0. What fits, fits smaller too."""
    if fits(most):
        return most
    low, high = 0, -(-most // step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle)
    return low * step


@dataclass(frozen=True, slots=True)
class Bound:
    """An operand as one dispatch sees it: the buffer's name, the window of it (None: all), and the layout inside."""

    name: str
    layout: Layout
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """An operand against the binding limit.

    layout: its rows are what is cut into pieces (the rows of A and of D, the columns of B), its columns what runs along them (k, or
    the columns of D); of the batch the axis that goes into a grid. nbytes: how far it reaches into its buffer. gathers: whether
    what no window holds may be gathered.
    """

    operation: str
    name: str
    layout: Layout
    nbytes: int
    limit: int
    gathers: bool = False

    @property
    def is_whole(self) -> bool:
        return self.nbytes <= self.limit

    @property
    def panel(self) -> str:
        """The buffer of what is gathered."""
        return f"panel_{self.name}"

    def reaches(self, products: int, rows: int, columns: int) -> bool:
        """Whether a window holds a piece of so many, wherever it begins."""
        low, high = self.layout.extent(rows, columns, (products,))
        return self.is_whole or (high - low) * self.layout.type.size + ALIGNMENT + _LOAD <= self.limit

    def takes(self, products: int, rows: int, columns: int) -> bool:
        """Whether a dispatch can be given such a piece, gathered or not."""
        dense = products == 1 and rows * columns * FLOAT32.size <= self.limit
        return (self.gathers and dense) or self.reaches(products, rows, columns)

    def bind(self, offset: int, products: int, rows: int, columns: int) -> Bound:
        """The piece that begins at element `offset`. Under the name of the panel it is for the caller to gather.

        UnsupportedError with the figures where there is no such piece.
        """
        piece = replace(self.layout, offset=offset)
        if self.is_whole:
            return Bound(self.name, piece)
        if not self.reaches(products, rows, columns) and self.takes(products, rows, columns):
            along_columns = abs(piece.column_stride) <= abs(piece.row_stride)
            return Bound(self.panel, Layout(FLOAT32, *((columns, 1) if along_columns else (1, rows)), (0,)))
        size = piece.type.size
        low, high = piece.extent(rows, columns, (products,))
        start = low * size // ALIGNMENT * ALIGNMENT
        nbytes = min(-(-high * size // _LOAD) * _LOAD, -(-self.nbytes // 4) * 4) - start
        if nbytes > self.limit:
            raise self.refusal(nbytes, f"{rows:,} by {columns:,} elements that cannot be cut")
        return Bound(self.name, replace(piece, offset=offset - start // size), (start, nbytes))

    def refusal(self, nbytes: int, what: str) -> UnsupportedError:
        """What is said of an operand that cannot be cut small enough."""
        return UnsupportedError(
            f"{self.operation}: operand {self.name} needs {nbytes:,} bytes for {what}, one binding of the device holds "
            f"{self.limit:,} (maxStorageBufferBindingSize)"
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """The most that one dispatch is given: products, rows and columns of D, and terms of k."""

    products: int
    rows: int
    columns: int
    terms: int


def cut_to_bindings(a: Reach, b: Reach, d: Reach, whole: Cut, tile: tuple[int, int], unit: int) -> Cut:
    """The largest piece all of whose operands can be bound; fewer products first, then fewer rows and columns, or fewer terms of k,
    in multiples of `unit`. UnsupportedError with the figures where a binding holds not even one unit of one row or column."""
    m, n, k = whole.rows, whole.columns, whole.terms
    products = max(
        largest(whole.products, lambda some: a.reaches(some, m, k) and b.reaches(some, n, k) and d.reaches(some, m, n)), 1
    )
    rows, columns = largest(m, lambda some: d.reaches(products, some, n)), n
    if not rows:
        rows, columns = 1, max(largest(n, lambda some: d.reaches(products, 1, some)), 1)
    rows, terms = _cut_side(a, products, rows, k, tile[0], unit)
    columns, terms = _cut_side(b, products, columns, terms, tile[1], unit)
    return Cut(products, rows, columns, terms)


def _cut_side(side: Reach, products: int, lanes: int, k: int, tile: int, unit: int) -> tuple[int, int]:
    """How many rows of A, or columns of B, and how many terms of each.

    Where neighbours along k lie farthest apart, all of them and fewer terms; else whole sums of fewer of them, down to a quarter of
    a tile, and only then fewer terms.
    """
    far_along = abs(side.layout.column_stride) > abs(side.layout.row_stride)
    if far_along and (terms := largest(k, lambda some: side.reaches(products, lanes, some), unit)):
        return lanes, terms
    few = max(min(tile // 4, lanes), 1)
    for step in (tile, few):
        if found := largest(lanes, lambda some: side.takes(products, some, k), step):
            return found, k
    while few:
        if terms := largest(k, partial(side.takes, products, few), unit):
            return few, terms
        few //= 2
    least = min(unit, k)
    size = FLOAT32.size if side.gathers else side.layout.type.size
    raise side.refusal(least * size, f"the {least:,} terms that the order of summation keeps together")
