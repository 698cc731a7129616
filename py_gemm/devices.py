"""Which devices there are, and which one a call takes. The choice is a pure function; asking for a device is not.

A device that was found is kept and shared; one that was lost is forgotten, so that the next call asks for a fresh one.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Coroutine
from typing import Any

from .configuration import DEVICE_KINDS, knob
from .cpu.gemm import CpuGemm
from .errors import SyncUnavailableError, UnsupportedError

IN_BROWSER = sys.platform == "emscripten"
GPU_KIND = "webgpu" if IN_BROWSER else "wgpu"


class CpuDevice:
    """WebAssembly SIMD kernels on this machine's processor: always there, never lost, never waits."""

    kind = "cpu"
    lost: str | None = None

    def __init__(self) -> None:
        self.gemm = CpuGemm()

    @property
    def capabilities(self) -> Any:
        """Plain data: the engine, whether it has relaxed SIMD, whether operands are read in place, the token in force."""
        return self.gemm.capabilities

    @property
    def info(self) -> dict[str, str]:
        return dict(self.gemm.info)

    @property
    def adapter(self) -> str:
        """One line for people."""
        return f"WebAssembly SIMD ({self.info['engine']})"

    @property
    def limits(self) -> dict[str, int]:
        """Bytes that WebAssembly can address (32-bit)."""
        return {"max_memory_bytes": 1 << 32}

    def can_wait(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<CpuDevice {', '.join(f'{name}={value}' for name, value in self.info.items())}>"


_devices: dict[str, Any] = {}
_refused: dict[str, UnsupportedError] = {}
_fork_trouble = ""


def cpu_device() -> CpuDevice:
    """The CPU road of this process."""
    device = _devices.get("cpu")
    if device is None:
        device = _devices["cpu"] = CpuDevice()
    return device


def forget_devices() -> None:
    """Drop every device and every refusal that is remembered (after a change of knobs, or for tests)."""
    _devices.clear()
    _refused.clear()


def forget_refusals() -> None:
    """Ask again for what was not to be had (after a change of knobs). Devices that are there stay, and so do their arrays."""
    _refused.clear()


def known_gpu() -> Any | None:
    """The GPU device of this process, if one was asked for and is not lost."""
    return _live(GPU_KIND)


def _live(kind: str) -> Any | None:
    device = _devices.get(kind)
    if device is not None and device.lost is not None:
        del _devices[kind]
        return None
    return device


def check_kind(kind: object) -> str:
    """`kind` itself; ValueError listing the known ones where it is none."""
    if not isinstance(kind, str) or kind not in DEVICE_KINDS:
        raise ValueError(f"unknown device kind {kind!r}; known: {', '.join(DEVICE_KINDS)}")
    return kind


def request_device(kind: str | None = None) -> Any:
    """The device of that kind: "webgpu" (in a browser), "wgpu", "vulkan", "metal" (outside one) or "cpu".

    None asks for the best there is: a GPU of hardware, else the CPU (a software adapter is slower than its WebAssembly
    kernels). UnsupportedError says why a kind is not to be had; SyncUnavailableError that this entry into Python cannot
    wait for the browser's answer.
    """
    kind = knob("device") if kind is None else check_kind(kind)
    if kind == "cpu":
        return cpu_device()
    if kind is None:
        gpu = _best_gpu_now()
        return gpu if gpu is not None else cpu_device()
    device = _live(kind)
    return device if device is not None else _ask_and_wait(kind)


async def request_device_async(kind: str | None = None) -> Any:
    """As `request_device`, from where Python cannot wait."""
    kind = knob("device") if kind is None else check_kind(kind)
    if kind == "cpu":
        return cpu_device()
    if kind is None:
        try:
            gpu = await _ask(GPU_KIND)
        except UnsupportedError:
            return cpu_device()
        return cpu_device() if gpu.capabilities.is_software else gpu
    device = _live(kind)
    return device if device is not None else await _ask(kind)


async def _ask(kind: str) -> Any:
    live = _live(kind)
    if live is not None:
        return live
    if kind in _refused:
        raise _refused[kind]
    try:
        if kind == "webgpu" and not IN_BROWSER:
            raise UnsupportedError("request_device: 'webgpu' is the GPU of a browser's page; outside the browser it is 'wgpu'")
        if kind == "webgpu":
            from .gpu.devices.browser import request_browser_device
            from .gpu.probe import probe_async
            from .gpu.tuned import adapter_key, preferred_row

            device: Any = await request_browser_device()
            await probe_async(device)
            device.prefer(preferred_row(device.capabilities, await device.recall(adapter_key(device.capabilities))))
        else:
            device = _ask_native(kind)
    except UnsupportedError as error:
        _refused[kind] = error
        raise
    _report_liberties(device)
    _devices[kind] = device
    return device


def _ask_native(kind: str) -> Any:
    if IN_BROWSER:
        raise UnsupportedError(f"request_device: {kind!r} is for Python outside the browser; in a page the GPU is 'webgpu'")
    if _fork_trouble:
        raise UnsupportedError(f"request_device: no GPU in this process: {_fork_trouble}")
    from .gpu.devices.wgpu_native import request_native_device
    from .gpu.probe import probe
    from .gpu.tuned import preferred_row, recall

    for each in {id(device): device for device in _devices.values()}.values():
        if each.lost is None and each.kind == "wgpu" and kind in ("wgpu", each.capabilities.backend):
            return each  # one adapter is one device, by whatever name it is asked for
    device = request_native_device(kind)
    probe(device)
    device.prefer(preferred_row(device.capabilities, recall(device.capabilities)))
    return device


def _report_liberties(device: Any) -> None:
    """Say what a driver does that WGSL allows and NumPy's users do not expect (the verdicts of gpu/probe.py)."""
    if device.capabilities.nan_inf is False:
        warnings.warn(f"{device.adapter} drops NaN or infinity on the way through a product", RuntimeWarning, stacklevel=4)
    if device.capabilities.order_kept is False:
        message = f"{device.adapter} flushes subnormals or reorders sums: its results differ from other devices' in the last bits"
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def _ask_and_wait(kind: str) -> Any:
    asking = _ask(kind)
    if not IN_BROWSER or kind != "webgpu":
        return _run_to_end(asking)
    from pyodide.ffi import can_run_sync, run_sync

    if not can_run_sync():
        asking.close()
        raise SyncUnavailableError(
            "request_device: this entry into Python cannot wait for the browser's answer; write instead:  "
            'device = await pg.request_device_async("webgpu")'
        )
    return run_sync(asking)


def _run_to_end(asking: Coroutine[Any, Any, Any]) -> Any:
    """Drive a coroutine that never really waits."""
    try:
        asking.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("asking for a native device does not wait")


def _best_gpu_now() -> Any | None:
    """A hardware GPU if it can be had without an awaitable; None if there is none, or if this entry cannot wait for it."""
    gpu = _live(GPU_KIND)
    if gpu is None:
        if GPU_KIND in _refused:
            return None
        try:
            gpu = _ask_and_wait(GPU_KIND)
        except (UnsupportedError, SyncUnavailableError):
            return None
    return None if gpu.capabilities.is_software else gpu


def takes_gpu(flops: int, least: int, *, cpu_only: bool) -> bool:
    """Whether a call with device=None is work for a hardware GPU, if there is one that the call can wait for. Pure.

    Small products stay on the CPU, where a round trip to the GPU costs more than the product; what only the CPU can do (float64,
    most exact products) always does. (A software adapter is slower than the CPU road and never taken unasked.)
    """
    return flops >= least and not cpu_only


def device_for(device: object, flops: int, *, cpu_only: bool) -> Any:
    """The device of a synchronous call: the one that is named, else by `takes_gpu`."""
    if isinstance(device, str):
        return request_device(device)
    if device is not None:
        return _checked(device)
    if knob("device") is not None and not cpu_only:
        return request_device(None)
    if not takes_gpu(flops, knob("gpu_min_flops"), cpu_only=cpu_only):
        return cpu_device()
    gpu = _best_gpu_now()
    return gpu if gpu is not None and gpu.can_wait() else cpu_device()


async def device_for_async(device: object, flops: int, *, cpu_only: bool) -> Any:
    """The device of a call that is awaited."""
    if isinstance(device, str):
        return await request_device_async(device)
    if device is not None:
        return _checked(device)
    if knob("device") is not None and not cpu_only:
        return await request_device_async(None)
    if not takes_gpu(flops, knob("gpu_min_flops"), cpu_only=cpu_only):
        return cpu_device()
    return await request_device_async(None)


def _checked(device: Any) -> Any:
    if not hasattr(device, "lost") or getattr(device, "kind", None) not in DEVICE_KINDS:  # CPU capabilities are worked out anew
        raise TypeError(f"device= takes a device, a kind ({', '.join(DEVICE_KINDS)}) or None, not {device!r}")
    return device


def gpu_state() -> str:
    """Why there is no GPU device yet, for `info`."""
    refused = _refused.get(GPU_KIND)
    return str(refused) if refused is not None else "not requested yet (pg.request_device())"


def _after_fork() -> None:
    """A GPU does not survive a fork: the child's calls, a new device's too, would wait for ever for threads of the parent."""
    global _fork_trouble
    for device in {id(each): each for each in _devices.values()}.values():
        if device.kind == "wgpu" and device.lost is None:
            _fork_trouble = "the process was forked after a GPU device was made; start workers with the method spawn"
            device.abandon(_fork_trouble)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
