"""The compact cross: shapes x alpha x beta x arrangements x threads x every float row, each result bit for bit what its row states.

The reference shares no code with a kernel: small integers are summed exactly in float64, real numbers by the order that the row
states (exact/orders.py); alpha, beta, C and the roundings follow finish.h, step by step in NumPy. A fraction is drawn with a fixed
seed; `npm run soak` takes all of it. A failure's text is the case: `check(Cross(...))` runs it again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_gemm.cpu.engines.wasmtime import WasmtimeEngine
from py_gemm.cpu.families import ROWS
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.exact import orders
from tests.cpu.support import (
    HALF_ROWS,
    LAYOUTS,
    NUMPY_TYPES,
    ROW_NAMES,
    Array,
    address_of,
    every_product_is_worth_a_thread,
    frame_is_whole,
    framed,
    gemm_of,
    laid_out,
    multiply,
    problem_of,
    row_named,
    small_integers,
)

NAMES = [*ROW_NAMES, *HALF_ROWS]
SCALARS = (0.0, 1.0, 2.3)
# Of A, B, C and D.
ARRANGEMENTS = [("plain",) * 4, ("transposed", "plain", "plain", "transposed"), ("plain", "transposed", "reversed", "spread"),
                ("spread", "reversed", "transposed", "plain"), ("reversed", "spread", "spread", "reversed")]  # fmt: skip
# The counts that CpuGemm(threads=...) takes.
THREADS = (1, 2)
SAMPLE = 40  # cases of each row in an ordinary run


def shapes() -> list[tuple[int, int, int]]:
    """Thirty: sizes of nothing, of one, odd ones, and around the tiles, chains and groups of the table."""
    tiles = sorted({(row.rows, row.columns) for row in map(row_named, NAMES)})
    chain = max(row.order.longest_chain for row in map(row_named, NAMES))
    nothing = [(0, 5, 3), (5, 0, 3), (5, 3, 0), (0, 0, 0)]
    ones = [(1, 1, 1), (1, 9, 5), (9, 1, 5), (9, 5, 1)]
    odd = [(3, 3, 3), (13, 17, 19), (31, 5, 33)]
    tails = [(rows + more, columns + less, 8 + more) for rows, columns in tiles for more, less in ((0, 0), (1, -1), (-1, 1))]
    blocks = [(2 * rows + 1, 3 * columns - 1, 21) for rows, columns in (tiles[0], tiles[-1])]
    depths = [(6, 9, k) for k in (chain - 1, chain, chain + 1, 2 * chain + 3)] + [(20, 18, 300)]
    return list(dict.fromkeys(nothing + ones + odd + tails + blocks + depths))


SHAPES = shapes()


@pytest.fixture(autouse=True, scope="module")
def on_threads() -> Iterator[None]:
    with every_product_is_worth_a_thread():
        yield


def test_there_are_thirty_shapes_with_the_tails_of_every_tile() -> None:
    assert len(SHAPES) == 30
    for row in (row for row in ROWS if row.name in NAMES):
        assert {m % row.rows for m, _, _ in SHAPES} >= {0, 1, row.rows - 1}
        assert {n % row.columns for _, n, _ in SHAPES} >= {0, 1, row.columns - 1}
        assert {k % 2 for _, _, k in SHAPES} == {0, 1}


@dataclass(frozen=True)
class Cross:
    name: str
    shape: tuple[int, int, int]
    alpha: float
    beta: float
    arrangement: tuple[str, ...]
    threads: int
    data: str


def cases(name: str) -> list[Cross]:
    return [
        Cross(name, *each)
        for each in product(SHAPES, SCALARS, SCALARS, ARRANGEMENTS, THREADS, ("integers", "real"))
        if each[-1] == "integers" or 0 < each[0][2] <= 40
    ]


def types_of(name: str) -> tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]]:
    """Of the operands, of the sums, of D."""
    row = row_named(name)
    sums = NUMPY_TYPES[row.accumulator.name]
    return (NUMPY_TYPES[row.inputs.name] if row.inputs else sums, sums, NUMPY_TYPES[row.output.name] if row.output else sums)


@cache
def fuses(name: str) -> bool:
    """Whether this host computes the row's multiply-add with one rounding; of halves it makes no difference."""
    inputs, sums, _ = types_of(name)
    e = np.finfo(sums).eps if inputs == sums else 0
    a, b = np.asarray([[-1, 1 + e]], inputs), np.asarray([[1], [1 - e]], inputs)
    return bool(multiply(gemm_of(name), a, b, np.zeros((1, 1), sums))[0, 0] != 0) if e else False


def reference(case: Cross, a: Array, b: Array, c: Array) -> Array:
    """D as the row and finish.h state it."""
    _, sums, real = types_of(case.name)
    alpha, beta = sums.type(case.alpha), sums.type(case.beta)
    total = beta * c.astype(sums) if case.beta not in (0.0, 1.0) else c.astype(sums) * beta
    if case.alpha != 0.0 and a.shape[1]:
        if case.data == "integers":
            summed = (a.astype(np.float64) @ b.astype(np.float64)).astype(sums)
        else:
            order = orders.stated(row_named(case.name).order, a.shape[1])
            summed = orders.replay(order, a, b, fused=fuses(case.name), accumulator=sums.type)
        total = alpha * summed + total if case.beta else alpha * summed
    rounded: Array = total.astype(real)
    return rounded


