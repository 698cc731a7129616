"""Which device buffer is used again for which size. Pure bookkeeping: creates and destroys nothing itself.

Re-use needs no waiting: a device runs its queue in order, so a buffer given back after its job was submitted is next touched by a
later job. Classes are four to an octave, so at most a fifth of a buffer lies idle.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

SMALLEST = 256


def size_class(nbytes: int, ceiling: int) -> int:
    """The capacity for `nbytes`: the next of 1, 1.25, 1.5, 1.75 times a power of two; `nbytes` in whole words where that is
    over `ceiling` (the limit of a binding or of a buffer, which the class must not be the one to break)."""
    if nbytes <= SMALLEST:
        return SMALLEST
    quarter = 1 << max((nbytes - 1).bit_length() - 3, 0)
    capacity = -(-nbytes // quarter) * quarter
    return capacity if capacity <= ceiling else -(-nbytes // 4) * 4


@dataclass(slots=True, eq=False)
class Allocation:
    """One buffer of the device. `number` is its name in the bridge; `handle` the raw object (None until someone asks);
    `generation` counts how often the device had run out of memory when it was made."""

    capacity: int
    number: int
    handle: Any = None
    generation: int = 0


class Pool:
    """Free allocations by capacity; the ones given back longest ago go first where `cap` bytes are exceeded."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.free_bytes = 0
        self._free: OrderedDict[int, Allocation] = OrderedDict()
        self._by_capacity: dict[int, list[Allocation]] = {}

    def take(self, capacity: int) -> Allocation | None:
        """The allocation of this capacity that was given back last (its bind groups are the likeliest to be cached)."""
        stack = self._by_capacity.get(capacity)
        if not stack:
            return None
        allocation = stack.pop()
        del self._free[id(allocation)]
        self.free_bytes -= capacity
        return allocation

    def give(self, allocation: Allocation) -> list[Allocation]:
        """Take `allocation` back; returns those that are now too many, for the device to destroy."""
        self._free[id(allocation)] = allocation
        self._by_capacity.setdefault(allocation.capacity, []).append(allocation)
        self.free_bytes += allocation.capacity
        surplus = []
        while self.free_bytes > self.cap:
            _, oldest = self._free.popitem(last=False)
            self._by_capacity[oldest.capacity].remove(oldest)
            self.free_bytes -= oldest.capacity
            surplus.append(oldest)
        return surplus

    def clear(self) -> list[Allocation]:
        """Forget everything; returns what was free."""
        free = list(self._free.values())
        self._free.clear()
        self._by_capacity.clear()
        self.free_bytes = 0
        return free
