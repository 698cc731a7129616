"""Products in strips on threads, under wasmtime: the bits of one thread, whatever the row, the shape and what is done to the sums.

And what befalls threads: they die, none is to be had, memory runs out, the process forks or ends, several callers come at once.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import py_gemm as pg
from py_gemm import devices
from py_gemm.cpu.engines import copying
from py_gemm.cpu.engines.wasmtime import WasmtimeEngine
from py_gemm.cpu.families import EXACT_ROWS
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.cpu.threads import ThreadPool, _Given, default_threads
from py_gemm.dtypes import INT8, INT32
from py_gemm.errors import DeviceMemoryError, GemmError
from py_gemm.problem import Layout, Problem
from tests.cpu.support import FLOAT32_ROWS, ROW_NAMES, Array, address_of, multiply, problem_of
from tests.cpu.test_int8_kernels import INTEGER_ROWS, engine_for, exact, numbers

SHAPES = [(1, 1, 1), (1, 700, 300), (3, 257, 40), (13, 17, 33), (50, 90, 259), (131, 18, 70), (97, 101, 530)]


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every product is worth a thread."""
    monkeypatch.setattr(copying, "MULTIPLY_ADDS_A_BYTE", 0)
    pg.configure(parallel_threshold=0, par_mnk_per_worker=1, device="cpu")
    yield
    pg.configure(parallel_threshold=None, par_mnk_per_worker=None, device=None, threads=None)


@cache
def gemm_on(threads: int, name: str | None = None) -> CpuGemm:
    return CpuGemm(family=name, threads=threads)


