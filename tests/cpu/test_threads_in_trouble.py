"""What befalls threads: they die, none is to be had, memory runs out, the process forks or ends, several callers come at once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import py_gemm as pg
from py_gemm.cpu.engines import copying
from py_gemm.cpu.engines.wasmtime import WasmtimeEngine
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.cpu.threads import ThreadPool, _Given
from py_gemm.errors import DeviceMemoryError, GemmError
from tests.cpu.support import Array, address_of, multiply, problem_of
from tests.cpu.test_threads import gemm_on, normal, on_threads

pytestmark = pytest.mark.usefixtures("every_product_on_threads")


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
    a, b = np.ones((copying.KEEP_BYTES // 8 + 1000, 1), np.float32), np.full((1, 1), 2.0, np.float32)  # two rooms keep half each
    found, used = run(CpuGemm(threads=2, engine=engine, family="gemm_f32_4x8_simd128"), a, b)
    assert used == 2
    assert np.all(found == 2.0)
    assert engine.memory_bytes() < copying.KEEP_BYTES


def test_products_on_several_threads_leave_the_memory_of_one_thread_as_it_is() -> None:
    """A large memory is dear to get anew; it stays where all of them together are small enough."""
    engine = WasmtimeEngine()
    row, b = np.ones((1, 64), np.float32), np.ones((64, copying.KEEP_BYTES // 384), np.float32)  # 64 of its 384 parts an element
    alone = CpuGemm(threads=1, engine=engine, family="gemv_f32")
    run(alone, row, b)
    large = engine.room("relaxed", 0)
    assert copying.KEEP_BYTES / 2 < large.nbytes < copying.KEEP_BYTES
    gemm, x, y, expected = large_enough(engine)
    assert np.array_equal(run(gemm, x, y)[0], expected)
    assert engine.room("relaxed", 0) is large


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
