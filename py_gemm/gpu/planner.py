"""Problem + variant + limits -> the dispatches of an operation. Pure: knows no device; buffers are names.

Names: "a", "b", "c", "bias" are the operands, "sum" the float32 result, "result" the narrow one, "scratch" the planes of a product
whose k is split, "nothing" a buffer that no kernel reads, "panel_a" and "panel_b" what had to be gathered of an operand. What
passes a limit is cut into pieces; a piece is the same problem with other offsets, so that cutting changes no bit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from itertools import product

from ..dtypes import FLOAT16, FLOAT32
from ..epilogue import Activation, require_exact_activation
from ..errors import UnsupportedError
from ..problem import Layout, Problem, collapse_batch
from .capabilities import Limits
from .passes import plan_convert, plan_narrow, plan_panel
from .pieces import Piece, batch_pieces, cuts, piece_sizes
from .register_tile import A_VECTORS_ACROSS, A_VECTORS_ALONG_K, B_VECTORS_ACROSS, B_VECTORS_ALONG_K
from .shaders import ShaderKey
from .split import SCRATCH_BYTES, Ranges
from .steps import Step, bound_windows, dense_layout, linear_grid, most_linear, operand_bytes, result_elements, turned, words
from .variants import Variant, is_float32
from .windows import Bound, Cut, Reach, cut_to_bindings

# The flags of shaders/finish.wgsl and shaders/product.wgsl; then exact_finish.wgsl's (narrow.wgsl will round once more) and
# gemm_exact_f16.wgsl's (the sum is left as it is).
HAS_PRODUCT, HAS_ADDEND, HAS_BIAS, A_ALONG_K, B_ALONG_K, CONTINUES = 1, 2, 4, 8, 16, 1024
ROUND_TO_ODD, LEAVES = 32, 2048

# The uniform blocks, in the order of the `Parameters` of each shader.
_GEMM = struct.Struct("<4I2f2I15I")
_SUM = struct.Struct("<4I2f6I")


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of an operation and the sizes of what they write, in bytes: "sum", for narrow results "result", for split products
    "scratch" (else 0), and the panels by name."""

    steps: tuple[Step, ...]
    sum_bytes: int
    result_bytes: int
    scratch_bytes: int = 0
    panels: dict[str, int] = field(default_factory=dict)

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
    product_steps, scratch_bytes, panels = plan_product(
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
        steps += plan_narrow(elements, problem.d.type, limits)
    return Plan(tuple(steps), elements * 4, elements * problem.d.type.size if narrow else 0, scratch_bytes, panels)


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
) -> tuple[list[Step], int, dict[str, int]]:
    """The kernel's dispatches into "sum": D, float32 with unit column stride, updated in place where beta is not zero. With more
    than one range, or ranges deeper than the row sums at once, or than a binding holds, the planes of a piece go into "scratch",
    part by part, and a pass behind them adds them. Also how many bytes of "scratch" this needs, and of each panel.

    narrow: D will be rounded again, to 16 bits. UnsupportedError for what an exact variant cannot round correctly, and for what no
    binding of the device can hold.
    """
    if variant.exact:
        _require_exact(problem, activation)
    reads = problem.reads_operands
    end = 0
    if reads:
        end |= HAS_PRODUCT
    if problem.c is not None and problem.beta != 0.0:
        end |= HAS_ADDEND
    if has_bias:
        end |= HAS_BIAS
    if variant.exact and narrow:
        end |= ROUND_TO_ODD
    alpha = _float32(problem.alpha)
    # What the kernel itself finishes: everything, or (unfinished) nothing but the raw sum, 1 * sum.
    raw = _Finish(HAS_PRODUCT, 1.0, 0.0, Activation.NONE)
    if variant.sum_words > 1:
        raw = replace(raw, flags=HAS_PRODUCT | LEAVES, alpha=alpha)
    whole = _Finish(end, alpha, _float32(problem.beta), activation)
    idle = (0,) * len(problem.batch)
    batch, (strides_a, strides_b, strides_d) = collapse_batch(
        problem.batch,
        (problem.a.batch_strides if reads else idle, problem.b.batch_strides if reads else idle, target_layout.batch_strides),
    )
    axis = max(range(len(batch)), key=lambda each: batch[each]) if batch else 0
    along = tuple(strides[axis] if batch else 0 for strides in (strides_a, strides_b, strides_d))
    limit = limits.max_storage_buffer_binding_size
    m, n, k = problem.m, problem.n, problem.k if reads else 0

    def reach(name: str, layout: Layout, rows: int, columns: int, batch_stride: int, *, gathers: bool) -> Reach:
        nbytes = operand_bytes(layout, rows, columns, problem.batch) if rows and columns else 0
        return Reach("gemm", name, replace(layout, batch_strides=(batch_stride,)), nbytes, limit, gathers)

    side_a = reach("a", problem.a, m, k, along[0], gathers=True)
    side_b = reach("b", turned(problem.b), n, k, along[1], gathers=True)
    side_d = reach("sum", target_layout, m, n, along[2], gathers=False)
    bias_length = bias_offset + n if has_bias else 0
    side_bias = Reach("gemm", "bias", Layout(FLOAT32, 0, 1, (0,)), bias_length * FLOAT32.size, limit)
    most = Cut(batch[axis] if batch else 1, m, n, k)
    if not (side_a.is_whole and side_b.is_whole and side_d.is_whole):
        most = cut_to_bindings(side_a, side_b, side_d, most, variant.tile[:2], variant.unit)
    depth = min(ranges.terms, problem.k)
    part = min(depth, variant.deepest or depth, most.terms or depth)
    # Whether sums pass through "scratch".
    split = reads and (ranges.count > 1 or part < depth)
    scratch = min(SCRATCH_BYTES, limit)
    workgroups = limits.max_compute_workgroups_per_dimension
    # The planes of a piece must fit the scratch, and one pass over its elements the grid.
    most_elements = min(max(scratch // (4 * variant.sum_words * ranges.count), 1), most_linear(limits))
    piece = piece_sizes(
        Piece(most.products, most.rows, most.columns, ranges.count if split and most.terms == k else 1),
        k,
        variant.tile[:2],
        most_workgroups=workgroups,
        most_elements=most_elements if split else None,
        most_flops=most_flops,
    )
    kernel = _Kernel(variant, raw if split else whole, problem)
    steps: list[Step] = []
    scratch_bytes = 0
    panels: dict[str, int] = {}
    gathered: dict[str, tuple[int, int, int]] = {}

    def operand(side: Reach, offset: int, products: int, lanes: int, terms: int) -> Bound:
        """What a dispatch reads; gathered first where that must be and was not just done."""
        bound = side.bind(offset, products, lanes, terms)
        if bound.name == side.panel and gathered.get(bound.name) != (offset, lanes, terms):
            gathered[bound.name] = offset, lanes, terms
            source = replace(side, layout=replace(side.layout, offset=offset))
            made, sizes = plan_panel(source, lanes, terms, bound, limits, exact=variant.exact)
            steps.extend(made)
            panels.update({name: max(nbytes, panels.get(name, 0)) for name, nbytes in sizes.items()})
        return replace(bound, layout=replace(bound.layout, type=FLOAT16)) if variant.exact else bound

    blocks = list(product(cuts(m, piece.rows), cuts(n, piece.columns)))
    if not side_b.is_whole:
        blocks.sort(key=lambda block: block[1])  # a panel of B serves all rows before the next is gathered
    for at_a, at_b, at_d, products in batch_pieces(batch, axis, (strides_a, strides_b, strides_d), piece.products):
        for (row, rows), (column, columns) in blocks:
            a = problem.a.offset + at_a + row * problem.a.row_stride
            b = problem.b.offset + at_b + column * problem.b.column_stride
            bias = side_bias.bind(bias_offset + column, 1, 1, columns) if has_bias else _NOTHING
            target = side_d.bind(target_layout.offset + at_d + row * target_layout.row_stride + column, products, rows, columns)
            block = _Block(products, rows, columns)
            if not split:
                left, right = (_NOTHING, _NOTHING)
                if reads:
                    left, right = operand(side_a, a, products, rows, k), operand(side_b, b, products, columns, k)
                steps.append(kernel.step(block, (left, right, bias, target), k, Ranges(1, problem.k), problem.k, False))
                continue
            plane = products * rows * columns
            scratch_bytes = max(scratch_bytes, 4 * variant.sum_words * plane * ranges.count)
            for (begin, depth), (first, count) in product(cuts(ranges.terms, part), cuts(ranges.count, piece.ranges)):
                skipped = first * ranges.terms + begin
                if skipped >= problem.k:
                    continue
                terms = min(problem.k - skipped, (count - 1) * ranges.terms + depth)
                left = operand(side_a, a + skipped * problem.a.column_stride, products, rows, terms)
                right = operand(side_b, b + skipped * problem.b.row_stride, products, columns, terms)
                unfinished = Bound("scratch", Layout(FLOAT32, columns, 1, (rows * columns,), first * plane))
                steps.append(
                    kernel.step(
                        block, (left, right, _NOTHING, unfinished), terms, Ranges(count, ranges.terms), depth, begin > 0, plane
                    )
                )
            steps.append(_plan_sum(variant, block, whole, bias, target, ranges.count, limits))
    return steps, scratch_bytes, panels


# What is bound where a kernel reads nothing.
_NOTHING = Bound("nothing", Layout(FLOAT32, 0, 0, (0,)))


@dataclass(frozen=True, slots=True)
class _Finish:
    """What a kernel does to a finished sum."""

    flags: int
    alpha: float
    beta: float
    activation: Activation


@dataclass(frozen=True, slots=True)
class _Block:
    """The part of D that a dispatch computes."""

    products: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What all dispatches of a product have in common."""

    variant: Variant
    finish: _Finish
    problem: Problem

    def step(
        self,
        block: _Block,
        bound: tuple[Bound, Bound, Bound, Bound],
        k: int,
        ranges: Ranges,
        part: int,
        continues: bool,
        plane: int = 0,
    ) -> Step:
        """bound: A, B by columns, the bias and the target, whose planes are `plane` elements apart. part: how many terms of each
        range are summed, below k all of them; continues: onto what the target holds."""
        problem, finish = self.problem, self.finish
        left, right, bias, target = bound
        reads = problem.reads_operands
        a, b, d = left.layout, turned(right.layout), target.layout
        flags = finish.flags | (CONTINUES if continues else 0)
        if reads:
            flags |= _staging(problem.m, problem.n, a, b) | _vectors(a, b)
        parameters = _GEMM.pack(
            block.rows,
            block.columns,
            k,
            flags,
            finish.alpha,
            finish.beta,
            int(finish.activation),
            bias.layout.offset,
            *words(a.offset, a.row_stride, a.column_stride, *a.batch_strides),
            *words(b.offset, b.row_stride, b.column_stride, *b.batch_strides),
            *words(d.offset, d.row_stride, *d.batch_strides, ranges.count, ranges.terms, plane, part),
        )
        terms = sum(max(min(k - each * ranges.terms, part), 0) for each in range(ranges.count))
        types = (a.type, b.type) if reads else (problem.a.type, problem.b.type)
        shader = ShaderKey(self.variant.kernel, types)
        again = (left, right) if shader.reads_vectors else ()
        tile_rows, tile_columns, _ = self.variant.tile
        grid = (-(-block.columns // tile_columns), -(-block.rows // tile_rows), block.products * ranges.count)
        names = tuple(each.name for each in (*bound, *again))
        flops = 2 * block.products * block.rows * block.columns * terms
        return Step(shader, names, parameters, grid, flops, bound_windows((*bound, *again)))


def _plan_sum(variant: Variant, block: _Block, finish: _Finish, bias: Bound, target: Bound, ranges: int, limits: Limits) -> Step:
    """Add the planes of a piece in "scratch" and finish what they give."""
    count = block.products * block.rows * block.columns
    d = target.layout
    parameters = _SUM.pack(
        count,
        block.rows,
        block.columns,
        finish.flags,
        finish.alpha,
        finish.beta,
        int(finish.activation),
        bias.layout.offset,
        *words(d.offset, d.row_stride, *d.batch_strides),
        ranges * variant.lanes,
    )
    bound = (Bound("scratch", d), bias, target)
    names = tuple(each.name for each in bound)
    return Step(ShaderKey(variant.ending, ()), names, parameters, linear_grid("gemm", count, limits), 0, bound_windows(bound))


def _require_exact(problem: Problem, activation: Activation) -> None:
    require_exact_activation("gemm", activation)
    for name, value in (("alpha", problem.alpha), ("beta", problem.beta)):
        if not is_float32(value):
            raise UnsupportedError(f'gemm: mode "exact" on a GPU needs {name} to be a float32 number, not {value!r}')


def _staging(m: int, n: int, a: Layout, b: Layout) -> int:
    """Walk each operand along the dimension in which its elements are neighbours."""
    flags = 0
    if m == 1 or abs(a.column_stride) <= abs(a.row_stride):
        flags |= A_ALONG_K
    if n == 1 or abs(b.row_stride) < abs(b.column_stride):
        flags |= B_ALONG_K
    return flags


def _vectors(a: Layout, b: Layout) -> int:
    """Which operands can be read four neighbours at a load: unit stride one way, everything else a multiple of four."""
    flags = 0
    for layout, across, along, flag_along, flag_across in (
        (a, a.row_stride, a.column_stride, A_VECTORS_ALONG_K, A_VECTORS_ACROSS),
        (b, b.column_stride, b.row_stride, B_VECTORS_ALONG_K, B_VECTORS_ACROSS),
    ):
        (batch,) = layout.batch_strides
        if layout.offset % 4 or batch % 4 or batch < 0:
            continue
        if along == 1 and across >= 0 and across % 4 == 0:
            flags |= flag_along
        elif across == 1 and along >= 0 and along % 4 == 0:
            flags |= flag_across
    return flags


def _float32(value: float) -> float:
    """Rounded to float32 as the device will hold it: what overflows becomes an infinity instead of an error of `struct`."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
