"""The portable kernel on wgpu: exact on whole numbers, every type, every stride; nothing read or written that is not meant."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32
from py_gemm.epilogue import Activation
from py_gemm.gpu.operation import GemmOperation, HostOperand
from py_gemm.problem import Layout, Problem

from . import tools
from .tools import TYPES, numpy_type, product, small_integers

SAMPLED = random.Random(20).sample([(m, n, k) for m in tools.SIZES for n in tools.SIZES for k in tools.SIZES], 120)


@pytest.mark.parametrize(("m", "n", "k"), SAMPLED, ids=lambda size: str(size))
def test_whole_numbers_are_exact(device: Any, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng((m, n, k))
    type_a, type_b, result = (tuple(TYPES.values())[rng.integers(3)] for _ in range(3))
    a, b = small_integers(rng, (m, k), type_a), small_integers(rng, (k, n), type_b)
    expected = tools.reference(a, b).astype(numpy_type(result))
    assert np.array_equal(product(device, a, b, result=result), expected), (type_a, type_b, result)


@pytest.mark.parametrize("type_a", TYPES.values(), ids=str)
@pytest.mark.parametrize("type_b", TYPES.values(), ids=str)
@pytest.mark.parametrize("result", TYPES.values(), ids=str)
def test_every_mix_of_types(device: Any, type_a: Any, type_b: Any, result: Any) -> None:
    rng = np.random.default_rng(1)
    a, b = small_integers(rng, (3, 65, 33), type_a), small_integers(rng, (33, 67), type_b)
    assert np.array_equal(product(device, a, b, result=result), tools.reference(a, b).astype(numpy_type(result)))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x[2:42, 3:36],
    "transposed": lambda x: x[2:42, 3:36].T.copy().T,
    "transposed view": lambda x: x.T[4:44, 1:34],
    "rows reversed": lambda x: x[41:1:-1, 3:36],
    "columns reversed": lambda x: x[2:42, 35:2:-1],
    "both reversed": lambda x: x[::-1, ::-1][1:41, 2:35],
    "every second": lambda x: x[0:80:2, 0:66:2],
    "one row repeated": lambda x: np.broadcast_to(x[5:6, 3:36], (40, 33)),
    "one column repeated": lambda x: np.broadcast_to(x[2:42, 7:8], (40, 33)),
    "one element repeated": lambda x: np.broadcast_to(x[5:6, 7:8], (40, 33)),
}


@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_any_strides(device: Any, type_: Any, view: str) -> None:
    rng = np.random.default_rng(2)
    a = VIEWS[view](small_integers(rng, (81, 81), type_))
    b = VIEWS[view](small_integers(rng, (81, 81), type_)).T
    assert np.array_equal(product(device, a, b), tools.reference(a, b))
    assert np.array_equal(product(device, b, a), tools.reference(b, a))


BATCHES = [((4,), ()), ((), (4,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((2, 1, 3), (4, 1)), ((1, 1), (5,)), ((3, 1, 1), (1, 1, 2))]


@pytest.mark.parametrize(("batch_a", "batch_b"), BATCHES, ids=str)
@pytest.mark.parametrize("type_", [FLOAT32, FLOAT16], ids=str)
def test_batches_broadcast(device: Any, batch_a: Any, batch_b: Any, type_: Any) -> None:
    rng = np.random.default_rng(3)
    a, b = small_integers(rng, (*batch_a, 9, 5), type_), small_integers(rng, (*batch_b, 5, 7), type_)
    c = small_integers(rng, (9, 7), type_)
    assert np.array_equal(product(device, a, b), tools.reference(a, b))
    assert np.array_equal(product(device, a, b, c), tools.reference(a, b) + c.astype("f8"))


def test_grids_past_the_limit_are_cut_without_changing_a_bit(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real limit is 65,535 workgroups an axis; a smaller one cuts the same way and does not take a minute."""
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((7, 200, 20)).astype("f4"), rng.standard_normal((7, 20, 150)).astype("f4")
    whole = product(device, a, b, result=FLOAT16)
    limits = replace(device.capabilities.limits, max_compute_workgroups_per_dimension=2)
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, limits=limits))
    assert np.array_equal(product(device, a, b, result=FLOAT16), whole)
    assert np.array_equal(product(device, a, b).astype("f2"), whole)


