"""The wheel and the source archive: what they carry, and that one leads to the other. No browser here."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from scripts.paths import ROOT
from scripts.wheel import build_wheel, version


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def source_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def names_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_is_pure(wheel: Path) -> None:
    assert wheel.name == f"py_gemm-{version()}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        about = Parser().parsestr(archive.read(f"py_gemm-{version()}.dist-info/WHEEL").decode())
    assert about["Root-Is-Purelib"] == "true"
    assert about.get_all("Tag") == ["py3-none-any"]


def test_wheel_carries_every_asset(wheel: Path) -> None:
    names = names_of(wheel)
    shaders = {f"py_gemm/shaders/{path.name}" for path in (ROOT / "shaders").glob("*.wgsl")}
    kernels = {f"py_gemm/cpu/kernels/{path.name}" for path in (ROOT / "py_gemm/cpu/kernels").glob("*.wasm")}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "py_gemm").rglob("*.py")}
    assert shaders
    assert kernels
    assert names >= shaders | kernels | modules | {"py_gemm/web/bridge.js", "py_gemm/web/thread.js", "py_gemm/py.typed"}


def test_wheel_carries_nothing_else(wheel: Path) -> None:
    kinds = {Path(name).suffix for name in names_of(wheel) if name.startswith("py_gemm/")}
    assert kinds == {".py", ".wgsl", ".js", ".wasm", ".typed"}
    tops = {name.split("/")[0] for name in names_of(wheel)}
    assert tops == {"py_gemm", f"py_gemm-{version()}.dist-info"}


def test_wheel_asks_for_numpy_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        about = Parser().parsestr(archive.read(f"py_gemm-{version()}.dist-info/METADATA").decode())
    always = [line for line in about.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert [line.split(">")[0] for line in always] == ["numpy"]
    assert set(about.get_all("Provides-Extra") or []) == {"native", "dev"}
    assert about["Requires-Python"] == ">=3.11"
    assert about["License-Expression"] == "MIT"


def test_source_archive_builds_the_same_wheel(source_archive: Path, wheel: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "xf", str(source_archive)], cwd=tmp_path, check=True)
    (folder,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "again")]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (again,) = (tmp_path / "again").glob("*.whl")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert {name: first.read(name) for name in first.namelist()} == {name: second.read(name) for name in second.namelist()}


def test_installed_wheel_finds_its_assets_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        wgsl = next(name for name in archive.namelist() if name.endswith(".wgsl")).removeprefix("py_gemm/")
    code = f"from py_gemm.assets import read_asset as r; print(len(r({wgsl!r})) > 0, len(r('web/bridge.js')) > 0)"
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"]
