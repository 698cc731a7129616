"""A DeviceArray may be released while an awaitable call of it waits: the call keeps the memory until it is over."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import py_gemm as pg
from py_gemm.gpu.device import Buffer


@pytest.fixture
def device() -> Iterator[Any]:
    """The shared device, its pace put back afterwards."""
    found = pg.request_device("wgpu")
    yield found
    found._pace = None


def held(buffer: Buffer | None) -> bool:
    return buffer is not None and buffer.allocation is not None


@pytest.mark.parametrize("when", ["before its turn", "between its pieces"])
def test_an_operand_is_released_while_a_call_waits(device: Any, when: str) -> None:
    x, y, c = (np.random.default_rng(seed).integers(-3, 4, (160, 160)).astype("f4") for seed in range(3))
    a, b, d = (pg.asarray(each, device=device) for each in (x, y, c))
    device.pace.rate = (1 << 20) / 0.15
    device.pace.note = lambda *_: None
    buffers = [each._buffer for each in (a, b, d)]
    told: list[float] = []

    def release() -> None:
        for each in (a, b, d):
            each.release()
        assert all(held(each) for each in buffers), "the call needs them still"

    def progress(fraction: float) -> None:
        told.append(fraction)
        if when == "between its pieces" and len(told) == 1:
            release()

    async def run() -> Any:
        task = asyncio.create_task(pg.gemm_async(a, b, d, progress=progress))
        if when == "before its turn":
            release()
        return await (await task).numpy_async()

    assert np.array_equal(asyncio.run(run()), x @ y + c)
    assert len(told) > 2
    gc.collect()
    assert not any(held(each) for each in buffers), "nobody holds them any more"
    for each in (a, b, d):
        with pytest.raises(ValueError, match="released"):
            each.numpy()


def test_integers_and_the_cpu_too(device: Any) -> None:
    x = np.random.default_rng(1).integers(-100, 100, (20, 20)).astype("i1")

    async def run(a: Any, product: Any) -> Any:
        task = asyncio.create_task(product(a, a))
        a.release()
        return await (await task).numpy_async()

    assert np.array_equal(asyncio.run(run(pg.asarray(x, device=device), pg.int8_gemm_async)), x.astype("i4") @ x.astype("i4"))
    wide = x.astype("f4")
    for place in ("cpu", device):
        assert np.array_equal(asyncio.run(run(pg.asarray(wide, device=place), pg.matmul_async)), wide @ wide)


def test_a_call_that_nobody_awaits_lets_go(device: Any) -> None:
    a = pg.asarray(np.ones((5, 5), "f4"), device=device)
    buffer = a._buffer
    call = pg.matmul_async(a, a)
    a.release()
    assert held(buffer)
    call.close()
    del call
    gc.collect()
    assert not held(buffer)


def test_a_released_array_is_refused_and_out_keeps_its_name(device: Any) -> None:
    a, out = pg.asarray(np.ones((5, 5), "f4"), device=device), pg.asarray(np.zeros((5, 5), "f4"), device=device)
    assert asyncio.run(pg.matmul_async(a, a, out=out)) is out
    assert np.array_equal(out.numpy(), np.full((5, 5), 5))
    with pytest.raises(pg.AliasError, match="out is a itself"):
        asyncio.run(pg.matmul_async(a, a, out=a))
    assert asyncio.run(pg.gemm_async(a, a, out, out=out)) is out
    packed = pg.prepack(np.ones((5, 5), "f4"), device=device)
    assert np.array_equal(asyncio.run(pg.matmul_async(np.ones((5, 5), "f4"), packed)), np.full((5, 5), 5))
    a.release()
    with pytest.raises(ValueError, match="released"):
        asyncio.run(pg.matmul_async(a, np.ones((5, 5), "f4")))
