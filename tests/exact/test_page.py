"""Every example of the documentation page, run as it stands, and what it prints."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np
import pytest

import py_gemm as pg
import py_gemm.exact as er


def f32(values: object) -> er.Array:
    return er.asarray(values, "float32")


A = f32([[1.0, 2.0], [3.0, 4.0]])
B = f32([[0.1, 0.2], [0.3, 0.4]])
C = f32([[1.0, 1.0], [1.0, 1.0]])


def printed() -> Iterator[tuple[str, object]]:
    """The labels that the page prints, with the values beside them."""
    yield "rounded:", er.gemm(A, B, C, alpha=0.5, beta=2).rounded.tolist()
    yield "broadcast C:", er.gemm(A, B, f32([10.0, 20.0])).rounded.tolist()
    yield "addmv:", er.gemm(A, f32([1.0, 1.0]), f32([0.5, 0.5])).rounded.tolist()
    v = f32([1.0, 2.0]).reshape((2, 1))
    w = f32([3.0, 4.0, 5.0]).reshape((1, 3))
    yield "addr:", er.gemm(v, w, er.Array.zeros("float32", (2, 3))).rounded.tolist()
    nans = f32([[float("nan")] * 2] * 2)
    yield "beta=0:", er.gemm(A, B, nans, beta=0).rounded.tolist()
    yield "alpha=0:", er.gemm(nans, B, C, alpha=0).rounded.tolist()
    batches_a = f32([[[1.0, 2.0]], [[3.0, 4.0]]])
    batches_b = f32([[[1.0], [1.0]], [[1.0], [1.0]]])
    yield "batches:", er.gemm(batches_a, batches_b, f32([[0.0]]), reduce_batch=True).rounded.tolist()
    yield "normal:", er.gemm(A, B, C, alpha=0.5, beta=2).normal().tolist()
    g = er.gemm.backward(A, B, C, f32([[1.0, 1.0], [1.0, 1.0]]), beta=2)
    yield "outputs:", list(g.rounded)
    yield "grad_C:", g.rounded.grad_C.tolist()


PAGE = """\
rounded: [[2.3499999046325684, 2.5], [2.75, 3.0999999046325684]]
broadcast C: [[10.699999809265137, 21.0], [11.5, 22.200000762939453]]
addmv: [3.5, 7.5]
addr: [[3.0, 4.0, 5.0], [6.0, 8.0, 10.0]]
beta=0: [[0.7000000476837158, 1.0], [1.5, 2.200000047683716]]
alpha=0: [[1.0, 1.0], [1.0, 1.0]]
batches: [[10.0]]
normal: [[2.3499999046325684, 2.5], [2.75, 3.0999999046325684]]
outputs: ['grad_A', 'grad_B', 'grad_C']
grad_C: [[2.0, 2.0], [2.0, 2.0]]
"""


def test_the_page_prints_what_it_says() -> None:
    assert "".join(f"{label} {value}\n" for label, value in printed()) == PAGE


@pytest.mark.parametrize("engine", ["rational", "fsum", "ozaki", "superaccumulator"])
def test_every_engine_gives_the_first_example(engine: str) -> None:
    found = er.gemm(A, B, C, alpha=0.5, beta=2, engine=engine).rounded.tolist()
    assert found == [[2.3499999046325684, 2.5], [2.75, 3.0999999046325684]]


def test_the_check_of_a_library_with_its_numbers() -> None:
    """The page's check of PyTorch, with NumPy in its place (test_torch.py has PyTorch itself)."""
    rng = random.Random(0)

    def randn(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.array([rng.gauss(0, 1) for _ in range(math.prod(shape))], np.float32).reshape(shape)

    p, q, r = randn(32, 64), randn(64, 16), randn(32, 16)
    out = np.float32(0.5) * r + np.float32(2.0) * (p @ q)
    assert er.gemm(p, q, r, alpha=2.0, beta=0.5).covers(out).all()


def test_the_package_has_exact() -> None:
    assert pg.exact.gemm is er.gemm
    assert set(er.__all__) <= set(dir(er))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        er.nonsense  # noqa: B018
