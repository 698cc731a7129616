"""The variant exact-f16: the bits of the CPU road's exact kernel, which shares no code with it; what it takes and refuses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import py_gemm as pg
from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from py_gemm.errors import UnsupportedError
from py_gemm.gpu.capabilities import Capabilities
from py_gemm.gpu.gemm import Gemm
from py_gemm.gpu.variants import EXACT_F16, Request, choose_variant, exact_obstacles, is_float32
from tests.conformance.exactly import spread

ANY = Capabilities("vulkan", "a made-up adapter")
TYPES: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def same_bits(x: Any, y: Any) -> bool:
    """Bit for bit, but any NaN for any NaN."""
    word = f"u{x.dtype.itemsize}"
    both = np.isnan(x.astype(np.float32)) & np.isnan(y.astype(np.float32))
    return bool(np.all(both | (x.view(word) == y.view(word))))


def torture(source: np.random.Generator, shape: tuple[int, ...], kind: str) -> Any:
    values = spread(source, shape, "float16") if kind != "narrow" else source.standard_normal(shape)
    if kind == "special":
        chance = source.uniform(size=shape)
        values = np.select([chance < 0.01, chance < 0.02, chance < 0.023, chance < 0.3], [np.inf, -np.inf, np.nan, -0.0], values)
    if kind == "zeros":
        values = np.where(source.uniform(size=shape) < 0.9, -0.0, 0.0)
    return values


@pytest.mark.parametrize("kind", ["narrow", "spread", "special", "zeros"])
@pytest.mark.parametrize("result", TYPES)
def test_bits_of_the_other_road(kind: str, result: str) -> None:
    device = pg.request_device("wgpu")
    source = np.random.default_rng(41)
    for case in range(24):
        m, n, k = (int(each) for each in source.integers(1, (70, 70, 90)))
        a, b = (torture(source, shape, kind).astype(np.float16) for shape in ((m, k), (k, n)))
        arguments: dict[str, Any] = {"dtype": result, "mode": "exact"}
        arguments["alpha"] = float(np.float32(source.choice([1, 1, -1, 0.3, 1e-30, 1e30, np.inf, np.nan, 0])))
        if case % 2:
            arguments["c"] = torture(source, (m, n), kind).astype(list(TYPES.values())[case % 3])
            arguments["beta"] = float(np.float32(source.choice([1, -1, 0.3, 1e-20, np.inf])))
        if case % 3 == 0:
            arguments["bias"] = torture(source, (n,), kind).astype(np.float32)
        if case % 5 == 0:
            arguments["activation"] = "relu"
        expected = pg.gemm(a, b, device="cpu", **arguments)
        found = pg.gemm(a, b, device=device, **arguments)
        run = pg.last_run()
        assert run is not None
        assert run.variant == "exact-f16"
        assert same_bits(found, expected), (case, m, n, k, arguments)


def test_long_sums_of_the_largest_numbers() -> None:
    device = pg.request_device("wgpu")
    k = 30_001  # lavapipe ends every loop of an invocation after 65,535 iterations in all
    for low in (65504.0, 65503.0 / 2, 2.0**-24):
        a, b = np.full((2, k), low, np.float16), np.full((k, 3), low, np.float16)
        for sign in (1, -1):
            found = pg.matmul(a * np.float16(sign), b, device=device, mode="exact", dtype="float32")
            assert np.array_equal(found, pg.matmul(a * np.float16(sign), b, device="cpu", mode="exact", dtype="float32"))


def test_results_can_stay_on_the_device() -> None:
    device = pg.request_device("wgpu")
    source = np.random.default_rng(42)
    a, b = source.standard_normal((40, 30)).astype(np.float16), source.standard_normal((30, 50)).astype(np.float16)
    kept = pg.matmul(pg.asarray(a, device=device), b, mode="exact")
    assert np.array_equal(kept.numpy(), pg.matmul(a, b, mode="exact", device="cpu"))


def test_recorded_products_are_exact_too() -> None:
    device = pg.request_device("wgpu")
    source = np.random.default_rng(43)
    a, b = source.standard_normal((20, 30)).astype(np.float16), source.standard_normal((30, 10)).astype(np.float16)
    gemm = Gemm(device, "float16", mode="exact")
    left, right, into = device.create_buffer(a.view(np.uint16)), device.create_buffer(b.view(np.uint16)), device.create_buffer(800)
    encoder = device.create_encoder()
    gemm.encode(encoder, left, right, into, 20, 10, 30)
    device.submit(encoder)
    found = np.frombuffer(device.read_buffer(into), np.float32).reshape(20, 10)
    assert np.array_equal(found, pg.matmul(a, b, mode="exact", dtype="float32", device="cpu"))
    with pytest.raises(UnsupportedError, match=r"needs alpha to be a float32 number, not 0\.1"):
        gemm.encode(encoder, left, right, into, 20, 10, 30, alpha=0.1)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type_a": FLOAT32}, "float16 operands"), ({"type_b": BFLOAT16}, "float16 operands"), ({"alpha": 0.1}, "float32 numbers"),
    ({"beta": 1e300}, "float32 numbers"), ({"type_c": FLOAT64}, "at most float32"), ({"type_d": FLOAT64}, "at most float32"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=str)
def test_what_no_gpu_does_exactly(changes: dict[str, Any], words: str) -> None:
    fitting: dict[str, Any] = {"capabilities": ANY, "type_a": FLOAT16, "type_b": FLOAT16, "mode": "exact"}
    assert choose_variant(Request(**fitting)) is EXACT_F16
    assert exact_obstacles(Request(**fitting)) == []
    request = Request(**(fitting | changes))
    assert len(exact_obstacles(request)) == 1
    with pytest.raises(UnsupportedError, match=words):
        choose_variant(request)
    with pytest.raises(UnsupportedError, match="needs mode"):
        choose_variant(Request(ANY, FLOAT16, FLOAT16, "fast"), "exact-f16")


def test_the_front_door_says_it_and_keeps_such_products_on_the_cpu() -> None:
    one, half = np.ones((2, 2), np.float32), np.ones((2, 2), np.float16)
    with pytest.raises(UnsupportedError, match=r'mode "exact" on wgpu needs float16 operands; the CPU takes every type'):
        pg.matmul(one, one, mode="exact", device="wgpu")
    with pytest.raises(UnsupportedError, match="needs alpha and beta that are float32 numbers"):
        pg.gemm(half, half, alpha=0.1, mode="exact", device="wgpu")
    with pytest.raises(UnsupportedError, match="cannot be correctly rounded"):
        pg.gemm(half, half, activation="gelu_erf", mode="exact", device="wgpu")
    assert np.all(pg.matmul(one, one, mode="exact") == 2)


def test_float32_numbers() -> None:
    assert all(map(is_float32, (0.0, -1.5, 2.0**-149, float("inf"), float("nan"), 3.4028234663852886e38)))
    assert not any(map(is_float32, (0.1, 2.0**-150, 3.5e38, 1e300)))
