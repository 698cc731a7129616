"""gemm and matmul: shapes, formats, coefficients, overflow rules, infinities and NaN, signs of zeros, complex numbers, integers."""

from __future__ import annotations

import itertools
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gmpy2
import numpy as np
import pytest

import py_gemm.exact as er
from py_gemm.errors import ShapeError
from py_gemm.exact import result as results
from py_gemm.exact.formats import COMPLEX64, COMPLEX128, FLOATS, INTEGERS, Format

INF, NAN = float("inf"), float("nan")


def f64(values: Any) -> er.Array:
    return er.asarray(values, "float64")


def rounded(*operands: Any, **options: Any) -> Any:
    return er.gemm(*operands, **options).rounded.tolist()


SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((2, 1, 2, 3), (1, 3, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((0, 2, 3), (3, 4)),
    ((2, 3, 3), (2, 3, 1)),
]


@pytest.mark.parametrize(("shape_a", "shape_b"), SHAPES)
def test_shapes_are_those_of_matmul(shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, shape_a).astype(float), rng.integers(-9, 9, shape_b).astype(float)
    wanted = a @ b
    result = er.matmul(a, b)
    assert result.shape == np.shape(wanted)
    np.testing.assert_array_equal(result.rounded.values, wanted)
    for c_shape in {np.shape(wanted), np.shape(wanted)[-1:], ()}:
        c = rng.integers(-9, 9, c_shape).astype(float)
        np.testing.assert_array_equal(er.gemm(a, b, c, alpha=2, beta=-1).rounded.values, 2 * wanted - c)
    np.testing.assert_array_equal(er.gemm(a, b).normal().values, wanted)


@pytest.mark.parametrize(("shape_a", "shape_b"), SHAPES)
def test_reduce_batch_sums_over_batches(shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, shape_a).astype(float), rng.integers(-9, 9, shape_b).astype(float)
    product = a @ b
    batch = len(np.broadcast_shapes(shape_a[:-2], shape_b[:-2]))
    wanted = product.sum(axis=tuple(range(batch)))
    result = er.gemm(a, b, np.ones(()), reduce_batch=True)
    assert result.shape == np.shape(wanted)
    np.testing.assert_array_equal(result.rounded.values, wanted + 1)


@pytest.mark.parametrize(
    ("operands", "match"),
    [
        (([1.0], 2.0), "B has no dimension"),
        (([[1.0, 2.0]], [[1.0, 2.0]]), "2 columns and B 1 rows"),
        ((np.ones((2, 2, 2)), np.ones((3, 2, 2))), "batch dimensions"),
        (([[1.0]], [[1.0]], [[1.0, 2.0]]), "does not broadcast"),
        (([[1.0]], [[1.0]], [[[1.0]]]), "does not broadcast"),
    ],
)
def test_shapes_that_do_not_fit(operands: tuple[Any, ...], match: str) -> None:
    with pytest.raises(ShapeError, match=match):
        er.gemm(*operands)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"alpha": "2"}, TypeError),
        ({"alpha": 1j}, TypeError),
        ({"beta": None}, TypeError),
        ({"dtype": "int8"}, TypeError),
        ({"dtype": "nothing"}, TypeError),
        ({"rounding": "sideways"}, ValueError),
        ({"overflow": "wrap"}, ValueError),
        ({"engine": "quick"}, ValueError),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        er.gemm(f64([[1]]), f64([[1]]), f64([[1]]), **options)


def test_kinds_do_not_mix() -> None:
    for wrong in (None, [["x"]], np.array([[True]]), {1}):
        with pytest.raises(TypeError, match="gemm: B: "):
            er.gemm([[1]], wrong)
        with pytest.raises(TypeError, match=r"gemm\.backward: grad: "):
            er.gemm.backward([[1]], [[1]], None, wrong)
    with pytest.raises(TypeError, match="different kinds"):
        er.gemm(er.asarray([[1]]), f64([[1]]))
    with pytest.raises(TypeError, match="no integer"):
        er.gemm(er.asarray([[1]]), er.asarray([[1]]), alpha=0.5)


