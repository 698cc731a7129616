"""Array: numbers of one format, in any shape; and `asarray`, which makes one of whatever holds numbers.

Taken are Array, earlier results, NumPy arrays (ml_dtypes' among them) and everything that NumPy reads (buffers, objects with
`__array__`), PyTorch tensors by their methods alone (PyTorch is never imported), and nested lists of Python numbers, Fractions and
Decimals. Values are rounded only where a format is asked that has not got them. An Array is a snapshot, and never changed in place.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .codes import array_dtype, decode, encode, storage_dtype
from .formats import COMPLEX128, FLOAT64, FORMATS, Format, find_format, overflow_rule
from .rounding import Rounding, infinite, round_floats, round_fraction, round_integer

WHOLE_IN_FLOAT64 = 1 << 53  # integers up to here are float64 numbers


class Array:
    """Numbers of one format. `shape`, `ndim`, `size` as in NumPy; `dtype` is the name of the format, `form` its description.

    `stored` is the NumPy array beneath, read only (bfloat16 and 8-bit floats: their bits); `values` gives the numbers themselves.
    """

    __slots__ = ("form", "stored")

    def __init__(self, stored: NDArray[Any], form: Format) -> None:
        if stored.dtype != storage_dtype(form):
            raise TypeError(f"elements of {form} are kept as {storage_dtype(form)}, not {stored.dtype}")
        self.stored, self.form = stored.view(), form
        self.stored.flags.writeable = False  # what a result keeps is what it is judged by

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self.stored, self.form)

    @classmethod
    def zeros(cls, dtype: object, shape: int | tuple[int, ...]) -> Array:
        """Zeros of a format."""
        form = find_format(dtype)
        return cls(np.zeros(shape, storage_dtype(form)), form)

    @classmethod
    def from_bits(cls, bits: object, dtype: object) -> Array:
        """From the bits of the elements: unsigned integers of at most the format's size; ValueError for others."""
        form = find_format(dtype)
        words = np.asarray(bits)
        if form.size > 8:
            raise TypeError(f"the {8 * form.size} bits of {form} fit no integer; from_bits takes formats of up to 64")
        if words.dtype.kind not in "iu":
            raise TypeError(f"bits of {form} come as integers, not {words.dtype}")
        if words.size and not 0 <= int(words.min()) <= int(words.max()) < 1 << 8 * form.size:
            raise ValueError(
                f"bits of {form} are integers from 0 to {(1 << 8 * form.size) - 1}, not {words.min()} to {words.max()}"
            )
        return cls(words.astype(f"u{form.size}").view(storage_dtype(form)), form)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def dtype(self) -> str:
        return self.form.name

    @property
    def ndim(self) -> int:
        return self.stored.ndim

    @property
    def size(self) -> int:
        return self.stored.size

    @property
    def nbytes(self) -> int:
        return self.stored.nbytes

    @property
    def T(self) -> Array:  # noqa: N802 (NumPy's name)
        return Array(self.stored.T, self.form)

    @property
    def values(self) -> NDArray[Any]:
        """The numbers, exactly: float64, complex128, or the integers' own NumPy type."""
        return decode(self.stored, self.form)

    def reshape(self, *shape: Any) -> Array:
        return Array(self.stored.reshape(*shape), self.form)

    def transpose(self, *axes: Any) -> Array:
        return Array(self.stored.transpose(*axes), self.form)

    def astype(self, dtype: object, rounding: Rounding = Rounding.NEAREST_EVEN, overflow: str | None = None) -> Array:
        """The numbers rounded once to another format of the same kind."""
        return asarray(self, dtype, rounding=rounding, overflow=overflow)

    def tolist(self) -> Any:
        """Nested lists of Python numbers (a number for a shape of ())."""
        return self.values.tolist()

    def numpy(self) -> NDArray[Any]:
        """A NumPy array, read only: of ml_dtypes' type where NumPy has none (the bits where ml_dtypes is not installed)."""
        return self.stored.view(array_dtype(self.form))

    def tobytes(self) -> bytes:
        """The elements in memory, row by row, in this machine's byte order."""
        return self.stored.tobytes()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = self.numpy()
        if dtype is not None and found.dtype != dtype:
            return found.astype(dtype)
        return found.copy() if copy else found

    def __buffer__(self, flags: int) -> memoryview:
        """The buffer protocol (Python 3.12 and later): the stored elements, read only."""
        del flags
        return memoryview(np.ascontiguousarray(self.stored).data).toreadonly()

    def __getitem__(self, key: Any) -> Array:
        return Array(np.asarray(self.stored[key]), self.form)

    def __len__(self) -> int:
        return len(self.stored)

    def __eq__(self, other: object) -> Any:
        """Elementwise, as in NumPy: whether the numbers are equal, whatever their formats."""
        try:
            found = asarray(other)
        except TypeError:
            return NotImplemented
        ours, theirs = self.values, found.values
        if ours.dtype != theirs.dtype:  # Python compares integers with floats exactly, NumPy does not
            ours, theirs = ours.astype(object), theirs.astype(object)
        return np.asarray(ours == theirs, np.bool_)

    def __ne__(self, other: object) -> Any:
        same = self.__eq__(other)
        return same if same is NotImplemented else ~same

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = np.array2string(self.values, separator=", ", threshold=32, edgeitems=3, floatmode="unique")
        return f"Array({shown}, {self.dtype!r})"


