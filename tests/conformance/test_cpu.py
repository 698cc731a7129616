"""The table of cases on the CPU road, outside the browser (WebAssembly under wasmtime)."""

from __future__ import annotations

import os

import pytest

from . import cases

TABLE = cases.cases_for("cpu", bool(os.environ.get("PY_GEMM_SOAK")), os.environ.get("PY_GEMM_CASE"))


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.id)
def test_case(case: cases.Case) -> None:
    cases.run(case, "cpu")


def test_an_id_is_the_whole_case() -> None:
    for case in TABLE:
        assert cases.Case.parse(case.id) == case


def test_the_check_notices_one_wrong_bit() -> None:
    """The oracle itself: one element moved by one unit in the last place of its bound, or one sentinel touched, is found."""
    for text in ("gemm(a=float32,b=float32,m=9,n=7,k=5)", "gemm(a=float16,b=float16,m=9,n=7,k=5,data=real)"):
        trial = cases.build(cases.Case.parse(text))
        right = cases.to_type(trial.reference, trial.case.result)
        cases.check(trial, right)
        wrong = right.copy()
        wrong[3, 4] = wrong[3, 4] * 1.01 + 0.01
        with pytest.raises(AssertionError, match=r"\[3 4\]|3.*4"):
            cases.check(trial, wrong)
    trial = cases.build(cases.Case.parse("gemm(a=float32,b=float32,m=9,n=7,k=5,out=strided)"))
    trial.arguments["out"][...] = trial.reference
    cases.check(trial, trial.arguments["out"])
    assert trial.surroundings is not None
    trial.surroundings[0, 0] = 1
    with pytest.raises(AssertionError, match="outside out"):
        cases.check(trial, trial.arguments["out"])
