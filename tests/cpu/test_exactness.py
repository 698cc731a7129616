"""Small-integer data, on which every kernel must be exact: sizes, types, arrangements, batches. Sentinels around D must stay."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.cpu.support import (
    ELEMENT_TYPES,
    LAYOUTS,
    NUMPY_TYPES,
    ROW_NAMES,
    address_of,
    frame_is_whole,
    framed,
    gemm_of,
    laid_out,
    multiply,
    problem_of,
    row_named,
    small_integers,
)

SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129)
SAMPLE = np.random.default_rng(20).choice(list(itertools.product(SIZES, SIZES, SIZES)), 120, replace=False)


@pytest.mark.parametrize("name", ROW_NAMES)
def test_sampled_sizes_are_exact(name: str) -> None:
    """All of one row in one test: a case of its own for each of 120 sizes would say no more. The message names the size."""
    generator = np.random.default_rng(1)
    dtype = NUMPY_TYPES[row_named(name).accumulator.name]
    for m, n, k in SAMPLE.tolist():
        a, b = small_integers(generator, (m, k), dtype), small_integers(generator, (k, n), dtype)
        view, room = framed((m, n), dtype)
        multiply(gemm_of(name), a, b, view)
        assert np.array_equal(view, a @ b), (m, n, k)
        assert frame_is_whole(view, room), (m, n, k)


@pytest.mark.soak
@pytest.mark.parametrize("name", ROW_NAMES)
@pytest.mark.parametrize("m", SIZES)
def test_all_sizes_are_exact(name: str, m: int) -> None:
    generator = np.random.default_rng(2)
    dtype = NUMPY_TYPES[row_named(name).accumulator.name]
    for n, k in itertools.product(SIZES, SIZES):
        a, b = small_integers(generator, (m, k), dtype), small_integers(generator, (k, n), dtype)
        view, room = framed((m, n), dtype)
        multiply(gemm_of(name), a, b, view)
        assert np.array_equal(view, a @ b), (m, n, k)
        assert frame_is_whole(view, room), (m, n, k)


@pytest.mark.parametrize("shape", [(260, 9, 300), (129, 1030, 257), (7, 2100, 720), (1300, 17, 713)])
@pytest.mark.parametrize("name", ROW_NAMES)
def test_several_blocks_on_every_axis_are_exact(name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    generator = np.random.default_rng(3)
    dtype = NUMPY_TYPES[row_named(name).accumulator.name]
    a, b = small_integers(generator, (m, k), dtype), small_integers(generator, (k, n), dtype)
    view, room = framed((m, n), dtype)
    multiply(gemm_of(name), a, b, view)
    assert np.array_equal(view, a.astype(np.float64) @ b.astype(np.float64))
    assert frame_is_whole(view, room)


TYPE_MIXES = list(itertools.product(NUMPY_TYPES, NUMPY_TYPES))


@pytest.mark.parametrize(("type_a", "type_b"), TYPE_MIXES)
def test_every_mix_of_types_in_every_arrangement(type_a: str, type_b: str) -> None:
    """All types of a, b, c and d, four arrangements each drawn by a fixed seed, on every row that sums in the mix's accumulator."""
    generator = np.random.default_rng(4)
    wanted = "float64" if "float64" in (type_a, type_b) else "float32"
    rows = [name for name in ROW_NAMES if row_named(name).accumulator.name == wanted]
    for name, type_c, type_d in itertools.product(rows, NUMPY_TYPES, NUMPY_TYPES):
        m, n, k = generator.choice([1, 4, 5, 6, 8, 9, 13, 17], 3)
        arrangement = generator.choice(LAYOUTS, 4).tolist()
        a = laid_out(small_integers(generator, (m, k), type_a), arrangement[0])
        b = laid_out(small_integers(generator, (k, n), type_b), arrangement[1])
        c = laid_out(small_integers(generator, (m, n), type_c), arrangement[2])
        view, room = framed((m, n), NUMPY_TYPES[type_d], arrangement[3])
        multiply(gemm_of(name), a, b, view, c, alpha=2.0, beta=-1.0)
        exact = 2 * (a.astype(np.float64) @ b.astype(np.float64)) - c.astype(np.float64)
        told = (name, type_c, type_d, (m, n, k), arrangement)
        assert np.array_equal(view.astype(np.float64), exact.astype(view.dtype).astype(np.float64)), told
        assert frame_is_whole(view, room), told


