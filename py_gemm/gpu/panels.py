"""Products whose operands pass the binding limit, cut into panels: parts of the batch, of the rows and of the columns of D. Pure.

A panel is summed with the kernel and the ranges of the whole product, so cutting changes no bit. k is never cut: one row of A and
one column of B must fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ..errors import UnsupportedError

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


def cut_panels(operation: str, sizes: tuple[int, ...], operands: Mapping[str, Extent], limit: int) -> list[Panel]:
    """Panels that cover (batch..., m, n) once, each of whose operands has at most `limit` bytes; UnsupportedError with the figures
    where an operand cannot be cut so small."""
    return list(_cut(operation, tuple((0, size) for size in sizes), operands, limit))


def _cut(operation: str, panel: Panel, operands: Mapping[str, Extent], limit: int) -> Iterator[Panel]:
    for name, operand in operands.items():
        nbytes = operand.bytes_of(panel)
        if nbytes > limit:
            axis = _axis(panel, operand)
            if axis is None:
                raise UnsupportedError(
                    f"{operation}: operand {name} needs {nbytes:,} bytes for one row or column alone, one binding of the device "
                    f"holds {limit:,} (maxStorageBufferBindingSize)"
                )
            start, size = panel[axis]
            half = -(-size // 2)
            if axis >= len(panel) - 2 and half > _TILE:
                half = -(-half // _TILE) * _TILE
            for part in ((start, half), (start + half, size - half)):
                yield from _cut(operation, (*panel[:axis], part, *panel[axis + 1 :]), operands, limit)
            return
    yield panel


def _axis(panel: Panel, operand: Extent) -> int | None:
    """Where to cut: the batch before rows and columns, of those the longer."""
    free = [axis for axis, (_, size) in enumerate(panel) if operand.axes[axis] and size > 1]
    batch = [axis for axis in free if axis < len(panel) - 2]
    if batch:
        return batch[0]
    return max(free, key=lambda axis: panel[axis][1], default=None)
