"""CpuGemm itself: names, errors, ranges and sharing of buffers, memory that runs out, threads, the cache of compiled modules."""

from __future__ import annotations

import array
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import py_gemm
from py_gemm.cpu.engines.copying import KEEP_BYTES
from py_gemm.cpu.engines.module_cache import ModuleCache
from py_gemm.cpu.engines.wasmtime import WasmtimeEngine
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.dtypes import FLOAT16, FLOAT32, FLOAT64
from py_gemm.errors import AliasError, DeviceMemoryError, GemmError, ShapeError, UnsupportedError
from py_gemm.problem import Layout, Problem
from tests.cpu.support import ROW_NAMES, gemm_of, multiply, small_integers


def dense(m: int, n: int, k: int, **more: Any) -> Problem:
    return Problem(m, n, k, Layout(FLOAT32, k, 1), Layout(FLOAT32, n, 1), Layout(FLOAT32, n, 1), **more)


def floats(count: int, value: float = 1.0) -> array.array[float]:
    return array.array("f", [value]) * count


# ---- choosing ----


@pytest.mark.parametrize("name", ROW_NAMES)
def test_a_forced_row_is_the_one_that_runs(name: str) -> None:
    real = np.float64 if "f64" in name else np.float32
    problem = Problem(
        1, 1, 1, *(Layout(FLOAT64 if real is np.float64 else FLOAT32, 1, 1),) * 3
    )  # fmt: skip
    assert gemm_of(name).prepare(problem).variant == name


def test_the_token_comes_from_the_argument_then_the_knob() -> None:
    try:
        py_gemm.configure(token="simd128")
        assert CpuGemm().prepare(dense(9, 9, 9)).variant == "gemm_f32_4x8_simd128"
        assert CpuGemm(token="relaxed").prepare(dense(9, 9, 9)).variant == "gemm_f32_4x8_relaxed"
        with pytest.raises(ValueError, match=r"token.*'avx'.*relaxed, pairs, simd128"):
            py_gemm.configure(token="avx")
        with pytest.raises(ValueError, match="unknown token 'avx'; known: relaxed, pairs, simd128"):
            CpuGemm(token="avx").prepare(dense(9, 9, 9))
    finally:
        py_gemm.configure(token=None)


def test_forced_and_unavailable_is_an_error_at_once() -> None:
    engine = WasmtimeEngine(relaxed_simd=False)
    assert CpuGemm(engine=engine).prepare(dense(9, 9, 9)).variant == "gemm_f32_4x8_simd128"
    with pytest.raises(UnsupportedError, match=r"gemm_f32_6x8_relaxed cannot run: this engine \(wasmtime\) lacks relaxed SIMD"):
        CpuGemm(family="gemm_f32_6x8_relaxed", engine=engine)
    with pytest.raises(UnsupportedError, match=r"gemm_f64_4x4_relaxed cannot run: .* lacks relaxed SIMD"):
        CpuGemm(family="gemm_f64_4x4_relaxed", engine=engine)
    with pytest.raises(UnsupportedError, match="lacks relaxed SIMD"):
        CpuGemm(token="relaxed", engine=engine)
    with pytest.raises(UnsupportedError, match="no kernel of family 'gemm_f32_6x8' has the token 'simd128'"):
        CpuGemm(family="gemm_f32_6x8", token="simd128")
    with pytest.raises(ValueError, match="unknown kernel family 'fast'; known: gemv_f32"):
        CpuGemm(family="fast")


def test_capabilities_are_plain_data() -> None:
    found = CpuGemm().capabilities
    assert (found.host, found.relaxed_simd, found.zero_copy, found.token) == ("wasmtime", True, False, "relaxed")
    assert found.engine.startswith("wasmtime ")
    assert CpuGemm(token="simd128").capabilities.why == "forced by argument"
    plain = CpuGemm(engine=WasmtimeEngine(relaxed_simd=False)).capabilities
    assert (plain.token, plain.why) == ("simd128", "the engine has no relaxed SIMD")


