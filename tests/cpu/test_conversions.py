"""Widening and rounding of every element type, against NumPy and ml_dtypes, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from tests.cpu.support import FLOAT32_ROWS, FLOAT64_ROWS, HALF_ROWS, NUMPY_TYPES, ROW_NAMES, Array, gemm_of, multiply, row_named

HALVES = ("float16", "bfloat16")
ALL_PATTERNS = np.arange(1 << 16, dtype=np.uint16)


@pytest.fixture(autouse=True)
def nan_is_no_news() -> Iterator[None]:
    """NumPy warns where it converts a signalling NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        yield


def same_bits(found: Array, expected: Array) -> bool:
    """Equal bits, any NaN equal to any NaN."""
    kind = f"u{found.dtype.itemsize}"
    nan = np.isnan(expected.astype(np.float64))
    return bool(np.array_equal(np.isnan(found.astype(np.float64)), nan)) and bool(
        np.array_equal(found.view(kind)[~nan], expected.view(kind)[~nan])
    )


def same_values(found: Array, expected: Array) -> bool:
    """Equal values; zeros of either sign are equal, for a chain of sums begins at +0.0."""
    return bool(np.array_equal(found.astype(np.float64), expected.astype(np.float64), equal_nan=True))


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", ROW_NAMES)
@pytest.mark.parametrize("by", ["rows of A", "columns of A", "rows of B", "columns of B"])
def test_all_patterns_widen_as_an_operand(name: str, half: str, by: str) -> None:
    """Products of k = 1 by 1.0, through each way of packing; 256 rows keep the other operand small."""
    patterns = ALL_PATTERNS.view(NUMPY_TYPES[half])
    real = NUMPY_TYPES[row_named(name).accumulator.name]
    expected = patterns.astype(real)
    column, row = patterns.reshape(-1, 1), patterns.reshape(1, -1)
    one = np.ones((1, 1), real)
    if by == "rows of A":
        found = multiply(gemm_of(name), column, one, np.zeros((1 << 16, 1), real))
    elif by == "columns of B":
        found = multiply(gemm_of(name), one, row, np.zeros((1, 1 << 16), real))
    else:
        matrix, identity = patterns.reshape(4096, 16), np.eye(16, dtype=real)
        finite = np.where(np.isfinite(matrix.astype(np.float32)), matrix, np.zeros((), matrix.dtype)).astype(matrix.dtype)
        expected = finite.astype(real)
        if by == "columns of A":
            found = multiply(gemm_of(name), finite, identity, np.zeros((4096, 16), real))
        else:
            found = multiply(gemm_of(name), identity, finite.T, np.zeros((16, 4096), real)).T
    assert same_values(found.reshape(expected.shape), expected)


@pytest.mark.parametrize("name", HALF_ROWS)
def test_all_patterns_widen_in_a_half_family(name: str) -> None:
    """Of A and of B, as the even and as the odd step of a pair: the other step is zero."""
    row = row_named(name)
    assert row.inputs is not None
    assert row.output is not None
    half, real = NUMPY_TYPES[row.inputs.name], NUMPY_TYPES[row.output.name]
    patterns = ALL_PATTERNS.view(half)
    finite = patterns[np.isfinite(patterns.astype(np.float32))]
    for k, values in ((1, patterns), (2, finite), (3, finite)):
        for step in range(k):
            many, one = np.zeros((len(values), k), half), np.zeros((k, 1), half)
            many[:, step], one[step] = values, 1
            expected = values.astype(real).reshape(-1, 1)
            assert same_values(multiply(gemm_of(name), many, one, np.zeros((len(values), 1), real)), expected), (k, step)
            assert same_values(multiply(gemm_of(name), one.T, many.T, np.zeros((1, len(values)), real)).T, expected), (k, step)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", FLOAT32_ROWS)
