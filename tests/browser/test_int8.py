"""Integers in the browser: the table of cases on WebGPU and on the CPU road of the page, and each row of the GPU's table."""

from __future__ import annotations

import os

import pytest

from py_gemm.gpu.int8_variants import INT8_VARIANTS
from tests.browser.harness import PyodideHost
from tests.conformance import int8_cases as cases

SOAK, ONLY = bool(os.environ.get("PY_GEMM_SOAK")), os.environ.get("PY_GEMM_INT8_CASE")
GPU_TABLE = cases.cases_for("browser", SOAK, ONLY)
CPU_TABLE = cases.cases_for("page", SOAK, ONLY)

RUN = """
from tests.conformance import int8_cases as cases
await cases.run_async(cases.Int8Case.parse(text), kind)
"""
RUN_SYNC = """
from tests.conformance import int8_cases as cases
cases.run(cases.Int8Case.parse(text), kind)
"""


@pytest.mark.parametrize("case", GPU_TABLE, ids=lambda case: case.id)
def test_gpu(case: cases.Int8Case, pyodide_page: PyodideHost) -> None:
    pyodide_page.run(RUN, text=case.id, kind="webgpu")


@pytest.mark.parametrize("case", CPU_TABLE, ids=lambda case: case.id)
def test_cpu(case: cases.Int8Case, pyodide_page: PyodideHost) -> None:
    pyodide_page.run(RUN_SYNC, text=case.id, kind="cpu")


EVERY_ROW = """
import numpy as np
import py_gemm as pg
from py_gemm.gpu.int8_operation import Int8Operation
from py_gemm.gpu.int8_variants import DOT_FEATURE
from py_gemm.gpu.operation import HostOperand
from py_gemm.gpu.steps import dense_layout
from py_gemm.dtypes import INT8, INT32, UINT8
from py_gemm.int8_block import make_block
from py_gemm.problem import Layout, Problem

device = await pg.request_device_async("webgpu")
assert DOT_FEATURE in device.capabilities.language_features, device.capabilities.language_features
types = {"int8": INT8, "uint8": UINT8}


async def multiply(a, b, zero_a, zero_b, rules):
    (m, k), n = a.shape, b.shape[1]
    block = make_block("test", types[a.dtype.name], types[b.dtype.name], m, n, zero_a, zero_b, rules)
    result = dense_layout(m, n, (), block.result)
    problem = Problem(m, n, k, Layout(types[a.dtype.name], k, 1), Layout(types[b.dtype.name], n, 1), result)
    operation = Int8Operation(device, problem, row)
    assert operation.variant == row
    out = np.empty((m, n), block.result.name)
    operands = (HostOperand(a.reshape(-1).view("u1"), problem.a), HostOperand(b.reshape(-1).view("u1"), problem.b))
    words = HostOperand(np.frombuffer(block.data, "u1"), Layout(INT32, 0, 1))
    await device.prepare(operation.shaders)
    _, pending = operation.start(*operands, None, words, read_into=out.reshape(-1).view("u1"))
    await pending
    return out


rows = 16 if "skinny" in row else 256
for type_a in types:
    for type_b in types:
        a, b = (np.arange(np.iinfo(each).min, np.iinfo(each).max + 1).astype(each) for each in (type_a, type_b))
        expected = np.multiply.outer(a.astype("i8"), b.astype("i8"))
        for start in range(0, 256, rows):
            result = await multiply(a[start : start + rows, None].copy(), b[None, :].copy(), 0, 0, None)
            assert np.array_equal(result, expected[start : start + rows]), (type_a, type_b, start)
        # the ends of both ranges, far down; sums that wrap
        for depth, end_a, end_b, zero_a, zero_b in (
            (4096, 0, 0, 0, -1), (4096, -1, 0, 0, -1), (4096, 0, -1, -1, 0), (4096, 0, 0, -1, -1), (33_100, -1, -1, 0, 0),
        ):  # fmt: skip
            x, y = np.full((3, depth), a[end_a], type_a), np.full((depth, 5), b[end_b], type_b)
            sums = depth * (int(a[end_a]) - int(a[zero_a])) * (int(b[end_b]) - int(b[zero_b]))
            sums = (sums + 2**31) % 2**32 - 2**31
            assert np.all(await multiply(x, y, int(a[zero_a]), int(b[zero_b]), None) == sums), (type_a, type_b, depth)

rng = np.random.default_rng(5)
for m, n, k in ((1, 129, 67), (5, 7, 63), (16, 31, 130), (2, 5, 66_001)):
    a, b = rng.integers(-128, 128, (m, k)).astype("i1"), rng.integers(0, 256, (k, n)).astype("u1")
    scale, bias, zeros = rng.uniform(1e-4, 1e-2, n).astype("f4"), rng.integers(-9999, 9999, (m, 1)), rng.integers(-128, 128, (m, 1))
    sums = (a.astype("i8") - zeros) @ b.astype("i8") + bias
    expected = np.clip(np.rint(sums * scale.astype("f8")) + 100, 0, 255)
    result = await multiply(a, b, zeros, 0, pg.Requantize(scale, 100, bias, "uint8"))
    assert np.array_equal(result, expected), (m, n, k)
"""


