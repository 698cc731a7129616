"""The table of GPU variants, and the one function that picks a row. Pure: reads capabilities, touches no device.

A row states everything about its kernel that a caller or a reference may depend on: its tile, what it demands of the device as
named conditions, and the order in which it adds. Adding a variant is a row here, a shader and a test. The first row whose
conditions all hold is taken, so special rows stand above general ones. Rows that ask for a shape are chosen product by product;
without a shape (a `Gemm` that is being made) only the others are looked at. Whether k is split besides is gpu/split.py's decision.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ..configuration import knob
from ..dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, ElementType
from ..errors import UnsupportedError
from ..problem import Problem
from .capabilities import Capabilities
from .depth import DEEPEST, deepest
from .register_tile import CHAIN, TILES, RegisterTile

MODES = ("fast", "deterministic", "exact")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a decision may know of a product: sizes, how operands are stored, and whether bits may depend on m and the batch.

    a_transposed: neighbours in memory are rows of A (K x M storage). b_transposed: neighbours are k of B (N x K storage).
    """

    m: int
    n: int
    k: int
    products: int = 1
    a_transposed: bool = False
    b_transposed: bool = False
    batch_invariant: bool = False

    @staticmethod
    def of(problem: Problem, *, batch_invariant: bool = False) -> Shape:
        a, b = problem.a, problem.b
        return Shape(
            problem.m,
            problem.n,
            problem.k,
            problem.products,
            problem.m > 1 and 0 != abs(a.row_stride) < abs(a.column_stride),
            problem.n == 1 or abs(b.row_stride) < abs(b.column_stride),
            batch_invariant,
        )


@dataclass(frozen=True, slots=True)
class Request:
    """All that the choice of a variant may depend on. alpha, beta, type_c, type_d: where they are not known yet, the simplest."""

    capabilities: Capabilities
    type_a: ElementType
    type_b: ElementType
    mode: str = "fast"
    allow_matrix_hardware: bool = True
    alpha: float = 1.0
    beta: float = 0.0
    type_c: ElementType | None = None
    type_d: ElementType = FLOAT32
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """`holds` decides; `wanted` says in words what the request would have to offer."""

    wanted: str
    holds: Callable[[Request], bool]


@dataclass(frozen=True, slots=True)
class ShapeCondition:
    """The same about the shape of a product."""

    wanted: str
    holds: Callable[[Shape], bool]


@dataclass(frozen=True, slots=True)
class SummationOrder:
    """How one element's k products become a sum, all in float32: every level starts from +0 and adds in increasing k.

    chain: products in one register by fused multiply-add; block, group: how many of the level below make one of this level.
    Group sums are added to the total. The tail of k is padded with zero products; levels that are not full join as they stand.
    A row without an order sums exactly.
    """

    chain: int
    block: int
    group: int


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """Lane l takes k = l, l + lanes, ... in increasing k, all in float32: chains of `chain` of its terms by fused multiply-add,
    from +0, which are added to the lane's sum, from +0 too. The sum of lane 0 is the total; those of the others are added to it in
    order. A lane without terms adds +0. (One chain a lane would err by 5e-7 at k = 4096, chains of 32 do by 2e-7.)"""

    lanes: int
    chain: int = 32


@dataclass(frozen=True, slots=True)
class Variant:
    """One row. `tile` is (rows, columns, k step) of a workgroup; `kernel` names the shader in gpu/shaders.py.

    order: how it sums; None: exactly, the result being the exact value rounded once. shape_conditions: what the row asks of the
    product, a Request whose shape is known. splits: k may be split into ranges. tuned: taken only where the capabilities prefer
    this row, or where it is forced. deepest: the most terms that one dispatch sums of a range, a multiple of every level of the
    order (None: all that the row takes). The kernel `ending` finishes sums that were split, or left part by part, each in
    `sum_words` words.
    """

    name: str
    kernel: str
    tile: tuple[int, int, int]
    order: SummationOrder | LaneOrder | None
    conditions: tuple[Condition, ...] = field(default=())
    shape_conditions: tuple[ShapeCondition, ...] = field(default=())
    splits: bool = False
    tuned: bool = False
    deepest: int | None = None
    ending: str = "gemm_splitk_sum"
    sum_words: int = 1

    @property
    def exact(self) -> bool:
        return self.order is None

    @property
    def lanes(self) -> int:
        """How many sums an element has until they are added, where a product goes part by part: a plane each."""
        return self.order.lanes if isinstance(self.order, LaneOrder) else 1

    @property
    def unit(self) -> int:
        """The terms of k that a part must be a multiple of, for parts to have the bits of the whole."""
        if isinstance(self.order, LaneOrder):
            return self.order.lanes * self.order.chain
        return self.tile[2] if self.order is None else self.order.chain * self.order.block * self.order.group


