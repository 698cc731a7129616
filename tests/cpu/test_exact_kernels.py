"""The exact kernels: every row, both ways of summing, long sums, what is not finite, the sign of zero. Against fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from py_gemm.cpu import blocking
from py_gemm.cpu.blocking import block
from py_gemm.cpu.families import EXACT_ROWS, LIMBS_ROW, ROWS, EngineTraits, choose_family
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.dtypes import FLOAT32, FLOAT64
from py_gemm.epilogue import Activation
from py_gemm.errors import UnsupportedError
from tests.conformance.exactly import expression, rounded, spread
from tests.cpu.support import NUMPY_TYPES, Array, address_of, frame_is_whole, framed, gemm_of, laid_out, problem_of

NAMES = [row.name for row in EXACT_ROWS]


def exactly(
    gemm: CpuGemm, a: Array, b: Array, d: Array, c: Array | None = None, *, bias: Array | None = None,
    activation: Activation = Activation.NONE, alpha: float = 1.0, beta: float | None = None,
) -> Array:  # fmt: skip
    problem = problem_of(a, b, d, c, alpha=alpha, beta=beta)
    call = gemm.prepare(problem, activation=activation, has_bias=bias is not None, exact=True)
    assert call.order is None
    call(address_of(a), address_of(b), address_of(c), address_of(d), address_of(bias))
    return d


def wide(array: Array) -> Array:
    return array.astype(np.float64)


@pytest.mark.parametrize("element", NUMPY_TYPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 9, 30), (9, 1, 30), (2, 30, 5), (5, 4, 3), (13, 11, 40), (100, 3, 7), (3, 131, 6)]
)
def test_digits_and_sums_give_the_rounded_value(name: str, element: str, shape: tuple[int, int, int]) -> None:
    """Spread data of float32 and float64 need more digits than there are, so both ways are taken; narrow data take the fast one."""
    m, n, k = shape
    source = np.random.default_rng(31)
    dtype = NUMPY_TYPES[element]
    for narrow in (True, False):
        if narrow:
            a, b = source.standard_normal((m, k)).astype(dtype), source.standard_normal((k, n)).astype(dtype)
        else:
            a, b = spread(source, (m, k), element).astype(dtype), spread(source, (k, n), element).astype(dtype)
        found = exactly(gemm_of(name), a, b, np.zeros((m, n), dtype))
        assert np.array_equal(wide(found), expression(wide(a), wide(b), None, None, 1.0, 0.0, False, element)), narrow


@pytest.mark.parametrize("digits", range(1, 9))
def test_every_number_of_digits(digits: int) -> None:
    """Rows whose bits span exactly so many digits of 23 bits and a sign, and one bit more."""
    source = np.random.default_rng(digits)
    for extra in (0, 1):
        span = 23 * digits - 1 + extra
        a = source.choice([-1.0, 1.0], (6, 12)) * np.exp2(source.integers(0, span, (6, 12)).astype(float))
        a[:, 0], a[:, 1] = 1.0, 2.0 ** (span - 1)
        b = (source.integers(-(2**22), 2**22, (12, 5)) | 1).astype(np.float64)
        found = exactly(CpuGemm(), a, b, np.zeros((6, 5)))
        assert np.array_equal(found, expression(a, b, None, None, 1.0, 0.0, False, "float64"))


@pytest.mark.parametrize("name", NAMES)
def test_long_sums_of_the_largest_digits(name: str) -> None:
    """Past 128 chains of 256 steps int64 totals must be carried; all terms have one sign and the largest digits."""
    k = 128 * 256 * 3 + 77
    a = np.full((3, k), 2.0**45 - 2.0**22)  # digits 2^22 and -2^22
    b = np.full((k, 3), 2.0**45 - 2.0**22)
    a[:, 0] = 1.0
    value = Fraction(2**45 - 2**22) ** 2 * (k - 1) + (2**45 - 2**22)
    found = exactly(gemm_of(name), a, b, np.zeros((3, 3)))
    assert np.all(found == rounded(value, "float64"))
    found = exactly(gemm_of(name), -a, b, np.zeros((3, 3)))
    assert np.all(found == rounded(-value, "float64"))


@pytest.mark.parametrize("element", ["float32", "float64"])
def test_long_sums_one_by_one(element: str) -> None:
    """A single row goes element by element; carries wait for 2^14 (float64: 64) products."""
    k = 3 * 2**14 + 5
    dtype = NUMPY_TYPES[element]
    top = float(np.finfo(dtype).max) ** 0.25
    a, b = np.full((1, k), top, dtype), np.full((k, 1), top, dtype)
    for sign in (1, -1):
        found = exactly(CpuGemm(), a * dtype.type(sign), b, np.zeros((1, 1), dtype))
        assert found[0, 0] == rounded(Fraction(float(a[0, 0])) ** 2 * k * sign, element)


@pytest.mark.parametrize("name", NAMES)
def test_cancellation_leaves_what_is_left(name: str) -> None:
    """A condition number of 10^100 and more: pairs of huge terms that cancel, and a tiny one."""
    source = np.random.default_rng(33)
    a = np.ldexp(source.uniform(1, 2, (4, 41)), source.integers(-300, 300, (4, 41)))
    b = np.ldexp(source.uniform(1, 2, (41, 4)), source.integers(-300, 300, (41, 4)))
    a[:, 20:40], b[20:40] = a[:, :20], -b[:20]
    found = exactly(gemm_of(name), a, b, np.zeros((4, 4)))
    assert np.array_equal(found, a[:, 40:] * b[40:])


@pytest.mark.parametrize("result", NUMPY_TYPES)
def test_ties_and_their_neighbours(result: str) -> None:
    """Halfway between two numbers of the result's type, and a hair to either side, at every magnitude that matters."""
    info = np.finfo(np.float64)
    precision = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[result]
    lowest = {"float16": -24, "bfloat16": -133, "float32": -149, "float64": -1074}[result]
    rows = []
    for exponent in (lowest, lowest + 1, lowest + precision, -3, 0, 7):
        for odd in (0, 1):
            for hair in (-1, 0, 1):
                whole = 2 ** (precision - 1) + odd if exponent > lowest + 1 else 2 + odd
                rows.append(
                    [np.ldexp(float(whole), exponent), np.ldexp(0.5, exponent), hair * np.ldexp(0.5, max(exponent - 60, -1074))]
                )
    a: Array = np.asarray(rows)
    a = a[np.abs(a).max(axis=1) < info.max]
    b = np.ones((3, 4))
    d = np.zeros((len(a), 4), NUMPY_TYPES[result])
    assert np.array_equal(wide(exactly(CpuGemm(), a, b, d)), expression(a, b, None, None, 1.0, 0.0, False, result))


