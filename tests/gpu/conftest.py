"""The native device of these tests. Where there is none they fail: lavapipe can be installed anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from py_gemm.gpu.device import Buffer
from py_gemm.gpu.devices.wgpu_native import WgpuDevice, request_native_device


class PoisonedDevice(WgpuDevice):
    """Every buffer starts full of NaN (all bits set, in every element type), so that whatever a kernel leaves out shows."""

    def _create(self, nbytes: int) -> Buffer:
        buffer = super()._create(nbytes)
        self._write(buffer.handle, 0, memoryview(b"\xff" * buffer.handle.size))
        return buffer


@pytest.fixture(scope="session")
def device() -> Iterator[WgpuDevice]:
    device = PoisonedDevice(request_native_device("wgpu").handle)
    yield device
    device.destroy()


@pytest.fixture
def doomed() -> Iterator[Any]:
    """A device of its own, for tests that destroy it."""
    device = request_native_device("wgpu")
    yield device
    device.destroy()
