"""The order of summation that a row states, replayed product by product: the same bits, whatever m, n, batch and arrangement."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from py_gemm.cpu.gemm import CpuGemm
from tests.cpu.support import NUMPY_TYPES, ROW_NAMES, Array, gemm_of, laid_out, multiply, row_named


def two_sum_rounded_to_odd(x: Array, y: Array) -> Array:
    """The sum x + y of float64, rounded to odd: a last rounding to float32 is then as if it had been the only one."""
    total = x + y
    part = total - x
    rest = (x - (total - part)) + (y - part)
    bits = total.view(np.int64)
    toward_rest = np.where((rest > 0) == (total > 0), bits + 1, bits - 1)
    odd = np.where((rest != 0) & (bits & 1 == 0), toward_rest, bits)
    return odd.view(np.float64)


def fused_float32(a: Array, b: Array, total: Array) -> Array:
    """fma(a, b, total) of float32, exactly: the product is exact in float64, the sum rounded to odd there, then once to float32."""
    product = a.astype(np.float64) * b.astype(np.float64)
    return two_sum_rounded_to_odd(product, np.broadcast_to(total, product.shape).astype(np.float64)).astype(np.float32)


def fused_float64(a: Array, b: Array, total: Array) -> Array:
    """fma(a, b, total) of float64, exactly: rational arithmetic, and the one rounding of float()."""
    exact = np.frompyfunc(lambda x, y, z: float(Fraction(x) * Fraction(y) + Fraction(z)), 3, 1)
    found: Array = exact(a, b, total).astype(np.float64)
    return found


def replay(name: str, a: Array, b: Array, fused: bool) -> Array:
    row = row_named(name)
    real = NUMPY_TYPES[row.accumulator.name]
    a, b = a.astype(real), b.astype(real)
    k = a.shape[1]
    length = row.order.chain_length(k)
    total = None
    for first in range(0, k, length):
        chain = np.zeros((a.shape[0], b.shape[1]), real)
        for step in range(first, min(first + length, k)):
            x, y = a[:, step : step + 1], b[step : step + 1, :]
            if not fused:
                chain = x * y + chain
            elif real == np.float32:
                chain = fused_float32(x, y, chain)
            else:
                chain = fused_float64(x, y, chain)
        total = chain if total is None else total + chain
    assert total is not None
    return total


def host_fuses(name: str) -> bool:
    """Whether this host computes the row's multiply-add with one rounding: (1 + e)(1 - e) - 1 is -e^2 then, else 0."""
    real = NUMPY_TYPES[row_named(name).accumulator.name]
    e = np.finfo(real).eps
    a, b = np.asarray([[-1, 1 + e]], real), np.asarray([[1], [1 - e]], real)
    return bool(multiply(gemm_of(name), a, b, np.zeros((1, 1), real))[0, 0] != 0)


@pytest.mark.parametrize("shape", [(13, 21, 100), (5, 9, 256), (7, 10, 257), (6, 8, 1030)])
@pytest.mark.parametrize("name", ROW_NAMES)
def test_result_is_the_replayed_sum(name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    generator = np.random.default_rng(21)
    real = NUMPY_TYPES[row_named(name).accumulator.name]
    a, b = generator.standard_normal((m, k)).astype(real), generator.standard_normal((k, n)).astype(real)
    order = row_named(name).order
    fused = host_fuses(name)
    assert order.fused is None or order.fused == fused
    expected = replay(name, a, b, fused)
    found = multiply(gemm_of(name), a, b, np.zeros((m, n), real))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", ROW_NAMES)
def test_bits_of_an_element_depend_on_k_alone(name: str) -> None:
    generator = np.random.default_rng(22)
    real = NUMPY_TYPES[row_named(name).accumulator.name]
    for k in (50, 700):
        a, b = generator.standard_normal((40, k)).astype(real), generator.standard_normal((k, 50)).astype(real)
        whole = multiply(gemm_of(name), a, b, np.zeros((40, 50), real))
        for rows, columns in ((slice(0, 1), slice(0, 50)), (slice(17, 40), slice(33, 34)), (slice(3, 9), slice(1, 2))):
            part = np.zeros(whole[rows, columns].shape, real)
            assert np.array_equal(multiply(gemm_of(name), a[rows], b[:, columns], part), whole[rows, columns])
        for how in ("transposed", "reversed", "spread"):
            again = multiply(gemm_of(name), laid_out(a, how), laid_out(b, how), laid_out(np.zeros_like(whole), how))
            assert np.array_equal(again, whole), how
        batch = multiply(gemm_of(name), np.stack([a, a]), b, np.zeros((2, 40, 50), real))
        assert np.array_equal(batch[1], whole)


def test_both_relaxed_tiles_sum_alike() -> None:
    generator = np.random.default_rng(23)
    a, b = generator.standard_normal((20, 600)).astype(np.float32), generator.standard_normal((600, 20)).astype(np.float32)
    first, second = (
        multiply(gemm_of(name), a, b, np.zeros((20, 20), np.float32)) for name in ("gemm_f32_6x8_relaxed", "gemm_f32_4x8_relaxed")
    )
    assert np.array_equal(first, second)


def test_deterministic_runs_the_plain_kernel() -> None:
    generator = np.random.default_rng(24)
    a, b = generator.standard_normal((9, 300)).astype(np.float32), generator.standard_normal((300, 9)).astype(np.float32)
    found = multiply(CpuGemm(), a, b, np.zeros((9, 9), np.float32), deterministic=True)
    assert np.array_equal(found, replay("gemm_f32_4x8_simd128", a, b, False))
