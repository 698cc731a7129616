"""The CPU floor on the interpreter's own memory, in both Pyodides, under Node: no browser, no NumPy.

Node 20 has no relaxed SIMD by default and needs a flag for it: both are run, so that both tokens meet both ways onto the memory.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from py_gemm.cpu.families import ROWS
from scripts.bundle import pyodide_bundle
from scripts.paths import NODE_MODULES, ROOT

RELAXED_FLAG = "--experimental-wasm-relaxed-simd"


def smoke(folder: Path, *flags: str) -> dict[str, Any]:
    node = shutil.which("node")
    assert node, "Node is needed"
    command = [node, *flags, str(ROOT / "tests/cpu/run_in_node.mjs"), str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def knows(flag: str) -> bool:
    """Later versions of Node have relaxed SIMD without a flag, and may have dropped the flag."""
    return subprocess.run([shutil.which("node") or "node", flag, "-e", "0"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("pyodide", "way"), [("bundle", "through Pyodide's dynamic linker"), ("npm", "as the import env.memory")])
@pytest.mark.parametrize("flags", [(), (RELAXED_FLAG,)], ids=["as it is", "relaxed SIMD"])
def test_cpu_floor(pyodide: str, way: str, flags: tuple[str, ...]) -> None:
    folder = pyodide_bundle() if pyodide == "bundle" else NODE_MODULES / "pyodide"
    answer = smoke(folder, *(flag for flag in flags if knows(flag)))
    assert way in answer["info"]["memory"]
    assert "this JavaScript runtime has no Worker" in answer["info"]["threads"]
    assert answer["token"] == ("relaxed" if answer["relaxed_simd"] else "simd128")
    if flags:
        assert answer["relaxed_simd"]
    tokens = {"simd128", "pairs", "scalar", "i16", answer["dot"]} | ({"relaxed"} if answer["relaxed_simd"] else set())
    assert answer["ran"] == [row.name for row in ROWS if row.token in tokens]
