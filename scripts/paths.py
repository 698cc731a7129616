"""Where things lie: the checkout, and the cache outside it. Creates nothing."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NODE_MODULES = ROOT / "node_modules"


def cache_directory() -> Path:
    """Where downloads are kept from one checkout to the next: $XDG_CACHE_HOME/py_gemm, else ~/.cache/py_gemm."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "py_gemm"
