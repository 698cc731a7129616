"""The exact reference inside a Pyodide under Node: the same bits as outside, by products of py_gemm's own kernels."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np

import py_gemm.exact as er
from scripts.bundle import pyodide_bundle
from scripts.paths import ROOT


def test_in_pyodide() -> None:
    node = shutil.which("node")
    assert node, "Node is needed"
    command = [node, str(ROOT / "tests/exact/run_in_node.mjs"), str(pyodide_bundle()), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 40)).astype(np.float32), rng.standard_normal((40, 3)).astype(np.float32)
    assert set(answer["bits"].values()) == {er.matmul(a, b).rounded.tobytes().hex()}
    assert answer["covered"]
    assert answer["buffer"] == [[1, 3], [2, 4]], "Python 3.12 and later let a class have the buffer protocol"
    assert answer["half"] == [[3.0]]
