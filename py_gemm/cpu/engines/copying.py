"""The part that engines with a memory of their own share: operands are copied in, the kernel runs, D is copied out.

    memory of the engine:  argument block | scratch | a | b | c | bias | d       each begins at a multiple of 64

A failed call leaves the operands untouched: D is written only after the kernel is done. All memories of an engine together keep at
most `KEEP_BYTES` after a call (WebAssembly memory never shrinks: one goes whole). One call at a time: a lock keeps callers apart.
A product in strips has such a memory for each of its threads, which copies its own strip in and out.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol
from weakref import WeakSet

from ...errors import DeviceMemoryError
from ..arguments import ADDRESSES, argument_bytes, pack_arguments
from ..blocking import Blocking
from ..families import EngineTraits, Row
from ..plan import BIAS_TYPE, Matrix, Plan
from ..strips import WORTH_IT, Strip, multiply_adds, split
from ..threads import ThreadPool, warn_of_one_thread
from ..transfer import Transfer, plan_transfer
from . import Bound
from .host_memory import OwnedBlock, line_view
from .strip_block import run_strip

# A float32 operand of 4096 x 4096 and as much again. Memory above it is not worth keeping from the rest of the machine; below it,
# getting it anew for each call would take several times as long as copying into it.
KEEP_BYTES = 128 << 20

# A wasm32 memory ends here.
ADDRESS_LIMIT = 1 << 32

# What a byte that is copied costs, in multiply-adds of float32 (memmove at 8 GB/s, 25 multiply-adds a nanosecond).
MULTIPLY_ADDS_A_BYTE = 4.0

# Its place among a, b, c, d and bias.
_D = 3


class Copies(Protocol):
    """A memory that the interpreter's bytes are copied to and from, by places and addresses."""

    def copy_in(self, into: int, address: int, nbytes: int) -> None: ...

    def copy_out(self, address: int, source: int, nbytes: int) -> None: ...


class Room(ABC):
    """A kernel module with a memory of its own. `nbytes`: the size of that memory."""

    nbytes: int

    @abstractmethod
    def grow(self, nbytes: int) -> None:
        """Make the memory at least this large; DeviceMemoryError where it cannot be."""

    @abstractmethod
    def copy_in(self, into: int, address: int, nbytes: int) -> None:
        """From the interpreter's memory to this one."""

    @abstractmethod
    def copy_out(self, address: int, source: int, nbytes: int) -> None:
        """From this memory to the interpreter's."""

    @abstractmethod
    def run(self, name: str, block: int, scratch: int) -> None:
        """Call a kernel; GemmError where it fails."""

    @abstractmethod
    def close(self) -> None:
        """Free the memory; the room is not used again."""


# All that are alive: a fork waits until none is at work, else the child would find a lock that nobody opens.
_engines: WeakSet[CopyingEngine] = WeakSet()
_held_at_fork: list[CopyingEngine] = []


def _hold_engines() -> None:
    for engine in list(_engines):
        engine.lock.acquire()
        _held_at_fork.append(engine)


def _let_engines_go() -> None:
    while _held_at_fork:
        _held_at_fork.pop().lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_engines, after_in_parent=_let_engines_go, after_in_child=_let_engines_go)


