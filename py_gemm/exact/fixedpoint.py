"""Exact sums as fixed-point numbers: how engines hand them over, and the exact arithmetic that finishes them.

An element of `FixedPoint` is 2**exponent * (limbs[0] + limbs[1] * 2**width + limbs[2] * 2**(2 * width) + ...), each limb a signed
int64 that may be far larger than 2**width: limbs overlap, carries are settled once at the end. All arithmetic here is on
integers and loses nothing. Whole arrays at a time; `Integers` is the same for Python's integers, one element at a time.
Nothing here rounds (rounding.py does) and nothing here knows about matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Long = NDArray[np.int64]

LEADING_BITS = 62  # of a `Leading.mantissa`: the most that leaves int64 its sign and one bit for rounding
MOST_LIMBS = 400  # of an intermediate sum (float64 products span 4,200 bits: 263 limbs of 16); longer ones go to Python's integers


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """limbs: int64 [L, *shape], below 2**62 in magnitude; width: bits from one limb to the next, 8 to 32; exponent: int64, of
    the lowest limb's lowest bit, broadcastable to `shape`."""

    limbs: Long
    width: int
    exponent: Long

    @property
    def shape(self) -> tuple[int, ...]:
        return self.limbs.shape[1:]

    def part(self, where: slice) -> FixedPoint:
        """The elements `where` of a sum whose shape is flat."""
        return FixedPoint(self.limbs[:, where], self.width, self.exponent[where])

    def flat(self) -> FixedPoint:
        exponent = np.broadcast_to(self.exponent, self.shape)
        return FixedPoint(self.limbs.reshape(len(self.limbs), -1), self.width, exponent.reshape(-1))

    def integers(self) -> Integers:
        """The same numbers as Python integers."""
        values = np.zeros(self.shape, object)
        for limb in self.limbs[::-1]:
            values = values * (1 << self.width) + limb.astype(object)
        return Integers(np.asarray(values, object), np.broadcast_to(self.exponent, self.shape))


@dataclass(frozen=True, slots=True)
class Integers:
    """value = values * 2**exponent; values: Python integers in an object array, exponent: int64, of the same shape."""

    values: NDArray[Any]
    exponent: Long

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def part(self, where: slice) -> Integers:
        return Integers(self.values[where], self.exponent[where])

    def flat(self) -> Integers:
        return Integers(self.values.reshape(-1), np.broadcast_to(self.exponent, self.shape).reshape(-1))

    def integers(self) -> Integers:
        return self

    def fractions(self) -> list[Fraction]:
        return [
            Fraction(value << exponent) if exponent >= 0 else Fraction(value, 1 << -exponent)
            for value, exponent in zip(self.values.reshape(-1).tolist(), self.exponent.reshape(-1).tolist(), strict=True)
        ]


Sums = FixedPoint | Integers


@dataclass(frozen=True, slots=True)
class Leading:
    """The leading bits of exact numbers: |x| = mantissa * 2**exponent, where bit 0 of the mantissa also stands for any bits
    below it ("sticky"). A mantissa is 0 or has its highest bit at 2**61, so it decides every rounding to up to 59 bits."""

    negative: NDArray[np.bool_]
    mantissa: Long
    exponent: Long


@dataclass(frozen=True, slots=True)
class Digits:
    """The magnitude of exact numbers as proper digits: 0 <= digit < 2**width, least significant first."""

    negative: NDArray[np.bool_]
    digits: Long
    width: int
    exponent: Long


def dyadic(value: Fraction) -> tuple[int, int] | None:
    """(odd or zero integer i, exponent e) with value = i * 2**e; None where there is none (1/3)."""
    if value == 0:
        return 0, 0
    if value.denominator & (value.denominator - 1):
        return None
    number, exponent = value.numerator, 1 - value.denominator.bit_length()
    trailing = (number & -number).bit_length() - 1
    return number >> trailing, exponent + trailing


