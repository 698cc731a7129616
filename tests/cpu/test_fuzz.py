"""The fuzzer of the kernels' entry points (fuzz/fuzz.py): a thousand fixed cases here, ten minutes of others
under `npm run soak`. That it finds what it is there for is shown on kernels with errors put in.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from py_gemm.cpu.kernels import build
from tests.cpu.fuzz import native
from tests.cpu.fuzz.fuzz import ROWS, Fuzzer

ROOT = Path(__file__).parents[2]


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.cpu.fuzz.fuzz", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_fixed_cases_find_nothing() -> None:
    done = fuzz("--cases", "1000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("1000 cases without a finding")
    for row in ROWS:
        assert f"'{row.name}'" in done.stdout


@pytest.mark.soak
def test_ten_minutes_find_nothing() -> None:
    done = fuzz("--seconds", "600", "--seed", "2")
    assert done.returncode == 0, done.stdout + done.stderr


def test_errors_put_into_kernels_are_found(tmp_path: Path) -> None:
    """The missing step of an odd depth is read after all, and eight columns are written where there are fewer."""
    sources = tmp_path / "kernels"
    shutil.copytree(build.HERE, sources, ignore=shutil.ignore_patterns("*.wasm", "*.py", "__pycache__"))
    for name, right, wrong in (
        ("rows.h", "type, stripe, source, 0, 1, panel", "type, stripe, source, stripe->depth_stride, 1, panel"),
        ("finish_i8.h", "has_product && columns == columns_of_tile && ", "has_product && "),
    ):
        text = (sources / name).read_text()
        assert right in text
        (sources / name).write_text(text.replace(right, wrong))
    kernels, arena = native.Kernels(native.compile_library(tmp_path, sources, ("i16",))), native.Arena()
    for family, found in (("gemv_i8", "read"), ("gemm_i8", "wrote")):
        fuzzer = Fuzzer(kernels, arena, [row for row in ROWS if row.token == "i16" and row.family == family])
        findings = []
        for index in range(300):
            try:
                fuzzer.run(1, index)
            except AssertionError as error:
                findings.append(str(error))
        assert any(f"{family}_4x8_i16 {found} " in finding for finding in findings)
        assert len(findings) < 300
