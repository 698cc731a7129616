"""`npm run build [-- FOLDER]`: writes the demo page as one static folder (dist/site) that any host can serve, from any path.

The folder holds everything: the page, Pyodide with NumPy, the wheel, the fonts. It replaces what was there before.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from .bundle import pyodide_bundle
from .paths import ROOT
from .site import site
from .wheel import build_wheel


def main(words: list[str]) -> int:
    """Write the folder and say how to use it."""
    parser = argparse.ArgumentParser(prog="npm run build --", description="Write the demo page as a static folder.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist" / "site")
    folder: Path = parser.parse_args(words).folder
    if folder.exists() and any(folder.iterdir()) and not (folder / "site.json").is_file():
        print(f"py_gemm: {folder} holds something else than an earlier build; it is left alone", file=sys.stderr)
        return 1
    try:
        count, size = write_site(folder)
    except (RuntimeError, FileNotFoundError) as error:
        print(f"py_gemm: {error}", file=sys.stderr)
        return 1
    print(
        f"{folder}: {count} files, {size / 1e6:.1f} MB. Serve it from any static host over https (WebGPU needs a secure context).\n"
        "It runs without special headers. With these two, which `_headers` sets on hosts that read such a file, timers are finer:\n"
        "Cross-Origin-Opener-Policy: same-origin\nCross-Origin-Embedder-Policy: require-corp"
    )
    return 0


def write_site(folder: Path) -> tuple[int, int]:
    """Write the site into `folder`, replacing it; returns how many files and how many bytes."""
    files = site(build_wheel(), pyodide_bundle()).files
    shutil.rmtree(folder, ignore_errors=True)
    size = 0
    for address, content in files.items():
        target = folder / address
        target.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.read_bytes()
        target.write_bytes(data)
        size += len(data)
    return len(files), size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
