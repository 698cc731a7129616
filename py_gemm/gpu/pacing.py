"""Keeps one submission short: how much work goes into one, and a Pending that submits the rest piece by piece.

An operating system resets a GPU that is busy with one submission for about two seconds, and a page cannot draw meanwhile, so a
long product is submitted in several. The pace of a device is a guess first and then learnt from what ran; how a product is cut
changes no bit of it. Decides nothing about products.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .device import Buffer, Device, Pending

if TYPE_CHECKING:
    from .steps import Step

Progress = Callable[[float], Any]


def submissions(steps: Iterable[Step], most_flops: int | None) -> list[list[Step]]:
    """The steps in their order, in groups of at most `most_flops`; a step that has more by itself is a group."""
    groups: list[list[Step]] = []
    total = 0
    for step in steps:
        if groups and (most_flops is None or total + step.flops <= most_flops or step.flops == 0):
            groups[-1].append(step)
            total += step.flops
        else:
            groups.append([step])
            total = step.flops
    return groups


class Paced(Pending):
    """Parts that are started one after the other, each when the one before has ended; the first at once.

    starts: submit one part each. flops: their work. `progress` is told the fraction that is done after each; what it raises, or a
    cancelled `await`, stops the rest. `buffers` are held until the end and then given back. learns: the device's pace is noted.
    """

    def __init__(
        self,
        device: Device,
        starts: list[Callable[[], Pending]],
        flops: list[int],
        buffers: list[Buffer],
        progress: Progress | None = None,
        *,
        learns: bool = True,
    ) -> None:
        self._device = device
        self._starts = starts
        self._flops = flops
        self._buffers = buffers
        self._progress = progress
        self._learns = learns
        self._next = 0
        self._seconds: float | None = 0.0
        self._running = self._submit()

    def _submit(self) -> Pending:
        self._started = perf_counter()
        return self._starts[self._next]()

    def wait(self) -> None:
        if self.done:
            return
        try:
            while True:
                self._running.wait()
                if self._finished_one():
                    return
                self._running = self._submit()
        finally:
            self._release()

    def __await__(self) -> Generator[Any, Any, None]:
        if self.done:
            return
        try:
            while True:
                yield from self._running.__await__()
                if self._finished_one():
                    return
                # Others run, and a cancelling is heard, even where each part has ended before anybody asks.
                yield
                self._running = self._submit()
        finally:
            self._release()

    def _finished_one(self) -> bool:
        """Note the job that has ended; whether it was the last."""
        seconds = self._running.gpu_seconds
        self._seconds = None if seconds is None or self._seconds is None else self._seconds + seconds
        if self._learns:
            self._device.pace.note(self._flops[self._next], perf_counter() - self._started if seconds is None else seconds)
        self._next += 1
        self.done = self._next == len(self._starts)
        if self.done:
            self.gpu_seconds = self._seconds
        if self._progress is not None:
            self._progress(sum(self._flops[: self._next]) / max(sum(self._flops), 1))
        return self.done

    def _release(self) -> None:
        for buffer in reversed(self._buffers):
            self._device.release_buffer(buffer)
        self._buffers = []
