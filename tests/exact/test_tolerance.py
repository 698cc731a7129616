"""Tolerances: sound for every implementation of their class, tight enough to be of use, and what covers and margin make of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.linalg.blas
from hypothesis import given
from hypothesis import strategies as st

import py_gemm as pg
import py_gemm.exact as er
from py_gemm.errors import ShapeError
from py_gemm.exact.formats import FORMATS, Format, compute_format
from py_gemm.exact.orders import Chain, replay
from py_gemm.exact.tolerance import FEW_COLUMNS, range_bound

from . import implementations
from .implementations import Machine, Problem
from .numbers import nearest_even, random_value

INF, NAN = float("inf"), float("nan")


def single(values: Any) -> Any:
    return np.array(values, np.float32)


def half(values: Any) -> Any:
    return np.array(values, np.float16)


CLASSES: dict[str, Callable[[random.Random, Machine, Problem], Fraction]] = {
    "normal": implementations.normal,
    "any_order": implementations.any_order,
}
ALPHAS = (Fraction(1), Fraction(-2), Fraction(3), Fraction(0.1), Fraction(1, 3))


def modest_value(rng: random.Random, form: Format) -> float:
    """Small enough for no sum to overflow; among them subnormals whose products underflow."""
    value = random_value(rng, form)
    while abs(value) > 2.0 ** (form.emax // 4):
        value = random_value(rng, form)
    return value


def problem_of(rng: random.Random, form: Format) -> Problem:
    k = rng.randrange(1, 14)
    a, b = ([Fraction(modest_value(rng, form)) for _ in range(k)] for _ in range(2))
    if rng.random() < 0.4:  # cancel most of it
        for index in range(0, k - 1, 2):
            a[index + 1], b[index + 1] = -a[index], b[index]
    c = Fraction(modest_value(rng, form)) if rng.random() < 0.5 else None
    return Problem(a, b, c, rng.choice(ALPHAS), rng.choice(ALPHAS))


def result_of(problem: Problem, form: Format, output: Format) -> er.Result:
    c = None if problem.c is None else er.asarray([[problem.c]], form)
    a, b = er.asarray([problem.a], form), er.asarray([problem.b], form).T
    return er.gemm(a, b, c, alpha=problem.alpha, beta=problem.beta, dtype=output)


@pytest.mark.parametrize("standard", CLASSES)
@pytest.mark.parametrize(
    ("form", "output"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("float16", "float16"),
        ("bfloat16", "float32"),
        ("float8_e4m3fn", "bfloat16"),
    ],
)
@given(seed=st.integers(0, 2**32))
def test_every_implementation_of_the_class_is_covered(standard: str, form: str, output: str, seed: int) -> None:
    rng = random.Random(seed)
    operand, target = FORMATS[form], FORMATS[output]
    problem = problem_of(rng, operand)
    result = result_of(problem, operand, target)
    machine = Machine(compute_format(operand, target))
    for _ in range(4):
        answer = nearest_even(CLASSES[standard](rng, machine, problem), target)
        assert result.covers(np.array([[answer]]), standard).all(), (problem, answer)
        assert float(result.margin(np.array([[answer]]), standard)[0, 0]) <= 1
        assert abs(answer - float(result.rounded.values[0, 0])) <= 2 * result.tolerance(standard)[0, 0]


@pytest.mark.parametrize("standard", CLASSES)
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_bound_is_within_4_times_of_the_worst_error_found(standard: str, k: int) -> None:
    """A search climbs towards the largest margin that an implementation reaches."""
    form = FORMATS["float32"]
    machine = Machine(form)
    rng = random.Random(k)

    def margin(values: list[list[Fraction]], seed: int) -> float:
        problem = Problem(values[0], values[1], None, Fraction(1), Fraction(1))
        answer = nearest_even(CLASSES[standard](random.Random(seed), machine, problem), form)
        return float(result_of(problem, form, form).margin(np.array([[answer]]), standard)[0, 0])

    def number() -> Fraction:
        return Fraction(nearest_even(Fraction(rng.uniform(1, 2)), form))

    best, worst = [[number() for _ in range(k)] for _ in range(2)], 0.0
    for step in range(250):
        trial = [list(each) for each in best] if step % 3 else [[number() for _ in range(k)] for _ in range(2)]
        trial[rng.randrange(2)][rng.randrange(k)] = number()
        found = margin(trial, rng.randrange(64))
        if found > worst:
            best, worst = trial, found
    assert 0.25 <= worst <= 1


@pytest.mark.parametrize("standard", CLASSES)
@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("k", [2, 16, 256, 4096])
def test_the_bound_is_within_4_times_of_a_chain_that_rounds_every_sum_down(name: str, standard: str, k: int) -> None:
    """1 and terms of half a unit in its last place: each addition is a tie that goes to the even 1, so all of them are lost."""
    form = FORMATS[name]
    terms = np.full((1, k), float(form.unit), name)
    terms[0, 0] = 1
    ones = np.ones((k, 1), name)
    chain = replay(Chain(), terms, ones, fused=True, accumulator=np.dtype(name).type)
    assert chain.tolist() == [[1.0]]
    result = er.matmul(terms, ones)
    assert result.covers(chain, standard).all()
    assert 0.25 <= float(result.margin(chain, standard)[0, 0]) <= 1


def matrices(name: str, m: int, k: int, n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


@pytest.mark.parametrize("k", [1, 2, 7, 64, 255, 1024, 4096])
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_products_of_numpy_and_of_the_cpu_road_are_normal(name: str, k: int) -> None:
    a, b = matrices(name, 17, k, 13, k)
    result = er.matmul(a, b)
    answers = {"cpu": pg.matmul(a, b, device="cpu"), "vector": pg.matmul(a, b[:, :1], device="cpu")}
    wide = np.float64 if name == "float64" else np.float32
    answers["numpy"] = (a.astype(wide) @ b.astype(wide)).astype(a.dtype)
    answers["einsum"] = np.einsum("ik,kj->ij", a.astype(wide), b.astype(wide)).astype(a.dtype)
    answers["dots"] = np.array([[np.dot(row, column) for column in b.astype(wide).T] for row in a.astype(wide)]).astype(a.dtype)
    for road, answer in answers.items():
        judge = er.matmul(a, b[:, :1]) if road == "vector" else result
        assert judge.covers(answer).all(), road
        assert judge.covers(answer, "any_order").all(), road
    assert result.covers(result.normal()).all()
    assert result.covers(result.rounded).all()


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (2.0, 1.0), (0.1, -0.7)])
@pytest.mark.parametrize("k", [3, 100, 4096])
def test_products_of_scipys_blas_are_normal(k: int, alpha: float, beta: float) -> None:
    for name, gemm in (("float32", scipy.linalg.blas.sgemm), ("float64", scipy.linalg.blas.dgemm)):
        a, b = matrices(name, 9, k, 11)
        c, _ = matrices(name, 9, 11, 1, 3)
        answer = gemm(alpha, a, b, beta, c)
        factors = {"alpha": np.dtype(name).type(alpha), "beta": np.dtype(name).type(beta)}
        assert er.gemm(a, b, c, **factors).covers(np.ascontiguousarray(answer)).all()


@pytest.mark.parametrize("name", ["complex64", "complex128"])
@pytest.mark.parametrize("alpha", [1, 2.0, 0.5 - 1.5j])
def test_complex_products_are_covered(name: str, alpha: complex) -> None:
    rng = np.random.default_rng(2)
    a, b, c = (
        (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(name) for shape in ((6, 200), (200, 5), (6, 5))
    )
    result = er.gemm(a, b, c, alpha=alpha, beta=-1)
    assert result.covers((alpha * (a @ b) - c).astype(name)).all()
    assert result.covers(result.normal()).all()
    assert (result.tolerance().real > 0).all()
    assert (result.tolerance().imag > 0).all()
    moved = result.rounded.values.copy()
    moved[2, 3] += 2j * result.tolerance()[2, 3].imag
    assert np.argwhere(~result.covers(moved.astype(name))).tolist() == [[2, 3]]
    if alpha == 0.5 - 1.5j:
        np.testing.assert_array_equal(result.tolerance(), result.tolerance("any_order"))


@pytest.mark.parametrize("standard", CLASSES)
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "float8_e5m2"])
def test_an_element_moved_past_its_bound_is_found(name: str, standard: str) -> None:
    a, b = matrices(name, 8, 40, 6)
    result = er.matmul(a, b)
    form = FORMATS[name]
    exact, bound = result.rounded.values, result.tolerance(standard)
    assert (bound > 0).all()
    step = [
        nearest_even(Fraction(abs(x)) * Fraction(9, 8) + 2 * Fraction(t), form) for x, t in zip(exact.flat, bound.flat, strict=True)
    ]
    for row, column in np.ndindex(8, 6):
        moved = exact.copy()
        moved[row, column] = np.copysign(step[row * 6 + column], exact[row, column])
        assert np.argwhere(~result.covers(moved, standard)).tolist() == [[row, column]]
        assert result.margin(moved, standard)[row, column] > 1


@pytest.mark.parametrize("standard", CLASSES)
def test_cover_and_margin_change_at_the_same_number(standard: str) -> None:
    """In small steps from the exact value outward: covered up to one number, and never again."""
    a, b = matrices("float32", 3, 9, 2)
    result = er.matmul(a, b)
    start, step = result.rounded.values, result.tolerance(standard) / 100
    previous = np.ones(start.shape, np.bool_)
    for count in range(110):
        x = (start + count * step).astype(np.float32)
        covered, margin = result.covers(x, standard), result.margin(x, standard)
        np.testing.assert_array_equal(covered, margin <= 1)
        assert not (covered & ~previous).any()
        assert ((x - result.rounded.values <= result.tolerance(standard) * 1.01) | ~covered).all()
        previous = covered
    assert not previous.any()


def test_normal_is_tighter_than_any_order_and_both_hold_the_rounded() -> None:
    a, b = matrices("float32", 6, 1024, 6)
    result = er.matmul(a, b)
    ratio = result.tolerance() / result.tolerance("any_order")
    assert (ratio <= 1.0).all()
    assert 0.05 < float(np.median(ratio)) < 0.5
    assert (result.margin(result.rounded) <= 1).all()


@given(st.lists(st.integers(-8, 8), min_size=1, max_size=40))
def test_partial_sums_of_the_normal_class_are_bounded(terms: list[int]) -> None:
    """The bound against the definition, spelled out: consecutive ranges of every residue class, and rows of lanes cut short."""
    wanted = 0
    size = len(terms)
    for lanes in (1, 2, 4, 8, 16, 32):
        if lanes > size:
            break
        rows = [terms[start : start + lanes] + [0] * max(0, start + lanes - size) for start in range(0, size, lanes)]
        groups = [[lane] for lane in range(lanes)] + [list(range(stop)) for stop in range(1, lanes + 1)]
        groups += [
            list(range(start, start + width))
            for width in (2, 4, 8, 16)
            for start in range(0, lanes, width)
            if start + width <= lanes
        ]
        for group in groups:
            line = [sum(row[lane] for lane in group) for row in rows]
            for start in range(len(line)):
                for stop in range(start, len(line)):
                    wanted = max(wanted, abs(sum(line[start : stop + 1])))
    column = np.array(terms, np.float64)[:, None]
    found = float(range_bound(column)[0])
    assert (range_bound(np.repeat(column, FEW_COLUMNS + 1, axis=1)) == found).all()
    assert wanted <= found <= wanted * (1 + 1e-9) + 1e-9


def test_exact_products_have_no_tolerance_but_the_rounding() -> None:
    a = er.asarray([[1.5]], "float16")
    assert er.matmul(a, a).tolerance().tolist() == [[0.0]]
    assert er.matmul(a, a).covers(half([[2.25]])).all()
    assert not er.matmul(a, a).covers(np.nextafter(half([[2.25]]), np.float16(3))).any()
    third = er.gemm(er.asarray([[1.0]], "float16"), er.asarray([[1.0]], "float16"), alpha=Fraction(1, 3))
    assert 0 < third.tolerance()[0, 0] < 2.0**-12


def test_special_values_are_covered_by_their_like() -> None:
    a = er.asarray([[INF], [-INF], [NAN], [1.0]], "float32")
    result = er.matmul(a, er.asarray([[1.0]], "float32"))
    grid = np.array([INF, -INF, NAN, 1.0, 0.0], np.float32)
    found = np.array([result.covers(np.full((4, 1), x)).ravel() for x in grid]).T
    np.testing.assert_array_equal(found, np.eye(4, 5, dtype=np.bool_))
    assert result.tolerance()[:3].tolist() == [[0.0]] * 3
    assert result.margin(np.full((4, 1), np.float32(NAN))).ravel().tolist() == [INF, INF, 0.0, INF]
    assert result.covers(single([[INF], [-INF], [NAN], [1.0]])).all()


def test_overflow_on_the_way_makes_infinities_right() -> None:
    big = er.asarray([[3e38, 3e38, -3e38]], "float32")
    ones = er.asarray([[1.0], [1.0], [1.0]], "float32")
    result = er.matmul(big, ones)
    assert result.rounded.tolist() == [[np.float32(3e38)]]
    assert result.covers(single([[INF]])).all()
    assert result.covers(single([[NAN]])).all()
    assert not result.covers(single([[0.0]])).any()
    assert result.tolerance().tolist() == [[INF]]
    small = er.matmul(er.asarray([[1.0]], "float32"), er.asarray([[1.0]], "float32"))
    assert not small.covers(single([[INF]])).any()


@pytest.mark.parametrize("rule", ["ieee", "saturate", "nan"])
def test_results_past_the_output_range(rule: str) -> None:
    a = er.asarray([[200.0, 260.0]], "float16")
    result = er.matmul(a, er.asarray([[1.0], [1.0]], "float16"), dtype="float8_e4m3fn", overflow=rule)
    assert result.rounded.values.tolist() == [[448.0]]
    past = er.matmul(a, er.asarray([[2.0], [1.0]], "float16"), dtype="float8_e4m3fn", overflow=rule)
    assert past.covers(past.rounded).all()
    assert past.covers(np.array([[448.0]])).all() == (rule == "saturate")
    assert past.covers(np.array([[NAN]])).all() == (rule != "saturate")


def test_zeros_are_one_number_and_subnormals_count() -> None:
    tiny = er.asarray([[1e-30]], "float32")
    result = er.matmul(tiny, tiny)
    assert result.rounded.tolist() == [[0.0]]
    assert result.covers(single([[-0.0]])).all()
    assert result.covers(single([[1e-45]])).all()
    assert not result.covers(single([[1e-44]])).any()


def test_directed_rounding_of_the_last_step() -> None:
    a, b = matrices("float16", 4, 30, 4)
    wide = a.astype(np.float32) @ b.astype(np.float32)
    for mode in er.Rounding:
        result = er.matmul(a, b, rounding=mode)
        last = er.asarray(wide, "float16", rounding=mode)
        assert result.covers(last).all()
        assert result.covers(result.rounded).all()


def test_what_cannot_be_judged() -> None:
    result = er.matmul(er.asarray([[1.0, 2.0]], "float16"), er.asarray([[1.0], [2.0]], "float16"))
    with pytest.raises(ShapeError, match=r"\(1,\)"):
        result.covers(half([5.0]))
    with pytest.raises(ValueError, match="no value of float16"):
        result.covers(np.array([[5.0001]]))
    with pytest.raises(ValueError, match="known: normal, any_order"):
        result.covers(half([[5.0]]), "strict")
    with pytest.raises(TypeError, match="complex128"):
        result.covers([[5j]])
    with pytest.raises(TypeError):
        result.covers([["5"]])
    assert result.covers([[5.0]]).all()
    assert result.covers([[5]]).all()


def test_covers_takes_the_same_elements_with_and_without_the_bounds_in_full() -> None:
    """`covers` looks closely only where the least and the any-order bound leave a doubt."""
    a, b = matrices("float32", 7, 200, 9)
    c, _ = matrices("float32", 7, 9, 1, 3)
    for addend in (None, 30 * c):
        result, whole = (er.gemm(a, b, addend, beta=-0.7) for _ in range(2))
        whole.tolerance()
        for share in np.linspace(0, 4, 41):
            moved = (result.rounded.values + share * whole.tolerance() * np.random.default_rng(0).uniform(-1, 1, (7, 9))).astype(
                np.float32
            )
            found = result.covers(moved)
            np.testing.assert_array_equal(found, whole.covers(moved))
            np.testing.assert_array_equal(found, whole.margin(moved) <= 1)
            assert (result.covers(moved, "any_order") | ~found).all()
    assert (whole.tolerance() <= whole.tolerance("any_order")).all()


def test_tolerances_of_huge_coefficients() -> None:
    one = er.asarray([[1.0]])
    for alpha, beta in ((10**400, 1), (1, 10**400)):
        assert er.gemm(one, one, one, alpha=alpha, beta=beta).tolerance().tolist() == [[INF]]
    tiny = er.gemm(one, one, one, alpha=Fraction(1, 10**400), beta=1)
    assert tiny.covers([[1.0]]).all()
    assert 0 <= tiny.tolerance()[0, 0] < 1e-15


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fnuz"])
def test_results_may_come_as_their_bits(name: str) -> None:
    """As the front door and `numpy` give them where there is no ml_dtypes."""
    a = er.asarray([[1.5, 2], [3, 4]], name)
    result = er.matmul(a, a.T)
    bits = result.rounded.stored
    assert bits.dtype.kind == "u"
    assert result.covers(bits).all()
    assert (result.margin(bits) <= 1).all()
    assert not result.covers(bits + np.uint8(3)).any()
    assert result.covers(result.rounded.values).all()


def test_scalars_and_empty_results() -> None:
    dot = er.matmul([1.0, 2.0], [3.0, 4.0])
    assert dot.covers(11.0).shape == ()
    assert bool(dot.covers(11.0))
    assert dot.tolerance().shape == ()
    empty = er.matmul(np.ones((0, 3)), np.ones((3, 2)))
    assert empty.covers(np.ones((0, 2))).shape == (0, 2)
    assert empty.tolerance("any_order").shape == (0, 2)


@pytest.mark.parametrize("pair", [(1e-155, 1e-160), (1e-160, 7e-165), (1e-165, 1e-165), (3e-162, 2.47e-162), (-1e-162, 3.6e-162)])
@pytest.mark.parametrize("alpha", [Fraction(1), Fraction(1, 3)], ids=["fixed-point", "fractions"])
def test_tolerances_of_exact_values_below_the_lowest_float64(pair: tuple[float, float], alpha: Fraction) -> None:
    """What float64 cannot hold of the exact value is no reason for a tolerance that is too small."""
    first, second = pair
    result = er.gemm([[first]], [[second]], alpha=alpha, dtype="float32", rounding=er.Rounding.TOWARD_ZERO)
    exact = abs(alpha * Fraction(first) * Fraction(second))
    tolerance = Fraction(float(result.tolerance()[0, 0]))
    assert exact <= tolerance <= exact + 8 * Fraction(2) ** -1074
    assert result.covers([[0.0]]).all()
    assert (result.margin([[0.0]]) <= 1).all()


@pytest.mark.parametrize("factor", [2.0**-475, -1.9 * 2.0**-476, 1.4 * 2.0**-475, 1.6 * 2.0**-474, 2.0**-700, 2.0**-474])
def test_a_margin_is_0_only_at_the_exact_value(factor: float) -> None:
    """Also among the lowest numbers of float64, which hold no half of themselves, and under an interval of 1e300."""
    exact = Fraction(2) ** -600 * Fraction(factor)
    result = er.matmul([[2.0**-600]], [[factor]])
    cancelled = er.matmul([[1e300, -1e300, 2.0**-600]], [[1.0], [1.0], [factor]])
    for count in range(-5, 6):
        x = count * 5e-324
        margins = [float(each.margin([[x]])[0, 0]) for each in (result, cancelled)]
        assert [margin == 0 for margin in margins] == [Fraction(x) == exact] * 2
        assert [margin <= 1 for margin in margins] == [bool(each.covers([[x]])[0, 0]) for each in (result, cancelled)]
