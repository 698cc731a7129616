"""Could this number be right? The images of error bounds under the final rounding, and where a result lies in them.

An implementation's value before the final rounding lies in [S - E, S + E], S exact and E from tolerance.py. Rounding is monotone,
so the numbers that it may return are those from R(S - E) to R(S + E). Everything here is float64; S is a pair of float64
(evaluate.nearest).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .fixedpoint import LEADING_BITS, Leading
from .formats import Format
from .rounding import Rounding, leading_of_floats, round_leading, round_special
from .special import Floats
from .tolerance import Bounds


@dataclass(frozen=True, slots=True)
class Interval:
    """lower, upper: the numbers that one part of a result may be, ends included (NaN: only NaN); infinite past the range.
    any_special: where infinities and NaN are right, too. nan: where NaN is, being what the overflow rule makes of an end.
    high + low: the exact value."""

    lower: Floats
    upper: Floats
    any_special: NDArray[np.bool_]
    nan: NDArray[np.bool_]
    high: Floats
    low: Floats


def make_interval(high: Floats, low: Floats, bounds: Bounds, form: Format, rounding: Rounding, overflow: str) -> Interval:
    """The interval of each element; see the head of this file. The correctly rounded number is always in it."""
    lower, below = _rounded_end(high, low, -bounds.error, form, rounding, overflow)
    upper, above = _rounded_end(high, low, bounds.error, form, rounding, overflow)
    center, past = _rounded_end(high, low, np.zeros_like(high), form, rounding, overflow)
    with np.errstate(invalid="ignore"):
        lower, upper = np.minimum(lower, center), np.maximum(upper, center)
    return Interval(lower, upper, bounds.overflows, below | above | past, high, low)


def _rounded_end(
    high: Floats, low: Floats, step: Floats, form: Format, rounding: Rounding, overflow: str
) -> tuple[Floats, NDArray[np.bool_]]:
    """The numbers high + low + step rounded to the format, infinite with the sign where that gives NaN, and where it does."""
    with np.errstate(over="ignore", invalid="ignore"):
        first = high + step
        back = first - high
        rest = (high - (first - back)) + (step - back) + low
        total = first + rest
        left = rest - (total - first)
    infinite = ~np.isfinite(total)
    # an infinite end, an infinite exact value (its rest is 0) and a NaN stand for themselves
    stand = np.where(np.isfinite(high), np.where(np.isnan(total), np.copysign(np.inf, step), total), high)
    regular = np.where(infinite, 0.0, total)
    found = round_leading(_sticky(regular, np.where(infinite, 0.0, left)), form, rounding, overflow)
    if infinite.any():
        special = [round_special(each, form, overflow) for each in stand[infinite].tolist()]
        found[infinite] = special
    nan: NDArray[np.bool_] = np.isnan(found) & ~np.isnan(high)
    sign = np.where(infinite, stand, total)
    return np.where(nan, np.copysign(np.inf, sign), found), nan


def _sticky(values: Floats, left: Floats) -> Leading:
    """The leading bits of values + left, |left| at most half a unit in the last place of values."""
    flat = leading_of_floats(values)
    same = np.where(np.signbit(values), -1.0, 1.0) * np.sign(left)
    mantissa = flat.mantissa + same.astype(np.int64) * (values != 0)
    short = (mantissa > 0) & (mantissa < 1 << (LEADING_BITS - 1))  # just below a power of two
    mantissa = np.where(short, (mantissa << 1) | 1, mantissa)
    return Leading(flat.negative, mantissa, flat.exponent - short)


def covers(interval: Interval, x: Floats) -> NDArray[np.bool_]:
    """Where x is a number that the interval has."""
    with np.errstate(invalid="ignore"):
        inside = (x >= interval.lower) & (x <= interval.upper)
    # past the range a format without infinities gives NaN: the interval's infinite ends are no numbers of it
    found: NDArray[np.bool_] = inside | (np.isnan(x) & (np.isnan(interval.high) | interval.nan))
    return found | (~np.isfinite(x) & interval.any_special)


def tolerance(interval: Interval) -> Floats:
    """The distance from the exact value to the farther end, rounded up; 0 where the exact value is infinite or NaN."""
    with np.errstate(invalid="ignore"):
        found = np.maximum(_distance(interval.upper, interval), _distance(interval.lower, interval))
    found = np.where(np.isfinite(interval.high), found, 0.0)
    return np.where(interval.any_special, np.inf, found)


def _distance(x: Floats, interval: Interval) -> Floats:
    """|x - S|, rounded up."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = x - interval.high
        whole = interval.low == 0
        exact = (difference + interval.high == x) & whole
        found = np.abs(difference - interval.low)
        return np.where(((found == 0) & whole) | (exact & (np.abs(difference) < 2.0**-1000)), found, np.nextafter(found, np.inf))


def distance(high: Floats, low: Floats, x: Floats) -> Floats:
    """|x - S|, 0 only where x is S; 0 where both are the same NaN or infinity, infinite where only one of them is."""
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.abs((x - high) - low)
    # high + low is a float64 that S is not: what is left of S lies below the lowest of them (the rest is rounded to odd)
    found = np.where((found == 0) & (low != 0), 5e-324, found)
    same = (x == high) | (np.isnan(x) & np.isnan(high))
    return np.where(np.isnan(found), np.where(same, 0.0, np.inf), found)


def margin(interval: Interval, x: Floats) -> Floats:
    """How far x is from the exact value, as a share of the interval on its side: at most 1 where x is covered, else above 1; 0 only
    where x is the exact value."""
    inside = covers(interval, x)
    away = distance(interval.high, interval.low, x)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        side = np.where(x >= interval.high, _distance(interval.upper, interval), _distance(interval.lower, interval))
        share = np.where(away == 0, 0.0, np.maximum(away / side, 5e-324))
    share = np.where(np.isnan(share), np.where(inside, 0.0, np.inf), share)
    above: Any = np.nextafter(1.0, 2.0)
    return np.where(inside, np.minimum(share, 1.0), np.maximum(share, above))
