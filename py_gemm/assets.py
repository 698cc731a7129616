"""Finds the files that are not Python: shaders, the JS bridge, WebAssembly kernels. Reads them, never writes.

An installed package carries them inside itself; a checkout keeps `shaders/` and `web/` beside the package.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent
_ROOTS = (_PACKAGE, _PACKAGE.parent)


@cache
def read_asset(name: str) -> bytes:
    """The bytes of an asset, such as "shaders/gemm_tiled.wgsl" or "web/bridge.js"; FileNotFoundError names where it looked."""
    for root in _ROOTS:
        path = root / name
        if path.is_file():
            return path.read_bytes()
    raise FileNotFoundError(f"py_gemm is incomplete: {name} is in none of {', '.join(map(str, _ROOTS))}")
