"""A product in strips in a page: the caller computes the first one in place, workers the others in a memory that they share.

    interpreter's memory              shared memory
      A  B  C  D                        for all workers: A, B, C, bias of their strips, and D
      strip 0, by the caller            for each: argument block, scratch memory, its block of an integer product

Operands of the workers are copied once, whatever their number, and D comes back at the end: where they fail, nothing of theirs has
been written, and the caller computes their strips itself.
"""

from __future__ import annotations

import ctypes
from operator import add
from time import perf_counter
from typing import TYPE_CHECKING

from ...errors import DeviceMemoryError
from ...int8_block import move_block
from ..arguments import ADDRESSES, argument_bytes, pack_arguments
from ..blocking import Blocking
from ..families import Row
from ..plan import Plan
from ..strips import WORTH_IT, Strip, multiply_adds, split
from . import Bound
from .copying import Arrangement, round_up
from .host_memory import heap_view
from .strip_block import run_strip
from .workers import KEEP_SHARED_BYTES, WorkerPool

if TYPE_CHECKING:
    from .browser import BrowserEngine

# What a byte copied to or from shared memory costs, and what else is done for a product (waking, argument blocks, cache lines that
# change cores), in multiply-adds of float32. Measured in Chromium, page and worker, at 256, 512 and 1024 cubed.
MULTIPLY_ADDS_A_BYTE = 3.5
MULTIPLY_ADDS_A_CALL = 6_000_000


def is_worth_it(plan: Plan, nbytes: int, threads: int) -> bool:
    """Whether equal strips on `threads` threads are faster than one, where `nbytes` are copied before they begin and afterwards.

    Nobody computes meanwhile: the workers wait for their operands, and the caller copies.
    """
    copying = (MULTIPLY_ADDS_A_BYTE * nbytes + MULTIPLY_ADDS_A_CALL) / multiply_adds(plan)
    return copying + 1 / threads <= WORTH_IT


def bind_worker_strips(engine: BrowserEngine, row: Row, plan: Plan, blocking: Blocking, threads: int) -> Bound:
    """The product on `threads` threads, or on one where it cannot be cut or copying would cost more than it saves."""
    whole = engine.bind(row, plan, blocking)
    parts = split(plan, row, (1.0, threads - 1.0))
    if len(parts) < 2 or not is_worth_it(plan, Arrangement.of(parts[1].plan, 0).copied, threads):
        return whole
    return _WorkerStrips(engine, row, blocking, whole, parts, threads)


class _Window:
    """A part of the shared memory, as something that operands are copied to and from."""

    def __init__(self, pool: WorkerPool, base: int) -> None:
        self._pool, self._base = pool, base

    def copy_in(self, into: int, address: int, nbytes: int) -> None:
        self._pool.write(self._base + into, heap_view(address, nbytes))

    def copy_out(self, address: int, source: int, nbytes: int) -> None:
        self._pool.read_into(self._base + source, heap_view(address, nbytes))


class _WorkerStrips:
    """`parts`: the caller's strip, and the rest, which is cut once more for the workers."""

    def __init__(
        self, engine: BrowserEngine, row: Row, blocking: Blocking, whole: Bound, parts: tuple[Strip, ...], threads: int
    ) -> None:
        self._engine, self._row, self._whole = engine, row, whole
        first, rest = parts
        self._first, self._first_strip = engine.bind(row, first.plan, blocking), first
        self._rest, self._rest_strip = engine.bind(row, rest.plan, blocking), rest
        self._places = Arrangement.of(rest.plan, 0)
        self._strips = split(self._places.inside, row, (1.0,) * (threads - 1))
        self._blocks = [pack_arguments(strip.plan, blocking) for strip in self._strips]
        self._block_bytes = round_up(argument_bytes(rest.plan))
        self._own_bytes = round_up(4 * rest.plan.block_words)
        self._scratch_bytes = round_up(blocking.scratch_bytes)
        self._nbytes = self._places.end + len(self._strips) * (self._block_bytes + self._own_bytes + self._scratch_bytes)

    def __call__(self, a: int, b: int, c: int, d: int, bias: int) -> int:
        pool = self._engine.workers
        if pool.at_work:  # in the middle of another product, by a handler of a signal: the shared memory holds that one's operands
            return self._whole(a, b, c, d, bias)
        try:
            pool.at_work = True
            return self._with_workers(pool, a, b, c, d, bias)
        finally:
            pool.at_work = False

    def _with_workers(self, pool: WorkerPool, a: int, b: int, c: int, d: int, bias: int) -> int:
        engine, count = self._engine, len(self._strips)
        if not pool.start(count):
            return self._whole(a, b, c, d, bias)
        try:
            kernel = pool.place_kernel(self._row)
            pool.reserve(pool.free + self._nbytes)
        except DeviceMemoryError as error:
            threads = self._whole(a, b, c, d, bias)
            engine.report_trouble(str(error))
            return threads
        try:
            done = self._run(pool, kernel, a, b, c, d, bias)
        except BaseException:
            pool.stop()  # its workers may be at work
            raise
        if not done or pool.nbytes > KEEP_SHARED_BYTES:
            pool.stop()
        if done:
            return 1 + count
        run_strip(self._rest, self._rest_strip, a, b, c, d, bias)
        return 1

    def _run(self, pool: WorkerPool, kernel: tuple[int, int, int, int, int], a: int, b: int, c: int, d: int, bias: int) -> bool:
        base = pool.free
        window = _Window(pool, base)
        rest = self._rest_strip
        self._places.copy_in(window, a + rest.a, b + rest.b, c + rest.c, bias + rest.bias)
        place = base + self._places.end
        for index, (strip, block) in enumerate(zip(self._strips, self._blocks, strict=True)):
            addresses = [base + origin for origin in self._places.origins]
            offsets = (strip.a, strip.b, strip.c, strip.d, strip.bias)
            own, scratch = place + self._block_bytes, place + self._block_bytes + self._own_bytes
            if self._own_bytes:
                nbytes = 4 * strip.plan.block_words
                words = ctypes.string_at(bias, nbytes)
                pool.write(own, move_block(words, rest.row + strip.row, rest.column + strip.column))
                addresses[4], offsets = own, (*offsets[:4], 0)
            ADDRESSES.pack_into(block, 0, *map(add, addresses, offsets))
            pool.write(place, block)
            pool.give(index, kernel, place, scratch)
            place = scratch + self._scratch_bytes
        started = perf_counter()
        run_strip(self._first, self._first_strip, a, b, c, d, bias)
        if not pool.wait(len(self._strips), perf_counter() - started):
            return False
        self._places.copy_out(window, d + rest.d)
        return True
