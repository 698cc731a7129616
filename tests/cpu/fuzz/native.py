"""The kernels as a library of this machine: the same C sources compiled with clang's sanitizers, and an arena below 4 GiB.

The undefined-behaviour sanitizer stops the process and says where. What the address sanitizer sees goes to guard.c, which holds it
against the ranges that a call may read and write: exactly its operands. The arena is there because addresses have 32 bits.
"""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from py_gemm.cpu.families import MODULES, Row
from py_gemm.cpu.kernels import build

HERE = Path(__file__).parent
_FLAGS = (
    "-c", "-O1", "-g1", "-fPIC", "-ffp-contract=off", f"-I{HERE}", "-I.", "-Wno-unknown-attributes",
    "-fsanitize=address", "-fsanitize=undefined", "-mllvm", "-asan-instrumentation-with-call-threshold=0",
    "-mllvm", "-asan-globals=0", "-mllvm", "-asan-stack=0",
)  # fmt: skip

ARENA_AT, ARENA_BYTES = 1 << 28, 64 << 20


def compile_library(folder: Path, sources: Path = build.HERE, modules: tuple[str, ...] = MODULES) -> Path:
    """The kernels of some modules in one library in `folder`. BuildError says what the compiler did not like."""
    build.require_compiler()
    jobs: list[tuple[str, tuple[str, ...]]] = [("guard", ("-c", "-O2", "-fPIC", str(HERE / "guard.c")))]
    for module in modules:
        given = [f"-D__wasm_{macro}__" for macro in ("simd128", "relaxed_simd") if macro in build.FEATURES[module]]
        jobs += [(f"{module}_{Path(source).stem}", (*_FLAGS, *given, source)) for source in build.SOURCES[module]]
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda job: _compile(sources, *job[1], "-o", str(folder / f"{job[0]}.o")), jobs))
    library = folder / "kernels.so"
    _compile(sources, "-shared", "-fsanitize=undefined", "-o", str(library), *made)
    return library


def _compile(folder: Path, *arguments: str) -> str:
    """Run the compiler; returns its last argument."""
    command = [sys.executable, "-m", "ziglang", "cc", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise build.BuildError(f"{' '.join(arguments)}:\n{done.stderr}")
    return arguments[-1]


class Arena:
    """Memory that a kernel's 32-bit addresses reach. `bytes`: all of it, as a NumPy array that begins at ARENA_AT."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
        fixed_if_free = 0x100000  # MAP_FIXED_NOREPLACE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed_if_free
        found = libc.mmap(ARENA_AT, ARENA_BYTES, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if found != ARENA_AT:
            raise OSError(ctypes.get_errno(), f"there is no memory to be had at {ARENA_AT:#x}")
        whole: Any = (ctypes.c_uint8 * ARENA_BYTES).from_address(ARENA_AT)
        self.bytes: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(whole, np.uint8)


class Kernels:
    """The library, and the ranges that the next call may touch."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.allow.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int)
        self._seen = (ctypes.c_uint64 * 4)()

    def run(self, row: Row, ranges: list[tuple[str, int, int, bool]], block: int, scratch: int) -> None:
        """ranges: (name, address, bytes, may be written). AssertionError for an access outside them, or a status."""
        self._library.forget()
        for _, at, nbytes, writes in ranges:
            self._library.allow(at, nbytes, writes)
        function = getattr(self._library, row.function)
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_uint32), ctypes.c_uint32
        status = function(block, scratch)
        if self._library.broken(self._seen):
            at, nbytes, is_write, _ = self._seen
            what = "wrote" if is_write else "read"
            near = ", ".join(f"{name} [{begin:#x}, {begin + size:#x})" for name, begin, size, _ in ranges)
            raise AssertionError(f"{row.name} {what} {nbytes} bytes at {at:#x}; it may touch {near}")
        assert self._seen[3] > 0, "no access was seen: the kernels are not compiled with the address sanitizer"
        assert status == 0, f"{row.name}: status {status}"
