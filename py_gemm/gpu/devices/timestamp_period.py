"""A workaround that lives alone: how long one tick of a wgpu timestamp is.

wgpu-py 0.32 hands out raw ticks and has no public call for their length (https://github.com/pygfx/wgpu-py/issues/656), so this
asks wgpu-native itself. It costs one private call a device, and goes when wgpu-py offers the period.
"""

from __future__ import annotations

from typing import Any


def timestamp_period(queue: Any) -> float:
    """Nanoseconds of one tick."""
    from wgpu.backends.wgpu_native import lib

    return float(lib.wgpuQueueGetTimestampPeriod(queue._internal))
