"""Bits in memory and the numbers they stand for, for every format: arrays as NumPy (or ml_dtypes) keeps them, and float64 values.

float64, float32, float16, the integers and the complex formats are kept as NumPy keeps them; bfloat16 as uint16 and the 8-bit
floats as uint8: their bits, so that neither NumPy nor ml_dtypes needs to know them. Decoding is exact. Encoding takes values
that the format has; it rounds nothing and raises where a value is not representable.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .formats import BFLOAT16, Format

Values = NDArray[Any]  # float64, complex128, or the integers' own type


def storage_dtype(form: Format) -> np.dtype[Any]:
    """The NumPy type in which elements of `form` are kept."""
    if form is BFLOAT16:
        return np.dtype(np.uint16)
    return np.dtype(np.uint8) if form.kind == "float" and form.size == 1 else np.dtype(form.name)


def array_dtype(form: Format) -> np.dtype[Any]:
    """The NumPy type for handing out: ml_dtypes' where NumPy has none and ml_dtypes is installed, else the bits."""
    try:
        return np.dtype(form.name)
    except TypeError:
        pass
    try:
        types = import_module("ml_dtypes")
    except ImportError:
        return storage_dtype(form)
    found: np.dtype[Any] = np.dtype(getattr(types, form.name))
    return found


@cache
def _table(form: Format) -> NDArray[np.float64]:
    """The 256 values of an 8-bit float format."""
    bits = np.arange(256)
    fraction_bits = form.significand_bits - 1
    exponent, fraction = (bits & 127) >> fraction_bits, bits & ((1 << fraction_bits) - 1)
    size = np.where(
        exponent == 0,
        np.ldexp(fraction.astype(np.float64), form.emin - fraction_bits),
        np.ldexp((fraction + (1 << fraction_bits)).astype(np.float64), exponent - 1 + form.emin - fraction_bits),
    )
    values = np.where(bits >= 128, -size, size)
    if not form.has_negative_zero:
        values[128] = np.nan
        return values
    if form.has_infinity:
        values[size > float(form.highest)] = np.nan
        infinite = ((1 << 7 - fraction_bits) - 1) << fraction_bits
        values[infinite], values[infinite + 128] = np.inf, -np.inf
    else:
        values[size > float(form.highest)] = np.nan
    return values


def decode(stored: NDArray[Any], form: Format) -> Values:
    """The values of stored elements: float64 for floats, complex128 for complex formats, the same array for integers."""
    if form.kind == "int":
        return stored
    if form.size == 1:
        values: Values = _table(form)[stored]
        return values
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        if form.kind == "complex":
            return stored.astype(np.complex128)
        if form is BFLOAT16:
            return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return stored.astype(np.float64)


def encode(values: NDArray[Any], form: Format) -> NDArray[Any]:
    """Stored elements of values (float64, complex128 or integers) that `form` has; ValueError naming one that it has not."""
    if form.kind == "int":
        stored = np.asarray(values).astype(form.name)
        _require_same(stored, values, form)
        return stored
    if form.kind == "complex":
        stored = np.empty(values.shape, form.name)
        stored.real = encode(np.ascontiguousarray(values.real), form.part)
        stored.imag = encode(np.ascontiguousarray(values.imag), form.part)
        return stored
    if form is BFLOAT16:
        with np.errstate(over="ignore", invalid="ignore"):
            words = np.ascontiguousarray(values, np.float32).view(np.uint32)
        # a NaN keeps its sign and becomes the quiet one
        stored = np.where(np.isnan(values), ((words >> 16) & 0x8000) | 0x7FC0, words >> 16).astype(np.uint16)
    elif form.size == 1:
        stored = _encode8(values, form)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            stored = values.astype(form.name)
    _require_same(decode(stored, form), values, form)
    return stored


@cache
def _sorted_table(form: Format) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """The non-negative values in order, infinity included, and their codes."""
    values = _table(form)[:128]
    codes = np.flatnonzero(~np.isnan(values))
    return values[codes], codes.astype(np.uint8)


def _encode8(values: NDArray[Any], form: Format) -> NDArray[np.uint8]:
    size = np.abs(values)
    known, codes = _sorted_table(form)
    place = np.minimum(np.searchsorted(known, size), len(known) - 1)
    sign = np.where(np.signbit(values), np.uint8(128), np.uint8(0))
    if not form.has_negative_zero:
        sign[size == 0] = 0
    stored: NDArray[np.uint8] = (codes[place] | sign).astype(np.uint8)
    quiet = 127 if form.has_negative_zero else 128
    if form.has_infinity:  # e5m2: the quiet NaN, 0x7e
        quiet = 126
    stored[np.isnan(values)] = quiet
    return stored


def _require_same(found: NDArray[Any], wanted: NDArray[Any], form: Format) -> None:
    wrong = found != wanted
    if wanted.dtype.kind == "f":
        wrong &= ~(np.isnan(found) & np.isnan(wanted))
    if wrong.any():
        where = tuple(int(each) for each in np.argwhere(wrong)[0])
        raise ValueError(f"{wanted[where].item()!r} at {where} is no value of {form}")