_PLAIN_TYPES = Condition(
    "float32, float16 or bfloat16 operands",
    lambda request: {request.type_a, request.type_b} <= {FLOAT32, FLOAT16, BFLOAT16},
)
_INVOCATIONS_256 = Condition(
    "256 invocations in a workgroup (maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX)",
    lambda request: (
        min(
            request.capabilities.limits.max_compute_invocations_per_workgroup,
            request.capabilities.limits.max_compute_workgroup_size_x,
        )
        >= 256
    ),
)
_TWO_TILES = Condition(
    "8,320 bytes of workgroup memory (maxComputeWorkgroupStorageSize)",
    lambda request: request.capabilities.limits.max_compute_workgroup_storage_size >= 2 * 16 * 65 * 4,
)
_FOUR_BUFFERS = Condition(
    "4 storage buffers (maxStorageBuffersPerShaderStage)",
    lambda request: request.capabilities.limits.max_storage_buffers_per_shader_stage >= 4,
)

_ROUNDED_STEPS = Condition('mode "fast" or "deterministic"', lambda request: request.mode != "exact")
_EXACT_MODE = Condition('mode "exact"', lambda request: request.mode == "exact")
_EXACT_TILES = Condition(
    "12,928 bytes of workgroup memory (maxComputeWorkgroupStorageSize)",
    lambda request: request.capabilities.limits.max_compute_workgroup_storage_size >= 6 * 16 * 33 * 4 + 2 * 32 * 4,
)


def is_float32(value: float) -> bool:
    """Whether a number is a float32 (a NaN or an infinity is one)."""
    try:
        narrow = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return False
    return bool(narrow == value or value != value)


# What an exact product must be like for a GPU, whatever the device: WGSL has no wider numbers than 32 bits.
EXACT_ON_GPU: tuple[Condition, ...] = (
    Condition("float16 operands", lambda request: request.type_a is FLOAT16 and request.type_b is FLOAT16),
    Condition("alpha and beta that are float32 numbers", lambda request: is_float32(request.alpha) and is_float32(request.beta)),
    Condition("c and a result of at most float32", lambda request: FLOAT64 not in (request.type_c, request.type_d)),
)

# The correctly rounded product of float16, in integer arithmetic: no order, no rounding of the device can change a bit.
EXACT_F16 = Variant(
    "exact-f16",
    "gemm_exact_f16",
    (32, 32, 16),
    None,
    (_EXACT_MODE, *EXACT_ON_GPU, _INVOCATIONS_256, _EXACT_TILES, _FOUR_BUFFERS),
    # A step of 16, and at worst the terms of four elements looked at twice.
    deepest=deepest(16, 28 + 2 * 4 * 16),
    ending="gemm_exact_end",
    sum_words=9,
)

# Rows of A up to which B is streamed once; columns from which a warp of 32 reads 128 bytes of one row of B; terms that eight lanes
# sum in one dispatch.
FEW_ROWS, WIDE_COLUMNS, LANES_DEEPEST = 4, 8192, 8 * DEEPEST

_LANES_OF_ROWS = Condition(
    "4,096 bytes of workgroup memory (maxComputeWorkgroupStorageSize)",
    lambda request: request.capabilities.limits.max_compute_workgroup_storage_size >= 256 * 16,
)
_FEW = (
    ShapeCondition(f"at most {FEW_ROWS} rows of A", lambda shape: shape.m <= FEW_ROWS),
    ShapeCondition("A not transposed", lambda shape: not shape.a_transposed),
    ShapeCondition(f"k of at most {LANES_DEEPEST:,}", lambda shape: shape.k <= LANES_DEEPEST),
    # The tile is the one kernel that serves every number of rows.
    ShapeCondition("batch_invariant=False", lambda shape: not shape.batch_invariant),
)
_STORED_BY_ROWS = ShapeCondition("B stored K x N", lambda shape: not shape.b_transposed)
_STORED_BY_COLUMNS = ShapeCondition("B stored N x K", lambda shape: shape.b_transposed)
_WIDE = ShapeCondition(f"at least {WIDE_COLUMNS} columns", lambda shape: shape.n >= WIDE_COLUMNS)
_BASIC = (_PLAIN_TYPES, _INVOCATIONS_256, _FOUR_BUFFERS, _ROUNDED_STEPS)

ROWS_WIDE = Variant(
    "rows-4x32-8slices",
    "gemm_rows_32x8",
    (FEW_ROWS, 32, 8),
    LaneOrder(8),
    (*_BASIC, _LANES_OF_ROWS),
    (*_FEW, _STORED_BY_ROWS, _WIDE),
    sum_words=8,
)
ROWS = Variant(
    "rows-4x16-16slices",
    "gemm_rows_16x16",
    (FEW_ROWS, 16, 16),
    LaneOrder(16),
    (*_BASIC, _LANES_OF_ROWS),
    (*_FEW, _STORED_BY_ROWS),
    sum_words=16,
)
ROWS_BY_COLUMNS = Variant(
    "rows-4x8-32lanes",
    "gemm_rows_8x32",
    (FEW_ROWS, 8, 32),
    LaneOrder(32),
    (*_BASIC, _LANES_OF_ROWS),
    (*_FEW, _STORED_BY_COLUMNS),
    sum_words=32,
)