TERMS: list[tuple[list[float], list[float], float]] = [
    ([np.inf, 1], [1, 1], np.inf), ([np.inf, 1], [-2, 1], -np.inf), ([np.inf, -np.inf], [1, 1], np.nan),
    ([np.inf, 1], [0, 1], np.nan), ([np.nan, 1], [0, 1], np.nan), ([3e38, np.inf], [-3e38, 1], np.inf),
    ([1, 0], [1, np.inf], np.nan), ([-np.inf, -np.inf], [1, 1], -np.inf), ([-0.0, -0.0], [1, 1], -0.0),
    ([-0.0, 0.0], [1, 1], 0.0), ([1, 1], [1, -1], 0.0), ([0.0, 0.0], [-1, -1], -0.0), ([-0.0], [0.0], -0.0),
]  # fmt: skip


@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize(("left", "right", "expected"), TERMS)
@pytest.mark.parametrize("size", [1, 4])
def test_what_is_not_finite_and_the_sign_of_zero(
    left: list[float], right: list[float], expected: float, size: int, element: str
) -> None:
    dtype = NUMPY_TYPES[element]
    a = np.repeat(np.asarray([left], dtype), size, axis=0)
    b = np.repeat(np.asarray(right, dtype)[:, None], size, axis=1)
    for alpha in (1.0, -2.0, 0.3):
        found = exactly(CpuGemm(), a, b, np.ones((size, size), dtype), alpha=alpha)
        value = expected * alpha
        if expected == 0.0:
            negative = all(np.signbit(x * y * alpha) and x * y == 0 for x, y in zip(left, right, strict=True))
            value = -0.0 if negative else 0.0
        assert np.array_equal(found, np.full_like(found, value), equal_nan=True), alpha
        assert np.isnan(value) or np.all(np.signbit(found) == np.signbit(value)), alpha


