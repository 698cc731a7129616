"""The front door and devices: which one is taken, arrays that stay there, devices that are lost, threads, forks and knobs."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import py_gemm as pg
from py_gemm import arrays, configuration, devices
from py_gemm.prepare import forget_prepared
from tests.front_door import ones, run


@pytest.fixture(params=["cpu", "wgpu"])
def device(request: pytest.FixtureRequest) -> Any:
    return pg.request_device(request.param)


def test_small_products_and_what_only_the_cpu_can_do_stay_there() -> None:
    least = configuration.KNOBS["gpu_min_flops"].default
    assert not devices.takes_gpu(least - 1, least, cpu_only=False)
    assert devices.takes_gpu(least, least, cpu_only=False)
    assert not devices.takes_gpu(least, least, cpu_only=True)
    pg.matmul(ones(2, 2), ones(2, 2))
    report = pg.last_run()
    assert report is not None
    assert report.device == "cpu"
    assert report.flops == 16
    assert report.seconds is not None
    assert report.variant.startswith("gemv_f32")


def test_a_software_adapter_is_not_taken_unasked() -> None:
    wgpu = pg.request_device("wgpu")
    if wgpu.capabilities.is_software:
        assert pg.request_device().kind == "cpu"
    else:
        assert pg.request_device() is wgpu


def test_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "_environment", {})
    monkeypatch.setenv("PY_GEMM_DEVICE", "toaster")
    with pytest.warns(RuntimeWarning, match="PY_GEMM_DEVICE='toaster' is ignored"):
        assert configuration.knob("device") is None
    monkeypatch.setattr(configuration, "_environment", {})
    monkeypatch.setenv("PY_GEMM_DEVICE", "wgpu")
    assert configuration.knob("device") == "wgpu"
    try:
        pg.configure(device="cpu")
        assert pg.request_device().kind == "cpu"
        monkeypatch.setattr(configuration, "_environment", {"token": "no_such_token", "variant": "no_such_variant"})
        forget_prepared()
        with pytest.raises(ValueError, match="unknown token 'no_such_token'; known: relaxed, "):
            pg.matmul(ones(2, 2), ones(2, 2))
        for product in (pg.matmul, pg.int8_gemm):
            x = np.ones((2, 2), "f4" if product is pg.matmul else "i1")
            with pytest.raises(ValueError, match=r"unknown variant 'no_such_variant'; known: .*tiled-64x64x16, .*int8-tiled"):
                product(x, x, device="wgpu")
    finally:
        pg.configure(device=None, token=None, variant=None)
        forget_prepared()


def test_async_twins(device: Any) -> None:
    async def both() -> tuple[np.ndarray, np.ndarray, Any]:
        placed = await pg.asarray_async(ones(2, 3), device=device)
        return (
            await pg.matmul_async(ones(2, 3), ones(3, 2), device=device),
            await pg.gemm_async(ones(2, 3), ones(3, 2), ones(2), device=device),
            await (await pg.matmul_async(placed, ones(3, 2))).numpy_async(),
        )

    product, sum_, chained = run(both())
    assert np.all(product == 3)
    assert np.all(sum_ == 4)
    assert np.all(chained == 3)
    assert run(pg.request_device_async(device.kind)) is device


def test_device_arrays(device: Any) -> None:
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    placed = pg.asarray(host[:, ::-1], device=device)
    original, host_before = placed.numpy(), host[:, ::-1].copy()
    host[...] = 0
    assert np.array_equal(original, host_before), "a snapshot does not follow its source"
    assert (placed.shape, placed.ndim, placed.size, placed.nbytes, len(placed)) == ((2, 3), 2, 6, 24, 2)
    assert placed.dtype == np.float32
    assert device.kind in repr(placed)
    assert pg.asarray(placed, device=device) is placed
    product = placed @ ones(3, 4)
    assert isinstance(product, pg.DeviceArray)
    assert np.array_equal(np.asarray(product), host_before @ ones(3, 4))
    assert np.array_equal(np.asarray(ones(5, 2) @ placed), ones(5, 2) @ host_before)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(product, copy=False)
    target = pg.asarray(np.zeros((2, 4), np.float32), device=device)
    assert pg.gemm(placed, ones(3, 4), target, out=target) is target
    assert np.array_equal(target.numpy(), host_before @ ones(3, 4))
    landing = np.zeros((2, 4), np.float32)
    assert pg.matmul(placed, ones(3, 4), out=landing) is landing
    assert np.array_equal(landing, host_before @ ones(3, 4))
    placed.release()
    with pytest.raises(ValueError, match="released"):
        placed.numpy()


def test_a_chain_of_device_arrays_of_half_precision(device: Any) -> None:
    step = pg.asarray((np.eye(33) * 2).astype(np.float16), device=device)
    value = pg.asarray(np.ones((33, 33), np.float16), device=device)
    for _ in range(10):
        value = pg.matmul(value, step)
    assert value.dtype == np.float16
    assert np.all(value.numpy() == 1024)


def test_device_arrays_of_two_devices_are_not_mixed() -> None:
    here, there = pg.asarray(ones(2, 2), device="cpu"), pg.asarray(ones(2, 2), device="wgpu")
    with pytest.raises(ValueError, match="b lies on another device"):
        pg.matmul(here, there)
    with pytest.raises(ValueError, match="a lies on another device"):
        pg.matmul(here, ones(2, 2), device="wgpu")
    assert np.array_equal(pg.asarray(there, device="cpu").numpy(), ones(2, 2))


def test_a_lost_device_is_said_and_replaced() -> None:
    devices.forget_devices()
    lost = pg.request_device("wgpu")
    placed = pg.asarray(ones(2, 2), device=lost)
    lost.destroy()
    with pytest.raises(pg.DeviceLostError, match="lost"):
        pg.matmul(placed, ones(2, 2))
    fresh = pg.request_device("wgpu")
    assert fresh is not lost
    assert np.all(pg.matmul(ones(2, 2), ones(2, 2), device="wgpu") == 2)


def test_info_tells_what_was_found() -> None:
    facts = pg.info().to_dict()
    assert facts["py_gemm"]["version"] == pg.__version__
    assert facts["cpu"]
    assert facts["knobs"]["device"] == "None"
    text = repr(pg.info())
    assert re.search(r"^cpu$", text, re.M)
    assert pg.__version__ in text


def test_memory_in_place() -> None:
    """A span with gaps is taken as it is; one with more gap than substance is made dense first."""
    roomy = np.arange(100, dtype=np.float32).reshape(10, 10)
    assert not arrays.is_sparse(roomy[:, :6])
    assert arrays.is_sparse(roomy[:, ::3])
    data, first = arrays.spanned_bytes(roomy[::-1, :6])
    assert data.nbytes == 96 * 4
    assert first == 90
    assert data.__array_interface__["data"][0] == roomy.__array_interface__["data"][0]


def test_every_public_name_is_there_and_no_other() -> None:
    assert set(pg.__all__) == {*pg._HOME, "__version__", "exact"}
    for name in pg.__all__:
        assert getattr(pg, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'int9_gemm'"):
        _ = pg.int9_gemm


def test_the_lower_floors_need_no_numpy() -> None:
    """Nothing of cpu/, gpu/ or the modules under them imports NumPy."""
    code = (
        "import sys; sys.modules['numpy'] = None; import py_gemm.cpu.gemm, py_gemm.gpu.gemm, py_gemm.gpu.operation, py_gemm.problem"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


def test_threads_share_a_device(device: Any) -> None:
    """Small integers, so that every wrong buffer, parameter or binding shows."""

    def work(seed: int) -> int:
        source, wrong = np.random.default_rng(seed), 0
        for _ in range(200):
            m, n, k = source.integers(1, 150, 3)
            a, b = source.integers(-3, 4, (m, k)).astype(np.float32), source.integers(-3, 4, (k, n)).astype(np.float32)
            wrong += not np.array_equal(pg.matmul(a, b, device=device), a @ b)
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 0


def test_a_call_that_differs_in_one_thing_is_another_call(device: Any) -> None:
    """Decisions are remembered; each of these calls differs from the one before it in a single argument or in its memory."""
    source = np.random.default_rng(5)
    square = source.integers(-3, 4, (6, 6)).astype(np.float32)
    other, third = square + 1, source.integers(-3, 4, (6, 6)).astype(np.float32)
    bias = np.arange(6, dtype=np.float32)
    wide = np.asarray(square, np.float64)
    tall = np.zeros((12, 12), np.float32)
    strided = tall[::2, ::2]
    strided[...] = square

    def same(expected: np.ndarray, a: Any, b: Any, c: Any = None, **options: Any) -> None:
        got = pg.gemm(a, b, c, device=device, **options)
        assert np.array_equal(np.asarray(got, np.float64), expected), options

    same(wide @ other, square, other)
    same(wide.T @ other, square.T, other)
    same(wide @ other, strided, other)
    same(wide @ other.T, square, other.T)
    same(wide.T @ other, square, other, transpose_a=True)
    same(wide @ other.T, square, other, transpose_b=True)
    for alpha in (2.0, 3.0):
        same(alpha * (wide @ other), square, other, alpha=alpha)
    for beta in (2.0, 3.0):
        same(wide @ other + beta * third, square, other, third, beta=beta)
    same(wide @ other + 2 * third.T, square, other, third.T, beta=2.0)
    same(wide @ other + 2 * third[0], square, other, third[0], beta=2.0)
    same(wide @ other + bias, square, other, bias=bias)
    same(np.maximum(wide @ other, 0), square, other, activation="relu")
    same(wide @ other, square.astype(np.float16), other)
    for dtype in ("float16", "float32", "float64"):
        assert pg.gemm(square, other, dtype=dtype, device=device).dtype == dtype
    bits = np.full((6, 6), 0x3F80, np.uint16)
    assert np.all(pg.gemm(bits, bits, dtype_a="bfloat16", dtype_b="bfloat16", device=device) == 0x40C0)
    with pytest.raises(TypeError, match="int8_gemm"):
        pg.gemm(bits, bits, dtype_a="bfloat16", device=device)
    out = np.zeros((6, 6), np.float32)
    assert pg.gemm(square, other, out=out, device=device) is out
    assert pg.gemm(square, other, out=out.T, device=device).base is out
    assert np.array_equal(out.T, wide @ other)
    assert isinstance(pg.gemm(pg.asarray(square, device=device), other), pg.DeviceArray)


def test_out_that_is_an_operand_on_the_device_is_refused(device: Any) -> None:
    x, y = pg.asarray(ones(3, 3), device=device), pg.asarray(ones(3, 3) * 2, device=device)
    calls: dict[str, Callable[[], Any]] = {"a": lambda: pg.matmul(x, y, out=x), "b": lambda: pg.matmul(x, y, out=y)}
    for name, call in calls.items():
        with pytest.raises(pg.AliasError, match=f"out is {name} itself"):
            call()
    if device.kind == "cpu":
        with pytest.raises(pg.AliasError, match="out shares memory with a"):
            pg.matmul(x, y, out=x.host())
    assert np.all(x.numpy() == 1)


def test_device_arrays_keep_shapes_and_refuse_copies(device: Any) -> None:
    vector = pg.asarray(ones(3), device=device)
    dot = pg.matmul(vector, vector)
    assert dot.shape == ()
    assert dot.numpy() == 3
    with pytest.raises(pg.ShapeError, match="a has no dimension"):
        pg.matmul(dot, vector)
    assert pg.asarray(np.float32(3), device=device).shape == ()
    for use in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither copied nor pickled"):
            use(vector)
    vector.release()
    with pytest.raises(ValueError, match="released"):
        pg.matmul(vector, ones(3))


def test_one_adapter_is_one_device_by_every_name() -> None:
    wgpu = pg.request_device("wgpu")
    by_back_end = pg.request_device(wgpu.capabilities.backend)
    assert by_back_end is wgpu
    placed = pg.asarray(ones(2, 2), device=wgpu.capabilities.backend)
    assert np.all(np.asarray(pg.matmul(ones(2, 2), placed, device=wgpu.capabilities.backend)) == 2)
    assert pg.asarray(placed, device="wgpu") is placed


def test_knobs_orphan_no_array() -> None:
    placed = [pg.asarray(ones(2, 2), device=kind) for kind in ("cpu", "wgpu")]
    try:
        pg.configure(gpu_min_flops=5, device="wgpu")
        for array in placed:
            assert np.all(np.asarray(pg.matmul(array, pg.asarray(ones(2, 2), device=array.device.kind))) == 2)
        assert pg.matmul(ones(2, 2, dtype=np.float64), ones(2, 2)).dtype == np.float64, "float64 goes to the CPU, whatever the knob"
    finally:
        pg.configure(gpu_min_flops=None, device=None)


def test_arrays_of_a_lost_device_say_so() -> None:
    devices.forget_devices()
    device = pg.request_device("wgpu")
    placed = pg.asarray(ones(2, 2), device=device)
    device.destroy()
    fresh = pg.asarray(ones(2, 2), device="wgpu")
    for call in (lambda: pg.asarray(placed, device="wgpu"), lambda: pg.matmul(fresh, placed), lambda: pg.asarray(placed)):
        with pytest.raises(pg.DeviceLostError, match="lost"):
            call()


def test_a_driver_that_takes_liberties_is_reported() -> None:
    devices.forget_devices()
    device = pg.request_device("wgpu")
    device.adopt_verdict(nan_inf=False, order_kept=False)
    with pytest.warns(RuntimeWarning) as said:
        devices._report_liberties(device)
    assert re.search("drops NaN or infinity", str(said[0].message))
    assert re.search("reorders sums", str(said[1].message))
    devices.forget_devices()


def test_a_forked_child_is_told_rather_than_left_waiting() -> None:
    """In a process of its own, which may then fork without harm."""
    code = """
