"""What an exact product may cost: processor time of one thread next to NumPy's float64 product, and memory next to its operands."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from scripts.paths import ROOT

SIZE = 512
# Measured on one core with AVX-512 and OpenBLAS: 10, 6.5 and 19 times; 6.8, 10.6 and 5.2 times the operands.
MOST_TIMES_NUMPY = {"float32": 25, "float16": 10, "float64": 80}
MOST_TIMES_OPERANDS = 12


@pytest.mark.parametrize("name", MOST_TIMES_NUMPY)
def test_time_and_memory(name: str) -> None:
    command = [sys.executable, "-m", "tests.exact.cost", name, str(SIZE)]
    alone = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "VECLIB_MAXIMUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **alone}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    cost = json.loads(done.stdout)
    assert cost["times_numpy"] <= MOST_TIMES_NUMPY[name], cost
    assert cost["times_operands"] <= MOST_TIMES_OPERANDS, cost