def test_scalars_and_addends_that_are_not_finite() -> None:
    one, inf = np.ones((4, 1), np.float32), np.inf

    def run(alpha: float = 1.0, c: float | None = None, beta: float = 1.0, bias: float | None = None, a: float = 1.0) -> Any:
        addend = None if c is None else np.full((4, 4), c, np.float32)
        row = None if bias is None else np.full(4, bias, np.float32)
        d = np.full((4, 4), 77, np.float32)
        left = one * np.float32(a)
        return exactly(CpuGemm(), left, one.T, d, addend, bias=row, alpha=alpha, beta=None if c is None else beta)[1, 2]

    assert run(inf) == inf
    assert run(-inf) == -inf
    assert np.isnan(run(inf, a=0.0))
    assert np.isnan(run(np.nan))
    assert np.isnan(run(inf, c=-inf))
    assert run(c=-inf) == -inf
    assert np.isnan(run(c=0.0, beta=inf))
    assert run(bias=inf) == inf
    assert np.isnan(run(bias=inf, c=-inf))
    assert run(c=np.nan, beta=0.0) == 1
    assert run(a=np.nan, alpha=0.0, c=3.0) == 3
    assert np.signbit(run(a=-0.0, c=-0.0, bias=-0.0))
    assert not np.signbit(run(a=-0.0, c=-0.0, bias=0.0))
    assert not np.signbit(run(a=1.0, c=-1.0))


@pytest.mark.parametrize("size", [1, 4])
def test_scalars_at_the_ends_of_float64(size: int) -> None:
    """The lowest bit of everything at once, and the highest."""
    tiny, huge = 5e-324, float(np.finfo(np.float64).max)
    for x, alpha in ((tiny, tiny), (huge, huge), (tiny, huge), (tiny, 3 * tiny), (-huge, 1.0)):
        a, b = np.full((size, 3), x), np.full((3, size), abs(x))
        a[:, 0] = 1.0
        for c, beta in ((tiny, tiny), (huge, huge), (1.0, 0.5)):
            full = np.full((size, size), c)
            found = exactly(CpuGemm(), a, b, np.zeros((size, size)), full, alpha=alpha, beta=beta)
            assert np.array_equal(found, expression(a, b, full, None, alpha, beta, False, "float64")), (x, alpha, c, beta)
        found = exactly(CpuGemm(), a, b, np.zeros((size, size)), alpha=alpha)
        assert np.array_equal(found, expression(a, b, None, None, alpha, 0.0, False, "float64")), (x, alpha)


@pytest.mark.parametrize("element", NUMPY_TYPES)
def test_no_products(element: str) -> None:
    a, b = np.zeros((5, 0), NUMPY_TYPES[element]), np.zeros((0, 6), NUMPY_TYPES[element])
    c = np.random.default_rng(4).standard_normal((5, 6)).astype(NUMPY_TYPES[element])
    c[0] = -0.0
    d = np.ones_like(c)
    assert np.array_equal(exactly(CpuGemm(), a, b, d, c).view(np.uint8), c.view(np.uint8))
    assert not np.any(exactly(CpuGemm(), a, b, d).view(np.uint8))


