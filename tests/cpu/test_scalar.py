"""The scalar token: no SIMD anywhere, any tile, the bits of the simd128 token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import wasmtime

import py_gemm as pg
from py_gemm.assets import read_asset
from py_gemm.cpu.blocking import block
from py_gemm.cpu.engines import default_engine
from py_gemm.cpu.engines.wasmtime import WasmtimeEngine
from py_gemm.cpu.families import ROWS, SCALAR_TOKEN, Row, module_asset
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.cpu.plan import make_plan
from py_gemm.dtypes import INT32
from py_gemm.epilogue import Activation
from tests.cpu import test_int8_kernels as int8
from tests.cpu.support import (
    LAYOUTS,
    NUMPY_TYPES,
    Array,
    address_of,
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

SCALAR_ROWS = [row for row in ROWS if row.token == SCALAR_TOKEN]
# Rows and columns: one element, thinner and wider than any kernel's, nothing that a vector would fill.
ABSURD = [(1, 1), (1, 16), (48, 1), (3, 5), (5, 7), (7, 2), (2, 13), (3, 16)]


@pytest.fixture(autouse=True)
def default_token() -> Iterator[None]:
    yield
    pg.configure(token=None)


def test_the_module_has_no_simd_instruction() -> None:
    """An engine that knows none takes it, and takes no other."""
    config = wasmtime.Config()
    config.wasm_relaxed_simd = False
    config.wasm_simd = False
    engine = wasmtime.Engine(config)
    wasmtime.Module.validate(engine, read_asset(module_asset(SCALAR_TOKEN)))
    for module in ("simd128", "relaxed", "pairs", "i16"):
        with pytest.raises(wasmtime.WasmtimeError, match="SIMD support is not enabled"):
            wasmtime.Module.validate(engine, read_asset(module_asset(module)))


def test_the_token_can_be_forced_on_every_engine_and_is_never_chosen() -> None:
    a = np.ones((20, 30), np.float32)
    for relaxed_simd in (True, False):
        engine = WasmtimeEngine(relaxed_simd=relaxed_simd)
        assert CpuGemm(token="scalar", engine=engine).prepare(problem_of(a, a.T, a[:, :20])).variant == "gemm_f32_4x8_scalar"
        for dtype in NUMPY_TYPES.values():
            x = a.astype(dtype)
            assert "scalar" not in CpuGemm(engine=engine).prepare(problem_of(x, x.T, x[:, :20])).variant
    pg.configure(token="scalar")
    for kind, name in (("float32", "f32"), ("float64", "f64"), ("float16", "f16"), ("bfloat16", "bf16")):
        x = a.astype(NUMPY_TYPES[kind])
        assert np.array_equal(pg.matmul(x, x.T, device="cpu").astype(np.float64), np.full((20, 20), 30.0))
        assert last_variant() == f"gemm_{name}_4x{4 if name == 'f64' else 8}_scalar"


def with_tile(row: Row, tile: tuple[int, int]) -> Row:
    """The row with another tile, its columns as many as there is room for."""
    columns = min(tile[1], 64 // row.accumulator.size)
    return replace(row, rows=min(tile[0], 192 // (columns * row.accumulator.size)), columns=columns)


def run(row: Row, a: Array, b: Array, d: Array, c: Array, bias: Array, *, by_row: bool) -> Array:
    problem = problem_of(a, b, d, c, alpha=-1.5, beta=2.0)
    plan = make_plan(problem, Activation.GELU_ERF, True, bias_by_row=by_row)
    call = default_engine().bind(row, plan, block(row, plan.m, plan.n, plan.k))
    x, y = (b, a) if plan.swapped else (a, b)
    call(address_of(x), address_of(y), address_of(c), address_of(d), address_of(bias))
    return d


@pytest.mark.parametrize("tile", ABSURD, ids=lambda tile: f"{tile[0]}x{tile[1]}")
@pytest.mark.parametrize("row", [row for row in SCALAR_ROWS if row.accumulator is not INT32], ids=lambda row: row.name)
def test_any_tile_gives_the_same_bits(row: Row, tile: tuple[int, int]) -> None:
    """Packing, edges, single panels and slices, bias both ways, C and the finish: of none of them may the tile be seen."""
    generator = np.random.default_rng(71)
    inputs, real = NUMPY_TYPES[(row.inputs or row.accumulator).name], NUMPY_TYPES[(row.output or row.accumulator).name]
    absurd = with_tile(row, tile)
    assert absurd.function == row.function
    for (m, n, k), how in zip(((1, 1, 1), (7, 5, 3), (17, 33, 40), (9, 50, 521)), LAYOUTS, strict=True):
        a, b = generator.standard_normal((m, k)).astype(inputs), generator.standard_normal((k, n)).astype(inputs)
        c = generator.standard_normal((m, n)).astype(real)
        for by_row in (False, True):
            bias = generator.standard_normal(m if by_row else n).astype(np.float32)
            view, room = framed((m, n), real, how)
            found = run(absurd, laid_out(a, how), laid_out(b, how), view, c, bias, by_row=by_row)
            assert np.array_equal(found, run(row, a, b, np.zeros((m, n), real), c, bias, by_row=by_row)), (m, n, k, how)
            assert frame_is_whole(view, room), (m, n, k, how)


@pytest.mark.parametrize("tile", ABSURD, ids=lambda tile: f"{tile[0]}x{tile[1]}")
def test_any_tile_of_integers_is_exact(tile: tuple[int, int]) -> None:
    generator = np.random.default_rng(74)
    row = with_tile(row_named("gemm_i8_4x8_scalar"), tile)
    for (m, n, k), how in zip(((1, 1, 1), (7, 5, 3), (17, 33, 40), (9, 50, 300)), LAYOUTS, strict=True):
        a, b = (laid_out(int8.numbers(generator, *each), how) for each in (((m, k), "uint8"), ((k, n), "int8")))
        zeros = generator.integers(0, 256, (m, 1)), generator.integers(-128, 128, n)
        assert np.array_equal(int8.product(row, a, b, *zeros), int8.exact(a, b, *zeros)), (m, n, k, how)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("first", [False, True])
def test_integers_are_requantized_as_by_the_other_tokens(dtype: str, first: bool) -> None:
    """One number, one a row, one a column; scales of powers of two, so that ties are met."""
    generator = np.random.default_rng(75)
    a, b = int8.numbers(generator, (13, 40), "int8"), int8.numbers(generator, (40, 21), "uint8")
    vectors: list[tuple[Any, Any]] = [
        (2.0**-9, 3), (2.0 ** -generator.integers(5, 12, (13, 1)), generator.integers(-99, 99, (13, 1))),
        (2.0 ** -generator.integers(5, 12, 21), generator.integers(-99, 99, 21)),
    ]  # fmt: skip
    for scale, bias in vectors:
        rules = pg.Requantize(scale, 5, bias, dtype, zero_point_before_rounding=first)
        results = []
        for token in ("scalar", "i16", "simd128"):
            pg.configure(token=token)
            results.append(pg.int8_gemm(a, b, zero_point_a=-3, zero_point_b=7, requantize=rules, device="cpu"))
            assert last_variant() == f"gemm_i8_4x8_{token}"
        assert np.array_equal(results[0], results[1])
        assert np.array_equal(results[0], results[2])


def test_a_tile_without_room_is_refused() -> None:
    for tile in ((7, 8), (3, 17), (49, 1)):
        with pytest.raises(ValueError, match="a tile holds at most 192 bytes of sums and 64 in a row"):
            replace(SCALAR_ROWS[0], rows=tile[0], columns=tile[1])


@pytest.mark.parametrize("activation", list(Activation), ids=lambda each: each.name.lower())
@pytest.mark.parametrize(("kind", "tile"), [("f32", "4x8"), ("f64", "4x4")])
def test_bits_are_those_of_the_simd128_token(kind: str, tile: str, activation: Activation) -> None:
    """Every type of A, B, C and D; numbers of every size, so that narrowing meets ties, subnormals and overflow."""
    generator = np.random.default_rng(72)
    types = [dtype for name, dtype in NUMPY_TYPES.items() if name != "float64" or kind == "f64"]
    for index, type_d in enumerate(NUMPY_TYPES.values()):
        m, n, k = 11, 13, 270
        type_a, type_b, type_c = types[index % len(types)], types[(index + 1) % len(types)], types[-index % len(types)]
        if kind == "f64":
            type_a = np.dtype(np.float64)
        scale = 2.0 ** generator.integers(-14, 8, (m, 1))
        a, b = (generator.standard_normal((m, k)) * scale).astype(type_a), generator.standard_normal((k, n)).astype(type_b)
        c, bias = generator.standard_normal((m, n)).astype(type_c), generator.standard_normal(n).astype(np.float32)
        with np.errstate(over="ignore"):
            results = [
                multiply(
                    gemm_of(f"gemm_{kind}_{tile}_{token}"), a, b, np.zeros((m, n), type_d), c, alpha=0.7, beta=-1.3, bias=bias,
                    activation=activation,
                )
                for token in ("simd128", "scalar")
            ]  # fmt: skip
        assert np.array_equal(results[0].view(np.uint8), results[1].view(np.uint8)), type_d


def test_scalar_kernels_are_right_and_not_only_alike() -> None:
    generator = np.random.default_rng(73)
    a, b = small_integers(generator, (23, 300), "float32"), small_integers(generator, (300, 19), "bfloat16")
    found = multiply(CpuGemm(token="scalar"), a, b, np.zeros((23, 19), np.float32))
    assert np.array_equal(found, a @ b.astype(np.float32))
