"""The table of cases on a GPU outside the browser (wgpu; lavapipe where there is no hardware)."""

from __future__ import annotations

import os
from typing import Any

import pytest

import py_gemm as pg

from . import cases

TABLE = cases.cases_for("native", bool(os.environ.get("PY_GEMM_SOAK")), os.environ.get("PY_GEMM_CASE"))


@pytest.fixture(scope="module")
def device() -> Any:
    return pg.request_device("wgpu")


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.id)
def test_case(case: cases.Case, device: Any) -> None:
    cases.run(case, device)