@pytest.mark.parametrize("how", ["plain", "transposed", "reversed", "spread"])
@pytest.mark.parametrize("name", NAMES)
def test_arrangements_batches_and_what_lies_around(name: str, how: str) -> None:
    source = np.random.default_rng(8)
    a = laid_out(source.standard_normal((2, 17, 9)).astype(np.float32), how)
    b = laid_out(source.standard_normal((2, 9, 14)).astype(np.float16), how)
    c = laid_out(source.standard_normal((2, 17, 14)), how)
    bias = source.standard_normal(14).astype(np.float32)
    view, room = framed((2, 17, 14), np.dtype(np.float32), how)
    exactly(gemm_of(name), a, b, view, c, bias=bias, alpha=0.1, beta=-0.7, activation=Activation.RELU)
    assert np.array_equal(view, expression(wide(a), wide(b), c, wide(bias), 0.1, -0.7, True, "float32"))
    assert frame_is_whole(view, room)


def test_an_element_does_not_depend_on_its_neighbours() -> None:
    """A row with an infinity, and one that spans 600 bits, change how their block is summed, and no bit of the others."""
    source = np.random.default_rng(9)
    a, b = source.standard_normal((20, 50)), source.standard_normal((50, 30))
    alone = exactly(CpuGemm(), a, b, np.zeros((20, 30)))
    a[3, 7], a[5, 9] = np.inf, 2.0**600
    together = exactly(CpuGemm(), a, b, np.zeros((20, 30)))
    others = [row for row in range(20) if row not in (3, 5)]
    assert np.array_equal(together[others], alone[others])


def test_a_gelu_is_refused_in_words() -> None:
    one = np.ones((1, 1), np.float32)
    with pytest.raises(UnsupportedError, match="activation 'gelu_tanh' cannot be correctly rounded"):
        CpuGemm().prepare(problem_of(one, one, one.copy()), activation=Activation.GELU_TANH, exact=True)


def test_the_exact_table() -> None:
    for host, relaxed, name in (
        ("browser", True, "gemm_exact_6x4_relaxed"), ("wasmtime", True, "gemm_exact_4x4_relaxed"),
        ("browser", False, "gemm_exact_4x4_simd128"),
    ):  # fmt: skip
        assert choose_family(FLOAT64, EngineTraits(host, relaxed), table=EXACT_ROWS).name == name
    assert all(row.exact and row.module == f"exact_{row.token}" for row in (*EXACT_ROWS, LIMBS_ROW))
    assert not any(row.exact for row in ROWS)
    one = np.ones((1, 1), np.float32)
    for family, token, exact, words in (
        ("gemm_f32", None, True, "no kernel of family 'gemm_f32' serves this mode; there are: gemm_exact_6x4_relaxed, "),
        ("gemm_exact", None, False, "no kernel of family 'gemm_exact' serves this mode; there are: gemv_f32_4x8_relaxed, "),
        (None, "scalar", True, "no kernel has the token 'scalar'; there are: gemm_exact_6x4_relaxed, "),
    ):
        with pytest.raises(UnsupportedError, match=words):
            CpuGemm(family, token).prepare(problem_of(one, one, one.copy()), exact=exact)
    assert one.dtype == FLOAT32.name


@pytest.mark.parametrize("size", [1, 95, 96, 97, 1000])
def test_blocks_fit_the_kernel(size: int) -> None:
    for row in EXACT_ROWS:
        cut = block(row, size, size, size)
        assert cut.block_rows <= blocking.EXACT_ROWS
        assert cut.block_columns <= blocking.EXACT_COLUMNS
        assert cut.block_rows % row.rows == 0
        assert cut.block_columns % row.columns == 0
        assert cut.panel_a >= blocking.EXACT_BYTES
        assert cut.chain <= 256


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (40, 3), (3, 40), (101, 2), (17, 130)])
def test_every_element_gets_the_bias_of_its_column(name: str, shape: tuple[int, int]) -> None:
    """Also where the operands change places, for few columns or a result stored by columns."""
    (m, n), k = shape, 7
    source = np.random.default_rng(36)
    a, b = source.standard_normal((m, k)), source.standard_normal((k, n))
    bias = source.standard_normal(n).astype(np.float32)
    expected = expression(a, b, np.broadcast_to(wide(bias), (m, n)), None, 1.0, 1.0, False, "float64")
    for d in (np.zeros((m, n)), np.zeros((n, m)).T):
        assert np.array_equal(exactly(gemm_of(name), a, b, d, bias=bias), expected)
