"""Deep products of the half families: the float32 twin, slice by slice, gives the bytes of the single panel of the whole depth."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import py_gemm as pg
from py_gemm.configuration import KNOBS, knob
from py_gemm.cpu.engines.wasmtime import WasmtimeEngine
from py_gemm.cpu.families import ROWS
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.epilogue import Activation
from py_gemm.errors import DeviceMemoryError
from tests.cpu.support import (
    NUMPY_TYPES,
    Array,
    address_of,
    every_product_is_worth_a_thread,
    gemm_of,
    last_variant,
    multiply,
    problem_of,
    row_named,
)

K = 4096
NEVER = (1 << 63) - 1
DEEP_ROWS = [row.name for row in ROWS if row.has_single_panel]
SHAPES = [(48, 48, "plain"), (40, 50, "plain"), (130, 33, "plain"), (37, 41, "columns, rsc 2")]
# The counts that CpuGemm(threads=...) takes. A product's bits may not depend on them.
THREADS = [1, 2]


@pytest.fixture(autouse=True, scope="module")
def on_threads() -> Iterator[None]:
    with every_product_is_worth_a_thread():
        yield


@pytest.fixture(autouse=True)
def default_knob() -> Iterator[None]:
    yield
    pg.configure(deep_kc_bytes=None)


def strided(values: Array, how: str) -> tuple[Array, Array]:
    """The values by columns, every second element of a room of sevens; the view and the room."""
    if how == "plain":
        return values.copy(), values[:0]
    m, n = values.shape
    room = np.full((n, 2 * m + 1), 7, values.dtype)
    view = room[:, : 2 * m : 2].T
    view[...] = values
    return view, room


def bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def half_of(name: str) -> np.dtype[Any]:
    inputs = row_named(name).inputs
    assert inputs is not None
    return NUMPY_TYPES[inputs.name]


@cache
def operands(half: np.dtype[Any], m: int, n: int) -> tuple[Array, ...]:
    """A, B, C; the product in float64 and the sums of its terms' sizes."""
    generator = np.random.default_rng(61)
    a, b, c = (generator.standard_normal(shape).astype(half) for shape in ((m, K), (K, n), (m, n)))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    return a, b, c, wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(("m", "n", "how"), SHAPES)
@pytest.mark.parametrize("name", DEEP_ROWS)
def test_both_sides_of_the_gate_give_the_same_bytes(name: str, m: int, n: int, how: str, threads: int) -> None:
    """The knob at 1 and at its maximum; beta 0 and 1 and, since no token fuses alpha, beta and sum, any other beta too."""
    a, b, c, product, sizes = operands(half_of(name), m, n)
    gemm = CpuGemm(family=name, threads=threads)
    for beta in (0.0, 1.0, -0.3):
        results, ran = [], []
        for bytes_ in (1, NEVER):
            pg.configure(deep_kc_bytes=bytes_)
            d, room = strided(c, how)
            ran.append(gemm.prepare(problem_of(a, b, d, d, alpha=1.25, beta=beta)).variant)
            multiply(gemm, a, b, d, d, alpha=1.25, beta=beta)
            results.append(bits(d))
            if how != "plain":
                assert np.all(room[:, 1::2] == 7), "what lies between the elements stays"
        assert ran == [name.replace(row_named(name).family, f"{row_named(name).family}_f32"), name]
        assert np.array_equal(results[0], results[1]), beta
        # And neither is wrong: float64, within the bound of any order for the sums and one rounding.
        exact = 1.25 * product + beta * c.astype(np.float64)
        size = 1.25 * sizes + np.abs(beta * c.astype(np.float64))
        half = 2.0 ** -(11 if d.dtype == np.float16 else 8)
        assert np.all(np.abs(d.astype(np.float64) - exact) <= (K + 3) * 2.0**-24 * size * 1.01 + half * np.abs(exact) * 1.01)


@pytest.mark.parametrize("k", [1, 5, 256, 257, 513, 1025])
@pytest.mark.parametrize("name", DEEP_ROWS)
def test_every_depth_and_a_batch(name: str, k: int) -> None:
    """Slices end where chains do, whatever the depth; an odd one pads its last group alone."""
    generator = np.random.default_rng(62)
    half = half_of(name)
    a, b = generator.standard_normal((3, 13, k)).astype(half), generator.standard_normal((3, k, 21)).astype(half)
    results = []
    for bytes_ in (1, NEVER):
        pg.configure(deep_kc_bytes=bytes_)
        results.append(bits(multiply(gemm_of(name), a, b, np.zeros((3, 13, 21), half))))
    assert np.array_equal(results[0], results[1])


