"""Numbers for the tests of the exact reference: values of every format that are hard on sums and roundings, and a slow oracle.

The oracle shares nothing with the package but the names of formats: Fractions, and rounding worked out from its definition.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from py_gemm.exact.formats import FLOATS, Format

Floats = NDArray[np.float64]


def random_value(rng: random.Random, form: Format) -> float:
    """A finite value: of ordinary size, of any exponent, subnormal, one of the ends, a small integer or a zero."""
    p = form.significand_bits
    sign = rng.choice((-1, 1))
    kind = rng.randrange(8)
    if kind == 0:
        return 0.0 if sign > 0 or not form.has_negative_zero else -0.0
    if kind == 1:
        return sign * math.ldexp(rng.randrange(1, 1 << (p - 1)), form.lowest_bit)
    if kind == 2:
        return sign * rng.choice((float(form.highest), math.ldexp(1, form.emin), math.ldexp(1, form.lowest_bit)))
    if kind == 3:
        return float(sign * rng.randrange(1, 1 << min(p, 4)))
    exponent = rng.randrange(form.emin, form.emax) if kind == 4 else rng.randrange(max(form.emin, -4), min(form.emax, 4) + 1)
    return sign * math.ldexp(rng.randrange(1 << (p - 1), 1 << p), exponent - p + 1)


def random_dot(rng: random.Random, form: Format, k: int) -> tuple[list[float], list[float]]:
    """Two vectors; often such that the sum cancels to a tiny rest, or falls on the midpoint of two values."""
    a, b = [random_value(rng, form) for _ in range(k)], [random_value(rng, form) for _ in range(k)]
    kind = rng.randrange(4)
    if kind == 0 and k >= 3:  # everything but the last term cancels
        half = (k - 1) // 2
        for index in range(half):
            a[half + index], b[half + index] = -a[index] if a[index] else a[index], b[index]
        a[2 * half :] = [random_value(rng, form) for _ in a[2 * half :]]
        a[2 * half] = math.ldexp(1, form.lowest_bit) * rng.choice((-1, 1))
    elif kind == 1 and k >= 3:  # 1 and half a unit in its last place, and perhaps the smallest thing beyond
        half_unit = math.ldexp(1, -(form.significand_bits // 2))
        a[:], b[:] = [0.0] * k, [1.0] * k
        a[0] = rng.choice((1.0, 1.0 + math.ldexp(1, 1 - form.significand_bits)))
        a[1], b[1] = half_unit, math.ldexp(1, -form.significand_bits + form.significand_bits // 2)
        a[2] = rng.choice((0.0, 1.0, -1.0)) * math.ldexp(1, form.lowest_bit)
    order = list(range(k))
    rng.shuffle(order)
    return [a[index] for index in order], [b[index] for index in order]


def exact_dot(a: list[float], b: list[float]) -> Fraction:
    return sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(0))


def nearest_even(x: Fraction, form: Format) -> float:
    """The number x in `form`, by its definition: the nearest of the values around it, ties to the even one; past the range inf."""
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = max(form.emin, size.numerator.bit_length() - size.denominator.bit_length() - 1)
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    quantum = Fraction(2) ** (exponent - form.significand_bits + 1)
    found = round(size / quantum) * quantum  # Python rounds Fractions half to even
    value = math.inf if found > form.highest else float(found)
    return value if x > 0 else -value


def wide_matrix(rng: np.random.Generator, shape: tuple[int, ...], form: Format) -> Floats:
    """A matrix of values of a format with exponents from a good part of its range."""
    spread = min(form.emax, -form.emin, 300) / 3
    raw = rng.standard_normal(shape) * np.exp2(rng.uniform(-spread, spread, shape))
    significand, exponent = np.frexp(raw)
    quantum = np.maximum(exponent - form.significand_bits, form.lowest_bit)
    rounded: Floats = np.ldexp(np.rint(np.ldexp(significand, exponent - quantum)), quantum)
    return np.clip(rounded, -float(form.highest), float(form.highest))


SIXTEEN_BITS_AND_LESS = tuple(form for form in FLOATS if form.size <= 2)
