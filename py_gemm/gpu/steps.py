"""What plans are made of: steps, dense layouts, grids, and the checks against a device's limits. Pure.

A step names its buffers (planner.py says which there are); what it binds of them may be a window (windows.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..dtypes import FLOAT32, ElementType
from ..errors import ShapeError, UnsupportedError
from ..problem import Layout, Problem
from .capabilities import Limits
from .shaders import ShaderKey
from .variants import Variant
from .windows import Bound, Window

# Invocations of one workgroup of the passes over elements.
LINEAR = 256


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch, its buffers by name. `flops`: 2 m n k of what it multiplies, 0 for passes over elements. windows: which part of
    each buffer is bound (None: all of it); empty where every buffer is bound whole."""

    shader: ShaderKey
    buffers: tuple[str, ...]
    parameters: bytes
    workgroups: tuple[int, int, int]
    flops: int = 0
    windows: tuple[Window | None, ...] = ()


def dense_layout(rows: int, columns: int, batch: tuple[int, ...], type_: ElementType = FLOAT32) -> Layout:
    """Row-major, nothing between the rows or the products."""
    strides = []
    reach = rows * columns
    for size in reversed(batch):
        strides.append(reach)
        reach *= size
    return Layout(type_, columns, 1, tuple(reversed(strides)))


def turned(layout: Layout) -> Layout:
    """The transposed matrix."""
    return replace(layout, row_stride=layout.column_stride, column_stride=layout.row_stride)


def bound_windows(bound: tuple[Bound, ...]) -> tuple[Window | None, ...]:
    """The windows of a step."""
    windows = tuple(each.window for each in bound)
    return windows if any(windows) else ()


def operand_bytes(layout: Layout, rows: int, columns: int, batch: tuple[int, ...]) -> int:
    """How far into its buffer an operand reaches, in bytes."""
    return layout.extent(rows, columns, batch)[1] * layout.type.size


def result_elements(problem: Problem) -> int:
    """How many elements D has."""
    return problem.products * problem.m * problem.n


def most_linear(limits: Limits) -> int:
    """The invocations of the largest grid over a flat count."""
    return limits.max_compute_workgroups_per_dimension**2 * LINEAR


def linear_grid(operation: str, invocations: int, limits: Limits) -> tuple[int, int, int]:
    """A grid over a flat count: as few rows as the limit allows, all nearly full."""
    groups = -(-invocations // LINEAR)
    most = limits.max_compute_workgroups_per_dimension
    rows = -(-groups // most)
    if rows > most:
        raise ShapeError(f"{operation}: {groups:,} workgroups over the elements, the device allows {most:,} squared")
    return -(-groups // rows), rows, 1


def require_one_grid(operation: str, problem: Problem, variant: Variant, limits: Limits) -> None:
    """ShapeError where the product would need more workgroups along an axis than one dispatch may have."""
    tile_rows, tile_columns, _ = variant.tile
    most = limits.max_compute_workgroups_per_dimension
    for name, size, tile in (("m", problem.m, tile_rows), ("n", problem.n, tile_columns), ("batch", problem.products, 1)):
        groups = -(-size // tile)
        if groups > most:
            raise ShapeError(
                f"{operation}: {name} = {size:,} needs {groups:,} workgroups along its axis, the device allows {most:,}"
            )


def require_binding(operation: str, name: str, nbytes: int, limits: Limits) -> None:
    """UnsupportedError where an operand does not fit one storage-buffer binding."""
    most = limits.max_storage_buffer_binding_size
    if nbytes > most:
        raise UnsupportedError(
            f"{operation}: operand {name} has {nbytes:,} bytes, one binding of the device holds {most:,} "
            "(maxStorageBufferBindingSize)"
        )


def require_buffer(operation: str, name: str, nbytes: int, limits: Limits) -> None:
    """UnsupportedError where an operand does not fit one buffer."""
    if nbytes > limits.max_buffer_size:
        raise UnsupportedError(
            f"{operation}: operand {name} has {nbytes:,} bytes, one buffer of the device holds {limits.max_buffer_size:,} "
            "(maxBufferSize)"
        )


def words(*values: int) -> Iterator[int]:
    """As the shader's wrapping 32-bit numbers."""
    return (value & 0xFFFF_FFFF for value in values)