def test_coefficients_are_exact() -> None:
    one, three = f64([[1.0]]), f64([[3.0]])
    assert rounded(one, three, alpha=Fraction(1, 3)) == [[1.0]]
    assert rounded(one, three, alpha=Decimal("0.1")) == [[0.3]]
    assert rounded(one, three, alpha=0.1) == [[0.30000000000000004]]
    assert rounded(one, one, one, alpha=10**400, beta=-(10**400) + 1) == [[1.0]]
    assert rounded(one, one, one, alpha=Fraction(2) ** -2000, beta=0) == [[0.0]]
    assert rounded(one, one, alpha=Fraction(2) ** -2000, rounding=er.Rounding.UP) == [[5e-324]]
    assert rounded(one, one, alpha=np.float32(0.5)) == [[0.5]]
    assert rounded(one, one, one, alpha=True, beta=False) == [[1.0]]
    assert rounded(one, one, one, alpha=np.bool_(True), beta=np.array(2)) == [[3.0]]
    assert rounded(one, one, alpha=er.asarray(0.5)) == rounded(one, one, alpha=er.matmul([0.5], [1.0])) == [[0.5]]
    assert rounded(one, three, alpha=gmpy2.mpq(1, 3)) == [[1.0]]
    assert rounded(one, one, alpha=gmpy2.mpfr("0.5")) == rounded(one, one, alpha=np.longdouble(0.5)) == [[0.5]]
    assert str(rounded(one, one, alpha=Decimal("sNaN"))) == str(rounded(one, one, alpha=Decimal("NaN"))) == "[[nan]]"
    assert rounded(one, one, alpha=Decimal("-Infinity")) == rounded(one, one, alpha=np.longdouble("-inf")) == [[-INF]]
    for huge in (Decimal("1e400"), gmpy2.mpfr("1e400"), 10**400):
        assert rounded(f64([[1e-200]]), f64([[1e-200]]), alpha=huge)[0][0] == pytest.approx(1.0)
    with pytest.raises(TypeError, match=r"alpha is one number, not an array of shape \(1,\)"):
        er.gemm(one, one, alpha=np.array([2.0]))
    with pytest.raises(TypeError, match="beta='2' is no number"):
        er.gemm(one, one, one, beta="2")


def test_zero_coefficients_read_nothing() -> None:
    nan = f64([[NAN]])
    assert rounded(f64([[2]]), f64([[3]]), nan, beta=-0.0) == [[6.0]]
    assert rounded(nan, nan, f64([[3]]), alpha=0.0, beta=2) == [[6.0]]
    assert rounded(nan, nan, nan, alpha=0, beta=0) == [[0.0]]
    assert rounded(er.asarray([[NAN + 1j]]), er.asarray([[1j]]), alpha=0j) == [[0j]]


@pytest.mark.parametrize("shape", [(2, 3, 0), (0, 3, 0), (2, 0, 0)])
def test_no_terms_in_batches(shape: tuple[int, ...]) -> None:
    found = er.gemm(np.ones(shape), np.ones((0, 4)), np.ones(4), beta=2)
    assert found.rounded.shape == (*shape[:-1], 4)
    assert (found.rounded.values == 2.0).all()
    assert found.covers(found.normal()).all()


def test_no_terms() -> None:
    a, b = er.Array.zeros("float32", (2, 0)), er.Array.zeros("float32", (0, 1))
    assert rounded(a, b) == [[0.0], [0.0]]
    assert str(rounded(a, b, er.asarray([[-0.0], [2.5]], "float32"), beta=2)) == "[[-0.0], [5.0]]"
    assert str(rounded(a, b, rounding=er.Rounding.DOWN)) == "[[0.0], [0.0]]"


def same(found: float, wanted: float) -> bool:
    return str(found) == str(wanted)


