"""The int8 kernels one by one: every row that this machine's engine can run is exact on every input, and so equal to every other.

wasmtime has no exact dot product by default, but it has a mode in which relaxed SIMD is deterministic: a signed one (`sdot`). The
row for unsigned bytes (`dot`) is run on numbers on which every engine agrees: no byte of B's panels with its top bit set.
"""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wasmtime

import py_gemm as pg
from py_gemm.cpu.blocking import block
from py_gemm.cpu.engines.copying import KEEP_BYTES
from py_gemm.cpu.engines.wasmtime import WasmtimeEngine
from py_gemm.cpu.families import ROWS, Row
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.cpu.plan import make_plan
from py_gemm.cpu.probe import exact_dot, is_exact
from py_gemm.dtypes import INT8, INT32, UINT8, ElementType
from py_gemm.errors import DeviceMemoryError, UnsupportedError
from py_gemm.int8_block import make_block, transpose_block
from py_gemm.problem import Layout, Problem
from tests.conformance.int8_cases import requantized
from tests.cpu.support import LAYOUTS, Array, address_of, laid_out, row_named

TYPES: dict[str, ElementType] = {"int8": INT8, "uint8": UINT8}
INTEGER_ROWS = [row.name for row in ROWS if row.accumulator is INT32]
EXACT_HERE = [name for name in INTEGER_ROWS if not name.endswith("_dot")]


@cache
def engine_for(name: str) -> WasmtimeEngine:
    """An engine on which the row is exact: the default one, or one whose relaxed SIMD is deterministic."""
    if not name.endswith("dot"):
        return WasmtimeEngine()
    plain = wasmtime.Config

    def deterministic() -> Any:
        config = plain()
        config.wasm_relaxed_simd = True
        config.wasm_relaxed_simd_deterministic = True
        return config

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wasmtime, "Config", deterministic)
        return WasmtimeEngine(cache_folder=Path("/nonexistent"))