def asarray(x: object, dtype: object = None, *, rounding: Rounding = Rounding.NEAREST_EVEN, overflow: str | None = None) -> Array:
    """`x` as an Array of the format `dtype`; without one, of the format that x has.

    Lists of integers are int64, of other real numbers float64, of complex ones complex128. Numbers that the format has not are
    rounded once, from their exact value; past its range `overflow` decides (the format's own rule; integers: OverflowError).
    TypeError for what holds no numbers, and for a format of another kind than that of an array (lists may become floats).
    Integers are numbers here; the bits of floats are the work of Array.from_bits.
    """
    form = None if dtype is None else find_format(dtype)
    found = existing(x)
    if found is None:
        return _from_numbers(x, form, rounding, overflow)
    if form is None or form is found.form:
        return found
    if (found.form.kind, form.kind) not in _CONVERSIONS:
        raise TypeError(f"{found.form} does not become {form}: they are of different kinds")
    return Array(convert(found.values, form, rounding, overflow), form)


_CONVERSIONS = {("float", "float"), ("int", "int"), ("complex", "complex"), ("float", "complex"), ("int", "float")}


def existing(x: object) -> Array | None:
    """The Array of something that has a format already; None for lists and Python's numbers."""
    if isinstance(x, Array):
        return x
    rounded = getattr(x, "rounded", None)
    if isinstance(rounded, Array):
        return rounded
    if is_tensor(x):
        return _from_tensor(x)
    if isinstance(x, (list, tuple, int, float, complex, Fraction, Decimal)) and not isinstance(x, np.generic):
        return None
    array = np.asarray(x)
    if array.dtype == object:
        return None
    if array.dtype.name not in FORMATS:
        raise TypeError(f"{type(x).__name__} holds {array.dtype}, no format of the exact reference; known: {', '.join(FORMATS)}")
    form = FORMATS[array.dtype.name]
    return Array(np.array(array, array.dtype.newbyteorder("=")).view(storage_dtype(form)), form)


def is_tensor(x: object) -> bool:
    """Whether it is one of PyTorch's."""
    return type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "detach")


def _from_tensor(x: Any) -> Array:
    """A PyTorch tensor: NumPy does not know all of its types, so those of bfloat16 and 8 bits come as their bits."""
    form = find_format(str(x.dtype))
    plain = x.detach().cpu()
    if form.kind == "complex":
        plain = plain.resolve_conj()
    plain = plain.resolve_neg().contiguous()
    if storage_dtype(form).name != form.name:
        torch = sys.modules[type(x).__module__.partition(".")[0]]
        plain = plain.view(torch.int16 if form.size == 2 else torch.uint8)
    return Array(np.array(plain.numpy()).view(storage_dtype(form)), form)