@pytest.mark.parametrize("alpha", [1, -2, 0.5])
@pytest.mark.parametrize("beta", [1, -1, 0])
def test_special_values_follow_ieee(alpha: float, beta: float) -> None:
    """Every pair of products and C out of zeros, ones, infinities and NaN, against the terms added by IEEE's own arithmetic: where
    no rounding can happen that is the exact expression."""
    values = (0.0, -0.0, 1.0, -2.0, INF, -INF, NAN)
    grid = np.array(list(itertools.product(values, repeat=5)))
    a, b, c = grid[:, None, 0:2], grid[:, 2:4, None], grid[:, 4].reshape(-1, 1, 1)
    with np.errstate(invalid="ignore"):
        wanted = alpha * grid[:, 0] * grid[:, 2] + alpha * grid[:, 1] * grid[:, 3]
        if beta:
            wanted = wanted + beta * grid[:, 4]
    for engine in ("ozaki", "superaccumulator"):
        found = er.gemm(a, b, c, alpha=alpha, beta=beta, engine=engine).rounded.values.reshape(-1)
        np.testing.assert_array_equal(found, wanted)
        regular = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found[regular]), np.signbit(wanted[regular]))


def test_zeros_rounding_down() -> None:
    down = er.Rounding.DOWN
    assert same(er.gemm(f64([1, 1]), f64([1, -1]), rounding=down).rounded.tolist(), -0.0)
    assert same(er.gemm(f64([1, 1]), f64([1, -1])).rounded.tolist(), 0.0)
    assert same(er.gemm(f64([0, 0]), f64([1, 2]), rounding=down).rounded.tolist(), 0.0)
    assert same(er.gemm(f64([0, -0.0]), f64([1, 2]), rounding=down).rounded.tolist(), -0.0)
    assert same(er.gemm(f64([-0.0, -0.0]), f64([1, 2])).rounded.tolist(), -0.0)
    assert same(er.gemm(f64([5e-324]), f64([-5e-324])).rounded.tolist(), -0.0)
    assert same(er.gemm(f64([5e-324]), f64([-5e-324]), rounding=down).rounded.tolist(), -5e-324)
    assert same(er.gemm(er.asarray([-0.0], "float16"), er.asarray([1.0], "float16")).rounded.tolist(), -0.0)
    fnuz = er.asarray([-1.0, 1.0], "float8_e4m3fnuz"), er.asarray([1.0, 1.0], "float8_e4m3fnuz")
    assert same(er.gemm(*fnuz, rounding=down).rounded.tolist(), 0.0)


@pytest.mark.parametrize("engine", ["rational", "fsum", "ozaki", "superaccumulator"])
def test_infinite_coefficients(engine: str) -> None:
    one, zero = f64([[1.0, 2.0]]), f64([[1.0], [-0.5]])
    assert str(rounded(one, zero, alpha=INF, engine=engine)) == "[[nan]]"
    assert rounded(one, f64([[1.0], [-1.0]]), alpha=INF, engine=engine) == [[-INF]]
    assert rounded(one, f64([[1.0], [-1.0]]), alpha=-INF, engine=engine) == [[INF]]
    assert str(rounded(one, one.T, alpha=NAN, engine=engine)) == "[[nan]]"
    assert str(rounded(one, one.T, f64([[0.0]]), beta=INF, engine=engine)) == "[[nan]]"
    assert rounded(one, one.T, f64([[-1.0]]), beta=INF, engine=engine) == [[-INF]]


OVERFLOWS = {
    ("float32", "ieee"): INF,
    ("float32", "saturate"): 3.4028234663852886e38,
    ("float32", "nan"): NAN,
    ("float8_e5m2", None): INF,
    ("float8_e5m2", "saturate"): 57344.0,
    ("float8_e4m3fn", None): NAN,
    ("float8_e4m3fn", "ieee"): NAN,
    ("float8_e4m3fn", "saturate"): 448.0,
    ("float8_e4m3fnuz", None): NAN,
    ("float8_e4m3fnuz", "saturate"): 240.0,
}


