"""The oracle of mode "exact": the expression in fractions, rounded once. Shares no code with any kernel, nor with the reference
of the package. Imports NumPy and the standard library only, because it also runs in the page."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

# Significand bits (the hidden one counted), exponent of the lowest normal number; the highest exponent is 1 - that.
FORMATS = {"float16": (11, -14), "bfloat16": (8, -126), "float32": (24, -126), "float64": (53, -1022)}
# Where values of spread data lie: well into the subnormal numbers, and not so high that most sums overflow.
EXPONENTS = {"float16": (-24, 8), "bfloat16": (-140, 60), "float32": (-148, 60), "float64": (-1072, 500)}


def spread(source: np.random.Generator, shape: tuple[int, ...], element: str) -> np.ndarray:
    """Float64 values with exponents from all over the range of `element`; each twelfth or so is zero."""
    low, high = EXPONENTS[element]
    values = np.ldexp(source.uniform(-1.0, 1.0, shape), source.integers(low, high, shape))
    values[source.uniform(size=shape) < 0.08] = 0.0
    return np.asarray(values)


def rounded(value: Fraction, element: str) -> float:
    """To nearest, ties to even, with subnormals and overflow."""
    precision, lowest = FORMATS[element]
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, lowest) - precision + 1)
    result = round(size / unit) * unit  # `round` takes the even neighbour of a half
    sign = -1.0 if value < 0 else 1.0
    return sign * (float("inf") if result >= Fraction(2) ** (2 - lowest) else float(result))


_fractions: Callable[[np.ndarray], np.ndarray] = np.frompyfunc(Fraction, 1, 1)


def expression(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None, bias: np.ndarray | None, alpha: float, beta: float, relu: bool, element: str
) -> np.ndarray:
    """relu(alpha * a @ b + beta * c + bias) of float64 arrays (..., m, k) and (..., k, n), as the float64 values of `element`."""
    left, right = _fractions(a), _fractions(b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    total = np.full(shape, Fraction(0), object)
    if alpha:
        for step in range(a.shape[-1]):
            total = total + left[..., :, step, None] * right[..., None, step, :]
        total = total * Fraction(alpha)
    if c is not None and beta:
        total = total + Fraction(beta) * _fractions(c)
    if bias is not None:
        total = total + _fractions(bias)
    round_each = np.frompyfunc(lambda value: rounded(max(value, Fraction(0)) if relu else value, element), 1, 1)
    return np.asarray(round_each(total)).astype(np.float64).reshape(shape)
