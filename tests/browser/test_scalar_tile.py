"""The row that the shipped table names for SwiftShader, inside a page: taken in fast mode, and summing in its stated order."""

from __future__ import annotations

import numpy as np
import pytest

from py_gemm.gpu.tuned import SHIPPED
from py_gemm.gpu.variants import TILED, VARIANTS
from tests.browser.harness import PyodideHost
from tests.gpu.tools import replayed

CODE = """
import numpy as np
import py_gemm as pg
from py_gemm.gpu.tuned import shipped_row
gpu = await pg.request_device_async("webgpu")
gpu.prefer(shipped_row(gpu.capabilities))
a, b = (np.frombuffer(bytes.fromhex(each), "f4").reshape(shape) for each, shape in ((left, (m, k)), (right, (n, k))))
a, b = (each.astype(name) for each in (a, b))
d = await pg.matmul_async(a, b.T, device=gpu, dtype="float32", mode="fast")
row = pg.last_run().variant
await pg.matmul_async(a, b.T, device=gpu, mode="deterministic")
[row, pg.last_run().variant, d.tobytes().hex()]
"""


@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 1), (16, 32, 64), (19, 37, 131)])
@pytest.mark.parametrize("name", ["float32", "float16"])
def test_the_stated_order_bit_for_bit(pyodide_page: PyodideHost, name: str, m: int, n: int, k: int) -> None:
    """Values of eleven bits: their products are exact, so fused or not the bits are the same."""
    rng = np.random.default_rng(k)
    a, b = (rng.uniform(0.5, 2.0, shape).astype("f2").astype("f4") for shape in ((m, k), (n, k)))
    taken, otherwise, bits = pyodide_page.run(CODE, m=m, n=n, k=k, name=name, left=a.tobytes().hex(), right=b.tobytes().hex())
    (row,) = [each for each in VARIANTS if each.name == taken]
    assert (taken, otherwise) == (dict(SHIPPED)["swiftshader"], TILED.name)
    found = np.frombuffer(bytes.fromhex(bits), np.float32).reshape(m, n)
    assert np.array_equal(found, replayed(row, a, b.T, fused=True))
