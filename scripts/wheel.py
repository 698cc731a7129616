"""Builds the wheel and finds its name. No network: the build tool is among the pinned requirements."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .paths import ROOT


def version() -> str:
    """The version as py_gemm/_version.py states it, read without importing the package."""
    names: dict[str, str] = {}
    exec((ROOT / "py_gemm" / "_version.py").read_text(), names)
    return names["__version__"]


def wheel_name() -> str:
    """The file name of this version's wheel."""
    return f"py_gemm-{version()}-py3-none-any.whl"


def build_wheel(folder: Path = ROOT / "dist" / "wheels") -> Path:
    """Build the wheel into `folder` and return its path. RuntimeError where the build fails."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    wheel = folder / wheel_name()
    if done.returncode != 0 or not wheel.is_file():
        raise RuntimeError(f"the wheel could not be built:\n{done.stdout}{done.stderr}")
    return wheel