def check(case: Cross) -> None:
    m, n, k = case.shape
    generator = np.random.default_rng([m, n, k])
    inputs, _, real = types_of(case.name)

    def numbers(shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
        return (
            small_integers(generator, shape, dtype) if case.data == "integers" else generator.standard_normal(shape).astype(dtype)
        )

    a, b, c = numbers((m, k), inputs), numbers((k, n), inputs), numbers((m, n), real)
    expected = reference(case, a, b, c)
    if case.beta == 0.0:
        c[...] = np.nan
    if case.alpha == 0.0:
        a[...], b[...] = np.nan, np.inf
    of_a, of_b, of_c, of_d = case.arrangement
    view, room = framed((m, n), real, of_d)
    a, b, c = laid_out(a, of_a), laid_out(b, of_b), laid_out(c, of_c)
    gemm = CpuGemm(family=case.name, threads=case.threads)
    found = multiply(gemm, a, b, view, c, alpha=case.alpha, beta=case.beta)
    assert np.array_equal(found, expected), case
    assert frame_is_whole(view, room), case


@pytest.mark.parametrize("name", NAMES)
def test_sampled_cross(name: str) -> None:
    for case in random.Random(f"cross {name}").sample(cases(name), SAMPLE):
        check(case)


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_whole_cross(name: str) -> None:
    for case in cases(name):
        check(case)


@st.composite
def views(draw: st.DrawFn, rows: int, columns: int, dtype: np.dtype[Any]) -> Array:
    """Small integers with any positive or negative strides, either axis the fast one."""
    steps = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    flips = draw(st.tuples(st.booleans(), st.booleans()))
    room = np.random.default_rng(draw(st.integers(0, 1 << 16))).integers(-3, 4, (rows * steps[0] + 1, columns * steps[1] + 1))
    room = room.astype(dtype)
    if draw(st.booleans()):
        room = np.ascontiguousarray(room.T).T
    view = room[1 :: steps[0], 1 :: steps[1]][:rows, :columns]
    flipped: Array = view[tuple(slice(None, None, -1 if flip else 1) for flip in flips)]
    return flipped


@given(st.data(), st.sampled_from(NAMES), st.integers(1, 40), st.integers(1, 40), st.integers(0, 70))
def test_any_shape_any_strides_any_family(data: st.DataObject, name: str, m: int, n: int, k: int) -> None:
    inputs, sums, real = types_of(name)
    a, b, c = (data.draw(views(*each)) for each in ((m, k, inputs), (k, n, inputs), (m, n, real)))
    scalars = st.sampled_from((1.0, 0.0, -2.0, 3.0))
    alpha, beta, by_row = data.draw(scalars), data.draw(scalars), data.draw(st.booleans())
    bias = np.random.default_rng(m).integers(-5, 6, m if by_row else n).astype(np.float32)
    view, room = framed((m, n), real, data.draw(st.sampled_from(LAYOUTS)))
    product = a.astype(np.float64) @ b.astype(np.float64)
    exact = alpha * product + beta * c.astype(np.float64) + (bias[:, None] if by_row else bias)
    multiply(gemm_of(name), a, b, view, c, alpha=alpha, beta=beta, bias=bias, bias_by_row=by_row)
    assert np.array_equal(view, exact.astype(sums).astype(real))
    assert frame_is_whole(view, room)


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_writes_to_its_scratch_and_to_d_alone(name: str) -> None:
    """The operands lie right behind the scratch memory in the engine's own memory: after a call they are what was copied there."""
    inputs, sums, real = types_of(name)
    generator = np.random.default_rng(81)
    engine = WasmtimeEngine()
    gemm = CpuGemm(family=name, threads=1, engine=engine)
    for m, n, k in ((1, 1, 1), (3, 40, 700), (19, 45, 521), (61, 70, 257)):
        a, b = small_integers(generator, (m, k), inputs), small_integers(generator, (k, n), inputs)
        c, bias = small_integers(generator, (m, n), real), np.arange(n, dtype=np.float32)
        view, room = framed((m, n), real)
        call = gemm.prepare(problem_of(a, b, view, c), has_bias=True)
        call(address_of(a), address_of(b), address_of(c), address_of(view), address_of(bias))
        bound: Any = call._bound
        for place, operand in zip(bound._places.places, (b, a) if call.swapped else (a, b), strict=False):
            inside = np.zeros_like(operand)
            engine.room(row_named(name).module, 0).copy_out(address_of(inside), place, inside.nbytes)
            assert np.array_equal(inside, operand), (m, n, k)
        product = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64) + bias
        assert np.array_equal(view, product.astype(sums).astype(real)), (m, n, k)
        assert frame_is_whole(view, room), (m, n, k)
