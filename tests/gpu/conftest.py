"""The native device of these tests. Where there is none they fail: lavapipe can be installed anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from py_gemm.gpu.devices.wgpu_native import WgpuDevice, request_native_device
from tests.conformance.poison import poisoned


@pytest.fixture(scope="session")
def device() -> Iterator[WgpuDevice]:
    """Its buffers begin full of NaN or of 1e33."""
    device = request_native_device("wgpu")
    with poisoned(device):
        yield device
    device.destroy()


@pytest.fixture
def doomed() -> Iterator[Any]:
    """A device of its own, for tests that destroy it."""
    device = request_native_device("wgpu")
    yield device
    device.destroy()