@pytest.mark.parametrize(("name", "overflow"), OVERFLOWS)
@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_of_floats(name: str, overflow: str | None, sign: int) -> None:
    highest = float(er.FORMATS[name].highest)
    big = er.asarray([highest], name)
    found = er.gemm(big, big, alpha=sign, overflow=overflow).rounded.tolist()
    assert same(found, OVERFLOWS[name, overflow] * sign)
    if er.FORMATS[name].has_infinity:
        infinite = er.gemm(er.asarray([INF * sign], name), er.asarray([1], name), overflow=overflow).rounded.tolist()
        assert same(infinite, OVERFLOWS[name, overflow] * sign)


@pytest.mark.parametrize("overflow", [None, "ieee", "saturate", "nan"])
@pytest.mark.parametrize("form", [*FLOATS, COMPLEX64, COMPLEX128], ids=str)
def test_overflow_rules_of_every_format(form: Format, overflow: str | None) -> None:
    part = form.part
    rule = overflow or ("ieee" if part.has_infinity else "nan")
    wanted = float(part.highest) if rule == "saturate" else INF if rule == "ieee" and part.has_infinity else NAN
    high = er.asarray([[float(part.highest)], [-float(part.highest)], [1.0]], part)
    big = er.asarray([[float(part.highest)]], form)
    for engine in ("rational", "fsum", "ozaki", "superaccumulator"):
        found = er.gemm(high, big, overflow=overflow, engine=engine).rounded.values
        np.testing.assert_array_equal(found.real, [[wanted], [-wanted], [float(part.highest)]])
        if form.kind == "complex":
            assert not found.imag.any()
            turned = er.gemm(big, er.asarray([[1j]], form), alpha=3 - 2j, overflow=overflow, engine=engine).rounded.values[0, 0]
            np.testing.assert_array_equal([turned.real, turned.imag], [wanted, wanted])


def test_overflow_in_directed_modes() -> None:
    big = er.asarray([3e38], "float32")
    highest = 3.4028234663852886e38
    wanted = {"nearest_even": INF, "nearest_away": INF, "toward_zero": highest, "up": INF, "down": highest, "odd": highest}
    for mode in er.Rounding:
        assert er.gemm(big, big, rounding=mode).rounded.tolist() == wanted[mode.value]
        mirrored = {er.Rounding.UP: er.Rounding.DOWN, er.Rounding.DOWN: er.Rounding.UP}.get(mode, mode)
        assert er.gemm(big, big, alpha=-1, rounding=mirrored).rounded.tolist() == -wanted[mode.value]


@pytest.mark.parametrize("form", INTEGERS, ids=str)
@pytest.mark.parametrize("engine", [None, "rational", "ozaki"])
def test_overflow_of_integers(form: Format, engine: str | None) -> None:
    rng = np.random.default_rng(form.size)
    a = rng.integers(form.lowest, form.highest, (5, 6), form.name, endpoint=True)
    b = rng.integers(form.lowest, form.highest, (6, 5), form.name, endpoint=True)
    c = rng.integers(form.lowest, form.highest, (5, 5), form.name, endpoint=True)
    b[:, 0], b[0, 0] = 0, 1
    exact = 3 * (a.astype(object) @ b.astype(object)) - 4 * c.astype(object)
    size = 1 << 8 * form.size
    for overflow, wanted in (
        ("wrap", (exact - form.lowest) % size + form.lowest),
        ("saturate", np.minimum(np.maximum(exact, form.lowest), form.highest)),
    ):
        found = er.gemm(a, b, c, alpha=3, beta=-4, overflow=overflow, engine=engine).rounded
        assert found.dtype == form.name
        assert found.tolist() == wanted.tolist()
    past = np.argwhere((exact < form.lowest) | (exact > form.highest))
    result = er.gemm(a, b, c, alpha=3, beta=-4, overflow="error", engine=engine)
    with pytest.raises(OverflowError, match=rf"\({past[0][0]}, {past[0][1]}\)"):
        assert result.rounded
    inside = er.gemm(a[:1, :1], b[:1, :1], overflow="error", engine=engine)
    assert inside.rounded.tolist() == [[int(a[0, 0])]]


