"""Exact products and verdicts inside a page: the same bits as outside it, on the interpreter's own memory and on its GPU."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

import py_gemm as pg
from tests.browser.harness import PyodideHost

# Data that Python makes alike everywhere, and the digest of what comes out.
PRODUCTS = """
import hashlib, numpy as np, py_gemm as pg

def digest(element, device):
    source = np.random.default_rng(11)
    shapes = ((70, 300), (300, 50))
    values = [np.ldexp(source.uniform(-1, 1, shape), source.integers(-9, 6, shape)).astype(element) for shape in shapes]
    if device == "cpu":
        values[0][5, 7] *= np.asarray(2.0**-9, element)
    return hashlib.sha256(np.ascontiguousarray(pg.matmul(*values, mode="exact", device=device)).tobytes()).hexdigest()
"""


def digest(element: str, device: str) -> Any:
    space: dict[str, Any] = {}
    exec(PRODUCTS, space)
    return space["digest"](element, device)


@pytest.mark.parametrize("element", ["float16", "float32", "float64"])
@pytest.mark.parametrize("host", ["pyodide_page", "pyodide_worker"])
def test_bits_are_those_outside_the_page(element: str, host: str, request: pytest.FixtureRequest) -> None:
    running: PyodideHost = request.getfixturevalue(host)
    assert running.run(PRODUCTS + "digest(element, 'cpu')", element=element) == digest(element, "cpu")


def test_bits_of_the_gpu_are_those_of_the_cpu(pyodide_page: PyodideHost) -> None:
    code = PRODUCTS + "[digest('float16', 'webgpu'), pg.last_run().variant]"
    source = np.random.default_rng(11)
    values = [
        np.ldexp(source.uniform(-1, 1, shape), source.integers(-9, 6, shape)).astype(np.float16) for shape in ((70, 300), (300, 50))
    ]
    expected = hashlib.sha256(pg.matmul(*values, mode="exact", device="cpu").tobytes()).hexdigest()
    assert pyodide_page.run(code) == [expected, "exact-f16"]


def test_the_superaccumulator_runs_on_the_interpreters_memory(pyodide_page: PyodideHost) -> None:
    code = """
import numpy as np
from py_gemm.exact.superaccumulator import dot_products, to_integers
a = np.asarray([[2.0**127, 1.5, -(2.0**127), 2.0**-149]], np.float32)
limbs, exponent = dot_products(a, np.asarray([[2.0**100], [3.0], [2.0**100], [2.0**-149]], np.float32), "float32")
[str(each) for each in to_integers(limbs)] + [exponent]
"""
    value, exponent = pyodide_page.run(code)
    assert int(value) == int(4.5 * 2**304) + 2 ** (304 - 298)
    assert exponent == -304


def test_a_verdict_in_the_page(pyodide_page: PyodideHost) -> None:
    code = """
import numpy as np, py_gemm as pg
source = np.random.default_rng(3)
a, b = source.standard_normal((40, 60)).astype(np.float16), source.standard_normal((60, 30)).astype(np.float16)
d = await pg.gemm_async(pg.asarray(a, device="webgpu"), b)
right = await pg.verify_async(a, b, d)
wrong = (await d.numpy_async()).copy()
wrong[3, 4] += 1
found = pg.verify(a, b, wrong)
[bool(right), bool(found), list(found.worst[0].index), "data:image/png;base64," in found._repr_html_()]
"""
    assert pyodide_page.run(code) == [True, False, [3, 4], True]


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_deep_products_of_the_page_are_normal(device: str, pyodide_page: PyodideHost) -> None:
    code = """
import numpy as np, py_gemm as pg, py_gemm.exact as er
source = np.random.default_rng(4)
found = {}
for element in ("float32", "float16", *(("float64",) if device == "cpu" else ())):
    a, b = source.standard_normal((9, 4096)).astype(element), source.standard_normal((4096, 7)).astype(element)
    result = er.matmul(a, b)
    product = pg.matmul(a, b, device=device)
    moved = product.copy()
    moved[2, 3] = np.nextafter(product[2, 3] + 2 * result.tolerance()[2, 3], np.asarray(np.inf, element))
    outside = np.argwhere(~result.covers(moved)).tolist()
    found[element] = [bool(result.covers(product).all()), bool(result.covers(a @ b).all()), outside]
found
"""
    for element, (ours, numpys, outside) in pyodide_page.run(code, device=device).items():
        assert ours, element
        assert numpys or element == "float16", element  # NumPy in Pyodide sums halves in halves
        assert outside == [[2, 3]], element
