"""The stated order of summation, replayed in NumPy, one element of D a lane. For tests only."""

from __future__ import annotations

from typing import Any

import numpy as np

from py_gemm.gpu.split import Ranges
from py_gemm.gpu.variants import LaneOrder, SummationOrder


def replay(order: SummationOrder | LaneOrder, a: Any, b: Any, *, fused: bool, ranges: Ranges | None = None) -> Any:
    """A @ B in float32: `fused` rounds each multiply-add once (by way of float64, which is exact where products have 22 bits and
    magnitudes lie close; else right but for double roundings), else the product is rounded first.

    a: (..., m, k), b: (..., k, n). ranges: each summed by itself, their sums in order, the first as it is.
    """
    a, b = a.astype(np.float32), b.astype(np.float32)
    if ranges is not None and ranges.count > 1:
        parts = [
            replay(order, a[..., start : start + ranges.terms], b[..., start : start + ranges.terms, :], fused=fused)
            for start in range(0, a.shape[-1], ranges.terms)
        ]
        assert len(parts) == ranges.count
    elif isinstance(order, LaneOrder):
        parts = [_lane(order, a[..., lane :: order.lanes], b[..., lane :: order.lanes, :], fused) for lane in range(order.lanes)]
    else:
        return _blocked(order, a, b, fused)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _lane(order: LaneOrder, a: Any, b: Any, fused: bool) -> Any:
    total = _chain(a[..., :0], b[..., :0, :], fused)
    for start in range(0, a.shape[-1], order.chain):
        total = total + _chain(a[..., start : start + order.chain], b[..., start : start + order.chain, :], fused)
    return total


def _chain(a: Any, b: Any, fused: bool) -> Any:
    chain = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        left, right = a[..., k, None], b[..., k, None, :]
        if fused:
            chain = (chain.astype(np.float64) + left.astype(np.float64) * right.astype(np.float64)).astype(np.float32)
        else:
            chain = chain + left * right
    return chain


def _blocked(order: SummationOrder, a: Any, b: Any, fused: bool) -> Any:
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    total, group, block = (np.zeros(shape, np.float32) for _ in range(3))
    for step, start in enumerate(range(0, a.shape[-1], order.chain), 1):
        block = block + _chain(a[..., start : start + order.chain], b[..., start : start + order.chain, :], fused)
        if step % order.block == 0:
            group, block = group + block, np.zeros(shape, np.float32)
        if step % (order.block * order.group) == 0:
            total, group = total + group, np.zeros(shape, np.float32)
    return total + (group + block)
