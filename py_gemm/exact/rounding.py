"""Rounding of exact numbers to a format: one at a time from Fractions (the reference), and whole arrays from their leading bits.

A non-zero x of magnitude in [2**e, 2**(e+1)) is a whole number k of quanta 2**q, q = max(e, emin) - p + 1, and a remainder; the
mode decides whether k grows by one; then, as if the exponent had no upper end, what lies past the highest finite value follows
the overflow rule (IEEE 754-2019, sections 4.3 and 7.4; "saturate" and "nan": OCP 8-bit Floating Point Specification 1.0, 5.2).
The sign of a zero is that of x; callers decide about exact zeros. Nothing here knows about matrices or bits in memory.
"""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from math import inf, isinf, isnan, ldexp, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .fixedpoint import LEADING_BITS, Digits, Leading, Long
from .formats import Format


class Rounding(Enum):
    """How an exact number becomes a number of a format."""

    NEAREST_EVEN = "nearest_even"
    NEAREST_AWAY = "nearest_away"
    TOWARD_ZERO = "toward_zero"
    UP = "up"
    DOWN = "down"
    ODD = "odd"


def find_rounding(rounding: object) -> Rounding:
    """A Rounding, or the one of that value or name; ValueError that lists the known ones."""
    if isinstance(rounding, Rounding):
        return rounding
    try:
        return Rounding(str(rounding).lower())
    except ValueError:
        raise ValueError(f"rounding={rounding!r} is unknown; known: {', '.join(each.value for each in Rounding)}") from None


def round_fraction(x: Fraction, form: Format, rounding: Rounding = Rounding.NEAREST_EVEN, overflow: str = "ieee") -> float:
    """The number x rounded to a float format, as a Python float; zero gives +0.0."""
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    quantum = max(exponent, form.emin) - form.significand_bits + 1
    scaled = size / Fraction(2) ** quantum
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    twice = 2 * rest - scaled.denominator
    if _grows(rounding, x < 0, whole, rest, twice):
        whole += 1
    if Fraction(whole) * Fraction(2) ** quantum > form.highest:
        value = past_range(form, rounding, overflow, negative=x < 0)
    else:
        value = ldexp(whole, quantum)
    return -value if x < 0 else value


def _grows(rounding: Rounding, negative: bool, whole: int, rest: int, twice: int) -> bool:
    match rounding:
        case Rounding.NEAREST_EVEN:
            return twice > 0 or (twice == 0 and whole & 1 == 1)
        case Rounding.NEAREST_AWAY:
            return twice >= 0
        case Rounding.TOWARD_ZERO:
            return False
        case Rounding.UP:
            return rest > 0 and not negative
        case Rounding.DOWN:
            return rest > 0 and negative
        case Rounding.ODD:
            return rest > 0 and whole & 1 == 0


def past_range(form: Format, rounding: Rounding, overflow: str, *, negative: bool) -> float:
    """The magnitude (or NaN) of a finite result past the highest finite value."""
    highest = float(form.highest)
    if overflow == "saturate":
        return highest
    if overflow == "nan":
        return nan
    stays = (
        rounding in (Rounding.TOWARD_ZERO, Rounding.ODD)
        or (rounding is Rounding.UP and negative)
        or (rounding is Rounding.DOWN and not negative)
    )
    if stays:
        return highest
    return inf if form.has_infinity else nan


def infinite(form: Format, overflow: str) -> float:
    """What an exact result of +infinity becomes: infinity, the highest finite value, or NaN."""
    if overflow == "saturate":
        return float(form.highest)
    return inf if overflow == "ieee" and form.has_infinity else nan


def round_special(value: float, form: Format, overflow: str) -> float:
    """What a NaN or an infinity becomes in `form`."""
    if isnan(value):
        return nan
    found = infinite(form, overflow)
    return -found if value < 0 else found


