"""Expression: beta * C + alpha * (A @ B), checked and taken apart into what is computed block by block; pure data, no arithmetic.

Batch dimensions are counted as one: product g of `groups`. A complex expression is two real ones, over twice as many terms:
the real part of A @ B is [Ar, -Ai] @ [Br; Bi] and the imaginary part [Ar, Ai] @ [Bi; Br]. An operand that its coefficient of zero
says not to read is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ShapeError
from .arrays import Array, asarray
from .codes import decode
from .fixedpoint import Long
from .formats import Format, compute_format, find_format, overflow_rule, promote_all
from .rounding import Rounding, find_rounding
from .special import Coefficient, coefficient

BLOCK = 1 << 15  # elements of a block of results: their intermediate arrays stay in the cache and far below the operands
FEWEST_ROWS = 64  # of a block of one product, so that a matrix product is worth its packing

ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Operand:
    """Stored elements [*batch, rows, columns] (a view, broadcast to the batch) and their format.

    is_real: whether it has no imaginary part in a complex expression (of A alone; else it has one, of zero where its format is
    real, and zero times infinity is NaN).
    """

    stored: NDArray[Any]
    form: Format
    is_real: bool = False

    def block(self, groups: NDArray[np.intp], rows: slice = slice(None)) -> NDArray[Any]:
        """The values [g, rows, columns] of some products."""
        batch = self.stored.shape[:-2]
        if not batch:
            return decode(self.stored[None, rows], self.form)
        if len(groups) == 1:
            return decode(self.stored[tuple(int(each) for each in np.unravel_index(int(groups[0]), batch))][None, rows], self.form)
        return decode(self.stored[np.unravel_index(groups, batch)][:, rows], self.form)


@dataclass(frozen=True, slots=True)
class Part:
    """The real part of the result, or the imaginary one: the coefficients of the sums and of the parts of C."""

    sums: tuple[Coefficient, ...]
    addends: tuple[Coefficient, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of some products: the results [groups, rows]."""

    groups: NDArray[np.intp]
    rows: slice


