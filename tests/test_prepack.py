"""prepack: products with packed operands have the bits of plain ones, on the CPU and on wgpu; what does not fit is said."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import py_gemm as pg
from py_gemm.cpu.families import EngineTraits, choose_family
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.cpu.packing import Packing
from py_gemm.dtypes import FLOAT32, FLOAT64
from py_gemm.errors import ShapeError, UnsupportedError

TYPES: list[Any] = [np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.fixture(params=["cpu", "wgpu"])
def device(request: pytest.FixtureRequest) -> Any:
    return pg.request_device(request.param)


def numbers(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [
        ((50, 300), (300, 61)), ((1, 9), (9, 8)), ((7, 257), (257, 1)), ((5,), (5, 3)), ((6, 5), (5,)), ((2, 3, 7), (7, 5)),
        ((3, 7), (2, 7, 5)), ((2, 1, 13, 7), (1, 4, 7, 5)), ((130, 40), (40, 1030)), ((0, 7), (7, 5)), ((3, 0), (0, 5)),
    ],
)  # fmt: skip
def test_same_bits_as_the_plain_call(device: Any, dtype: Any, shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> None:
    a, b = numbers(1, *shape_a, dtype=dtype), numbers(2, *shape_b, dtype=dtype)
    plain = pg.matmul(a, b, device=device)
    packed_a, packed_b = pg.prepack(a, side="a", device=device), pg.prepack(b, device=device)
    assert (packed_a.shape, packed_b.shape, packed_b.dtype) == (shape_a, shape_b, plain.dtype)
    for left, right in ((a, packed_b), (packed_a, b), (packed_a, packed_b)):
        found = pg.matmul(left, right)
        assert isinstance(found, np.ndarray)
        assert found.dtype == plain.dtype
        assert np.array_equal(found, plain)
    assert np.array_equal(a @ packed_b, plain)


def test_packed_operands_in_every_arrangement_and_with_everything_around() -> None:
    """Views that run backwards, over gaps, transposed; C, bias, activation, a result by columns; every mix of types."""
    a, whole = numbers(3, 19, 70), numbers(4, 120, 150)
    bias, c = numbers(5, 33), numbers(6, 19, 33, dtype=np.float16)
    for view in (whole[:70, :33], whole[70:0:-1, 33:0:-1], whole[:33, :70].T, whole[1:106:5, ::3][:14].repeat(5, 0)[:70, :33]):
        for dtype in TYPES:
            b = view.astype(dtype) if dtype is not np.float32 else view
            packed = pg.prepack(b, device="cpu")
            for out in (None, np.zeros((33, 19), np.float32).T):
                rest: dict[str, Any] = {"alpha": 2.3, "beta": -0.5, "bias": bias, "activation": "gelu_tanh", "dtype": "float32"}
                plain = pg.gemm(a, b, c, **rest, device="cpu")
                assert np.array_equal(pg.gemm(a, packed, c, out=out, **rest), plain)


def test_float64_and_bits() -> None:
    a, b = numbers(7, 9, 300, dtype=np.float64), numbers(8, 300, 11, dtype=np.float64)
    assert np.array_equal(pg.matmul(a, pg.prepack(b)), pg.matmul(a, b))
    assert pg.prepack(b).device.kind == "cpu"
    narrow = numbers(9, 300, 11, dtype=ml_dtypes.bfloat16)
    tagged = pg.prepack(narrow.view(np.uint16), dtype="bfloat16", device="cpu")
    x = numbers(10, 9, 300, dtype=ml_dtypes.bfloat16)
    found = pg.matmul(x.view(np.uint16), tagged, dtype_a="bfloat16")
    assert found.dtype == np.uint16
    assert np.array_equal(found, pg.matmul(x, narrow, device="cpu").view(np.uint16))


def test_integers(device: Any) -> None:
    random = np.random.default_rng(11)
    a, b = random.integers(-128, 128, (9, 30)).astype("i1"), random.integers(0, 256, (30, 12)).astype("u1")
    plain = pg.int8_gemm(a, b, zero_point_a=3, zero_point_b=np.arange(12), device=device)
    packed_a, packed_b = pg.prepack(a, side="a", device=device), pg.prepack(b, device=device)
    for left, right in ((a, packed_b), (packed_a, b), (packed_a, packed_b)):
        found = pg.int8_gemm(left, right, zero_point_a=3, zero_point_b=np.arange(12))
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, plain)
    with pytest.raises(ValueError, match="int8_gemm: a is prepacked as b"):
        pg.int8_gemm(packed_b, b)
    with pytest.raises(TypeError, match="int8_gemm"):
        pg.matmul(numbers(1, 4, 30), packed_b)


def test_a_call_that_comes_again_works_out_nothing_about_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """To list what the CPU can do takes longer than many a product."""
    a, b = np.ones((3, 5), np.float32), np.ones((5, 4), np.float32)
    packed, kept = pg.prepack(b, device="cpu"), pg.asarray(b, device="cpu")
    expected = pg.matmul(a, b)

    def worked_out(self: object) -> None:
        raise AssertionError("the capabilities were asked for")

    monkeypatch.setattr(CpuGemm, "capabilities", property(worked_out))
    for second in (packed, kept):
        assert np.array_equal(np.asarray(pg.matmul(a, second)), expected)


def test_it_is_a_snapshot(device: Any) -> None:
    a, b = numbers(12, 6, 8), numbers(13, 8, 7)
    plain, packed = pg.matmul(a, b, device=device), pg.prepack(b, device=device)
    b[...] = 0
    assert np.array_equal(pg.matmul(a, packed), plain)
    with pytest.raises(TypeError, match="not read back"):
        packed.numpy()


def test_a_device_array_can_be_packed_and_stays_where_it_is(device: Any) -> None:
    a, b = numbers(14, 6, 8), numbers(15, 8, 7)
    placed = pg.asarray(b, device=device)
    packed = pg.prepack(placed, device=device)
    result = pg.matmul(pg.asarray(a, device=device), packed)
    assert isinstance(result, pg.DeviceArray)
    assert np.array_equal(result.numpy(), pg.matmul(a, b, device=device))


def test_awaitable_twin(device: Any) -> None:
    a, b = numbers(16, 6, 8), numbers(17, 8, 7)

    async def run() -> Any:
        packed = await pg.prepack_async(pg.asarray(b, device=device), device=device)
        return await pg.matmul_async(a, packed)

    with ThreadPoolExecutor(1) as pool:  # a loop of its own, whatever runs in this thread
        assert np.array_equal(pool.submit(asyncio.run, run()).result(), pg.matmul(a, b, device=device))


def test_what_does_not_fit_is_said() -> None:
    a, b = numbers(18, 6, 8), numbers(19, 8, 7)
    packed, packed_a = pg.prepack(b, device="cpu"), pg.prepack(a, side="a", device="cpu")
    with pytest.raises(ValueError, match=r"matmul: a is prepacked as b; prepack\(x, side=\"a\"\)"):
        pg.matmul(packed, b)
    with pytest.raises(ValueError, match="matmul: b is prepacked as a"):
        pg.matmul(a, packed_a)
    with pytest.raises(ValueError, match="transpose_b cannot turn a prepacked operand"):
        pg.gemm(a, packed, transpose_b=True)
    with pytest.raises(TypeError, match="c is prepacked"):
        pg.gemm(a, b, packed)
    with pytest.raises(ShapeError, match=r"dimension k differs: a has 5 columns, b has 8 rows"):
        pg.matmul(numbers(1, 6, 5), packed)
    with pytest.raises(UnsupportedError, match="b is prepacked for sums in float32, this product sums in float64"):
        pg.matmul(a.astype(np.float64), packed)
    with pytest.raises(ValueError, match=r'unknown side "?\'?c'):
        pg.prepack(b, side="c")
    with pytest.raises(TypeError, match="prepacked already"):
        pg.prepack(packed)
    with pytest.raises(ValueError, match="b lies on another device"):
        pg.matmul(a, packed, device="wgpu")
    with pytest.raises(ShapeError, match="no dimension"):
        pg.prepack(np.float32(1))
    with pytest.raises(UnsupportedError, match="float64"):
        pg.prepack(b.astype(np.float64), device="wgpu")


def test_panels_of_b_serve_every_token_and_panels_of_a_their_own() -> None:
    """The width of B's panels is that of all tiles; A's is 6 where a browser's compiler is at its best, else 4."""
    browser, wasmtime = EngineTraits("browser", True), EngineTraits("wasmtime", True)
    wide, narrow = choose_family(FLOAT32, browser), choose_family(FLOAT32, wasmtime)
    assert Packing.of("b", wide) == Packing.of("b", narrow)
    for traits in (browser, wasmtime):
        packed = Packing.of("b", choose_family(FLOAT32, traits))
        assert choose_family(FLOAT32, traits, deterministic=True, packed=(packed,)).token == "simd128"
    assert choose_family(FLOAT32, browser, packed=(Packing.of("a", narrow),)).name == "gemm_f32_4x8_relaxed"
    with pytest.raises(UnsupportedError, match=r"a is prepacked for gemm_f32 in panels of 6, which .*gemm_f32_4x8_simd128 cannot"):
        choose_family(FLOAT32, browser, deterministic=True, packed=(Packing.of("a", wide),))
    with pytest.raises(UnsupportedError, match=r"b is prepacked for gemm_f32 in panels of 8, .* cannot read; hand over the array"):
        choose_family(FLOAT64, browser, packed=(Packing.of("b", wide),))


