"""What the last product was: device, kernel, time. Kept for pages and for the curious; no call depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run of the front door.

    device: its kind ("cpu", "webgpu", "wgpu"); adapter: what it calls itself;
    variant: the row that ran (`gemm_f32_6x8_relaxed`, `tiled-64x64x16`); flops: 2 m n k batch;
    seconds: host clock, from the start of the call on the device to its result (None while a DeviceArray is pending);
    gpu_seconds: the device's own clock, where it has one (browsers round it to 0.1 ms);
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


_last: tuple[Any, str, int, float | None, float | None, int | None] | None = None


def remember(
    device: Any, variant: str, flops: int, seconds: float | None, gpu_seconds: float | None, threads: int | None = None
) -> None:
    """Note a run; the report is made only when somebody asks for it."""
    global _last
    _last = (device, variant, flops, seconds, gpu_seconds, threads)


def last_run() -> RunReport | None:
    """The report of the last `matmul` or `gemm` in this process; None before the first."""
    if _last is None:
        return None
    device, variant, flops, seconds, gpu_seconds, threads = _last
    return RunReport(device.kind, device.adapter, variant, flops, seconds, gpu_seconds, threads)
