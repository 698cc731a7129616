"""The number formats of the exact reference, as plain data, and the rule that promotes two of them.

A float format is (significand bits p, emin, emax, highest finite value) and what it has of infinities, NaNs and negative zeros.
Sources: IEEE 754-2019 table 3.5 (binary16, 32, 64); Google's bfloat16; OCP 8-bit Floating Point Specification 1.0 (e5m2, e4m3fn);
Noune et al., arXiv:2206.02915 (the fnuz forms: a bias one higher, one NaN in the place of the negative zero, no infinities).
Imports no NumPy and converts nothing: values and bits are the work of codes.py, rounding that of rounding.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any


@dataclass(frozen=True, slots=True)
class Format:
    """One number format. `kind` is "float", "int" or "complex".

    size: bytes of an element. significand_bits counts the hidden bit (of integers: the value bits). emin, emax: the exponents
    of the lowest normal and the highest finite value, read as 1.f * 2**e. lowest, highest: the finite range (of a part, for
    complex formats). part: the float format of the real and the imaginary part. default_overflow: what becomes of a result
    past the range where the caller does not say.
    """

    name: str
    kind: str
    size: int
    significand_bits: int = 0
    emin: int = 0
    emax: int = 0
    highest: int = 0
    lowest: int = 0
    has_infinity: bool = True
    has_negative_zero: bool = True
    default_overflow: str = "ieee"
    part_name: str = ""

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are the format itself: formats are told apart by identity."""
        return find_format, (self.name,)

    @property
    def part(self) -> Format:
        """The format of each part of a complex format; of any other format itself."""
        return FORMATS[self.part_name] if self.part_name else self

    @property
    def is_signed(self) -> bool:
        return self.lowest < 0

    @property
    def lowest_bit(self) -> int:
        """The exponent of the lowest bit that a value can have: every finite value is a whole multiple of 2**lowest_bit."""
        return 0 if self.kind == "int" else self.emin - self.significand_bits + 1

    @property
    def unit(self) -> Fraction:
        """Half a unit in the last place of 1: the bound of the relative error of one rounding to nearest."""
        return Fraction(1, 1 << self.significand_bits)

    @property
    def half_subnormal(self) -> Fraction:
        """Half of the lowest positive value: the bound of the absolute error of one rounding below the normal range."""
        return Fraction(2) ** (self.emin - self.significand_bits)


def _float(name: str, size: int, p: int, emin: int, emax: int, missing: int = 0, **traits: Any) -> Format:
    """`missing`: how many of the highest significands are no finite values (1 in e4m3fn, where the last is the NaN)."""
    highest = ((1 << p) - 1 - missing) << (emax - p + 1) if emax >= p - 1 else 0
    if not highest:
        raise ValueError(f"{name}: the highest value is no integer")
    return Format(name, "float", size, p, emin, emax, highest, -highest, **traits)


