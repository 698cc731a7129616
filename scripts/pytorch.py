"""PyTorch for the tests that judge its products: installed where pip finds its CPU build, named as missing where it does not.

requirements-torch.txt asks for the CPU build by name, so that a CUDA build of several GB cannot be taken. pip is asked once for
each environment; its answer is kept in a note there, and tests/conftest.py says it at the head of every run.
"""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .paths import ROOT

REQUIREMENTS = ROOT / "requirements-torch.txt"
NOTE = Path(sys.prefix) / "pytorch.txt"


def installed() -> str | None:
    """The version of the PyTorch that is installed."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def install() -> None:
    """Install PyTorch unless that was done, or found impossible, before. RuntimeError where it is at hand and pip fails."""
    why = _noted()
    if why or (why == "" and installed()):
        return
    found = _pip("--dry-run")
    if found.returncode == 0:
        print("py_gemm: installing PyTorch's CPU build", file=sys.stderr)
        done = _pip()
        if done.returncode != 0:
            raise RuntimeError(f"pip could not install {REQUIREMENTS.name}:\n{done.stderr.strip()}")
    NOTE.write_text("\n".join((_fingerprint(), "" if found.returncode == 0 else last_words(found.stderr))))


def status() -> str:
    """One line about PyTorch for the head of a test run."""
    there = installed()
    if there is not None:
        return f"PyTorch {there}"
    why = _noted()
    reason = f"{why}; to look again, delete {NOTE.name} in {NOTE.parent.name}" if why else "`npm test` looks for it"
    return f"PyTorch is not installed, so its tests are deselected ({reason})"


def last_words(said: str) -> str:
    """The last error in what pip said."""
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    return errors[-1] if errors else said.strip().rpartition("\n")[2]


def _pip(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "install", *options, "--quiet", "--no-input", "--no-deps", "--requirement"]
    return subprocess.run([*command, str(REQUIREMENTS)], cwd=ROOT, check=False, capture_output=True, text=True)


def _fingerprint() -> str:
    return sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()


def _noted() -> str | None:
    """Why PyTorch cannot be had, "" where it was installed; None where nobody has looked."""
    if not NOTE.exists():
        return None
    fingerprint, _, why = NOTE.read_text().partition("\n")
    return why if fingerprint == _fingerprint() else None
