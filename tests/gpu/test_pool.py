"""Size classes and the pool: pure bookkeeping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from py_gemm.gpu.pool import SMALLEST, Allocation, Pool, size_class

GENEROUS = 1 << 40


@given(st.integers(0, 1 << 33))
def test_a_class_holds_the_size_and_wastes_at_most_a_quarter(nbytes: int) -> None:
    capacity = size_class(nbytes, GENEROUS)
    assert capacity >= nbytes
    assert capacity % 4 == 0
    assert capacity <= max(SMALLEST, nbytes * 1.25)
    assert size_class(capacity, GENEROUS) == capacity


@given(st.integers(1, 1 << 30), st.integers(0, 1 << 20))
def test_a_class_never_breaks_a_limit_that_the_size_keeps(nbytes: int, room: int) -> None:
    ceiling = -(-(nbytes + room) // 4) * 4
    assert nbytes <= size_class(nbytes, max(ceiling, SMALLEST)) <= max(ceiling, SMALLEST)


def test_the_allocation_given_back_last_is_taken_first() -> None:
    pool = Pool(cap=10_000)
    first, second = Allocation(256, 1), Allocation(256, 2)
    assert pool.give(first) == []
    assert pool.give(second) == []
    assert pool.take(512) is None
    assert pool.take(256) is second
    assert pool.take(256) is first
    assert pool.take(256) is None
    assert pool.free_bytes == 0


def test_over_the_cap_the_oldest_go() -> None:
    pool = Pool(cap=1000)
    allocations = [Allocation(400, number) for number in range(4)]
    assert pool.give(allocations[0]) == []
    assert pool.give(allocations[1]) == []
    assert pool.give(allocations[2]) == [allocations[0]]
    assert pool.give(Allocation(5000, 9))[-1].capacity == 5000
    assert pool.free_bytes <= 1000


def test_clear_returns_what_was_free() -> None:
    pool = Pool(cap=1000)
    allocation = Allocation(256, 1)
    pool.give(allocation)
    assert pool.clear() == [allocation]
    assert pool.take(256) is None
