"""An int8 problem + variant + limits -> its dispatches. Pure: knows no device; buffers are names.

Names: "a", "b" are the operands, "bias" the block of py_gemm/int8_block.py, "sum" the result (int32, or requantized bytes),
"nothing" a buffer that no kernel reads. What passes a limit is cut into pieces; a piece is the same problem with other offsets, and
another first row and column for the vectors of the block. Integers do not mind.
"""

from __future__ import annotations

import struct
from itertools import product

from ..dtypes import INT32, UINT8
from ..errors import ShapeError
from ..problem import Layout, Problem, collapse_batch
from .capabilities import Limits
from .int8_variants import Int8Variant
from .pieces import Piece, batch_pieces, cuts, piece_sizes
from .planner import Step, dense_layout
from .shaders import ShaderKey

# The flags of shaders/int8_operands.wgsl.
A_UNSIGNED, B_UNSIGNED, A_ALONG_K, A_ACROSS, B_ALONG_K, B_ACROSS = 1, 2, 4, 8, 16, 32

_PARAMETERS = struct.Struct("<17I")
_WORD = 0xFFFF_FFFF


def int8_shader(problem: Problem, variant: Int8Variant) -> ShaderKey:
    """The pipeline of a problem: sums are stored whole, requantized elements in packed words."""
    return ShaderKey(f"{variant.kernel}_{'sum' if problem.d.type is INT32 else 'bytes'}", ())


def plan_int8(
    problem: Problem,
    variant: Int8Variant,
    limits: Limits,
    most_flops: int | None = None,
    origin: tuple[int, int] = (0, 0),
    target: Layout | None = None,
) -> list[Step]:
    """The dispatches of a problem that is not empty. most_flops: what one dispatch should stay below. origin: the row and column of
    the block's vectors at which the problem begins. target: where D lies, with unit column stride; None: dense."""
    a, b, d = problem.a, problem.b, target or dense_layout(problem.m, problem.n, problem.batch, problem.d.type)
    reads = problem.k > 0
    flags = _flags(problem)
    idle = (0,) * len(problem.batch)
    batch, strides = collapse_batch(
        problem.batch, (a.batch_strides if reads else idle, b.batch_strides if reads else idle, d.batch_strides)
    )
    axis = max(range(len(batch)), key=lambda each: batch[each], default=0)
    a_batch, b_batch, d_batch = (each[axis] if batch else 0 for each in strides)
    piece = piece_sizes(
        Piece(batch[axis] if batch else 1, problem.m, problem.n, 1),
        problem.k,
        variant.tile,
        most_workgroups=limits.max_compute_workgroups_per_dimension,
        most_elements=None,
        most_flops=most_flops,
    )
    shader = int8_shader(problem, variant)
    names = ("a" if reads else "nothing", "b" if reads else "nothing", "bias", "sum")
    tile_rows, tile_columns = variant.tile
    steps = []
    for at_a, at_b, at_d, products in batch_pieces(batch, axis, strides, piece.products):
        for (row, rows), (column, columns) in product(cuts(problem.m, piece.rows), cuts(problem.n, piece.columns)):
            words = (
                rows, columns, problem.k, flags,
                a.offset + at_a + row * a.row_stride, a.row_stride, a.column_stride, a_batch,
                b.offset + at_b + column * b.column_stride, b.row_stride, b.column_stride, b_batch,
                d.offset + at_d + row * d.row_stride + column, d.row_stride, d_batch,
                origin[0] + row, origin[1] + column,
            )  # fmt: skip
            parameters = _PARAMETERS.pack(*(word & _WORD for word in words))
            grid = (-(-columns // tile_columns), -(-rows // tile_rows), products)
            steps.append(Step(shader, names, parameters, grid, 2 * rows * columns * problem.k * products))
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
