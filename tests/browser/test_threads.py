"""Workers as threads of the CPU road, in a page and in a worker: bits of one thread, and what becomes of a product without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from py_gemm.cpu.families import EXACT_ROWS, ROWS
from scripts.bundle import pyodide_bundle
from scripts.server import STRICT, Headers, SiteServer
from scripts.site import Table
from tests.browser.harness import Addresses, PyodideHost, address_of, library_table

ISOLATED_HOSTS = ["pyodide_page", "pyodide_worker", "pyodide_csp"]

START = """
import asyncio, warnings
import numpy as np, py_gemm as pg
from py_gemm.cpu.gemm import CpuGemm
pg.configure(device="cpu", parallel_threshold=0, par_mnk_per_worker=1)
engine = pg.request_device("cpu").gemm.engine
pool = engine.workers
import py_gemm.cpu.engines.worker_strips as worker_strips
worker_strips.MULTIPLY_ADDS_A_BYTE = worker_strips.MULTIPLY_ADDS_A_CALL = 0

def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)

def run(a, b):
    "Bytes of the product, and on how many threads it was computed."
    found = pg.matmul(a, b)
    return found.tobytes(), pg.last_run().threads

def single(call):
    pg.configure(threads=1)
    found = call()
    assert pg.last_run().threads == 1
    return found

async def have(threads):
    pg.configure(threads=threads)
    await pg.request_device("cpu").gemm.threads_up(1 << 60)
    return pool.count_up

def done(value):
    pg.configure(device=None, parallel_threshold=None, par_mnk_per_worker=None, threads=None)
    worker_strips.MULTIPLY_ADDS_A_BYTE, worker_strips.MULTIPLY_ADDS_A_CALL = 3.5, 6_000_000
    return value

a, b = normal(1, 90, 300), normal(2, 300, 70)
"""


@pytest.fixture
def host(request: pytest.FixtureRequest) -> PyodideHost:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, PyodideHost)
    return found


ROWS_CODE = """
from py_gemm.cpu.families import ALL_ROWS
from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32
from py_gemm.errors import UnsupportedError
from py_gemm.problem import Layout, Problem

kinds = {FLOAT16: np.float16, FLOAT32: np.float32, FLOAT64: np.float64}
half_a_step = {BFLOAT16: 2**-8, FLOAT16: 2**-11, FLOAT32: 0, FLOAT64: 0}

def stored(values, kind):
    if kind is BFLOAT16:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(values, kinds[kind])

def real(array, kind):
    return ((array.astype(np.uint32) << 16).view(np.float32) if kind is BFLOAT16 else array).astype(np.float64)

ran = []
await have(3)
for row in ALL_ROWS:
    if row.accumulator is INT32 or row.family == "gemm_limbs":
        continue
    for m, n, k in ((1, 700, 300), (3, 257, 40), (13, 17, 33), (50, 90, 259), (131, 18, 70)):
        kind = row.inputs or (FLOAT32 if row.exact else row.accumulator)
        into = row.output or kind
        x, y = (stored(each, kind) for each in (normal(3, m, k), normal(4, k, n)))
        results, used = [], []
        for threads in (1, 2, 3):
            gemm = CpuGemm(family=row.name, threads=threads, engine=engine)
            d = stored(np.zeros((m, n)), into)
            call = gemm.prepare(Problem(m, n, k, Layout(kind, k, 1), Layout(kind, n, 1), Layout(into, n, 1)), exact=row.exact)
            used.append(call(x.ctypes.data, y.ctypes.data, 0, d.ctypes.data, 0))
            results.append(d.tobytes())
        assert len(set(results)) == 1, (row.name, m, n, k)
        product = real(x, kind) @ real(y, kind)
        assert np.allclose(real(d, into), product, rtol=half_a_step[into], atol=1e-4), (row.name, m, n, k)
        if m * n * k > 200_000:
            assert used == [1, 2, 3], (row.name, m, n, k, used)
    ran.append(row.name)
