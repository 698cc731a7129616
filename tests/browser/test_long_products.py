"""Long products, chains and tuning inside a page: pieces with progress, cancelling, one read-back, a winner that is remembered."""

from __future__ import annotations

from typing import Any

from tests.browser.harness import PyodideHost

SETUP = """
import asyncio
import numpy as np
import py_gemm as pg
from py_gemm.prepare import forget_prepared
gpu = await pg.request_device_async("webgpu")
"""

# 2^21 operations a submission: a product of 2 * 96 * 200 * 130 goes in several.
SLOW = """
gpu._pace = None
gpu.pace.rate, gpu.pace.note = (1 << 21) / 0.15, lambda *_: None
forget_prepared()
a, b = (np.random.default_rng(seed).standard_normal(shape).astype("f4") for seed, shape in ((1, (192, 200)), (2, (200, 130))))
"""
AT_ONCE = """
gpu._pace = None
forget_prepared()
"""


def test_pieces_progress_and_others_between_them(pyodide_page: PyodideHost) -> None:
    code = """
told, turns = [], 0
async def others():
    global turns
    while True:
        turns += 1
        await asyncio.sleep(0)
task = asyncio.ensure_future(others())
cut = await pg.matmul_async(a, b, device=gpu, progress=told.append)
task.cancel()
seconds = pg.last_run().gpu_seconds
"""
    end = """
whole = await pg.matmul_async(a, b, device=gpu)
[bool(np.array_equal(cut, whole)), told, turns >= len(told) - 1, seconds is None or seconds >= 0]
"""
    same, told, others, timed = pyodide_page.run(SETUP + SLOW + code + AT_ONCE + end)
    assert same
    assert len(told) > 3
    assert told == sorted(set(told))
    assert told[-1] == 1.0
    assert others
    assert timed


def test_a_long_product_is_cancelled(pyodide_page: PyodideHost) -> None:
    code = """
out, told = np.full((192, 130), 7, np.float32), []
def progress(fraction):
    told.append(fraction)
    if len(told) == 2:
        task.cancel()
task = asyncio.ensure_future(pg.matmul_async(a, b, out=out, device=gpu, progress=progress))
try:
    await task
    ended = "whole"
except asyncio.CancelledError:
    ended = "cancelled"
"""
    end = """
after = await pg.matmul_async(a, b, device=gpu)
[ended, len(told), bool((out == 7).all()), bool(np.allclose(after, a @ b, atol=1e-4))]
"""
    assert pyodide_page.run(SETUP + SLOW + code + AT_ONCE + end) == ["cancelled", 2, True, True]


def test_panels_have_the_bits_of_the_whole(pyodide_page: PyodideHost) -> None:
    code = """
from dataclasses import replace
a, b = (np.random.default_rng(seed).standard_normal(shape).astype("f2") for seed, shape in ((1, (150, 140)), (2, (140, 130))))
whole = await pg.matmul_async(a, b, device=gpu, dtype="float32")
before = gpu.capabilities
gpu.capabilities = replace(before, limits=replace(before.limits, max_storage_buffer_binding_size=20000))
forget_prepared()
cut = await pg.matmul_async(a, b, device=gpu, dtype="float32")
variant = pg.last_run().variant
gpu.capabilities = before
forget_prepared()
[variant, bool(np.array_equal(cut, whole))]
"""
    assert pyodide_page.run(SETUP + code) == ["panels", True]


def test_a_chain_of_twenty_allocates_nothing_the_second_time(pyodide_page: PyodideHost) -> None:
    """One read-back and one await each time."""
    code = """
x, half = np.random.default_rng(3).standard_normal((40, 40)).astype("f4"), np.eye(40, dtype=np.float32) / 2
async def chain():
    value, step = pg.asarray(x, device=gpu), pg.asarray(half, device=gpu)
    for _ in range(20):
        value = pg.gemm(value, step)
    return await value.numpy_async()
first, second = await chain(), await chain()
before = gpu.counts()
third = await chain()
[gpu.counts() == before, *(bool(np.array_equal(each, x / np.float32(2**20))) for each in (first, second, third))]
"""
    assert pyodide_page.run(SETUP + code) == [True] * 4


def tuned(host: PyodideHost) -> Any:
    code = """
from py_gemm import devices
from py_gemm.gpu import tuner
from py_gemm.gpu.tuned import adapter_key, shipped_row
from py_gemm.gpu.variants import REGISTER_ROWS, TILED
tuner.VARIANTS, tuner.SOFTWARE_CUBES, tuner.MARGIN = (REGISTER_ROWS[0], TILED), (64,), 0.0
first = gpu.capabilities.preferred == shipped_row(gpu.capabilities)
found = await pg.tune_async()
devices.forget_devices()
fresh = await pg.request_device_async("webgpu")
await gpu._bridge.remember(adapter_key(gpu.capabilities), "")
devices.forget_devices()
forget_prepared()
every = sorted(found.rates) == sorted(row.name for row in tuner.VARIANTS)
[first, every, fresh is gpu, fresh.capabilities.preferred == found.winner]
"""
    return host.run(SETUP + code)


def test_a_winner_is_remembered_by_the_browser(pyodide_worker: PyodideHost) -> None:
    assert tuned(pyodide_worker) == [True, True, False, True]


def test_deep_sums(pyodide_page: PyodideHost) -> None:
    """Sums that several dispatches make: of the preferred row, of the tile, and exact."""
    code = """
found = []
for m, k, name, mode in ((6, 33_000, "f4", "fast"), (2, 300_001, "f2", "deterministic"), (6, 9_001, "f2", "exact")):
    source = np.random.default_rng(k)
    a, b = source.integers(-3, 4, (m, k)).astype(name), source.integers(-3, 4, (k, 5)).astype(name)
    d = await pg.matmul_async(a, b, device=gpu, mode=mode, dtype="float32")
    found.append(bool(np.array_equal(d, a.astype("i8") @ b.astype("i8"))))
found
"""
    assert pyodide_page.run(SETUP + code) == [True, True, True]