# ---- run: buffers ----


def test_run_takes_any_buffer_and_needs_no_numpy() -> None:
    a, b, d = array.array("f", [1, 2, 3, 4]), bytes(array.array("f", [5, 6, 7, 8])), bytearray(16)
    CpuGemm().run(dense(2, 2, 2), a, b, None, d)
    assert list(memoryview(d).cast("f")) == [19, 22, 43, 50]
    CpuGemm().run(
        dense(2, 2, 2, c=Layout(FLOAT32, 2, 1), beta=1.0), a, b, d, d, bias=array.array("f", [1, -200]), activation="relu"
    )
    assert list(memoryview(d).cast("f")) == [39, 0, 87, 0]


def test_run_honours_offsets_and_negative_strides() -> None:
    a = array.array("f", [99, 1, 2, 3, 4])
    d = array.array("f", [-7] * 6)
    problem = Problem(2, 2, 2, Layout(FLOAT32, 2, 1, (), 1), Layout(FLOAT32, -2, -1, (), 4), Layout(FLOAT32, 2, 1, (), 1))
    CpuGemm().run(problem, a, a, None, d)
    assert list(d) == [-7, *(np.asarray([[1, 2], [3, 4]]) @ [[4, 3], [2, 1]]).ravel(), -7]


def test_run_checks_ranges() -> None:
    for wrong in ("a", "b", "c", "d", "bias"):
        operands: dict[str, Any] = {
            "a": floats(6 - (wrong == "a")), "b": floats(12 - (wrong == "b")),
            "c": floats(8 - (wrong == "c")), "d": floats(8 - (wrong == "d"), 5.0),
        }  # fmt: skip
        before = list(operands["d"])
        problem = dense(2, 4, 3, c=Layout(FLOAT32, 4, 1), beta=1.0)
        with pytest.raises(ShapeError, match=rf"CpuGemm: {wrong} needs elements 0 to \d+, its buffer holds \d+"):
            CpuGemm().run(problem, **operands, bias=floats(4 - (wrong == "bias")))
        assert list(operands["d"]) == before
    with pytest.raises(ShapeError, match="needs elements -1 to"):
        CpuGemm().run(
            Problem(2, 1, 1, Layout(FLOAT32, -1, 1), *(Layout(FLOAT32, 1, 1),) * 2), floats(9), floats(9), None, floats(9)
        )
    with pytest.raises(ShapeError, match=r"beta is 1\.0, but the problem has no c"):
        CpuGemm().prepare(dense(1, 1, 1, beta=1.0))
    with pytest.raises(ShapeError, match="k is 4294967296"):
        CpuGemm().prepare(dense(1, 1, 1 << 32))
    with pytest.raises(ShapeError, match="a has 0 batch strides"):
        CpuGemm().prepare(dense(1, 1, 1, batch=(2,)))


def test_run_refuses_a_read_only_output() -> None:
    with pytest.raises(BufferError):
        CpuGemm().run(dense(1, 1, 1), floats(1), floats(1), None, bytes(4))


def test_run_does_not_look_at_operands_it_does_not_read() -> None:
    d = floats(4)
    CpuGemm().run(dense(2, 2, 3, alpha=0.0), None, None, None, d)
    assert list(d) == [0] * 4
    CpuGemm().run(dense(0, 2, 3), floats(0), floats(6), None, floats(0))


def test_run_refuses_shared_memory() -> None:
    shared = np.zeros(64, np.float32)
    for name in ("a", "b", "bias"):
        operands: dict[str, Any] = {"a": floats(4), "b": floats(4), "c": None, "d": shared[3:7], "bias": floats(2)}
        operands[name] = shared[:4] if name != "bias" else shared[4:6]
        with pytest.raises(AliasError, match=f"d shares memory with {name}"):
            CpuGemm().run(dense(2, 2, 2), **operands)
    problem = dense(2, 2, 2, c=Layout(FLOAT32, 1, 2), beta=1.0)
    with pytest.raises(AliasError, match="d shares memory with c"):
        CpuGemm().run(problem, floats(4), floats(4), shared[:4], shared[:4])
    assert not shared.any()