def normal(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def on_threads(threads: int, call: Any) -> tuple[Array, int]:
    """The result of a call of the front door, and on how many threads it ran."""
    pg.configure(threads=threads)
    found: Array = call()
    report = pg.last_run()
    assert report is not None
    assert report.threads is not None
    return found, report.threads


def same_on_all(call: Any) -> None:
    """The bits of one thread on two and on three."""
    single, used = on_threads(1, call)
    assert used == 1
    for threads in (2, 3):
        found, used = on_threads(threads, call)
        assert used == threads
        assert found.tobytes() == single.tobytes()


@pytest.mark.parametrize("name", ROW_NAMES)
def test_every_row_has_the_bits_of_one_thread(name: str) -> None:
    dtype = np.float32 if name in FLOAT32_ROWS else np.float64
    ran = set()
    for m, n, k in SHAPES:
        a, b, c, bias = normal(1, m, k, dtype=dtype), normal(2, k, n, dtype=dtype), normal(3, m, n, dtype=dtype), normal(4, n)
        single, *several = (
            multiply(gemm_on(threads, name), a, b, np.zeros((m, n), dtype), c, alpha=0.7, beta=-1.3, bias=bias)
            for threads in (1, 2, 3)
        )
        assert all(found.tobytes() == single.tobytes() for found in several), (m, n, k)
        d = np.zeros((m, n), dtype)
        ran.add(gemm_on(3, name).prepare(problem_of(a, b, d))(address_of(a), address_of(b), 0, address_of(d), 0))
    assert ran >= {1, 3}


@pytest.mark.parametrize("name", [row.name for row in EXACT_ROWS])
def test_exact_rows_have_the_bits_of_one_thread(name: str) -> None:
    for m, n, k in ((1, 90, 40), (13, 45, 33), (50, 30, 259)):
        a, b = normal(1, m, k) * np.float32(2) ** np.random.default_rng(3).integers(-40, 40, (m, k)), normal(2, k, n)
        results = []
        for threads in (1, 2, 3):
            d = np.zeros((m, n), np.float32)
            gemm_on(threads, name).prepare(problem_of(a, b, d), exact=True)(address_of(a), address_of(b), 0, address_of(d), 0)
            results.append(d.tobytes())
        assert len(set(results)) == 1


@pytest.mark.parametrize("name", [name for name in INTEGER_ROWS if not name.endswith("_dot")])
def test_integer_rows_have_the_integers_of_one_thread(name: str) -> None:
    """Zero points, biases and scales with a number of their own for each row or column: strips must read the right ones."""
    random = np.random.default_rng(5)
    for m, n, k in SHAPES[1:]:
        a, b = numbers(random, (m, k), "int8"), numbers(random, (k, n), "uint8")
        zero_a, zero_b = random.integers(-128, 128, (m, 1)), random.integers(0, 256, n)
        sums = exact(a, b, zero_a, zero_b)
        by_row = pg.Requantize(random.uniform(1e-4, 1e-3, (m, 1)), 3, random.integers(-9999, 9999, n).tolist())
        by_column = pg.Requantize(random.uniform(1e-4, 1e-3, n), 7, random.integers(-9999, 9999, (m, 1)).tolist(), dtype="uint8")
        for rules in (None, by_row, by_column):
            found = []
            for threads in (1, 2, 3):
                device = devices.CpuDevice()
                device.gemm = CpuGemm(family=name, threads=threads, engine=engine_for(name))
                found.append(pg.int8_gemm(a, b, zero_point_a=zero_a, zero_point_b=zero_b, requantize=rules, device=device))
                pg.configure(device="cpu")  # forgets what was prepared for that device
            assert all(np.array_equal(each, found[0]) for each in found), (m, n, k)
            if rules is None:
                assert np.array_equal(found[0], sums)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_front_door_has_the_bits_of_one_thread(dtype: Any) -> None:
    a, b, c, bias = normal(1, 77, 300, dtype=dtype), normal(2, 300, 91, dtype=dtype), normal(3, 77, 91, dtype=dtype), normal(4, 91)
    same_on_all(lambda: pg.matmul(a, b))
    same_on_all(lambda: pg.matmul(a, b, mode="deterministic"))
    same_on_all(lambda: pg.matmul(a[:, :40], b[:40], mode="exact"))
    same_on_all(lambda: pg.gemm(a, b, c, alpha=0.3, beta=2.3, bias=bias, activation="gelu_erf"))
    same_on_all(lambda: pg.gemm(b, a, transpose_a=True, transpose_b=True))
    same_on_all(lambda: pg.matmul(a[::-1, ::2], b[::2, ::-3]))
    same_on_all(lambda: pg.gemm(a, b, c, out=c.copy(), bias=bias))
    same_on_all(lambda: pg.matmul(a, b, out=np.zeros((91, 77), dtype).T))


def test_c_that_is_updated_in_place_has_the_bits_of_one_thread() -> None:
    a, b, c = normal(1, 90, 300), normal(2, 300, 50), normal(3, 90, 50)

    def update() -> Array:
        target = c.copy()
        found: Array = pg.gemm(a, b, target, beta=1.5, out=target)
        return found

    same_on_all(update)


def test_prepacked_operands_have_the_bits_of_the_plain_call() -> None:
    a, b = normal(1, 77, 300), normal(2, 300, 91)
    plain, _ = on_threads(1, lambda: pg.matmul(a, b))
    packed_a, packed_b = pg.prepack(a, side="a"), pg.prepack(b)
    for left, right, expected in ((packed_a, b, 3), (a, packed_b, 3), (packed_a, packed_b, 1)):
        found, used = on_threads(3, lambda left=left, right=right: pg.matmul(left, right))
        assert used == expected
        assert found.tobytes() == plain.tobytes()


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [
        ((7, 20, 30), (7, 30, 40)),
        ((6, 20, 30), (30, 40)),
        ((20, 30), (6, 30, 40)),
        ((2, 1, 50, 7), (1, 4, 7, 50)),
        ((12, 1, 9), (9, 7)),
    ],
)
def test_batches_have_the_bits_of_one_thread(shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> None:
    a, b = normal(1, *shape_a), normal(2, *shape_b)
    single, _ = on_threads(1, lambda: pg.matmul(a, b))
    for threads in (2, 3):
        found, used = on_threads(threads, lambda: pg.matmul(a, b))
        assert found.tobytes() == single.tobytes()
        assert 1 <= used <= threads


def test_a_product_that_is_little_but_copying_stays_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each half of a row's product would copy all of B; columns that lie one after the other are copied by halves."""
    monkeypatch.undo()
    a, b = normal(1, 1, 2000), normal(2, 2000, 2000)
    assert on_threads(2, lambda: pg.matmul(a, b))[1] == 1
    assert on_threads(2, lambda: pg.matmul(a, b.T))[1] == 2
    assert on_threads(2, lambda: pg.matmul(b, b))[1] == 2


def test_more_threads_than_there_are_tiles() -> None:
    a, b = normal(1, 20, 30), normal(2, 30, 9)
    single, _ = on_threads(1, lambda: pg.matmul(a, b))
    found, used = on_threads(40, lambda: pg.matmul(a, b))
    assert found.tobytes() == single.tobytes()
    assert used == 5, "20 rows in tiles of 4"


# ---- how many ----


def test_argument_goes_before_configure_and_configure_before_the_cores() -> None:
    assert gemm_on(3).info["threads"].startswith("3 (by argument; threads of this process")
    pg.configure(threads=5)
    assert CpuGemm().info["threads"].startswith("5 (by the knob threads; ")
    pg.configure(threads=1)
    assert CpuGemm().info["threads"] == "1 (by the knob threads)"
    pg.configure(threads=None)
    assert CpuGemm().info["threads"].startswith(f"{default_threads()} (of the usable cores")
    assert default_threads() == min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    assert pg.info().to_dict()["cpu"]["threads"] == CpuGemm().info["threads"]


@pytest.mark.parametrize("threads", [0, -1, 1.5, "two", True, np.True_, [2]])
def test_what_is_no_number_of_threads_is_refused(threads: Any) -> None:
    with pytest.raises(ValueError, match=r"CpuGemm: threads="):
        CpuGemm(threads=threads)
    with pytest.raises(ValueError, match=r"configure: threads=.*: a whole number of at least 1 is expected"):
        pg.configure(threads=threads)


def test_environment_names_threads_and_nonsense_warns() -> None:
    code = "import py_gemm as pg; print(pg.info().to_dict()['cpu']['threads'].split(' ')[0])"
    for value, first, warning in (
        ("3", "3", ""),
        ("0", str(default_threads()), "PY_GEMM_THREADS='0' is ignored: a whole number of"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PY_GEMM_THREADS": value}, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == first
        assert warning in done.stderr


def test_small_parallel_integer_products_take_no_dot_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's dot product is exact, and preferred as in a browser; what is forced, on one thread, or large enough keeps it."""
    engine = engine_for("gemm_i8_6x8_sdot")
    monkeypatch.setattr(engine, "_traits", replace(engine.traits, host="browser"))
    layout = Layout(INT8, 64, 1)
    problem = Problem(64, 64, 64, layout, layout, Layout(INT32, 64, 1))
    cases = [
        (CpuGemm(threads=2, engine=engine), None, "gemm_i8_4x8_i16"),
        (CpuGemm(threads=1, engine=engine), None, "gemm_i8_6x8_sdot"),
        (CpuGemm(threads=2, engine=engine), 64**3, "gemm_i8_6x8_sdot"),
        (CpuGemm(threads=2, engine=engine, token="sdot"), None, "gemm_i8_6x8_sdot"),
        (CpuGemm(threads=2, engine=engine, family="gemm_i8_6x8"), None, "gemm_i8_6x8_sdot"),
    ]
    try:
        for gemm, gate, variant in cases:
            pg.configure(small_parallel_mnk=gate)
            assert gemm.prepare_int8(problem, block_words=16, keep_rows=False).variant == variant
    finally:
        pg.configure(small_parallel_mnk=None)


# ---- what befalls threads ----


def large_enough(engine: WasmtimeEngine, threads: int = 3) -> tuple[CpuGemm, Array, Array, Array]:
    a, b = normal(1, 90, 70), normal(2, 70, 50)
    return CpuGemm(threads=threads, engine=engine), a, b, multiply(gemm_on(1), a, b, np.zeros((90, 50), np.float32))


def run(gemm: CpuGemm, a: Array, b: Array) -> tuple[Array, int]:
    d = np.zeros((a.shape[0], b.shape[1]), np.float32)
    return d, gemm.prepare(problem_of(a, b, d))(address_of(a), address_of(b), 0, address_of(d), 0)


def test_threads_start_at_the_first_large_product_and_are_kept() -> None:
    engine = WasmtimeEngine()
    gemm, a, b, expected = large_enough(engine)
    assert not engine.pool.threads
    for _ in range(3):
        found, used = run(gemm, a, b)
        assert used == 3
        assert np.array_equal(found, expected)
    kept = engine.pool.threads
    assert len(kept) == 2
    engine.pool.stop()
    assert not any(thread.is_alive() for thread in kept)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_loses_no_strip_and_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = WasmtimeEngine()
    gemm, a, b, expected = large_enough(engine)
    whole = copying._CopyingCall.run_in
    died: list[str] = []

    def die_once(self: Any, *arguments: Any) -> None:
        thread = threading.current_thread()
        if thread is not threading.main_thread() and not died:
            died.append(thread.name)
            raise SystemExit  # ends a thread without a word
        whole(self, *arguments)

    monkeypatch.setattr(copying._CopyingCall, "run_in", die_once)
    found, used = run(gemm, a, b)
    assert died
    assert used == 2
    assert np.array_equal(found, expected)
    assert len(engine.pool.threads) == 1
    found, used = run(gemm, a, b)
    assert used == 3
    assert np.array_equal(found, expected)
    assert len(engine.pool.threads) == 2


def test_what_fails_on_a_thread_is_done_by_the_caller_and_an_error_there_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = WasmtimeEngine()
    gemm, a, b, expected = large_enough(engine)
    whole = copying._CopyingCall.run_in

    def fail(self: Any, *arguments: Any) -> None:
        if everywhere or threading.current_thread() is not threading.main_thread():
            raise GemmError("a trap")
        whole(self, *arguments)

    monkeypatch.setattr(copying._CopyingCall, "run_in", fail)
    everywhere = False
    found, used = run(gemm, a, b)
    assert used == 1
    assert np.array_equal(found, expected)
    everywhere = True
    with pytest.raises(GemmError, match="a trap"):
        run(gemm, a, b)


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = WasmtimeEngine()
    gemm, a, b, expected = large_enough(engine)

    def refuse(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    found, used = run(gemm, a, b)
    assert used == 1
    assert np.array_equal(found, expected)
    monkeypatch.undo()
    assert run(gemm, a, b)[1] == 3


def test_no_thread_at_first_and_one_at_the_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = WasmtimeEngine()
    gemm, a, b, expected = large_enough(engine)
    start, asked = threading.Thread.start, []

    def refuse_once(self: Any) -> None:
        asked.append(self)
        if len(asked) == 1:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    assert np.array_equal(run(gemm, a, b)[0], expected)


def test_memory_for_one_thread_only_is_said_once_and_in_info() -> None:
    engine = WasmtimeEngine(memory_limit=3 << 20)
    a, b = normal(1, 64, 2000), normal(2, 2000, 64)
    gemm = CpuGemm(threads=2, engine=engine)
    make_room = engine.make_room
    made: list[str] = []

    def one_room(module: str) -> Any:
        if made:
            raise DeviceMemoryError("wasmtime cannot make a memory for the kernels: none left")
        made.append(module)
        return make_room(module)

    engine.make_room = one_room  # type: ignore[method-assign]
    with pytest.warns(RuntimeWarning, match="a product for several threads runs on one: .*none left"):
        found, used = run(gemm, a, b)
    assert used == 1
    assert np.array_equal(found, multiply(gemm_on(1), a, b, np.zeros((64, 64), np.float32)))
    assert "none left" in gemm.info["threads"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(gemm, a, b)[1] == 1


def test_memory_for_no_thread_leaves_everything_untouched() -> None:
    engine = WasmtimeEngine(memory_limit=1 << 20)
    gemm = CpuGemm(threads=2, engine=engine)
    a, b, d = normal(1, 600, 600), normal(2, 600, 600), np.full((600, 600), 5.0, np.float32)
    with pytest.raises(DeviceMemoryError, match="wasmtime cannot grow a memory"):
        gemm.prepare(problem_of(a, b, d))(address_of(a), address_of(b), 0, address_of(d), 0)
    assert np.all(d == 5.0)


def test_memory_that_has_grown_is_given_back() -> None:
    engine = WasmtimeEngine()
    a, b = np.ones((20_000_000, 1), np.float32), np.full((1, 1), 2.0, np.float32)
    found, used = run(CpuGemm(threads=2, engine=engine, family="gemm_f32_4x8_simd128"), a, b)
    assert used == 2
    assert np.all(found == 2.0)
    assert engine.memory_bytes() < copying.KEEP_BYTES


def test_several_callers_at_once() -> None:
    engine = WasmtimeEngine()
    gemm, a, b, expected = large_enough(engine)
    wrong: list[int] = []

    def work() -> None:
        for _ in range(30):
            found, used = run(gemm, a, b)
            if used != 3 or not np.array_equal(found, expected):
                wrong.append(used)

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
    assert len(engine.pool.threads) == 2


def test_awaited_calls_at_once() -> None:
    a, b = normal(1, 90, 70), normal(2, 70, 50)
    single, _ = on_threads(1, lambda: pg.matmul(a, b))
    pg.configure(threads=2)

    async def all_of_them() -> list[Array]:
        return list(await asyncio.gather(*(pg.matmul_async(a, b) for _ in range(10))))

    assert all(found.tobytes() == single.tobytes() for found in asyncio.run(all_of_them()))


def test_a_pool_waits_for_its_jobs_whatever_happens() -> None:
    pool, begun, release, finished = ThreadPool(), threading.Event(), threading.Event(), []

    def slow() -> None:
        begun.set()
        release.wait()
        finished.append(True)

    def interrupted() -> None:
        begun.wait()
        threading.Thread(target=release.set).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.run([interrupted, slow])
    assert finished
    assert pool.run([lambda: None, lambda: None]) == 2
    pool.stop()


class Interrupted:
    """Raises KeyboardInterrupt as soon as `method` of the object has done what it does, the first time only."""

    def __init__(self, inner: Any, method: str) -> None:
        self._inner, self._method, self._left = inner, method, 1

    def __getattr__(self, name: str) -> Any:
        whole = getattr(self._inner, name)

        def call(*arguments: Any, **more: Any) -> Any:
            found = whole(*arguments, **more)
            if name == self._method and self._left:
                self._left = 0
                raise KeyboardInterrupt
            return found

        return call


def test_an_interruption_while_a_thread_is_waited_for_loses_no_word_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, done = ThreadPool(), []
    pool.run([lambda: None, lambda: None])
    made: list[_Given] = []

    class Watched(_Given):
        def __init__(self, job: Any) -> None:
            super().__init__(job)
            if not made:
                self._over: Any = Interrupted(self._over, "acquire")
            made.append(self)

    monkeypatch.setattr("py_gemm.cpu.threads._Given", Watched)
    release = threading.Event()

    def slow() -> None:
        release.wait()
        done.append(True)

    with pytest.raises(KeyboardInterrupt):
        pool.run([lambda: threading.Timer(0.05, release.set).start(), slow])
    assert done
    assert pool.run([lambda: None, lambda: None]) == 2
    pool.stop()


def test_an_interruption_while_jobs_are_given_leaves_none_at_work() -> None:
    pool, done, release = ThreadPool(), [], threading.Event()
    pool.run([lambda: None, lambda: None])
    worker: Any = pool._workers[0]
    worker._jobs = Interrupted(worker._jobs, "put")

    def slow() -> None:
        release.wait()
        done.append("slow")

    threading.Timer(0.05, release.set).start()
    with pytest.raises(KeyboardInterrupt):
        pool.run([lambda: done.append("caller"), slow])
    assert done == ["slow"]
    assert pool.run([lambda: None, lambda: done.append("next")]) == 2
    assert done == ["slow", "next"]
    pool.stop()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_product_in_the_middle_of_another_on_the_same_thread(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a handler of a signal may make it: each has memory of its own, and the inner one gives it back."""
    engine = WasmtimeEngine()
    gemm, a, b, expected = large_enough(engine, threads)
    run(gemm, a, b)
    kept = engine.memory_bytes()
    whole = copying.Arrangement.copy_in
    inner: list[Any] = []

    def interrupted(self: Any, *arguments: Any) -> None:
        whole(self, *arguments)
        if threading.current_thread() is threading.main_thread() and not inner:
            inner.append(None)
            inner.append(run(gemm, a + 1, b)[0])

    monkeypatch.setattr(copying.Arrangement, "copy_in", interrupted)
    assert np.array_equal(run(gemm, a, b)[0], expected)
    monkeypatch.undo()
    assert np.array_equal(inner[1], run(gemm, a + 1, b)[0])
    assert engine.memory_bytes() == kept


def test_the_process_ends_with_idle_threads_and_without_a_word() -> None:
    code = """
import numpy as np, threading, py_gemm as pg
a = np.ones((300, 300), np.float32)
pg.configure(threads=3, device="cpu")
assert (pg.matmul(a, a) == 300).all()
assert pg.last_run().threads == 3, pg.last_run()
assert sum(thread.name.startswith("py_gemm") for thread in threading.enumerate()) == 2
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    code = """
import numpy as np, os, py_gemm as pg
a = np.ones((300, 300), np.float32)
pg.configure(threads=3, device="cpu")
pg.matmul(a, a)
child = os.fork()
assert (pg.matmul(a, a) == 300).all()
assert pg.last_run().threads == 3, pg.last_run()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_compiles_kernels_of_its_own(tmp_path: Path) -> None:
    """Also where the parent has compiled some: nothing is in the cache."""
    code = """
import numpy as np, os, signal, py_gemm as pg
a = np.ones((30, 30), np.float32)
pg.matmul(a, a, device="cpu")
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    signal.alarm(60)  # a child that waits for ever ends here
    assert (pg.int8_gemm(np.ones((30, 30), np.int8), np.ones((30, 30), np.int8), device="cpu") == 30).all()
"""
    surroundings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120, env=surroundings)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_waits_for_the_products_of_other_threads() -> None:
    code = """
import numpy as np, os, signal, threading, py_gemm as pg
from py_gemm import devices
a = np.ones((30, 30), np.float32)
pg.matmul(a, a, device="cpu")
lock = devices.cpu_device().gemm.engine.lock
begun, leave = threading.Event(), threading.Event()

def product():
    with lock:
        begun.set()
        leave.wait()

other = threading.Thread(target=product)
other.start()
begun.wait()
threading.Timer(0.05, leave.set).start()
child = os.fork()
if not child:
    signal.alarm(60)
assert (pg.matmul(a, a, device="cpu") == 30).all()
if child:
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
