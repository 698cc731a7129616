"""An int8 problem + variant + limits -> its dispatches. Pure: knows no device; the buffers are always a, b, the block, d.

A grid that passes the limit of an axis is cut into pieces; a piece is the same problem with other offsets and another first row and
column for the vectors of the block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..dtypes import INT32, UINT8
from ..errors import ShapeError
from ..problem import Layout, Problem, collapse_batch
from .capabilities import Limits
from .int8_variants import Int8Variant
from .shaders import ShaderKey

# The flags of shaders/int8_operands.wgsl.
A_UNSIGNED, B_UNSIGNED, A_ALONG_K, A_ACROSS, B_ALONG_K, B_ACROSS = 1, 2, 4, 8, 16, 32

_PARAMETERS = struct.Struct("<17I")
_WORD = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Int8Step:
    """One dispatch."""

    shader: ShaderKey
    parameters: bytes
    workgroups: tuple[int, int, int]


def int8_shader(problem: Problem, variant: Int8Variant) -> ShaderKey:
    """The pipeline of a problem: sums are stored whole, requantized elements in packed words."""
    return ShaderKey(f"{variant.kernel}_{'sum' if problem.d.type is INT32 else 'bytes'}", ())


def plan_int8(problem: Problem, variant: Int8Variant, limits: Limits) -> list[Int8Step]:
    """The dispatches of a problem that is not empty; D has unit column stride."""
    a, b, d = problem.a, problem.b, problem.d
    reads = problem.k > 0
    flags = _flags(problem)
    idle = (0,) * len(problem.batch)
    batch, (strides_a, strides_b, strides_d) = collapse_batch(
        problem.batch, (a.batch_strides if reads else idle, b.batch_strides if reads else idle, d.batch_strides)
    )
    axis = max(range(len(batch)), key=lambda each: batch[each], default=0)
    steps_of_batch = [strides[axis] if batch else 0 for strides in (strides_a, strides_b, strides_d)]
    shader = int8_shader(problem, variant)
    tile_rows, tile_columns = variant.tile
    most = limits.max_compute_workgroups_per_dimension
    steps = []
    for positions, count in _products(batch, axis, most):
        at_a, at_b, at_d = (
            sum(position * stride for position, stride in zip(positions, strides, strict=True))
            for strides in (strides_a, strides_b, strides_d)
        )
        for (row, rows), (column, columns) in product(_cuts(problem.m, most * tile_rows), _cuts(problem.n, most * tile_columns)):
            words = (
                rows, columns, problem.k, flags,
                a.offset + at_a + row * a.row_stride, a.row_stride, a.column_stride, steps_of_batch[0],
                b.offset + at_b + column * b.column_stride, b.row_stride, b.column_stride, steps_of_batch[1],
                d.offset + at_d + row * d.row_stride + column, d.row_stride, steps_of_batch[2],
                row, column,
            )  # fmt: skip
            parameters = _PARAMETERS.pack(*(word & _WORD for word in words))
            steps.append(Int8Step(shader, parameters, (-(-columns // tile_columns), -(-rows // tile_rows), count)))
    return steps


def require_one_int8_grid(operation: str, problem: Problem, variant: Int8Variant, limits: Limits) -> None:
    """ShapeError where the product would need more workgroups along an axis than one dispatch may have."""
    most = limits.max_compute_workgroups_per_dimension
    sizes = (("m", problem.m, variant.tile[0]), ("n", problem.n, variant.tile[1]), ("batch", problem.products, 1))
    for name, size, tile in sizes:
        groups = -(-size // tile)
        if groups > most:
            raise ShapeError(
                f"{operation}: {name} = {size:,} needs {groups:,} workgroups along its axis, the device allows {most:,}"
            )


def is_by_rows(layout: Layout) -> bool:
    """Whether neighbours in B's memory are columns."""
    return layout.column_stride == 1


def _flags(problem: Problem) -> int:
    a, b = problem.a, problem.b
    flags = (A_UNSIGNED if a.type is UINT8 else 0) | (B_UNSIGNED if b.type is UINT8 else 0)
    if a.column_stride == 1:
        flags |= A_ALONG_K
    elif a.row_stride == 1:
        flags |= A_ACROSS
    if b.column_stride == 1:
        flags |= B_ACROSS
    elif b.row_stride == 1:
        flags |= B_ALONG_K
    return flags


def _products(batch: tuple[int, ...], axis: int, most: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """(position of the first product, products) of the dispatches over a batch: its dimension `axis` goes into the grid, `most`
    products at a time, the others become dispatches of their own."""
    if not batch:
        yield (), 1
        return
    others = [range(1) if each == axis else range(size) for each, size in enumerate(batch)]
    for positions in product(*others):
        for start, count in _cuts(batch[axis], most):
            yield (*positions[:axis], start, *positions[axis + 1 :]), count


def _cuts(size: int, most: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size, most):
        yield start, min(most, size - start)