def test_run_lets_interleaved_columns_be() -> None:
    room = np.zeros((4, 8), np.float32)
    room[:, ::2] = 2.0
    problem = Problem(4, 4, 4, Layout(FLOAT32, 8, 2), Layout(FLOAT32, 4, 1), Layout(FLOAT32, 8, 2, (), 1))
    CpuGemm().run(problem, room, np.eye(4, dtype=np.float32), None, room)
    assert np.array_equal(room, np.full((4, 8), 2.0))


def test_an_output_that_names_an_element_twice_is_refused() -> None:
    with pytest.raises(AliasError, match="elements of the output share memory"):
        CpuGemm().prepare(Problem(2, 2, 2, Layout(FLOAT32, 2, 1), Layout(FLOAT32, 2, 1), Layout(FLOAT32, 0, 1)))


# ---- memory and threads ----


def test_memory_that_runs_out_leaves_the_operands_untouched() -> None:
    gemm = CpuGemm(engine=WasmtimeEngine(memory_limit=8 << 20))
    a, d = np.ones((1024, 1024), np.float32), np.full((1024, 1024), 5.0, np.float32)
    with pytest.raises(DeviceMemoryError, match=r"wasmtime cannot grow a memory from \d+ to \d+ bytes"):
        multiply(gemm, a, a, d)
    assert np.all(d == 5.0)
    assert np.all(a == 1.0)
    small = np.ones((4, 4), np.float32)
    assert np.array_equal(multiply(gemm, small, small, np.zeros_like(small)), small @ small)


def test_operands_beyond_32_bits_are_an_error_and_no_crash() -> None:
    layout = Layout(FLOAT16, 1 << 17, 1)
    call = CpuGemm().prepare(Problem(1 << 17, 1 << 17, 1, Layout(FLOAT16, 1, 1), layout, layout))
    with pytest.raises(DeviceMemoryError, match="a WebAssembly memory holds at most 4294967296"):
        call(0, 0, 0, 0, 0)


