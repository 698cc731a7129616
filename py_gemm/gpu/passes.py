"""Passes over elements: widening and gathering an operand, rounding a result. Pure.

Where a source or a target passes the binding limit, a pass goes in pieces over windows of it.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import product
from operator import mul

from ..dtypes import FLOAT16, FLOAT32, ElementType
from ..problem import Layout, collapse_batch
from .capabilities import Limits
from .pieces import cuts
from .shaders import ShaderKey
from .steps import Step, bound_windows, dense_layout, linear_grid, most_linear, operand_bytes, turned, words
from .windows import Bound, Reach, largest

# The uniform blocks, in the order of the `Parameters` of each shader.
_CONVERT = struct.Struct("<8I")
_NARROW = struct.Struct("<3I")

# One row of float32 after another, as a target.
_DENSE = Layout(FLOAT32, 0, 1, (0,))


def plan_convert(
    source_layout: Layout, rows: int, columns: int, batch: tuple[int, ...], limits: Limits, *, source: str, target: str = "sum"
) -> list[Step]:
    """Gather a strided operand into dense float32 [batch..., rows, columns]."""
    dense = dense_layout(rows, columns, batch)
    limit = limits.max_storage_buffer_binding_size
    sizes, (strides, strides_target) = collapse_batch(batch, (source_layout.batch_strides, dense.batch_strides))
    reach = Reach("gemm", source, source_layout, operand_bytes(source_layout, rows, columns, batch), limit)
    into = Reach("gemm", target, _DENSE, operand_bytes(dense, rows, columns, batch), limit)
    # The innermost dimension of the batch is dense in the target: one dispatch walks it whole, where all can be bound.
    inner = sizes[-1] if sizes and reach.is_whole and into.is_whole else 1
    outer = sizes[:-1] if inner > 1 else sizes
    steps = []
    for positions in product(*map(range, outer)):
        start = source_layout.offset + sum(map(mul, positions, strides))
        at = sum(map(mul, positions, strides_target))
        step = strides[-1] if inner > 1 else 0
        layout = Layout(source_layout.type, source_layout.row_stride, source_layout.column_stride, (step,), start)
        steps += _gather(replace(reach, layout=layout), rows, columns, into, at, limits, inner)
    return steps


def _gather(source: Reach, rows: int, columns: int, target: Reach, start: int, limits: Limits, products: int = 1) -> list[Step]:
    """Copy what `source` holds, widened, to elements `start` and following of `target`; in pieces where a binding is too small."""
    layout = source.layout

    def fits(high: int, wide: int) -> bool:
        count = products * high * wide
        return count <= most_linear(limits) and source.reaches(products, high, wide) and target.reaches(1, 1, count)

    high, wide = largest(rows, lambda some: fits(some, columns)), columns
    if not high:
        high, wide = 1, max(largest(columns, lambda some: fits(1, some)), 1)
    steps = []
    for (row, some), (column, few) in product(cuts(rows, high), cuts(columns, wide)):
        count = products * some * few
        left = source.bind(layout.offset + row * layout.row_stride + column * layout.column_stride, products, some, few)
        right = target.bind(start + row * columns + column, 1, 1, count)
        a = left.layout
        parameters = _CONVERT.pack(
            *words(count, some, few, a.offset, a.row_stride, a.column_stride, *a.batch_strides, right.layout.offset)
        )
        shader = ShaderKey("convert", (layout.type,))
        grid = linear_grid("gemm", count, limits)
        steps.append(Step(shader, (left.name, right.name), parameters, grid, 0, bound_windows((left, right))))
    return steps


def plan_narrow(elements: int, type_: ElementType, limits: Limits, *, source: str = "sum", target: str = "result") -> list[Step]:
    """Round dense float32 to `type_`, two elements a word."""
    limit = limits.max_storage_buffer_binding_size
    wide = Reach("gemm", source, _DENSE, FLOAT32.size * elements, limit)
    narrow = Reach("gemm", target, replace(_DENSE, type=type_), type_.size * elements, limit)
    steps = []
    most = largest(elements, lambda some: some <= 2 * most_linear(limits) and wide.reaches(1, 1, some), 2)
    # Pieces begin at a whole word of either.
    for start, count in cuts(elements, max(most, 2)):
        left, right = wide.bind(start, 1, 1, count), narrow.bind(start, 1, 1, count)
        parameters = _NARROW.pack(count, left.layout.offset, right.layout.offset // 2)
        grid = linear_grid("gemm", -(-count // 2), limits)
        steps.append(
            Step(ShaderKey("narrow", (type_,)), (left.name, right.name), parameters, grid, 0, bound_windows((left, right)))
        )
    return steps


def plan_panel(
    source: Reach, lanes: int, terms: int, panel: Bound, limits: Limits, *, exact: bool
) -> tuple[list[Step], dict[str, int]]:
    """Gather rows of A, or columns of B, into a panel, and how large it is. What sums exactly reads float16: the panel goes through
    float32, which changes no value."""
    count = lanes * terms
    layout = source.layout
    rows, columns = lanes, terms
    if panel.layout.column_stride != 1:
        rows, columns, layout = terms, lanes, turned(layout)
    wide = "panel" if exact else panel.name
    steps = _gather(replace(source, layout=layout), rows, columns, Reach("gemm", wide, _DENSE, 4 * count, source.limit), 0, limits)
    sizes = {wide: 4 * count}
    if exact:
        steps += plan_narrow(count, FLOAT16, limits, source=wide, target=panel.name)
        sizes[panel.name] = 2 * count
    return steps, sizes
