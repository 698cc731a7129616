"""How an operand gets into the memory of an engine that cannot see the interpreter's, and how D gets back. Pure.

Inputs that lie nearly dense, with short gaps, are copied as one span, strides and all; others line by line into a dense block. D
always lies dense in the engine, in the order it has outside, and is written back line by line: nothing between its elements is
touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

# A span may be this many times the bytes of the elements in it, with gaps of so many bytes between lines, on average: copying a gap
# then costs less than starting a line of its own (1 to 4 us; memmove copies 32 KiB in 4).
SPAN_FACTOR = 4
GAP_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class Line:
    """`items` elements in a row: `host` and `engine` are byte offsets of the first, the engine's are side by side."""

    host: int
    engine: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """One operand's way. Offsets of the host count from its element [0, 0, ..]; those of the engine from its block's first byte.

    nbytes: size of the block in the engine. origin: where element [0, 0, ..] lies in it. strides: bytes, one for each dimension.
    item: bytes of an element. items, step: elements of a line, and their distance in the host (`step == item`: side by side).
    outer: (size, host stride, engine stride) of the dimensions that step from line to line. low: host offset of the first line.
    """

    nbytes: int
    origin: int
    strides: tuple[int, ...]
    item: int
    items: int
    step: int
    low: int
    outer: tuple[tuple[int, int, int], ...]

    def lines(self) -> Iterator[Line]:
        for index in product(*(range(size) for size, _, _ in self.outer)):
            host, engine = self.low, 0
            for position, (_, host_stride, engine_stride) in zip(index, self.outer, strict=True):
                host += position * host_stride
                engine += position * engine_stride
            yield Line(host, engine)


def plan_transfer(item: int, sizes: tuple[int, ...], strides: tuple[int, ...], *, may_copy_gaps: bool) -> Transfer:
    """The transfer of an operand with `sizes` and byte `strides` (any sign, zero: the same element again).

    may_copy_gaps: an input, whose gaps may be copied along with it.
    """
    stepping = sorted(
        (abs(stride), index) for index, (size, stride) in enumerate(zip(sizes, strides, strict=True)) if size > 1 and stride
    )
    low = sum((sizes[index] - 1) * min(strides[index], 0) for _, index in stepping)
    span = item + sum((sizes[index] - 1) * stride for stride, index in stepping)
    dense = line = item  # all bytes, and those that lie side by side
    for stride, index in stepping:
        if stride == line == dense:
            line *= sizes[index]
        dense *= sizes[index]
    if may_copy_gaps and span <= SPAN_FACTOR * dense and span - dense <= GAP_BYTES * (dense // line):
        return Transfer(span, -low, strides, 1, span, 1, low, ())
    inside = [0] * len(sizes)
    engine_stride = item
    for _, index in stepping:
        inside[index] = engine_stride if strides[index] > 0 else -engine_stride
        engine_stride *= sizes[index]
    origin = sum((sizes[index] - 1) * max(-inside[index], 0) for _, index in stepping)
    items, step = 1, item
    outer: list[tuple[int, int, int]] = []
    for stride, index in stepping:
        if not outer and items == 1:
            items, step = sizes[index], stride
        elif not outer and stride == items * step:
            items *= sizes[index]
        else:
            outer.append((sizes[index], stride, abs(inside[index])))
    return Transfer(dense, origin, tuple(inside), item, items, step, low, tuple(reversed(outer)))
