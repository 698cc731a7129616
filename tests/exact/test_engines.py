"""The engines agree with each other, with a plain sum of Fractions, with mpmath and with gmpy2; and the choice between them."""

from __future__ import annotations

import random
from fractions import Fraction
from math import ldexp
from typing import Any

import gmpy2
import mpmath
import numpy as np
import pytest

import py_gemm.exact as er
from py_gemm.errors import UnsupportedError
from py_gemm.exact import ozaki
from py_gemm.exact.engines import ENGINES, Matrix, Traits, choose_engine, find_engine, slice_bits, slices
from py_gemm.exact.fixedpoint import FixedPoint
from py_gemm.exact.formats import FLOATS, FORMATS, INTEGERS, Format

from .numbers import exact_dot, nearest_even, random_dot, random_value, wide_matrix

ALL = tuple(ENGINES)
FLOAT_FORMATS = pytest.mark.parametrize("form", FLOATS, ids=str)
SIZES = (1, 2, 3, 5, 8, 17)


def takes(name: str, form: Format) -> bool:
    """The engine fsum says no to spans of float64 in which its products could underflow; those are tried with the other three."""
    return name != "fsum" or form.name != "float64"


def dots(rng: random.Random, form: Format, k: int, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[Fraction]]:
    """[count, 1, k], [count, k, 1] and the exact values."""
    pairs = [random_dot(rng, form, k) for _ in range(count)]
    a = np.array([pair[0] for pair in pairs]).reshape(count, 1, k)
    b = np.array([pair[1] for pair in pairs]).reshape(count, k, 1)
    return a, b, [exact_dot(*pair) for pair in pairs]


@FLOAT_FORMATS
def test_engines_agree_on_random_dots(form: Format, soak: bool) -> None:
    """100,000 dots over all formats, ten times as many in a whole sweep: ties, cancellation, subnormals, ends of the range."""
    rng = random.Random(form.name)
    count = (1_000_000 if soak else 100_000) // len(FLOATS) // len(SIZES) + 1
    for k in SIZES:
        a, b, wanted = dots(rng, form, k, count)
        for name in ALL:
            engine = ENGINES[name]
            try:
                sums = engine.start(Matrix(b, form))(Matrix(a, form))
            except UnsupportedError:
                assert not takes(name, form) or name == "ozaki"
                continue
            assert sums.integers().fractions() == wanted, (name, k)


@FLOAT_FORMATS
def test_engines_round_alike(form: Format) -> None:
    rng = random.Random(form.name)
    a, b, exact = dots(rng, form, 6, 60)
    left, right = er.asarray(a, form), er.asarray(b, form)
    wanted = np.array([nearest_even(x, form) for x in exact])
    for name in ALL:
        try:
            found = er.gemm(left, right, engine=name, overflow="ieee").rounded.values.reshape(-1)
        except UnsupportedError:
            assert not takes(name, form) or name == "ozaki"
            continue
        expected = np.where(np.isinf(wanted) & (not form.has_infinity), np.nan, wanted)
        np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize("mode", er.Rounding, ids=lambda mode: mode.value)
@FLOAT_FORMATS
def test_engines_round_alike_in_every_mode_with_alpha_beta_and_c(form: Format, mode: er.Rounding) -> None:
    rng = random.Random(form.name + mode.value)
    a, b, _ = dots(rng, form, 4, 12)
    c = np.array([random_value(rng, form) for _ in range(12)]).reshape(12, 1, 1)
    operands = [er.asarray(each, form) for each in (a, b, c)]
    for alpha, beta in ((1, 1), (-0.5, 4), (0.1, -3), (Fraction(1, 3), Fraction(-7, 11)), (2**70 + 1, 0.3)):
        found = {}
        for name in ALL:
            try:
                result = er.gemm(*operands, alpha=alpha, beta=beta, rounding=mode, engine=name)
                found[name] = result.rounded.tobytes()
            except UnsupportedError:
                assert not takes(name, form) or name == "ozaki"
        assert len(set(found.values())) == 1, (alpha, beta, found)
        assert len(found) >= 2


