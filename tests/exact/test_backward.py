"""Gradients of gemm: against finite differences in rationals, summed over copies, in their operands' shapes and formats."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import py_gemm.exact as er
from py_gemm.errors import ShapeError

INF, NAN = float("inf"), float("nan")

# (A, B, C, reduce_batch): vectors, broadcasting of each operand, batches summed
CASES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]] = [
    ((2, 3), (3, 4), (2, 4), False),
    ((2, 3), (3, 4), (4,), False),
    ((2, 3), (3, 4), (2, 1), False),
    ((2, 3), (3, 4), (), False),
    ((3,), (3, 4), (4,), False),
    ((2, 3), (3,), (1,), False),
    ((3,), (3,), (), False),
    ((5, 2, 3), (3, 4), (2, 4), False),
    ((2, 3), (5, 3, 4), (5, 1, 1), False),
    ((5, 1, 2, 3), (2, 3, 2), (2, 2), False),
    ((1, 2, 3), (5, 3, 2), (2, 2), False),
    ((3,), (2, 5, 3, 2), (5, 2), False),
    ((5, 2, 3), (3,), (2,), False),
    ((5, 2, 3), (5, 3, 4), (2, 4), True),
    ((2, 3), (5, 3, 4), (4,), True),
    ((4, 1, 2, 3), (2, 3, 2), (1, 1), True),
    ((2, 3), (3, 4), (2, 4), True),
]
IDS = ["-".join("x".join(map(str, shape)) or "0d" for shape in case[:3]) + ("-sum" if case[3] else "") for case in CASES]


def small_integers(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.integers(-5, 6, shape).astype(np.float32)


@pytest.mark.parametrize(("shape_a", "shape_b", "shape_c", "reduce_batch"), CASES, ids=IDS)
def test_finite_differences(
    shape_a: tuple[int, ...], shape_b: tuple[int, ...], shape_c: tuple[int, ...], reduce_batch: bool
) -> None:
    """A gemm is linear in each operand, so a difference of any size is the gradient, exactly."""
    rng = np.random.default_rng(0)
    operands = {"A": small_integers(rng, shape_a), "B": small_integers(rng, shape_b), "C": small_integers(rng, shape_c)}
    options: Any = {"alpha": Fraction(-3, 2), "beta": 3, "reduce_batch": reduce_batch}
    base = er.gemm(*operands.values(), **options).rounded.values
    grad = small_integers(rng, base.shape)
    found = er.gemm.backward(operands["A"], operands["B"], operands["C"], grad, **options).rounded
    assert list(found) == ["grad_A", "grad_B", "grad_C"]
    for name, operand in operands.items():
        gradient = found[f"grad_{name}"]
        assert gradient.shape == operand.shape
        assert gradient.dtype == "float32"
        wanted = np.zeros(operand.shape)
        for place in np.ndindex(operand.shape):
            moved = {other: values.copy() for other, values in operands.items()}
            moved[name][place] += 1
            change = er.gemm(*moved.values(), **options).rounded.values - base
            wanted[place] = np.sum(change * grad)
        np.testing.assert_array_equal(gradient.values, wanted)


@pytest.mark.parametrize(("shape_a", "shape_b", "shape_c", "reduce_batch"), CASES, ids=IDS)
def test_complex_gradients_by_differences(
    shape_a: tuple[int, ...], shape_b: tuple[int, ...], shape_c: tuple[int, ...], reduce_batch: bool
) -> None:
    """The convention of PyTorch: real(sum(conj(grad) * change)) for a step along 1, and along i."""
    rng = np.random.default_rng(1)
    operands = {
        name: small_integers(rng, shape) + 1j * small_integers(rng, shape)
        for name, shape in zip("ABC", (shape_a, shape_b, shape_c), strict=True)
    }
    options: Any = {"alpha": 2 - 1j, "beta": 1j, "reduce_batch": reduce_batch}
    base = er.gemm(*operands.values(), **options).rounded.values
    grad = small_integers(rng, base.shape) + 1j * small_integers(rng, base.shape)
    found = er.gemm.backward(operands["A"], operands["B"], operands["C"], grad, **options).rounded
    for name, operand in operands.items():
        wanted = np.zeros(operand.shape, np.complex128)
        for place in np.ndindex(operand.shape):
            for step in (1, 1j):
                moved = {other: np.array(values, np.complex128) for other, values in operands.items()}
                moved[name][place] += step
                change = er.gemm(*moved.values(), **options).rounded.values - base
                wanted[place] += step * np.sum(np.conj(grad) * change).real
        np.testing.assert_array_equal(found[f"grad_{name}"].values, wanted)


def test_gradients_are_rounded_once() -> None:
    big = er.asarray([[1.0, 2.0**-30], [1.0, -1.0]], "float32")
    grad = er.asarray([[1.0, 1.0]], "float32")
    found = er.gemm.backward(er.asarray([[0.0, 0.0]], "float32"), big.T, None, grad)
    assert list(found.rounded) == ["grad_A", "grad_B"]
    assert found.rounded.grad_A.tolist() == [[2.0, float(np.float32(2.0**-30 - 1))]]
    assert found.covers(found.rounded)["grad_A"].all()
    assert found.covers([found.rounded.grad_A, found.rounded.grad_B]).grad_B.all()
    assert found.normal().grad_A.dtype == "float32"
    assert found.tolerance().grad_A.shape == (1, 2)
    assert found.margin(found.rounded).grad_B.max() <= 1


def test_each_gradient_has_its_operands_format() -> None:
    a, b, c = er.asarray([[1.5]], "float16"), er.asarray([[2.0]], "float32"), er.asarray([[0.25]], "bfloat16")
    grad = er.asarray([[1.001]], "float32")
    found = er.gemm.backward(a, b, c, grad)
    assert found.dtype._outputs == {"grad_A": "float16", "grad_B": "float32", "grad_C": "bfloat16"}
    assert found.rounded.grad_A.tolist() == [[2.001953125]]
    assert found.rounded.grad_C.tolist() == [[1.0]]
    wide = er.gemm.backward(a, b, c, grad, dtype="float64", rounding=er.Rounding.UP)
    assert set(wide.dtype.values()) == {"float64"}


def test_zero_coefficients_read_nothing() -> None:
    nan, one = er.asarray([[NAN]], "float32"), er.asarray([[1.0]], "float32")
    found = er.gemm.backward(nan, nan, nan, one, alpha=0, beta=0).rounded
    assert [each.tolist() for each in found.values()] == [[[0.0]]] * 3
    assert str(er.gemm.backward(one, one, one, er.asarray([[INF]], "float32"), alpha=0).rounded.grad_A.tolist()) == "[[0.0]]"


def test_signs_of_zero_and_special_values_of_grad_c() -> None:
    grad = er.asarray([[-0.0, 0.0, INF, NAN]], "float32")
    a, b = er.asarray([[1.0]], "float32"), er.asarray([[1.0] * 4], "float32")
    found = er.gemm.backward(a, b, er.Array.zeros("float32", (1, 4)), grad, beta=-2).rounded.grad_C
    assert str(found.tolist()) == "[[0.0, -0.0, -inf, nan]]"
    summed = er.gemm.backward(a, b, er.Array.zeros("float32", ()), er.asarray([[-0.0] * 4], "float32")).rounded.grad_C
    assert str(summed.tolist()) == "-0.0"


def test_a_real_operand_of_a_complex_product_has_the_real_part() -> None:
    a, b = er.asarray([[2.0]], "float32"), er.asarray([[1 + 2j]], "complex64")
    found = er.gemm.backward(a, b, None, er.asarray([[3 + 5j]], "complex64"))
    # real part of (3 + 5i) * conj(1 + 2i)
    assert found.rounded.grad_A.tolist() == [[13.0]]
    assert found.rounded.grad_B.tolist() == [[6 + 10j]]
    assert found.covers({"grad_A": [[13.0]], "grad_B": [[6 + 10j]]}).grad_A.all()


def test_copies_of_complex_addends_are_summed_part_by_part() -> None:
    """The copies are added as they are: no part meets a zero times infinity, and negative zeros stay negative."""
    ones, addend = np.ones((3, 1), np.complex64), np.ones((1, 2), np.complex64)
    zero = complex(-0.0, -0.0)
    grad = np.array([[1 + 2j, zero], [complex(INF, 1), zero], [3j, zero]], np.complex64)
    found = er.gemm.backward(ones, addend, addend, grad)
    for answer in (found.rounded.grad_C, found.normal().grad_C):
        real, imaginary = answer.values.real, answer.values.imag
        assert real.tolist() == [[INF, 0.0]]
        assert imaginary.tolist() == [[6.0, 0.0]]
        assert np.signbit(real[0, 1])
        assert np.signbit(imaginary[0, 1])
    assert found.covers(found.rounded).grad_C.all()
    turned = er.gemm.backward(ones, addend, addend, grad, beta=2j).rounded.grad_C  # -2j * grad
    assert turned.tolist()[0][0] == complex(12, -INF)


def test_copies_of_complex_addends_have_tight_tolerances() -> None:
    """An odd number of copies, summed in index order, stays within the bound of sums of that many terms."""
    rng = np.random.default_rng(5)
    grad = rng.standard_normal((7, 3, 2), np.float32).view(np.complex64)[..., 0]
    found = er.gemm.backward(np.ones((7, 1), np.complex64), np.ones((1, 3), np.complex64), np.ones(3, np.complex64), grad)
    assert found.covers(found.normal()).grad_C.all()
    assert found.normal().grad_C.tolist() == [sum(grad[1:, n], grad[0, n]).item() for n in range(3)]
    largest = float(np.abs(grad).sum(axis=0).max())
    assert found.tolerance().grad_C.real.max() <= 9 * 2.0**-24 * largest


def test_integers_and_earlier_results() -> None:
    a = er.asarray([[1, 2], [3, 4]], "int32")
    found = er.gemm.backward(a, a, None, er.matmul(a, a))
    assert found.rounded.grad_A.tolist() == ((np.array([[7, 10], [15, 22]])) @ np.array([[1, 3], [2, 4]])).tolist()


def test_empty_gradients() -> None:
    found = er.gemm.backward(np.ones((2, 0)), np.ones((0, 3)), np.ones(3), np.ones((2, 3))).rounded
    assert found.grad_A.shape == (2, 0)
    assert found.grad_B.shape == (0, 3)
    assert found.grad_C.tolist() == [2.0, 2.0, 2.0]
    none = er.gemm.backward(np.ones((0, 2)), np.ones((2, 3)), np.ones(3), np.ones((0, 3))).rounded
    assert none.grad_B.tolist() == [[0.0] * 3] * 2
    assert none.grad_C.tolist() == [0.0] * 3


def test_wrong_gradients() -> None:
    a = np.ones((2, 2))
    with pytest.raises(ShapeError, match="grad has the shape"):
        er.gemm.backward(a, a, None, np.ones((2, 3)))
    with pytest.raises(ShapeError, match="does not broadcast"):
        er.gemm.backward(a, a, np.ones(3), a)
    with pytest.raises(ValueError, match="engine='quick' is unknown; known: rational"):
        er.gemm.backward(a, a, None, a, engine="quick")
    with pytest.raises(TypeError, match="another kind"):
        er.gemm.backward(a, a, None, a, dtype="int8").rounded  # noqa: B018
    found = er.gemm.backward(a, a, None, a)
    with pytest.raises(ValueError, match="grad_A, grad_B"):
        found.covers({"grad_A": a})
    with pytest.raises(ValueError, match="a mapping or a sequence"):
        found.covers(a)
    with pytest.raises(AttributeError, match="there are grad_A, grad_B"):
        found.rounded.grad_D  # noqa: B018
    assert "grad_A: float64 (2, 2)" in repr(found)
    assert "grad_B" in found._repr_html_()
    assert "grad_A=Array" in repr(found.rounded)
