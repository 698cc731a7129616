"""The table of GPU variants, and the one function that picks a row. Pure: reads capabilities, touches no device.

A row states everything about its kernel that a caller or a reference may depend on: its tile, what it demands of the device as
named conditions, and the order in which it adds. Adding a variant (matrix hardware, split k, few rows) is a row here, a shader
and a test. The first row whose conditions all hold is taken, so special rows stand above general ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ..configuration import knob
from ..dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, ElementType
from ..errors import UnsupportedError
from .capabilities import Capabilities

MODES = ("fast", "deterministic", "exact")


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


@dataclass(frozen=True, slots=True)
class Condition:
    """`holds` decides; `wanted` says in words what the request would have to offer."""

    wanted: str
    holds: Callable[[Request], bool]


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
class Variant:
    """One row. `tile` is (rows, columns, k step) of a workgroup; `kernel` names the shader in gpu/shaders.py.

    order: how it sums; None: exactly, the result being the exact value rounded once.
    """

    name: str
    kernel: str
    tile: tuple[int, int, int]
    order: SummationOrder | None
    conditions: tuple[Condition, ...] = field(default=())

    @property
    def exact(self) -> bool:
        return self.order is None


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
)

# The portable row serves both modes on every device within WebGPU's guaranteed limits; it stays last.
TILED_ORDER = SummationOrder(chain=16, block=2, group=4)
TILED = Variant(
    "tiled-64x64x16",
    "gemm_tiled",
    (64, 64, 16),
    TILED_ORDER,
    (_PLAIN_TYPES, _INVOCATIONS_256, _TWO_TILES, _FOUR_BUFFERS, _ROUNDED_STEPS),
)

VARIANTS: tuple[Variant, ...] = (EXACT_F16, TILED)


def check_mode(mode: object) -> str:
    """`mode` itself; ValueError listing the modes for anything else."""
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    return str(mode)


def choose_variant(request: Request, forced: str | None = None, table: tuple[Variant, ...] = VARIANTS) -> Variant:
    """The first row whose conditions hold; or the one that `forced` (else the knob `variant`) names.

    Raises ValueError for a name that is not in the table, UnsupportedError where the forced row's conditions, or those of every
    row, do not hold: a forced row is never replaced by another.
    """
    check_mode(request.mode)
    name = knob("variant") if forced is None else forced
    if name is not None:
        rows = [row for row in table if row.name == name]
        if not rows:
            raise ValueError(f"unknown variant {name!r}; known: {', '.join(row.name for row in table)}")
    else:
        rows = list(table)
    reasons = []
    for row in rows:
        missing = [condition.wanted for condition in row.conditions if not condition.holds(request)]
        if not missing:
            return row
        reasons.append(f"{row.name} needs {' and '.join(missing)}")
    what = f"{request.type_a} x {request.type_b}, mode {request.mode}, on {request.capabilities.adapter}"
    raise UnsupportedError(f"no variant for {what}: {'; '.join(reasons)}")


def exact_obstacles(request: Request) -> list[str]:
    """What an exact product would have to be like for any GPU, and is not; empty where the device alone decides."""
    return [condition.wanted for condition in EXACT_ON_GPU if not condition.holds(request)]
