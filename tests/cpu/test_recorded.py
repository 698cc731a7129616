"""Results of mode "deterministic" under wasmtime are those recorded for every engine; Node and Chromium compare theirs in the smoke
test (test_pyodide_in_node.py, tests/browser/test_cpu_floor.py)."""

from __future__ import annotations

import pytest

from py_gemm.cpu.engines.wasmtime import WasmtimeEngine
from py_gemm.cpu.gemm import CpuGemm
from tests.cpu.pyodide_smoke import RECORDED, deterministic_hashes


@pytest.mark.parametrize("relaxed_simd", [True, False])
def test_deterministic_results_are_the_recorded_ones(relaxed_simd: bool) -> None:
    assert deterministic_hashes(CpuGemm(engine=WasmtimeEngine(relaxed_simd=relaxed_simd))) == RECORDED
