"""The matrices of the demo page: read from .npy and .csv, generated, converted, pictured, and written as .npy.

Every fault of a file is told as a MatrixError in words that a person can act on. Knows NumPy only: no page, no py_gemm, no timing.
bfloat16, which NumPy lacks, is kept as uint16 bits; every bfloat16 value is a float32 value, so it is shown and saved as float32.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FLOATS = ("float32", "float16", "bfloat16", "float64")
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
# 4096 x 4096. A, B, D, their float64 twins and the reference then stay well below the 2 GiB that Pyodide's memory may grow to.
MOST_ELEMENTS = 1 << 24
# The largest picture is 15.5rem wide, 248 pixels in most browsers: two a cell.
PICTURE_CELLS = 124


class MatrixError(Exception):
    """What is wrong with a matrix that somebody chose, in words for that person."""


@dataclass(frozen=True)
class Matrix:
    """A matrix [rows, columns] of one float type; `values` are uint16 bits where the type is bfloat16."""

    values: Array
    type: str
    note: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return (self.values.shape[0], self.values.shape[1])

    def numbers(self) -> Array:
        """The same values as an array that NumPy computes with: itself, or float32 for bfloat16."""
        return widen_bfloat16(self.values) if self.type == "bfloat16" else self.values

    def summary(self) -> dict[str, object]:
        """Shape, type, size in bytes, and range, as plain data."""
        numbers = self.numbers()
        finite = numbers[np.isfinite(numbers)]
        return {
            "rows": self.shape[0],
            "columns": self.shape[1],
            "type": self.type,
            "bytes": self.values.size * BYTES[self.type],
            "lowest": float(finite.min()) if finite.size else None,
            "highest": float(finite.max()) if finite.size else None,
            "unfinite": int(numbers.size - finite.size),
            "note": self.note,
        }


def widen_bfloat16(bits: Array) -> NDArray[np.float32]:
    """The float32 values of bfloat16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_to_bfloat16(values: Array) -> NDArray[np.uint16]:
    """bfloat16 bits of the values, each rounded once to nearest, ties to even, also from float64.

    float64 passes through float32 rounded to odd (Boldo and Melquiond 2008), so that only the second rounding counts.
    """
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    bits = narrow.view(np.uint32).copy()
    if values.dtype == np.float64:
        inexact = np.isfinite(values) & (narrow != values)
        bits -= inexact & (np.abs(narrow) > np.abs(values))
        bits |= inexact
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    rounded[np.isnan(narrow)] = 0x7FC0
    return rounded


def convert(values: Array, name: str) -> Matrix:
    """The values (numbers of any real type) as a matrix of the float type `name`; says how many became infinite."""
    finite_before = int(np.count_nonzero(np.isfinite(values)))
    if name == "bfloat16":
        wide = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
        matrix = Matrix(np.ascontiguousarray(round_to_bfloat16(wide)), name)
    else:
        with np.errstate(over="ignore"):
            matrix = Matrix(np.ascontiguousarray(values.astype(name)), name)
    lost = finite_before - int(np.count_nonzero(np.isfinite(matrix.numbers())))
    if lost:
        plural = "value is" if lost == 1 else "values are"
        return Matrix(matrix.values, name, f"{lost:,} {plural} beyond the range of {name} and became infinite.")
    return matrix


