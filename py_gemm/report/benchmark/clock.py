"""Times several ways to the same end fairly: each is warmed, then all take turns, and the median of each one's turns counts.

Machines share their cores, so only ratios within one such round mean something. Who fails leaves the round with the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from ...errors import GemmError

# One turn lasts at least this long: clocks of browsers step by 5 to 100 us.
SHORTEST_TURN_S = 0.004
MOST_CALLS = 2000
_DEVICE_TURNS = 3
# A call that lasts at most this long is made once more before each turn, so that a turn finds its operands in the caches, not those
# of whoever came before.
WARMED_S = 0.1


@dataclass(frozen=True, slots=True)
class Pace:
    """At most `turns` turns; fewer, but at least `least`, once a contender has used `seconds`."""

    turns: int
    least: int
    seconds: float


# Many short turns bear a shared machine better than a few.
QUICK, USUAL, FULL = Pace(3, 1, 0.4), Pace(31, 3, 2.0), Pace(61, 5, 6.0)


@dataclass(slots=True)
class Contender:
    """run(count): makes the product `count` times, seconds for one. result: of the last run. note: which kernel ran.

    kind: "ours", "peer" or "loop". operations: where they are not the product's. gpu_seconds: makes the product once more and gives
    its seconds by the device's own clock, None where it has none.
    """

    name: str
    run: Callable[[int], Awaitable[float]]
    kind: str = "peer"
    result: Callable[[], NDArray[Any] | None] = lambda: None
    note: Callable[[], str] = lambda: ""
    operations: int | None = None
    gpu_seconds: Callable[[], Awaitable[float | None]] | None = None
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender to be: `make` gets it ready, or raises the reason why it cannot take part."""

    name: str
    kind: str
    make: Callable[[], Awaitable[Contender]]


@dataclass(slots=True)
class Times:
    """What became of an entrant: its turns in seconds for one product, or the reason why there are none.

    calls: of a turn. latest: seconds of one, when it was last made.
    """

    entrant: Entrant
    contender: Contender | None = None
    calls: int = 1
    latest: float = 0.0
    seconds: list[float] = field(default_factory=list)
    gpu_seconds: list[float] = field(default_factory=list)
    failure: str = ""

    @property
    def median(self) -> float | None:
        return median(self.seconds) if self.seconds and not self.failure else None


def failures() -> tuple[type[BaseException], ...]:
    """What may keep a contender from taking part; anything else is a defect of the benchmark."""
    found: tuple[type[BaseException], ...] = (
        GemmError, ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, OSError, RuntimeError, TypeError,
        ValueError,
    )  # fmt: skip
    if sys.platform == "emscripten":
        from pyodide.ffi import JsException

        return (*found, JsException)
    try:
        from wasmtime import WasmtimeError
    except ImportError:
        return found
    return (*found, WasmtimeError)


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].removeprefix("Error: ")


def prompt(call: Callable[[], object]) -> Callable[[int], Awaitable[float]]:
    """`run` of a call that answers at once."""

    async def run(count: int) -> float:
        started = perf_counter()
        for _ in range(count):
            call()
        return (perf_counter() - started) / count

    return run


def awaited(call: Callable[[], Awaitable[object]]) -> Callable[[int], Awaitable[float]]:
    """`run` of a call that is awaited."""

    async def run(count: int) -> float:
        started = perf_counter()
        for _ in range(count):
            await call()
        return (perf_counter() - started) / count

    return run


async def _calls_for_a_turn(contender: Contender) -> tuple[int, float]:
    """How many calls last long enough for the clock, and how long one; the calls that find it out are warming up as well."""
    calls = 1
    while True:
        seconds = await contender.run(calls)
        spent = seconds * calls
        if spent >= SHORTEST_TURN_S or calls == MOST_CALLS:
            return calls, seconds
        calls = min(MOST_CALLS, calls * max(2, int(SHORTEST_TURN_S / max(spent, SHORTEST_TURN_S / 50))))


async def interleaved(entrants: list[Entrant], pace: Pace, proceed: Callable[[str], None]) -> list[Times]:
    """Warm everyone, then let all take turns, each warmed again, in an order that moves by one. `proceed` hears who is next.

    It may raise.
    """
    field_ = [Times(entrant) for entrant in entrants]
    trouble = failures()
    for times in field_:
        proceed(times.entrant.name)
        try:
            times.contender = await times.entrant.make()
            await times.contender.run(1)
            times.calls, times.latest = await _calls_for_a_turn(times.contender)
        except trouble as error:
            times.failure = first_line(error)
    for turn in range(pace.turns):
        for times in field_[turn % len(field_) :] + field_[: turn % len(field_)]:
            spent = sum(times.seconds) * times.calls
            if times.contender is None or times.failure or (turn >= pace.least and spent >= pace.seconds):
                continue
            proceed(times.entrant.name)
            try:
                if times.latest <= WARMED_S:
                    await times.contender.run(1)
                times.latest = await times.contender.run(times.calls)
                times.seconds.append(times.latest)
            except trouble as error:
                times.failure = first_line(error)
    for times in field_:
        await _ask_device(times, trouble)
    return field_


async def _ask_device(times: Times, trouble: tuple[type[BaseException], ...]) -> None:
    """A few products by the device's own clock."""
    if times.contender is None or times.contender.gpu_seconds is None or times.failure:
        return
    try:
        found = [await times.contender.gpu_seconds() for _ in range(_DEVICE_TURNS)]
    except trouble as error:
        times.failure = first_line(error)
        return
    times.gpu_seconds = [each for each in found if each is not None]
