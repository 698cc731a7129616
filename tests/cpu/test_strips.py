"""Strips: every element of D in exactly one of them, operands found where they lie, cut at tiles; how many threads are worth it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_gemm.configuration import KNOBS
from py_gemm.cpu.engines import worker_strips
from py_gemm.cpu.engines.worker_strips import is_worth_it
from py_gemm.cpu.families import ROWS, Work, yields_to_widening
from py_gemm.cpu.packing import Packing
from py_gemm.cpu.plan import Plan, make_packing_plan, make_plan
from py_gemm.cpu.strips import COLUMNS_OF_A_LINE, Strip, count_threads, multiply_adds, split
from py_gemm.dtypes import FLOAT32, INT8
from py_gemm.int8_block import make_block, move_block
from py_gemm.problem import Layout, Problem
from py_gemm.requantize import Requantize
from tests.cpu.support import row_named

ROW = row_named("gemm_f32_6x8_relaxed")
SIZES = st.integers(1, 70)


def plan_of(m: int, n: int, k: int, batch: tuple[int, ...] = (), **more: Any) -> Plan:
    """D in rows; in a batch A and D have gaps between products, so that they do not merge into rows."""

    def strides(of_one: int) -> tuple[int, ...]:
        return tuple(int((of_one + 8) * np.prod(batch[index + 1 :])) for index in range(len(batch)))

    layouts = [Layout(FLOAT32, columns, 1, strides(rows * columns)) for rows, columns in ((m, k), (k, n), (m, n))]
    return make_plan(Problem(m, n, k, layouts[0], layouts[1], layouts[2], layouts[2], batch, 1.0, 1.0), **more)


def offsets(plan: Plan, of: str, index: tuple[int, ...], i: int, j: int) -> int:
    """Of an element, in bytes, by the plan's strides."""
    matrix = getattr(plan, of)
    return int(i * matrix.row + j * matrix.column + sum(at * step for at, step in zip(index, matrix.batch, strict=True)))


@given(
    SIZES, SIZES, st.integers(1, 40), st.lists(st.integers(1, 5), max_size=2), st.lists(st.floats(0.2, 5), min_size=2, max_size=6)
)
def test_every_element_is_in_one_strip_and_finds_its_operands(
    m: int, n: int, k: int, batch: list[int], shares: list[float]
) -> None:
    plan = plan_of(m, n, k, tuple(batch), has_bias=True)
    strips = split(plan, ROW, tuple(shares))
    assert 1 <= len(strips) <= len(shares)
    assert sum(multiply_adds(strip.plan) for strip in strips) == multiply_adds(plan)
    places = []
    for strip in strips:
        part = strip.plan
        assert (part.k, part.alpha, part.beta, part.has_bias) == (plan.k, plan.alpha, plan.beta, plan.has_bias)
        for index in np.ndindex(*part.batch):
            for i, j in {(0, 0), (part.m - 1, 0), (0, part.n - 1), (part.m - 1, part.n - 1)}:
                d = strip.d + offsets(part, "d", index, i, j)
                assert strip.c + offsets(part, "c", index, i, j) == d
                places.append((d, strip.a + offsets(part, "a", index, i, 0), strip.b + offsets(part, "b", index, 0, j), strip))
    by_place = {}
    for index in np.ndindex(*plan.batch):
        for i in range(plan.m):
            for j in range(plan.n):
                by_place[offsets(plan, "d", index, i, j)] = (
                    offsets(plan, "a", index, i, 0), offsets(plan, "b", index, 0, j), i * plan.bias_row + j * plan.bias_column
                )  # fmt: skip
    for d, a, b, strip in places:
        assert by_place[d][:2] == (a, b)
        assert strip.bias == strip.row * plan.bias_row + strip.column * plan.bias_column
    firsts = sorted(strip.d for strip in strips)
    assert len(set(firsts)) == len(strips)


def test_cuts_lie_at_tiles_and_along_the_longer_side() -> None:
    for m, n, longer in ((1000, 90, "row"), (90, 1000, "column"), (512, 512, "row")):
        strips = split(plan_of(m, n, 30), ROW, (1.0, 1.0, 1.0))
        cuts = [getattr(strip, longer) for strip in strips]
        unit = ROW.rows if longer == "row" else COLUMNS_OF_A_LINE
        assert len(strips) == 3
        assert all(cut % unit == 0 for cut in cuts)
        assert cuts == sorted(set(cuts))
        size = m if longer == "row" else n
        assert max(np.diff([*cuts, size])) - min(np.diff([*cuts, size])) <= 2 * unit


def test_few_rows_are_cut_by_columns_and_a_batch_by_products() -> None:
    few = split(plan_of(3, 500, 30), row_named("gemv_f32_4x8_relaxed"), (1.0, 1.0))
    assert [strip.column for strip in few] == [0, 256]
    batch = split(plan_of(40, 40, 40, (8,)), ROW, (1.0, 1.0))
    assert [strip.plan.batch for strip in batch] == [(4,), (4,)]
    odd = split(plan_of(400, 40, 40, (3,)), ROW, (1.0, 1.0))
    assert [strip.plan.batch for strip in odd] == [(3,), (3,)]
    assert [strip.row for strip in odd] == [0, 204]