def _from_numbers(x: object, form: Format | None, rounding: Rounding, overflow: str | None) -> Array:
    """Nested lists of Python's numbers."""
    numbers = np.array(_plain(x), dtype=object)
    flat = numbers.reshape(-1).tolist()
    for each in flat:
        if not isinstance(each, (int, float, complex, Rational, Decimal)):
            raise TypeError(f"{type(each).__name__} is no number (or the lists differ in length)")
    if form is None:
        form = _format_of(flat)
    if form.kind == "int":
        return Array(_from_integers(flat, form, overflow or "error").reshape(numbers.shape), form)
    if form.kind == "complex":
        values = np.empty(len(flat), np.complex128)
        values.real = _rounded([each.real for each in flat], form.part, rounding, overflow)
        values.imag = _rounded([each.imag if isinstance(each, complex) else 0 for each in flat], form.part, rounding, overflow)
        return Array(encode(values, form).reshape(numbers.shape), form)
    return Array(encode(_rounded(flat, form, rounding, overflow), form).reshape(numbers.shape), form)


def _plain(x: object) -> object:
    """Lists with the Arrays, results and NumPy scalars in them taken apart."""
    if isinstance(x, (list, tuple)):
        return [_plain(each) for each in x]
    if isinstance(x, (int, float, complex, Fraction, Decimal)) and not isinstance(x, np.generic):
        return x
    found = existing(x)
    return x if found is None else found.tolist()


def _format_of(numbers: list[Any]) -> Format:
    if any(isinstance(each, complex) for each in numbers):
        return COMPLEX128
    return FORMATS["int64"] if numbers and all(isinstance(each, int) for each in numbers) else FLOAT64


def _rounded(numbers: list[Any], form: Format, rounding: Rounding, overflow: str | None) -> NDArray[np.float64]:
    """Real numbers of any sort rounded once to a float format."""
    rule = overflow_rule(form, overflow)
    if all(type(each) is float or (type(each) is int and abs(each) <= WHOLE_IN_FLOAT64) for each in numbers):
        return round_floats(np.array(numbers, np.float64), form, rounding, rule)
    found = []
    for each in numbers:
        if isinstance(each, complex):
            raise TypeError(f"{each!r} is complex; {form} is not")
        if isinstance(each, (float, Decimal)) and (each != each or each in (np.inf, -np.inf)):
            value = float(each)
            found.append(value if value != value else infinite(form, rule) * (1 if value > 0 else -1))
            continue
        exact = Fraction(each)
        value = round_fraction(exact, form, rounding, rule)
        if exact == 0 and form.has_negative_zero and np.signbit(float(each)):
            value = -0.0
        found.append(value)
    return np.array(found, np.float64)


def _from_integers(numbers: list[Any], form: Format, overflow: str) -> NDArray[Any]:
    rule = overflow_rule(form, overflow)
    for each in numbers:
        if isinstance(each, complex) or each != each or each in (np.inf, -np.inf) or Fraction(each).denominator != 1:
            raise TypeError(f"{each!r} is no integer; {form} holds nothing else")
    return np.array([round_integer(int(each), form, rule) for each in numbers], form.name)


def convert(values: NDArray[Any], form: Format, rounding: Rounding, overflow: str | None) -> NDArray[Any]:
    """Values (float64, complex128, integers) rounded to `form`, as stored elements."""
    if form.kind == "int":
        return _from_integers(values.reshape(-1).tolist(), form, overflow or "error").reshape(values.shape)
    rule = overflow_rule(form, overflow)
    if form.kind == "complex":
        found = np.empty(values.shape, np.complex128)
        found.real = round_floats(np.ascontiguousarray(values.real), form.part, rounding, rule)
        found.imag = round_floats(np.ascontiguousarray(values.imag), form.part, rounding, rule) if np.iscomplexobj(values) else 0.0
        return encode(found, form)
    if values.dtype.kind in "iu" and np.abs(values.astype(np.float64)).max(initial=0) >= WHOLE_IN_FLOAT64:
        exact = [round_fraction(Fraction(each), form, rounding, rule) for each in values.reshape(-1).tolist()]
        return encode(np.array(exact, np.float64).reshape(values.shape), form)
    return encode(round_floats(values, form, rounding, rule), form)
