"""The table of integer cases outside the browser: on the CPU road (WebAssembly under wasmtime) and on a GPU (wgpu)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import py_gemm as pg

from . import int8_cases as cases
from .poison import poisoned

SOAK, ONLY = bool(os.environ.get("PY_GEMM_SOAK")), os.environ.get("PY_GEMM_INT8_CASE")
CPU_TABLE = cases.cases_for("cpu", SOAK, ONLY)
GPU_TABLE = cases.cases_for("native", SOAK, ONLY)


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    found = pg.request_device("wgpu")
    with poisoned(found):
        yield found


@pytest.mark.parametrize("case", CPU_TABLE, ids=lambda case: case.id)
def test_cpu(case: cases.Int8Case) -> None:
    cases.run(case, "cpu")


@pytest.mark.parametrize("case", GPU_TABLE, ids=lambda case: case.id)
def test_native_gpu(case: cases.Int8Case, device: Any) -> None:
    cases.run(case, device)


def test_an_id_is_the_whole_case() -> None:
    for case in CPU_TABLE:
        assert cases.Int8Case.parse(case.id) == case


def test_the_check_notices_one_wrong_element() -> None:
    trial = cases.build(cases.Int8Case.parse("int8(a=int8,b=uint8,m=9,n=7,k=5,to=int8,out=strided)"))
    trial.arguments["out"][...] = trial.expected
    cases.check(trial, trial.arguments["out"])
    trial.arguments["out"][3, 4] ^= 1
    with pytest.raises(AssertionError, match=r"first at \[3 4\]"):
        cases.check(trial, trial.arguments["out"])
    trial.arguments["out"][3, 4] ^= 1
    assert trial.surroundings is not None
    trial.surroundings[0, 0] = 1
    with pytest.raises(AssertionError, match="outside out"):
        cases.check(trial, trial.arguments["out"])


def test_requantized_results_are_not_all_at_the_ends() -> None:
    """The table's scales are such that rounding shows."""
    inside = total = 0
    for case in CPU_TABLE:
        if case.to:
            expected = cases.build(case).expected
            inside += int(np.sum((expected > np.iinfo(case.to).min) & (expected < np.iinfo(case.to).max)))
            total += expected.size
    assert inside > total / 4
