"""What a device can do, as plain data: the only thing that variants and plans may depend on.

Imports no device. Anything here can be made up in a test. Nothing is guessed from a vendor's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that decide something, in bytes or counts. The defaults are those that WebGPU guarantees."""

    max_storage_buffer_binding_size: int = 128 << 20
    max_buffer_size: int = 256 << 20
    max_compute_workgroups_per_dimension: int = 65_535
    max_compute_invocations_per_workgroup: int = 256
    max_compute_workgroup_size_x: int = 256
    max_compute_workgroup_storage_size: int = 16_384
    max_storage_buffers_per_shader_stage: int = 8

    @property
    def largest_bound(self) -> int:
        """The bytes of the largest buffer that can be bound whole; some drivers bind more than a buffer of theirs may have."""
        return min(self.max_storage_buffer_binding_size, self.max_buffer_size)

    @staticmethod
    def of(limits: Mapping[str, int]) -> Limits:
        """From a device's own table, whose names may be in camel case (browser) or hyphenated (wgpu); others are left out."""
        spelled = {_plain(name): value for name, value in limits.items()}
        names = {row.name: spelled.get(_plain(row.name)) for row in fields(Limits)}
        return Limits(**{name: int(value) for name, value in names.items() if value is not None})


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One device.

    backend: the API under it ("webgpu", "vulkan", "metal", "d3d12", "opengl").
    is_software: it runs on the CPU (a fallback adapter, SwiftShader, llvmpipe): right, but slower than the CPU road.
    features, language_features: names as the device gives them (WebGPU's and WGSL's).
    nan_inf, order_kept: verdicts of gpu/probe.py, None until it has run: whether NaN and infinity come through the kernel, and
    whether sums keep the order that the kernel states, with subnormal halves unflushed.
    preferred: the tuned row of gpu/variants.py that is the fastest here, as far as is known.
    """

    backend: str
    adapter: str
    is_software: bool = False
    limits: Limits = Limits()
    features: frozenset[str] = frozenset()
    language_features: frozenset[str] = frozenset()
    nan_inf: bool | None = None
    order_kept: bool | None = None
    preferred: str | None = None


_SOFTWARE = ("swiftshader", "llvmpipe", "lavapipe", "softpipe", "basic render")


def looks_like_software(words: Iterable[str]) -> bool:
    """Whether an adapter's own description names one of the renderers that run on the CPU."""
    text = " ".join(words).lower()
    return any(name in text for name in _SOFTWARE)
