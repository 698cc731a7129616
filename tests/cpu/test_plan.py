"""Plans, argument blocks and transfers: pure decisions, checked against NumPy's own idea of strides."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_gemm.cpu.arguments import ADDRESSES, VERSION, argument_bytes, pack_arguments
from py_gemm.cpu.blocking import FIXED_BYTES, block
from py_gemm.cpu.engines.host_memory import line_view
from py_gemm.cpu.kernels import build
from py_gemm.cpu.plan import make_plan
from py_gemm.cpu.transfer import plan_transfer
from py_gemm.dtypes import FLOAT16, FLOAT32, FLOAT64
from py_gemm.problem import Layout, Problem
from tests.cpu.support import row_named


def dense(m: int, n: int, k: int, batch: tuple[int, ...] = (), **more: Any) -> Problem:
    def steps(size: int) -> tuple[int, ...]:
        return tuple(int(np.prod(batch[index + 1 :], dtype=int)) * size for index in range(len(batch)))

    layouts = [Layout(FLOAT32, k, 1, steps(m * k)), Layout(FLOAT32, n, 1, steps(k * n)), Layout(FLOAT32, n, 1, steps(m * n))]
    a, b, d = layouts
    return Problem(m, n, k, a, b, d, batch=batch, **more)


def test_batch_dimensions_merge() -> None:
    plan = make_plan(dense(3, 4, 5, (2, 6)))
    assert plan.batch == (12,)
    assert plan.a.batch == (60,)


def test_a_batch_that_shares_b_becomes_rows() -> None:
    problem = dense(3, 7, 5, (2, 6))
    shared = Problem(3, 7, 5, problem.a, Layout(FLOAT32, 7, 1, (0, 0)), problem.d, batch=(2, 6))
    plan = make_plan(shared)
    assert (plan.m, plan.batch) == (36, ())


def test_vectors_that_share_b_become_rows_whatever_their_strides() -> None:
    problem = Problem(
        1, 8, 5, Layout(FLOAT32, 77, 1, (9,)), Layout(FLOAT32, 8, 1, (0,)), Layout(FLOAT32, 55, 1, (13,)), batch=(7,)
    )  # fmt: skip
    plan = make_plan(problem)
    assert (plan.m, plan.a.row, plan.d.row, plan.batch) == (7, 36, 52, ())


def test_a_batch_with_gaps_that_shares_b_stays_a_batch() -> None:
    problem = Problem(
        3, 4, 5, Layout(FLOAT32, 5, 1, (16,)), Layout(FLOAT32, 4, 1, (0,)), Layout(FLOAT32, 4, 1, (12,)), batch=(7,)
    )  # fmt: skip
    plan = make_plan(problem)
    assert (plan.m, plan.batch) == (3, (7,))


def test_a_result_stored_by_columns_swaps_the_operands() -> None:
    problem = Problem(3, 4, 5, Layout(FLOAT32, 5, 1), Layout(FLOAT16, 4, 1), Layout(FLOAT32, 1, 3))
    plan = make_plan(problem)
    assert plan.swapped
    assert (plan.m, plan.n) == (4, 3)
    assert plan.a.type is FLOAT16
    assert (plan.a.row, plan.a.column, plan.d.row, plan.d.column) == (2, 8, 12, 4)
    with_bias = make_plan(problem, has_bias=True)
    assert (with_bias.swapped, with_bias.bias_row, with_bias.bias_column) == (True, 4, 0), "the bias goes with its columns"


def test_few_columns_become_few_rows() -> None:
    for n, swapped in ((1, True), (4, True), (5, False)):
        plan = make_plan(dense(9, n, 6))
        assert (plan.m, plan.n, plan.swapped) == ((n, 9, True) if swapped else (9, n, False))
    assert not make_plan(dense(3, 2, 6)).swapped, "few rows already"
    with_bias = make_plan(dense(9, 2, 6), has_bias=True)
    assert (with_bias.bias_row, with_bias.bias_column) == (4, 0)


def test_products_with_a_bias_of_rows_stay_products() -> None:
    """D by columns and a shared A: the rows of the swapped product are the columns that the bias belongs to."""
    problem = Problem(6, 5, 7, Layout(FLOAT32, 7, 1, (0,)), Layout(FLOAT32, 1, 7, (35,)), Layout(FLOAT32, 1, 6, (30,)), batch=(2,))
    assert (make_plan(problem).m, make_plan(problem).batch) == (10, ())
    plan = make_plan(problem, has_bias=True)
    assert (plan.swapped, plan.m, plan.batch, plan.bias_row) == (True, 5, (2,), 4)


def test_no_product_reads_no_operands_and_beta_zero_no_c() -> None:
    c = Layout(FLOAT32, 4, 1)
    assert make_plan(dense(3, 4, 5, alpha=0.0)).k == 0
    assert make_plan(dense(3, 4, 5, c=c, beta=0.0)).c is None
    assert make_plan(dense(3, 4, 5, c=c, beta=0.5)).c is not None


def test_argument_block_agrees_with_the_header() -> None:
    """The offsets that arguments.h asserts hold in the packed block, and its constants are those of Python."""
    header = Path(build.HERE, "arguments.h").read_text()
    plan = make_plan(Problem(3, 4, 5, Layout(FLOAT16, 5, 1), Layout(FLOAT64, 4, -1), Layout(FLOAT32, 4, 1), None, (), 2.5, 0.0))
    packed = pack_arguments(plan, block(row_named("gemm_f64_4x4_simd128"), 3, 4, 5))
    (at_alpha,) = re.findall(r"Arguments, alpha\) == (\d+)", header)
    (at_batch,) = re.findall(r"Arguments, batch\) == (\d+)", header)
    assert np.frombuffer(packed, "<f8", 1, int(at_alpha))[0] == 2.5
    assert argument_bytes(plan) == len(packed) == int(at_batch)
    words = np.frombuffer(packed, "<u4")
    assert list(words[ADDRESSES.size // 4 :][:4]) == [VERSION, 3, 4, 5]
    assert words[20 + 3] == 2**32 - 8, "strides are bytes modulo 2^32"
    assert f"SCRATCH_FIXED = {FIXED_BYTES}" in header
    assert f"ARGUMENTS_VERSION = {VERSION} " in header


@st.composite
def strided_arrays(draw: st.DrawFn) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    """A view of distinct numbers with any strides that keep its elements apart."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    order = draw(st.permutations(range(len(sizes))))
    room = [size * draw(st.integers(1, 3)) + draw(st.integers(0, 2)) for size in sizes]
    whole = np.arange(int(np.prod(room)), dtype=np.uint16).reshape([room[axis] for axis in order])
    view = whole.transpose([order.index(axis) for axis in range(len(sizes))])
    slices = []
    for size, length in zip(sizes, room, strict=True):
        step = draw(st.integers(1, max(1, length // size)))
        taken = slice(0, (size - 1) * step + 1, step)
        slices.append(taken)
    view = view[tuple(slices)]
    flips = tuple(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in sizes)
    return view[flips]


@given(strided_arrays(), st.booleans())
def test_transfer_carries_every_element_to_where_its_strides_say(
    array: np.ndarray[tuple[int, ...], np.dtype[np.uint16]], may_copy_gaps: bool
) -> None:
    transfer = plan_transfer(2, array.shape, array.strides, may_copy_gaps=may_copy_gaps)
    address = array.__array_interface__["data"][0]
    engine = np.full(transfer.nbytes, 0xEE, np.uint8)
    inside = engine.__array_interface__["data"][0]
    for line in transfer.lines():
        items = line_view(address + line.host, transfer.items, transfer.item, transfer.step).tobytes()
        ctypes.memmove(inside + line.engine, items, len(items))
    offsets = sum(
        (np.arange(size).reshape([-1 if axis == index else 1 for axis in range(array.ndim)]) * stride)
        for index, (size, stride) in enumerate(zip(array.shape, transfer.strides, strict=True))
    )
    starts = np.broadcast_to(np.asarray(offsets) + transfer.origin, array.shape)
    assert starts.min() >= 0
    assert starts.max() + 2 <= transfer.nbytes
    found = engine[starts].astype(np.uint16) | engine[starts + 1].astype(np.uint16) << 8
    assert np.array_equal(found, array)
    if not may_copy_gaps:
        assert transfer.nbytes == array.size * 2, "an output lies dense, so that nothing between its elements is written"


def test_transfer_of_a_repeated_element_copies_it_once() -> None:
    transfer = plan_transfer(4, (1000, 1000), (0, 0), may_copy_gaps=True)
    assert transfer.nbytes == 4


def test_transfer_of_a_sparse_input_does_not_copy_its_gaps() -> None:
    transfer = plan_transfer(4, (10, 10), (400_000, 4), may_copy_gaps=True)
    assert transfer.nbytes == 400
    assert len(list(transfer.lines())) == 10


@pytest.mark.parametrize(
    ("sizes", "strides", "lines"),
    [
        ((10, 100_000), (800_000, 4), 10),  # half of the columns, as a strip has them
        ((5, 100, 250), (200_000, 1000, 4), 5),  # every second matrix
        ((1000, 1000), (8000, 4), 1),
        ((25, 1000, 10), (160_000, 80, 4), 1),  # of every second matrix, half of the columns
    ],
)
def test_transfer_of_an_input_does_not_copy_long_gaps(sizes: tuple[int, ...], strides: tuple[int, ...], lines: int) -> None:
    transfer = plan_transfer(4, sizes, strides, may_copy_gaps=True)
    assert len(list(transfer.lines())) == lines
    if lines > 1:
        assert transfer.nbytes == 4 * np.prod(sizes)


@pytest.mark.parametrize("pace", [1, 2, 7])
def test_line_view_steps_over_gaps(pace: int) -> None:
    numbers = np.arange(40, dtype=np.uint32)
    view = line_view(numbers.__array_interface__["data"][0], 5, 4, 4 * pace)
    assert list(view) == list(numbers[: 5 * pace : pace])
