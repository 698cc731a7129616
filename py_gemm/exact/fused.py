"""Fused multiply-add in NumPy, one rounding, on arrays of float32 or float64. Correct everywhere: zeros, subnormals, overflow, NaN.

float32. The product of two float32 is exact in float64: 48 bits, and 2^-298 is far above the smallest float64. The sum with c is
taken in float64 *rounded to odd* (cut, and the last bit set where anything was lost) and then rounded to float32. Boldo and
Melquiond (Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd, IEEE Trans. Comput. 57, 2008,
theorem 1): rounding to odd at p + k bits, k >= 2, then to nearest at p bits is rounding to nearest of the exact value. Here
p + k = 53 = 24 + 29. Below float32's normal range fewer than 24 bits are kept, and the same holds with a larger k. The error of the
sum is itself a float64 (TwoSum, Knuth).

float64. The same paper's algorithm: (uh, ul) = a * b, (th, tl) = c + ul, (vh, vl) = uh + th, result vh + odd(tl + vl). It needs
that nothing overflows and no error term underflows, so it is used where a * b and c are 0 or lie in 2^-900 .. 2^900; elsewhere the
value is worked out as a fraction and rounded once.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_SAFE_LOW, _SAFE_HIGH = 2.0**-900, 2.0**900
_SPLITTER = 2.0**27 + 1  # Veltkamp: the halves have at most 26 bits


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """round(a * b + c), elementwise with broadcasting. All three float32, or all three float64; TypeError for other types."""
    kinds = {a.dtype, b.dtype, c.dtype}
    with np.errstate(all="ignore"):
        if kinds == {np.dtype(np.float32)}:
            product = a.astype(np.float64) * b.astype(np.float64)
            return _add_to_odd(product, c.astype(np.float64)).astype(np.float32)
        if kinds == {np.dtype(np.float64)}:
            return _multiply_add_float64(a, b, c)
    raise TypeError(f"multiply_add takes float32 or float64 in all places, not {', '.join(sorted(map(str, kinds)))}")


def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded sum and its exact error (Knuth; no overflow)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _add_to_odd(x: Array, y: Array) -> Array:
    """The sum of two float64, rounded to odd. Sums that are not finite, or zero, are left as they are."""
    total, rest = two_sum(x, y)
    bits = total.view(np.int64) if total.ndim else np.asarray(total).view(np.int64)
    # One step in the direction of what was lost: away from zero where it has the sign of the sum.
    neighbour = np.where((rest > 0) == (total > 0), bits + 1, bits - 1)
    inexact = np.isfinite(total) & np.isfinite(rest) & (rest != 0) & (bits & 1 == 0)
    odd: Array = np.where(inexact, neighbour, bits).view(np.float64)
    return odd


def _two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded product and its exact error (Dekker; no overflow, no underflow)."""
    product = x * y
    x_high, y_high = _upper_half(x), _upper_half(y)
    x_low, y_low = x - x_high, y - y_high
    return product, x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)


def _upper_half(x: Array) -> Array:
    scaled = _SPLITTER * x
    half: Array = scaled - (scaled - x)
    return half


def _multiply_add_float64(a: Array, b: Array, c: Array) -> Array:
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    plain = product + c
    zero_product = (a == 0) | (b == 0)
    unusual = np.zeros(plain.shape, bool)
    for operand in (a, b, product):
        unusual |= ~zero_product & ~_is_moderate(operand)
    unusual |= (c != 0) & ~_is_moderate(c)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)

    safe = finite & ~zero_product & ~unusual
    x, y, z = (np.where(safe, each, 1.0) for each in (a, b, c))
    upper, lower = _two_product(x, y)
    high, low = two_sum(z, lower)
    top, bottom = two_sum(upper, high)
    result = np.where(safe, top + _add_to_odd(low, bottom), plain)

    slow = finite & ~zero_product & unusual
    if slow.any():
        values = zip(a[slow].tolist(), b[slow].tolist(), c[slow].tolist(), strict=True)
        result[slow] = [_exactly(*each) for each in values]
    return result


def _is_moderate(x: Array) -> Array:
    size = np.abs(x)
    moderate: Array = (size >= _SAFE_LOW) & (size <= _SAFE_HIGH)
    return moderate


def _exactly(x: float, y: float, z: float) -> float:
    value = Fraction(x) * Fraction(y) + Fraction(z)
    if value == 0:  # a product that is not zero met its negative: +0, as every rounding but "down" has it
        return 0.0
    try:
        rounded = float(value)  # Fraction to float is correctly rounded, to nearest, ties to even
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded if rounded else (0.0 if value > 0 else -0.0)
