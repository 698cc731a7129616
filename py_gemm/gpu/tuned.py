"""Which register tile a device prefers, before anybody measured and after: a small table, and where a tuner's winners are kept.

Pure, but for the file in the user's cache directory (the browser keeps the same text in IndexedDB). What cannot be read, or names a
row that is gone, counts as nothing: the device then takes the table's row, or the portable one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from .capabilities import Capabilities
from .variants import VARIANTS

# By a word of the adapter's own description. The software renderers were measured (64 to 1024 cubed); blocks of 4 x 8 with 64
# invocations were the best published for Apple's GPUs, where 8 x 8 spills. Others keep the portable row until they are tuned.
SHIPPED: tuple[tuple[str, str], ...] = (
    ("swiftshader", "scalar-16x32-block8x8"),
    ("llvmpipe", "scalar-16x32-block8x8"),
    ("apple", "register-32x64x16-block4x8"),
)

# Changes when kernels change so much that old measurements mean nothing.
GENERATION = 2


def adapter_key(capabilities: Capabilities) -> str:
    """The name under which a winner is kept: the same for the same adapter and API."""
    return f"{GENERATION} {capabilities.backend} {capabilities.adapter}"


def shipped_row(capabilities: Capabilities) -> str | None:
    """What the table says of this adapter."""
    words = capabilities.adapter.lower()
    return next((row for word, row in SHIPPED if word in words), None)


def preferred_row(capabilities: Capabilities, remembered: str | None) -> str | None:
    """A tuner's winner where there is one, else the table's row; the name of the portable row where that won."""
    if remembered in {row.name for row in VARIANTS if not row.shape_conditions}:
        return remembered
    return shipped_row(capabilities)


def cache_file() -> Path:
    """Where winners are kept outside the browser."""
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "py_gemm" / "tuned.json"


def recall(capabilities: Capabilities) -> str | None:
    """The winner that the cache file holds for this adapter."""
    try:
        rows = json.loads(cache_file().read_text("utf-8"))
    except (OSError, ValueError, RuntimeError):
        return None
    found = rows.get(adapter_key(capabilities)) if isinstance(rows, dict) else None
    return found if isinstance(found, str) else None


def keep(capabilities: Capabilities, row: str) -> None:
    """Put a winner into the cache file, beside those of other adapters. OSError where it cannot be written."""
    path = cache_file()
    try:
        rows = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        rows = {}
    rows = {**(rows if isinstance(rows, dict) else {}), adapter_key(capabilities): row}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(rows, indent=1), "utf-8")
    fresh.replace(path)
