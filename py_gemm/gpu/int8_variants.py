"""The table of int8 kernels, and the one function that picks a row. Pure: reads capabilities and the shape, touches no device.

Every row gives the same integers, so there is no order of summation to state and one row serves every mode. The first row whose
conditions all hold is taken: the kernel for few rows before the tile, the dot product instruction before plain integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import UnsupportedError
from .capabilities import Capabilities
from .variants import configured_variant

# The WGSL language feature that brings dot4I8Packed.
DOT_FEATURE = "packed_4x8_integer_dot_product"

# Rows of A up to which B is streamed once for every four of them.
FEW_ROWS = 16


@dataclass(frozen=True, slots=True)
class Int8Request:
    """All that the choice may depend on. b_by_rows: neighbours in B's memory are columns (stored K x N)."""

    capabilities: Capabilities
    m: int
    b_by_rows: bool


@dataclass(frozen=True, slots=True)
class Int8Condition:
    """`holds` decides; `wanted` says in words what the request would have to offer."""

    wanted: str
    holds: Callable[[Int8Request], bool]


@dataclass(frozen=True, slots=True)
class Int8Variant:
    """One row. `tile`: rows and columns of a workgroup. `kernel`: the shader in gpu/shaders.py, before "_sum" or "_bytes"."""

    name: str
    kernel: str
    tile: tuple[int, int]
    conditions: tuple[Int8Condition, ...]

    @property
    def is_skinny(self) -> bool:
        return self.tile[0] < FEW_ROWS


def _invocations(count: int) -> Int8Condition:
    def holds(request: Int8Request) -> bool:
        limits = request.capabilities.limits
        return min(limits.max_compute_invocations_per_workgroup, limits.max_compute_workgroup_size_x) >= count

    return Int8Condition(f"{count} invocations in a workgroup (maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX)", holds)


def _workgroup_memory(nbytes: int) -> Int8Condition:
    return Int8Condition(
        f"{nbytes:,} bytes of workgroup memory (maxComputeWorkgroupStorageSize)",
        lambda request: request.capabilities.limits.max_compute_workgroup_storage_size >= nbytes,
    )


_DOT = Int8Condition(
    f"the WGSL language feature {DOT_FEATURE}", lambda request: DOT_FEATURE in request.capabilities.language_features
)
_FOUR_BUFFERS = Int8Condition(
    "4 storage buffers (maxStorageBuffersPerShaderStage)",
    lambda request: request.capabilities.limits.max_storage_buffers_per_shader_stage >= 4,
)
_FEW = (
    Int8Condition(f"at most {FEW_ROWS} rows of A", lambda request: request.m <= FEW_ROWS),
    Int8Condition("B stored K x N", lambda request: request.b_by_rows),
)
_SKINNY = (*_FEW, _invocations(128), _workgroup_memory(16 * 4 * 32 * 4), _FOUR_BUFFERS)
# Two tiles of 16 x 17 groups of 16 bytes, and 128 sums of lanes.
_TILED = (_invocations(256), _workgroup_memory(2 * 16 * 17 * 16 + 128 * 4), _FOUR_BUFFERS)

INT8_VARIANTS: tuple[Int8Variant, ...] = (
    Int8Variant("int8-skinny-4x32-16slices-dot4", "int8_skinny_dot4", (4, 32), (*_SKINNY, _DOT)),
    Int8Variant("int8-skinny-4x32-16slices", "int8_skinny_plain", (4, 32), _SKINNY),
    Int8Variant("int8-tiled-64x64x64-dot4", "int8_tiled_dot4", (64, 64), (*_TILED, _DOT)),
    Int8Variant("int8-tiled-64x64x64", "int8_tiled_plain", (64, 64), _TILED),
)
SKINNY_VARIANTS = tuple(row for row in INT8_VARIANTS if row.is_skinny)
TILED_VARIANTS = tuple(row for row in INT8_VARIANTS if not row.is_skinny)


def choose_int8_variant(
    request: Int8Request, forced: str | None = None, table: tuple[Int8Variant, ...] = INT8_VARIANTS
) -> Int8Variant:
    """The first row of `table` whose conditions hold; or the one that `forced` (else the knob `variant`) names.

    Raises ValueError for a name that is not in the table, UnsupportedError where the forced row's conditions, or those of every
    row, do not hold.
    """
    forced = configured_variant(integer=True) if forced is None else forced
    rows = [row for row in table if forced in (None, row.name)]
    if not rows:
        raise ValueError(f"unknown int8 variant {forced!r}; known: {', '.join(row.name for row in table)}")
    reasons = []
    for row in rows:
        missing = [condition.wanted for condition in row.conditions if not condition.holds(request)]
        if not missing:
            return row
        reasons.append(f"{row.name} needs {' and '.join(missing)}")
    raise UnsupportedError(f"no int8 variant on {request.capabilities.adapter}: {'; '.join(reasons)}")