def test_integers_are_covered_by_equality() -> None:
    a = er.asarray([[100, 100]], "int8")
    result = er.gemm(a, a.T)
    assert result.rounded.tolist() == result.normal().tolist() == [[32]]
    assert result.covers(np.array([[32]], np.int8)).tolist() == [[True]]
    assert result.covers([[33]]).tolist() == [[False]]
    assert result.tolerance().tolist() == [[0.0]]
    assert result.margin([[33]]).tolist() == [[INF]]
    wide = er.gemm(a, a.T, dtype="int32")
    assert wide.rounded.tolist() == [[20000]]


def test_mixed_formats_promote_and_dtype_chooses() -> None:
    half, brain = er.asarray([[1.5]], "float16"), er.asarray([[1.0078125]], "bfloat16")
    assert er.gemm(half, brain).dtype == "float32"
    assert rounded(half, brain) == [[1.51171875]]
    assert er.gemm(half, brain, dtype="float8_e5m2").rounded.tolist() == [[1.5]]
    assert er.gemm(half, half, f64([[0.1]])).dtype == "float64"
    assert er.gemm(er.asarray([1, 2], "int8"), er.asarray([3, 4], "uint8")).dtype == "int16"


def test_earlier_results_are_operands() -> None:
    a = f64([[1, 2], [3, 4]])
    first = er.matmul(a, a)
    assert rounded(first, first, first) == rounded(first.rounded, first.rounded, first.rounded)


@pytest.mark.parametrize("engine", ["rational", "fsum", "ozaki", "superaccumulator"])
@pytest.mark.parametrize("alpha", [1, 2.5, 1j, 0.1 - 3j, Fraction(1, 3)])
@pytest.mark.parametrize("beta", [0, 1, -1j, 0.7 + 2j])
def test_complex_parts_are_rounded_once_each(engine: str, alpha: Any, beta: Any) -> None:
    rng = np.random.default_rng(4)
    a, b, c = (
        rng.standard_normal((*shape, 2)).astype(np.float32) @ np.array([1, 1j], np.complex64) for shape in ((3, 4), (4, 2), (3, 2))
    )
    found = er.gemm(a.astype(np.complex64), b.astype(np.complex64), c.astype(np.complex64), alpha=alpha, beta=beta, engine=engine)

    def parts(z: Any) -> tuple[Fraction, Fraction]:
        return (Fraction(z.real), Fraction(z.imag)) if isinstance(z, complex) else (Fraction(z), Fraction(0))

    def times(x: tuple[Fraction, Fraction], y: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
        return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]

    for i, j in np.ndindex(3, 2):
        terms = [times(parts(alpha), times(parts(complex(a[i, k])), parts(complex(b[k, j])))) for k in range(4)]
        terms.append(times(parts(beta), parts(complex(c[i, j]))))
        exact = [sum(term[part] for term in terms) for part in (0, 1)]
        value = complex(found.rounded.values[i, j])
        assert [Fraction(value.real), Fraction(value.imag)] == [Fraction(float(np.float32(float(x)))) for x in exact]


def test_complex_special_values_by_parts() -> None:
    a, b = er.asarray([[complex(INF, 0), complex(1, 0)]]), er.asarray([[complex(1, 1)], [complex(2, NAN)]])
    found = er.gemm(a, b).rounded.values[0, 0]
    # (inf + 0i)(1 + i) + (1 + 0i)(2 + nan i): real inf * 1 - 0 * 1 + 1 * 2 - 0 * nan
    assert np.isnan(found.real)
    assert np.isnan(found.imag)
    real_alpha = er.gemm(er.asarray([[complex(INF, 2)]]), er.asarray([[complex(1, 1)]]), alpha=2 + 0j).rounded.values[0, 0]
    assert (real_alpha.real, real_alpha.imag) == (INF, INF)
    zeros = er.gemm(
        er.asarray([[0j]]), er.asarray([[1 + 0j]]), er.asarray([[complex(-0.0, -0.0)]]), alpha=0, beta=1
    ).rounded.values[0, 0]
    assert str(zeros.real) == str(zeros.imag) == "-0.0"


