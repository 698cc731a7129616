"""What exact sums do not show: infinities, NaNs and the signs of zeros, by IEEE 754's rules on the exact expression.

An expression is a sum of terms coefficient * a_k * b_k and coefficient * c. A NaN factor, or zero times infinity inside a term,
makes it NaN; so do infinities of both signs; infinities of one sign give that infinity. An exact sum of zero is -0 where every
term is a negative zero; rounding down, where not every term is a positive zero (IEEE 754-2019, 6.3); else +0.
All of it is read off matrix products of the signs, so that whole blocks are judged at once. Nothing here computes a finite value.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import isfinite, nan
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import existing

Floats = NDArray[np.float64]
Coefficient = Fraction | float  # a float only where it is infinite or NaN


def sign_of(coefficient: Coefficient) -> float:
    """-1 or 1."""
    return -1.0 if coefficient < 0 else 1.0


def without_specials(values: Floats) -> tuple[Floats, bool]:
    """The values with 0 in the place of infinities and NaNs, and whether there were any."""
    finite = np.isfinite(values)
    if finite.all():
        return values, False
    return np.where(finite, values, 0.0), True


def special_products(coefficient: Coefficient, a: Floats, b: Floats, signs: Floats | None) -> Floats:
    """[g, m, n]: NaN or an infinity where the terms coefficient * a @ b sum to that, else 0.

    signs: of the exact sums of the finite products (0 for zero), needed only where the coefficient is infinite.
    """
    with np.errstate(invalid="ignore"):
        # products and sums of -1, 0, 1, infinities and NaNs: finite ones stay small, the others follow IEEE's rules
        found: Floats = np.matmul(_signs(a), _signs(b))
        if isinstance(coefficient, Fraction):
            return np.where(np.isfinite(found), 0.0, found * sign_of(coefficient))
        if signs is None:
            raise ValueError("an infinite coefficient needs the signs of the sums")
        return np.where(np.isfinite(found), signs, found) * coefficient


def special_addend(coefficient: Coefficient, c: Floats) -> Floats:
    """The same for the terms coefficient * c."""
    with np.errstate(invalid="ignore"):
        if isinstance(coefficient, Fraction):
            return np.where(np.isfinite(c), 0.0, c * sign_of(coefficient))
        return np.sign(c) * coefficient


def _signs(values: Floats) -> Floats:
    return np.where(np.isinf(values), values, np.sign(values))


def negative_zeros(
    where: NDArray[np.bool_],
    products: list[tuple[Coefficient, Floats, Floats]],
    addends: list[tuple[Coefficient, Floats]],
    *,
    down: bool,
) -> NDArray[np.bool_]:
    """Which of the exact zeros `where` [g, m, n] are negative. `down`: the rounding is toward minus infinity."""
    wanted = where.copy()  # all terms are zeros of the sign that makes the difference
    terms = 0
    for coefficient, c in addends:
        negative = np.signbit(c) ^ (coefficient < 0)
        wanted &= (c == 0) & (negative ^ down)
        terms += 1
    for coefficient, a, b in products:
        k = a.shape[2]
        terms += k
        if not k or not wanted.any():
            continue
        wanted &= np.matmul((a != 0).astype(np.float64), (b != 0).astype(np.float64)) == 0
        if wanted.any():
            total = np.matmul(np.copysign(1.0, a), np.copysign(1.0, b)) * sign_of(coefficient)
            wanted &= total == (k if down else -k)
    if not terms:
        return np.zeros_like(where)
    return where & ~wanted if down else wanted


def coefficient(name: str, value: object, kind: str) -> tuple[Coefficient, Coefficient]:
    """The real and the imaginary part of alpha or beta, exactly. TypeError for what does not suit operands of this kind."""
    value = _one_number(name, value)
    if isinstance(value, complex):
        if kind != "complex":
            raise TypeError(f"{name}={value!r} is complex; the operands are not")
        return _exact(value.real), _exact(value.imag)
    real = _exact(value)
    if kind == "int" and not (isinstance(real, Fraction) and real.denominator == 1):
        raise TypeError(f"{name}={value!r} is no integer; the operands are")
    return real, Fraction(0)


def _one_number(name: str, value: object) -> object:
    """A scalar of an array library, or an array without dimensions, as a number of Python's; every other number as it is."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (int, float, complex, Rational, Decimal)):
        return value
    if hasattr(value, "as_integer_ratio"):  # NumPy's long double, MPFR's numbers
        try:
            return Fraction(*map(int, value.as_integer_ratio()))
        except (OverflowError, ValueError):  # an infinity, a NaN
            return float(value)  # type: ignore[arg-type]
    try:
        found = existing(value)
    except (TypeError, ValueError):
        found = None
    if found is None:
        raise TypeError(f"{name}={value!r} is no number")
    if found.ndim:
        raise TypeError(f"{name} is one number, not an array of shape {found.shape}")
    return found.tolist()


def _exact(value: Any) -> Coefficient:
    """A real number of Python's as it is; infinities and NaN as floats."""
    if isinstance(value, Decimal) and not value.is_finite():
        return nan if value.is_nan() else float(value)
    if isinstance(value, float) and not isfinite(value):
        return value
    return Fraction(value)