def test_large_memory_is_given_back_and_small_memory_kept() -> None:
    engine = WasmtimeEngine()
    gemm = CpuGemm(engine=engine)
    small = np.ones((64, 64), np.float32)
    multiply(gemm, small, small, np.zeros_like(small))
    kept = engine.memory_bytes()
    assert 0 < kept < KEEP_BYTES
    tall = np.ones((KEEP_BYTES // 8 + 1, 1), np.float32)  # with its result it takes more
    assert np.all(multiply(gemm, tall, np.full((1, 1), 2.0, np.float32), np.zeros_like(tall)) == 2.0)
    assert engine.memory_bytes() < KEEP_BYTES
    assert np.array_equal(multiply(gemm, small, small, np.zeros_like(small)), small @ small)


def test_all_memories_together_are_small() -> None:
    """Each module has a memory of its own; those used last are kept."""
    engine = WasmtimeEngine()
    tall, one = np.ones((KEEP_BYTES // 12, 1), np.float32), np.ones((1, 1), np.float32)  # two thirds of what is kept
    for token in ("scalar", "simd128", "relaxed", "simd128"):
        assert np.all(multiply(CpuGemm(token=token, engine=engine), tall, one, np.zeros_like(tall)) == 1.0)
        assert engine.memory_bytes() <= KEEP_BYTES
    last = engine.memory_bytes()
    small = np.ones((8, 8), np.float32)
    multiply(CpuGemm(token="relaxed", engine=engine), small, small, np.zeros_like(small))
    assert last < engine.memory_bytes() <= KEEP_BYTES, "both are kept"


def test_a_product_within_another_frees_its_own_memory_only() -> None:
    engine = WasmtimeEngine()
    outer = engine.room("simd128", KEEP_BYTES + 1)
    engine.room("simd128", 1 << 20, level=1)
    engine.give_back(1)
    assert engine.memory_bytes() == outer.nbytes
    engine.give_back(0)
    assert engine.memory_bytes() == 0


def test_threads_of_python_take_turns() -> None:
    gemm = CpuGemm()
    generator = np.random.default_rng(41)
    cases = [(small_integers(generator, (90, 80), "float32"), small_integers(generator, (80, 70), "float32")) for _ in range(6)]
    wrong: list[int] = []

    def work(index: int) -> None:
        a, b = cases[index]
        results = [multiply(gemm, a, b, np.zeros((90, 70), np.float32)) for _ in range(20)]
        wrong.extend(index for result in results if not np.array_equal(result, a @ b))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_without_wasmtime_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    with pytest.raises(UnsupportedError, match=r"the CPU kernels run in wasmtime, .*pip install 'py_gemm\[native\]'"):
        WasmtimeEngine()


def test_nothing_is_said_when_the_interpreter_ends() -> None:
    code = """
from array import array
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.dtypes import FLOAT32
from py_gemm.problem import Layout, Problem
x = Layout(FLOAT32, 1, 1)
CpuGemm().run(Problem(1, 1, 1, x, x, x), array("f", [1]), array("f", [1]), None, array("f", [0]))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- the cache of compiled modules ----


def test_compiled_modules_are_kept_and_read_back(tmp_path: Path) -> None:
    for told in ("compiled modules kept in", "compiled modules read from"):
        engine = WasmtimeEngine(cache_folder=tmp_path)
        one = np.ones((1, 1), np.float32)
        assert multiply(CpuGemm(engine=engine), one, one, np.zeros_like(one))[0, 0] == 1
        assert told in engine.info["cache"]
        assert str(tmp_path) in engine.info["cache"]


def test_a_damaged_cache_is_replaced(tmp_path: Path) -> None:
    one = np.ones((1, 1), np.float32)
    multiply(CpuGemm(engine=WasmtimeEngine(cache_folder=tmp_path)), one, one, np.zeros_like(one))
    (file,) = tmp_path.rglob("*.compiled")
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:100] + b"x" + whole[101:], b"", whole[:40]):
        file.write_bytes(damaged)
        engine = WasmtimeEngine(cache_folder=tmp_path)
        multiply(CpuGemm(engine=engine), one, one, np.zeros_like(one))
        assert "kept in" in engine.info["cache"]
    assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_told_and_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    engine = WasmtimeEngine(cache_folder=blocked)
    one = np.ones((1, 1), np.float32)
    assert multiply(CpuGemm(engine=engine), one, one, np.zeros_like(one))[0, 0] == 1
    assert engine.info["cache"].startswith("compiled modules are not kept: ")


def test_other_modules_and_keys_do_not_meet(tmp_path: Path) -> None:
    first, second = ModuleCache("first", tmp_path), ModuleCache("second", tmp_path)
    first.store(b"module", lambda: b"compiled")
    assert first.load(b"module") == b"compiled"
    assert first.load(b"another") is None
    assert second.load(b"module") is None


def test_a_kernel_that_traps_is_an_error_in_words() -> None:
    engine = WasmtimeEngine()
    room = engine.room("simd128", 1 << 16)
    with pytest.raises(GemmError, match=r"(?s)gemm_f32_4x8_simd128: .*out of bounds memory access"):
        room.run("gemm_f32_4x8_simd128", 0xFFFF0, 0xFFFF0)
    with pytest.raises(GemmError, match=r"of another version \(status 1\)"):
        room.run("gemm_f32_4x8_simd128", 0, 1024)
