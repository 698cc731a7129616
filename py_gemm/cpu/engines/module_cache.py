"""Compiled WebAssembly modules kept between processes, in the user's cache folder. Never an error: where it cannot, it says why.

A file is the SHA-256 of what follows it, then wasmtime's own serialization, in a folder named after everything the machine code
depends on: wasmtime's version, its settings and the processor. wasmtime checks version and settings once more when it loads one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

_DIGEST_BYTES = 32


class ModuleCache:
    """`state` says in words whether and where compiled modules are kept, or why not."""

    def __init__(self, key: str, folder: Path | None = None) -> None:
        self._folder = (folder or user_cache_folder() / "py_gemm") / f"{key}-{_processor_key()}"
        self.state = f"not used yet ({self._folder})"

    def load(self, module: bytes) -> bytes | None:
        """The serialization kept for these module bytes, or None."""
        path = self._path(module)
        try:
            held = path.read_bytes()
        except OSError:
            return None
        payload = held[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != held[:_DIGEST_BYTES]:
            return None
        self.state = f"compiled modules read from {self._folder}"
        return payload

    def store(self, module: bytes, serialize: Callable[[], bytes]) -> None:
        path = self._path(module)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            payload = serialize()
            descriptor, partial = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(hashlib.sha256(payload).digest() + payload)
                Path(partial).replace(path)
            except OSError:
                Path(partial).unlink()
                raise
        except OSError as error:
            self.state = f"compiled modules are not kept: {error}"
            return
        self.state = f"compiled modules kept in {self._folder}"

    def _path(self, module: bytes) -> Path:
        return self._folder / f"{hashlib.sha256(module).hexdigest()[:32]}.compiled"


def user_cache_folder() -> Path:
    """Where this system keeps caches of the user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _processor_key() -> str:
    """Names the instruction set extensions of this processor, as far as the system tells."""
    text = f"{platform.machine()} {platform.processor()} {sys.platform}"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                text += line
                break
    except OSError:
        pass  # no Linux: machine and processor name are what there is
    return hashlib.sha256(text.encode()).hexdigest()[:16]
