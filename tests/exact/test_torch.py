"""PyTorch's tensors as operands and results: by PyTorch itself where its CPU build is at hand (scripts/pytorch.py), and in every
run by stand-ins that have just the methods which are used of a tensor.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import py_gemm.exact as er
from py_gemm.exact.formats import FORMATS


class StandIn:
    """What a tensor shows of itself: it converts to NumPy only where NumPy knows the type, and only when plain."""

    def __init__(self, values: Any, dtype: str, *, attached: bool = True, conjugate: bool = False) -> None:
        self._values, self.dtype, self._attached, self._conjugate = values, f"torch.{dtype}", attached, conjugate

    def detach(self) -> StandIn:
        return StandIn(self._values, self.dtype[6:], attached=False, conjugate=self._conjugate)

    def cpu(self) -> StandIn:
        return self

    def resolve_conj(self) -> StandIn:
        return StandIn(np.conj(self._values) if self._conjugate else self._values, self.dtype[6:], attached=self._attached)

    def resolve_neg(self) -> StandIn:
        return self

    def contiguous(self) -> StandIn:
        return self

    def view(self, dtype: str) -> StandIn:
        return StandIn(self._values.view(dtype), dtype, attached=self._attached)

    def numpy(self) -> Any:
        if self._attached or self._conjugate:
            raise RuntimeError("call resolve_conj and detach first")
        if self.dtype[6:] in ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"):
            raise TypeError(f"got unsupported ScalarType {self.dtype}")
        return self._values


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    module = types.ModuleType("torch")
    module.int16, module.uint8 = "int16", "uint8"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(StandIn, "__module__", "torch")
    return StandIn


@pytest.mark.parametrize("name", [name for name in FORMATS if not name.startswith(("uint16", "uint32", "uint64"))])
def test_stand_ins_of_every_type(stand_in: type[StandIn], name: str) -> None:
    values = np.array([[1, 2], [3, 0]]).astype(getattr(ml_dtypes, name, name))
    array = er.asarray(stand_in(values, name))
    assert array.dtype == name
    assert array.tolist() == [[1, 2], [3, 0]]
    values[:] = 0
    assert array.tolist() == [[1, 2], [3, 0]]


def test_conjugate_views_and_operands(stand_in: type[StandIn]) -> None:
    z = stand_in(np.array([[1 + 2j]], np.complex64), "complex64", conjugate=True)
    assert er.asarray(z).tolist() == [[1 - 2j]]
    x = stand_in(np.array([[2.0]], np.float32), "float32")
    result = er.gemm(x, x, x)
    assert result.rounded.tolist() == [[6.0]]
    assert result.covers(stand_in(np.array([[6.0]], np.float32), "float32")).all()
    with pytest.raises(TypeError, match="known: float64"):
        er.asarray(stand_in(np.array([True]), "bool"))


@pytest.fixture
def torch() -> Any:
    return importlib.import_module("torch")


@pytest.mark.torch
@pytest.mark.parametrize("name", FORMATS)
def test_tensors_of_every_type(torch: Any, name: str) -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 0.0]]).to(getattr(torch, name))
    array = er.asarray(values)
    assert (array.dtype, array.tolist()) == (name, [[1, 2], [3, 0]])
    assert er.asarray([1.5], values.dtype if name.startswith("float") else torch.float32).tolist() == [1.5]
    assert er.asarray(values.T[:, :1]).tolist() == [[1], [2]]


@pytest.mark.torch
def test_views_of_tensors(torch: Any) -> None:
    z = torch.tensor([[1 + 2j]])
    assert er.asarray(z.conj()).tolist() == [[1 - 2j]]
    assert er.asarray(z.conj().imag).tolist() == [[-2.0]]  # a view that PyTorch only notes as negative
    x = torch.ones(2, 2, requires_grad=True)
    assert er.matmul(x, x.expand(3, 2, 2)).rounded.tolist() == [[[2.0, 2.0]] * 2] * 3
    assert er.asarray([torch.tensor(1.5), 2]).tolist() == [1.5, 2.0]
    assert er.asarray(torch.tensor(2.5)).shape == ()
    assert er.gemm(x, x, alpha=torch.tensor(0.5)).rounded.tolist() == [[1.0, 1.0]] * 2
    with pytest.raises(TypeError, match="known: float64"):
        er.asarray(torch.tensor([True]))


@pytest.mark.torch
def test_the_page_checks_pytorch(torch: Any) -> None:
    rng = random.Random(0)

    def randn(*shape: int) -> Any:
        return torch.tensor([rng.gauss(0, 1) for _ in range(math.prod(shape))]).reshape(shape)

    p, q, r = randn(32, 64), randn(64, 16), randn(32, 16)
    out = torch.addmm(r, p, q, beta=0.5, alpha=2.0)
    assert er.gemm(p, q, r, alpha=2.0, beta=0.5).covers(out).all()


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "complex64"])
@pytest.mark.parametrize("k", [1, 64, 1000, 4096])
def test_addmm_is_covered(torch: Any, name: str, k: int) -> None:
    torch.manual_seed(k)
    dtype = getattr(torch, name)
    p, q, r = (torch.randn(*shape, dtype=dtype) for shape in ((32, k), (k, 16), (32, 16)))
    for alpha, beta in ((1, 1), (2.0, 0.5), (0.75, 0)):
        out = torch.addmm(r, p, q, beta=beta, alpha=alpha)
        result = er.gemm(p, q, r, alpha=alpha, beta=beta)
        assert result.covers(out).all(), float(result.margin(out).max())
        if beta == 0.5 and name == "float32":
            moved = out.clone()
            moved[3, 4] += 3 * float(result.tolerance()[3, 4]) + abs(float(moved[3, 4])) * 2.0**-20
            assert np.argwhere(~result.covers(moved)).tolist() == [[3, 4]]
    batch = torch.baddbmm(r[None], p[None], q[None])
    assert er.gemm(p[None], q[None], r[None]).covers(batch).all()
    if name not in ("bfloat16", "float16"):  # of those addmv rounds the product before it adds: two roundings, which k = 1 shows
        vector = torch.addmv(r[:, 0], p, q[:, 0])
        assert er.gemm(p, q[:, 0], r[:, 0]).covers(vector).all()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("shape_a", "shape_b", "shape_c"),
    [
        ((3, 4), (4, 5), (5,)),
        ((2, 3, 4), (4, 5), (3, 5)),
        ((4,), (2, 4, 5), ()),
        ((2, 1, 3, 4), (6, 4, 5), (1, 5)),
        ((4,), (4,), ()),
    ],
)
@pytest.mark.parametrize("name", ["float64", "complex128"])
def test_gradients_are_those_of_autograd(
    torch: Any, shape_a: tuple[int, ...], shape_b: tuple[int, ...], shape_c: tuple[int, ...], name: str
) -> None:
    torch.manual_seed(1)
    operands = [torch.randn(shape, dtype=getattr(torch, name)).requires_grad_() for shape in (shape_a, shape_b, shape_c)]
    alpha, beta = (2.5, -1.5) if name == "float64" else (2.5 - 1j, 1.5j)
    a, b, c = operands
    out = beta * c + alpha * (a @ b)
    grad = torch.randn(out.shape, dtype=out.dtype)
    out.backward(grad)
    found = er.gemm.backward(a, b, c, grad, alpha=alpha, beta=beta)
    for gradient, operand in zip(found.rounded.values(), operands, strict=True):
        assert gradient.shape == tuple(operand.shape)
        np.testing.assert_allclose(gradient.values, operand.grad.numpy(), rtol=1e-12, atol=1e-13)