@pytest.mark.soak
def test_a_batch_past_65535_is_whole(device: Any) -> None:
    rng = np.random.default_rng(4)
    a, b = small_integers(rng, (70_000, 1, 2), FLOAT32), small_integers(rng, (70_000, 2, 1), FLOAT16)
    assert np.array_equal(product(device, a, b, result=FLOAT16), tools.reference(a, b))


@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("shape", [(33, 65), (1, 65), (33, 1), (1, 1), (65,)], ids=str)
def test_c_of_any_type_and_shape_is_added(device: Any, type_: Any, place: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    a, b = small_integers(rng, (33, 17), FLOAT32), small_integers(rng, (17, 65), FLOAT32)
    c = np.broadcast_to(small_integers(rng, shape, type_), (33, 65))
    put = (lambda given: tools.on_device(device, given)) if place == "device" else (lambda given: given)
    found = product(device, a, b, c, alpha=2.0, beta=-3.0, place=put)
    assert np.array_equal(found, 2 * tools.reference(a, b) - 3 * c.astype("f8"))


def test_operands_on_the_device_are_not_changed(device: Any) -> None:
    rng = np.random.default_rng(6)
    a, b, c = (small_integers(rng, (20, 20), FLOAT32) for _ in range(3))
    placed: list[Any] = []

    def place(given: Any) -> Any:
        placed.append(tools.on_device(device, given))
        return placed[-1]

    product(device, a, b, c, place=place)
    for each, original in zip(placed, (a, b, c), strict=True):
        assert device.read_buffer(each.buffer) == original.tobytes()


def test_one_array_as_both_operands_is_uploaded_once(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = small_integers(np.random.default_rng(7), (20, 20), FLOAT32)
    given = tools.operand(x)
    transposed = Layout(FLOAT32, 1, 20)
    problem = Problem(20, 20, 20, given.layout, transposed, given.layout)
    seen: list[int] = []
    execute = device.execute

    def counting(job: Any) -> Any:
        seen.append(len(job.uploads))
        return execute(job)

    out = np.empty((20, 20), "f4")
    monkeypatch.setattr(device, "execute", counting)
    _, pending = GemmOperation(device, problem).start(given, HostOperand(given.data, transposed), read_into=tools.as_bytes(out))
    pending.wait()
    assert seen == [1]
    assert np.array_equal(out, x @ x.T)


POISON = np.full((8, 8), np.nan, "f4")


def test_beta_zero_never_reads_c(device: Any) -> None:
    a = small_integers(np.random.default_rng(8), (8, 8), FLOAT32)
    assert np.array_equal(product(device, a, a, POISON, beta=0.0), tools.reference(a, a))
    assert np.array_equal(product(device, a, a, POISON, beta=-0.0), tools.reference(a, a))


def test_alpha_zero_never_reads_a_and_b(device: Any) -> None:
    c = small_integers(np.random.default_rng(9), (8, 8), FLOAT32)
    assert np.array_equal(product(device, POISON, POISON, c, alpha=0.0, beta=2.0), 2 * c)
    zero = product(device, POISON, POISON, alpha=0.0)
    assert np.array_equal(zero, np.zeros((8, 8)))
    assert not np.signbit(zero).any()


def test_an_empty_sum_is_beta_c_with_its_sign(device: Any) -> None:
    a, b = np.empty((3, 0), "f4"), np.empty((0, 4), "f4")
    assert np.array_equal(product(device, a, b), np.zeros((3, 4)))
    c = np.array([[-0.0, 0.0, -1.0, np.inf]] * 3, "f4")
    found = product(device, a, b, c)
    assert np.array_equal(found, c)
    assert np.array_equal(np.signbit(found), np.signbit(c))
    bias = np.array([1, 2, 3, 4], "f4")
    assert np.array_equal(product(device, a, b, bias=bias), np.broadcast_to(bias, (3, 4)))


@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
def test_nan_and_infinity_come_through(device: Any, type_: Any) -> None:
    a = np.array([[np.nan, 1.0], [1.0, 2.0], [np.inf, 0.0]]).astype(numpy_type(type_))
    b = np.array([[1.0, 0.0, -1.0], [3.0, np.inf, -2.0]]).astype(numpy_type(type_))
    with np.errstate(invalid="ignore"):
        expected = tools.reference(a, b)
    for result in TYPES.values():
        found = product(device, a, b, result=result).astype("f8")
        assert np.array_equal(found, expected, equal_nan=True), result


@pytest.mark.parametrize("k", [1, 15, 17])
def test_padding_of_k_never_meets_infinity(device: Any, k: int) -> None:
    """Zero times infinity would be NaN: what pads k is zero on both sides."""
    a, b = np.full((3, k), np.inf, "f4"), np.ones((k, 3), "f4")
    assert np.array_equal(product(device, a, b), np.full((3, 3), np.inf))
    assert np.array_equal(product(device, b.T, a.T), np.full((3, 3), np.inf))


def test_results_too_large_for_a_narrow_type_are_infinite(device: Any) -> None:
    a = np.array([[300.0]], "f4")
    assert np.array_equal(product(device, a, a, result=FLOAT16).astype("f4"), [[np.inf]])
    assert np.array_equal(product(device, a, a, result=BFLOAT16).astype("f4"), [[90112.0]])


@pytest.mark.parametrize("activation", list(Activation), ids=lambda each: each.name)
def test_bias_and_activation_come_after_alpha_and_beta(device: Any, activation: Activation) -> None:
    rng = np.random.default_rng(10)
    a, b, c = (rng.standard_normal((65, 65)).astype("f4") for _ in range(3))
    bias = rng.standard_normal(65).astype("f4")
    x = 0.7 * tools.reference(a, b) + 1.3 * c + bias
    found = product(device, a, b, c, alpha=0.7, beta=1.3, bias=bias, activation=activation)
    assert np.abs(found - activated(activation, x)).max() < 2e-5


def activated(activation: Activation, x: Any) -> Any:
    """The definitions of py_gemm/epilogue.py in float64."""
    from math import erf, pi, sqrt

    if activation is Activation.RELU:
        return np.where(x > 0, x, np.where(np.isnan(x), x, 0.0))
    if activation is Activation.GELU_ERF:
        return x * (1 + np.vectorize(erf)(x / sqrt(2))) / 2
    if activation is Activation.GELU_TANH:
        return x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2
    return x


@pytest.mark.parametrize("activation", [Activation.GELU_ERF, Activation.GELU_TANH], ids=lambda each: each.name)
def test_gelu_is_within_its_bound(device: Any, activation: Activation) -> None:
    x = np.concatenate([np.linspace(-20, 20, 200_003), np.logspace(-30, 30, 5001), -np.logspace(-30, 30, 5001)]).astype("f4")
    found = product(device, x[:, None], np.ones((1, 1), "f4"), activation=activation)[:, 0].astype("f8")
    exact = x.astype("f8")
    with np.errstate(over="ignore"):
        expected = activated(activation, exact)
    assert (np.abs(found - expected) / (1 + np.abs(exact))).max() <= 4e-7


@pytest.mark.parametrize("activation", list(Activation)[1:], ids=lambda each: each.name)
def test_activations_at_the_ends(device: Any, activation: Activation) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -3e38, 3e38], "f4")
    found = product(device, np.ones((1, 1), "f4"), np.ones((1, 7), "f4"), x[None], alpha=0.0, activation=activation)
    expected = np.array([np.nan, np.inf, 0.0, 0.0, 0.0, 0.0, 3e38])
    assert np.allclose(found[0], expected, rtol=1e-6, equal_nan=True)
    if activation is Activation.RELU:
        assert not np.signbit(found[0, 1:]).any()
