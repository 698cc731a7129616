"""Prepacked operands: panels as a kernel reads them, made once and used in many products. Pure; the kernels pack (kernels/pack.h).

B, k x n, panels of 8 columns        each chain of depth after the other; in a chain, panel after panel; in a panel, step after step
chain 0: [panel 0][panel 1] ..       the same bytes that a plain call packs into its scratch memory, so the product is the same
chain 1: [panel 0][panel 1] ..       bit for bit; the width is that of the row's tile, the chains depend on k alone
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
    """

    side: str
    family: str
    width: int
    element: ElementType

    @staticmethod
    def of(side: str, row: Row) -> Packing:
        """What the kernels of `row` read."""
        return Packing(side, row.family, row.rows if side == "a" else row.columns, row.accumulator)

    def serves(self, row: Row) -> bool:
        """Whether the kernels of `row` read such panels."""
        return self == Packing.of(self.side, row)

    def padded(self, lanes: int) -> int:
        """Rows of A or columns of B with those that fill the last panel."""
        return -(-lanes // self.width) * self.width

    def __str__(self) -> str:
        return f"{self.family} in panels of {self.width}"
