"""The fuzzer of the kernels' entry points (fuzz/fuzz.py): a thousand fixed cases here, ten minutes of others
under `npm run soak`. That it finds what it is there for is shown on kernels with errors put in.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from py_gemm.cpu.kernels import build
from tests.cpu.fuzz import native
from tests.cpu.fuzz.fuzz import ROWS, Fuzzer, main

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


@pytest.mark.parametrize("wrong", ["--seconds=-1", "--seconds=nan", "--cases=-1", "--cases=0", "--only=-1"])
def test_nothing_to_run_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz", wrong])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "--cases and --seconds must be above 0, --only 0 or more" in capsys.readouterr().err


@pytest.fixture(scope="module")
def arena() -> native.Arena:
    return native.Arena()


def test_the_dot_kernels_are_exact_where_the_engine_is(arena: native.Arena, tmp_path: Path) -> None:
    """Both meanings of the relaxed dot product, which no engine of one machine has: all 65,536 products of two bytes, and every
    quadruple of extremes with every other."""
    kernels = native.Kernels(native.compile_library(tmp_path, modules=("dot", "sdot")))
    fuzzer = Fuzzer(kernels, arena)
    for row, types in product([row for row in ROWS if row.token in ("dot", "sdot")], product(("int8", "uint8"), repeat=2)):
        limits = [np.iinfo(each) for each in types]
        every = [np.arange(each.min, each.max + 1).astype(each.dtype) for each in limits]
        fuzzer.check_product(row, every[0][:, None], every[1][None, :])
        extremes = [sorted({each.min, each.min + 1, 0, each.max // 2 + 1, each.max - 1, each.max}) for each in limits]
        quadruples = [np.array(list(product(each, repeat=4)), of) for each, of in zip(extremes, types, strict=True)]
        fuzzer.check_product(row, quadruples[0], np.ascontiguousarray(quadruples[1].T))


def broken(folder: Path, *changes: tuple[str, str, str]) -> native.Kernels:
    """The kernels of i16 with changes to files: (name, right, wrong)."""
    sources = folder / "kernels"
    shutil.copytree(build.HERE, sources, ignore=shutil.ignore_patterns("*.wasm", "*.py", "__pycache__"))
    for name, right, wrong in changes:
        text = (sources / name).read_text()
        assert right in text
        (sources / name).write_text(text.replace(right, wrong))
    return native.Kernels(native.compile_library(folder, sources, ("i16",)))


def findings(kernels: native.Kernels, arena: native.Arena, family: str) -> list[str]:
    """What three hundred cases of a family find."""
    fuzzer = Fuzzer(kernels, arena, [row for row in ROWS if row.token == "i16" and row.family == family])
    found = []
    for index in range(300):
        try:
            fuzzer.run(1, index)
        except AssertionError as error:
            found.append(str(error))
    assert len(found) < 300
    return found


def test_errors_put_into_kernels_are_found(arena: native.Arena, tmp_path: Path) -> None:
    """The missing step of an odd depth is read after all, and eight columns are written where there are fewer."""
    kernels = broken(
        tmp_path,
        ("rows.h", "type, stripe, source, 0, 1, panel", "type, stripe, source, stripe->depth_stride, 1, panel"),
        ("finish_i8.h", "has_product && columns == columns_of_tile && ", "has_product && "),
    )
    for family, found in (("gemv_i8", "read"), ("gemm_i8", "wrote")):
        assert any(f"{family}_4x8_i16 {found} " in finding for finding in findings(kernels, arena, family))


def test_a_wrong_place_for_the_totals_of_a_slice_is_found(arena: native.Arena, tmp_path: Path) -> None:
    """All tiles of a block share one, where each has to wait for the next slice of depth."""
    kernels = broken(tmp_path, ("driver.h", "first_slice && last_slice ? 0 : tile_bytes", "0"))
    assert any("is not" in finding for finding in findings(kernels, arena, "gemm_i8"))
