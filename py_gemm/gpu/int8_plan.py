"""An int8 problem + variant + limits -> its dispatches. Pure: knows no device; buffers are names.

Names: "a", "b" are the operands, "bias" the block of py_gemm/int8_block.py, "sum" the result (int32, or requantized bytes),
"scratch" int32 sums of a k that is cut, "nothing" a buffer that no kernel reads. What passes a limit is cut into pieces; a piece is
the same problem with other offsets, and another first row and column for the vectors of the block. Integers do not mind.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import product

from ..dtypes import INT32, UINT8
from ..errors import ShapeError
from ..problem import Layout, Problem, collapse_batch
from .capabilities import Limits
from .depth import DEEPEST
from .int8_variants import Int8Variant
from .pieces import Piece, batch_pieces, cuts, piece_sizes
from .shaders import ShaderKey
from .steps import Step, bound_windows, dense_layout, operand_bytes, turned
from .windows import Bound, Cut, Reach, cut_to_bindings

# The flags of shaders/int8_operands.wgsl.
A_UNSIGNED, B_UNSIGNED, A_ALONG_K, A_ACROSS, B_ALONG_K, B_ACROSS, ADDS = 1, 2, 4, 8, 16, 32, 64

_PARAMETERS = struct.Struct("<17I")
_WORD = 0xFFFF_FFFF

# Rows and columns of a workgroup of shaders/int8_finish.wgsl.
_FINISH_TILE = (64, 64)


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
    target: where D lies, with unit column stride; None: dense. Of a k past DEEPEST, or past what a binding holds, one part after
    the other is added up. UnsupportedError for what no binding of the device can hold.
    """
    a, b, d = problem.a, problem.b, target or dense_layout(problem.m, problem.n, problem.batch, problem.d.type)
    reads = problem.k > 0
    idle = (0,) * len(problem.batch)
    batch, strides = collapse_batch(
        problem.batch, (a.batch_strides if reads else idle, b.batch_strides if reads else idle, d.batch_strides)
    )
    axis = max(range(len(batch)), key=lambda each: batch[each], default=0)
    along = tuple(each[axis] if batch else 0 for each in strides)
    limit = limits.max_storage_buffer_binding_size

    def reach(name: str, layout: Layout, rows: int, columns: int, batch_stride: int) -> Reach:
        nbytes = operand_bytes(layout, rows, columns, problem.batch) if rows and columns else 0
        return Reach("int8_gemm", name, replace(layout, batch_strides=(batch_stride,), offset=0), nbytes, limit)

    side_a = reach("a", a, problem.m, problem.k, along[0])
    side_b = reach("b", turned(b), problem.n, problem.k, along[1])
    side_d = reach("sum", d, problem.m, problem.n, along[2])
    most = Cut(batch[axis] if batch else 1, problem.m, problem.n, problem.k)
    if not (side_a.is_whole and side_b.is_whole and side_d.is_whole):
        most = cut_to_bindings(side_a, side_b, side_d, most, variant.tile, 1)
    part = min(DEEPEST, most.terms)
    finishes = problem.d.type is not INT32 and problem.k > part
    piece = piece_sizes(
        Piece(most.products, most.rows, most.columns, 1),
        problem.k,
        variant.tile,
        most_workgroups=limits.max_compute_workgroups_per_dimension,
        most_elements=limit // INT32.size if finishes else None,
        most_flops=most_flops,
    )
    # int32 sums, or requantized elements in packed words; those by a pass of their own where k is cut.
    shader = ShaderKey(f"{variant.kernel}_{'sum' if finishes or problem.d.type is INT32 else 'bytes'}", ())
    block, nothing = (Bound(name, Layout(INT32, 0, 0, (0,))) for name in ("bias", "nothing"))
    steps = []
    scratch = 0
    for at_a, at_b, at_d, products in batch_pieces(batch, axis, strides, piece.products):
        for (row, rows), (column, columns) in product(cuts(problem.m, piece.rows), cuts(problem.n, piece.columns)):
            first_a, first_b = a.offset + at_a + row * a.row_stride, b.offset + at_b + column * b.column_stride
            place = side_d.bind(d.offset + at_d + row * d.row_stride + column, products, rows, columns)
            unfinished = Bound("scratch", Layout(INT32, columns, 1, (rows * columns,)))
            inside = unfinished if finishes else place
            begin = (origin[0] + row, origin[1] + column)
            for first, depth in cuts(problem.k, part) if reads else ((0, 0),):
                left, right = nothing, nothing
                if reads:
                    left = side_a.bind(first_a + first * a.column_stride, products, rows, depth)
                    right = side_b.bind(first_b + first * b.row_stride, products, columns, depth)
                head = (rows, columns, depth, _flags(problem) | (ADDS if first else 0))
                flops = 2 * rows * columns * depth * products
                grid = _grid(rows, columns, products, variant.tile)
                steps.append(_step(shader, head, (left, right, block, inside), begin, grid, flops))
            if finishes:
                scratch = max(scratch, INT32.size * products * rows * columns)
                grid = _grid(rows, columns, products, _FINISH_TILE)
                bound = (unfinished, nothing, block, place)
                steps.append(_step(ShaderKey("int8_finish", ()), (rows, columns, 0, 0), bound, begin, grid, 0))
    return steps, scratch


def _step(
    shader: ShaderKey,
    head: tuple[int, int, int, int],
    bound: tuple[Bound, Bound, Bound, Bound],
    begin: tuple[int, int],
    grid: tuple[int, int, int],
    flops: int,
) -> Step:
    """head: rows, columns, terms of k and flags. bound: A, B by columns, the block and D."""
    a, b, d = bound[0].layout, turned(bound[1].layout), bound[3].layout
    words = (
        *head,
        a.offset, a.row_stride, a.column_stride, *a.batch_strides,
        b.offset, b.row_stride, b.column_stride, *b.batch_strides,
        d.offset, d.row_stride, *d.batch_strides, *begin,
    )  # fmt: skip
    return Step(shader, tuple(each.name for each in bound), _pack(words), grid, flops, bound_windows(bound))


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
