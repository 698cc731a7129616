"""The half families and their float32 twins: forced by name, their bits, their order replayed; panels, prepacking, front door."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import py_gemm as pg
from py_gemm.configuration import KNOBS
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.epilogue import Activation
from py_gemm.errors import UnsupportedError
from py_gemm.exact import orders
from py_gemm.prepare import forget_prepared
from tests.cpu.support import (
    HALF_ROWS,
    LAYOUTS,
    NUMPY_TYPES,
    Array,
    frame_is_whole,
    framed,
    gemm_of,
    laid_out,
    last_variant,
    multiply,
    problem_of,
    row_named,
    small_integers,
)

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def types_of(name: str) -> tuple[np.dtype[np.generic], np.dtype[np.generic]]:
    """Of the operands and of D."""
    row = row_named(name)
    assert row.inputs is not None
    assert row.output is not None
    return NUMPY_TYPES[row.inputs.name], NUMPY_TYPES[row.output.name]


def general(name: str) -> str:
    """The float32 row with the sums of a half row: its own kernels, or those of its token's instructions."""
    row = row_named(name)
    return f"gemm_f32_{row.rows}x8_{'simd128' if row.token == 'pairs' else row.token}"


@pytest.mark.parametrize("name", HALF_ROWS)
def test_small_integers_are_exact_in_every_arrangement(name: str) -> None:
    generator = np.random.default_rng(51)
    half, real = types_of(name)
    for index, (m, n, k) in enumerate(
        ((1, 1, 1), (4, 8, 2), (5, 9, 3), (3, 7, 16), (17, 33, 65), (9, 16, 300), (130, 5, 31), (13, 70, 521))
    ):
        for how in LAYOUTS:
            a, b = small_integers(generator, (m, k), half), small_integers(generator, (k, n), half)
            c = small_integers(generator, (m, n), half)
            view, room = framed((m, n), real, LAYOUTS[index % 4])
            found = multiply(gemm_of(name), laid_out(a, how), laid_out(b, LAYOUTS[index % 4]), view, c, alpha=2.0, beta=-1.0)
            exact = 2 * (a.astype(np.float64) @ b.astype(np.float64)) - c.astype(np.float64)
            assert np.array_equal(found.astype(np.float64), exact.astype(real).astype(np.float64)), (m, n, k, how)
            assert frame_is_whole(view, room), (m, n, k, how)


@pytest.mark.parametrize("name", HALF_ROWS)
def test_bits_are_those_of_the_float32_family(name: str) -> None:
    """Batches, alpha, beta, bias and activation included: the family of a product never shows in its bits."""
    generator = np.random.default_rng(52)
    half, real = types_of(name)
    for m, n, k in ((5, 9, 3), (13, 21, 257), (9, 40, 1030), (6, 8, 4)):
        a = generator.standard_normal((2, m, k)).astype(half)
        b, c = generator.standard_normal((k, n)).astype(half), generator.standard_normal((m, n)).astype(half)
        for bias, by_row in ((None, False), (n, False), (m, True)):
            given = None if bias is None else generator.standard_normal(bias).astype(np.float32)
            results = [
                multiply(
                    gemm_of(each), a, b, np.zeros((2, m, n), real), c, alpha=1.7, beta=-0.3, bias=given, bias_by_row=by_row,
                    activation=Activation.GELU_TANH,
                )
                for each in (name, general(name))
            ]  # fmt: skip
            assert np.array_equal(results[0], results[1]), (m, n, k, bias)


@pytest.mark.parametrize("name", HALF_ROWS)
def test_the_stated_order_replays_bit_for_bit(name: str) -> None:
    """A product of two halves is exact in float32 (within its range), so fused or not makes no difference. Another order of the
    group does: replayed the other way round, the same data give other sums."""
    generator = np.random.default_rng(53)
    half, real = types_of(name)
    row = row_named(name)
    for m, n, k in ((13, 21, 100), (5, 9, 257), (6, 8, 1031)):
        a, b = generator.standard_normal((m, k)).astype(half), generator.standard_normal((k, n)).astype(half)
        found = multiply(gemm_of(name), a, b, np.zeros((m, n), real))
        order = orders.stated(row.order, k)
        for fused in (False, True):
            expected = orders.replay(order, a, b, fused=fused)
            assert np.array_equal(found, expected.astype(real)), (m, n, k)
        if row.depth_multiple == 2:
            other = orders.replay(orders.Slices(row.order.chain_length(k), (1, 0)), a, b, fused=False)
            assert not np.array_equal(other, expected)


@pytest.mark.parametrize("name", [name for name in HALF_ROWS if name.startswith("gemm_bf16dot_")])
def test_pads_of_an_odd_depth_add_nothing(name: str) -> None:
    """Infinities and NaN beside the pads, negative zeros and underflow: what a product with a pad of zero would change."""
    half, real = types_of(name)
    for k in (1, 3, 5):
        a, b = np.zeros((5, k), half), np.ones((k, 9), half)
        a[0, -1], a[1, -1], b[-1, 0] = np.inf, np.nan, np.inf
        a[2, 0] = -0.0
        with np.errstate(invalid="ignore"):
            expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(real)
        found = multiply(gemm_of(name), a, b, np.zeros((5, 9), real))
        assert np.array_equal(found.astype(np.float32), expected.astype(np.float32), equal_nan=True), k
    tiny = np.full((5, 3), 2.0**-100, half)
    assert np.array_equal(
        multiply(gemm_of(name), -tiny, tiny.T, np.ones((5, 5), real)).view(f"u{real.itemsize}"),
        multiply(gemm_of(general(name)), -tiny, tiny.T, np.ones((5, 5), real)).view(f"u{real.itemsize}"),
    )