def round_leading(x: Leading, form: Format, rounding: Rounding, overflow: str) -> NDArray[np.float64]:
    """Exact numbers rounded to a float format of at most 53 bits, as float64 values. Zeros come out as +0.0."""
    bits = form.significand_bits
    if bits + 2 > LEADING_BITS:
        raise ValueError(f"{form}: {bits} significand bits")
    # the mantissa has LEADING_BITS bits, so its value lies in [2**(exponent + 61), 2**(exponent + 62))
    quantum = np.maximum(x.exponent + (LEADING_BITS - 1), form.emin) - (bits - 1)
    drop = np.minimum(quantum - x.exponent, LEADING_BITS + 1)  # at least 9 bits go; past 63 nothing is left but a remainder
    whole = x.mantissa >> drop
    rest = x.mantissa - (whole << np.minimum(drop, LEADING_BITS))
    match rounding:
        case Rounding.NEAREST_EVEN:
            half = np.int64(1) << (drop - 1)
            whole += (rest > half) | ((rest == half) & ((whole & 1) == 1))
        case Rounding.NEAREST_AWAY:
            whole += rest >= (np.int64(1) << (drop - 1))
        case Rounding.UP:
            whole += (rest > 0) & ~x.negative
        case Rounding.DOWN:
            whole += (rest > 0) & x.negative
        case Rounding.ODD:
            whole |= rest > 0
        case Rounding.TOWARD_ZERO:
            pass
    size = scale_up(whole.astype(np.float64), quantum)
    value: NDArray[np.float64] = np.where(x.negative & (whole != 0), -size, size)
    # a tiny negative number rounded to zero keeps its sign; an exact zero has none
    value[x.negative & (whole == 0) & (x.mantissa != 0)] = -0.0
    past = size > float(form.highest)
    if past.any():
        for negative in (False, True):
            replacement = past_range(form, rounding, overflow, negative=negative)
            value[past & (x.negative == negative)] = -replacement if negative else replacement
    return value


def scale_up(whole: NDArray[np.float64], exponent: Long) -> NDArray[np.float64]:
    """The numbers whole * 2**exponent, where the result is representable or past the range (then infinite)."""
    if not exponent.size:
        return whole
    if int(exponent.min()) >= -1022 and int(exponent.max()) <= 1023:
        powers = ((exponent + 1023) << 52).view(np.float64)
        with np.errstate(over="ignore"):
            return whole * powers
    with np.errstate(over="ignore"):
        found: NDArray[np.float64] = np.ldexp(whole, np.clip(exponent, -5000, 5000).astype(np.int32))
    return found


def leading_of_floats(values: NDArray[np.float64]) -> Leading:
    """The leading bits of finite float64 values."""
    fraction, exponent = np.frexp(np.abs(values))
    mantissa = np.ldexp(fraction, 53).astype(np.int64) << (LEADING_BITS - 53)
    return Leading(np.signbit(values), mantissa, exponent.astype(np.int64) - LEADING_BITS)


def round_floats(
    values: NDArray[np.float64], form: Format, rounding: Rounding = Rounding.NEAREST_EVEN, overflow: str = "ieee"
) -> NDArray[np.float64]:
    """float64 values, infinities and NaNs among them, rounded to a float format; the signs of zeros stay where it has them."""
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    finite = np.isfinite(flat)
    found = round_leading(leading_of_floats(np.where(finite, flat, 0.0)), form, rounding, overflow)
    if form.has_negative_zero:
        found = np.where(found == 0, np.copysign(0.0, flat), found)
    else:
        found += 0.0
    if not finite.all():
        found[~finite] = [round_special(each, form, overflow) for each in flat[~finite].tolist()]
    return found.reshape(np.shape(values))


def round_integer(value: int, form: Format, overflow: str) -> int:
    """An exact integer in an integer format: wrapped, held at the ends of the range, or OverflowError."""
    if form.lowest <= value <= form.highest:
        return value
    if overflow == "saturate":
        return form.highest if value > 0 else form.lowest
    if overflow == "error":
        raise OverflowError(f"{value} is past the range of {form}")
    return (value - form.lowest) % (1 << 8 * form.size) + form.lowest


def round_digits(x: Digits, form: Format, overflow: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Exact integers (exponent 0) in an integer format, and where they were past its range (for "error": values wrap there)."""
    magnitude = np.zeros(x.digits.shape[1:], np.uint64)
    past64 = np.zeros(magnitude.shape, np.bool_)
    for index, digit in enumerate(x.digits):
        place = index * x.width
        if place >= 64:
            past64 |= digit != 0
            continue
        magnitude += digit.astype(np.uint64) << np.uint64(place)
        if place + x.width > 64:
            past64 |= (digit >> (64 - place)) != 0
    limit = np.where(x.negative, np.uint64(-form.lowest), np.uint64(form.highest))
    past: NDArray[np.bool_] = past64 | (magnitude > limit)
    wrapped = np.where(x.negative, ~magnitude + np.uint64(1), magnitude)
    values = wrapped.astype(form.name) if not form.is_signed else wrapped.view(np.int64).astype(form.name)
    if overflow == "saturate":
        values = np.where(past, np.where(x.negative, form.lowest, form.highest).astype(form.name), values)
    return values, past


def is_representable(value: float, form: Format) -> bool:
    """Whether a float is a value of the float format."""
    if isnan(value):
        return True
    if isinf(value):
        return form.has_infinity
    return bool(round_fraction(Fraction(value), form, Rounding.TOWARD_ZERO) == value)
