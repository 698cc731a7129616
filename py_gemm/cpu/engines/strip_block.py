"""A strip's own addresses, and its own block of an integer product: zero points, scales and biases."""

from __future__ import annotations

import ctypes

from ...int8_block import move_block
from ..strips import Strip
from .host_memory import OwnedBlock


class StripBlock:
    """Turns the addresses of a whole product into those of one strip.

    The block that an integer strip reads is a copy with other beginnings; it lives as long as this object, until the next call.
    """

    __slots__ = ("_block", "strip")

    def __init__(self, strip: Strip) -> None:
        self.strip = strip
        moves = strip.plan.block_words and (strip.row or strip.column)
        self._block = OwnedBlock(4 * strip.plan.block_words) if moves else None

    def addresses(self, a: int, b: int, c: int, d: int, bias: int) -> tuple[int, int, int, int, int]:
        """Of the strip's first elements."""
        strip, block = self.strip, self._block
        if block is not None:
            block.write(move_block(ctypes.string_at(bias, block.nbytes), strip.row, strip.column))
            return a + strip.a, b + strip.b, c + strip.c, d + strip.d, block.address
        return a + strip.a, b + strip.b, c + strip.c, d + strip.d, bias + strip.bias