# ---- forced by knob, by environment, through the front door ----


@pytest.fixture
def numbers() -> tuple[Array, Array]:
    generator = np.random.default_rng(54)
    return generator.standard_normal((40, 300)).astype(BFLOAT16), generator.standard_normal((300, 50)).astype(BFLOAT16)


@pytest.mark.parametrize("way", ["configure", "environment"])
def test_the_token_forces_the_pairs(way: str, numbers: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = numbers
    plain = pg.matmul(a, b, device="cpu", mode="deterministic")
    if way == "environment":
        monkeypatch.setattr("py_gemm.configuration._environment", {})
        monkeypatch.setenv(KNOBS["token"].variable, "pairs")
    else:
        monkeypatch.setattr("py_gemm.configuration._configured", {})
        pg.configure(token="pairs")
    forget_prepared()
    try:
        found = pg.matmul(a, b, device="cpu")
        assert last_variant() == "gemm_bf16dot_4x8_pairs"
        assert np.array_equal(found, plain)
        wide = pg.gemm(a, b, dtype="float32", device="cpu")
        assert last_variant() == "gemm_bf16dot_f32_4x8_pairs"
        assert np.array_equal(wide.astype(BFLOAT16), found)
        weight = pg.prepack(b, device="cpu")
        assert "gemm_bf16dot in panels of 8" in repr(weight)
        assert np.array_equal(pg.matmul(a, weight), found)
        with pytest.raises(UnsupportedError, match="cannot be used: the product is float32 by float32"):
            pg.matmul(a.astype(np.float32), b.astype(np.float32), device="cpu")
        with pytest.raises(UnsupportedError, match="the product is float32 by bfloat16"):
            pg.matmul(a.astype(np.float32), weight)
    finally:
        forget_prepared()
        pg.configure(token=None)


def test_what_is_forced_by_argument_runs_or_says_why_not(numbers: tuple[Array, Array]) -> None:
    a, b = numbers
    out = np.zeros((40, 50), BFLOAT16)
    problem = problem_of(a, b, out)
    assert CpuGemm(token="pairs").prepare(problem).variant == "gemm_bf16dot_4x8_pairs"
    assert CpuGemm(family="gemm_bf16dot").prepare(problem).variant == "gemm_bf16dot_4x8_pairs"
    assert CpuGemm(family="gemm_bf16").prepare(problem).variant == "gemm_bf16_4x8_relaxed"
    assert CpuGemm(family="gemm_bf16", token="simd128").prepare(problem).variant == "gemm_bf16_4x8_simd128"
    assert CpuGemm(family="gemm_f32").prepare(problem).variant == "gemm_f32_4x8_relaxed"
    with pytest.raises(UnsupportedError, match=r"gemm_f16_.* cannot be used: the product is bfloat16 by bfloat16, and D bfloat16"):
        CpuGemm(family="gemm_f16").prepare(problem)
    with pytest.raises(UnsupportedError, match="no kernel of family 'gemm_bf16dot' has the token 'relaxed'"):
        CpuGemm(family="gemm_bf16dot", token="relaxed")
    with pytest.raises(ValueError, match="unknown kernel family 'gemm_bf17'"):
        CpuGemm(family="gemm_bf17")
    with pytest.raises(ValueError, match="unknown token 'bf16'"):
        CpuGemm(token="bf16")


@pytest.mark.parametrize("odd", [300, 301])
def test_prepacked_pairs_on_both_sides(odd: int) -> None:
    """Chains of pairs, an odd depth, a batch: the bits of the plain product; the panels byte for byte, by a naive oracle."""
    generator = np.random.default_rng(55)
    gemm = CpuGemm(token="pairs")
    pairs_device = pg.request_device("cpu")
    a, b = generator.standard_normal((3, 13, odd)).astype(BFLOAT16), generator.standard_normal((odd, 21)).astype(BFLOAT16)
    plain = multiply(gemm, a, b, np.zeros((3, 13, 21), BFLOAT16))
    pg.configure(token="pairs")
    try:
        left, right = pg.prepack(a, side="a", device=pairs_device), pg.prepack(b, device=pairs_device)
        for x, y in ((left, b), (a, right), (left, right)):
            assert np.array_equal(pg.matmul(x, y), plain)
        panels = right.host()
        assert panels is not None
        assert panels.shape == (odd + odd % 2, 24)
        chain = row_named("gemm_bf16dot_4x8_pairs").order.chain_length(odd)
        padded = np.zeros((odd + odd % 2, 24), np.uint16)
        padded[:odd, :21] = b.view(np.uint16)
        naive = [
            padded[2 * group : 2 * group + 2, panel : panel + 8].T.reshape(-1)
            for start in range(0, odd, chain)
            for panel in range(0, 24, 8)
            for group in range(start // 2, -(-min(start + chain, odd) // 2))
        ]
        assert np.array_equal(np.concatenate(naive), panels.reshape(-1))
    finally:
        pg.configure(token=None)
        forget_prepared()
