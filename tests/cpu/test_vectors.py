"""Vectors and few rows: the kernels that read B in place are taken by shape alone, and give the bits of the general kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from py_gemm.cpu.blocking import DEFAULT_GEOMETRY, block
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.epilogue import Activation
from tests.cpu.support import (
    LAYOUTS,
    NUMPY_TYPES,
    Array,
    frame_is_whole,
    framed,
    gemm_of,
    laid_out,
    multiply,
    problem_of,
    row_named,
)

PAIRS = [
    ("gemv_f32_4x8_relaxed", "gemm_f32_4x8_relaxed"),
    ("gemv_f32_4x8_simd128", "gemm_f32_4x8_simd128"),
    ("gemv_f64_4x4_relaxed", "gemm_f64_4x4_relaxed"),
    ("gemv_f64_4x4_simd128", "gemm_f64_4x4_simd128"),
]


def numbers(generator: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
    return generator.standard_normal(shape).astype(NUMPY_TYPES[name])


def types_of(name: str) -> list[str]:
    return ["float32", "float16", "bfloat16"] + (["float64"] if "f64" in name else [])


@pytest.mark.parametrize(("few", "general"), PAIRS)
def test_same_bits_as_the_general_kernel(few: str, general: str) -> None:
    """Every type of B in every arrangement; lengths around every group of columns and of steps; one chain and several."""
    generator = np.random.default_rng(31)
    real = NUMPY_TYPES[row_named(few).accumulator.name]
    for type_b, how, m in itertools.product(types_of(few), LAYOUTS, (1, 2, 3, 4, 7)):
        for n, k in ((1, 9), (3, 17), (8, 8), (37, 31), (67, 300), (130, 521)):
            a = numbers(generator, (m, k), "float64" if real == np.float64 else "float16")
            b = laid_out(numbers(generator, (k, n), type_b), how)
            expected = multiply(gemm_of(general), a, b, np.zeros((m, n), real))
            view, room = framed((m, n), real)
            multiply(gemm_of(few), a, b, view)
            assert np.array_equal(view, expected), (type_b, how, m, n, k)
            assert frame_is_whole(view, room)


@pytest.mark.parametrize(("few", "general"), PAIRS)
def test_same_bits_with_everything_around_the_product(few: str, general: str) -> None:
    generator = np.random.default_rng(32)
    real = NUMPY_TYPES[row_named(few).accumulator.name]
    for (m, n), how, (alpha, beta), activation in itertools.product(
        ((1, 45), (3, 18), (40, 1), (25, 3)), LAYOUTS, ((1.0, 0.0), (2.3, 2.3), (0.0, 1.0)), (Activation.NONE, Activation.GELU_ERF)
    ):
        a, b = laid_out(numbers(generator, (m, 300), "float32"), how), numbers(generator, (300, n), "bfloat16")
        if real == np.float64:
            a = a.astype(np.float64)
        c, bias = numbers(generator, (m, n), "float16"), numbers(generator, (n,), "float32")
        results = []
        for name, arrangement in ((few, how), (general, "plain")):
            d = laid_out(np.zeros((m, n), real), arrangement)
            results.append(multiply(gemm_of(name), a, b, d, c, alpha=alpha, beta=beta, bias=bias, activation=activation))
        assert np.array_equal(results[0], results[1]), (m, n, how, alpha, beta, activation)


def test_the_shape_alone_decides() -> None:
    gemm = CpuGemm()
    f32, bf16 = np.dtype(np.float32), NUMPY_TYPES["bfloat16"]
    for m, n, dtype, how, family in (
        (1, 50, f32, "plain", "gemv_f32"), (1, 50, bf16, "transposed", "gemv_f32"), (4, 50, f32, "reversed", "gemm_f32"),
        (50, 1, f32, "plain", "gemv_f32"), (50, 4, bf16, "plain", "gemv_f32"), (5, 50, f32, "plain", "gemm_f32"),
        (50, 5, f32, "plain", "gemm_f32"), (1, 50, np.dtype(np.float64), "plain", "gemv_f64"),
    ):  # fmt: skip
        a, b = np.ones((m, 20), dtype), laid_out(np.ones((20, n), dtype), how)
        out = np.zeros((m, n), np.float64 if dtype == np.float64 else np.float32)
        assert gemm.prepare(problem_of(a, b, out)).variant.startswith(family), (m, n, dtype, how)


def test_a_batch_of_vectors_against_one_matrix_is_one_product() -> None:
    """Seven vectors are seven rows; seven products of a vector and a matrix each stay seven."""
    generator = np.random.default_rng(33)
    a, b = numbers(generator, (7, 1, 300), "float32"), numbers(generator, (300, 40), "float32")
    shared, own = np.zeros((7, 1, 40), np.float32), np.zeros((7, 1, 40), np.float32)
    assert CpuGemm().prepare(problem_of(a, b, shared)).variant.startswith("gemm_f32")
    many = np.ascontiguousarray(np.broadcast_to(b, (7, 300, 40)))
    assert CpuGemm().prepare(problem_of(a, many, own)).variant.startswith("gemv_f32")
    assert np.array_equal(multiply(CpuGemm(), a, b, shared), multiply(CpuGemm(), a, many, own))


def test_sums_of_few_rows_stay_in_the_first_cache() -> None:
    row = row_named("gemv_f32_4x8_relaxed")
    for m, columns in ((1, 4096), (2, 2048), (4, 1024)):
        blocking = block(row, m, 1 << 20, 4096)
        assert blocking.block_columns == columns
        assert blocking.block_columns * m * 4 <= DEFAULT_GEOMETRY.row_sums_bytes
        assert blocking.panel_a < blocking.panel_b < blocking.totals < blocking.scratch_bytes
    assert block(row, 1, 1 << 20, 4096, b_by_columns=True).block_columns == DEFAULT_GEOMETRY.few_columns
    assert block(row, 1, 5, 1).block_columns == 8


@pytest.mark.parametrize("how", ["plain", "transposed"])
@pytest.mark.parametrize(("few", "general"), PAIRS[:2])
def test_float16_that_is_not_finite_anywhere(few: str, general: str, how: str) -> None:
    """Float16 is widened as if it were finite, and again where it is not: one infinity or NaN in any place of B is seen."""
    generator = np.random.default_rng(34)
    m, n, k = 2, 53, 21
    a = numbers(generator, (m, k), "float16")
    for index in range(0, n * k, 3):
        b = numbers(generator, (k, n), "float16")
        b.flat[index] = (np.inf, -np.inf, np.nan, 65504.0, 2.0**-24)[index % 5]
        found = multiply(gemm_of(few), a, laid_out(b, how), np.zeros((m, n), np.float32))
        expected = multiply(gemm_of(general), a, b, np.zeros((m, n), np.float32))
        assert np.array_equal(found, expected, equal_nan=True), index
        assert np.isfinite(expected).all() == (index % 5 > 2)
