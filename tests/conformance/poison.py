"""Buffers that begin full of NaN or of 1e33, in turns: what a kernel leaves out, or reads beyond its operands, shows. Also runs in
the page, so it imports the standard library only."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

# All bits set are NaN in every float type.
POISONS = (b"\xff" * 4, struct.pack("<f", 1e33))


@contextmanager
def poisoned(device: Any) -> Iterator[None]:
    """Poison every buffer that a GPU device hands out meanwhile, to its last byte, from its pool or new."""
    create, turns = device._create, cycle(POISONS)

    def poison(nbytes: int) -> Any:
        buffer = create(nbytes)
        device._upload(buffer, next(turns) * (buffer.allocation.capacity // 4), 0)
        return buffer

    device._create = poison
    try:
        yield
    finally:
        del device._create