_FLOAT32 = Condition("float32 operands", lambda request: request.type_a is FLOAT32 and request.type_b is FLOAT32)
_FAST = Condition('mode "fast"', lambda request: request.mode == "fast")
_SIX_BUFFERS = Condition(
    "6 storage buffers (maxStorageBuffersPerShaderStage)",
    lambda request: request.capabilities.limits.max_storage_buffers_per_shader_stage >= 6,
)
_ANY_BITS = Condition("batch_invariant=False", lambda request: request.shape is None or not request.shape.batch_invariant)


def _register_row(tile: RegisterTile) -> Variant:
    def enough(request: Request) -> bool:
        limits = request.capabilities.limits
        most = min(limits.max_compute_invocations_per_workgroup, limits.max_compute_workgroup_size_x)
        return most >= tile.invocations and limits.max_compute_workgroup_storage_size >= tile.workgroup_bytes

    wanted = f"{tile.invocations} invocations and {tile.workgroup_bytes:,} bytes of workgroup memory in a workgroup"
    # Where k is not split, nothing depends on the rows and products beside an element.
    asked = (_PLAIN_TYPES, _FAST, _FOUR_BUFFERS) if tile.scalar else (_FLOAT32, _FAST, _ANY_BITS, _SIX_BUFFERS)
    return Variant(
        tile.name,
        tile.kernel,
        (tile.rows, tile.columns, tile.depth),
        SummationOrder(CHAIN, 1, 1),
        (*asked, Condition(wanted, enough)),
        splits=not tile.scalar,
        tuned=True,
        deepest=tile.deepest,
    )


# Larger tiles for float32 (the scalar one for 16 bits too). Which of them is the fastest is a matter of the device: one is taken
# where the tuner, or the table of gpu/tuned.py, prefers it there.
REGISTER_ROWS = tuple(_register_row(tile) for tile in TILES)

# The portable row serves both modes and every shape on every device within WebGPU's guaranteed limits; it stays last.
TILED_ORDER = SummationOrder(chain=16, block=2, group=4)
TILED = Variant(
    "tiled-64x64x16",
    "gemm_tiled",
    (64, 64, 16),
    TILED_ORDER,
    (_PLAIN_TYPES, _INVOCATIONS_256, _TWO_TILES, _FOUR_BUFFERS, _ROUNDED_STEPS),
    splits=True,
    deepest=deepest(16, 28),
)

VARIANTS: tuple[Variant, ...] = (EXACT_F16, ROWS_WIDE, ROWS, ROWS_BY_COLUMNS, *REGISTER_ROWS, TILED)


def check_mode(mode: object) -> str:
    """`mode` itself; ValueError listing the modes for anything else."""
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    return str(mode)


def configured_variant(*, integer: bool) -> str | None:
    """The row that the knob `variant` names, as far as it is one of this table (or, `integer`, of gpu/int8_variants.py): a row of
    the other table is no business of this one's products. ValueError for a name that neither has."""
    from .names import check_variant

    name: str | None = knob("variant")
    return name if name is not None and check_variant(name).startswith("int8-") == integer else None


def choose_variant(request: Request, forced: str | None = None, table: tuple[Variant, ...] = VARIANTS) -> Variant:
    """The first row whose conditions hold; or the one that `forced` (else the knob `variant`) names.

    Raises ValueError for a name that is not in the table, UnsupportedError where the forced row's conditions, or those of every
    row, do not hold: a forced row is never replaced by another.
    """
    check_mode(request.mode)
    name = configured_variant(integer=False) if forced is None else forced
    if name is not None:
        rows = [row for row in table if row.name == name]
        if not rows:
            raise ValueError(f"unknown variant {name!r}; known: {', '.join(row.name for row in table)}")
    else:
        rows = [row for row in table if request.shape is not None or not row.shape_conditions]
        rows = [row for row in rows if not row.tuned or row.name == request.capabilities.preferred]
    reasons = []
    for row in rows:
        missing = [condition.wanted for condition in row.conditions if not condition.holds(request)]
        if request.shape is not None:
            missing += [each.wanted for each in row.shape_conditions if not each.holds(request.shape)]
        if not missing:
            return row
        reasons.append(f"{row.name} needs {' and '.join(missing)}")
    what = f"{request.type_a} x {request.type_b}, mode {request.mode}, on {request.capabilities.adapter}"
    if request.shape is not None:
        what += f", m = {request.shape.m}, n = {request.shape.n}, k = {request.shape.k}"
    raise UnsupportedError(f"no variant for {what}: {'; '.join(reasons)}")


def exact_obstacles(request: Request) -> list[str]:
    """What an exact product would have to be like for any GPU, and is not; empty where the device alone decides."""
    return [condition.wanted for condition in EXACT_ON_GPU if not condition.holds(request)]
