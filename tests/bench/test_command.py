"""`python -m py_gemm bench` and `npm run bench`: what they need, what they hand over, what they write."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from py_gemm import __main__ as command
from scripts import bench, bench_peers
from scripts.paths import ROOT


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package lay in site-packages, without scripts beside it."""
    monkeypatch.setattr(command, "CHECKOUT", tmp_path)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "webgpu"], "needs a checkout of py_gemm: there, `npm run bench -- --device webgpu`"),
        (["--cpu", "--engine", "node"], "--engine node needs a checkout"),
        (["--cpu", "--picture", "bars.png"], "draws .svg only"),
    ],
)
def test_installed_package_says_what_is_needed(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["bench", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("installed")
def test_installed_package_measures_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, picture = tmp_path / "figures.json", tmp_path / "bars.svg"
    assert command.main(["bench", "--cpu", "--quick", "--json", str(figures), "--picture", str(picture)]) == 0
    printed = capsys.readouterr()
    assert "| float32 64³ |" in printed.out
    assert "a checkout of py_gemm also measures in Chromium and Node" in printed.err
    assert "float32 64³, NumPy @" in printed.err
    assert json.loads(figures.read_text())["places"]["wasmtime"]["rows"]
    assert ElementTree.fromstring(picture.read_text()).tag.endswith("svg")


def test_checkout_hands_over_to_its_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def run(words: list[str], **options: Any) -> Any:
        started.append((words, options["cwd"]))
        return SimpleNamespace(returncode=7)

    monkeypatch.setattr(subprocess, "run", run)
    assert command.main(["bench", "--device", "webgpu", "--quick"]) == 7
    assert started == [([sys.executable, "-m", "scripts.bench", "--device", "webgpu", "--quick"], ROOT)]


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(["bench", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("--cpu", "--device", "--quick", "--full", "--json", "--picture", "--engine", "stderr"))


def test_nothing_asked_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["bench"])
    assert "--cpu --device" in capsys.readouterr().err


def places(*words: str) -> tuple[str, ...]:
    parser = argparse.ArgumentParser()
    command.add_options(parser, required=False)
    return bench.places_of(parser.parse_args(words))


def test_which_places_are_measured() -> None:
    assert places() == ("chromium", "node", "wasmtime", "webgpu", "wgpu")
    assert places("--cpu") == ("chromium", "node", "wasmtime")
    assert places("--cpu", "--engine", "node") == ("node",)
    assert places("--device", "wgpu") == ("wgpu",)


def test_libraries_that_cannot_be_installed_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench_peers, "FOLDER", tmp_path)
    monkeypatch.setattr(bench_peers, "_STAMP", tmp_path / "stamp")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert bench_peers.table() == {}
    peers = bench.Peers.installed()
    assert peers.unavailable == "not installed: npm is not on the path"
    assert peers.files == {}


def test_a_place_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(_extent: str, _peers: bench.Peers) -> dict[str, Any]:
        raise RuntimeError("Node has left")

    monkeypatch.setattr(bench, "_node", fails)
    monkeypatch.setattr(bench, "prepare", dict)
    figures = tmp_path / "figures.json"
    assert bench.main(["--cpu", "--engine", "node", "--json", str(figures)], bench.Peers()) == 1
    assert "Not measured: Node has left" in capsys.readouterr().out
    assert json.loads(figures.read_text())["places"]["node"]["failure"] == "Node has left"


def test_run_in_node_with_libraries_of_which_one_fails() -> None:
    figures = bench._node("quick", bench.Peers(module="tests/browser/pages/made_up_peers.js"))
    entries = {each["name"]: each for each in figures["rows"][0]["entries"]}
    assert entries["py_gemm"]["error"] < 1e-5
    assert entries["honest"]["error"] < 1e-5
    assert entries["broken"]["failure"] == "no such luck"
    assert figures["about"]["host"].startswith("Node ")


def test_a_program_that_fails_is_quoted() -> None:
    words = [sys.executable, "-c", "import sys; print('reading', file=sys.stderr); sys.exit('out of paper')"]
    with pytest.raises(RuntimeError, match=r"status 1: out of paper"):
        bench._json_of(words, {})