def test_prepacked_operands_are_never_cut() -> None:
    a, b = Packing.of("a", ROW), Packing.of("b", ROW)
    assert [strip.row for strip in split(plan_of(200, 900, 40, packed_b=b), ROW, (1.0, 1.0))] == [0, 102]
    assert [strip.column for strip in split(plan_of(900, 200, 40, packed_a=a), ROW, (1.0, 1.0))] == [0, 96]
    both = plan_of(900, 200, 40, packed_a=a, packed_b=b)
    assert split(both, ROW, (1.0, 1.0)) == (Strip(both),)
    assert len(split(plan_of(9, 20, 40, (3,), packed_a=a, packed_b=b), ROW, (1.0, 1.0))) == 2
    packing = make_packing_plan(a, Layout(FLOAT32, 40, 1), 900, 40, ())
    assert split(packing, ROW, (1.0, 1.0)) == (Strip(packing),)
    assert multiply_adds(packing) == 0


@pytest.mark.parametrize(
    ("work", "limit", "threads"),
    [
        (7_999_999, 8, 1), (8_000_000, 8, 4), (8_000_000, 2, 2), (8_000_000, 1, 1), (1 << 40, 8, 8), (0, 8, 1), (15_999_999, 8, 7),
    ],
)  # fmt: skip
def test_how_many_threads_are_worth_it(work: int, limit: int, threads: int) -> None:
    gates = KNOBS["parallel_threshold"].default, KNOBS["par_mnk_per_worker"].default
    assert gates == (8_000_000, 2_000_000)
    assert count_threads(work, limit, *gates) == threads
    assert count_threads(multiply_adds(plan_of(1, 1, 1)), 8, 0, 1) == 1
    assert count_threads(multiply_adds(plan_of(128, 128, 128)), 8, *gates) == 1, "no loss at 128 cubed: one thread"


def test_which_products_are_worth_copying_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, worth in ((256, False), (320, False), (384, True), (1024, True)):
        assert is_worth_it(plan_of(size, size, size), 8 * size * size, 2) is worth
    assert not is_worth_it(plan_of(1, 4096, 4096), 4096 * 4096 * 2, 2), "a vector's product is all reading"
    monkeypatch.setattr(worker_strips, "MULTIPLY_ADDS_A_BYTE", 4.0)
    monkeypatch.setattr(worker_strips, "MULTIPLY_ADDS_A_CALL", 0)
    plan = plan_of(1000, 1000, 1000)
    assert is_worth_it(plan, 62_500_000, 2), "half of the work, and a quarter of its time for copying"
    assert not is_worth_it(plan, 62_500_001, 2)
    assert is_worth_it(plan, 125_000_000, 4)


def test_which_integer_products_leave_the_dot_rows() -> None:
    gate = KNOBS["small_parallel_mnk"].default
    assert gate == 768**3
    below, at = Work(768, 768, 767, True), Work(768, 768, 768, True)
    assert yields_to_widening(below, 2, False, gate)
    assert not yields_to_widening(at, 2, False, gate)
    assert not yields_to_widening(below, 1, False, gate)
    assert not yields_to_widening(below, 2, True, gate)
    assert not yields_to_widening(below, 2, False, 0)


def test_a_part_of_an_integer_product_reads_its_own_numbers() -> None:
    m, n = 6, 5
    rules = Requantize([[0.5 + i] for i in range(m)], 1, [10 * j for j in range(n)])
    whole = make_block("test", INT8, INT8, m, n, [[i] for i in range(m)], [20 + j for j in range(n)], rules)
    part = make_block("test", INT8, INT8, m - 2, n - 3, [[i] for i in range(2, m)], [20 + j for j in range(3, n)],
                      Requantize([[0.5 + i] for i in range(2, m)], 1, [10 * j for j in range(3, n)]))  # fmt: skip

    def seen(data: bytes, rows: int, columns: int) -> list[tuple[int, ...]]:
        words = np.frombuffer(data, np.uint32).tolist()
        return [
            (
                words[words[0] + i * words[1]], words[words[2] + j * words[3]],
                words[words[8] + i * words[9] + j * words[10]], words[words[11] + i * words[12] + j * words[13]],
            )
            for i in range(rows) for j in range(columns)
        ]  # fmt: skip

    assert seen(move_block(whole.data, 2, 3), m - 2, n - 3) == seen(part.data, m - 2, n - 3)
    assert move_block(whole.data, 0, 0) == whole.data
    plain = make_block("test", INT8, INT8, m, n, 3, -4)
    assert move_block(plain.data, 5, 4) == plain.data


def test_every_row_is_cut_at_its_own_tiles() -> None:
    for row in ROWS:
        for strip in split(plan_of(1200, 300, 8), row, (1.0, 1.3)):
            assert strip.row % row.rows == 0
            assert strip.column % row.columns == 0
