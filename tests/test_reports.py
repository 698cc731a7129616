"""What is told of a run: the kernel, and the times of the device or of the host, also where the result stays on the device."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import py_gemm as pg


@pytest.fixture
def device() -> Iterator[Any]:
    """The shared device, its clock and its pace put back afterwards."""
    found = pg.request_device("wgpu")
    clock = found._clock
    yield found
    found._clock = clock
    found._pace = None


def last() -> pg.RunReport:
    report = pg.last_run()
    assert report is not None
    return report


def offered(device: Any) -> bool:
    return "timestamp-query" in device.capabilities.features


def test_a_result_on_the_device_has_its_time_once_it_is_read(device: Any) -> None:
    x = pg.asarray(np.ones((90, 90), "f4"), device=device)
    y = pg.matmul(x, x)
    assert (last().seconds, last().gpu_seconds, last().clock, last().gflops) == (None, None, "none", None)
    y.numpy()
    report = y.report()
    assert report == last()
    assert report is not None
    assert report.seconds is not None
    assert (report.gpu_seconds is not None) == offered(device)
    assert report.clock == ("device" if offered(device) else "host")
    assert report.variant.startswith(("tiled", "register", "scalar"))
    if report.gpu_seconds is not None:
        assert 0 < report.gpu_seconds <= report.seconds
    seconds = report.seconds
    y.numpy()
    assert last().seconds == seconds, "the first reading ends the run"
    assert x.report() is None


def test_one_read_back_brings_the_times_of_a_chain(device: Any) -> None:
    x = pg.asarray(np.eye(64, dtype="f4"), device=device)
    chain = [x]
    for _ in range(20):
        chain.append(pg.gemm(chain[-1], x))
    assert all(each.report().gpu_seconds is None for each in chain[1:])  # type: ignore[union-attr]
    chain[-1].numpy()
    times = [each.report().gpu_seconds for each in chain[1:]]  # type: ignore[union-attr]
    assert all((0 < each < 10) if each is not None else not offered(device) for each in times)


def test_awaiting_asks_for_the_time(device: Any) -> None:
    x = np.ones((70, 70), "f4")

    async def run() -> None:
        y = await pg.matmul_async(pg.asarray(x, device=device), x)
        await y
        assert last().clock == ("device" if offered(device) else "host")
        out = pg.asarray(np.zeros((70, 70), "f4"), device=device)
        await pg.matmul_async(x, x, out=out)
        await out
        assert out.report() == last()
        assert last().clock == ("device" if offered(device) else "host")

    asyncio.run(run())


def test_without_timestamps_the_host_tells_the_time(device: Any) -> None:
    device._clock = None
    x = pg.asarray(np.ones((70, 70), "f4"), device=device)
    y = pg.matmul(x, x)
    assert last().clock == "none"
    y.numpy()
    assert last().gpu_seconds is None
    assert last().clock == "host"
    pg.matmul(np.ones((3, 3)), np.ones((3, 3)), device="cpu")
    assert last().clock == "host"


def test_a_long_product_on_the_device_has_the_time_of_all_its_pieces(device: Any) -> None:
    x = np.ones((300, 200), "f4")
    device.pace.rate = (1 << 20) / 0.15
    device.pace.note = lambda *_: None
    y = pg.matmul(pg.asarray(x, device=device), x.T)
    parts = y._pending._parts
    assert len(parts) > 4
    y.numpy()
    if offered(device):
        assert last().gpu_seconds == pytest.approx(sum(each.gpu_seconds for each in parts))


def test_a_page_s_clock_is_said_to_be_coarse() -> None:
    report = pg.RunReport("webgpu", "any", "tiled-64x64x16", 100, 0.5, 0.0)
    assert report.clock == "device, in steps of 0.1 ms"
