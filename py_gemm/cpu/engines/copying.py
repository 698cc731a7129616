"""The part that engines with a memory of their own share: operands are copied in, the kernel runs, D is copied out.

    memory of the engine:  argument block | scratch | a | b | c | bias | d       each begins at a multiple of 64

A failed call leaves the operands untouched: D is written only after the kernel is done. A memory that has grown past `KEEP_BYTES`
is given back after the call (WebAssembly memory never shrinks). One call at a time: a lock keeps threads apart.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import replace

from ...errors import DeviceMemoryError
from ..arguments import ADDRESSES, argument_bytes, pack_arguments
from ..blocking import Blocking
from ..families import EngineTraits, Row
from ..plan import BIAS_TYPE, Matrix, Plan
from ..transfer import Transfer, plan_transfer
from . import Bound
from .host_memory import OwnedBlock, line_view

# Four float32 operands of 2048 x 2048. Memory above it is not worth keeping from the rest of the machine.
KEEP_BYTES = 64 << 20

# A wasm32 memory ends here.
ADDRESS_LIMIT = 1 << 32


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


class CopyingEngine(ABC):
    """An engine whose memory the interpreter's addresses do not reach. One room for each module, made at first use."""

    zero_copy = False

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._rooms: dict[str, Room] = {}

    @property
    @abstractmethod
    def traits(self) -> EngineTraits: ...

    @property
    @abstractmethod
    def info(self) -> dict[str, str]: ...

    @abstractmethod
    def make_room(self, module: str) -> Room:
        """A new room with that module; DeviceMemoryError where there is no memory for it."""

    def bind(self, row: Row, plan: Plan, blocking: Blocking) -> Bound:
        return _CopyingCall(self, row, plan, blocking)

    def room(self, module: str, nbytes: int) -> Room:
        """The room of a module, with at least `nbytes`."""
        room = self._rooms.get(module)
        if room is None:
            room = self._rooms[module] = self.make_room(module)
        if room.nbytes < nbytes:
            room.grow(nbytes)
        return room

    def give_back(self, module: str) -> None:
        """Free the room of a module if it has grown past KEEP_BYTES."""
        if module in self._rooms and self._rooms[module].nbytes > KEEP_BYTES:
            self._rooms.pop(module).close()

    def memory_bytes(self) -> int:
        """How much memory all rooms hold now."""
        return sum(room.nbytes for room in self._rooms.values())


class _CopyingCall:
    """A kernel bound to a plan, with the places of everything in the engine's memory."""

    __slots__ = ("_block", "_engine", "_inputs", "_nbytes", "_output", "_places", "_row", "_scratch")

    def __init__(self, engine: CopyingEngine, row: Row, plan: Plan, blocking: Blocking) -> None:
        self._engine, self._row = engine, row
        a = _transfer(plan, plan.a, plan.shape_a, True) if plan.k and not (plan.packs and plan.packs.side == "b") else None
        b = _transfer(plan, plan.b, plan.shape_b, True) if plan.k and not (plan.packs and plan.packs.side == "a") else None
        c = _transfer(plan, plan.c, (plan.m, plan.n), True) if plan.c else None
        bias = plan_transfer(BIAS_TYPE.size, *plan.bias_places, may_copy_gaps=True) if plan.has_bias else None
        d = _transfer(plan, plan.d, plan.shape_d, False)
        inside = replace(
            plan,
            a=_inside(plan.a, a), b=_inside(plan.b, b), c=_inside(plan.c, c) if plan.c else None, d=_inside(plan.d, d),
        )  # fmt: skip
        self._scratch = _round_up(argument_bytes(inside))
        end = self._scratch + _round_up(blocking.scratch_bytes)
        transfers = (a, b, c, d, bias)
        places = []
        for transfer in transfers:
            places.append(end)
            end += _round_up(transfer.nbytes) if transfer else 0
        self._nbytes = end
        self._places = tuple(places)
        self._inputs = (a, b, c, None, bias)
        self._output = d
        self._block: OwnedBlock | None = None
        if end <= ADDRESS_LIMIT:
            block = pack_arguments(inside, blocking)
            origins = [place + transfer.origin if transfer else 0 for place, transfer in zip(places, transfers, strict=True)]
            ADDRESSES.pack_into(block, 0, *origins)
            self._block = OwnedBlock(len(block))
            self._block.write(block)

    def __call__(self, a: int, b: int, c: int, d: int, bias: int) -> None:
        engine, row = self._engine, self._row
        block = self._block
        if block is None:
            raise DeviceMemoryError(
                f"{row.name}: operands and scratch need {self._nbytes} bytes, a WebAssembly memory holds at most {ADDRESS_LIMIT}"
            )
        with engine.lock:
            try:
                room = engine.room(row.module, self._nbytes)
                room.copy_in(0, block.address, block.nbytes)
                for place, transfer, address in zip(self._places, self._inputs, (a, b, c, d, bias), strict=True):
                    if transfer:
                        _copy_lines_in(room, transfer, place, address)
                room.run(row.function, 0, self._scratch)
                _copy_lines_out(room, self._output, self._places[3], d)
            finally:
                engine.give_back(row.module)


def _copy_lines_in(room: Room, transfer: Transfer, place: int, address: int) -> None:
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


def _copy_lines_out(room: Room, transfer: Transfer, place: int, address: int) -> None:
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


def _round_up(nbytes: int) -> int:
    return -(-nbytes // 64) * 64