def test_agreement_with_mpmath_and_gmpy2(soak: bool) -> None:
    """mpmath.fdot sums exactly as long as its precision holds all bits (with less it drops what lies far below the largest term);
    gmpy2 sums in rationals, which MPFR rounds."""
    rng = random.Random(5)
    for _ in range(4000 if soak else 150):
        k = rng.choice(SIZES)
        a, b = ([ldexp(rng.uniform(-1, 1), rng.randrange(-200, 200)) for _ in range(k)] for _ in range(2))
        if k > 2 and rng.random() < 0.5:
            a[k // 2], b[k // 2] = -a[0], b[0]
        with mpmath.workprec(5000):
            total = mpmath.fdot([mpmath.mpf(x) for x in a], [mpmath.mpf(x) for x in b])
        with mpmath.workprec(53):
            by_mpmath = float(+total)
        with gmpy2.context(gmpy2.ieee(128), precision=53, emin=-1073, emax=1024, subnormalize=True):
            products = [gmpy2.mul(gmpy2.mpq(x), gmpy2.mpq(y)) for x, y in zip(a, b, strict=True)]
            by_gmpy2 = float(gmpy2.mpfr(sum(products, gmpy2.mpq(0))))
        for name in ALL:
            found = er.matmul(er.asarray([a]), er.asarray([b]).T, engine=name).rounded.tolist()
            assert found == [[by_mpmath]] == [[by_gmpy2]], (name, a, b)


def highest_condition(form: Format, k: int) -> Fraction:
    """The largest sum(|a b|) / |sum(a b)| of k products that cancel but for one: all others are the square of the highest value,
    and what is left cannot be below the square of the lowest."""
    return (k - 1) * Fraction(form.highest) ** 2 / Fraction(2) ** (2 * form.lowest_bit)


def test_conditions_that_formats_reach() -> None:
    found = {form.name: len(str(int(highest_condition(form, 3)))) - 1 for form in FLOATS}
    assert found == {
        "float64": 1263, "float32": 167, "float16": 24, "bfloat16": 157, "float8_e5m2": 19, "float8_e4m3fn": 11,
        "float8_e5m2fnuz": 20, "float8_e4m3fnuz": 11,
    }  # fmt: skip


CONDITIONS = [
    (form, power)
    for form in FLOATS
    for power in (10, 20, 50, 100, 150, 1000, None)
    if power is None or 10**power < highest_condition(form, 9) / 2 ** (form.significand_bits + 4)
]


@pytest.mark.parametrize(
    ("form", "power"), CONDITIONS, ids=[f"{form}-{f'1e{power}' if power else 'highest'}" for form, power in CONDITIONS]
)
def test_cancellation(form: Format, power: int | None) -> None:
    """Terms that cancel to a sum of which they are 10**power times, up to the most that the format can reach (power None)."""
    rng = random.Random(form.name)
    for _ in range(12):
        if power is None:
            big, tiny = [float(form.highest)] * 4, [ldexp(1, form.lowest_bit)] * 2
        else:
            big = [nearest_even(Fraction(float(form.highest) * rng.uniform(0.5, 1)), form) for _ in range(4)]
            size = 2 * sum(map(Fraction, big)) * Fraction(form.highest)
            wanted = size / 10**power  # its root, in powers of two, lies between the lowest bit and the highest value
            exponent = wanted.numerator.bit_length() - wanted.denominator.bit_length() - 2
            tiny = [ldexp(1, exponent // 2), ldexp(1, exponent - exponent // 2)]
        tiny[0] *= rng.choice((-1, 1))
        a = [*big, tiny[0], *[-x for x in big]]
        b = [float(form.highest)] * 4 + [tiny[1]] + [float(form.highest)] * 4
        order = rng.sample(range(9), 9)
        left, right = er.asarray([a[index] for index in order], form), er.asarray([b[index] for index in order], form)
        assert left.tolist() == [a[index] for index in order], "the values are those of the format"
        exact = exact_dot(left.tolist(), right.tolist())
        condition = sum(abs(Fraction(x) * Fraction(y)) for x, y in zip(a, b, strict=True)) / abs(exact)
        assert condition >= (highest_condition(form, 9) if power is None else 10**power)
        assert power is None or condition < 100 * 10**power
        for engine in ALL:
            try:
                sums = ENGINES[engine].start(Matrix(right.values.reshape(1, 9, 1), form))(
                    Matrix(left.values.reshape(1, 1, 9), form)
                )
            except UnsupportedError:
                assert engine in ("fsum", "ozaki")
                assert form.name == "float64"
                continue
            assert sums.integers().fractions() == [exact], engine
            for target in (form, FORMATS["float64"]):
                found = er.matmul(left, right, engine=engine, dtype=target).rounded.tolist()
                assert found == nearest_even(exact, target), (engine, target)


@FLOAT_FORMATS
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (70, 33, 9), (9, 130, 70)])
def test_engines_agree_on_matrices(form: Format, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m)
    a, b = wide_matrix(rng, (2, m, k), form), wide_matrix(rng, (2, k, n), form)
    a[:, 0] = 0
    wanted = None
    for name in ("superaccumulator", "ozaki", *(("rational",) if m * n * k < 300 else ())):
        sums = ENGINES[name].start(Matrix(b, form))(Matrix(a, form)).integers().fractions()
        wanted = sums if wanted is None else wanted
        assert sums == wanted, name


@pytest.mark.parametrize("form", INTEGERS, ids=str)
def test_integers_agree(form: Format) -> None:
    rng = random.Random(form.name)
    a, b = (
        np.array(
            [[rng.choice((form.lowest, form.highest, rng.randint(form.lowest, form.highest))) for _ in range(7)] for _ in range(7)],
            form.name,
        )
        for _ in range(2)
    )
    wanted = [sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) for row in a for column in b.T]
    for name in ("rational", "ozaki"):
        sums = ENGINES[name].start(Matrix(b[None], form))(Matrix(a[None], form))
        assert sums.integers().fractions() == wanted, name
    for name in ("fsum", "superaccumulator"):
        with pytest.raises(UnsupportedError, match=name):
            find_engine(name, integers=True)