def test_a_real_operand_with_a_complex_one() -> None:
    found = er.gemm(er.asarray([[2.0]], "float32"), er.asarray([[1 + 2j]], "complex64"))
    assert found.dtype == "complex64"
    assert found.rounded.tolist() == [[2 + 4j]]


def test_large_batches_of_small_products() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.integers(-99, 99, (700, 5, 6)).astype(np.float32), rng.integers(-99, 99, (700, 6, 3)).astype(np.float32)
    np.testing.assert_array_equal(er.matmul(a, b).rounded.values, a @ b)
    np.testing.assert_array_equal(er.matmul(a, b[0]).rounded.values, a @ b[0])
    np.testing.assert_array_equal(er.matmul(a[0], b).rounded.values, a[0] @ b)


def test_results_are_computed_when_asked_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(name: str) -> None:
        real = getattr(results, name)

        def ask(*given: Any, **options: Any) -> Any:
            asked.append(name)
            return real(*given, **options)

        monkeypatch.setattr(results, name, ask)

    for name in ("rounded", "normal_answer", "nearest", "bounds"):
        counted(name)
    a = np.random.default_rng(0).standard_normal((6, 7))
    result = er.matmul(a, a.T)
    repr(result), result.shape, result.dtype
    assert asked == []
    for _ in range(2):
        result.rounded, result.normal(), result.tolerance(), result.tolerance("any_order")
        result.covers(a @ a.T), result.margin(a @ a.T), result._repr_html_()
    assert sorted(asked) == ["bounds", "bounds", "nearest", "normal_answer", "rounded"]


def test_what_results_keep_cannot_be_changed() -> None:
    """Whoever changes an array that a result handed out would change what the result is judged by."""
    source = np.ones((2, 2), np.int8)
    result = er.matmul(source, source)
    source[:] = 9
    for kept in (result.rounded.numpy(), np.asarray(result), result.rounded.values, result.tolerance()):
        with pytest.raises(ValueError, match="read-only"):
            kept[0, 0] = 5
    changed = np.array(result)
    changed[0, 0] = 5
    assert result.covers(changed).tolist() == [[False, True], [True, True]]
    assert result.rounded.tolist() == [[2, 2], [2, 2]]
    assert pickle.loads(pickle.dumps(result)).rounded.numpy().flags.writeable is False


def test_results_show_themselves() -> None:
    result = er.matmul(np.ones((9, 9)), np.ones((9, 9)))
    assert repr(result) == "<exact Result float64 (9, 9)>"
    html = result._repr_html_()
    assert "shape (9, 9) (its first corner)" in html
    assert html.count("<td>") == 36
    assert result.rounded is result.rounded
    assert "shape (0, 2, 2)" in er.matmul(np.ones((0, 2, 2)), np.ones((2, 2)))._repr_html_()
    assert "<td>2.0</td>" in er.matmul(np.ones((3, 1, 2)), np.ones((2, 1)))._repr_html_()
    past = er.gemm(er.asarray([[100]], "int8"), er.asarray([[100]], "int8"), overflow="error")
    assert past._repr_html_() == "<p>the exact result at (0, 0) is past the range of int8</p>"
    np.testing.assert_array_equal(np.asarray(result, np.float32), np.full((9, 9), 9, np.float32))
    assert (result.shape, result.dtype) == ((9, 9), "float64")
    assert repr(er.gemm) == "<function gemm>"
    assert er.gemm.__doc__ is not None
    assert er.gemm.__doc__.startswith("D = beta * C + alpha * (A @ B)")
