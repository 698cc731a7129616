"""Sums of more terms than one dispatch may have: plans that cover k once, the bits of one dispatch, right results at any depth."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as cross
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import py_gemm as pg
from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32
from py_gemm.epilogue import Activation
from py_gemm.gpu.capabilities import Capabilities, Limits
from py_gemm.gpu.depth import DEEPEST, MOST_ITERATIONS, deepest
from py_gemm.gpu.gemm import Gemm
from py_gemm.gpu.operation import GemmOperation
from py_gemm.gpu.planner import CONTINUES, HAS_ADDEND, HAS_PRODUCT, LEAVES, plan_operation
from py_gemm.gpu.register_tile import CHAIN, TILES
from py_gemm.gpu.split import Ranges, choose_ranges
from py_gemm.gpu.variants import (
    EXACT_F16,
    LANES_DEEPEST,
    REGISTER_ROWS,
    TILED,
    VARIANTS,
    Request,
    Shape,
    Variant,
    choose_variant,
)

from .test_planner import dense, gemm_parameters
from .tools import numpy_type, product

CUT = [row for row in VARIANTS if row.deepest is not None]


def test_the_depth_of_one_dispatch() -> None:
    assert deepest(16, 28) == DEEPEST
    assert deepest(8, 16) == DEEPEST // 2
    assert EXACT_F16.deepest == 4096
    assert TILED.deepest == DEEPEST
    assert {tile.deepest for tile in TILES} == {DEEPEST, DEEPEST // 2}
    for row in CUT:
        assert row.deepest is not None
        assert row.deepest % 128 == row.deepest % CHAIN == 0
    for tile in TILES:
        staged = -(-tile.rows * tile.depth // (4 * tile.invocations)) + -(-tile.columns * tile.depth // (4 * tile.invocations))
        iterations = tile.depth if tile.direct else staged + tile.depth + 8
        assert tile.deepest // tile.depth * iterations < 0.9 * MOST_ITERATIONS
    for lanes in (8, 16, 32):
        assert -(-LANES_DEEPEST // (lanes * 32)) * (32 + 2) < 0.9 * MOST_ITERATIONS
    for row in VARIANTS:
        assert row.deepest is not None or any("k of at most" in each.wanted for each in row.shape_conditions)


def test_few_rows_of_a_deep_product_are_the_tile_s() -> None:
    request = Request(Capabilities("vulkan", "a made-up adapter"), FLOAT32, FLOAT32, shape=Shape(2, 3, LANES_DEEPEST))
    assert choose_variant(request).shape_conditions
    assert choose_variant(replace(request, shape=Shape(2, 3, LANES_DEEPEST + 1))) is TILED


@given(
    st.sampled_from([TILED, REGISTER_ROWS[0], EXACT_F16]),
    st.integers(1, 5000),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([128, 256, 1024]),
    st.booleans(),
)  # fmt: skip
def test_every_term_is_summed_once_in_order(row: Variant, k: int, count: int, most: int, small_grid: bool) -> None:
    """Each range from its first term to its last, part after part, the first of them from zero."""
    terms = -(-k // (32 * count)) * 32
    ranges = Ranges(-(-k // terms), terms) if count > 1 and not row.exact else Ranges(1, k)
    limits = replace(Limits(), max_compute_workgroups_per_dimension=2 if small_grid else 65_535)
    plan = plan_operation(
        dense(3, 5, k, alpha=2.0, beta=0.0), replace(row, deepest=most), limits,
        ranges=ranges, activation=Activation.NONE, has_bias=False,
    )  # fmt: skip
    finishing = [step for step in plan.steps if step.shader.kernel == row.ending]
    parts = [step for step in plan.steps if step.shader.kernel == row.kernel]
    unfinished = ranges.count > 1 or k > most
    assert len(finishing) == unfinished
    assert plan.scratch_bytes == (4 * row.sum_words * 15 * ranges.count if unfinished else 0)
    summed = dict.fromkeys(range(ranges.count), 0)
    for step in parts:
        p = gemm_parameters(step)
        assert p["part_terms"] <= most
        assert step.workgroups[2] == p["ranges"]
        first = p["d_offset"] // 15
        begin = p["a_offset"] - first * ranges.terms
        assert bool(p["flags"] & CONTINUES) == (begin > 0)
        assert p["b_offset"] == 5 * p["a_offset"]
        flops = 0
        for index in range(p["ranges"]):
            end = min(p["k"], index * p["range_terms"] + p["part_terms"]) - index * p["range_terms"]
            assert summed[first + index] == begin or end <= 0
            summed[first + index] += max(end, 0)
            flops += 2 * 15 * max(end, 0)
        assert step.flops == flops
        if unfinished:
            assert p["flags"] & (HAS_PRODUCT | HAS_ADDEND | LEAVES) == (HAS_PRODUCT | LEAVES if row.exact else HAS_PRODUCT)
            assert p["alpha"] == (2.0 if row.exact else 1.0)
    assert summed == {each: min(ranges.terms, k - each * ranges.terms) for each in range(ranges.count)}


def multiplied(device: Any, monkeypatch: pytest.MonkeyPatch, most: int | None, a: Any, b: Any, c: Any, **options: Any) -> Any:
    """A product whose dispatches sum at most `most` terms (None: what the row says)."""
    with monkeypatch.context() as patch:
        made = GemmOperation.__init__

        def make(self: GemmOperation, *arguments: Any, **named: Any) -> None:
            made(self, *arguments, **named)
            if most is not None:
                self.row = replace(self.row, deepest=most)

        patch.setattr(GemmOperation, "__init__", make)
        return product(device, a, b, c, **options)


@pytest.mark.parametrize(
    ("row", "split"),
    [(row, split) for row in (TILED, *REGISTER_ROWS) for split in (False, True) if row.splits or not split],
    ids=lambda each: {False: "whole", True: "split"}.get(each) or each.name,
)
def test_the_bits_of_one_dispatch(device: Any, monkeypatch: pytest.MonkeyPatch, row: Variant, split: bool) -> None:
    m, n = row.tile[0] + 6, row.tile[1] + 3
    rng = np.random.default_rng(1)
    for k in (1000, 1024, 1025):
        a, b, c = (rng.standard_normal(shape).astype("f4") for shape in ((2, m, k), (k, n), (2, m, n)))
        bias = rng.standard_normal(n).astype("f4")
        whole = None if split else Shape(1 << 20, 64, k)
        assert (choose_ranges(whole or Shape(m, n, k, 2), row).count > 1) == split
        options = {
            "variant": row.name, "whole": whole, "alpha": 0.7, "beta": 1.3, "bias": bias, "activation": Activation.GELU_TANH,
            "result": FLOAT16,
        }  # fmt: skip
        expected = multiplied(device, monkeypatch, None, a, b, c, **options)
        for most in (128, 384):
            found = multiplied(device, monkeypatch, most, a, b, c, **options)
            assert np.array_equal(found.view("u2"), expected.view("u2")), (k, most)


@pytest.mark.parametrize("kind", ["plain", "special", "zeros", "cancelling"])
@pytest.mark.parametrize("result", [FLOAT32, FLOAT16, BFLOAT16], ids=str)
def test_the_bits_of_one_exact_dispatch(device: Any, monkeypatch: pytest.MonkeyPatch, kind: str, result: Any) -> None:
    rng = np.random.default_rng(2)
    m, n, k = 40, 35, 1030
    for alpha, beta in cross((1.0, -1.0, float(np.float32(0.3))), (0.0, 1.0, -2.0)):
        a, b = (np.ldexp(rng.standard_normal(shape), rng.integers(-20, 14, shape)).astype("f2") for shape in ((2, m, k), (k, n)))
        c = rng.standard_normal((2, m, n)).astype("f4")
        if kind == "special":
            a[rng.uniform(size=a.shape) < 1e-3] = np.inf
            b[rng.uniform(size=b.shape) < 3e-4] = -np.inf
            b[rng.uniform(size=b.shape) < 1e-4] = np.nan
        if kind == "zeros":
            a[:], b[:] = np.where(rng.uniform(size=a.shape) < 1e-3, 0.0, -0.0), 1.0
            b[:, ::2] = -1.0
            c[:] = np.where(rng.uniform(size=c.shape) < 0.5, 0.0, -0.0)
        if kind == "cancelling":
            a[..., k // 2 :], b[k // 2 :] = -a[..., : k // 2], b[: k // 2]
            c[:] = -0.0
        options: dict[str, Any] = {"mode": "exact", "alpha": alpha, "beta": beta, "result": result}
        expected = multiplied(device, monkeypatch, None, a, b, c, **options)
        word = f"u{expected.itemsize}"
        nan = np.isnan(expected.astype("f4"))
        for most in (128, 512):
            found = multiplied(device, monkeypatch, most, a, b, c, **options)
            assert np.all((found.view(word) == expected.view(word)) | (nan & np.isnan(found.astype("f4")))), (alpha, beta, most)


WAYS: list[tuple[str, dict[str, Any]]] = [
    (name, options) for name in ("float32", "float16") for options in ({}, {"mode": "deterministic"}, {"batch_invariant": True})
]


@pytest.mark.parametrize("k", [40_000, 100_001, 1_000_000])
@pytest.mark.parametrize(("name", "options"), [*WAYS, ("float16", {"mode": "exact"})], ids=str)
def test_deep_products_of_ones(k: int, name: str, options: dict[str, Any]) -> None:
    found = pg.matmul(np.ones((2, k), name), np.ones((k, 3), name), dtype="float32", device="wgpu", **options)
    assert np.array_equal(found, np.full((2, 3), k))


@pytest.mark.parametrize("row", CUT, ids=lambda row: row.name)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_the_deepest_dispatch_of_every_row(device: Any, row: Variant, split: bool) -> None:
    """One dispatch of each row at its depth, and its neighbours: whole numbers whose sum every term changes."""
    rng = np.random.default_rng(3)
    assert row.deepest is not None
    type_ = FLOAT16 if row.exact else FLOAT32
    for k in (row.deepest, row.deepest + 1, 2 * row.deepest + 7):
        a = rng.integers(1, 4, (5, k)).astype(numpy_type(type_))
        b = rng.integers(1, 4, (k, 7)).astype(numpy_type(type_))
        whole = None if split else Shape(1 << 20, 64, k)
        found = product(device, a, b, mode="exact" if row.exact else "fast", variant=row.name, whole=whole)
        assert np.array_equal(found, a.astype("f8") @ b.astype("f8")), k


@pytest.mark.parametrize("low", [65504.0, 2.0**-24, np.inf, -0.0])
def test_deep_exact_sums_of_hard_numbers(low: float) -> None:
    k = 40_001
    a, b = np.full((3, k), low, np.float16), np.ones((k, 40), np.float16)
    a[1, 17] = 1.0
    a[2, k - 1] = -np.inf
    found, expected = (pg.matmul(a, b, dtype="float32", mode="exact", device=each) for each in ("wgpu", "cpu"))
    both = np.isnan(found) & np.isnan(expected)
    assert np.all(both | (found.view("u4") == expected.view("u4")))


@pytest.mark.parametrize("mode", ["fast", "deterministic", "exact"])
def test_recorded_products_may_be_deep(device: Any, mode: str) -> None:
    k = 70_001
    gemm = Gemm(device, "float16", mode=mode, batch_invariant=mode == "fast")
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 3, (6, k)).astype("f2"), rng.integers(0, 3, (k, 9)).astype("f2")
    left, right = device.create_buffer(a.view("u1")), device.create_buffer(b.view("u1"))
    into = device.create_buffer(np.full(54, 5.0, "f4"))
    encoder = device.create_encoder()
    device.prepare(gemm.shaders).wait()
    gemm.encode(encoder, left, right, into, 6, 9, k, alpha=2.0, beta=-1.0)
    device.submit(encoder)
    found = np.frombuffer(device.read_buffer(into), "f4").reshape(6, 9)
    assert np.array_equal(found, 2 * (a.astype("f8") @ b.astype("f8")) - 5)