def _integer(bits: int, signed: bool) -> Format:
    lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    name = f"{'' if signed else 'u'}int{bits}"
    return Format(name, "int", bits // 8, bits - signed, 0, 0, highest, lowest, False, False, "wrap")


_NO_INFINITY: dict[str, Any] = {"has_infinity": False, "default_overflow": "nan"}
_FNUZ: dict[str, Any] = {**_NO_INFINITY, "has_negative_zero": False}

FLOAT64 = _float("float64", 8, 53, -1022, 1023)
FLOAT32 = _float("float32", 4, 24, -126, 127)
FLOAT16 = _float("float16", 2, 11, -14, 15)
BFLOAT16 = _float("bfloat16", 2, 8, -126, 127)
FLOAT8_E5M2 = _float("float8_e5m2", 1, 3, -14, 15)
FLOAT8_E4M3FN = _float("float8_e4m3fn", 1, 4, -6, 8, 1, **_NO_INFINITY)
FLOAT8_E5M2FNUZ = _float("float8_e5m2fnuz", 1, 3, -15, 15, **_FNUZ)
FLOAT8_E4M3FNUZ = _float("float8_e4m3fnuz", 1, 4, -7, 7, **_FNUZ)


def _complex(name: str, part: Format) -> Format:
    return Format(
        name, "complex", 2 * part.size, part.significand_bits, part.emin, part.emax, part.highest, part.lowest, part_name=part.name
    )


COMPLEX64 = _complex("complex64", FLOAT32)
COMPLEX128 = _complex("complex128", FLOAT64)

FLOATS = (FLOAT64, FLOAT32, FLOAT16, BFLOAT16, FLOAT8_E5M2, FLOAT8_E4M3FN, FLOAT8_E5M2FNUZ, FLOAT8_E4M3FNUZ)
INTEGERS = tuple(_integer(bits, signed) for signed in (True, False) for bits in (8, 16, 32, 64))
FORMATS: dict[str, Format] = {each.name: each for each in (*FLOATS, *INTEGERS, COMPLEX64, COMPLEX128)}

FLOAT_OVERFLOWS = ("ieee", "saturate", "nan")
INTEGER_OVERFLOWS = ("wrap", "error", "saturate")

_WIDENING = (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)


def find_format(dtype: object) -> Format:
    """The format that a name, a Format, or anything with a dtype's `name` or `__name__` stands for; TypeError where there is
    none."""
    if isinstance(dtype, Format):
        return dtype
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(name).removeprefix("torch.")
    name = {"float": "float64", "int": "int64", "complex": "complex128"}.get(name, name)
    if name not in FORMATS:
        raise TypeError(f"{dtype!r} is no format of the exact reference; known: {', '.join(FORMATS)}")
    return FORMATS[name]


def overflow_rule(form: Format, overflow: str | None) -> str:
    """The rule in force for results past the range of `form`; ValueError for one that its kind does not have."""
    known = INTEGER_OVERFLOWS if form.kind == "int" else FLOAT_OVERFLOWS
    if overflow is None:
        return form.default_overflow
    if overflow not in known:
        raise ValueError(f"overflow={overflow!r} is not for {form}; known: {', '.join(known)}")
    return overflow


def promote(first: Format, second: Format) -> Format:
    """The format of a sum of the two: the narrowest that holds every value of both.

    Integers as in the array API standard (int8 with uint8 gives int16). float16 with bfloat16 gives float32; a real format
    with a complex one gives the complex format whose parts hold both. TypeError where there is no such format: two different
    8-bit float formats, int64 (or narrower signed ones) with uint64, and integers with floats.
    """
    if first is second:
        return first
    if "complex" in (first.kind, second.kind) and "int" not in (first.kind, second.kind):
        return COMPLEX64 if promote(first.part, second.part) is FLOAT32 else COMPLEX128
    if first.kind != second.kind:
        raise TypeError(f"{first} and {second} are of different kinds; convert one of them first")
    if first.kind == "int":
        candidates: tuple[Format, ...] = tuple(sorted(INTEGERS, key=lambda each: (each.size, each.is_signed)))
    elif first.size == second.size == 1:
        raise TypeError(f"{first} and {second} have no common format; convert one of them first")
    else:
        candidates = _WIDENING
    for candidate in candidates:
        if all(holds(candidate, each) for each in (first, second)):
            return candidate
    raise TypeError(f"{first} and {second} have no common format; convert one of them first")


def promote_all(formats: list[Format]) -> Format:
    """The format of a sum of operands of these formats."""
    found = formats[0]
    for each in formats[1:]:
        found = promote(found, each)
    return found


def compute_format(operands: Format, output: Format) -> Format:
    """The format that implementations compute in: float64 where operands or output are float64, else float32."""
    return FLOAT64 if FLOAT64 in (operands.part, output.part) else FLOAT32


def holds(wide: Format, narrow: Format) -> bool:
    """Whether every value of the one is a value of the other (of the same kind)."""
    if wide.kind == "int":
        return wide.lowest <= narrow.lowest and wide.highest >= narrow.highest
    return (
        wide.significand_bits >= narrow.significand_bits and wide.lowest_bit <= narrow.lowest_bit and wide.highest >= narrow.highest
    )
