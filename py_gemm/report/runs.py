"""What the last product was: device, kernel, time. Kept for pages and for the curious; no call depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run of the front door.

    device: its kind ("cpu", "webgpu", "wgpu"); adapter: what it calls itself;
    variant: the row that ran (`gemm_f32_6x8_relaxed`, `tiled-64x64x16`); flops: 2 m n k batch;
    seconds: host clock, from the start of the call on the device until its result was read or awaited (None while it is pending);
    gpu_seconds: the device's own clock, where it has one (browsers round it to 0.1 ms). Of a DeviceArray it arrives with the next
    read-back, or when the array is awaited.
    threads: of the processor that computed (None on a GPU).
    """

    device: str
    adapter: str
    variant: str
    flops: int
    seconds: float | None
    gpu_seconds: float | None
    threads: int | None = None

    @property
    def gflops(self) -> float | None:
        """10^9 operations a second, by the host's clock."""
        return self.flops / self.seconds / 1e9 if self.seconds else None

    @property
    def clock(self) -> str:
        """Whose time is the best that is known: "device", "device, in steps of 0.1 ms" in a page, "host"; "none" while pending."""
        if self.gpu_seconds is not None:
            return "device, in steps of 0.1 ms" if self.device == "webgpu" else "device"
        return "none" if self.seconds is None else "host"


@dataclass(slots=True, eq=False)
class Run:
    """A run that may not have ended; `pending` is asked for the device's time when somebody wants it."""

    device: Any
    variant: str
    flops: int
    started: float = 0.0
    seconds: float | None = None
    gpu_seconds: float | None = None
    threads: int | None = None
    pending: Any = None

    def ended(self) -> None:
        """Its result was read or awaited just now."""
        if self.seconds is None:
            self.seconds = perf_counter() - self.started

    def report(self) -> RunReport:
        """What is known by now."""
        gpu_seconds = self.gpu_seconds if self.pending is None else self.pending.gpu_seconds
        return RunReport(self.device.kind, self.device.adapter, self.variant, self.flops, self.seconds, gpu_seconds, self.threads)


_last: Run | None = None


def remember(
    device: Any, variant: str, flops: int, seconds: float | None, gpu_seconds: float | None, threads: int | None = None
) -> None:
    """Note a run that has ended; the report is made only when somebody asks for it."""
    global _last
    _last = Run(device, variant, flops, 0.0, seconds, gpu_seconds, threads)


def remember_pending(device: Any, variant: str, flops: int, started: float, pending: Any) -> Run:
    """Note a run whose result stays on the device."""
    global _last
    _last = Run(device, variant, flops, started, pending=pending)
    return _last


def last_run() -> RunReport | None:
    """The report of the last `matmul` or `gemm` in this process; None before the first."""
    return None if _last is None else _last.report()