done(ran)
"""


@pytest.mark.parametrize("host", ISOLATED_HOSTS, indirect=True)
def test_every_row_has_the_bits_of_one_thread(host: PyodideHost) -> None:
    ran = host.run(START + ROWS_CODE)
    assert ran == [row.name for row in (*ROWS, *EXACT_ROWS) if row.accumulator.name != "int32"]


ROADS_CODE = """
c, bias = normal(3, 90, 70), normal(4, 70)
packed_a, packed_b = pg.prepack(a, side="a"), pg.prepack(b)
x, y = (normal(5, 60, 300) * 50).astype(np.int8), (normal(6, 300, 80) * 50).astype(np.int8).view(np.uint8)
zeros_a, zeros_b = np.arange(60)[:, None] - 30, np.arange(80)
rules = pg.Requantize((np.arange(60)[:, None] + 1) / 2**16, 3, (np.arange(80) * 100).tolist())
updated = []

def update():
    target = c.copy()
    return pg.gemm(a, b, target, beta=1.5, out=target)

calls = {
    "float16": lambda: pg.matmul(a.astype(np.float16), b.astype(np.float16)),
    "float64": lambda: pg.matmul(a.astype(np.float64), b),
    "everything": lambda: pg.gemm(a, b, c, alpha=0.3, beta=2.3, bias=bias, activation="gelu_erf"),
    "transposed": lambda: pg.gemm(b, a, transpose_a=True, transpose_b=True),
    "views": lambda: pg.matmul(a[::-1, ::2], b[::2, ::-3]),
    "in place": update,
    "by columns": lambda: pg.matmul(a, b, out=np.zeros((70, 90), np.float32).T),
    "exact": lambda: pg.matmul(a, b, mode="exact"),
    "deterministic": lambda: pg.matmul(a, b, mode="deterministic"),
    "batch": lambda: pg.matmul(normal(7, 6, 40, 30), normal(8, 6, 30, 50)),
    "batch of three": lambda: pg.matmul(normal(7, 3, 40, 30), normal(8, 3, 30, 50)),
    "shared": lambda: pg.matmul(normal(7, 40, 30), normal(8, 6, 30, 50)),
    "prepacked a": lambda: pg.matmul(packed_a, b),
    "prepacked b": lambda: pg.matmul(a, packed_b),
    "int8": lambda: pg.int8_gemm(x, y, zero_point_a=zeros_a, zero_point_b=zeros_b),
    "requantized": lambda: pg.int8_gemm(x, y, zero_point_a=zeros_a, zero_point_b=zeros_b, requantize=rules),
}
sums = (x.astype(np.int64) - zeros_a) @ (y.astype(np.int64) - zeros_b)
used = {}
await have(3)
for name, call in calls.items():
    expected = single(call)
    if name == "int8":
        assert np.array_equal(expected, sums)
    used[name] = []
    for threads in (2, 3):
        pg.configure(threads=threads)
        assert call().tobytes() == expected.tobytes(), name
        used[name].append(pg.last_run().threads)
done(used)
"""


@pytest.mark.parametrize("host", ["pyodide_page", "pyodide_worker"], indirect=True)
def test_front_door_has_the_bits_of_one_thread(host: PyodideHost) -> None:
    used = host.run(START + ROADS_CODE)
    assert {name: threads for name, threads in used.items() if threads != [2, 3]} == {}


def test_a_pyodide_without_numpy_has_threads_too(pyodide_npm: PyodideHost) -> None:
    code = """
import array
from py_gemm.configuration import configure
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.dtypes import FLOAT32
from py_gemm.problem import Layout, Problem
configure(parallel_threshold=0, par_mnk_per_worker=1)
m = 100
a, b = array.array("f", [(7 * at) % 13 / 8 for at in range(m * m)]), array.array("f", [(5 * at) % 11 / 8 for at in range(m * m)])
results = []
for threads in (1, 2):
    gemm = CpuGemm(threads=threads)
    await gemm.threads_up(1 << 60)
    d = array.array("f", bytes(4 * m * m))
    gemm.run(Problem(m, m, m, *[Layout(FLOAT32, m, 1)] * 3), a, b, None, d)
    results.append(d.tobytes())