def test_the_gate_is_half_of_the_second_cache_unless_the_knob_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.ones((9, 8193), np.float16), np.ones((8193, 9), np.float16)
    d = np.zeros((9, 9), np.float16)

    def variant(k: int) -> str:
        return CpuGemm().prepare(problem_of(a[:, :k], b[:k], d)).variant

    assert (variant(8192), variant(8193)) == ("gemm_f16_4x8_relaxed", "gemm_f16_f32_4x8_relaxed")
    pg.configure(deep_kc_bytes=8 * 4 * 100)
    assert (variant(100), variant(101)) == ("gemm_f16_4x8_relaxed", "gemm_f16_f32_4x8_relaxed")
    pg.configure(deep_kc_bytes=None)
    monkeypatch.setattr("py_gemm.configuration._environment", {})
    monkeypatch.setenv("PY_GEMM_DEEP_KC_BYTES", "32")
    assert KNOBS["deep_kc_bytes"].variable == "PY_GEMM_DEEP_KC_BYTES"
    assert (variant(1), variant(2)) == ("gemm_f16_4x8_relaxed", "gemm_f16_f32_4x8_relaxed")
    monkeypatch.setattr("py_gemm.configuration._environment", {})
    monkeypatch.setenv("PY_GEMM_DEEP_KC_BYTES", "-1")
    with pytest.warns(RuntimeWarning, match="PY_GEMM_DEEP_KC_BYTES='-1' is ignored"):
        assert knob("deep_kc_bytes") == 0
    with pytest.raises(ValueError, match=r"configure: deep_kc_bytes=1\.5"):
        pg.configure(deep_kc_bytes=1.5)


def test_fused_and_prepacked_calls_keep_the_single_panel() -> None:
    a, b = np.ones((9, 300), NUMPY_TYPES["bfloat16"]), np.ones((300, 9), NUMPY_TYPES["bfloat16"])
    d = np.zeros((9, 9), a.dtype)
    pg.configure(deep_kc_bytes=1)
    problem = problem_of(a, b, d)
    for token, family in (("relaxed", "gemm_bf16"), ("pairs", "gemm_bf16dot")):
        gemm = CpuGemm(token=token)
        tile = f"4x8_{token}"
        assert gemm.prepare(problem).variant == f"{family}_f32_{tile}"
        assert gemm.prepare(problem, has_bias=True).variant == f"{family}_{tile}"
        assert gemm.prepare(problem, activation=Activation.RELU).variant == f"{family}_{tile}"
    weight = pg.prepack(b, device="cpu")
    plain = pg.matmul(a, b, device="cpu")
    assert np.array_equal(pg.matmul(a, weight), plain)
    assert last_variant() == "gemm_f32_4x8_relaxed", "whose panels those of the half family are"


def test_through_the_front_door_the_bytes_are_the_same() -> None:
    generator = np.random.default_rng(63)
    for half in (np.float16, NUMPY_TYPES["bfloat16"]):
        a, b = generator.standard_normal((20, 700)).astype(half), generator.standard_normal((700, 30)).astype(half)
        results = []
        for bytes_, twin in ((1, "_f32"), (NEVER, "")):
            pg.configure(deep_kc_bytes=bytes_)
            results.append(pg.matmul(a, b, device="cpu"))
            name = "gemm_f16" if half is np.float16 else "gemm_bf16"
            assert last_variant() == f"{name}{twin}_4x8_relaxed"
        assert np.array_equal(bits(results[0]), bits(results[1]))


def test_an_absurd_depth_keeps_the_single_panel_and_is_refused() -> None:
    """A broadcast operand may state any k: the gate's sum does not wrap round, and there is no memory for the panel."""
    one = np.ones((9, 1), np.float16)
    k = 1 << 27
    a, b = np.broadcast_to(one, (9, k)), np.broadcast_to(one[:1], (k, 9))
    d = np.zeros((9, 9), np.float16)
    pg.configure(deep_kc_bytes=1)
    call = CpuGemm(engine=WasmtimeEngine()).prepare(problem_of(a, b, d))
    assert call.variant == "gemm_f16_4x8_relaxed"
    places: tuple[Any, ...] = (address_of(a), address_of(b), 0, address_of(d), 0)
    with pytest.raises(DeviceMemoryError, match="a WebAssembly memory holds at most"):
        call(*places)
    assert not d.any()