def _normal(random: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    return random.standard_normal(shape, dtype)


def _uniform(random: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    return random.random(shape, dtype) * 2 - 1


def _integers(random: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    return random.integers(-3, 4, shape, np.int8).astype(dtype)


def _wide(random: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    sign = random.integers(0, 2, shape, np.int8) * 2 - 1
    magnitude: Array = np.exp2(random.random(shape, dtype) * 12 - 6) * sign
    return magnitude.astype(dtype)


def cosines(side: str, rows: int, columns: int, first: int) -> NDArray[np.float64]:
    """Cosine waves, one a row in A and one a column in B, of rising frequency beginning with `first`.

    The waves are orthogonal, so that the product of A and B of one `first` is diagonal where m and n are at most k.
    """
    waves, length = (rows, columns) if side == "A" else (columns, rows)
    # Whole numbers up to one period keep the angle exact for any frequency.
    frequency = (np.arange(waves, dtype=np.int64) + first) % (4 * length)
    phase = np.multiply.outer(frequency, 2 * np.arange(length, dtype=np.int64) + 1) % (4 * length)
    table = np.cos(np.arange(4 * length) * (np.pi / (2 * length)))
    made: NDArray[np.float64] = table[phase]
    return made if side == "A" else np.ascontiguousarray(made.T)


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, tuple[int, int], Any], Array]] = {
    "normal": _normal,
    "uniform": _uniform,
    "integers": _integers,
    "wide": _wide,
}


def generate(side: str, rows: int, columns: int, name: str, seed: int, distribution: str) -> Matrix:
    """A matrix of random numbers, or of cosines that begin with frequency `seed`.

    A and B of one seed differ; one (side, sizes, seed, distribution) is the same matrix in every run.
    """
    check_size(side, rows, columns)
    if distribution == "cosines":
        return convert(cosines(side, rows, columns, seed), name)
    random = np.random.default_rng([seed, ord(side)])
    dtype = np.float64 if name == "float64" else np.float32
    return convert(DISTRIBUTIONS[distribution](random, (rows, columns), dtype), name)


def check_size(what: str, rows: int, columns: int) -> None:
    """MatrixError where the page would not hold a matrix of this size; `what` says which it is."""
    if rows < 1 or columns < 1:
        raise MatrixError(f"{what} is {rows} × {columns} and has no elements; each size must be at least 1.")
    if rows * columns > MOST_ELEMENTS:
        raise MatrixError(
            f"{what} is {rows:,} × {columns:,}, {rows * columns:,} elements; this page holds at most {MOST_ELEMENTS:,} a matrix."
        )


def read(name: str, data: bytes, wanted: str) -> Matrix:
    """The matrix in a file, told apart by content and then by name.

    `wanted`: a float type, or "file" for the file's own, which is float32 for text.
    """
    if not data:
        raise MatrixError(f"{name} is empty.")
    if data[:6] == b"\x93NUMPY":
        values = _read_npy(name, data)
    elif data[:2] == b"PK":
        raise MatrixError(f"{name} is a .npz or zip archive; this page reads single arrays. Save one with numpy.save as .npy.")
    elif name.lower().endswith(".npy"):
        raise MatrixError(f"{name} is called .npy but does not begin as one; save it again with numpy.save.")
    else:
        values = _read_csv(name, data)
        wanted = "float32" if wanted == "file" else wanted
    if values.ndim != 2:
        plural = "dimension" if values.ndim == 1 else "dimensions"
        raise MatrixError(f"{name} holds an array of {values.ndim} {plural}, shape {values.shape}; a matrix has 2.")
    check_size(name, *values.shape)
    return _typed(name, values, wanted)


def _typed(name: str, values: Array, wanted: str) -> Matrix:
    kind, size = values.dtype.kind, values.dtype.itemsize
    # ml_dtypes saves bfloat16 as two raw bytes, "|V2" or "<V2".
    if kind == "V" and size == 2 and values.dtype.names is None:
        bits = np.ascontiguousarray(values).view(np.uint16)
        return Matrix(bits, "bfloat16") if wanted in ("file", "bfloat16") else convert(widen_bfloat16(bits), wanted)
    if kind == "f" and size <= 8:
        own = values.astype(values.dtype.newbyteorder("="), copy=False)
        return Matrix(np.ascontiguousarray(own), own.dtype.name) if wanted in ("file", own.dtype.name) else convert(own, wanted)
    if kind in "iub":
        if wanted != "file":
            return convert(values, wanted)
        raise MatrixError(
            f"{name} holds {values.dtype.name}; this product is of float types. "
            "Choose float32 (or another float type) as its element type, and the numbers are converted."
        )
    raise MatrixError(f"{name} holds {values.dtype.name}; this page multiplies float32, float16, bfloat16 and float64.")


def _read_npy(name: str, data: bytes) -> Array:
    try:
        loaded: Array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, OSError) as error:
        if "Object arrays" in str(error):
            raise MatrixError(f"{name} holds Python objects, not numbers.") from error
        raise MatrixError(f"{name} is damaged: {error}") from error
    return loaded


