"""What is pinned, and that nothing tracked ties the project to one machine or one registry."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.paths import ROOT

PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^;\s]+)$")


def requirements(name: str) -> dict[str, str]:
    lines = [line.partition(" ;")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    pins = [PIN.match(line) for line in lines if line and not line.startswith(("#", "-r "))]
    assert all(pins), f"{name} has a line that is no exact pin"
    return {pin[1].lower().replace("_", "-"): pin[2] for pin in pins if pin}


def tracked_files() -> Iterator[Path]:
    """Every file of the project: by git in a checkout, by the folders of the source archive elsewhere."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in done.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            yield ROOT / name


def test_dev_extra_and_build_requirement_are_in_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lock = requirements("requirements-build.txt") | requirements("requirements-dev.txt")
    wanted = [*project["project"]["optional-dependencies"]["dev"], *project["build-system"]["requires"]]
    for line in wanted:
        name, wish = line.split("==")
        assert lock[name.lower().replace("_", "-")] == wish, line


def test_only_the_cpu_build_of_pytorch_is_asked_for() -> None:
    lines = [line for line in (ROOT / "requirements-torch.txt").read_text().splitlines() if line.startswith("torch")]
    wanted = requirements("requirements-torch.txt")["torch"].partition("+")[0]
    assert lines == [f'torch=={wanted}+cpu ; sys_platform == "linux"', f'torch=={wanted} ; sys_platform != "linux"']
    assert not set(requirements("requirements-torch.txt")) & set(requirements("requirements-dev.txt"))


def test_native_extra_admits_the_tested_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lock = requirements("requirements-dev.txt")
    assert f"wasmtime=={lock['wasmtime']}" in project["project"]["optional-dependencies"]["native"]
    assert any(
        line.startswith(f"wgpu>={lock['wgpu'].rsplit('.', 1)[0]}") for line in project["project"]["optional-dependencies"]["native"]
    )


@pytest.mark.parametrize(
    ("folder", "groups"), [(ROOT, {"devDependencies"}), (ROOT / "scripts" / "peers", {"dependencies", "optionalDependencies"})]
)
def test_npm_packages_are_pinned_and_name_no_registry(folder: Path, groups: set[str]) -> None:
    package = json.loads((folder / "package.json").read_text())
    assert {name for name in package if name.lower().endswith("dependencies")} == groups
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for group in groups for version in package[group].values())
    lock = json.loads((folder / "package-lock.json").read_text())
    for name, row in lock["packages"].items():
        assert "resolved" not in row, name
        assert name == "" or "integrity" in row, name


def test_requirements_name_no_address() -> None:
    for name in ("requirements-build.txt", "requirements-dev.txt", "requirements-torch.txt"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        assert "index-url" not in text


def test_tracked_files_name_no_path_of_this_machine() -> None:
    places = [re.escape(str(path)) for path in (ROOT, Path.home()) if len(path.parts) > 1]
    word = re.compile(rf"(?<![\w.])(?:{'|'.join(places)})/".encode())
    found = [str(path.relative_to(ROOT)) for path in tracked_files() if word.search(path.read_bytes())]
    assert not found


def test_no_build_output_is_tracked() -> None:
    tops = {path.relative_to(ROOT).parts[0] for path in tracked_files()}
    assert not tops & {"dist", "types", "node_modules", ".venv", ".cache"}
