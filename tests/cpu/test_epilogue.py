"""alpha, beta, C, bias and activation: the order of steps, what is read and what is not, NaN and infinities, accuracy of gelu."""

from __future__ import annotations

from array import array
from math import erfc, exp, pi, sqrt
from typing import Any

import numpy as np
import pytest

from py_gemm.cpu.families import twin_of
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.dtypes import FLOAT32
from py_gemm.epilogue import Activation
from py_gemm.errors import ShapeError
from py_gemm.problem import Layout, Problem
from tests.cpu.support import (
    FLOAT32_ROWS,
    FLOAT64_ROWS,
    HALF_ROWS,
    NUMPY_TYPES,
    ROW_NAMES,
    Array,
    gemm_of,
    laid_out,
    multiply,
    row_named,
    small_integers,
)

SHAPES = [(1, 1, 1), (5, 7, 3), (6, 8, 4), (13, 21, 30), (9, 16, 600)]


def real_of(name: str) -> np.dtype[Any]:
    return NUMPY_TYPES[row_named(name).accumulator.name]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ROW_NAMES)
def test_steps_come_in_the_stated_order_each_rounded_by_itself(name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    generator = np.random.default_rng(31)
    real = real_of(name)
    a, b = generator.standard_normal((m, k)).astype(real), generator.standard_normal((k, n)).astype(real)
    c, bias = generator.standard_normal((m, n)).astype(real), generator.standard_normal(n).astype(np.float32)
    product = multiply(gemm_of(name), a, b, np.zeros((m, n), real))
    alpha, beta = real.type(1.7), real.type(-0.3)
    for with_c in (False, True):
        for with_bias in (False, True):
            expected = alpha * product
            if with_c:
                expected = expected + beta * c
            if with_bias:
                expected = expected + bias.astype(real)
            found = multiply(
                gemm_of(name), a, b, np.zeros((m, n), real), c if with_c else None,
                alpha=float(alpha), beta=float(beta) if with_c else None, bias=bias if with_bias else None,
            )  # fmt: skip
            assert np.array_equal(found, expected)
    assert np.array_equal(multiply(gemm_of(name), a, b, np.zeros((m, n), real), c), product + c)


@pytest.mark.parametrize("name", ROW_NAMES)
def test_beta_zero_does_not_read_c(name: str) -> None:
    real = real_of(name)
    a, b = np.ones((7, 3), real), np.ones((3, 9), real)
    poison = np.full((7, 9), np.nan, real)
    assert np.array_equal(multiply(gemm_of(name), a, b, poison, poison, beta=0.0), np.full((7, 9), 3, real))


@pytest.mark.parametrize("name", ROW_NAMES)
def test_alpha_zero_does_not_read_a_and_b(name: str) -> None:
    real = real_of(name)
    poison_a, poison_b = np.full((7, 3), np.nan, real), np.full((3, 9), np.inf, real)
    c = small_integers(np.random.default_rng(32), (7, 9), real)
    found = multiply(gemm_of(name), poison_a, poison_b, np.ones((7, 9), real), c, alpha=0.0, beta=2.0)
    assert np.array_equal(found, 2 * c)
    assert np.array_equal(multiply(gemm_of(name), poison_a, poison_b, np.ones((7, 9), real), alpha=0.0), np.zeros((7, 9)))


@pytest.mark.parametrize("k_or_alpha", ["k", "alpha"])
@pytest.mark.parametrize("name", ROW_NAMES)
def test_without_a_product_the_sign_of_beta_c_stays(name: str, k_or_alpha: str) -> None:
    real = real_of(name)
    k, alpha = (0, 1.0) if k_or_alpha == "k" else (2, 0.0)
    a, b = np.ones((3, k), real), np.ones((k, 5), real)
    c = np.full((3, 5), -0.0, real)
    for beta in (1.0, 0.5):
        assert np.all(np.signbit(multiply(gemm_of(name), a, b, np.ones((3, 5), real), c, alpha=alpha, beta=beta)))
    assert not np.any(np.signbit(multiply(gemm_of(name), a, b, np.ones((3, 5), real), c, alpha=alpha, beta=-1.0)))
    bias = np.asarray([1, 2, 3, 4, 5], np.float32)
    found = multiply(
        gemm_of(name), a, b, np.ones((3, 5), real), c + 1, alpha=alpha, beta=-3.0, bias=bias, activation=Activation.RELU
    )
    assert np.array_equal(found, np.tile([0, 0, 0, 1, 2], (3, 1)))


@pytest.mark.parametrize("name", ROW_NAMES)
def test_batched_without_a_product(name: str) -> None:
    real = real_of(name)
    c = small_integers(np.random.default_rng(33), (2, 3, 4, 5), real)
    found = multiply(gemm_of(name), np.ones((2, 3, 4, 0), real), np.ones((0, 5), real), np.ones((2, 3, 4, 5), real), c)
    assert np.array_equal(found, c)


@pytest.mark.parametrize("name", ROW_NAMES)
def test_nan_and_infinities_appear_where_numpy_has_them(name: str) -> None:
    """Small integers with specials strewn in; padding lanes must not leak into others."""
    real = real_of(name)
    generator = np.random.default_rng(34)
    for m, n, k in ((5, 9, 6), (8, 8, 8), (13, 3, 300)):
        a, b = small_integers(generator, (m, k), real), small_integers(generator, (k, n), real)
        for operand in (a, b):
            for special in (np.nan, np.inf, -np.inf):
                operand[generator.integers(operand.shape[0]), generator.integers(operand.shape[1])] = special
        with np.errstate(invalid="ignore"):
            expected = a @ b
        assert np.array_equal(multiply(gemm_of(name), a, b, np.zeros((m, n), real)), expected, equal_nan=True)


def activated(name: str, activation: Activation, values: Array) -> Array:
    """act(values) through a call without a product; the values' type is the kernel's own."""
    padded = np.resize(values, (-(-len(values) // 11), 11))
    nothing_a, nothing_b = np.zeros((len(padded), 0), values.dtype), np.zeros((0, 11), values.dtype)
    found = multiply(gemm_of(name), nothing_a, nothing_b, np.zeros_like(padded), padded, activation=activation)
    return found.reshape(-1)[: len(values)]


@pytest.mark.parametrize("name", ROW_NAMES)
def test_relu(name: str) -> None:
    values = np.asarray([-1, -0.0, 0.0, 2, np.inf, -np.inf, np.nan], real_of(name))
    found = activated(name, Activation.RELU, values)
    assert np.array_equal(found, np.asarray([0, 0, 0, 2, np.inf, 0, np.nan], values.dtype), equal_nan=True)
    assert not np.any(np.signbit(found[:6]))


def true_gelu(activation: Activation, x: float) -> float:
    """By the C library's erfc and exp, whose errors are below 1e-15 relative."""
    if activation is Activation.GELU_ERF:
        return 0.5 * x * erfc(-x / sqrt(2))
    twice = 2 * sqrt(2 / pi) * (x + 0.044715 * x**3)
    return x / (1 + exp(-twice)) if twice > -700 else -0.0


def grid() -> Array:
    return np.concatenate(
        [
            np.linspace(-15, 15, 30_001),
            np.linspace(-1, 1, 2001) * 1e-3,
            np.geomspace(1e-30, 1e30, 500),
            -np.geomspace(1e-30, 1e30, 500),
        ]
    )


GELUS = [Activation.GELU_ERF, Activation.GELU_TANH]


@pytest.mark.parametrize(("names", "bound"), [(FLOAT32_ROWS, 2.5e-7), (FLOAT64_ROWS, 5e-16)], ids=["float32", "float64"])
@pytest.mark.parametrize("activation", GELUS, ids=lambda each: each.name.lower())
def test_gelu_is_accurate(names: list[str], bound: float, activation: Activation) -> None:
    """Tighter than the promise of 4e-7 (1 + |x|), so that a change that loses accuracy is seen."""
    values = grid().astype(real_of(names[0]))
    exact = np.asarray([true_gelu(activation, float(x)) for x in values])
    for name in names:
        found = activated(name, activation, values).astype(np.float64)
        error = np.abs(found - exact) / (1 + np.abs(values.astype(np.float64)))
        worst = int(np.argmax(error))
        assert error[worst] < bound, (name, values[worst], error[worst])


@pytest.mark.parametrize("activation", GELUS, ids=lambda each: each.name.lower())
@pytest.mark.parametrize("name", ROW_NAMES)
def test_gelu_of_the_extremes(name: str, activation: Activation) -> None:
    largest = np.finfo(real_of(name)).max
    found = activated(name, activation, np.asarray([np.inf, -np.inf, np.nan, 0.0, -0.0, largest, -largest], real_of(name)))
    assert np.array_equal(found, np.asarray([np.inf, 0, np.nan, 0, 0, largest, 0], found.dtype), equal_nan=True)
    assert np.signbit(found[4])


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ROW_NAMES)
def test_epilogue_and_rounding_are_one(name: str, half: str) -> None:
    """A narrow D is the accumulator's result rounded once, also with bias and activation and over several chains."""
    generator = np.random.default_rng(35)
    real, narrow = real_of(name), NUMPY_TYPES[half]
    a, b = generator.standard_normal((9, 700)).astype(narrow), generator.standard_normal((700, 13)).astype(narrow)
    if real == np.float64:
        b = b.astype(np.float64)
    bias = generator.standard_normal(13).astype(np.float32)
    wide = multiply(gemm_of(name), a, b, np.zeros((9, 13), real), bias=bias, activation=Activation.GELU_ERF)
    found = multiply(gemm_of(name), a, b, np.zeros((9, 13), narrow), bias=bias, activation=Activation.GELU_ERF)
    if real == np.float32:
        assert np.array_equal(found.astype(np.float32), wide.astype(narrow).astype(np.float32))
    else:
        spacing = np.spacing(np.abs(wide).astype(np.float32)) * 2.0 ** (13 if half == "float16" else 16)
        assert np.all(np.abs(found.astype(np.float64) - wide) <= 0.5000001 * np.maximum(spacing, 2.0**-24))


@pytest.mark.parametrize("name", [*ROW_NAMES, *HALF_ROWS])
def test_fused_is_gemm_then_map(name: str) -> None:
    """A bias of columns and one of rows, every activation, with C and over several chains: the bits of the product by itself, the
    bias added to it, then the activation, then one rounding."""
    generator = np.random.default_rng(36)
    row = row_named(name)
    sums = real_of(name)
    inputs = NUMPY_TYPES[row.inputs.name] if row.inputs else sums
    real = NUMPY_TYPES[row.output.name] if row.output else sums
    twin = twin_of(row).name if row.twin else name
    general = "gemm_f32_4x8_simd128" if row.inputs else name  # an activation is the same in every row
    for m, n, k in ((1, 1, 1), (5, 19, 3), (13, 3, 300), (7, 40, 521)):
        a, b = generator.standard_normal((m, k)).astype(inputs), generator.standard_normal((k, n)).astype(inputs)
        c = generator.standard_normal((m, n)).astype(real)
        product = multiply(gemm_of(twin), a, b, np.zeros((m, n), sums), c, alpha=1.7, beta=-0.3)
        for by_row in (False, True):
            bias = generator.standard_normal(m if by_row else n).astype(np.float32)
            for activation in Activation:
                mapped = product + (bias[:, None] if by_row else bias).astype(sums)
                mapped = activated(general, activation, mapped.reshape(-1)).reshape(m, n) if activation else mapped
                found = multiply(
                    gemm_of(name), a, b, np.zeros((m, n), real), c, alpha=1.7, beta=-0.3, bias=bias, bias_by_row=by_row,
                    activation=activation,
                )  # fmt: skip
                assert np.array_equal(found, mapped.astype(real)), (m, n, k, by_row, activation)


@pytest.mark.parametrize("how", ["plain", "transposed", "reversed", "spread"])
def test_a_bias_of_rows_meets_its_rows(how: str) -> None:
    """However D lies, with a batch and without a product; a matrix of few rows or columns is turned for its kernel."""
    generator = np.random.default_rng(37)
    for dtype in (np.float32, np.float64):
        for batch, m, n in (((), 1, 30), ((), 40, 2), ((3,), 9, 11), ((2,), 1, 9), ((), 5, 1)):
            for k in (0, 4):
                a = small_integers(generator, (*batch, m, k), np.dtype(dtype))
                b = small_integers(generator, (k, n), np.dtype(dtype))
                bias = generator.integers(-9, 9, m).astype(np.float32)
                d = laid_out(np.zeros((*batch, m, n), dtype), how)
                found = multiply(CpuGemm(), a, b, d, bias=bias, bias_by_row=True)
                assert np.array_equal(found, a @ b + bias[:, None]), (batch, m, n, k)


def test_run_takes_a_bias_of_rows_and_checks_its_length() -> None:
    a, d, layout = array("f", [1, 2, 3, 4, 5, 6]), array("f", bytes(24)), Layout(FLOAT32, 1, 1)
    problem = Problem(3, 2, 1, layout, layout, Layout(FLOAT32, 2, 1))
    CpuGemm().run(problem, a, a, None, d, bias=array("f", [10, 20, 30]), bias_by_row=True)
    assert list(d) == [11, 12, 22, 24, 33, 36]
    with pytest.raises(ShapeError, match="bias needs elements 0 to 2, its buffer holds 2"):
        CpuGemm().run(problem, a, a, None, d, bias=array("f", [10, 20]), bias_by_row=True)
