"""Orders of summation: the fused multiply-add against fractions, every order against a scalar replay, and how they differ."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from py_gemm.cpu.families import ROWS
from py_gemm.dtypes import BFLOAT16, INT32
from py_gemm.errors import ShapeError
from py_gemm.exact.fused import multiply_add
from py_gemm.exact.orders import Blocked, Chain, Lanes, Order, Pairs, Slices, Split, replay, stated
from py_gemm.gpu.split import Ranges
from py_gemm.gpu.variants import ROWS as GPU_ROWS
from py_gemm.gpu.variants import TILED_ORDER, VARIANTS, LaneOrder

Array = np.ndarray[Any, Any]
FLOATS = (np.float32, np.float64)


def hard_operands(real: type, count: int, seed: int) -> list[Array]:
    """Triples of which many sums lie at or beside a tie, cancel, or leave the normal range."""
    source = np.random.default_rng(seed)
    info = np.finfo(real)
    a: Array
    b: Array
    c: Array
    a, b, c = (source.standard_normal(count).astype(real) for _ in range(3))
    with np.errstate(all="ignore"):
        value: Array
        for index, value in enumerate((a, b, c)):
            part = slice(index * count // 8, count // 2)
            exponents = source.integers(info.minexp // 2 - 20, info.maxexp // 2, value[part].size)
            value[part] = value[part] * np.exp2(exponents).astype(real)
        near = slice(count // 2, 3 * count // 4)
        c[near] = -(a[near] * b[near]) * source.choice(np.asarray([1, 1, 1 + info.eps, 2.0**-30, 2.0**20], real), a[near].size)
        tie = slice(3 * count // 4, count)
        a[tie] = (1 + source.integers(0, 9, a[tie].size) * info.eps).astype(real)
        b[tie] = (1 - source.integers(0, 9, a[tie].size) * info.eps / 2).astype(real)
        c[tie] = (source.choice([-1, 1, 3, 2.0**-20], a[tie].size) * np.exp2(source.integers(-60, 60, a[tie].size))).astype(real)
    c[:4] = [0.0, -0.0, info.tiny, info.smallest_subnormal]
    return [a, b, c]


def rounded(value: Fraction, real: type) -> float:
    """To nearest, ties to even, written for this test alone."""
    info = np.finfo(real)
    if value == 0:
        return 0.0
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, int(info.minexp)) - info.nmant)
    whole = round(value / unit) * unit  # Fraction rounds half to even
    return float("inf") * (1 if value > 0 else -1) if abs(whole) > Fraction(float(info.max)) else float(whole)


@pytest.mark.parametrize("real", FLOATS)
def test_multiply_add_rounds_once(real: type, soak: bool) -> None:
    a, b, c = hard_operands(real, 200_000 if soak else 6_000, 1)
    found = multiply_add(a, b, c).tolist()
    for x, y, z, value in zip(a.tolist(), b.tolist(), c.tolist(), found, strict=True):
        assert value == rounded(Fraction(x) * Fraction(y) + Fraction(z), real), (x, y, z)


@pytest.mark.parametrize("real", FLOATS)
def test_multiply_add_of_what_is_not_finite_and_of_zeros(real: type) -> None:
    inf, nan = np.inf, np.nan
    cases = [(inf, 0.0, 1.0, nan), (inf, 2.0, -inf, nan), (inf, -2.0, 1.0, -inf), (1.0, 1.0, inf, inf), (nan, 1.0, 1.0, nan),
             (0.0, -1.0, -0.0, -0.0), (0.0, 1.0, -0.0, 0.0), (1.0, 1.0, -1.0, 0.0), (0.0, 5.0, 3.0, 3.0)]  # fmt: skip
    for x, y, z, expected in cases:
        value = multiply_add(*(np.asarray(each, real) for each in (x, y, z)))
        assert np.array_equal(value, expected, equal_nan=True), (x, y, z)
        assert np.signbit(value) == np.signbit(expected) or np.isnan(expected), (x, y, z)
    with pytest.raises(TypeError, match="float32 or float64"):
        multiply_add(np.ones(1, np.float16), np.ones(1, np.float16), np.ones(1, np.float16))


def scalar_replay(order: Order, x: list[float], y: list[float], fused: bool, real: type) -> float:
    """One sum in Python floats and fractions, rounded after every step: shares nothing with the replay of arrays."""

    def add(p: float, q: float) -> float:
        return rounded(Fraction(p) + Fraction(q), real)

    def step(index: int, total: float) -> float:
        product = Fraction(x[index]) * Fraction(y[index])
        return rounded(product + Fraction(total), real) if fused else add(rounded(product, real), total)

    def chain(indices: range) -> float:
        total = 0.0
        for index in indices:
            total = step(index, total)
        return total

    def in_order(parts: list[float]) -> float:
        total = parts[0] if parts else 0.0
        for part in parts[1:]:
            total = add(total, part)
        return total

    k = len(x)
    if isinstance(order, Chain):
        return chain(range(k))
    if isinstance(order, Slices):
        return in_order([chain(range(start, min(start + order.length, k))) for start in range(0, k, order.length)])
    if isinstance(order, Lanes | Split):
        cuts = [slice(lane, None, order.count) for lane in range(order.count)] if isinstance(order, Lanes) else []
        cuts += [slice(start, start + order.step) for start in range(0, k, order.step)] if isinstance(order, Split) else []
        return in_order([scalar_replay(order.inner, x[cut], y[cut], fused, real) for cut in cuts])
    if isinstance(order, Pairs):
        total = 0.0
        for index in range(0, k - 1, 2):
            first = rounded(Fraction(x[index]) * Fraction(y[index]), real)
            total = add(total, step(index + 1, first))
        return step(k - 1, total) if k % 2 else total
    total = group = block = 0.0
    for count, start in enumerate(range(0, k, order.chain), 1):
        block = add(block, chain(range(start, min(start + order.chain, k))))
        if count % order.block == 0:
            group, block = add(group, block), 0.0
        if count % (order.block * order.group) == 0:
            total, group = add(total, group), 0.0
    return add(total, add(group, block))


ORDERS: list[Order] = [
    Chain(), Slices(1), Slices(7), Slices(32), Blocked(), Blocked(4, 3, 2), Lanes(1), Lanes(8), Lanes(32), Pairs(),
    Split(32, Blocked()), Split(10, Lanes(4)), Split(9, Pairs()), Blocked(16, 1, 1), Lanes(8, Blocked(4, 1, 1)),
    Split(64, Lanes(4, Slices(3))),
]  # fmt: skip


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("real", FLOATS)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_every_order_is_the_scalar_replay(order: Order, real: type, fused: bool) -> None:
    source = np.random.default_rng(2)
    for k in (0, 1, 2, 15, 16, 33, 150):
        a: Array = (source.standard_normal((2, k)) * np.exp2(source.integers(-12, 12, (2, k)))).astype(real)
        b: Array = (source.standard_normal((k, 3)) * np.exp2(source.integers(-12, 12, (k, 3)))).astype(real)
        found = replay(order, a, b, fused=fused, accumulator=real)
        assert found.dtype == real
        for row in range(2):
            for column in range(3):
                expected = scalar_replay(order, a[row].tolist(), b[:, column].tolist(), fused, real)
                assert found[row, column] == expected, (k, row, column)


def test_orders_differ_from_each_other() -> None:
    """The data tell the orders apart, so a kernel that sums in another order than it states is found out."""
    source = np.random.default_rng(3)
    a, b = source.uniform(0.5, 2, (6, 300)).astype(np.float32), source.uniform(0.5, 2, (300, 6)).astype(np.float32)
    distinct: list[Order] = [Chain(), Slices(64), Blocked(), Blocked(8, 2, 4), Lanes(8), Pairs()]
    seen = {replay(order, a, b, fused=fused).tobytes() for order in distinct for fused in (False, True)}
    assert len(seen) == 2 * len(distinct)


def test_batches_broadcast_and_narrow_types_are_widened() -> None:
    source = np.random.default_rng(4)
    a = source.standard_normal((2, 1, 3, 20)).astype(np.float16)
    b = source.standard_normal((5, 20, 4)).astype(ml_dtypes.bfloat16)
    found = replay(Slices(8), a, b, fused=True)
    assert found.shape == (2, 5, 3, 4)
    one = replay(Slices(8), a[1, 0], b[3], fused=True)
    assert np.array_equal(found[1, 3], one)
    assert np.array_equal(one, replay(Slices(8), a[1, 0].astype(np.float32), b[3].astype(np.float32), fused=True))
    with pytest.raises(ShapeError, match="replay"):
        replay(Chain(), np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32), fused=False)


def test_rows_state_their_orders() -> None:
    assert stated(TILED_ORDER, 1000) == stated(TILED_ORDER, 1000, Ranges(1, 1000)) == Blocked(16, 2, 4)
    assert stated(TILED_ORDER, 1000, Ranges(4, 256)) == Split(256, Blocked(16, 2, 4))
    assert GPU_ROWS.order == LaneOrder(16)
    for gpu_row in VARIANTS:
        if isinstance(gpu_row.order, LaneOrder):
            assert stated(gpu_row.order, 1000) == Lanes(gpu_row.order.lanes, Blocked(32, 1, 1))
        elif gpu_row.tuned:
            assert gpu_row.order is not None
            assert stated(gpu_row.order, 1000) == Blocked(64, 1, 1)
    for row in ROWS:
        if row.accumulator is INT32:  # sums of integers wrap and have no order
            continue
        group = (0, 1) if row.element is BFLOAT16 else (0,)
        assert row.order.group == tuple(range(row.depth_multiple)) == group, "even, then odd"
        assert stated(row.order, 257) == Slices(132, group)
        assert stated(row.order, 100) == Slices(100, group)


def test_a_group_is_summed_in_its_order() -> None:
    """Even before odd is increasing k; odd before even, as x86's bfloat16 dot product has it, is another sum."""
    source = np.random.default_rng(7)
    a, b = source.standard_normal((9, 301)).astype(np.float32), source.standard_normal((301, 8)).astype(np.float32)
    for fused in (False, True):
        plain = replay(Slices(100), a, b, fused=fused)
        assert np.array_equal(replay(Slices(100, (0, 1)), a, b, fused=fused), plain)
        swapped = replay(Slices(100, (1, 0)), a, b, fused=fused)
        assert not np.array_equal(swapped, plain)
        turned = np.arange(301).reshape(-1)
        turned[:300] = turned[:300].reshape(-1, 2)[:, ::-1].reshape(-1)
        assert np.array_equal(swapped, replay(Slices(100), a[:, turned], b[turned], fused=fused)), "the last step goes alone"


def test_the_sign_of_a_zero_sum() -> None:
    """A padded chain ends at +0; an unpadded one of negative zeros starts from +0 too."""
    a, b = np.full((1, 5), -0.0, np.float32), np.ones((5, 1), np.float32)
    for order in ORDERS:
        for fused in (False, True):
            assert not np.signbit(replay(order, a, b, fused=fused))[0, 0], order
