"""Threads of this process for strips of a product: how many there are by default, and the pool that keeps idle ones.

A thread is started when it is first needed and waits for work without keeping the process alive; one that is gone (it died, or
the process was forked) is replaced at the next product. A job that no thread has done is done by the caller, so a pool only ever
changes how long a product takes. Knows nothing of kernels.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

# More cores than this are rarely alike (and share one memory): what a product gains from them by default is not worth their stacks.
MOST_BY_DEFAULT = 8

# More than this are never started, whoever asks.
MOST_THREADS = 64

# How often a caller that waits looks whether the thread it waits for is still alive.
LOOK_SECONDS = 0.25

Job = Callable[[], None]


def usable_cores() -> int:
    """Cores that this process may use: of the machine, or those it is bound to; what the browser tells, in a page."""
    if sys.platform == "emscripten":
        import js

        return int(getattr(getattr(js, "navigator", None), "hardwareConcurrency", 1) or 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_threads() -> int:
    """What the knob `threads` is where nobody set it."""
    return max(1, min(MOST_BY_DEFAULT, usable_cores()))


def warn_of_one_thread(reason: str) -> None:
    """Say that what was to run on several threads runs on one."""
    warnings.warn(f"py_gemm: a product for several threads runs on one: {reason}", RuntimeWarning, stacklevel=3)


class _Worker:
    """A thread and its two queues: jobs go in, what became of them (None: done) comes out."""

    def __init__(self, number: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._outcomes: SimpleQueue[BaseException | None] = SimpleQueue()
        # Daemonic, so that a thread which waits for work never keeps the process; one at work is waited for by its caller.
        self.thread = threading.Thread(target=_work, args=(self._jobs, self._outcomes), name=f"py_gemm-{number}", daemon=True)
        self.thread.start()

    def give(self, job: Job) -> None:
        self._jobs.put(job)

    def outcome(self) -> BaseException | None:
        """Of the job that was given, as soon as it is there; an error as well where the thread is gone."""
        while True:
            alive = self.thread.is_alive()
            try:
                return self._outcomes.get(timeout=LOOK_SECONDS)
            except Empty:
                if not alive:
                    return RuntimeError(f"the thread {self.thread.name} is gone")

    def stop(self) -> None:
        self._jobs.put(None)


def _work(jobs: SimpleQueue[Job | None], outcomes: SimpleQueue[BaseException | None]) -> None:
    while (job := jobs.get()) is not None:
        outcome: BaseException | None = None
        try:
            job()
        except Exception as error:  # noqa: BLE001 - the caller is told, does the job itself and meets the error there
            outcome = error
        del job  # what it holds (operands, engine) must not live until the next one
        outcomes.put(outcome)


class ThreadPool:
    """Runs jobs side by side, the first one on the calling thread. One call at a time."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        self.stop = weakref.finalize(self, _stop, self._workers)  # at the latest when the interpreter ends

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """Those that are alive."""
        return tuple(worker.thread for worker in self._workers if worker.thread.is_alive())

    def run(self, jobs: Sequence[Job]) -> int:
        """Do every job, and return how many threads have done some. What raised is done once more, by the caller.

        Raises what a job raises here. No job is at work any more when this ends, however it does.
        """
        given = []
        for index, job in enumerate(jobs[1:]):
            worker = self._worker(index)
            if worker is not None:
                worker.give(job)
                given.append((worker, job))
        left = [jobs[0], *jobs[1 + len(given) :]]
        failed: list[Job] = []
        interrupts: list[BaseException] = []
        try:
            for job in left:
                job()
        finally:
            failed = [job for worker, job in given if _patiently(worker.outcome, interrupts) is not None]
        for job in failed:
            job()
        if interrupts:
            raise interrupts[0]
        return 1 + len(given) - len(failed)

    def _worker(self, index: int) -> _Worker | None:
        """A live thread at this place, or None where the system starts none."""
        if index < len(self._workers) and self._workers[index].thread.is_alive():
            return self._workers[index]
        try:
            worker = _Worker(index + 1)
        except RuntimeError:  # no thread to be had: too many, or the interpreter is ending
            return None
        self._workers[index : index + 1] = [worker]
        return worker


def _patiently(outcome: Callable[[], BaseException | None], interrupts: list[BaseException]) -> BaseException | None:
    """The outcome, also where the user is impatient: memory that a thread still writes must not go away under it."""
    while True:
        try:
            return outcome()
        except KeyboardInterrupt as interrupt:
            interrupts.append(interrupt)


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.thread.join()
    workers.clear()
