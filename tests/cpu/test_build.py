"""The committed modules are what the sources make, byte for byte, and the build refuses what may not run on a borrowed memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from py_gemm.assets import read_asset
from py_gemm.cpu.families import ALL_ROWS, MODULES, module_asset
from py_gemm.cpu.kernels import build
from py_gemm.cpu.kernels.wasm_module import FUNCTION, MEMORY, read_module


@pytest.mark.parametrize("module", MODULES)
def test_committed_module_is_what_the_sources_make(module: str) -> None:
    assert build.module_path(module).read_bytes() == build.build(module), "run: python -m py_gemm.cpu.kernels.build"


@pytest.mark.parametrize("module", MODULES)
def test_module_may_run_on_a_borrowed_memory(module: str) -> None:
    contents = read_module(read_asset(module_asset(module)))
    assert contents.imports == [("env", "memory", MEMORY)]
    assert not contents.has_data
    assert not contents.runs_at_start
    assert not contents.has_function_table
    assert set(contents.exports) == {(row.function, FUNCTION) for row in ALL_ROWS if row.module == module}


def test_an_object_that_uses_the_stack_is_refused() -> None:
    with pytest.raises(build.BuildError, match="uses the default stack"):
        _compile("void use(int *); void f(void) { int local[100]; use(local); }")


def test_a_table_in_memory_is_refused() -> None:
    made = _compile("const int table[4] = {1, 2, 3, 4}; int look(int i) { return table[i & 3]; }")
    assert read_module(made).has_data


def _compile(source: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder, "x.c"), Path(folder, "x.o")
        path.write_text(source)
        build._compiler("-target", "wasm32-freestanding", *build.COMPILE_FLAGS, "-c", str(path), "-o", str(made))
        build.check_object(path.name, made.read_bytes())
        return made.read_bytes()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_with_other_exports_is_refused(module: str) -> None:
    other = next(each for each in MODULES if each != module)
    with pytest.raises(build.BuildError, match="exports"):
        build.check_module(module, read_asset(module_asset(other)))


def test_no_webassembly_is_refused() -> None:
    with pytest.raises(ValueError, match="no WebAssembly module"):
        read_module(b"\0asm\2\0\0\0")


def test_another_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "ZIGLANG_VERSION", "0.0.1")
    with pytest.raises(build.BuildError, match=r"ziglang .* is installed, the modules are built with 0\.0\.1"):
        build.require_compiler()
