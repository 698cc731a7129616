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
from queue import SimpleQueue

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


class _Given:
    """A job for a thread, which does it once, however often it is given. Whether it is over may be asked any number of times."""

    def __init__(self, job: Job) -> None:
        self._job: Job | None = job
        self._over = threading.Lock()
        self._over.acquire()
        self._is_over = False
        self.error: BaseException | None = None

    def is_over(self) -> bool:
        """Whether nobody is at it any more; `error` then says what became of it (None: done)."""
        return self._is_over

    def do(self) -> None:
        """By the thread that it is given to."""
        job, self._job = self._job, None  # what it holds (operands, engine) must not live until the next one
        if job is None:
            return
        try:
            job()
        except Exception as error:  # noqa: BLE001 - the caller is told, does the job itself and meets the error there
            self.error = error
        del job
        self._is_over = True
        self._over.release()

    def wait(self, thread: threading.Thread) -> None:
        """Until it is over, or the thread is gone. May be interrupted, and called again."""
        while not self.is_over():
            alive = thread.is_alive()
            self._over.acquire(timeout=LOOK_SECONDS)
            if not self.is_over() and not alive:
                self.error = RuntimeError(f"the thread {thread.name} is gone")
                self._is_over = True


class _Worker:
    """A thread and the queue of its jobs."""

    def __init__(self, number: int) -> None:
        self._jobs: SimpleQueue[_Given | None] = SimpleQueue()
        # Daemonic, so that a thread which waits for work never keeps the process; one at work is waited for by its caller.
        self.thread = threading.Thread(target=_work, args=(self._jobs,), name=f"py_gemm-{number}", daemon=True)
        self.thread.start()

    def give(self, given: _Given) -> None:
        self._jobs.put(given)

    def stop(self) -> None:
        self._jobs.put(None)


def _work(jobs: SimpleQueue[_Given | None]) -> None:
    while (given := jobs.get()) is not None:
        given.do()
        del given


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
        given: list[tuple[_Worker, _Given, Job]] = []
        interrupt: BaseException | None = None
        is_whole = False
        try:
            for index, job in enumerate(jobs[1:]):
                worker = self._worker(index)
                if worker is None:
                    break  # this one and those behind it are the caller's
                given.append((worker, _Given(job), job))  # first: an interruption may come between the two
                worker.give(given[-1][1])
            for job in (jobs[0], *jobs[1 + len(given) :]):
                job()
            is_whole = True
        finally:
            while True:
                # Also where the user is impatient: memory that a thread still writes must not go away under it.
                try:
                    for worker, each, _ in given:
                        if not is_whole:
                            worker.give(each)  # perhaps it never was
                        each.wait(worker.thread)
                    break
                except KeyboardInterrupt as impatient:
                    interrupt = impatient
        failed = [job for _, each, job in given if each.error is not None]
        for job in failed:
            job()
        if interrupt is not None:
            raise interrupt
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


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.thread.join()
    workers.clear()
