"""Builds the WebAssembly modules from the C sources: `python -m py_gemm.cpu.kernels.build`. Needs ziglang of the pinned version.

One module for each token, and one with its exact kernels; the same bytes on every machine. The modules run on a memory that
belongs to someone else (the Python interpreter in the browser), so the build refuses one that holds data, uses the default stack,
or imports anything but that memory.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..families import ALL_ROWS, MODULES
from .wasm_module import FUNCTION, GLOBAL, MEMORY, read_module

HERE = Path(__file__).parent
ZIGLANG_VERSION = "0.17.1"
_EXACT = ("gemm_exact.c",)
SOURCES: dict[str, tuple[str, ...]] = {
    "relaxed": ("gemm_f32.c", "gemm_f64.c"),
    "simd128": ("gemm_f32.c", "gemm_f64.c", "gemm_i8.c"),
    "dot": ("gemm_i8_dot.c",),
    "sdot": ("gemm_i8_sdot.c",),
    "i16": ("gemm_i8_i16.c",),
    "pairs": ("gemm_bf16dot.c",),
    "scalar": ("gemm_f32_scalar.c", "gemm_f64_scalar.c", "gemm_bf16dot_scalar.c", "gemm_i8_scalar.c"),
    "exact_relaxed": _EXACT,
    "exact_simd128": _EXACT,
}
_PLAIN = "generic+simd128+bulk_memory"
_RELAXED = f"{_PLAIN}+relaxed_simd"
FEATURES = {
    "relaxed": _RELAXED, "simd128": _PLAIN, "dot": _RELAXED, "sdot": _RELAXED, "i16": _PLAIN, "pairs": _PLAIN,
    "scalar": "mvp+bulk_memory",
    "exact_relaxed": _RELAXED, "exact_simd128": _PLAIN,
}  # fmt: skip

# Loop strength reduction hides that offsets do not wrap, which costs an addition for each load of the inner loop; the scheduler
# would hoist all splats of A and spill. Without both the inner loop is what one would write by hand (1.3 to 1.6 times as fast).
COMPILE_FLAGS = (
    "-O3", "-ffp-contract=off", "-fno-slp-vectorize", "-mllvm", "-disable-lsr", "-mllvm", "-pre-RA-sched=source",
    "-Wall", "-Wextra", "-Werror", "-g0",
)  # fmt: skip
LINK_FLAGS = ("-nostdlib", "-Wl,--no-entry", "-Wl,--import-memory", "-Wl,-z,stack-size=0", "-Wl,--strip-all", "-s")


class BuildError(Exception):
    """The compiler failed, or made a module that may not run on a borrowed memory."""


def build(name: str) -> bytes:
    """The module of that name. BuildError says what is wrong with the compiler or with what it made."""
    require_compiler()
    target = ("-target", "wasm32-freestanding", f"-mcpu={FEATURES[name]}")
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for source in SOURCES[name]:
            made = Path(folder, source).with_suffix(".o")
            _compiler(*target, *COMPILE_FLAGS, "-c", source, "-o", str(made))
            check_object(source, made.read_bytes())
            objects.append(str(made))
        linked = Path(folder, "module.wasm")
        _compiler(*target, *LINK_FLAGS, "-o", str(linked), *objects)
        module = linked.read_bytes()
    check_module(name, module)
    return module


def require_compiler() -> None:
    """BuildError where ziglang is missing or of another version, whose code would be right but of other bytes."""
    try:
        found = version("ziglang")
    except PackageNotFoundError:
        raise BuildError(f"ziglang is not installed: pip install ziglang=={ZIGLANG_VERSION}") from None
    if found != ZIGLANG_VERSION:
        raise BuildError(f"ziglang {found} is installed, the modules are built with {ZIGLANG_VERSION}")


def check_object(source: str, made: bytes) -> None:
    """An object that uses the default stack imports its pointer."""
    for _, name, kind in read_module(made).imports:
        if kind == GLOBAL and name == "__stack_pointer":
            raise BuildError(f"{source}: a function uses the default stack, which would lie over the interpreter's memory")


def check_module(name: str, module: bytes) -> None:
    """The module may import env.memory and nothing else, hold no data and no function table, and export the table's kernels."""
    contents = read_module(module)
    if contents.imports != [("env", "memory", MEMORY)]:
        raise BuildError(f"{name}: imports {contents.imports}, not env.memory alone")
    if contents.has_data or contents.runs_at_start or contents.has_function_table:
        raise BuildError(f"{name}: holds data, a start function or a function table")
    expected = {(row.function, FUNCTION) for row in ALL_ROWS if row.module == name}
    if set(contents.exports) != expected:
        raise BuildError(f"{name}: exports {sorted(contents.exports)}, not {sorted(expected)}")


def module_path(name: str) -> Path:
    """Where a module lies."""
    return HERE / f"gemm_{name}.wasm"


def _compiler(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *arguments], cwd=HERE, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BuildError(f"{' '.join(arguments)}:\n{done.stderr}")


def main() -> None:
    """Build all modules and write them beside their sources."""
    for name in MODULES:
        module = build(name)
        module_path(name).write_bytes(module)
        sys.stdout.write(f"{module_path(name).name}: {len(module)} bytes\n")


if __name__ == "__main__":
    main()