@dataclass(frozen=True)
class Expression:
    """alpha, beta: (real, imaginary). a, b: absent where alpha is 0 or there are no terms; c: absent where beta is 0.

    batch, m, n, k: the sizes of what is computed; shape: that of the result, which has the same elements in the same order.
    operands: the format that A, B and C promote to; form: that of the result; compute: that in which implementations compute.
    """

    a: Operand | None
    b: Operand | None
    c: Operand | None
    alpha: tuple[Coefficient, Coefficient]
    beta: tuple[Coefficient, Coefficient]
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    shape: tuple[int, ...]
    operands: Format
    form: Format
    compute: Format
    rounding: Rounding
    overflow: str
    engine: str | None

    @cached_property
    def groups(self) -> int:
        return prod(self.batch)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        (ar, ai), (br, bi) = self.alpha, self.beta
        if not self.is_complex:
            return (Part((ar,), (br,)),)
        both = (Part((ar, -ai), (br, -bi)), Part((ai, ar), (bi, br)))
        return both if self.form.kind == "complex" else both[:1]

    @property
    def is_complex(self) -> bool:
        """Whether the operands are; the result may be the real part alone (the gradient of a real operand)."""
        return self.operands.kind == "complex"

    @property
    def has_products(self) -> bool:
        return self.a is not None

    @property
    def has_real_left(self) -> bool:
        """Whether A is without an imaginary part: the two sums are then A @ Br and A @ Bi."""
        return self.a is not None and self.a.is_real

    def left(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """The left factors of the sums that `parts` speaks of, from values of A."""
        if not self.is_complex:
            return [values]
        if self.has_real_left:
            return [values.real, values.real]
        real, imaginary = values.real, _imaginary(values)
        both = np.concatenate([real, -imaginary], axis=2), np.concatenate([real, imaginary], axis=2)
        return list(both)

    def right(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """The right factors of the sums, from values of B."""
        if not self.is_complex:
            return [values]
        if self.has_real_left:
            return self.addends(values)
        real, imaginary = values.real, _imaginary(values)
        return [np.concatenate([real, imaginary], axis=1), np.concatenate([imaginary, real], axis=1)]

    def addends(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """The real and the imaginary part of C."""
        if not self.is_complex:
            return [values]
        return [np.ascontiguousarray(values.real), np.ascontiguousarray(_imaginary(values))]

    def group_blocks(self) -> list[NDArray[np.intp]]:
        """Products that are computed together: one, or as many small ones as fill a block."""
        size = max(self.m * self.n, (self.m + self.n) * self.k, 1)
        step = max(1, BLOCK // size)
        return [np.arange(start, min(start + step, self.groups)) for start in range(0, self.groups, step)]

    def row_blocks(self) -> list[slice]:
        step = max(FEWEST_ROWS, BLOCK // max(self.n, 1))
        return [slice(start, min(start + step, self.m)) for start in range(0, self.m, step)]


def _imaginary(values: NDArray[Any]) -> NDArray[Any]:
    return values.imag if np.iscomplexobj(values) else np.zeros_like(values)


def make_expression(
    operation: str,
    a: object,
    b: object,
    c: object,
    *,
    alpha: object,
    beta: object,
    reduce_batch: bool,
    dtype: object,
    rounding: object,
    overflow: str | None,
    engine: str | None,
) -> Expression:
    """Check everything and decide the layout. ShapeError, TypeError or ValueError; nothing is computed."""
    left, right = operand_array(operation, "A", a), operand_array(operation, "B", b)
    addend = None if c is None else named_array(operation, "C", c)
    operands = promote_all([each.form for each in (left, right, addend) if each is not None])
    form = operands if dtype is None else find_format(dtype)
    if form.kind != operands.kind:
        raise TypeError(f"{operation}: dtype={form} is of another kind than the operands' {operands}")
    if engine is not None:
        from .engines import find_engine

        find_engine(engine, integers=operands.kind == "int")
    factors = coefficient("alpha", alpha, operands.kind), coefficient("beta", beta, operands.kind)
    batch, shape = result_shapes(operation, left.shape, right.shape, reduce_batch=reduce_batch)
    if addend is not None and not _broadcasts(addend.shape, shape):
        raise ShapeError(f"{operation}: C of shape {addend.shape} does not broadcast to the result's shape {shape}")
    layout = _layout(left, right, batch, reduce_batch=reduce_batch)
    matrix_a, matrix_b, batch = layout
    m, k, n = matrix_a.stored.shape[-2], matrix_a.stored.shape[-1], matrix_b.stored.shape[-1]
    matrix_c = None
    if addend is not None and any(each != 0 for each in factors[1]):
        stored = np.broadcast_to(addend.stored, shape).reshape(*batch, m, n)
        matrix_c = Operand(stored, addend.form)
    reads = any(each != 0 for each in factors[0]) and (k > 0 or not all(isinstance(each, Fraction) for each in factors[0]))
    return Expression(
        matrix_a if reads else None,
        matrix_b if reads else None,
        matrix_c,
        factors[0],
        factors[1],
        batch,
        m,
        n,
        k,
        shape,
        operands,
        form,
        compute_format(operands, form),
        find_rounding(rounding),
        overflow_rule(form.part, overflow),
        engine,
    )


def operand_array(operation: str, name: str, value: object) -> Array:
    """An operand with at least one dimension. ShapeError, TypeError."""
    found = named_array(operation, name, value)
    if found.ndim == 0:
        raise ShapeError(f"{operation}: {name} has no dimension (shape ()); at least one is needed")
    return found


def named_array(operation: str, name: str, value: object) -> Array:
    """`value` as an Array; the TypeError of what holds no numbers says which operand it is."""
    try:
        return asarray(value)
    except TypeError as error:
        raise TypeError(f"{operation}: {name}: {error}") from None


def result_shapes(
    operation: str, a: tuple[int, ...], b: tuple[int, ...], *, reduce_batch: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The batch that A and B broadcast to, and the shape of the result (matmul's rules)."""
    k, other = a[-1], b[-2] if len(b) > 1 else b[0]
    if k != other:
        raise ShapeError(f"{operation}: A has {k} columns and B {other} rows (shapes {a} and {b})")
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ShapeError(f"{operation}: the batch dimensions of A and B do not broadcast (shapes {a} and {b})") from None
    matrix = (a[-2:-1] if len(a) > 1 else ()) + (b[-1:] if len(b) > 1 else ())
    return batch, matrix if reduce_batch else (*batch, *matrix)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(to), strict=False))


def _layout(a: Array, b: Array, batch: tuple[int, ...], *, reduce_batch: bool) -> tuple[Operand, Operand, tuple[int, ...]]:
    """A and B as matrices with the batch that is left: none where it is summed over, or where A's rows can carry it."""
    left = a.stored if a.ndim > 1 else a.stored[None, :]
    right = b.stored if b.ndim > 1 else b.stored[:, None]
    if batch and not reduce_batch and prod(right.shape[:-2]) == 1 and left.shape[:-2] == batch:
        stacked = left.reshape(prod(left.shape[:-1]), left.shape[-1])
        return Operand(stacked, a.form), Operand(right.reshape(right.shape[-2:]), b.form), ()
    left = np.broadcast_to(left, (*batch, *left.shape[-2:]))
    right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    if not reduce_batch or not batch:
        return Operand(left, a.form), Operand(right, b.form), batch
    terms = prod(batch) * left.shape[-1]
    rows = np.moveaxis(left, -2, 0).reshape(left.shape[-2], terms)
    return Operand(rows, a.form), Operand(right.reshape(terms, right.shape[-1]), b.form), ()


def exponents(values: NDArray[Any], axis: int) -> tuple[Long, Long]:
    """For each line along `axis`: one above the exponent of its largest element, and that of its smallest that is not zero."""
    size = np.abs(values)
    largest = np.frexp(size.max(axis=axis, initial=0.0))[1].astype(np.int64)
    smallest = size.min(axis=axis, initial=np.inf, where=size > 0)
    return largest, np.where(np.isinf(smallest), largest, np.frexp(np.where(np.isinf(smallest), 0.0, smallest))[1])