import os, numpy as np, py_gemm as pg
a = np.ones((4, 4), np.float32)
pg.matmul(a, a, device="wgpu")
if os.fork() == 0:
    try:
        pg.matmul(pg.asarray(a, device="wgpu"), a)
    except (pg.DeviceLostError, pg.UnsupportedError) as error:
        os._exit(0 if "fork" in str(error) and (pg.matmul(a, a, device="cpu") == 4).all() else 1)
    os._exit(2)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False, timeout=60).returncode == 0


def test_info_works_where_something_is_missing() -> None:
    code = "import sys; sys.modules['wasmtime'] = None; import py_gemm as pg; print(pg.info())"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True)
    assert "pip install 'py_gemm[native]'" in done.stdout


def test_many_calls_in_threads_forget_the_oldest_in_peace() -> None:
    """More distinct calls than are remembered, with threads that take turns as often as they can."""
    interval = sys.getswitchinterval()

    def work(seed: int) -> None:
        source = np.random.default_rng(seed)
        for _ in range(700):
            m, k, n = (int(size) for size in source.integers(1, 40, 3))
            pg.matmul(ones(m, k), ones(k, n), device="cpu")

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)


def test_a_released_array_is_no_out_and_no_bias_is_its_own_out(device: Any) -> None:
    gone = pg.asarray(ones(3, 3), device=device)
    gone.release()
    for call in (
        lambda: pg.matmul(ones(3, 3), ones(3, 3), out=gone),
        lambda: pg.asarray(gone),
        lambda: pg.asarray(gone, device=device),
    ):
        with pytest.raises(ValueError, match="released"):
            call()
    bias = pg.asarray(ones(3), device=device)
    with pytest.raises(pg.AliasError, match="out is bias itself"):
        pg.gemm(pg.asarray(ones(3), device=device), ones(3, 3), bias=bias, out=bias)
