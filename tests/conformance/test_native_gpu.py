"""The table of cases on a GPU outside the browser (wgpu; lavapipe where there is no hardware)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import py_gemm as pg

from . import cases
from .poison import POISONS, poisoned

TABLE = cases.cases_for("native", bool(os.environ.get("PY_GEMM_SOAK")), os.environ.get("PY_GEMM_CASE"))


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    found = pg.request_device("wgpu")
    with poisoned(found):
        yield found


def test_buffers_begin_poisoned_new_ones_and_used_ones(device: Any) -> None:
    for _ in range(3):
        found = {device.read_buffer(device.create_buffer(4000))[-4:] for _ in range(2)}
        assert found == set(POISONS)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.id)
def test_case(case: cases.Case, device: Any) -> None:
    cases.run(case, device)
