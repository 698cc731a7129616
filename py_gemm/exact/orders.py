"""Orders of summation as plain data, and their replay in NumPy, bit for bit: what a kernel must return if it sums as it states.

    Chain()                  s = +0, then s = s + a[k] b[k] in increasing k; Chain((1, 0)): in groups of two, the odd step first
    Slices(length, group)    chains of `length` steps; the first chain's sum is the total, the others are added to it in order
    Blocked(16, 2, 4)        chains of 16; 2 chains make a block, 4 blocks a group, groups the total; every level from +0. The last
                             chain is padded with zero products; at the end: total + (group + block)
    Lanes(count, inner)      lane l takes k = l, l + count, ..., summed by `inner`; the lanes' sums are added in order, the first as
                             it is
    Split(step, inner)       ranges of `step` steps, each summed by `inner`; the ranges' sums are added in order, the first as it is
    Pairs()                  s = s + (a[2i] b[2i] + a[2i+1] b[2i+1]), from +0; an odd last product goes alone

Each multiply-add is fused (one rounding, fused.py) or not (product rounded, then sum rounded); every other addition is rounded by
itself. All of it in the accumulator's type: float32, or float64 where asked. Replays sums only: alpha, C and the rounding of D come
after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from py_gemm.arrays import element_type, widen
from py_gemm.cpu.families import SummationOrder as CpuOrder
from py_gemm.errors import ShapeError
from py_gemm.gpu.split import Ranges
from py_gemm.gpu.variants import LaneOrder
from py_gemm.gpu.variants import SummationOrder as GpuOrder

from .fused import multiply_add

Array = NDArray[Any]


class _Terms:
    """The operands of a batch of sums: a (..., m, k), b (..., k, n), of the accumulator's type. Knows how a step is done."""

    def __init__(self, a: Array, b: Array, *, fused: bool) -> None:
        self.a, self.b, self.fused = a, b, fused
        self.k = a.shape[-1]
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        self.shape = (*batch, a.shape[-2], b.shape[-1])

    def part(self, chosen: slice) -> _Terms:
        return _Terms(self.a[..., chosen], self.b[..., chosen, :], fused=self.fused)

    def zero(self) -> Array:
        return np.zeros(self.shape, self.a.dtype)

    def product(self, step: int) -> Array:
        return self.a[..., :, step, None] * self.b[..., None, step, :]

    def add_product(self, step: int, total: Array) -> Array:
        if self.fused:
            return multiply_add(self.a[..., :, step, None], self.b[..., None, step, :], total)
        return total + self.product(step)

    def chain(self, group: tuple[int, ...] = (0,)) -> Array:
        total = self.zero()
        for first in range(0, self.k, len(group)):
            for step in group:
                if first + step < self.k:
                    total = self.add_product(first + step, total)
        return total


@dataclass(frozen=True, slots=True)
class Chain:
    """One product after another; in each group of len(group) steps of depth in the order that `group` says."""

    group: tuple[int, ...] = (0,)

    def sum(self, terms: _Terms) -> Array:
        return terms.chain(self.group)


@dataclass(frozen=True, slots=True)
class Slices:
    """Chains of `length` steps, with their groups; their sums in order, the first as it is."""

    length: int
    group: tuple[int, ...] = (0,)

    def sum(self, terms: _Terms) -> Array:
        return Split(self.length, Chain(self.group)).sum(terms)


@dataclass(frozen=True, slots=True)
class Split:
    """Ranges of `step` steps, each in the order `inner`; their sums in order, the first as it is."""

    step: int
    inner: Order

    def sum(self, terms: _Terms) -> Array:
        total = None
        for start in range(0, terms.k, self.step):
            part = self.inner.sum(terms.part(slice(start, start + self.step)))
            total = part if total is None else total + part
        return terms.zero() if total is None else total


@dataclass(frozen=True, slots=True)
class Blocked:
    """The tiles of the GPU: see the head of this file."""

    chain: int = 16
    block: int = 2
    group: int = 4

    def sum(self, terms: _Terms) -> Array:
        total, group, block = terms.zero(), terms.zero(), terms.zero()
        for count, start in enumerate(range(0, terms.k, self.chain), 1):
            chain = terms.part(slice(start, start + self.chain)).chain()
            if terms.k - start < self.chain:
                chain = chain + 0.0  # the padding's zero products: they turn a sum of -0 into +0
            block = block + chain
            if count % self.block == 0:
                group, block = group + block, terms.zero()
            if count % (self.block * self.group) == 0:
                total, group = total + group, terms.zero()
        result: Array = total + (group + block)
        return result


@dataclass(frozen=True, slots=True)
class Lanes:
    """`count` interleaved sums, as SIMD lanes, unrolled loops and the few-rows kernels have them."""

    count: int
    inner: Order = Chain()

    def sum(self, terms: _Terms) -> Array:
        total = None
        for lane in range(self.count):
            part = self.inner.sum(terms.part(slice(lane, None, self.count)))
            total = part if total is None else total + part
        return terms.zero() if total is None else total


@dataclass(frozen=True, slots=True)
class Pairs:
    """Neighbouring products are added to each other before they meet the sum."""

    def sum(self, terms: _Terms) -> Array:
        total = terms.zero()
        for step in range(0, terms.k - 1, 2):
            total = total + terms.add_product(step + 1, terms.product(step))
        return terms.add_product(terms.k - 1, total) if terms.k % 2 else total


Order = Chain | Slices | Split | Blocked | Lanes | Pairs


def stated(order: CpuOrder | GpuOrder | LaneOrder, k: int, ranges: Ranges | None = None) -> Order:
    """The order that a row of cpu/families.py or gpu/variants.py states, for sums of k products, which gpu/split.py may have split
    into `ranges`."""
    found: Order
    if isinstance(order, CpuOrder):
        found = Slices(order.chain_length(k), order.group)
    elif isinstance(order, LaneOrder):
        found = Lanes(order.lanes, Blocked(order.chain, 1, 1))
    else:
        found = Blocked(order.chain, order.block, order.group)
    return found if ranges is None or ranges.count == 1 else Split(ranges.terms, found)


def replay(
    order: Order, a: Array, b: Array, *, fused: bool, accumulator: type[np.float32] | type[np.float64] = np.float32
) -> Array:
    """A @ B as `order` sums it: (..., m, n) of the accumulator's type, from (..., m, k) and (..., k, n) of any float type.

    Operands are widened first, which is exact but for float64 with a float32 accumulator. ShapeError where they do not fit.
    """
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"replay: a must be (..., m, k) and b (..., k, n), not {a.shape} and {b.shape}")
    wide = [widen(each, element_type("replay", name, each.dtype), accumulator) for name, each in (("a", a), ("b", b))]
    with np.errstate(all="ignore"):
        total: Array = order.sum(_Terms(*wide, fused=fused))
    return total