class CopyingEngine(ABC):
    """An engine whose memory the interpreter's addresses do not reach. One room for each module and thread, made at first use."""

    zero_copy = False

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pool = ThreadPool()
        self.thread_trouble = ""
        # Products at work: more than one where a handler of a signal multiplies in the middle of another, which keeps its rooms.
        self.level = 0
        self._rooms: dict[tuple[str, int, int], Room] = {}  # those used last behind the others
        self._has_grown = False  # whether they hold more than when `give_back` last looked
        _engines.add(self)

    @property
    @abstractmethod
    def traits(self) -> EngineTraits: ...

    @property
    @abstractmethod
    def info(self) -> dict[str, str]: ...

    @abstractmethod
    def make_room(self, module: str) -> Room:
        """A new room with that module; DeviceMemoryError where there is no memory for it."""

    @abstractmethod
    def threads(self, wanted: int) -> tuple[int, str]: ...

    def bind(self, row: Row, plan: Plan, blocking: Blocking) -> Bound:
        return _CopyingCall(self, row, plan, blocking)

    async def threads_up(self, threads: int) -> None:
        """Nothing to wait for: a thread is there as soon as it is started."""
        del threads

    def bind_strips(self, row: Row, plan: Plan, blocking: Blocking, threads: int) -> Bound:
        strips = split(plan, row, (1.0,) * threads)
        call = _StripsCall(self, row, plan, blocking, strips)
        return call if len(strips) > 1 and call.is_worth_it else self.bind(row, plan, blocking)

    def room(self, module: str, nbytes: int, seat: int = 0, level: int = 0) -> Room:
        """The room of a module for the thread of that number, with at least `nbytes`. level: of the product."""
        key = module, seat, level
        room = self._rooms.pop(key) if key in self._rooms else self.make_room(module)
        self._rooms[key] = room
        if room.nbytes < nbytes:
            self._has_grown = True
            room.grow(nbytes)
        return room

    def give_back(self, level: int) -> None:
        """After a product: free its rooms where it was one within another, else all but the last ones used that together hold at
        most `KEEP_BYTES`."""
        if not level:
            if not self._has_grown:
                return
            self._has_grown = False
        kept = 0
        for key, room in reversed(list(self._rooms.items())):
            goes = key[2] == level if level else kept + room.nbytes > KEEP_BYTES
            if not goes:
                kept += room.nbytes
            elif self._rooms.pop(key, None) is room:  # else a handler of a signal has freed it
                room.close()

    def memory_bytes(self) -> int:
        """How much memory all rooms hold now."""
        return sum(room.nbytes for room in list(self._rooms.values()))

    def report_trouble(self, trouble: str) -> None:
        """Keep, for `info`, and say once why a product for several threads runs on one."""
        if not self.thread_trouble:
            warn_of_one_thread(trouble)
        self.thread_trouble = trouble


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Where the operands of a plan lie in a memory that they are copied to.

    inside: the plan with the strides it has there. transfers: of a, b, c, d and bias (None: not read). places: where the block of
    each begins. end: where the last one ends.
    """

    inside: Plan
    transfers: tuple[Transfer | None, ...]
    places: tuple[int, ...]
    end: int

    @staticmethod
    def of(plan: Plan, head: int) -> Arrangement:
        """Behind `head` bytes."""
        a = _transfer(plan, plan.a, plan.shape_a, True) if plan.k and not (plan.packs and plan.packs.side == "b") else None
        b = _transfer(plan, plan.b, plan.shape_b, True) if plan.k and not (plan.packs and plan.packs.side == "a") else None
        c = _transfer(plan, plan.c, (plan.m, plan.n), True) if plan.c else None
        bias = plan_transfer(BIAS_TYPE.size, *plan.bias_places, may_copy_gaps=True) if plan.has_bias else None
        d = _transfer(plan, plan.d, plan.shape_d, False)
        inside = replace(
            plan,
            a=_inside(plan.a, a), b=_inside(plan.b, b), c=_inside(plan.c, c) if plan.c else None, d=_inside(plan.d, d),
        )  # fmt: skip
        places, end = [], round_up(head)
        for transfer in (a, b, c, d, bias):
            places.append(end)
            end += round_up(transfer.nbytes) if transfer else 0
        return Arrangement(inside, (a, b, c, d, bias), tuple(places), end)

    @property
    def copied(self) -> int:
        """Bytes that are copied in and out."""
        return sum(transfer.nbytes for transfer in self.transfers if transfer)

    @property
    def origins(self) -> tuple[int, ...]:
        """Where the first element of each operand lies; 0 where there is none."""
        return tuple(
            place + transfer.origin if transfer else 0 for place, transfer in zip(self.places, self.transfers, strict=True)
        )

    def copy_in(self, memory: Copies, a: int, b: int, c: int, bias: int) -> None:
        """All that is read, from these addresses."""
        for place, transfer, address in zip(self.places, self.transfers, (a, b, c, None, bias), strict=True):
            if transfer and address is not None:
                _copy_lines_in(memory, transfer, place, address)

    def copy_out(self, memory: Copies, d: int) -> None:
        """D, to this address."""
        transfer = self.transfers[_D]
        assert transfer is not None
        _copy_lines_out(memory, transfer, self.places[_D], d)


class _CopyingCall:
    """A kernel bound to a plan, with the places of everything in the engine's memory."""

    __slots__ = ("_block", "_engine", "_places", "_row", "_scratch", "_seat")

    def __init__(self, engine: CopyingEngine, row: Row, plan: Plan, blocking: Blocking, seat: int = 0) -> None:
        self._engine, self._row, self._seat = engine, row, seat
        self._scratch = round_up(argument_bytes(plan))
        self._places = places = Arrangement.of(plan, self._scratch + round_up(blocking.scratch_bytes))
        self._block: OwnedBlock | None = None
        if places.end <= ADDRESS_LIMIT:
            block = pack_arguments(places.inside, blocking)
            ADDRESSES.pack_into(block, 0, *places.origins)
            self._block = OwnedBlock.of(block)

    def __call__(self, a: int, b: int, c: int, d: int, bias: int) -> int:
        engine = self._engine
        with engine.lock:
            level = engine.level
            try:
                engine.level = level + 1
                self.run_in(self.reserve(level), a, b, c, d, bias)
            finally:
                engine.level = level
                engine.give_back(level)
        return 1

    @property
    def cost(self) -> float:
        """Its time, in multiply-adds."""
        return multiply_adds(self._places.inside) + MULTIPLY_ADDS_A_BYTE * self._places.copied

    def reserve(self, level: int) -> Room:
        """A room that is large enough; DeviceMemoryError where there is none."""
        if self._block is None:
            raise DeviceMemoryError(
                f"{self._row.name}: operands and scratch need {self._places.end} bytes, "
                f"a WebAssembly memory holds at most {ADDRESS_LIMIT}"
            )
        return self._engine.room(self._row.module, self._places.end, self._seat, level)

    def run_in(self, room: Room, a: int, b: int, c: int, d: int, bias: int) -> None:
        """All of it in a room that was reserved: copy in, run, copy out."""
        block = self._block
        assert block is not None
        room.copy_in(0, block.address, block.nbytes)
        self._places.copy_in(room, a, b, c, bias)
        room.run(self._row.function, 0, self._scratch)
        self._places.copy_out(room, d)