configure(parallel_threshold=None, par_mnk_per_worker=None)
[results[0] == results[1], CpuGemm(threads=2).info["threads"], sum(a[s] * b[s * m] for s in range(m)) == d[0]]
"""
    same, words, right = pyodide_npm.run(code)
    assert same
    assert right
    assert words.startswith("2 (by argument; workers on shared memory; workers that are up: 1")


# ---- life of the workers ----


@pytest.mark.parametrize("host", ["pyodide_page", "pyodide_worker"], indirect=True)
def test_a_synchronous_first_product_runs_on_one_thread_and_starts_the_workers(host: PyodideHost) -> None:
    """The caller's turn of the event loop must not be needed for a result; a call that is awaited waits for the workers."""
    first = host.run_sync_entry(START + "pool.stop()\npg.configure(threads=2)\nrun(a, b)[1]")
    assert first == 1
    code = """
expected = single(lambda: pg.matmul(a, b)).tobytes()
pg.configure(threads=2)
found = await pg.matmul_async(a, b)
done([found.tobytes() == expected, pg.last_run().threads, run(a, b)[1], pg.info().to_dict()["cpu"]["threads"]])
"""
    same, awaited, after, words = host.run(START + code)
    assert same
    assert (awaited, after) == (2, 2)
    assert words.startswith("2 (by the knob threads; workers on shared memory; workers that are up: ")


def settle(page: Page, count: int) -> None:
    """Return once the page has no more than `count` workers."""
    while len(page.workers) > count:
        page.evaluate("0")  # lets what has happened arrive


def test_a_worker_that_is_killed_loses_no_strip_and_is_replaced(pyodide_page: PyodideHost) -> None:
    pyodide_page.run(START + "pool.stop()\ndone(0)")
    settle(pyodide_page.page, 0)
    before = "expected = single(lambda: pg.matmul(a, b)).tobytes()\nawait have(3)\n"
    code = "found = run(a, b) == (expected, 3)\npool._workers[1].terminate()\ndone(found)"
    assert pyodide_page.run(START + before + code)
    settle(pyodide_page.page, 1)
    code = "pg.configure(threads=3)\nwithout = run(a, b)\ndone([without[0] == expected, without[1], len(pool._workers)])"
    assert pyodide_page.run(START + before.replace("await have(3)", "") + code) == [True, 1, 0]
    assert pyodide_page.run(START + before + "done(run(a, b) == (expected, 3))")


def test_a_worker_that_does_not_answer_is_not_waited_for_for_ever(pyodide_worker: PyodideHost) -> None:
    """The same where Python may wait: a worker that has left its loop, and seems to be there."""
    code = """
from js import Atomics
expected = single(lambda: pg.matmul(a, b)).tobytes()
await have(3)
GO, DONE, UP = 16, 17, 18
Atomics.store(pool._words, UP, 0)
pool._wake_up(1)
while Atomics.load(pool._words, DONE) != Atomics.load(pool._words, GO):
    pass
Atomics.store(pool._words, UP, 1)
without = run(a, b)
gone = len(pool._workers)
await have(3)
done([without[0] == expected, without[1], gone, run(a, b) == (expected, 3)])
"""
    assert pyodide_worker.run(START + code) == [True, 1, 0, True]


