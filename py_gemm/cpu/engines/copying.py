"""The part that engines with a memory of their own share: operands are copied in, the kernel runs, D is copied out.

    memory of the engine:  argument block | scratch | a | b | c | bias | d       each begins at a multiple of 64

A failed call leaves the operands untouched: D is written only after the kernel is done. A memory that has grown past `KEEP_BYTES` is
given back after the call (WebAssembly memory never shrinks). One call at a time: a lock keeps threads apart.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import replace

from ...errors import DeviceMemoryError
from ..arguments import ADDRESSES, pack_arguments
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


class CopyingEngine(ABC):
    """An engine whose memory the interpreter's addresses do not reach."""

    zero_copy = False

    def __init__(self) -> None:
        self.lock = threading.RLock()

    @property
    @abstractmethod
    def traits(self) -> EngineTraits: ...

    @property
    @abstractmethod
    def info(self) -> dict[str, str]: ...

    @abstractmethod
    def reserve(self, row: Row, nbytes: int) -> None:
        """Make the memory of the row's module at least this large; DeviceMemoryError where it cannot be."""

    @abstractmethod
    def give_back(self, row: Row) -> None:
        """Free a memory that has grown past KEEP_BYTES."""

    @abstractmethod
    def copy_in(self, row: Row, into: int, address: int, nbytes: int) -> None:
        """From the interpreter's memory to the engine's."""

    @abstractmethod
    def copy_out(self, row: Row, address: int, source: int, nbytes: int) -> None:
        """From the engine's memory to the interpreter's."""

    @abstractmethod
    def run(self, row: Row, block: int, scratch: int) -> None:
        """Call the kernel; GemmError where it fails."""

    def bind(self, row: Row, plan: Plan, blocking: Blocking) -> Bound:
        return _CopyingCall(self, row, plan, blocking)


class _CopyingCall:
    """A kernel bound to a plan, with the places of everything in the engine's memory."""

    __slots__ = ("_block", "_engine", "_inputs", "_nbytes", "_output", "_places", "_row", "_scratch")

    def __init__(self, engine: CopyingEngine, row: Row, plan: Plan, blocking: Blocking) -> None:
        self._engine, self._row = engine, row
        a = _transfer(plan, plan.a, (plan.m, plan.k), True) if plan.k else None
        b = _transfer(plan, plan.b, (plan.k, plan.n), True) if plan.k else None
        c = _transfer(plan, plan.c, (plan.m, plan.n), True) if plan.c else None
        bias = plan_transfer(BIAS_TYPE.size, (plan.n,), (BIAS_TYPE.size,), may_copy_gaps=True) if plan.has_bias else None
        d = _transfer(plan, plan.d, (plan.m, plan.n), False)
        inside = replace(
            plan,
            a=_inside(plan.a, a), b=_inside(plan.b, b), c=_inside(plan.c, c) if plan.c else None, d=_inside(plan.d, d),
        )  # fmt: skip
        block = pack_arguments(inside, blocking)
        self._scratch = _round_up(len(block))
        end = self._scratch + _round_up(blocking.scratch_bytes)
        places = []
        for transfer in (a, b, c, d, bias):
            places.append(end)
            end += _round_up(transfer.nbytes) if transfer else 0
        self._nbytes = end
        self._places = tuple(places)
        self._inputs = (a, b, c, None, bias)
        self._output = d
        self._block = OwnedBlock(len(block))
        if end <= ADDRESS_LIMIT:
            origins = [place + transfer.origin if transfer else 0 for place, transfer in zip(places, (a, b, c, d, bias), strict=True)]
            ADDRESSES.pack_into(block, 0, *origins)
        self._block.buffer[self._block.offset : self._block.offset + len(block)] = block

    def __call__(self, a: int, b: int, c: int, d: int, bias: int) -> None:
        engine, row = self._engine, self._row
        if self._nbytes > ADDRESS_LIMIT:
            raise DeviceMemoryError(
                f"{row.name}: operands and scratch need {self._nbytes} bytes, a WebAssembly memory holds at most {ADDRESS_LIMIT}"
            )
        with engine.lock:
            engine.reserve(row, self._nbytes)
            try:
                engine.copy_in(row, 0, self._block.address, self._block.nbytes)
                for place, transfer, address in zip(self._places, self._inputs, (a, b, c, d, bias), strict=True):
                    if transfer:
                        _copy_lines_in(engine, row, transfer, place, address)
                engine.run(row, 0, self._scratch)
                _copy_lines_out(engine, row, self._output, self._places[3], d)
            finally:
                if self._nbytes > KEEP_BYTES:
                    engine.give_back(row)


def _copy_lines_in(engine: CopyingEngine, row: Row, transfer: Transfer, place: int, address: int) -> None:
    nbytes = transfer.items * transfer.item
    if transfer.step == transfer.item:
        for line in transfer.lines():
            engine.copy_in(row, place + line.engine, address + line.host, nbytes)
        return
    dense = OwnedBlock(nbytes)
    into = line_view(dense.address, transfer.items, transfer.item, transfer.item)
    for line in transfer.lines():
        into[:] = line_view(address + line.host, transfer.items, transfer.item, transfer.step)
        engine.copy_in(row, place + line.engine, dense.address, nbytes)


def _copy_lines_out(engine: CopyingEngine, row: Row, transfer: Transfer, place: int, address: int) -> None:
    nbytes = transfer.items * transfer.item
    if transfer.step == transfer.item:
        for line in transfer.lines():
            engine.copy_out(row, address + line.host, place + line.engine, nbytes)
        return
    dense = OwnedBlock(nbytes)
    source = line_view(dense.address, transfer.items, transfer.item, transfer.item)
    for line in transfer.lines():
        engine.copy_out(row, dense.address, place + line.engine, nbytes)
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
