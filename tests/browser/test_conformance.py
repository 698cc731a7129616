"""The table of cases in the browser: on WebGPU through the bridge, and on the CPU road in the page, all inside Pyodide."""

from __future__ import annotations

import os

import pytest

from tests.browser.harness import PyodideHost
from tests.conformance import cases

SOAK, ONLY = bool(os.environ.get("PY_GEMM_SOAK")), os.environ.get("PY_GEMM_CASE")
GPU_TABLE = cases.cases_for("browser", SOAK, ONLY)
CPU_TABLE = cases.cases_for("page", SOAK, ONLY)

RUN = """
from tests.conformance import cases
await cases.run_async(cases.Case.parse(text), kind)
"""
RUN_SYNC = """
from tests.conformance import cases
cases.run(cases.Case.parse(text), kind)
"""


RUN_POISONED = """
import py_gemm as pg
from tests.conformance import cases, poison
device = await pg.request_device_async("webgpu")
with poison.poisoned(device):
    await cases.run_async(cases.Case.parse(text), device)
"""


@pytest.mark.parametrize("case", GPU_TABLE, ids=lambda case: case.id)
def test_gpu(case: cases.Case, pyodide_page: PyodideHost) -> None:
    pyodide_page.run(RUN_POISONED, text=case.id)


@pytest.mark.parametrize("case", CPU_TABLE, ids=lambda case: case.id)
def test_cpu(case: cases.Case, pyodide_page: PyodideHost) -> None:
    pyodide_page.run(RUN_SYNC, text=case.id, kind="cpu")


# Every type, both transposes, an odd size, in the other realms and ways of calling: a plain cross, not a sample.
CROSS = [
    cases.Case(element, element, 33, 17, 65, ta=ta, tb=tb, c=element, beta=1.0, bias=1)
    for element in cases.GPU_TYPES
    for ta in (0, 1)
    for tb in (0, 1)
]
HOSTS = ["pyodide_worker", "pyodide_plain", "pyodide_csp"]


@pytest.mark.parametrize("kind", ["webgpu", "cpu"])
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("case", CROSS, ids=lambda case: case.id)
def test_every_realm(case: cases.Case, host: str, way: str, kind: str, request: pytest.FixtureRequest) -> None:
    running: PyodideHost = request.getfixturevalue(host)
    running.run(RUN if way == "async" else RUN_SYNC, text=case.id, kind=kind)
