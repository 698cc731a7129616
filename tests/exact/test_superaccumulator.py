"""The superaccumulator: its numbers are the sums, in every format, however far apart the terms lie."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from py_gemm.errors import ShapeError
from py_gemm.exact import superaccumulator
from py_gemm.exact.superaccumulator import REGISTERS, dot_products, to_integers
from tests.conformance.exactly import FORMATS

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}


def anywhere(source: np.random.Generator, shape: tuple[int, ...], element: str) -> np.ndarray:
    """Finite numbers by their bits: every exponent is as likely, subnormals and the largest among them."""
    size = np.dtype(TYPES[element]).itemsize
    bits = source.integers(0, 2 ** (8 * size), shape, np.uint64, endpoint=False).astype(f"u{size}")
    values = bits.view(TYPES[element])
    with np.errstate(invalid="ignore"):
        values[~np.isfinite(values.astype(np.float64))] = 1
    return np.asarray(values)


def sums(a: np.ndarray, b: np.ndarray) -> list[Fraction]:
    left, right = ([[Fraction(each) for each in line] for line in matrix.astype(np.float64).tolist()] for matrix in (a, b.T))
    return [sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for row in left for column in right]


@pytest.mark.parametrize("element", REGISTERS)
def test_limbs_are_the_sums(element: str, soak: bool) -> None:
    source = np.random.default_rng(1)
    for _ in range(200 if soak else 12):
        m, n, k = (int(each) for each in source.integers(1, 9, 3))
        a, b = anywhere(source, (m, 4 * k), element), anywhere(source, (4 * k, n), element)
        b[-k:] = -b[:k] if k % 2 else b[-k:]
        a[:, -k:] = a[:, :k] if k % 2 else a[:, -k:]
        limbs, exponent = dot_products(a, b, element)
        assert limbs.dtype == np.uint32
        assert limbs.shape == (m, n, REGISTERS[element].limbs)
        assert [each * Fraction(2) ** exponent for each in to_integers(limbs)] == sums(a, b)


@pytest.mark.parametrize("element", REGISTERS)
def test_the_widest_sums_fit(element: str) -> None:
    """The largest product 2^15 times and more, and the smallest; the register holds 2^31 of them."""
    k = 2**15 + 3
    precision, lowest = FORMATS[element]
    largest = Fraction(2) ** (2 - lowest) * (1 - Fraction(1, 2**precision))
    smallest = Fraction(2) ** (lowest - precision + 1)
    for value in (largest, smallest, -largest):
        a = np.full((1, k), float(value)).astype(TYPES[element])
        b = np.full((k, 1), abs(float(value))).astype(TYPES[element])
        limbs, exponent = dot_products(a, b, element)
        assert to_integers(limbs)[0] * Fraction(2) ** exponent == value * abs(value) * k
    register = REGISTERS[element]
    assert largest**2 * 2**31 < Fraction(2) ** (register.lowest + 32 * register.limbs - 1)
    assert smallest**2 >= Fraction(2) ** register.lowest


def test_strides_bits_and_byte_order() -> None:
    source = np.random.default_rng(2)
    a, b = anywhere(source, (6, 10), "bfloat16"), anywhere(source, (10, 8), "bfloat16")
    expected, exponent = dot_products(a, b, "bfloat16")
    again, _ = dot_products(a.view(np.uint16), b.view(np.uint16), "bfloat16")
    assert np.array_equal(again, expected)
    turned, _ = dot_products(np.asfortranarray(a), b[:, ::-1], "bfloat16")
    assert np.array_equal(turned[:, ::-1], expected)
    x = source.standard_normal((3, 5)).astype(np.float32)
    swapped, _ = dot_products(x.astype(">f4"), x.T[::1], "float32")
    assert np.array_equal(swapped, dot_products(x, np.ascontiguousarray(x.T), "float32")[0])
    assert exponent == REGISTERS["bfloat16"].lowest


def test_large_results_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    source = np.random.default_rng(3)
    a, b = anywhere(source, (11, 7), "float64"), anywhere(source, (7, 5), "float64")
    whole, _ = dot_products(a, b, "float64")
    monkeypatch.setattr(superaccumulator, "_MOST_BYTES", 3 * 5 * 133 * 4)
    assert np.array_equal(dot_products(a, b, "float64")[0], whole)


def test_nothing_and_what_does_not_fit() -> None:
    for m, n, k in ((0, 3, 2), (3, 0, 2), (3, 2, 0)):
        limbs, exponent = dot_products(np.zeros((m, k), np.float32), np.zeros((k, n), np.float32), "float32")
        assert limbs.shape == (m, n, 19)
        assert exponent == -304
        assert not limbs.any()
    one = np.ones((2, 2), np.float32)
    with pytest.raises(ValueError, match="the superaccumulator sums float16, bfloat16, float32, float64, not 'int8'"):
        dot_products(one, one, "int8")
    with pytest.raises(TypeError, match="a is float32, not float16"):
        dot_products(one, one, "float16")
    with pytest.raises(ShapeError, match=r"a must be \[m, k\] and b \[k, n\]"):
        dot_products(one, np.ones((3, 2), np.float32), "float32")


def test_what_is_not_finite_counts_as_zero() -> None:
    for element in REGISTERS:
        a = np.asarray([[np.inf, 2.0, np.nan]]).astype(TYPES[element])
        b = np.asarray([[1.0], [3.0], [-1.0]]).astype(TYPES[element])
        limbs, exponent = dot_products(a, b, element)
        assert to_integers(limbs)[0] * Fraction(2) ** exponent == 6