@pytest.mark.parametrize("name", ROW_NAMES)
@pytest.mark.parametrize("arrangement", list(itertools.product(LAYOUTS, LAYOUTS)), ids="-".join)
def test_arrangements_of_larger_operands(name: str, arrangement: tuple[str, str]) -> None:
    generator = np.random.default_rng(5)
    dtype = NUMPY_TYPES[row_named(name).accumulator.name]
    a = laid_out(small_integers(generator, (37, 70), dtype), arrangement[0])
    b = laid_out(small_integers(generator, (70, 43), dtype), arrangement[1])
    for how in LAYOUTS:
        view, room = framed((37, 43), dtype, how)
        multiply(gemm_of(name), a, b, view)
        assert np.array_equal(view, a @ b), how
        assert frame_is_whole(view, room), how


@pytest.mark.parametrize("name", ROW_NAMES)
def test_zero_strides(name: str) -> None:
    dtype = NUMPY_TYPES[row_named(name).accumulator.name]
    generator = np.random.default_rng(6)
    row = small_integers(generator, (1, 21), dtype)
    a = np.broadcast_to(row, (11, 21))
    b = np.broadcast_to(small_integers(generator, (21, 1), dtype), (21, 18))
    d = np.zeros((11, 18), dtype)
    assert np.array_equal(multiply(gemm_of(name), a, b, d), a @ b)
    one = np.broadcast_to(np.asarray([[2]], dtype), (11, 21))
    assert np.array_equal(multiply(gemm_of(name), one, b, d), one @ b)


BATCHES = [
    ((3,), (3,), (3,)),
    ((1,), (4,), (4,)),
    ((4,), (), (4,)),
    ((2, 1), (1, 3), (2, 3)),
    ((2, 3, 2), (3, 1), (2, 3, 2)),
    ((1, 2, 1, 2, 1), (2, 2, 1, 1, 2), (2, 2, 1, 2, 2)),
    ((), (2, 5), (2, 5)),
]


@pytest.mark.parametrize(("batch_a", "batch_b", "batch"), BATCHES)
@pytest.mark.parametrize("name", ROW_NAMES)
@pytest.mark.parametrize("rows", [1, 7])
def test_batches_of_any_rank_broadcast(
    name: str, batch_a: tuple[int, ...], batch_b: tuple[int, ...], batch: tuple[int, ...], rows: int
) -> None:
    generator = np.random.default_rng(7)
    dtype = NUMPY_TYPES[row_named(name).accumulator.name]
    a = small_integers(generator, (*batch_a, rows, 10), dtype)
    b = small_integers(generator, (*batch_b, 10, 9), dtype)
    c = small_integers(generator, (rows, 9), dtype)
    view, room = framed((*batch, rows, 9), dtype)
    multiply(gemm_of(name), a, b, view, c)
    assert np.array_equal(view, a @ b + c)
    assert frame_is_whole(view, room)
    assert ELEMENT_TYPES[dtype] is row_named(name).accumulator


@pytest.mark.parametrize("name", ROW_NAMES)
def test_batch_and_call_are_repeatable(name: str) -> None:
    """The odometer is back at zero after a call, whatever the rank."""
    generator = np.random.default_rng(8)
    dtype = NUMPY_TYPES[row_named(name).accumulator.name]
    a, b = small_integers(generator, (2, 3, 4, 5), dtype), small_integers(generator, (2, 1, 5, 6), dtype)
    d = np.zeros((2, 3, 4, 6), dtype)
    call = gemm_of(name).prepare(problem_of(a, b, d))
    for _ in range(3):
        d[...] = 0
        call(address_of(a), address_of(b), 0, address_of(d), 0)
        assert np.array_equal(d, a @ b)


@pytest.mark.parametrize("name", ROW_NAMES)
def test_c_may_be_d_itself(name: str) -> None:
    generator = np.random.default_rng(9)
    dtype = NUMPY_TYPES[row_named(name).accumulator.name]
    for m, n, k in ((9, 17, 5), (40, 30, 600), (3, 4, 0)):
        a, b = small_integers(generator, (m, k), dtype), small_integers(generator, (k, n), dtype)
        d = small_integers(generator, (m, n), dtype)
        expected = a @ b + 2 * d
        assert np.array_equal(multiply(gemm_of(name), a, b, d, d, beta=2.0), expected)
