"""The tuner: a candidate is verified before it may win, the winner is used and remembered; the table serves until then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import py_gemm as pg
from py_gemm import devices
from py_gemm.gpu import tuned
from py_gemm.gpu.capabilities import Capabilities
from py_gemm.gpu.operation import GemmOperation
from py_gemm.gpu.pacing import Paced
from py_gemm.gpu.tuner import REPEATS, Tuner
from py_gemm.gpu.variants import REGISTER_ROWS, TILED, VARIANTS
from py_gemm.prepare import forget_prepared

MADE_UP = Capabilities("vulkan", "a made-up adapter")
SOME = (REGISTER_ROWS[3], TILED)
(SCALAR,) = [row for row in REGISTER_ROWS if not row.splits]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Any]:
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    yield tmp_path
    forget_prepared()


def drive(tuner: Tuner) -> Any:
    for pending in tuner.work():
        pending.wait()
    return tuner.tuning


def test_candidates_are_measured_and_the_fastest_wins(device: Any) -> None:
    found = drive(Tuner(device, SOME))
    assert set(found.rates) == {row.name for row in SOME}
    assert not found.refused
    assert found.winner in found.rates
    assert found.rates[found.winner] >= max(found.rates.values()) / 1.06
    assert found.winner in str(found)
    assert device.adapter in str(found)


def test_a_row_that_computes_something_else_may_not_win(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start = GemmOperation.start

    def wrong(self: Any, a: Any, b: Any, *rest: Any, **options: Any) -> Any:
        result, pending = start(self, a, b, *rest, **options)
        if self.row is not TILED and self.problem.m != self.problem.n:
            pending.wait()
            options["read_into"][17] ^= 1
        return result, pending

    monkeypatch.setattr(GemmOperation, "start", wrong)
    found = drive(Tuner(device, SOME))
    assert found.winner == TILED.name
    assert list(found.refused) == [SOME[0].name]
    assert "whole numbers is wrong" in found.refused[SOME[0].name]
    assert "refused" in str(found)


def test_a_product_in_several_submissions_is_timed_whole(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("py_gemm.gpu.tuner.SOFTWARE_CUBES", (160,))
    monkeypatch.setattr("py_gemm.gpu.tuner.HARDWARE_CUBES", (160,))
    monkeypatch.setattr(device.pace, "rate", 1.0)
    timed = []
    for pending in Tuner(device, (TILED,)).work():
        pending.wait()
        if isinstance(pending, Paced):
            timed.append(pending)
    assert len(timed) == REPEATS + 1


def test_candidates_are_all_rows_that_the_device_can_run(device: Any) -> None:
    assert set(Tuner(device).candidates) == {row for row in VARIANTS if not row.shape_conditions and not row.exact}


def test_the_table_names_rows_that_there_are() -> None:
    names = {row.name for row in REGISTER_ROWS}
    assert {row for _, row in tuned.SHIPPED} <= names
    for adapter in ("google SwiftShader", "llvmpipe (LLVM 15.0.6, 256 bits)"):
        assert tuned.shipped_row(replace(MADE_UP, adapter=adapter)) == SCALAR.name in names
    assert tuned.shipped_row(MADE_UP) is None


def test_a_winner_is_kept_by_adapter_beside_the_others(cache: Any) -> None:
    other = replace(MADE_UP, backend="metal")
    assert tuned.recall(MADE_UP) is None
    tuned.keep(MADE_UP, "one")
    tuned.keep(other, "two")
    assert (tuned.recall(MADE_UP), tuned.recall(other)) == ("one", "two")
    assert len(json.loads(tuned.cache_file().read_text())) == 2
    assert tuned.cache_file().is_relative_to(cache) or not tuned.cache_file().exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', "null"])
def test_a_cache_that_makes_no_sense_is_none(text: str) -> None:
    tuned.cache_file().parent.mkdir(parents=True)
    tuned.cache_file().write_text(text)
    assert tuned.recall(MADE_UP) is None
    tuned.keep(MADE_UP, "one")
    assert tuned.recall(MADE_UP) == "one"


def test_a_winner_goes_before_the_table_and_a_row_that_is_gone_counts_as_nothing() -> None:
    software = replace(MADE_UP, adapter="llvmpipe")
    assert tuned.preferred_row(software, None) == tuned.shipped_row(software)
    assert tuned.preferred_row(software, TILED.name) == TILED.name
    assert tuned.preferred_row(software, REGISTER_ROWS[0].name) == REGISTER_ROWS[0].name
    assert tuned.preferred_row(software, "rows-4x16-16slices") == tuned.shipped_row(software)
    assert tuned.preferred_row(MADE_UP, "no-such-row") is None


@pytest.mark.parametrize("way", ["sync", "async"])
def test_tune_through_the_front_door(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr("py_gemm.gpu.tuner.SOFTWARE_CUBES", (64,))
    monkeypatch.setattr("py_gemm.gpu.tuner.VARIANTS", SOME)
    monkeypatch.setattr("py_gemm.gpu.tuner.MARGIN", 0.0)
    device = devices._ask_native("wgpu")
    # Put back afterwards: the device may be the one that all tests share.
    monkeypatch.setattr(device, "capabilities", device.capabilities)
    assert device.capabilities.preferred == tuned.shipped_row(device.capabilities)
    found = pg.tune(device) if way == "sync" else asyncio.run(pg.tune_async(device))
    assert device.capabilities.preferred == found.winner
    x = np.ones((70, 70), np.float32)
    assert (pg.matmul(x, x, device=device) == 70).all()
    assert pg.last_run().variant == found.winner  # type: ignore[union-attr]
    pg.matmul(x, x, device=device, mode="deterministic")
    assert pg.last_run().variant == TILED.name  # type: ignore[union-attr]
    assert devices._ask_native("wgpu").capabilities.preferred == found.winner


def test_what_is_not_remembered(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("py_gemm.gpu.tuner.SOFTWARE_CUBES", (64,))
    monkeypatch.setattr("py_gemm.gpu.tuner.VARIANTS", SOME)
    before = device.capabilities
    try:
        pg.tune(device, remember=False)
        assert not tuned.cache_file().exists()
    finally:
        device.capabilities = before
    with pytest.raises(pg.UnsupportedError, match="the CPU's kernels have nothing to tune"):
        pg.tune("cpu")
