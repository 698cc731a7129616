"""Problem + variant + limits -> the dispatches of an operation. Pure: knows no device; buffers are names.

Names: "a", "b", "c", "bias" are the operands, "sum" the float32 result, "result" the narrow one, "scratch" the planes of a product
whose k is split, "nothing" a buffer that no kernel reads. What passes a limit is cut into pieces; a piece is the same problem with
other offsets, so that cutting changes no bit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from ..dtypes import FLOAT32, ElementType
from ..epilogue import Activation, require_exact_activation
from ..errors import ShapeError, UnsupportedError
from ..problem import Layout, Problem, collapse_batch
from .capabilities import Limits
from .pieces import Piece, batch_pieces, cuts, piece_sizes
from .register_tile import A_VECTORS_ACROSS, A_VECTORS_ALONG_K, B_VECTORS_ACROSS, B_VECTORS_ALONG_K
from .shaders import ShaderKey
from .split import SCRATCH_BYTES, Ranges
from .variants import Variant, is_float32

# The flags of shaders/finish.wgsl and shaders/product.wgsl; then exact_finish.wgsl's (narrow.wgsl will round once more) and
# gemm_exact_f16.wgsl's (the sum is left as it is).
HAS_PRODUCT, HAS_ADDEND, HAS_BIAS, A_ALONG_K, B_ALONG_K, CONTINUES = 1, 2, 4, 8, 16, 1024
ROUND_TO_ODD, LEAVES = 32, 2048

# The uniform blocks, in the order of the `Parameters` of each shader.
_GEMM = struct.Struct("<4I2f2I15I")
_SUM = struct.Struct("<4I2f6I")
_CONVERT = struct.Struct("<8I")
_NARROW = struct.Struct("<3I")

# Invocations of one workgroup of convert.wgsl and narrow.wgsl.
_LINEAR = 256


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch, its buffers by name. `flops`: 2 m n k of what it multiplies, 0 for passes over elements."""

    shader: ShaderKey
    buffers: tuple[str, ...]
    parameters: bytes
    workgroups: tuple[int, int, int]
    flops: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of an operation and the sizes of what they write, in bytes: "sum", for narrow results "result", for split products
    "scratch" (else 0)."""

    steps: tuple[Step, ...]
    sum_bytes: int
    result_bytes: int
    scratch_bytes: int = 0

    @property
    def shaders(self) -> tuple[ShaderKey, ...]:
        return tuple(dict.fromkeys(step.shader for step in self.steps))


def plan_operation(
    problem: Problem,
    variant: Variant,
    limits: Limits,
    *,
    ranges: Ranges,
    activation: Activation,
    has_bias: bool,
    bias_offset: int = 0,
    gather_c: bool = True,
    most_flops: int | None = None,
) -> Plan:
    """Everything from operands on the device to D, dense [batch..., m, n] of d's type.

    ranges: those of the whole product, of which `problem` may be a piece. gather_c: C is widened and gathered into "sum" first;
    without it the caller has put C there, dense and in float32. most_flops: what a single dispatch should stay below.
    """
    elements = result_elements(problem)
    if problem.is_empty:
        return Plan((), 0, 0)
    dense = dense_layout(problem.m, problem.n, problem.batch)
    steps: list[Step] = []
    if problem.c is not None and problem.beta != 0.0 and gather_c:
        steps += plan_convert(problem.c, problem.m, problem.n, problem.batch, limits, source="c")
    narrow = problem.d.type is not FLOAT32
    product_steps, scratch_bytes = plan_product(
        problem,
        dense,
        variant,
        limits,
        ranges=ranges,
        activation=activation,
        has_bias=has_bias,
        bias_offset=bias_offset,
        most_flops=most_flops,
        narrow=narrow,
    )
    steps += product_steps
    if narrow:
        steps.append(plan_narrow(elements, problem.d.type, limits))
    return Plan(tuple(steps), elements * 4, elements * problem.d.type.size if narrow else 0, scratch_bytes)


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
    ranges: Ranges,
    activation: Activation,
    has_bias: bool,
    bias_offset: int,
    most_flops: int | None = None,
    narrow: bool = False,
) -> tuple[list[Step], int]:
    """The kernel's dispatches into "sum": D, float32 with unit column stride, updated in place where beta is not zero. With more
    than one range, or ranges deeper than the row sums at once, the planes of a piece go into "scratch", part by part, and a pass
    behind them adds them. Also how many bytes of "scratch" this needs.

    narrow: D will be rounded again, to 16 bits. UnsupportedError for what an exact variant cannot round correctly.
    """
    if variant.exact:
        _require_exact(problem, activation)
    reads = problem.reads_operands
    depth = min(ranges.terms, problem.k)
    part = depth if variant.deepest is None else min(depth, variant.deepest)
    # Whether sums pass through "scratch".
    split = reads and (ranges.count > 1 or part < depth)
    end = 0
    if reads:
        end |= HAS_PRODUCT
    if problem.c is not None and problem.beta != 0.0:
        end |= HAS_ADDEND
    if has_bias:
        end |= HAS_BIAS
    if variant.exact and narrow:
        end |= ROUND_TO_ODD
    bias = "bias" if has_bias else "nothing"
    alpha = _float32(problem.alpha)
    # What the kernel itself finishes: everything, or (unfinished) nothing but the raw sum, 1 * sum.
    raw = _Finish(HAS_PRODUCT, 1.0, 0.0, Activation.NONE, "nothing", "scratch")
    if variant.exact:
        raw = replace(raw, flags=HAS_PRODUCT | LEAVES, alpha=alpha)
    whole = _Finish(end, alpha, _float32(problem.beta), activation, bias, "sum")
    idle = (0,) * len(problem.batch)
    batch, (strides_a, strides_b, strides_d) = collapse_batch(
        problem.batch,
        (problem.a.batch_strides if reads else idle, problem.b.batch_strides if reads else idle, target_layout.batch_strides),
    )
    axis = max(range(len(batch)), key=lambda each: batch[each]) if batch else 0
    along = tuple(strides[axis] if batch else 0 for strides in (strides_a, strides_b, strides_d))
    scratch = min(SCRATCH_BYTES, limits.max_storage_buffer_binding_size)
    most = limits.max_compute_workgroups_per_dimension
    # The planes of a piece must fit the scratch, and one pass over its elements the grid.
    most_elements = min(max(scratch // (4 * variant.sum_words * ranges.count), 1), most * most * _LINEAR)
    piece = piece_sizes(
        Piece(batch[axis] if batch else 1, problem.m, problem.n, ranges.count if split else 1),
        problem.k if reads else 0,
        variant.tile[:2],
        most_workgroups=most,
        most_elements=most_elements if split else None,
        most_flops=most_flops,
    )
    shader = ShaderKey(variant.kernel, (problem.a.type, problem.b.type))
    kernel = _Kernel(shader, variant.tile, whole if not split else raw, problem, _staging(problem) if reads else 0)
    steps = []
    scratch_bytes = 0
    for at_a, at_b, at_d, products in batch_pieces(batch, axis, (strides_a, strides_b, strides_d), piece.products):
        for (row, rows), (column, columns) in product(cuts(problem.m, piece.rows), cuts(problem.n, piece.columns)):
            a = problem.a.offset + at_a + row * problem.a.row_stride
            b = problem.b.offset + at_b + column * problem.b.column_stride
            d = target_layout.offset + at_d + row * target_layout.row_stride + column
            block = _Block(products, rows, columns, bias_offset + column)
            if not split:
                places = (a, along[0], b, along[1], d, target_layout.row_stride, along[2], 0)
                steps.append(kernel.step(block, places, problem.k if reads else 0, Ranges(1, problem.k), problem.k, False))
                continue
            plane = products * rows * columns
            scratch_bytes = max(scratch_bytes, 4 * variant.sum_words * plane * ranges.count)
            for (begin, depth), (first, count) in product(cuts(ranges.terms, part), cuts(ranges.count, piece.ranges)):
                skipped = first * ranges.terms + begin
                if skipped >= problem.k:
                    continue
                terms = min(problem.k - skipped, (count - 1) * ranges.terms + depth)
                places = (
                    a + skipped * problem.a.column_stride, along[0], b + skipped * problem.b.row_stride, along[1],
                    first * plane, columns, rows * columns, plane,
                )  # fmt: skip
                steps.append(kernel.step(block, places, terms, Ranges(count, ranges.terms), depth, begin > 0))
            steps.append(_plan_sum(variant.ending, block, whole, (d, target_layout.row_stride, along[2]), ranges.count, limits))
    return steps, scratch_bytes


@dataclass(frozen=True, slots=True)
class _Finish:
    """What a kernel does to a finished sum, which bias it binds and where it writes."""

    flags: int
    alpha: float
    beta: float
    activation: Activation
    bias: str
    target: str


@dataclass(frozen=True, slots=True)
class _Block:
    """The part of D that a dispatch computes, and where its bias begins."""

    products: int
    rows: int
    columns: int
    bias_offset: int


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What all dispatches of a product have in common."""

    shader: ShaderKey
    tile: tuple[int, int, int]
    finish: _Finish
    problem: Problem
    staging: int

    def step(self, block: _Block, places: tuple[int, ...], k: int, ranges: Ranges, part: int, continues: bool) -> Step:
        """places: offset and batch stride of A, the same of B, then offset, row, batch and range stride of the target. part: how
        many terms of each range are summed, below k all of them; continues: onto what the target holds."""
        problem, finish = self.problem, self.finish
        reads = problem.reads_operands
        a, a_batch, b, b_batch, d, d_row, d_batch, d_range = places
        parameters = _GEMM.pack(
            block.rows,
            block.columns,
            k,
            finish.flags | self.staging | _vectors(problem, a, a_batch, b, b_batch) | (CONTINUES if continues else 0),
            finish.alpha,
            finish.beta,
            int(finish.activation),
            block.bias_offset,
            *_words(a, problem.a.row_stride, problem.a.column_stride, a_batch),
            *_words(b, problem.b.row_stride, problem.b.column_stride, b_batch),
            *_words(d, d_row, d_batch, ranges.count, ranges.terms, d_range, part),
        )
        terms = sum(max(min(k - each * ranges.terms, part), 0) for each in range(ranges.count))
        operands = ("a", "b") if reads else ("nothing", "nothing")
        again = operands if self.shader.reads_vectors else ()
        names = (*operands, finish.bias, finish.target, *again)
        tile_rows, tile_columns, _ = self.tile
        grid = (-(-block.columns // tile_columns), -(-block.rows // tile_rows), block.products * ranges.count)
        return Step(self.shader, names, parameters, grid, 2 * block.products * block.rows * block.columns * terms)


def _plan_sum(kernel: str, block: _Block, finish: _Finish, target: tuple[int, int, int], ranges: int, limits: Limits) -> Step:
    """Add the planes of a piece in "scratch" and finish what they give."""
    count = block.products * block.rows * block.columns
    parameters = _SUM.pack(
        count,
        block.rows,
        block.columns,
        finish.flags,
        finish.alpha,
        finish.beta,
        int(finish.activation),
        block.bias_offset,
        *_words(*target),
        ranges,
    )
    grid = linear_grid("gemm", count, limits)
    return Step(ShaderKey(kernel, ()), ("scratch", finish.bias, finish.target), parameters, grid)


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


def _vectors(problem: Problem, a: int, a_batch: int, b: int, b_batch: int) -> int:
    """Which operands can be read four neighbours at a load: unit stride one way, everything else a multiple of four."""
    flags = 0
    for start, batch, across, along, flag_along, flag_across in (
        (a, a_batch, problem.a.row_stride, problem.a.column_stride, A_VECTORS_ALONG_K, A_VECTORS_ACROSS),
        (b, b_batch, problem.b.column_stride, problem.b.row_stride, B_VECTORS_ALONG_K, B_VECTORS_ACROSS),
    ):
        if start % 4 or batch % 4 or batch < 0 or not problem.reads_operands:
            continue
        if along == 1 and across >= 0 and across % 4 == 0:
            flags |= flag_along
        elif across == 1 and along >= 0 and along % 4 == 0:
            flags |= flag_across
    return flags


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
