"""Long products and large operands through the front door: pieces, panels, progress, cancelling; the bits of the whole, always."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import py_gemm as pg
from py_gemm.configuration import KNOBS
from py_gemm.errors import UnsupportedError
from py_gemm.gpu.capabilities import Limits
from py_gemm.gpu.device import Finished
from py_gemm.gpu.pace import Pace
from py_gemm.gpu.pacing import Paced, submissions
from py_gemm.gpu.panels import Extent, cut_panels
from py_gemm.gpu.pieces import Piece, piece_sizes
from py_gemm.gpu.shaders import ShaderKey
from py_gemm.gpu.steps import Step
from py_gemm.prepare import forget_prepared


@pytest.fixture
def device() -> Iterator[Any]:
    """The shared device, its limits and its pace put back afterwards."""
    found = pg.request_device("wgpu")
    before = found.capabilities
    forget_prepared()
    yield found
    found.capabilities = before
    found._pace = None
    forget_prepared()


def limit(device: Any, **limits: int) -> None:
    device.capabilities = replace(device.capabilities, limits=replace(device.capabilities.limits, **limits))
    forget_prepared()


def slow(device: Any, flops: int) -> None:
    """Let `flops` be the work of one submission."""
    device.pace.rate = flops / 0.15
    device.pace.note = lambda *_: None
    assert device.pace.flops_in(150) <= max(flops, 1 << 20)


def real(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype(dtype)


# -- the pure part -----------------------------------------------------------------------------------------------------------


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 300), st.integers(1, 300), st.integers(1, 16)),
    st.integers(0, 500), st.integers(1, 70), st.one_of(st.none(), st.integers(1, 100_000)),
    st.one_of(st.none(), st.integers(1, 10**7)),
)  # fmt: skip
def test_a_piece_is_within_every_limit(
    sizes: tuple[int, int, int, int], k: int, most: int, elements: int | None, flops: int | None
) -> None:
    whole = Piece(*sizes)
    piece = piece_sizes(whole, k, (64, 64), most_workgroups=most, most_elements=elements, most_flops=flops)
    assert 1 <= piece.products <= whole.products
    assert 1 <= piece.rows <= whole.rows
    assert 1 <= piece.columns <= whole.columns
    assert 1 <= piece.ranges <= whole.ranges
    assert piece.products * piece.ranges <= most
    assert -(-piece.rows // 64) <= most
    assert -(-piece.columns // 64) <= most
    if elements is not None:
        assert piece.products * piece.rows * piece.columns <= elements
    if flops is not None and k:
        work = 2 * piece.products * piece.rows * piece.columns * k * piece.ranges // whole.ranges
        one_tile = piece.products == 1 and piece.rows <= 64 and piece.columns <= 64 and piece.ranges == 1
        assert work <= flops or one_tile


@given(st.lists(st.integers(0, 100), max_size=30), st.one_of(st.none(), st.integers(1, 200)))
def test_submissions_keep_the_order_and_the_budget(flops: list[int], most: int | None) -> None:
    steps = [Step(ShaderKey("x", ()), (), bytes([index]), (1, 1, 1), each) for index, each in enumerate(flops)]
    groups = submissions(steps, most)
    assert [step for group in groups for step in group] == steps
    for group in groups:
        assert most is None or sum(step.flops for step in group) <= most or sum(step.flops > 0 for step in group) == 1


@given(
    st.lists(st.integers(1, 6), max_size=2).map(tuple), st.integers(1, 400), st.integers(1, 400), st.integers(1, 50), st.data()
)  # fmt: skip
def test_panels_cover_the_result_once_and_fit(batch: Any, m: int, n: int, k: int, data: st.DataObject) -> None:
    has = [tuple(data.draw(st.booleans()) for _ in batch) for _ in range(2)]
    most = data.draw(st.integers(4 * k, 100 * k + 4000))
    operands = {
        "a": Extent((*has[0], True, False), 4 * k),
        "b": Extent((*has[1], False, True), 4 * k),
        "result": Extent((True,) * (len(batch) + 2), 4),
    }
    covered = np.zeros((*batch, m, n), int)
    for panel in cut_panels("gemm", (*batch, m, n), operands, Limits(max_storage_buffer_binding_size=most)):
        covered[tuple(slice(start, start + size) for start, size in panel)] += 1
        assert all(operand.bytes_of(panel) <= most for operand in operands.values())
        assert prod(size for _, size in panel) > 0
    assert (covered == 1).all()


def test_what_cannot_be_cut_is_refused_with_figures() -> None:
    operands = {"a": Extent((True, False), 4 * 5000)}
    small = Limits(max_storage_buffer_binding_size=10_000, max_buffer_size=19_999)
    with pytest.raises(UnsupportedError, match=r"operand a needs 20,000 bytes for one row .* holds 19,999 \(maxBufferSize\)"):
        cut_panels("gemm", (7, 7), operands, small)
    assert len(cut_panels("gemm", (7, 7), operands, replace(small, max_buffer_size=20_000))) == 7


def test_a_pace_is_learnt_from_runs_that_are_long_enough() -> None:
    pace = Pace(is_software=True)
    first = pace.rate
    pace.note(10**9, 0.001)
    pace.note(10**9, None)
    pace.note(10**6, 0.5)
    assert pace.rate == first
    pace.note(10**9, 0.1)
    assert pace.rate == (first + 10**10) / 2
    assert pace.flops_in(200) == 1 << (int(pace.rate / 5).bit_length() - 1)
    assert Pace(is_software=False).flops_in(200) <= Pace(is_software=False).rate / 5
    assert KNOBS["submission_ms"].default < 200


# -- on a device -------------------------------------------------------------------------------------------------------------

PRODUCTS = [
    ("one chain of groups", (300, 200, 100), {}),
    ("split k", (200, 150, 700), {}),
    ("few rows", (3, 500, 300), {}),
    ("few rows, B by columns", (3, 500, 300), {"transpose_b": True}),
    ("batch", (5, 70, 66, 40), {}),
    ("batch invariant", (200, 70, 300), {"batch_invariant": True}),
    ("A transposed", (130, 140, 300), {"transpose_a": True}),
]


def operands(sizes: Any, options: Any, dtype: Any) -> tuple[Any, Any, Any, Any]:
    *batch, m, n, k = sizes
    a = real(*batch, *((k, m) if options.get("transpose_a") else (m, k)), dtype=dtype)
    b = real(*batch, *((n, k) if options.get("transpose_b") else (k, n)), dtype=dtype, seed=1)
    return a, b, real(*batch, m, n, seed=2), real(n, seed=3)


@pytest.mark.parametrize(("sizes", "options"), [row[1:] for row in PRODUCTS], ids=[row[0] for row in PRODUCTS])
@pytest.mark.parametrize(
    ("dtype", "result"),
    [(np.float32, "float32"), (np.float16, "float16"), (ml_dtypes.bfloat16, "float32")],
    ids=["f32", "f16", "bf16"],
)
def test_cutting_changes_no_bit(device: Any, sizes: Any, options: Any, dtype: Any, result: str) -> None:
    a, b, c, bias = operands(sizes, options, dtype)
    arguments = {**options, "alpha": 0.7, "beta": 1.3, "bias": bias, "activation": "gelu_tanh", "dtype": result, "device": device}
    whole = pg.gemm(a, b, c, **arguments)

    slow(device, 1 << 20)
    assert np.array_equal(pg.gemm(a, b, c, **arguments), whole), "pieces"
    device._pace = None

    limit(device, max_compute_workgroups_per_dimension=30)
    assert np.array_equal(pg.gemm(a, b, c, **arguments), whole), "grids"

    smallest = max(sizes[-1] * dtype(0).itemsize, 4 * 64 * 64)
    limit(device, max_compute_workgroups_per_dimension=65_535, max_storage_buffer_binding_size=2 * smallest)
    assert np.array_equal(pg.gemm(a, b, c, **arguments), whole), "panels"
    assert pg.last_run().variant == "panels"  # type: ignore[union-attr]

    slow(device, 1 << 20)
    assert np.array_equal(pg.gemm(a, b, c, **arguments), whole), "pieces of panels"


def test_panels_take_every_layout_and_out(device: Any) -> None:
    a, b, c = real(2, 1, 40, 30), real(3, 30, 50), real(50)
    a_view, b_view = a[..., ::-1, :], np.asfortranarray(b)
    expected = pg.gemm(a_view, b_view, c, device=device)
    vector = pg.gemm(a[0, 0], b[0, :, 0], c=real(40), device=device)
    limit(device, max_storage_buffer_binding_size=3000)
    assert np.array_equal(pg.gemm(a_view, b_view, c, device=device), expected)
    assert np.array_equal(pg.gemm(a[0, 0], b[0, :, 0], c=real(40), device=device), vector)
    assert pg.last_run().variant == "panels"  # type: ignore[union-attr]
    out = np.full((2, 3, 80, 50), 7, np.float32)
    assert pg.gemm(a_view, b_view, c, out=out[:, :, ::2], device=device) is not None
    assert np.array_equal(out[:, :, ::2], expected)
    assert (out[:, :, 1::2] == 7).all()


def test_a_batch_of_70000(device: Any) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-3, 4, (70_000, 1, 2)).astype("f4"), rng.integers(-3, 4, (70_000, 2, 1)).astype("f4")
    assert np.array_equal(pg.matmul(a, b, device=device), a @ b)


def test_progress_is_told_and_others_run_between_the_pieces(device: Any) -> None:
    a, b = real(400, 300), real(300, 200)
    whole = pg.matmul(a, b, device=device)
    slow(device, 1 << 22)
    told: list[float] = []
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> Any:
        task = asyncio.create_task(others())
        try:
            return await pg.matmul_async(a, b, device=device, progress=told.append)
        finally:
            task.cancel()

    assert np.array_equal(asyncio.run(run()), whole)
    assert len(told) > 4
    assert told == sorted(set(told))
    assert told[-1] == 1.0
    assert turns >= len(told) - 1


@pytest.mark.parametrize("kind", ["cpu", "wgpu"])
def test_a_short_product_tells_its_end(kind: str) -> None:
    told: list[float] = []
    asyncio.run(pg.gemm_async(real(3, 3), real(3, 3), device=kind, progress=told.append))
    assert told == [1.0]


def test_a_cancelling_is_heard_where_every_part_has_ended_at_once(device: Any) -> None:
    told: list[float] = []

    async def run() -> None:
        def progress(fraction: float) -> None:
            told.append(fraction)
            if len(told) == 2:
                task.cancel()

        async def wait() -> None:
            await Paced(device, [Finished] * 9, [1] * 9, [], progress, learns=False)

        task = asyncio.create_task(wait())
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert len(told) == 2


@pytest.mark.parametrize("way", ["cancel", "raise"])
@pytest.mark.parametrize("panels", [False, True])
def test_a_long_product_can_be_stopped(device: Any, way: str, panels: bool) -> None:
    a, b = real(400, 300), real(300, 200)
    whole = pg.matmul(a, b, device=device)
    slow(device, 1 << 20)
    if panels:
        limit(device, max_storage_buffer_binding_size=40_000)
    out = np.full((400, 200), 7, np.float32)
    told: list[float] = []

    class EnoughError(Exception):
        pass

    async def run() -> None:
        def progress(fraction: float) -> None:
            told.append(fraction)
            if len(told) == 2:
                if way == "raise":
                    raise EnoughError
                task.cancel()

        task = asyncio.create_task(pg.matmul_async(a, b, out=out, device=device, progress=progress))
        try:
            await task
        finally:
            await asyncio.sleep(0.3)  # what was submitted before ends while there is still a loop

    free = device._pool.free_bytes
    with pytest.raises(EnoughError if way == "raise" else asyncio.CancelledError):
        asyncio.run(run())
    assert len(told) <= 3
    assert (out == 7).all()
    assert device._pool.free_bytes >= free, "the buffers are back in the pool"
    assert np.array_equal(pg.matmul(a, b, device=device), whole)


def test_chains_of_long_products_stay_on_the_device(device: Any) -> None:
    x = (real(100, 100) / 10).astype("f4")
    whole = pg.matmul(pg.matmul(pg.asarray(x, device=device), x), x).numpy()
    slow(device, 1 << 20)
    chained = pg.matmul(pg.matmul(pg.asarray(x, device=device), x), x)
    assert np.array_equal(chained.numpy(), whole)

    async def run() -> Any:
        first = await pg.matmul_async(pg.asarray(x, device=device), x)
        return await (await pg.matmul_async(first, x)).numpy_async()

    assert np.array_equal(asyncio.run(run()), whole)


def test_the_time_of_all_pieces_is_told(device: Any) -> None:
    a, b = real(400, 300), real(300, 200)
    slow(device, 1 << 22)
    pg.matmul(a, b, device=device)
    report = pg.last_run()
    assert report is not None
    assert report.seconds is not None
    if "timestamp-query" in device.capabilities.features:
        assert report.gpu_seconds is not None
        assert 0 < report.gpu_seconds <= report.seconds


def test_a_chain_of_twenty_has_one_read_back_and_allocates_nothing_the_second_time(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[tuple[int, int]] = []
    waits: list[int] = []
    execute = device.execute

    def counting(job: Any) -> Any:
        pending = execute(job)
        jobs.append((len(job.dispatches), len(job.reads)))
        wait = pending.wait

        def counted() -> None:
            waits.append(1)
            wait()

        pending.wait = counted
        return pending

    half, x = np.eye(70, dtype=np.float32) / 2, real(70, 70)

    def chain() -> Any:
        value, step = pg.asarray(x, device=device), pg.asarray(half, device=device)
        for _ in range(20):
            value = pg.gemm(value, step)
        return value.numpy()

    expected = x / np.float32(2**20)
    assert np.array_equal(chain(), expected)
    assert np.array_equal(chain(), expected)
    before = device.counts()
    monkeypatch.setattr(device, "execute", counting)
    assert np.array_equal(chain(), expected)
    assert device.counts() == before
    assert [reads for _, reads in jobs].count(1) == 1
    assert sum(dispatches > 0 for dispatches, _ in jobs) == 20
    assert len(waits) == 1