class _StripsCall:
    """A kernel bound to the strips of a plan, each with a thread and a room of its own."""

    __slots__ = ("_calls", "_engine", "_strips", "_whole")

    def __init__(self, engine: CopyingEngine, row: Row, plan: Plan, blocking: Blocking, strips: tuple[Strip, ...]) -> None:
        self._engine, self._strips = engine, strips
        self._whole = _CopyingCall(engine, row, plan, blocking)
        self._calls = tuple(_CopyingCall(engine, row, strip.plan, blocking, seat) for seat, strip in enumerate(strips))

    @property
    def is_worth_it(self) -> bool:
        """Whether it is faster than one thread. Strips of a product that is little more than copying copy too much in common."""
        return max(call.cost for call in self._calls) <= WORTH_IT * self._whole.cost

    def __call__(self, a: int, b: int, c: int, d: int, bias: int) -> int:
        engine = self._engine
        with engine.lock:
            level = engine.level
            try:
                engine.level = level + 1
                rooms = [call.reserve(level) for call in self._calls]
                return engine.pool.run(
                    [
                        partial(run_strip, partial(call.run_in, room), strip, a, b, c, d, bias)
                        for call, room, strip in zip(self._calls, rooms, self._strips, strict=True)
                    ]
                )
            except DeviceMemoryError as error:
                trouble = str(error)
            finally:
                engine.level = level
                engine.give_back(level)
            threads = self._whole(a, b, c, d, bias)
            engine.report_trouble(trouble)
            return threads


def _copy_lines_in(room: Copies, transfer: Transfer, place: int, address: int) -> None:
    nbytes = transfer.items * transfer.item
    if transfer.step == transfer.item:
        for line in transfer.lines():
            room.copy_in(place + line.engine, address + line.host, nbytes)
        return
    dense = OwnedBlock(nbytes)
    into = line_view(dense.address, transfer.items, transfer.item, transfer.item)
    for line in transfer.lines():
        into[:] = line_view(address + line.host, transfer.items, transfer.item, transfer.step)
        room.copy_in(place + line.engine, dense.address, nbytes)


def _copy_lines_out(room: Copies, transfer: Transfer, place: int, address: int) -> None:
    nbytes = transfer.items * transfer.item
    if transfer.step == transfer.item:
        for line in transfer.lines():
            room.copy_out(address + line.host, place + line.engine, nbytes)
        return
    dense = OwnedBlock(nbytes)
    source = line_view(dense.address, transfer.items, transfer.item, transfer.item)
    for line in transfer.lines():
        room.copy_out(dense.address, place + line.engine, nbytes)
        line_view(address + line.host, transfer.items, transfer.item, transfer.step)[:] = source


def _transfer(plan: Plan, matrix: Matrix | None, shape: tuple[int, int], may_copy_gaps: bool) -> Transfer:
    assert matrix is not None
    sizes = (*plan.batch, *shape)
    return plan_transfer(matrix.type.size, sizes, (*matrix.batch, matrix.row, matrix.column), may_copy_gaps=may_copy_gaps)


def _inside(matrix: Matrix, transfer: Transfer | None) -> Matrix:
    """The same matrix with the strides it has in the engine's memory."""
    if transfer is None:
        return matrix
    *batch, row, column = transfer.strides
    return Matrix(matrix.type, row, column, tuple(batch))


def round_up(nbytes: int) -> int:
    """To a multiple of 64, where blocks begin."""
    return -(-nbytes // 64) * 64
