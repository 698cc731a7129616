"""Two small products whose answers are known, run on a device to learn what WGSL leaves open. Changes nothing but a verdict.

WGSL lets an implementation assume that there are no NaNs and infinities, flush subnormals and reassociate sums. The verdicts go
into the device's capabilities: `nan_inf` (they come through product and relu) and `order_kept` (float16 operands, subnormals
among them, give bit for bit what the variant's stated order gives). Nothing is worked around here; callers report.
"""

from __future__ import annotations

import struct
from math import inf, isnan, nan

from ..dtypes import FLOAT16, FLOAT32
from ..epilogue import Activation
from ..problem import Layout, Problem
from .device import Device, Pending
from .operation import GemmOperation, HostOperand
from .variants import TILED, TILED_ORDER, Shape, SummationOrder

# Longer than one group of the order (128 terms), and neither a whole block nor a whole step.
_DEPTH = 150

# A 3 x 2 and a 2 x 3 matrix.
_NAN_A = [nan, 1.0, 1.0, inf, 2.0, 0.0]
_NAN_B = [1.0, 0.0, -1.0, 3.0, inf, -2.0]


class Probe:
    """Both products, of float16 operands, so that one pipeline serves: make it, `start` it, `judge` once both have arrived."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._special = bytearray(9 * 4)
        self._ordered = bytearray(4)
        self._halves_a = _halves(3)
        self._halves_b = _halves(11)
        self._products = (
            (_operation(device, 3, 2, Activation.RELU), _NAN_A, _NAN_B, self._special),
            (_operation(device, 1, _DEPTH, Activation.NONE), self._halves_a, self._halves_b, self._ordered),
        )
        self.shaders = self._products[0][0].shaders

    def start(self) -> list[Pending]:
        """Submit both; the pipeline had better be prepared."""
        pendings = []
        for operation, a, b, destination in self._products:
            problem = operation.problem
            left, right = (
                HostOperand(struct.pack(f"<{len(values)}e", *values), layout) for values, layout in ((a, problem.a), (b, problem.b))
            )
            pendings.append(operation.start(left, right, read_into=destination)[1])
        return pendings

    def judge(self) -> None:
        """Compare, and put the verdicts into the device's capabilities."""
        special = struct.unpack("<9f", self._special)
        expected = [
            _relu(sum(_NAN_A[2 * row + k] * _NAN_B[3 * k + column] for k in range(2))) for row in range(3) for column in range(3)
        ]
        (ordered,) = struct.unpack("<f", self._ordered)
        self.device.adopt_verdict(
            nan_inf=all(_same(x, y) for x, y in zip(special, expected, strict=True)),
            order_kept=_same(ordered, replay(TILED_ORDER, [x * y for x, y in zip(self._halves_a, self._halves_b, strict=True)])),
        )


def probe(device: Device) -> None:
    """Run the probe and wait: `device.capabilities` then holds the verdicts."""
    made = Probe(device)
    device.prepare(made.shaders).wait()
    for pending in made.start():
        pending.wait()
    made.judge()


async def probe_async(device: Device) -> None:
    """`probe`, awaited."""
    made = Probe(device)
    await device.prepare(made.shaders)
    for pending in made.start():
        await pending
    made.judge()


def _operation(device: Device, size: int, depth: int, activation: Activation) -> GemmOperation:
    problem = Problem(size, size, depth, Layout(FLOAT16, depth, 1), Layout(FLOAT16, size, 1), Layout(FLOAT32, size, 1))
    # As though it were a piece of a product so large that k is not split: one pipeline serves.
    return GemmOperation(device, problem, activation, mode="deterministic", variant=TILED.name, whole=Shape(1 << 20, 64, depth))


def replay(order: SummationOrder, products: list[float]) -> float:
    """The sum of exact products in `order`, every addition rounded to float32."""
    total = group = block = 0.0
    for steps, start in enumerate(range(0, len(products), order.chain), 1):
        chain = 0.0
        for each in products[start : start + order.chain]:
            chain = _float32(chain + each)
        block = _float32(block + chain)
        if steps % order.block == 0:
            group, block = _float32(group + block), 0.0
        if steps % (order.block * order.group) == 0:
            total, group = _float32(total + group), 0.0
    return _float32(total + _float32(group + block))


def _halves(seed: int) -> list[float]:
    """Values of one sign pattern and many magnitudes, so that every addition rounds and order shows; each ninth is subnormal."""
    values = []
    state = seed
    for index in range(_DEPTH):
        state = (state * 1103515245 + 12345) & 0x7FFF_FFFF
        value = (1024 + (state >> 8) % 1024) * 2.0 ** (-10 - (state >> 20) % 3)
        values.append((state >> 10) % 1023 * 2.0**-24 if index % 9 == seed % 9 else value)
    return values


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _relu(x: float) -> float:
    return 0.0 if x <= 0.0 else x


def _same(x: float, y: float) -> bool:
    return (isnan(x) and isnan(y)) or x == y