@pytest.mark.expects_console("a kernel cannot run in this worker")
def test_a_kernel_that_fails_in_a_worker_is_computed_by_the_caller(pyodide_page: PyodideHost) -> None:
    code = """
expected = single(lambda: pg.matmul(a, b)).tobytes()
await have(2)
broken = pool.place_kernel
pool.place_kernel = lambda row: (*broken(row)[:3], *pool._keep(b"no such kernel"))
found = run(a, b)
del pool.place_kernel
words = pg.info().to_dict()["cpu"]["threads"]
pool.trouble = ""
await have(2)
done([found[0] == expected, found[1], words, run(a, b) == (expected, 2)])
"""
    right, used, words, healed = pyodide_page.run(START + code)
    assert (right, used, healed) == (True, 1, True)
    assert "a worker could not run a kernel" in words


def test_stop_ends_every_worker(pyodide_page: PyodideHost) -> None:
    pyodide_page.run(START + "pool.stop()\ndone(0)")
    settle(pyodide_page.page, 0)
    pyodide_page.run(START + "await have(4)\ndone(0)")
    assert len(pyodide_page.page.workers) == 3
    pyodide_page.run(START + "pool.stop()\ndone(0)")
    settle(pyodide_page.page, 0)


@pytest.mark.parametrize("host", ["pyodide_page", "pyodide_worker"], indirect=True)
def test_awaited_products_at_once(host: PyodideHost) -> None:
    code = """
expected = single(lambda: pg.matmul(a, b)).tobytes()
pg.configure(threads=3)
results = await asyncio.gather(*(pg.matmul_async(a, b) for _ in range(12)))
done([all(each.tobytes() == expected for each in results), pg.last_run().threads])
"""
    assert host.run(START + code) == [True, 3]


AMID_CODE = """
from py_gemm.cpu.engines import browser
x, y = (normal(5, 60, 300) * 50).astype(np.int8), (normal(6, 300, 80) * 50).astype(np.int8)
outer, inner = np.arange(60)[:, None] - 30, np.arange(60)[::-1, None] - 20
sums = [(x.astype(np.int64) - zeros) @ y.astype(np.int64) for zeros in (outer, inner)]
found = []

def product(zeros):
    return pg.int8_gemm(x, y, zero_point_a=zeros)

def interrupted(whole):
    "What it does, and then another product, the first time only."
    def call(*arguments):
        done = whole(*arguments)
        if not found:
            found.append(None)
            found[0] = product(inner)
        return done
    return call

class Addresses:
    pack_into = staticmethod(interrupted(browser.ADDRESSES.pack_into))

right, used = [], []

def judge():
    found.append(product(outer))  # all is decided and bound, the dot product looked for
    found.clear()
    found.append(product(outer))
    right.append([bool(np.array_equal(each, sum)) for each, sum in zip(found, sums[::-1], strict=True)])
    used.append(pg.last_run().threads)
    found.clear()

await have(3)
for threads in (1, 3):
    kept, browser.ADDRESSES = browser.ADDRESSES, Addresses
    pg.configure(threads=threads)
    judge()
    browser.ADDRESSES = kept
pg.configure(threads=3)  # forgets what was bound to them
for name in ("write", "give", "wait"):
    kept = getattr(pool, name)
    setattr(pool, name, interrupted(kept))
    judge()
    setattr(pool, name, kept)
done([right, used])
"""


@pytest.mark.parametrize("host", ["pyodide_page", "pyodide_worker"], indirect=True)
def test_a_product_in_the_middle_of_another_leaves_it_alone(host: PyodideHost) -> None:
    """As a handler of a signal may make it: between the addresses and the kernel, and between any two steps with the workers."""
    right, used = host.run(START + AMID_CODE)
    assert right == [[True, True]] * 5
    assert used == [1, 3, 3, 3, 3]