def test_every_nan_stays_a_quiet_nan(name: str, half: str) -> None:
    """Of every payload and sign, as C, narrowed and kept."""
    patterns = (
        ALL_PATTERNS[np.isnan(ALL_PATTERNS.view(NUMPY_TYPES[half]).astype(np.float32))].view(NUMPY_TYPES[half]).reshape(-1, 2)
    )
    quiet = np.uint16(0x0200 if half == "float16" else 0x0040)
    nothing_a, nothing_b = np.zeros((len(patterns), 0), np.float32), np.zeros((0, 2), np.float32)
    found = multiply(gemm_of(name), nothing_a, nothing_b, np.zeros_like(patterns), patterns)
    assert np.all(np.isnan(found.astype(np.float32)))
    assert np.all(found.view(np.uint16) & quiet)
    wide = interesting_float32()
    wide = wide[np.isnan(wide).any(axis=1)]
    nothing_a, nothing_b = np.zeros((len(wide), 0), np.float32), np.zeros((0, 8), np.float32)
    found = multiply(gemm_of(name), nothing_a, nothing_b, np.zeros(wide.shape, NUMPY_TYPES[half]), wide)
    assert np.array_equal(np.isnan(found.astype(np.float32)), np.isnan(wide))
    assert np.all(found.view(np.uint16)[np.isnan(wide)] & quiet)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", ROW_NAMES)
def test_all_patterns_pass_through_c(name: str, half: str) -> None:
    """Without a product D is C: every pattern is widened and rounded back to itself, signs of zeros and all."""
    patterns = ALL_PATTERNS.view(NUMPY_TYPES[half])
    real = NUMPY_TYPES[row_named(name).accumulator.name]
    for shape in ((1 << 16, 1), (1 << 8, 1 << 8)):
        c = patterns.reshape(shape)
        nothing_a, nothing_b = np.zeros((shape[0], 0), real), np.zeros((0, shape[1]), real)
        assert same_bits(multiply(gemm_of(name), nothing_a, nothing_b, np.zeros(shape, c.dtype), c), c)
        assert same_bits(multiply(gemm_of(name), nothing_a, nothing_b, np.zeros(shape, real), c), c.astype(real))