def product(row: Row, a: Array, b: Array, zero_a: Any = 0, zero_b: Any = 0) -> Array:
    """The int32 product by one row, whether or not the engine's probe thinks well of it."""
    (m, k), n = a.shape, b.shape[1]
    words = make_block("test", TYPES[a.dtype.name], TYPES[b.dtype.name], m, n, zero_a, zero_b)
    d = np.full((m, n), -77, np.int32)
    layout_a, layout_b = (Layout(TYPES[each.dtype.name], each.strides[0], each.strides[1]) for each in (a, b))
    problem = Problem(m, n, k, layout_a, layout_b, Layout(INT32, n, 1))
    plan = make_plan(problem, block_words=len(words.data) // 4, keep_rows=words.by_row)
    call = engine_for(row.name).bind(row, plan, block(row, plan.m, plan.n, plan.k))
    held = np.frombuffer(transpose_block(words.data) if plan.swapped else words.data, np.uint8)
    a, b = (b, a) if plan.swapped else (a, b)
    call(address_of(a), address_of(b), 0, address_of(d), address_of(held))
    return d


def exact(a: Array, b: Array, zero_a: Any = 0, zero_b: Any = 0) -> Array:
    total: Array = (a.astype(np.int64) - zero_a) @ (b.astype(np.int64) - zero_b)
    return total.astype(np.uint32).view(np.int32)


def numbers(random: np.random.Generator, shape: tuple[int, int], dtype: str) -> Array:
    """Random bytes, a third of them extremes."""
    limits = np.iinfo(dtype)
    found = random.integers(limits.min, limits.max + 1, shape)
    extremes = random.choice([limits.min, limits.max], shape)
    return np.where(random.random(shape) < 0.33, extremes, found).astype(dtype)


@pytest.mark.parametrize("name", EXACT_HERE)
def test_exact_in_every_arrangement_with_zero_points(name: str) -> None:
    random = np.random.default_rng(41)
    shapes = [
        (1, 1, 1),
        (9, 1, 40),
        (21, 3, 17),
        (4, 8, 4),
        (6, 8, 16),
        (5, 9, 3),
        (7, 17, 33),
        (13, 24, 65),
        (19, 7, 130),
        (12, 16, 0),
        (6, 8, 1030),
    ]
    for (m, n, k), how_a, how_b, type_a, type_b in itertools.product(shapes, LAYOUTS, LAYOUTS, TYPES, TYPES):
        a, b = laid_out(numbers(random, (m, k), type_a), how_a), laid_out(numbers(random, (k, n), type_b), how_b)
        zeros_a = random.integers(np.iinfo(type_a).min, np.iinfo(type_a).max + 1, (m, 1))
        zeros_b = random.integers(np.iinfo(type_b).min, np.iinfo(type_b).max + 1, n)
        for zero_a, zero_b in ((0, 0), (zeros_a, zeros_b)):
            found = product(row_named(name), a, b, zero_a, zero_b)
            assert np.array_equal(found, exact(a, b, zero_a, zero_b)), (m, n, k, how_a, how_b, type_a, type_b)


@pytest.mark.parametrize("name", EXACT_HERE)
@pytest.mark.parametrize(("m", "n", "k"), [(260, 9, 2100), (129, 1030, 257), (7, 2100, 520)])
def test_exact_over_several_blocks(name: str, m: int, n: int, k: int) -> None:
    random = np.random.default_rng(42)
    a, b = numbers(random, (m, k), "uint8"), numbers(random, (k, n), "int8")
    assert np.array_equal(product(row_named(name), a, b, 200, -9), exact(a, b, 200, -9))


@pytest.mark.parametrize("name", EXACT_HERE)
@pytest.mark.parametrize(("type_a", "type_b"), list(itertools.product(TYPES, TYPES)))
def test_all_single_products_and_all_quadruples_of_extremes(name: str, type_a: str, type_b: str) -> None:
    limits = [np.iinfo(each) for each in (type_a, type_b)]
    ranges = [np.arange(each.min, each.max + 1) for each in limits]
    a, b = ranges[0].astype(type_a)[:, None], ranges[1].astype(type_b)[None, :]
    assert np.array_equal(product(row_named(name), a, b), np.multiply.outer(*ranges)), "65,536 products"
    extremes = [sorted({each.min, each.min + 1, 0, each.max - 1, each.max, each.max // 2 + 1}) for each in limits]
    rows, columns = (np.array(list(itertools.product(each, repeat=4))) for each in extremes)
    a, b = rows.astype(type_a), np.ascontiguousarray(columns.T).astype(type_b)
    assert np.array_equal(product(row_named(name), a, b), exact(a, b))


@pytest.mark.parametrize("name", EXACT_HERE)
def test_sums_wrap(name: str) -> None:
    k = 140_000
    a, b = np.full((2, k), -128, np.int8), np.full((k, 3), -128, np.int8)
    found = product(row_named(name), a, b)
    assert found[0, 0] < 0
    assert np.array_equal(found, exact(a, b))


def test_the_unsigned_row_where_every_engine_agrees() -> None:
    """A whole, B in the half of its range that is 0..127 in the panels; the pads of an int8 B are 128 there, so it has none."""
    random = np.random.default_rng(43)
    row = row_named("gemm_i8_6x8_dot")
    for (m, n, k), how, type_a, type_b in itertools.product(
        ((5, 9, 7), (13, 24, 65), (7, 8, 1500), (6, 8, 16)), LAYOUTS, TYPES, TYPES
    ):
        depth = k if type_b == "uint8" else k // 4 * 4
        a = laid_out(numbers(random, (m, depth), type_a), how)
        b = random.integers(0, 128, (depth, n)) - (128 if type_b == "int8" else 0)
        zeros_a, zeros_b = random.integers(0, 128, (m, 1)), random.integers(0, 128, n)
        found = product(row, a, laid_out(b.astype(type_b), how), zeros_a, zeros_b)
        assert np.array_equal(found, exact(a, b, zeros_a, zeros_b)), (m, n, depth, how, type_a, type_b)


def test_the_probe_tells_engines_apart() -> None:
    """Wasmtime saturates pairs by default; deterministic, it is exact and signed; without relaxed SIMD there is nothing to find."""
    default, deterministic = WasmtimeEngine(), engine_for("gemm_i8_6x8_sdot")
    assert exact_dot(default) is None
    assert exact_dot(deterministic) == "sdot"
    assert exact_dot(WasmtimeEngine(relaxed_simd=False)) is None
    for name in INTEGER_ROWS:
        verdicts = {is_exact(default, row_named(name), x, y) for x in (INT8, UINT8) for y in (INT8, UINT8)}
        assert verdicts == {not name.endswith("dot")}
    assert not is_exact(deterministic, row_named("gemm_i8_6x8_dot"), INT8, INT8)


def test_a_dot_product_that_is_not_exact_cannot_be_forced() -> None:
    with pytest.raises(UnsupportedError, match=r"gemm_i8_6x8_dot cannot run: this engine \(wasmtime\) lacks an exact dot product"):
        CpuGemm(token="dot")
    forced = CpuGemm(token="sdot", engine=engine_for("gemm_i8_6x8_sdot"))
    layout = Layout(INT8, 8, 1)
    problem = Problem(8, 8, 8, layout, layout, Layout(INT32, 8, 1))
    assert forced.prepare_int8(problem, block_words=16, keep_rows=False).variant == "gemm_i8_6x8_sdot"
    assert CpuGemm().prepare_int8(problem, block_words=16, keep_rows=False).variant == "gemm_i8_4x8_i16"


@pytest.mark.parametrize("token", [None, "i16", "simd128"])
def test_few_rows_read_b_in_place_by_shape_alone(token: str | None) -> None:
    gemm = CpuGemm(token=token)
    name = f"_i8_4x8_{token or 'i16'}"
    for m, b, kind in (
        (1, Layout(INT8, 8, 1), "gemv"), (4, Layout(UINT8, 1, 9), "gemv"), (4, Layout(INT8, 1, -9), "gemv"),
        (5, Layout(INT8, 8, 1), "gemm"), (2, Layout(INT8, 16, 2), "gemm"), (1, Layout(INT8, 8, -1), "gemm"),
    ):  # fmt: skip
        problem = Problem(m, 8, 9, Layout(INT8, 9, 1), b, Layout(INT32, 8, 1))
        assert gemm.prepare_int8(problem, block_words=16, keep_rows=False).variant == kind + name, (m, b)
    tall = Problem(50, 3, 9, Layout(INT8, 9, 1), Layout(UINT8, 3, 1), Layout(INT32, 3, 1))
    call = gemm.prepare_int8(tall, block_words=16, keep_rows=True)
    assert (call.variant, call.swapped) == ("gemv" + name, True)


@pytest.mark.parametrize(("m", "n"), [(70, 1), (9, 4), (1, 70), (4, 9)])
@pytest.mark.parametrize(("scale", "bias"), [("row", "column"), ("column", "row"), ("row", "row"), ("column", "column")])
def test_few_columns_are_few_rows_of_the_transposed_product(m: int, n: int, scale: str, bias: str) -> None:
    """What is stated for rows and what for columns changes places with them."""
    random = np.random.default_rng(45)
    a, b = numbers(random, (m, 90), "uint8"), numbers(random, (90, n), "int8")
    shape = {"row": (m, 1), "column": (n,)}
    scales = np.exp(random.uniform(-9, -6, shape[scale])).astype(np.float32)
    biases = random.integers(-9999, 9999, shape[bias])
    zero_a, zero_b = random.integers(0, 256, (m, 1)), random.integers(-128, 128, n)
    rules = pg.Requantize(scales, 3, biases)
    found = pg.int8_gemm(a, b, zero_point_a=zero_a, zero_point_b=zero_b, requantize=rules, device="cpu")
    run = pg.last_run()
    assert run is not None
    assert run.variant.startswith("gemv_i8")
    assert np.array_equal(found, requantized(exact(a, b, zero_a, zero_b), scales, 3, biases, "int8", before=False))


def int8_call(gemm: CpuGemm, a: Array, b: Array, d: Array, zero_a: int, rules: pg.Requantize | None) -> None:
    words = make_block("test", INT8, INT8, len(a), b.shape[1], zero_a, requantize=rules)
    k, n = b.shape
    problem = Problem(len(a), n, k, Layout(INT8, k, 1), Layout(INT8, n, 1), Layout(words.result, n, 1))
    call = gemm.prepare_int8(problem, block_words=len(words.data) // 4, keep_rows=False)
    held = np.frombuffer(transpose_block(words.data) if call.swapped else words.data, np.uint8)
    call(address_of(a), address_of(b), 0, address_of(d), address_of(held))


@pytest.mark.parametrize("m", [3, 1500])
def test_memory_that_runs_out_leaves_everything_untouched(m: int) -> None:
    gemm = CpuGemm(engine=WasmtimeEngine(memory_limit=2 << 20))
    random, rules = np.random.default_rng(44), pg.Requantize(1e-4)
    a, b = numbers(random, (m, 2000), "int8"), numbers(random, (2000, 1500), "int8")
    before, d = (a.copy(), b.copy()), np.full((m, 1500), -77, np.int8)
    with pytest.raises(DeviceMemoryError, match="wasmtime cannot grow a memory"):
        int8_call(gemm, a, b, d, 5, rules)
    assert np.all(d == -77)
    assert np.array_equal(a, before[0])
    assert np.array_equal(b, before[1])
    small = np.ascontiguousarray(a[:3, :40])
    int8_call(gemm, small, np.ascontiguousarray(b[:40, :40]), np.zeros((len(small), 40), np.int8), 5, rules)


def test_large_memory_is_given_back() -> None:
    engine = WasmtimeEngine()
    rows = KEEP_BYTES // 5 + 1  # of one byte, and four of the result
    tall, d = np.full((rows, 1), 3, np.int8), np.zeros((rows, 1), np.int32)
    int8_call(CpuGemm(engine=engine), tall, np.full((1, 1), -2, np.int8), d, 0, None)
    assert np.all(d == -6)
    assert engine.memory_bytes() < KEEP_BYTES
