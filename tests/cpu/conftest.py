"""Fixtures of the tests of the CPU road."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import py_gemm as pg
from py_gemm.cpu.engines import copying


@pytest.fixture
def every_product_on_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every product is worth a thread, and runs on the CPU. `monkeypatch.undo()` weighs the copies again."""
    monkeypatch.setattr(copying, "MULTIPLY_ADDS_A_BYTE", 0)
    pg.configure(parallel_threshold=0, par_mnk_per_worker=1, device="cpu")
    yield
    pg.configure(parallel_threshold=None, par_mnk_per_worker=None, device=None, threads=None)