def interesting_float32() -> Array:
    """Ties of both half types and their neighbours, subnormals, the edges of overflow, infinities, NaN, and random patterns."""
    generator = np.random.default_rng(11)
    found = []
    for half in HALVES:
        values = ALL_PATTERNS.view(NUMPY_TYPES[half]).astype(np.float32)
        finite = np.unique(values[np.isfinite(values)])
        middles = ((finite[:-1].astype(np.float64) + finite[1:].astype(np.float64)) / 2).astype(np.float32)
        found += [values, middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))]
    found.append(generator.integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32))
    found.append(
        np.asarray([65504, 65519.996, 65520, 65536, 3.3895314e38, 3.3961776e38, np.inf, np.nan, 1e-45, -1e-45], np.float32)
    )
    found.append(np.asarray([np.finfo(np.float32).max, np.finfo(np.float32).tiny, np.finfo(np.float32).smallest_subnormal]))
    # NaN of every kind: signalling, quiet, and with a payload only in the bits that go, which must not leave an infinity.
    payloads = np.concatenate([1 << np.arange(23, dtype=np.uint32), generator.integers(1, 1 << 23, 500, dtype=np.uint32)])
    found.append((np.uint32(0x7F800000) | payloads.astype(np.uint32)).view(np.float32))
    values = np.concatenate(found)
    values = np.concatenate([values, -values])
    return values[: len(values) // 8 * 8].reshape(-1, 8)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", FLOAT32_ROWS)
def test_float32_sums_are_rounded_once_to_nearest_even(name: str, half: str) -> None:
    values = interesting_float32()
    nothing_a, nothing_b = np.zeros((len(values), 0), np.float32), np.zeros((0, 8), np.float32)
    expected = values.astype(NUMPY_TYPES[half])
    for columns in (8, 5):  # whole vectors, and one element at a time
        found = multiply(
            gemm_of(name), nothing_a, nothing_b[:, :columns], np.zeros((len(values), columns), expected.dtype), values[:, :columns]
        )
        assert same_bits(found, np.ascontiguousarray(expected[:, :columns]))


def nearest_even(value: float, half: str) -> float:
    """The value of the half type nearest to a finite float64, ties to even, by exact rational arithmetic."""
    digits, lowest, largest = (11, -24, 65504.0) if half == "float16" else (8, -133, 3.3895313892515355e38)
    if value == 0:
        return value
    exponent = max(int(np.frexp(value)[1]) - digits, lowest)
    scaled = Fraction(value) / Fraction(2) ** exponent
    rounded = float(Fraction(round(scaled)) * Fraction(2) ** exponent) if abs(value) < 1e300 else value
    return float(np.copysign(np.inf, value)) if abs(rounded) > largest else rounded


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", FLOAT64_ROWS)
def test_float64_sums_are_rounded_once_to_nearest_even(name: str, half: str) -> None:
    """Values a hair beside the ties of the half type, which two roundings, by way of float32, would get wrong."""
    generator = np.random.default_rng(12)
    halves = ALL_PATTERNS.view(NUMPY_TYPES[half]).astype(np.float64)
    finite = np.unique(halves[np.isfinite(halves)])
    finite = generator.choice(finite, 3000)
    following = np.nextafter(finite.astype(NUMPY_TYPES[half]), NUMPY_TYPES[half].type(np.inf)).astype(np.float64)
    middles = np.where(np.isfinite(following), (finite + following) / 2, finite)
    hair = np.abs(middles) * 2.0**-40 + 1e-60
    edges = [
        0.0,
        -0.0,
        1e-300,
        -1e-300,
        5e-324,
        65504,
        65519.999999,
        65520.0,
        1e300,
        -1e300,
        3.3961775292304601e38,
        3.3961775292304e38,
    ]
    random = generator.standard_normal(3000) * 10.0 ** generator.integers(-45, 39, 3000)
    values = np.concatenate([finite, middles, middles + hair, middles - hair, edges, random])
    values = values[: len(values) // 4 * 4].reshape(-1, 4)
    expected = np.vectorize(lambda value: nearest_even(value, half))(values)
    nothing = np.zeros((len(values), 0))
    for columns in (4, 3):
        c = np.ascontiguousarray(values[:, :columns])
        found = multiply(gemm_of(name), nothing, np.zeros((0, columns)), np.zeros(c.shape, NUMPY_TYPES[half]), c)
        assert np.array_equal(found.astype(np.float64), expected[:, :columns])
        assert np.array_equal(np.signbit(found.astype(np.float64)), np.signbit(c))


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", FLOAT64_ROWS)
def test_float64_infinities_and_nan_stay(name: str, half: str) -> None:
    c = np.asarray([[np.inf, -np.inf, np.nan, 1e308]])
    found = multiply(gemm_of(name), np.zeros((1, 0)), np.zeros((0, 4)), np.zeros((1, 4), NUMPY_TYPES[half]), c).astype(np.float64)
    assert np.array_equal(found, [[np.inf, -np.inf, np.nan, np.inf]], equal_nan=True)


@pytest.mark.parametrize("name", FLOAT64_ROWS)
def test_float64_to_float32_and_float32_to_float64(name: str) -> None:
    values = np.random.default_rng(13).integers(0, 1 << 63, 4000, dtype=np.int64).view(np.float64).reshape(-1, 4)
    nothing_a, nothing_b = np.zeros((len(values), 0)), np.zeros((0, 4))
    expected = values.astype(np.float32)
    assert same_bits(multiply(gemm_of(name), nothing_a, nothing_b, np.zeros(values.shape, np.float32), values), expected)
    assert same_bits(multiply(gemm_of(name), nothing_a, nothing_b, np.zeros(values.shape), expected), expected.astype(np.float64))


@pytest.mark.parametrize("name", FLOAT32_ROWS)
def test_float32_family_reads_and_writes_float64(name: str) -> None:
    values = np.random.default_rng(14).standard_normal((50, 11))
    nothing_a, nothing_b = np.zeros((50, 0), np.float32), np.zeros((0, 11), np.float32)
    found = multiply(gemm_of(name), nothing_a, nothing_b, np.zeros(values.shape), values)
    assert np.array_equal(found, values.astype(np.float32).astype(np.float64))


@pytest.mark.parametrize("name", ROW_NAMES)
def test_subnormals_are_strict(name: str) -> None:
    """Products and sums in the subnormal range of the accumulator are exact, neither flushed in nor out."""
    real = NUMPY_TYPES[row_named(name).accumulator.name]
    tiny = np.finfo(real).smallest_subnormal
    a = np.full((7, 3), tiny, real)
    b = np.asarray([[1.0] * 9, [2.0] * 9, [4.0] * 9], real)
    assert np.array_equal(multiply(gemm_of(name), a, b, np.zeros((7, 9), real)), np.full((7, 9), 7 * tiny, real))
