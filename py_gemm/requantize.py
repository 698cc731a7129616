"""Requantize: how int32 sums become int8 or uint8. Plain data and its checks; the arithmetic lives in shaders/requantize.wgsl and
cpu/kernels/finish_i8.h, which must agree with the definition here. Needs no NumPy, runs nothing.

    q = clamp(zero_point + rne(scale * (sum + bias)), lowest, highest)

sum + bias wraps modulo 2^32; the product of the integer with the float32 scale is exact and rounded once, to nearest, ties to even.
With zero_point_before_rounding, q = clamp(rne(scale * (sum + bias) + zero_point), lowest, highest), exact as well (ONNX's
QuantizeLinear, whose reference rounds in float32 besides). The same integers on every device.
"""

from __future__ import annotations

import operator
import struct
from dataclasses import dataclass
from typing import Any

from .dtypes import BYTE_TYPES, INT32, ElementType, integer_range
from .errors import ShapeError

# A scale in one word: 24 bits of significand under 6 bits of shift; scale = significand * 2^-shift wherever that decides anything.
_SHIFT_AT = 24
# Sum and significand have at most 31 + 24 bits: a quotient by 2^57 or more is below 1/2, and shifts above 63 are all the same.
_GREATEST_SHIFT = 63


@dataclass(frozen=True, slots=True)
class Vector:
    """One number for all, one a row of A or one a column of B. `along`: None, "row" or "column"; `values` as 32-bit words."""

    along: str | None
    values: tuple[int, ...]

    def require(self, operation: str, name: str, m: int, n: int) -> None:
        """ShapeError where the length is not that of the product's rows or columns."""
        if self.along is None:
            return
        dimension, size = ("m", m) if self.along == "row" else ("n", n)
        if len(self.values) != size:
            raise ShapeError(
                f"{operation}: {name} has {len(self.values)} elements, one a {self.along}; dimension {dimension} is {size}"
            )


class Requantize:
    """Scale int32 sums to int8 or uint8; see the head of this file for the arithmetic.

    scale: float32, finite and positive: a number, shape (n,) or (1, n) for one a column of B, (m, 1) for one a row of A.
    zero_point: an integer in the range of dtype. bias: int32 numbers, in the shapes of scale; None: 0. dtype: "int8" or "uint8".
    zero_point_before_rounding: the zero point is added before the rounding rather than after it; only ties differ.

    Raises ValueError for a scale, zero point or bias out of range and for other shapes, TypeError for other types. Immutable.
    """

    __slots__ = ("bias", "scale", "type", "zero_point", "zero_point_before_rounding")

    bias: Vector
    scale: Vector
    type: ElementType
    zero_point: int
    zero_point_before_rounding: bool

    def __init__(
        self,
        scale: Any,
        zero_point: int = 0,
        bias: Any = None,
        dtype: Any = "int8",
        zero_point_before_rounding: bool = False,
    ) -> None:
        type_ = _byte_type(dtype)
        along, numbers = read_numbers("Requantize", "scale", scale)
        one = one_integer("Requantize", "zero_point", zero_point)
        values = {
            "scale": Vector(along, tuple(_scale_word(number) for number in numbers)),
            "bias": Vector(None, (0,)) if bias is None else read_integers("Requantize", "bias", bias, INT32),
            "type": type_,
            "zero_point": require_range("Requantize", "zero_point", one, type_),
            "zero_point_before_rounding": bool(zero_point_before_rounding),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def dtype(self) -> str:
        """The name of the result's type."""
        return self.type.name

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Requantize does not change; make another ({name}={value!r})")

    def __repr__(self) -> str:
        scale, bias = self.scale.along or "tensor", self.bias.along or "tensor"
        when = ", zero point before rounding" if self.zero_point_before_rounding else ""
        return f"Requantize(scale per {scale}, bias per {bias}, zero_point={self.zero_point}, dtype={self.dtype}{when})"


def read_numbers(operation: str, name: str, value: Any) -> tuple[str | None, list[Any]]:
    """How the numbers of an argument lie, and the numbers. Taken: a number, a list, rows in a list, anything with `tolist`."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    if getattr(value, "shape", None) == (0, 1):
        return "row", []
    if not isinstance(listed, list | tuple):
        return None, [listed]
    if not listed or not isinstance(listed[0], list | tuple):
        if any(isinstance(each, list | tuple) for each in listed):
            raise ShapeError(f"{operation}: {name} is ragged")
        return (None if len(listed) == 1 else "column"), list(listed)
    widths = {len(each) if isinstance(each, list | tuple) else -1 for each in listed}
    width = max(widths)
    flat = [number for each in listed if isinstance(each, list | tuple) for number in each]
    if len(widths) > 1 or any(isinstance(number, list | tuple) for number in flat) or (width != 1 and len(listed) != 1):
        raise ShapeError(
            f"{operation}: {name} must be one number, (n,) or (1, n) numbers (one a column of b), or (m, 1) (one a row of a)"
        )
    if width == 1:
        return (None if len(listed) == 1 else "row"), flat
    return "column", flat


def read_integers(operation: str, name: str, value: Any, type_: ElementType) -> Vector:
    """The integers of an argument; TypeError for other numbers, ValueError for one out of the range of `type_`."""
    along, numbers = read_numbers(operation, name, value)
    return Vector(along, tuple(require_range(operation, name, one_integer(operation, name, each), type_) for each in numbers))


def one_integer(operation: str, name: str, value: object) -> int:
    """`value` as an int; TypeError where it is none."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]  # what it refuses is the TypeError below
        except TypeError:
            pass
    raise TypeError(f"{operation}: {name} must be an integer, not {value!r}")


def require_range(operation: str, name: str, value: int, type_: ElementType) -> int:
    """`value` itself; ValueError where `type_` does not hold it."""
    lowest, highest = integer_range(type_)
    if not lowest <= value <= highest:
        raise ValueError(f"{operation}: {name} is {value}, out of the range of {type_}: {lowest} to {highest}")
    return value


def _byte_type(dtype: Any) -> ElementType:
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    if name not in BYTE_TYPES:
        raise ValueError(f"Requantize: unknown dtype {dtype!r}; known: {', '.join(BYTE_TYPES)}")
    return BYTE_TYPES[name]


def _scale_word(number: Any) -> int:
    if isinstance(number, bool | complex | str | bytes) or not hasattr(number, "__float__"):
        raise TypeError(f"Requantize: scale must be a real number, not {number!r}")
    bits: int
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", float(number)))
    except OverflowError:
        bits = 0x7F80_0000
    # Neither sign, nor zero, nor infinity, nor NaN.
    if not 0 < bits < 0x7F80_0000:
        raise ValueError(f"Requantize: scale must be finite and positive as float32, not {number!r}")
    exponent, significand = bits >> 23, bits & 0x7F_FFFF
    if exponent:
        significand |= 0x80_0000
    # From 2^23 on every sum but 0 saturates: the shift stays 0.
    shift = min(max(150 - max(exponent, 1), 0), _GREATEST_SHIFT)
    return significand | shift << _SHIFT_AT