def _read_csv(name: str, data: bytes) -> Array:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MatrixError(f"{name} is neither .npy nor text; this page reads .npy and .csv.") from error
    if "\0" in text:
        raise MatrixError(f"{name} is neither .npy nor text; this page reads .npy and .csv.")
    numbered = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not numbered:
        raise MatrixError(f"{name} has no lines with numbers.")
    sample = numbered[-1][1]
    delimiter = next((mark for mark in (";", "\t", ",") if mark in sample), None)
    # Where the semicolon parts the cells, a comma in them is the decimal comma of spreadsheets in many countries.
    if delimiter == ";":
        numbered = [(number, line.replace(",", ".")) for number, line in numbered]
    if len(numbered) > 1 and not any(_is_number(cell) for cell in numbered[0][1].split(delimiter)):
        numbered = numbered[1:]
    try:
        return np.loadtxt([line for _, line in numbered], delimiter=delimiter, dtype=np.float64, comments=None, ndmin=2)
    except ValueError as error:
        raise MatrixError(_fault_of_csv(name, numbered, delimiter)) from error


def _fault_of_csv(name: str, numbered: list[tuple[int, str]], delimiter: str | None) -> str:
    width = len(numbered[0][1].split(delimiter))
    for number, line in numbered:
        cells = line.split(delimiter)
        for column, cell in enumerate(cells, 1):
            if not _is_number(cell):
                shown = cell.strip()[:40]
                return f"{name}, line {number}, column {column}: “{shown}” is not a number."
        if len(cells) != width:
            return f"{name}, line {number} has {len(cells)} values; the lines before it have {width}."
    return f"{name} could not be read as a table of numbers."


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def picture(matrix: Matrix, most: int = PICTURE_CELLS) -> dict[str, object]:
    """A sample of at most `most` x `most` for drawing: the element in the middle of each cell, as a flat float32 array."""
    rows, columns = matrix.shape
    height, width = min(rows, most), min(columns, most)
    row = ((np.arange(height) + 0.5) * rows / height).astype(np.intp)
    column = ((np.arange(width) + 0.5) * columns / width).astype(np.intp)
    sample = Matrix(matrix.values[np.ix_(row, column)], matrix.type).numbers()
    with np.errstate(over="ignore"):
        return {"height": height, "width": width, "values": np.ascontiguousarray(sample, np.float32).ravel()}


def picture_of_extremes(matrix: Matrix, most: int = PICTURE_CELLS) -> dict[str, object]:
    """At most `most` x `most` cells for drawing, each the element of largest magnitude in it, so that no thin line is missed."""
    rows, columns = matrix.shape
    height, width = min(rows, most), min(columns, most)
    tops, lefts = np.arange(height) * rows // height, np.arange(width) * columns // width
    numbers = matrix.numbers()
    with np.errstate(all="ignore"):
        high, low = (reduce.reduceat(reduce.reduceat(numbers, tops, axis=0), lefts, axis=1) for reduce in (np.maximum, np.minimum))
        values = np.where(np.abs(low) > np.abs(high), low, high).astype(np.float32)
    return {"height": height, "width": width, "values": values.ravel()}


def corner(matrix: Matrix, most: int = 6) -> dict[str, object]:
    """The upper left corner as text, each number with a few digits (no more than its type holds)."""
    rows, columns = (min(size, most) for size in matrix.shape)
    numbers = Matrix(matrix.values[:rows, :columns], matrix.type).numbers()
    digits = {"float32": 5, "float16": 4, "bfloat16": 3, "float64": 5}[matrix.type]
    return {
        "cells": [[f"{float(x):.{digits}g}" for x in row] for row in numbers],
        "rows": matrix.shape[0],
        "columns": matrix.shape[1],
    }


def to_npy(matrix: Matrix) -> bytes:
    """The bytes of a .npy file; a bfloat16 matrix is saved as float32, which holds the same values."""
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(matrix.numbers()), allow_pickle=False)
    return file.getvalue()
