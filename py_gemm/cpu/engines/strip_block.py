"""A strip's own addresses, and its own block of an integer product: zero points, scales and biases."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from ...int8_block import move_block
from ..strips import Strip
from .host_memory import OwnedBlock


def run_strip(run: Callable[[int, int, int, int, int], object], strip: Strip, a: int, b: int, c: int, d: int, bias: int) -> None:
    """Call `run` with the addresses of the strip's first elements, from those of the whole product.

    The block that an integer strip reads is a copy with other beginnings, which lives until `run` returns. Every call has its own:
    a handler of a signal may run the same product in the middle of another.
    """
    places = a + strip.a, b + strip.b, c + strip.c, d + strip.d
    if strip.plan.block_words and (strip.row or strip.column):
        whole = ctypes.string_at(bias, 4 * strip.plan.block_words)
        block = OwnedBlock.of(move_block(whole, strip.row, strip.column))
        run(*places, block.address)
    else:
        run(*places, bias + strip.bias)
