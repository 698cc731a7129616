"""Problem + variant + limits -> the dispatches of an operation. Pure: knows no device; buffers are names.

Names: "a", "b", "c", "bias" are the operands, "sum" the float32 result, "result" the narrow one, "nothing" a buffer that no kernel
reads. A grid that passes the limit of an axis is cut into pieces; a piece is the same problem with other offsets, so that
cutting changes no bit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..dtypes import FLOAT32, ElementType
from ..epilogue import Activation, require_exact_activation
from ..errors import ShapeError, UnsupportedError
from ..problem import Layout, Problem, collapse_batch
from .capabilities import Limits
from .shaders import ShaderKey
from .variants import Variant, is_float32

# The flags of shaders/gemm_tiled.wgsl; the last is gemm_exact_f16.wgsl's: the sum is rounded once more, by narrow.wgsl.
HAS_PRODUCT, HAS_ADDEND, HAS_BIAS, A_ALONG_K, B_ALONG_K, ROUND_TO_ODD = 1, 2, 4, 8, 16, 32

# The uniform blocks, in the order of the `Parameters` of each shader.
_GEMM = struct.Struct("<4I2f2I11I")
_CONVERT = struct.Struct("<8I")
_NARROW = struct.Struct("<3I")

# Invocations of one workgroup of convert.wgsl and narrow.wgsl.
_LINEAR = 256


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch, its buffers by name."""

    shader: ShaderKey
    buffers: tuple[str, ...]
    parameters: bytes
    workgroups: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of an operation and the sizes of what they write: "sum" and, for narrow results, "result" (else 0), in bytes."""

    steps: tuple[Step, ...]
    sum_bytes: int
    result_bytes: int

    @property
    def shaders(self) -> tuple[ShaderKey, ...]:
        return tuple(dict.fromkeys(step.shader for step in self.steps))


def plan_operation(
    problem: Problem,
    variant: Variant,
    limits: Limits,
    *,
    activation: Activation,
    has_bias: bool,
    bias_offset: int = 0,
    gather_c: bool = True,
) -> Plan:
    """Everything from operands on the device to D, dense [batch..., m, n] of d's type.

    gather_c: C is widened and gathered into "sum" first; without it the caller has put C there, dense and in float32.
    """
    elements = result_elements(problem)
    if problem.is_empty:
        return Plan((), 0, 0)
    dense = dense_layout(problem.m, problem.n, problem.batch)
    steps: list[Step] = []
    if problem.c is not None and problem.beta != 0.0 and gather_c:
        steps += plan_convert(problem.c, problem.m, problem.n, problem.batch, limits, source="c")
    narrow = problem.d.type is not FLOAT32
    steps += plan_product(
        problem,
        dense,
        variant,
        limits,
        activation=activation,
        has_bias=has_bias,
        bias_offset=bias_offset,
        target="sum",
        narrow=narrow,
    )
    if narrow:
        steps.append(plan_narrow(elements, problem.d.type, limits))
    return Plan(tuple(steps), elements * 4, elements * problem.d.type.size if narrow else 0)


def dense_layout(rows: int, columns: int, batch: tuple[int, ...], type_: ElementType = FLOAT32) -> Layout:
    """Row-major, nothing between the rows or the products."""
    strides = []
    reach = rows * columns
    for size in reversed(batch):
        strides.append(reach)
        reach *= size
    return Layout(type_, columns, 1, tuple(reversed(strides)))


def plan_product(
    problem: Problem,
    target_layout: Layout,
    variant: Variant,
    limits: Limits,
    *,
    activation: Activation,
    has_bias: bool,
    bias_offset: int,
    target: str,
    narrow: bool = False,
) -> list[Step]:
    """The kernel's dispatches: D, float32 with unit column stride, updated in place where beta is not zero.

    narrow: D will be rounded again, to 16 bits. UnsupportedError for what an exact variant cannot round correctly.
    """
    if variant.exact:
        _require_exact(problem, activation)
    reads = problem.reads_operands
    tile_rows, tile_columns, _ = variant.tile
    flags = 0
    if reads:
        flags |= HAS_PRODUCT | _staging(problem)
    if problem.c is not None and problem.beta != 0.0:
        flags |= HAS_ADDEND
    if has_bias:
        flags |= HAS_BIAS
    if variant.exact and narrow:
        flags |= ROUND_TO_ODD
    shader = ShaderKey(variant.kernel, (problem.a.type, problem.b.type))
    names = ("a" if reads else "nothing", "b" if reads else "nothing", "bias" if has_bias else "nothing", target)
    idle = (0,) * len(problem.batch)
    batch, (strides_a, strides_b, strides_d) = collapse_batch(
        problem.batch,
        (problem.a.batch_strides if reads else idle, problem.b.batch_strides if reads else idle, target_layout.batch_strides),
    )
    most = limits.max_compute_workgroups_per_dimension
    steps = []
    for positions, axis, start, count in _grids(batch, most):
        at_a, at_b, at_d = (
            sum(map(_multiply, positions, strides)) + (start * strides[axis] if batch else 0)
            for strides in (strides_a, strides_b, strides_d)
        )
        for (row, rows), (column, columns) in product(_cuts(problem.m, most * tile_rows), _cuts(problem.n, most * tile_columns)):
            a, b, d = problem.a, problem.b, target_layout
            parameters = _GEMM.pack(
                rows,
                columns,
                problem.k if reads else 0,
                flags,
                _float32(problem.alpha),
                _float32(problem.beta),
                int(activation),
                bias_offset + column,
                *_words(a.offset + at_a + row * a.row_stride, a.row_stride, a.column_stride, strides_a[axis] if batch else 0),
                *_words(b.offset + at_b + column * b.column_stride, b.row_stride, b.column_stride, strides_b[axis] if batch else 0),
                *_words(d.offset + at_d + row * d.row_stride + column, d.row_stride, strides_d[axis] if batch else 0),
            )
            grid = (-(-columns // tile_columns), -(-rows // tile_rows), count)
            steps.append(Step(shader, names, parameters, grid))
    return steps


def _require_exact(problem: Problem, activation: Activation) -> None:
    require_exact_activation("gemm", activation)
    for name, value in (("alpha", problem.alpha), ("beta", problem.beta)):
        if not is_float32(value):
            raise UnsupportedError(f'gemm: mode "exact" on a GPU needs {name} to be a float32 number, not {value!r}')


def plan_convert(
    source_layout: Layout, rows: int, columns: int, batch: tuple[int, ...], limits: Limits, *, source: str, target: str = "sum"
) -> list[Step]:
    """Gather a strided operand into dense float32 [batch..., rows, columns]."""
    dense = dense_layout(rows, columns, batch)
    sizes, (strides, strides_target) = collapse_batch(batch, (source_layout.batch_strides, dense.batch_strides))
    shader = ShaderKey("convert", (source_layout.type,))
    steps = []
    # The innermost dimension of the batch is dense in the target: one dispatch walks it whole.
    inner = sizes[-1] if sizes else 1
    for positions in product(*map(range, sizes[:-1])):
        count = inner * rows * columns
        parameters = _CONVERT.pack(
            *_words(count, rows, columns),
            *_words(
                source_layout.offset + sum(map(_multiply, positions, strides)),
                source_layout.row_stride,
                source_layout.column_stride,
                strides[-1] if sizes else 0,
                sum(map(_multiply, positions, strides_target)),
            ),
        )
        steps.append(Step(shader, (source, target), parameters, linear_grid("gemm", count, limits)))
    return steps


def plan_narrow(elements: int, type_: ElementType, limits: Limits) -> Step:
    """Round dense float32 "sum" to `type_` in "result", two elements a word."""
    grid = linear_grid("gemm", -(-elements // 2), limits)
    return Step(ShaderKey("narrow", (type_,)), ("sum", "result"), _NARROW.pack(elements, 0, 0), grid)


def linear_grid(operation: str, invocations: int, limits: Limits) -> tuple[int, int, int]:
    """A grid over a flat count: as few rows as the limit allows, all nearly full."""
    groups = -(-invocations // _LINEAR)
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


def _staging(problem: Problem) -> int:
    """Walk each operand along the dimension in which its elements are neighbours."""
    a, b = problem.a, problem.b
    flags = 0
    if problem.m == 1 or abs(a.column_stride) <= abs(a.row_stride):
        flags |= A_ALONG_K
    if problem.n == 1 or abs(b.row_stride) < abs(b.column_stride):
        flags |= B_ALONG_K
    return flags


def _cuts(size: int, most: int) -> Iterator[tuple[int, int]]:
    """(start, size) of the pieces of [0, size) of at most `most`."""
    for start in range(0, size, most):
        yield start, min(most, size - start)


def _grids(batch: tuple[int, ...], most: int) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
    """(position in the other dimensions, axis that a grid walks, its start, its count): the longest dimension of the batch goes
    into the grid, the others become dispatches of their own."""
    if not batch:
        yield (), 0, 0, 1
        return
    axis = max(range(len(batch)), key=lambda each: batch[each])
    others = [range(1) if each == axis else range(size) for each, size in enumerate(batch)]
    for positions in product(*others):
        for start, count in _cuts(batch[axis], most):
            yield positions, axis, start, count


def _multiply(x: int, y: int) -> int:
    return x * y


def _words(*values: int) -> Iterator[int]:
    """As the shader's wrapping 32-bit numbers."""
    return (value & 0xFFFF_FFFF for value in values)


def _float32(value: float) -> float:
    """Rounded to float32 as the device will hold it: what overflows becomes an infinity instead of an error of `struct`."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def operand_bytes(layout: Layout, rows: int, columns: int, batch: tuple[int, ...]) -> int:
    """How far into its buffer an operand reaches, in bytes."""
    return layout.extent(rows, columns, batch)[1] * layout.type.size


def result_elements(problem: Problem) -> int:
    """How many elements D has."""
    return problem.products * problem.m * problem.n
