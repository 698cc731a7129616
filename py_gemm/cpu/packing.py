"""Prepacked operands: panels as a kernel reads them, made once and used in many products. Pure; the kernels pack (kernels/pack.h).

B, k x n, panels of 8 columns        each chain of depth after the other; in a chain, panel after panel; in a panel, step after step
chain 0: [panel 0][panel 1] ..       the same words that a plain call packs into its scratch memory (where a panel may hold all
chain 1: [panel 0][panel 1] ..       chains), so the product is the same bit for bit; the width is that of the row's tile, the
                                     chains depend on k alone

Where a family takes several steps at once, a chain is padded to whole groups (kernels/pack_groups.h); only the last can need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..dtypes import ElementType

if TYPE_CHECKING:
    from .families import Row


@dataclass(frozen=True, slots=True)
class Packing:
    """How an operand is packed.

    side: "a" (rows side by side) or "b" (columns). family: of the kernels. width: how many in a panel. element: the panels' type.
    accumulator: what their products are summed in. depth_multiple: steps of depth in a group.
    """

    side: str
    family: str
    width: int
    element: ElementType
    accumulator: ElementType
    depth_multiple: int

    @staticmethod
    def of(side: str, row: Row) -> Packing:
        """What the kernels of `row` read."""
        width = row.rows if side == "a" else row.columns
        return Packing(side, row.panels, width, row.element, row.accumulator, row.depth_multiple)

    def serves(self, row: Row) -> bool:
        """Whether the kernels of `row` read such panels."""
        return self == Packing.of(self.side, row)

    def padded(self, lanes: int) -> int:
        """Rows of A or columns of B with those that fill the last panel."""
        return -(-lanes // self.width) * self.width

    def depth(self, k: int) -> int:
        """Steps of depth with those that fill the last group."""
        return -(-k // self.depth_multiple) * self.depth_multiple

    def __str__(self) -> str:
        return f"{self.family} in panels of {self.width}"
