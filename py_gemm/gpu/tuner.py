"""Measures the float32 rows that a device can run, verifies each before it may win, and names the fastest.

A row that gives a wrong element on a product of whole numbers (exact in any order, with edges on every side) is out, and so is
one that loses a NaN. Rates are medians over a few cubes, by the device's clock where it has one. Imports no NumPy; waits for
nothing itself: `Tuner.work` yields what its driver has to wait for.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from math import isnan, nan
from statistics import median
from time import perf_counter

from ..dtypes import FLOAT32
from ..problem import Problem
from .device import Device, Pending
from .operation import DeviceOperand, GemmOperation, HostOperand
from .steps import dense_layout
from .variants import TILED, VARIANTS, Request, Variant

# Edges in every direction, several chains of 64, and whole tiles of the largest row in between.
VERIFIED = (133, 141, 148)
HARDWARE_CUBES, SOFTWARE_CUBES = (512, 1024), (256,)
REPEATS = 5
# The portable row stays unless another is faster by this much.
MARGIN = 1.05


@dataclass(slots=True)
class Tuning:
    """What a tuner found. rates: 10^9 operations a second by row, the least of those over the sizes; refused: why a row may not
    win; winner: the row that is taken from now on."""

    adapter: str
    winner: str
    rates: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        width = max(map(len, (*self.rates, *self.refused, self.winner)))
        ranked = sorted(self.rates.items(), key=lambda each: -each[1])
        lines = [f"{name:<{width}}  {rate:8.2f} GFLOP/s{'  <' if name == self.winner else ''}" for name, rate in ranked]
        lines += [f"{name:<{width}}  refused: {why}" for name, why in self.refused.items()]
        return "\n".join([self.adapter, *lines])


class Tuner:
    """One run on one device: drive `work` to its end, then read `tuning`."""

    def __init__(self, device: Device, candidates: tuple[Variant, ...] | None = None) -> None:
        self.device = device
        able = [row for row in VARIANTS if not row.shape_conditions and _runs_on(device, row)]
        self.candidates = tuple(able) if candidates is None else candidates
        self.tuning = Tuning(device.adapter, TILED.name)

    def work(self) -> Iterator[Pending]:
        """Verify and measure every candidate. Yields pendings; each must be waited for before the next step."""
        tuning = self.tuning
        for row in self.candidates:
            why = yield from self._verify(row)
            if why is None:
                tuning.rates[row.name] = yield from self._measure(row)
            else:
                tuning.refused[row.name] = why
        if tuning.rates:
            best = max(tuning.rates, key=lambda name: tuning.rates[name])
            portable = tuning.rates.get(TILED.name, 0.0)
            tuning.winner = best if tuning.rates[best] > MARGIN * portable else TILED.name

    def _verify(self, row: Variant) -> Generator[Pending, None, str | None]:
        m, n, k = VERIFIED
        problem = _dense(m, n, k)
        operation = GemmOperation(self.device, problem, variant=row.name)
        yield self.device.prepare(operation.shaders)
        a, b = _whole_numbers(1, m * k), _whole_numbers(2, k * n)
        found = yield from self._product(operation, a, b)
        columns = [b[column::n] for column in range(n)]
        for row_index in range(m):
            left = a[row_index * k : (row_index + 1) * k]
            for column, right in enumerate(columns):
                if found[row_index * n + column] != sum(map(float.__mul__, left, right)):
                    return f"element ({row_index}, {column}) of a product of whole numbers is wrong"
        a[5 * k + 7] = nan
        found = yield from self._product(operation, a, b)
        if not all(map(isnan, found[5 * n : 6 * n])) or isnan(found[0]):
            return "a NaN is lost, or found where none belongs"
        return None

    def _product(self, operation: GemmOperation, a: list[float], b: list[float]) -> Generator[Pending, None, tuple[float, ...]]:
        problem = operation.problem
        out = bytearray(4 * problem.m * problem.n)
        left, right = (HostOperand(struct.pack(f"<{len(each)}f", *each), dense) for each, dense in ((a, problem.a), (b, problem.b)))
        yield operation.start(left, right, read_into=out)[1]
        return struct.unpack(f"<{problem.m * problem.n}f", out)

    def _measure(self, row: Variant) -> Generator[Pending, None, float]:
        rates = []
        for size in SOFTWARE_CUBES if self.device.capabilities.is_software else HARDWARE_CUBES:
            problem = _dense(size, size, size)
            operation = GemmOperation(self.device, problem, variant=row.name)
            values = struct.pack(f"<{size * size}f", *_whole_numbers(size, size * size))
            operand = DeviceOperand(self.device.create_buffer(values), problem.a)
            seconds = []
            for _ in range(REPEATS + 1):
                out = bytearray(4 * size * size)
                started = perf_counter()
                # Paced: a product of several submissions is timed whole.
                pending = operation.start(operand, operand, read_into=out, paced=True)[1]
                yield pending
                elapsed = perf_counter() - started
                seconds.append(pending.gpu_seconds or elapsed)
            rates.append(2 * size**3 / median(seconds[1:]) / 1e9)
        return min(rates)


def _runs_on(device: Device, row: Variant) -> bool:
    request = Request(device.capabilities, FLOAT32, FLOAT32)
    return all(condition.holds(request) for condition in row.conditions)


def _dense(m: int, n: int, k: int) -> Problem:
    return Problem(m, n, k, dense_layout(m, k, ()), dense_layout(k, n, ()), dense_layout(m, n, ()))


def _whole_numbers(seed: int, count: int) -> list[float]:
    """From -3 to 3, the same everywhere."""
    values = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7FFF_FFFF
        values.append(float((seed >> 16) % 7 - 3))
    return values
