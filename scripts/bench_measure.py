"""What the benchmark measures in a page besides py_gemm.bench: exact products, and transfers to and from a GPU."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np

import py_gemm as pg
import py_gemm.exact as er


def interleaved(repeat: int, **calls: Callable[[], object]) -> dict[str, float]:
    """Seconds of each call: each is warmed twice, then all take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for turn in range(repeat + 1):
        for name, call in calls.items():
            started = perf_counter()
            call()
            if turn:
                times[name].append(perf_counter() - started)
    return {name: median(each) for name, each in times.items()}


def exact(repeat: int, size: int = 512) -> dict[str, float]:
    """Seconds of a correctly rounded float32 product, by the reference and by `mode="exact"`, and of NumPy's `@`."""
    a, b = np.random.default_rng(0).standard_normal((2, size, size)).astype(np.float32)
    return interleaved(
        repeat,
        reference=lambda: er.matmul(a, b).rounded,
        mode=partial(pg.matmul, a, b, mode="exact", device="cpu"),
        numpy=partial(np.matmul, a, b),
    )


BARE = """
({
  async up(device, buffer, proxy) {
    const view = proxy.getBuffer("u8");
    device.queue.writeBuffer(buffer, 0, view.data);
    view.release();
    await device.queue.onSubmittedWorkDone();
  },
  async down(device, buffer, staging, proxy, bytes) {
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, bytes);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(1);
    const view = proxy.getBuffer("u8");
    view.data.set(new Uint8Array(staging.getMappedRange()));
    view.release();
    staging.unmap();
  },
})
"""


async def transfers(repeat: int, elements: int = 4 << 20) -> dict[str, dict[str, float]]:
    """Milliseconds to bring 16 MB to the GPU and back: py_gemm's way, and the same in bare JavaScript on Pyodide's heap."""
    import js
    from pyodide.code import run_js
    from pyodide.ffi import to_js

    device = await pg.request_device_async("webgpu")
    bare = run_js(BARE)
    raw = device.handle
    host = np.random.default_rng(0).standard_normal(elements).astype(np.float32)
    landing = np.empty_like(host)
    describe = {"size": host.nbytes, "usage": 1 | 8}  # MAP_READ | COPY_DST
    staging = raw.createBuffer(to_js(describe, dict_converter=js.Object.fromEntries))
    placed = pg.asarray(host, device=device)
    target = device.create_buffer(host.nbytes)

    async def ours_up() -> None:
        made = pg.asarray(host, device=device)
        await raw.queue.onSubmittedWorkDone()
        made.release()

    async def bare_up() -> None:
        await bare.up(raw, target.handle, host.view(np.uint8))

    async def ours_down() -> None:
        await placed.numpy_async()

    async def bare_down() -> None:
        await bare.down(raw, target.handle, staging, landing.view(np.uint8), host.nbytes)

    pairs: dict[str, dict[str, Callable[[], Awaitable[None]]]] = {
        "upload": {"ours": ours_up, "bare": bare_up},
        "read-back": {"ours": ours_down, "bare": bare_down},
    }
    results = {}
    for way, calls in pairs.items():
        times: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(repeat + 2):
            for name, call in calls.items():
                started = perf_counter()
                await call()
                if turn >= 2:
                    times[name].append(perf_counter() - started)
        results[way] = {name: median(each) * 1e3 for name, each in times.items()}
    return results
