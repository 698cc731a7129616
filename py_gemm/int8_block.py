"""The block: all that an int8 product needs beside sizes, strides and operands, as 32-bit words. One form for shaders and kernels.

    word  0, 1    where the zero points of a begin, and how far one row's is from the next (0: one for all)
          2, 3    the same for the columns of b
          4       0: the result is the int32 sum; 1: it is requantized; +2: the zero point is added before the rounding
          5, 6, 7 zero point, lowest and highest value of the result
          8, 9, 10    where the bias begins, its step a row and its step a column
          11, 12, 13  the same for the scale (one word each, py_gemm/requantize.py)
    then the vectors themselves

shaders/requantize.wgsl and cpu/kernels/block_i8.h read it. Pure; needs no NumPy.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from .dtypes import INT32, ElementType, integer_range
from .errors import ShapeError
from .requantize import Requantize, Vector, read_integers

HEAD = 14
_REQUANTIZES, _ZERO_POINT_FIRST = 1, 2
_WORD = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Block:
    """data: the words, little-endian. result: the type of the product's elements. by_row: some vector has one number a row of A.

    Two blocks of one `form` differ in numbers only: what is decided about a product may depend on the form, never on the numbers.
    """

    data: bytes
    result: ElementType
    by_row: bool

    @property
    def form(self) -> tuple[int, bool, ElementType]:
        return len(self.data), self.by_row, self.result


def make_block(
    operation: str,
    type_a: ElementType,
    type_b: ElementType,
    m: int,
    n: int,
    zero_point_a: Any = 0,
    zero_point_b: Any = 0,
    requantize: Requantize | None = None,
) -> Block:
    """Check zero points and requantization against the operands' types and sizes, and lay them out.

    Raises ValueError (ShapeError where a shape is wrong) or TypeError.
    """
    zeros_a = _zero_points(operation, "zero_point_a", zero_point_a, type_a, "row")
    zeros_b = _zero_points(operation, "zero_point_b", zero_point_b, type_b, "column")
    if requantize is not None and not isinstance(requantize, Requantize):
        raise TypeError(f"{operation}: requantize takes a Requantize or None, not {requantize!r}")
    vectors = [("zero_point_a", zeros_a), ("zero_point_b", zeros_b)]
    if requantize is not None:
        vectors += [("the bias of requantize", requantize.bias), ("the scale of requantize", requantize.scale)]
    starts = []
    words: list[int] = []
    for name, vector in vectors:
        vector.require(operation, name, m, n)
        starts.append(HEAD + len(words))
        words += vector.values
    head = [starts[0], int(zeros_a.along is not None), starts[1], int(zeros_b.along is not None)]
    if requantize is None:
        head += [0] * (HEAD - len(head))
    else:
        lowest, highest = integer_range(requantize.type)
        flags = _REQUANTIZES | (_ZERO_POINT_FIRST if requantize.zero_point_before_rounding else 0)
        head += [flags, requantize.zero_point, lowest, highest, starts[2], *_steps(requantize.bias)]
        head += [starts[3], *_steps(requantize.scale)]
    data = struct.pack(f"<{HEAD + len(words)}I", *(word & _WORD for word in (*head, *words)))
    return Block(data, INT32 if requantize is None else requantize.type, any(vector.along == "row" for _, vector in vectors))


# The head's words where rows and columns change places.
_TRANSPOSED_HEAD = (2, 3, 0, 1, 4, 5, 6, 7, 8, 10, 9, 11, 13, 12)


def transpose_block(data: bytes) -> bytes:
    """The block of the transposed product: what was stated for rows of a is stated for columns of b, and the other way round."""
    head = struct.unpack_from(f"<{HEAD}I", data)
    return struct.pack(f"<{HEAD}I", *(head[index] for index in _TRANSPOSED_HEAD)) + data[4 * HEAD :]


def _zero_points(operation: str, name: str, value: Any, type_: ElementType, along: str) -> Vector:
    vector = read_integers(operation, name, value, type_)
    if vector.along not in (None, along):
        shape = "one number or (m, 1) numbers" if along == "row" else "one number, (n,) or (1, n) numbers"
        raise ShapeError(f"{operation}: {name} must be {shape}, not one a {vector.along}")
    return vector


def _steps(vector: Vector) -> tuple[int, int]:
    return int(vector.along == "row"), int(vector.along == "column")


# Of the four vectors of a head: where its beginning is stated, its step a row and its step a column (None: there is none).
_VECTORS = ((0, 1, None), (2, None, 3), (8, 9, 10), (11, 12, 13))


def move_block(data: bytes, row: int, column: int) -> bytes:
    """The block of the product's part that begins at that row and column: the same vectors, read from further on."""
    head = list(struct.unpack_from(f"<{HEAD}I", data))
    for start, by_row, by_column in _VECTORS:
        head[start] += (row * head[by_row] if by_row else 0) + (column * head[by_column] if by_column else 0)
    return struct.pack(f"<{HEAD}I", *head) + data[4 * HEAD :]
