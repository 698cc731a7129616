"""The element types as plain data, and the rule that promotes two of them. Imports nothing: no NumPy, no device.

Conversions of values live where they run: shaders/ (on the GPU), cpu/kernels (in WebAssembly), arrays.py (NumPy).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElementType:
    """One format of numbers.

    `code` is the number by which WebAssembly kernels and shaders know the type; `significand_bits` counts the hidden bit.
    Integers have no exponent; their significand is what is left beside the sign.
    """

    name: str
    size: int
    code: int
    significand_bits: int
    exponent_bits: int

    def __repr__(self) -> str:
        return self.name


FLOAT32 = ElementType("float32", 4, 0, 24, 8)
FLOAT16 = ElementType("float16", 2, 1, 11, 5)
BFLOAT16 = ElementType("bfloat16", 2, 2, 8, 8)
FLOAT64 = ElementType("float64", 8, 3, 53, 11)

INT8 = ElementType("int8", 1, 4, 7, 0)
UINT8 = ElementType("uint8", 1, 5, 8, 0)
INT32 = ElementType("int32", 4, 6, 31, 0)

FLOAT_TYPES: dict[str, ElementType] = {row.name: row for row in (FLOAT32, FLOAT16, BFLOAT16, FLOAT64)}
# The integers that are multiplied; their products are summed in int32.
BYTE_TYPES: dict[str, ElementType] = {row.name: row for row in (INT8, UINT8)}


def integer_range(type_: ElementType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    greatest = (1 << type_.significand_bits) - 1
    return (0 if type_ is UINT8 else -greatest - 1), greatest


def promote(first: ElementType, second: ElementType) -> ElementType:
    """The narrowest type that holds every value of both (NumPy's rule; float16 with bfloat16 gives float32)."""
    if first is second:
        return first
    for candidate in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64):
        if all(
            candidate.significand_bits >= each.significand_bits and candidate.exponent_bits >= each.exponent_bits
            for each in (first, second)
        ):
            return candidate
    raise AssertionError("float64 holds every float type")


def accumulator_type(first: ElementType, second: ElementType) -> ElementType:
    """The type in which a product of these two is summed: int32 for integers, float64 where either is, else float32."""
    if first.name in BYTE_TYPES and second.name in BYTE_TYPES:
        return INT32
    return FLOAT64 if FLOAT64 in (first, second) else FLOAT32