def halved(sums: FixedPoint) -> FixedPoint:
    """The same numbers with limbs of half the width (which must be even)."""
    width = sums.width // 2
    low = sums.limbs & ((1 << width) - 1)
    return FixedPoint(np.stack([low, sums.limbs >> width], 1).reshape(-1, *sums.shape), width, sums.exponent)


def scaled(sums: FixedPoint, factor: int) -> FixedPoint:
    """`sums` times an integer: digit by digit where the factor is long. The width must be at most 27 (products stay below 2**54,
    and at most 2**6 of them meet in a limb)."""
    if abs(factor) == 1:
        return FixedPoint(sums.limbs * factor, sums.width, sums.exponent)
    pieces = _pieces(abs(factor), sums.width)
    proper = settle(sums)
    sign = np.where(proper.negative, -1, 1) * (1 if factor > 0 else -1)
    limbs = np.zeros((len(proper.digits) + len(pieces) - 1, *sums.shape), np.int64)
    for index, piece in enumerate(pieces):
        if piece:
            limbs[index : index + len(proper.digits)] += proper.digits * piece
    return FixedPoint(limbs * sign, sums.width, sums.exponent)


def with_addend(sums: FixedPoint, values: NDArray[Any], factor: int, exponent: int) -> FixedPoint | None:
    """The sum sums + factor * values * 2**exponent, exactly; `values`: finite float64, int64 or uint64 of the sums' shape.

    None where that would take more than MOST_LIMBS limbs. Where |factor| > 1 the width must be at most 27.
    """
    width = sums.width
    mantissa, place = _integer_and_exponent(values)
    sign = 1 if factor > 0 else -1
    # pieces of the values times pieces of the factor stay below 2**28, and below 2**60 when shifted into their limb
    terms = [
        (piece * (sign * other), offset + 14 * index)
        for piece, offset in _split(mantissa, 27 if abs(factor) == 1 else 14)
        for index, other in enumerate(_pieces(abs(factor), 14))
        if other
    ]
    position = np.where(mantissa != 0, place + exponent - sums.exponent, 0)
    if not terms or not position.size:
        return sums
    below = max(0, -(int(position.min()) // width))
    position += below * width
    top = int(position.max()) + max(offset for _, offset in terms)
    count = max(below + len(sums.limbs), top // width + 2)
    if count > MOST_LIMBS:
        return None
    limbs = np.zeros((count, *sums.shape), np.int64)
    limbs[below : below + len(sums.limbs)] = sums.limbs
    for piece, offset in terms:
        index, shift = np.divmod(position + offset, width)
        shifted = piece << shift
        for limb in range(int(index.min()), int(index.max()) + 1):
            limbs[limb] += shifted * (index == limb)
    return FixedPoint(limbs, width, sums.exponent - below * width)


def addends_only(addends: list[tuple[NDArray[Any], int]]) -> FixedPoint:
    """A zero sum whose grid suits the addends (values, exponent of their factor): nothing lies below its lowest limb."""
    lowest = [_integer_and_exponent(values)[1] + exponent for values, exponent in addends]
    grid = lowest[0]
    for each in lowest[1:]:
        grid = np.minimum(grid, each)
    return FixedPoint(np.zeros((1, *grid.shape), np.int64), 24, grid)


def settle(sums: FixedPoint) -> Digits:
    """Sign and proper digits: all carries done."""
    limbs, width = sums.limbs, sums.width
    mask = (1 << width) - 1
    carry = np.zeros(sums.shape, np.int64)
    for limb in limbs:  # only to learn the sign: the carry out of the top is the floor of the whole
        carry += limb
        carry >>= width
    negative = carry < 0
    sign = np.where(negative, -1, 1)
    largest = max(int(limbs.max(initial=0)), -int(limbs.min(initial=0)))
    extra = max(0, -(-(largest.bit_length() + 1 - width) // width))
    digits = np.empty((len(limbs) + extra, *sums.shape), np.int64)
    carry = np.zeros(sums.shape, np.int64)
    for index, limb in enumerate(limbs):
        np.multiply(limb, sign, out=digits[index])
        digits[index] += carry
        np.right_shift(digits[index], width, out=carry)
        digits[index] &= mask
    for index in range(len(limbs), len(digits)):
        np.bitwise_and(carry, mask, out=digits[index])
        carry >>= width
    return Digits(negative, digits, width, sums.exponent)


def leading(proper: Digits) -> Leading:
    """The leading bits, with a sticky bit for the rest. Shape: flat."""
    width = proper.width
    window = 1 + -(-(LEADING_BITS - 1) // width)  # limbs that hold LEADING_BITS bits from the highest set bit on
    count, size = proper.digits.shape
    padded = np.zeros((count + window - 1, size), np.int64)
    padded[window - 1 :] = proper.digits
    top = np.zeros(size, np.int64)
    bottom = np.zeros(size, np.int64)
    for index in range(count):
        filled = proper.digits[index] != 0
        np.copyto(top, index, where=filled)
    for index in range(count - 1, -1, -1):
        filled = proper.digits[index] != 0
        np.copyto(bottom, index, where=filled)
    flat = padded.reshape(-1)
    place = ((top + (window - 1)) * size + np.arange(size)).astype(np.intp)
    digit = flat.take(place)
    room = LEADING_BITS - bit_length(digit)
    exponent = proper.exponent + width * top - room
    mantissa = digit << np.minimum(room, LEADING_BITS)
    sticky = bottom <= top - window
    for _ in range(window - 1):
        place -= size
        room -= width
        digit = flat.take(place)
        drop = np.maximum(-room, 0)
        mantissa |= (digit << np.maximum(room, 0)) >> drop
        sticky |= (digit & ((np.int64(1) << np.minimum(drop, LEADING_BITS)) - 1)) != 0
    mantissa |= sticky
    return Leading(proper.negative, mantissa, exponent)


def bit_length(values: Long) -> Long:
    """The bits of non-negative integers: 0 for 0, 1 for 1, 2 for 2 and 3."""
    # clearing the second of the two highest bits keeps float64 from rounding up to the next power of two
    number = (values & ~(values >> 1)).astype(np.float64)
    found: Long = (number.view(np.int64) >> 52) - 1022
    return np.maximum(found, 0)


def _integer_and_exponent(values: NDArray[Any]) -> tuple[NDArray[Any], Long]:
    """Integers of at most 64 bits and exponents with values = integer * 2**exponent."""
    if values.dtype.kind in "iu":
        return values, np.zeros(values.shape, np.int64)
    fraction, exponent = np.frexp(values)
    return np.ldexp(fraction, 53).astype(np.int64), exponent.astype(np.int64) - 53


def _split(values: NDArray[Any], bits: int) -> list[tuple[Long, int]]:
    """Signed pieces of at most `bits` bits with their offsets; empty where all values are zero."""
    if values.dtype == np.uint64:
        return [*_split((values & np.uint64((1 << 32) - 1)).astype(np.int64), bits), *_shifted(values >> np.uint64(32), bits)]
    pieces, offset = [], 0
    rest = values.astype(np.int64)
    mask = (1 << bits) - 1
    while rest.any():
        last = offset + bits >= 64 or bool(((rest >= -mask - 1) & (rest <= mask)).all())
        pieces.append((rest if last else rest & mask, offset))
        if last:
            break
        rest >>= bits
        offset += bits
    return pieces


def _shifted(high: NDArray[Any], bits: int) -> list[tuple[Long, int]]:
    return [(piece, offset + 32) for piece, offset in _split(high.astype(np.int64), bits)]


def _pieces(number: int, bits: int) -> list[int]:
    """A non-negative integer in base 2**bits, least significant first."""
    pieces = []
    while number:
        pieces.append(number & ((1 << bits) - 1))
        number >>= bits
    return pieces
