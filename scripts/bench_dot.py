"""`python -m scripts.bench_dot`: the int8 dot kernel next to the float32 kernel, on the processor's own dot product of bytes.

Browsers have an exact one only where the processor has VPDPBUSD in its VEX form (avx_vnni). Many have it in its EVEX form alone
(avx512_vnni), where no browser uses it: there the same C sources, compiled for this machine instead of WebAssembly, still show
whether the kernel is exact on the instruction and how fast it is. Without either the script says so and ends.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from py_gemm.cpu.arguments import ADDRESSES, pack_arguments
from py_gemm.cpu.blocking import block
from py_gemm.cpu.families import ROWS
from py_gemm.cpu.kernels import build
from py_gemm.cpu.plan import make_plan
from py_gemm.dtypes import FLOAT32, INT8, INT32
from py_gemm.int8_block import make_block
from py_gemm.problem import Layout, Problem
from tests.cpu.fuzz import native

SIZES = (512, 1024)
TURNS = 31
SOURCES = ("gemm_f32.c", "gemm_i8_dot.c")
FLOAT, DOT = "gemm_f32_6x8_relaxed", "gemm_i8_6x8_dot"
# Each set of features, and what /proc/cpuinfo calls the one that it is about. 128-bit vectors are all that the sources use.
FEATURES = {"avx_vnni": "x86_64_v3+avxvnni", "avx512_vnni": "x86_64_v3+avx512f+avx512vl+avx512vnni"}


def own_features() -> str:
    """The features to compile for; SystemExit where this machine has no such instruction."""
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    for flag, features in FEATURES.items():
        if flag in flags:
            return features
    raise SystemExit(f"bench_dot: this processor has none of {', '.join(FEATURES)}")


def compile_kernels(folder: Path, features: str) -> ctypes.CDLL:
    """Both kernels, compiled with the flags of the WebAssembly build."""
    build.require_compiler()
    flags = [flag for flag in build.COMPILE_FLAGS if not flag.startswith("-W")]
    defined = ["-DOWN_INSTRUCTIONS", "-D__wasm_simd128__", "-D__wasm_relaxed_simd__", f"-I{native.HERE}", "-I."]
    library = folder / "kernels.so"
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", f"-mcpu={features}", *flags, *defined, "-w"]
    subprocess.run([*command, *SOURCES, "-o", str(library)], cwd=build.HERE, check=True)
    return ctypes.CDLL(str(library))


class Bench:
    """Products in memory that the kernels' 32-bit addresses reach."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library, self._arena, self._free = library, native.Arena(), 0

    def forget(self) -> None:
        """The next operands may lie where the last ones do."""
        self._free = 0

    def _put(self, content: Any) -> tuple[int, Any]:
        """The address of a copy, and the copy."""
        content = np.ascontiguousarray(content)
        begin = self._free
        self._free = (begin + content.nbytes + 63) // 64 * 64 + 64
        place = self._arena.bytes[begin : begin + content.nbytes]
        place[:] = content.reshape(-1).view(np.uint8)
        return native.ARENA_AT + begin, place.view(content.dtype).reshape(content.shape)

    def product(self, name: str, a: Any, b: Any) -> tuple[Callable[[], None], Any]:
        """A call of a row, and where its result is."""
        row = next(each for each in ROWS if each.name == name)
        (m, k), n = a.shape, b.shape[1]
        element, result = (INT8, INT32) if row.accumulator is INT32 else (FLOAT32, FLOAT32)
        problem = Problem(m, n, k, Layout(element, k, 1), Layout(element, n, 1), Layout(result, n, 1))
        words = np.frombuffer(make_block("bench_dot", INT8, INT8, m, n, 0, 0, None).data, np.uint32)
        plan = make_plan(problem, block_words=len(words) if element is INT8 else 0)
        cut = block(row, m, n, k)
        arguments = bytearray(pack_arguments(plan, cut))
        places = [self._put(each)[0] for each in (a, b)]
        at_d, d = self._put(np.zeros((m, n), np.dtype(result.name)))
        at_words, _ = self._put(words)
        ADDRESSES.pack_into(arguments, 0, *places, 0, at_d, at_words if element is INT8 else 0)
        at_block, _ = self._put(np.frombuffer(arguments, np.uint8))
        scratch, _ = self._put(np.zeros(cut.scratch_bytes, np.uint8))
        function = self._library[row.function]
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_uint32), ctypes.c_uint32

        def call() -> None:
            status = function(at_block, scratch)
            if status:
                raise RuntimeError(f"{name}: status {status}")

        return call, d


def seconds(call: Callable[[], None]) -> float:
    """Of one call, warm."""
    call()
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    features = own_features()
    rng = np.random.default_rng(0)
    print(f"Compiled for {features}. Medians of {TURNS} interleaved turns.\n")
    print("| product | float32: 10^9 operations a second | int8 dot | int8 to float32 | int8 |\n|---|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(compile_kernels(Path(folder), features))
        for size in SIZES:
            bench.forget()
            floats = rng.standard_normal((2, size, size)).astype(np.float32)
            bytes_ = rng.integers(-128, 128, (2, size, size)).astype(np.int8)
            plain, _ = bench.product(FLOAT, *floats)
            dot, found = bench.product(DOT, *bytes_)
            turns = [(seconds(plain), seconds(dot)) for _ in range(TURNS)]
            exact = np.array_equal(found, bytes_[0].astype(np.float64) @ bytes_[1].astype(np.float64))  # below 2^53: exact
            rates = [2 * size**3 / median(column) / 1e9 for column in zip(*turns, strict=True)]
            ratio = median(one / other for one, other in turns)
            print(f"| {size}³ | {rates[0]:.1f} | {rates[1]:.1f} | {ratio:.2f} | {'exact' if exact else 'WRONG'} |")


if __name__ == "__main__":
    main()
