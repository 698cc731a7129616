"""The CPU floor in Chromium: page and worker, Pyodide with and without NumPy, under a CSP; kernels on the interpreter's memory."""

from __future__ import annotations

from typing import Any

import pytest

from py_gemm.cpu.families import ROWS
from scripts.paths import ROOT
from tests.browser.harness import PyodideHost

SMOKE = """
import sys
sys.path.insert(0, "/home/pyodide") if "/home/pyodide" not in sys.path else None
import cpu_floor
cpu_floor.check()
"""


@pytest.fixture
def host(request: pytest.FixtureRequest) -> PyodideHost:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, PyodideHost)
    return found


@pytest.mark.parametrize(
    ("host", "way"),
    [
        ("pyodide_page", "through Pyodide's dynamic linker"),
        ("pyodide_worker", "through Pyodide's dynamic linker"),
        ("pyodide_csp", "through Pyodide's dynamic linker"),
        ("pyodide_npm", "as the import env.memory"),
    ],
    indirect=["host"],
)
def test_cpu_floor(host: PyodideHost, way: str) -> None:
    host.put_file("/home/pyodide/cpu_floor.py", (ROOT / "tests/cpu/pyodide_smoke.py").read_bytes())
    answer: dict[str, Any] = host.run_sync_entry(SMOKE)
    assert way in answer["info"]["memory"]
    assert answer["relaxed_simd"] is True
    assert answer["ran"] == [
        row.name for row in ROWS if row.token in ("relaxed", "pairs", "simd128", "scalar", "i16", answer["dot"])
    ]
