"""The stated order of summation, replayed in NumPy, one element of D a lane. For tests only."""

from __future__ import annotations

from typing import Any

import numpy as np

from py_gemm.gpu.variants import SummationOrder


def replay(order: SummationOrder, a: Any, b: Any, *, fused: bool) -> Any:
    """A @ B in float32: `fused` rounds each multiply-add once (by way of float64, which is exact where products have 22 bits and
    magnitudes lie close; else right but for double roundings), else the product is rounded first."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    shape = (a.shape[0], b.shape[1])
    total, group, block = (np.zeros(shape, np.float32) for _ in range(3))
    for step, start in enumerate(range(0, a.shape[1], order.chain), 1):
        chain = np.zeros(shape, np.float32)
        for k in range(start, min(start + order.chain, a.shape[1])):
            if fused:
                chain = (chain.astype(np.float64) + np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64))).astype(
                    np.float32
                )
            else:
                chain = chain + np.outer(a[:, k], b[k])
        block = block + chain
        if step % order.block == 0:
            group, block = group + block, np.zeros(shape, np.float32)
        if step % (order.block * order.group) == 0:
            total, group = total + group, np.zeros(shape, np.float32)
    return total + (group + block)
