"""`tune`: finds the fastest float32 kernel of a device and remembers it, in the user's cache directory or in IndexedDB."""

from __future__ import annotations

from typing import Any

from . import devices
from .errors import SyncUnavailableError, UnsupportedError
from .gpu.tuned import adapter_key, keep
from .gpu.tuner import Tuner, Tuning
from .prepare import forget_prepared


def tune(device: Any = None, *, remember: bool = True) -> Tuning:
    """Measure the float32 kernels that `device` (a device, a kind, or None: the GPU there is) can run; use the fastest from now on.

    A candidate is verified before it may win. Takes seconds to a minute. The winner is remembered for this adapter, unless
    `remember` is false, and later processes take it up. Only products of mode "fast" change, and those in their last bits.
    Returns the rates (10^9 operations a second), printable. Raises UnsupportedError where there is no GPU, SyncUnavailableError
    where Python cannot wait, OSError where the cache cannot be written.
    """
    device = _gpu(devices.request_device(device if device is not None else devices.GPU_KIND) if _is_kind(device) else device)
    if not device.can_wait():
        raise SyncUnavailableError(
            "tune: this entry into Python cannot wait for the GPU; write instead:  found = await pg.tune_async()"
        )
    tuner = Tuner(device)
    for pending in tuner.work():
        pending.wait()
    if remember and device.kind == "webgpu":
        from pyodide.ffi import run_sync

        run_sync(device.remember(adapter_key(device.capabilities), tuner.tuning.winner))
    return _adopt(device, tuner.tuning, remember)


async def tune_async(device: Any = None, *, remember: bool = True) -> Tuning:
    """`tune`, awaitable."""
    device = await devices.request_device_async(device if device is not None else devices.GPU_KIND) if _is_kind(device) else device
    tuner = Tuner(_gpu(device))
    for pending in tuner.work():
        await pending
    if remember and device.kind == "webgpu":
        await device.remember(adapter_key(device.capabilities), tuner.tuning.winner)
    return _adopt(device, tuner.tuning, remember)


def _is_kind(device: Any) -> bool:
    return device is None or isinstance(device, str)


def _gpu(device: Any) -> Any:
    if device.kind == "cpu":
        raise UnsupportedError("tune: the CPU's kernels have nothing to tune; name a GPU")
    return device


def _adopt(device: Any, tuning: Tuning, remember: bool) -> Tuning:
    device.prefer(tuning.winner)
    forget_prepared()
    if remember and device.kind != "webgpu":
        keep(device.capabilities, tuning.winner)
    return tuning
