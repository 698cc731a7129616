"""Products whose operands pass the binding limit, cut into panels: parts of the batch, of the rows and of the columns of D. Pure.

A panel is summed with the kernel and the ranges of the whole product, so cutting changes no bit. k is not cut here: where one row
of A or one column of B passes a binding by itself, a panel may fill a buffer, which gpu/windows.py binds part by part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ..errors import UnsupportedError
from .capabilities import Limits

# Rows and columns are cut at whole tiles where there are so many.
_TILE = 64

# (start, size) along each axis of the batch, then of the rows, then of the columns.
Panel = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Extent:
    """How large an operand is: which axes of (batch..., m, n) it has, and the bytes of one element of them (k terms of A or B)."""

    axes: tuple[bool, ...]
    nbytes: int

    def bytes_of(self, panel: Panel) -> int:
        return prod(size for (_, size), has in zip(panel, self.axes, strict=True) if has) * self.nbytes


def cut_panels(operation: str, sizes: tuple[int, ...], operands: Mapping[str, Extent], limits: Limits) -> list[Panel]:
    """Panels that cover (batch..., m, n) once, each of whose operands fits one binding, or, where not even one row or column does,
    one buffer; UnsupportedError with the figures where that is too small too."""
    return list(_cut(operation, tuple((0, size) for size in sizes), operands, limits))


def _cut(operation: str, panel: Panel, operands: Mapping[str, Extent], limits: Limits) -> Iterator[Panel]:
    for name, operand in operands.items():
        nbytes = operand.bytes_of(panel)
        binding = limits.largest_bound
        if nbytes > (binding if operand.nbytes <= binding else limits.max_buffer_size):
            axis = _axis(panel, operand)
            if axis is None:
                raise UnsupportedError(
                    f"{operation}: operand {name} needs {nbytes:,} bytes for one row or column alone, one buffer of the device "
                    f"holds {limits.max_buffer_size:,} (maxBufferSize)"
                )
            start, size = panel[axis]
            half = -(-size // 2)
            if axis >= len(panel) - 2 and half > _TILE:
                half = -(-half // _TILE) * _TILE
            for part in ((start, half), (start + half, size - half)):
                yield from _cut(operation, (*panel[:axis], part, *panel[axis + 1 :]), operands, limits)
            return
    yield panel


def _axis(panel: Panel, operand: Extent) -> int | None:
    """Where to cut: the batch before rows and columns, of those the longer."""
    free = [axis for axis, (_, size) in enumerate(panel) if operand.axes[axis] and size > 1]
    batch = [axis for axis in free if axis < len(panel) - 2]
    if batch:
        return batch[0]
    return max(free, key=lambda axis: panel[axis][1], default=None)