@pytest.mark.parametrize("row", [each.name for each in INT8_VARIANTS])
def test_every_row_of_the_table(row: str, pyodide_page: PyodideHost) -> None:
    pyodide_page.run(EVERY_ROW, row=row)


TIES = """
import fractions
import numpy as np
import py_gemm as pg

sums = [sign * each + near for each in (0, 1, 3, 127, 255, 4095, 1 << 24, (1 << 31) - 2) for sign in (-1, 1) for near in (-1, 0, 1)]
sums.append(-(1 << 31))
scales = [2.0**-each for each in (1, 2, 7, 24, 25, 31, 32, 33, 55, 56, 57, 126, 149)]
scales += [each * 2.0**-25 for each in (3, 5, 2**24 - 1)] + [1.5, 3.0, 2.0**23, 2.0**127]
for zero_point in (0, -3, 127):
    for before in (False, True):
        rules = pg.Requantize(scales, zero_point, [[each] for each in sums], "int8", before)
        result = pg.int8_gemm(np.empty((len(sums), 0), "i1"), np.empty((0, len(scales)), "i1"), requantize=rules, device=kind)
        for i, value in enumerate(sums):
            for j, scale in enumerate(scales):
                exact = fractions.Fraction(scale) * value
                rounded = round(exact + zero_point) if before else round(exact) + zero_point
                assert result[i, j] == max(-128, min(127, rounded)), (value, scale, zero_point, before, result[i, j])
"""


@pytest.mark.parametrize("kind", ["webgpu", "cpu"])
def test_requantization_is_exact(kind: str, pyodide_page: PyodideHost) -> None:
    pyodide_page.run(TIES, kind=kind)


DEVICE_ARRAYS = """
import numpy as np
import py_gemm as pg

rng = np.random.default_rng(6)
a, b, c = (rng.integers(-128, 128, shape).astype("i1") for shape in ((5, 7), (7, 9), (9, 3)))
x = await pg.asarray_async(a, device=kind)
middle = await pg.int8_gemm_async(x, b, requantize=pg.Requantize(0.01, 3, dtype="uint8"))
result = await pg.int8_gemm_async(middle, c, zero_point_a=3)
between = np.clip(np.rint((a.astype("i8") @ b) * np.float64(np.float32(0.01))) + 3, 0, 255)
assert np.array_equal(await middle.numpy_async(), between)
assert np.array_equal(await result.numpy_async(), (between - 3) @ c)
"""


@pytest.mark.parametrize("kind", ["webgpu", "cpu"])
@pytest.mark.parametrize("host", ["pyodide_page", "pyodide_worker"])
def test_device_arrays_chain(kind: str, host: str, request: pytest.FixtureRequest) -> None:
    running: PyodideHost = request.getfixturevalue(host)
    running.run(DEVICE_ARRAYS, kind=kind)
