"""Products in strips on threads, under wasmtime: the bits of one thread, whatever the row, the shape and what is done to sums."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from functools import cache
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
from py_gemm.cpu.threads import default_threads
from py_gemm.dtypes import INT8, INT32
from py_gemm.problem import Layout, Problem
from tests.cpu.support import FLOAT32_ROWS, ROW_NAMES, Array, address_of, multiply, problem_of
from tests.cpu.test_int8_kernels import INTEGER_ROWS, engine_for, exact, numbers

SHAPES = [(1, 1, 1), (1, 700, 300), (3, 257, 40), (13, 17, 33), (50, 90, 259), (131, 18, 70), (97, 101, 530)]
pytestmark = pytest.mark.usefixtures("every_product_on_threads")


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


def test_an_integer_product_in_the_middle_of_another_reads_zero_points_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are one prepared product. Without threads all strips are the caller's: the inner one comes amid the second."""
    random = np.random.default_rng(3)
    a, b = numbers(random, (90, 70), "int8"), numbers(random, (70, 50), "uint8")
    outer, inner = ((random.integers(-128, 128, (90, 1)), random.integers(0, 256, 50)) for _ in range(2))
    device, engine = devices.CpuDevice(), WasmtimeEngine()
    device.gemm = CpuGemm(threads=3, engine=engine)

    def product(zero_points: tuple[Array, Array]) -> Array:
        zero_a, zero_b = zero_points
        found: Array = pg.int8_gemm(a, b, zero_point_a=zero_a, zero_point_b=zero_b, device=device)
        return found

    def refuse(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    whole = copying.Arrangement.copy_in
    copied: list[Any] = []
    found: list[Array] = []

    def interrupted(self: Any, *arguments: Any) -> None:
        copied.append(self)
        if len(copied) == 2:
            found.append(product(inner))
        whole(self, *arguments)

    product(outer)
    engine.pool.stop()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(copying.Arrangement, "copy_in", interrupted)
    found.append(product(outer))
    assert len(copied) == 6
    assert np.array_equal(found[0], exact(a, b, *inner))
    assert np.array_equal(found[1], exact(a, b, *outer))


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
        (CpuGemm(threads=2, engine=engine), None, "gemm_i8_5x8_i16"),
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
