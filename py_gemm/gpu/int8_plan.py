"""An int8 problem + variant + limits -> its dispatches. Pure: knows no device; buffers are names.

Names: "a", "b" are the operands, "bias" the block of py_gemm/int8_block.py, "sum" the result (int32, or requantized bytes),
"scratch" int32 sums of a k that is cut, "nothing" a buffer that no kernel reads. What passes a limit is cut into pieces; a piece is
the same problem with other offsets, and another first row and column for the vectors of the block. Integers do not mind.
"""

from __future__ import annotations

import struct
from itertools import product

from ..dtypes import INT32, UINT8
from ..errors import ShapeError
from ..problem import Layout, Problem, collapse_batch
from .capabilities import Limits
from .depth import DEEPEST
from .int8_variants import Int8Variant
from .pieces import Piece, batch_pieces, cuts, piece_sizes
from .planner import Step, dense_layout
from .shaders import ShaderKey

# The flags of shaders/int8_operands.wgsl.
A_UNSIGNED, B_UNSIGNED, A_ALONG_K, A_ACROSS, B_ALONG_K, B_ACROSS, ADDS = 1, 2, 4, 8, 16, 32, 64

_PARAMETERS = struct.Struct("<17I")
_WORD = 0xFFFF_FFFF

# Rows and columns of a workgroup of shaders/int8_finish.wgsl.
_FINISH_TILE = (64, 64)


def int8_shaders(problem: Problem, variant: Int8Variant) -> tuple[ShaderKey, ...]:
    """The pipelines of a problem: int32 sums, or requantized elements in packed words, by a pass of their own where k is cut."""
    whole, packed = ShaderKey(f"{variant.kernel}_sum", ()), ShaderKey(f"{variant.kernel}_bytes", ())
    if problem.d.type is INT32:
        return (whole,)
    return (packed,) if problem.k <= DEEPEST else (whole, ShaderKey("int8_finish", ()))


def plan_int8(
    problem: Problem,
    variant: Int8Variant,
    limits: Limits,
    most_flops: int | None = None,
    origin: tuple[int, int] = (0, 0),
    target: Layout | None = None,
) -> tuple[list[Step], int]:
    """The dispatches of a problem that is not empty, and how many bytes of "scratch" they need.

    most_flops: what one dispatch should stay below. origin: the row and column of the block's vectors at which the problem begins.
    target: where D lies, with unit column stride; None: dense. Of a k past DEEPEST one part after the other is added up.
    """
    a, b, d = problem.a, problem.b, target or dense_layout(problem.m, problem.n, problem.batch, problem.d.type)
    reads = problem.k > 0
    idle = (0,) * len(problem.batch)
    batch, strides = collapse_batch(
        problem.batch, (a.batch_strides if reads else idle, b.batch_strides if reads else idle, d.batch_strides)
    )
    axis = max(range(len(batch)), key=lambda each: batch[each], default=0)
    a_batch, b_batch, d_batch = (each[axis] if batch else 0 for each in strides)
    finishes = problem.d.type is not INT32 and problem.k > DEEPEST
    piece = piece_sizes(
        Piece(batch[axis] if batch else 1, problem.m, problem.n, 1),
        problem.k,
        variant.tile,
        most_workgroups=limits.max_compute_workgroups_per_dimension,
        most_elements=limits.max_storage_buffer_binding_size // INT32.size if finishes else None,
        most_flops=most_flops,
    )
    names = ("a" if reads else "nothing", "b" if reads else "nothing", "bias")
    shader, *finish = int8_shaders(problem, variant)
    steps = []
    scratch = 0
    for at_a, at_b, at_d, products in batch_pieces(batch, axis, strides, piece.products):
        for (row, rows), (column, columns) in product(cuts(problem.m, piece.rows), cuts(problem.n, piece.columns)):
            first_a, first_b = a.offset + at_a + row * a.row_stride, b.offset + at_b + column * b.column_stride
            place = (d.offset + at_d + row * d.row_stride + column, d.row_stride, d_batch)
            inside = (0, columns, rows * columns) if finish else place
            begin = (origin[0] + row, origin[1] + column)
            for first, depth in cuts(problem.k, DEEPEST) if reads else ((0, 0),):
                words = (
                    rows, columns, depth, _flags(problem) | (ADDS if first else 0),
                    first_a + first * a.column_stride, a.row_stride, a.column_stride, a_batch,
                    first_b + first * b.row_stride, b.row_stride, b.column_stride, b_batch,
                    *inside, *begin,
                )  # fmt: skip
                grid = _grid(rows, columns, products, variant.tile)
                flops = 2 * rows * columns * depth * products
                steps.append(Step(shader, (*names, "scratch" if finish else "sum"), _pack(words), grid, flops))
            if finish:
                scratch = max(scratch, INT32.size * products * rows * columns)
                words = (rows, columns, 0, 0, 0, columns, 0, rows * columns, 0, 0, 0, 0, *place, *begin)
                grid = _grid(rows, columns, products, _FINISH_TILE)
                steps.append(Step(finish[0], ("scratch", "nothing", "bias", "sum"), _pack(words), grid))
    return steps, scratch


def _pack(words: tuple[int, ...]) -> bytes:
    return _PARAMETERS.pack(*(word & _WORD for word in words))


def _grid(rows: int, columns: int, products: int, tile: tuple[int, int]) -> tuple[int, int, int]:
    return -(-columns // tile[1]), -(-rows // tile[0]), products


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