@pytest.mark.parametrize("host", ["pyodide_page"], indirect=True)
def test_shared_memory_that_cannot_be_had_is_said_once(host: PyodideHost) -> None:
    """At the start, and when it would have to grow: the product is right on one thread."""
    code = """
from pyodide.code import run_js
expected = single(lambda: pg.matmul(a, b)).tobytes()
pool.stop()
run_js("globalThis.wholeMemory = WebAssembly.Memory; WebAssembly.Memory = function (limits) {"
       "  if (limits.shared) throw new RangeError('no room for it'); return new wholeMemory(limits); }")
pg.configure(threads=2)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    found = [run(a, b), run(a, b)]
words = [str(each.message) for each in told]
info = pg.info().to_dict()["cpu"]["threads"]
run_js("WebAssembly.Memory = wholeMemory")
pool.trouble = ""

await have(2)
whole = pool.reserve
def refuse(nbytes):
    from py_gemm.errors import DeviceMemoryError
    raise DeviceMemoryError("shared memory cannot grow")
pool.reserve = refuse
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    found += [run(a, b), run(a, b)]
words += [str(each.message) for each in told]
info_grown = pg.info().to_dict()["cpu"]["threads"]
del pool.reserve
engine._memory_trouble = ""
done([[each[0] == expected for each in found], [each[1] for each in found], words, info, info_grown, run(a, b)[1]])
"""
    right, used, words, info, info_grown, after = host.run(START + code)
    assert right == [True] * 4
    assert used == [1] * 4
    assert len(words) == 2
    assert "no room for it" in words[0]
    assert "shared memory cannot grow" in words[1]
    assert info.startswith("1 (by the knob threads; workers cannot be started: ")
    assert "shared memory cannot grow" in info_grown
    assert after == 2


def test_a_large_product_gives_its_memory_back(pyodide_page: PyodideHost) -> None:
    code = """
kept, worker_strips.KEEP_SHARED_BYTES = worker_strips.KEEP_SHARED_BYTES, 1 << 20
await have(2)
big = np.ones((700, 700), np.float32)
found = pg.matmul(big, big)
after = [bool((found == 700).all()), pg.last_run().threads, pool.nbytes]
worker_strips.KEEP_SHARED_BYTES = kept
await have(2)
done([*after, run(a, b)[1]])
"""
    assert pyodide_page.run(START + code) == [True, 2, 0, 2]


# ---- surroundings ----


def test_without_isolation_there_is_one_thread_and_info_says_why(pyodide_plain: PyodideHost) -> None:
    code = "await have(2)\nfound = run(a, b)[1]\ndone([found, pg.info().to_dict()['cpu']['threads']])"
    used, words = pyodide_plain.run(START + code)
    assert used == 1
    assert words.startswith("1 (by the knob threads; the page is not cross-origin isolated")


@pytest.mark.expects_console("Content Security Policy")
def test_without_leave_for_workers_there_is_one_thread_and_info_says_why(
    make_host: Callable[..., PyodideHost], browser: Browser, start_server: Callable[[Table, Headers], SiteServer], wheel: Any
) -> None:
    policy = STRICT["Content-Security-Policy"].replace("worker-src 'self'", "worker-src 'none'")
    server = start_server(library_table(wheel, pyodide_bundle()), {**STRICT, "Content-Security-Policy": policy})
    host = make_host(browser, address_of(server), registered=True)
    code = """
found = [run(a, b)[1]]
await have(2)
found.append(run(a, b)[1])
done([found, pg.info().to_dict()["cpu"]["threads"], run(a, b)[0] == single(lambda: pg.matmul(a, b)).tobytes()])
"""
    used, words, right = host.run(START + "pg.configure(threads=2)\n" + code)
    assert used == [1, 1]
    assert right
    assert words.startswith("1 (by the knob threads; the page does not let workers start")
    host.page.context.close()


def test_the_cores_of_the_page_are_the_default(pyodide_page: PyodideHost) -> None:
    code = "import js\nfrom py_gemm.cpu.threads import default_threads\n[default_threads(), js.navigator.hardwareConcurrency]"
    threads, cores = pyodide_page.run(code)
    assert threads == min(8, cores)


def test_the_script_lies_beside_the_bridge(pyodide_csp: PyodideHost, library: Addresses) -> None:
    found = pyodide_csp.run("import py_gemm_bridge\npy_gemm_bridge.threadScript")
    assert found == f"{library.csp_url}repository/web/thread.js"