@pytest.mark.parametrize("k", [1, 2, 3, 255, 256, 257, 4096, 1 << 20])
def test_slices_of_the_largest_numbers_sum_exactly(k: int) -> None:
    """The bound that the splitting rests on, at its edge: k products of the largest slices stay within 2**53."""
    bits = slice_bits(k)
    assert k << 2 * bits <= 1 << 53
    assert k << 2 * bits + 2 > 1 << 53 or bits == 26


@FLOAT_FORMATS
def test_splitting_loses_nothing(form: Format) -> None:
    rng = np.random.default_rng(3)
    values = wide_matrix(rng, (2, 6, 9), form)
    for axis in (1, 2):
        for bits in (9, 17, 22, 26):
            cut = ozaki.split(values, form, axis, bits)
            found = np.zeros(values.shape, object)
            for index, each in enumerate(cut.slices):
                assert np.abs(each.values).max() <= 1 << bits
                whole = np.zeros(values.shape)
                if each.lines is None:
                    whole[:] = each.values
                elif axis == 2:
                    whole[:, each.lines] = each.values
                else:
                    whole[:, :, each.lines] = each.values
                for place in np.ndindex(values.shape):
                    line = (place[0], place[1], 0) if axis == 2 else (place[0], 0, place[2])
                    found[place] += Fraction(float(whole[place])) * Fraction(2) ** int(cut.exponent[line] - cut.step * index)
            assert all(found[place] == Fraction(float(values[place])) for place in np.ndindex(values.shape))


def test_limbs_of_any_size_are_settled() -> None:
    rng = random.Random(2)
    limbs = np.array(
        [[rng.choice((-1, 0, 1)) * rng.getrandbits(rng.randrange(1, 61)) for _ in range(200)] for _ in range(4)], np.int64
    )
    for width in (8, 17, 23, 26, 32):
        sums = FixedPoint(limbs, width, np.zeros(200, np.int64))
        wanted = [sum(int(limb) << width * index for index, limb in enumerate(column)) for column in limbs.T]
        assert sums.integers().fractions() == wanted


def test_the_choice_is_pure_and_has_sharp_edges() -> None:
    def choose(**change: Any) -> str:
        traits = {"products": 1 << 20, "k": 512, "bits_a": 40, "bits_b": 40, "integers": False, "has_superaccumulator": True}
        return choose_engine(Traits(**{**traits, **change}))

    assert choose() == "ozaki"
    assert choose(products=64) == "rational"
    assert choose(products=65) == "ozaki"
    # 22 bits, and 23 more for each further slice: 8 by 8 slices are the most
    assert slices(22 + 7 * 23, 512) == 8
    assert choose(bits_a=22 + 7 * 23, bits_b=22 + 7 * 23) == "ozaki"
    assert choose(bits_a=22 + 7 * 23 + 1, bits_b=22 + 7 * 23) == "superaccumulator"
    assert choose(bits_a=22 + 7 * 23 + 1, bits_b=22 + 7 * 23, has_superaccumulator=False) == "ozaki"
    assert choose(bits_a=2000, bits_b=40, has_superaccumulator=False) == "rational"
    assert choose(bits_a=2000, bits_b=40, integers=True) == "rational"
    assert choose(k=1 << 40) == "superaccumulator"


def test_spread_decides_the_engine_of_a_result() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((20, 20))
    assert er.matmul(a, a).engine == "ozaki"
    a[3, 4], a[5, 6] = 1e-300, 1e300
    assert er.matmul(a, a).engine == "superaccumulator"
    assert er.matmul(a, a, engine="rational").engine == "rational"
    with pytest.raises(ValueError, match="known: rational, fsum, ozaki, superaccumulator"):
        er.matmul(a, a, engine="fast")


def test_engines_refuse_what_they_cannot_hold() -> None:
    wide = np.array([[1e300, 1e-300]])
    for name in ("fsum", "ozaki"):
        with pytest.raises(UnsupportedError, match=name):
            assert er.matmul(wide, wide.T, engine=name).rounded


def test_products_of_slices_go_where_they_are_fast() -> None:
    assert ozaki.matrix_product("linux") is np.matmul
    kernel = ozaki.matrix_product("emscripten")
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4000, 4000, (2, 5, 7)).astype(float), rng.integers(-4000, 4000, (2, 7, 3)).astype(float)
    np.testing.assert_array_equal(kernel(a, b), a @ b)
