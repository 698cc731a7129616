"""The order of summation that a row states, replayed product by product: the same bits, whatever m, n, batch and arrangement."""

from __future__ import annotations

import numpy as np
import pytest

from py_gemm.cpu.gemm import CpuGemm
from py_gemm.dtypes import FLOAT64
from py_gemm.exact import orders
from tests.cpu.support import NUMPY_TYPES, ROW_NAMES, Array, gemm_of, laid_out, multiply, row_named


def replay(name: str, a: Array, b: Array, fused: bool) -> Array:
    """The sums as the row states their order."""
    row = row_named(name)
    return orders.replay(
        orders.stated(row.order, a.shape[1]),
        a,
        b,
        fused=fused,
        accumulator=np.float64 if row.accumulator is FLOAT64 else np.float32,
    )


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