def test_deterministic_products_of_packed_operands() -> None:
    a, b = numbers(20, 13, 300), numbers(21, 300, 17)
    plain = pg.matmul(a, b, mode="deterministic", device="cpu")
    assert np.array_equal(pg.matmul(a, pg.prepack(b, device="cpu"), mode="deterministic"), plain)
    assert np.array_equal(pg.matmul(pg.prepack(a, side="a", device="cpu"), b, mode="deterministic"), plain)


def test_exact_products_read_no_panels() -> None:
    """On the CPU an exact product takes the array itself; what is packed is refused in words."""
    a, b = numbers(22, 6, 8), numbers(23, 8, 7)
    for left, right, name in ((a, pg.prepack(b, device="cpu"), "b"), (pg.prepack(a, side="a", device="cpu"), b, "a")):
        with pytest.raises(UnsupportedError, match=f'matmul: {name} is prepacked; mode "exact" on the CPU reads no panels'):
            pg.matmul(left, right, mode="exact")


def test_exact_products_of_packed_operands_on_a_gpu() -> None:
    device = pg.request_device("wgpu")
    a, b = numbers(24, 6, 8, dtype=np.float16), numbers(25, 8, 7, dtype=np.float16)
    plain = pg.matmul(a, b, mode="exact", device="cpu")
    assert np.array_equal(pg.matmul(a, pg.prepack(b, device=device), mode="exact"), plain)
