"""How contenders are timed, the loop they are held against, and the errors of their results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
import wasmtime

import py_gemm as pg
from py_gemm.report.benchmark import loop
from py_gemm.report.benchmark.clock import Contender, Entrant, Pace, interleaved
from py_gemm.report.benchmark.products import Product, Reference, cube, operands, wide
from py_gemm.report.benchmark.suite import Surroundings, measure_product, tokens


def entrant(name: str, seconds: Callable[[int], float], log: list[str]) -> Entrant:
    """A contender whose clock is made up: its i-th run takes seconds(i)."""
    runs = 0

    async def run(count: int) -> float:
        nonlocal runs
        log.append(name)
        runs += 1
        return seconds(runs)

    async def make() -> Contender:
        return Contender(name, run)

    return Entrant(name, "peer", make)


def test_all_take_turns_and_the_median_counts() -> None:
    log: list[str] = []
    seconds = [9.0, 9.0, 1.0, 5.0, 2.0]  # the first two warm up
    found = asyncio.run(
        interleaved(
            [entrant("a", lambda i: seconds[i - 1], log), entrant("b", lambda _: 3.0, log)], Pace(3, 3, 9.0), lambda _: None
        )
    )
    assert [each.median for each in found] == [2.0, 3.0]
    assert log == ["a", "a", "b", "b", "a", "b", "b", "a", "a", "b"]


def test_short_calls_are_warmed_again_before_each_turn() -> None:
    log: list[str] = []
    seconds = [0.09, 0.08, 0.07, 0.01, 0.07, 0.03, 0.07, 0.02]  # two to warm up, then one before each of three turns
    found = asyncio.run(
        interleaved(
            [entrant("a", lambda i: seconds[i - 1], log), entrant("b", lambda _: 3.0, log)], Pace(3, 3, 9.0), lambda _: None
        )
    )
    assert [each.seconds for each in found] == [[0.01, 0.03, 0.02], [3.0, 3.0, 3.0]]
    assert log == ["a", "a", "b", "b", "a", "a", "b", "b", "a", "a", "a", "a", "b"]


def test_slow_contenders_get_fewer_turns() -> None:
    log: list[str] = []
    found = asyncio.run(interleaved([entrant("slow", lambda _: 2.0, log)], Pace(9, 2, 1.0), lambda _: None))
    assert len(found[0].seconds) == 2


def test_who_fails_is_named_and_the_others_go_on() -> None:
    log: list[str] = []

    async def make() -> Contender:
        raise RuntimeError("no such luck\nand a long traceback")

    def breaks(i: int) -> float:
        if i == 4:
            raise ValueError("broke down")
        return 1.0

    contenders = [Entrant("absent", "peer", make), entrant("breaks", breaks, log), entrant("fine", lambda _: 1.0, log)]
    absent, broken, fine = asyncio.run(interleaved(contenders, Pace(3, 3, 9.0), lambda _: None))
    assert (absent.failure, absent.median) == ("no such luck", None)
    assert (broken.failure, broken.median) == ("broke down", None)
    assert (fine.failure, len(fine.seconds)) == ("", 3)


def test_progress_may_stop_it() -> None:
    class StoppedError(Exception):
        pass

    def stop(_: str) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        asyncio.run(interleaved([entrant("a", lambda _: 1.0, [])], Pace(3, 3, 9.0), stop))


@pytest.mark.parametrize("type_name", ["float32", "float64"])
def test_loop_adds_what_it_says(type_name: str) -> None:
    store: Any = wasmtime.Store()
    instance = wasmtime.Instance(store, wasmtime.Module(store.engine, loop.module(type_name)), [])
    run: Any = instance.exports(store)["loop"]
    start = sum(3 + 2 * (each + 1) for each in range(loop.SUMS))
    for steps in (1, 3):
        assert run(store, steps, 2.0, 3.0) == start + steps * loop.SUMS * 2 * 3
    assert loop.flops(type_name) == loop.STEPS * loop.SUMS * 2 * (16 // (8 if type_name == "float64" else 4))


@pytest.mark.parametrize(
    "product", [Product(7, 5, 9), Product(7, 5, 9, "float16", True), Product(40, 5, 9, "bfloat16"), cube(30, "int8")]
)
def test_errors_of_results(product: Product) -> None:
    a, b = operands(product)
    reference = Reference(product, a, b)
    left, right = (wide(each, product.type).astype(np.float64) for each in (a, b))
    right = right.T if product.transposed else right
    exact = left @ right
    assert reference.error(exact) == 0
    wrong = exact.copy()
    wrong[-1, -1] += 0.5 * np.abs(exact[reference.rows]).max()
    assert reference.error(wrong) == pytest.approx(1.0 if product.is_integer else 0.5)
    with pytest.raises(ValueError, match="elements"):
        reference.error(exact[:-1])


def test_operands_reach_the_ends_of_integers() -> None:
    a, _ = operands(cube(64, "uint8"))
    assert (a.min(), a.max(), a.dtype.name) == (0, 255, "uint8")


def test_tokens_come_from_the_table_of_kernels() -> None:
    assert {"relaxed", "simd128"} <= set(tokens("float32"))
    assert {"i16", "simd128"} <= set(tokens("int8"))


def test_a_product_that_a_library_gets_wrong_shows() -> None:
    class Wrong:
        def entrants(self, _road: str, product: Product, *_operands: Any) -> list[Entrant]:
            async def run(count: int) -> float:
                return 1.0

            async def make() -> Contender:
                return Contender("wrong", run, result=lambda: np.zeros((product.m, product.n), np.float32))

            return [Entrant("wrong", "peer", make)]

    around = Surroundings("quick", lambda _: None, Wrong())  # type: ignore[arg-type]
    row = _finished(measure_product(around, cube(8), "cpu"))
    errors = {each["name"]: each.get("error") for each in row["entries"]}
    assert errors["wrong"] == pytest.approx(1.0)
    assert errors["py_gemm"] < 1e-5
    assert errors["NumPy @"] < 1e-5


def _finished(waits: Awaitable[Any]) -> Any:
    async def wait() -> Any:
        return await waits

    return asyncio.run(wait())


@pytest.fixture(scope="module")
def cpu() -> pg.Benchmark:
    heard: list[str] = []
    found = pg.bench("cpu", extent="quick", progress=heard.append)
    assert any("NumPy @" in text for text in heard)
    return found


def test_small_run_on_the_cpu(cpu: pg.Benchmark) -> None:
    data = json.loads(cpu.to_json())
    rows = {each["id"]: each["entries"] for each in data["places"]["wasmtime"]["rows"]}
    assert {"products/float32 64³", "products/int8 64³", "vectors/float32 1 × 512 × 512", "one call/float32 64³"} <= rows.keys()
    for entries in rows.values():
        ours = entries[0]
        assert ours["seconds"] > 0
        assert len(ours["turns"]) >= 1
        assert ours["note"].startswith("gem")
    assert all(each["found"] is None for each in data["goals"] if "512" in each["goal"])
    assert rows["products/int8 64³"][0]["error"] == 0
    threads = {each["name"]: each for each in rows["threads/float32 64³"]}
    assert "seconds" in threads["1 thread"]
    assert ("seconds" in threads["2 threads"]) or "one thread only here" in threads["2 threads"]["failure"]


def test_knobs_are_as_before(cpu: pg.Benchmark) -> None:
    from py_gemm.configuration import knob

    assert knob("token") is None


def test_bench_says_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="quick, usual, full"):
        pg.bench("cpu", extent="forever")
    with pytest.raises(ValueError, match="unknown device kind"):
        pg.bench("abacus")
    with pytest.raises(pg.UnsupportedError):
        pg.bench("webgpu")


def test_small_run_on_a_native_gpu() -> None:
    figures = pg.bench("wgpu", extent="quick").places["wgpu"]
    ours = [row["entries"][0] for row in figures["rows"]]
    assert [each["name"] for each in ours] == ["py_gemm"] * 2
    assert all(each["error"] < 1e-6 and each["gpu_seconds"] > 0 for each in ours)
