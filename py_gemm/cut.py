"""Runs a product of the front door whose operands pass the binding limit of a GPU, panel by panel, into one array of the host.

The decision where to cut is gpu/panels.py's; kernel and ranges are those of the whole product, so the bits are too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from . import arrays
from .arrays import Array
from .dtypes import FLOAT32, ElementType
from .epilogue import Activation
from .gpu.capabilities import Limits
from .gpu.device import Device, Pending
from .gpu.operation import GemmOperation, HostOperand
from .gpu.pacing import Paced, Progress
from .gpu.panels import Extent, Panel, cut_panels
from .gpu.steps import dense_layout
from .gpu.variants import Shape
from .problem import Layout, Problem


@dataclass(slots=True)
class PanelledProduct:
    """One call. a: (..., m, k), b: (..., k, n), c: broadcasts to (batch..., m, n); transposes are done, 1-D operands promoted."""

    operation: str
    a: Array
    b: Array
    c: Array | None
    bias: Array | None
    types: tuple[ElementType, ElementType, ElementType]
    result_type: ElementType
    batch: tuple[int, ...]
    alpha: float
    beta: float
    activation: Activation
    mode: str
    whole: Shape

    @property
    def sizes(self) -> tuple[int, ...]:
        return (*self.batch, self.whole.m, self.whole.n)

    def panels(self, limits: Limits) -> list[Panel]:
        """Where it is cut on a device with these limits. UnsupportedError where it cannot be."""
        k = self.whole.k
        operands = {
            "a": Extent((*self._has(self.a), True, False), k * self.types[0].size),
            "b": Extent((*self._has(self.b), False, True), k * self.types[1].size),
        }
        if self.c is not None:
            operands["c"] = Extent((*self._has(self.c), self.c.shape[-2] > 1, self.c.shape[-1] > 1), self.types[2].size)
        operands["result"] = Extent((True,) * len(self.sizes), FLOAT32.size)
        return cut_panels(self.operation, self.sizes, operands, limits)

    def start(self, device: Device, result: Array, progress: Progress | None) -> Paced:
        """Submit the first panel; the others follow while the pending is waited for, and fill `result` (batch..., m, n)."""
        panels = self.panels(device.capabilities.limits)
        flops = [2 * self.whole.k * int(np.prod([size for _, size in panel])) for panel in panels]
        starts: list[Callable[[], Pending]] = [partial(self._start_panel, device, panel, result) for panel in panels]
        return Paced(device, starts, flops, [], progress, learns=False)

    def first_operation(self, device: Device) -> GemmOperation:
        """The operation of the first panel: all panels need its shaders."""
        panel = self.panels(device.capabilities.limits)[0]
        return self._operation(device, panel)[0]

    def _operation(self, device: Device, panel: Panel) -> tuple[GemmOperation, list[HostOperand | None]]:
        limit = device.capabilities.limits.largest_bound
        rows, columns = panel[-2:]
        batch = tuple(size for _, size in panel[:-2])
        parts = (
            (_part(self.a, (*panel[:-2], rows, None)), self.types[0]),
            (_part(self.b, (*panel[:-2], None, columns)), self.types[1]),
            (None if self.c is None else _part(self.c, panel), self.types[2]),
        )
        shapes = ((rows[1], self.whole.k), (self.whole.k, columns[1]), (rows[1], columns[1]))
        operands = [
            None if part is None else _placed(part, (*batch, *shape), type_, limit)
            for (part, type_), shape in zip(parts, shapes, strict=True)
        ]
        a, b, c = operands
        assert a is not None
        assert b is not None
        problem = Problem(
            rows[1], columns[1], self.whole.k, a.layout, b.layout,
            dense_layout(rows[1], columns[1], batch, self.result_type), None if c is None else c.layout,
            batch, self.alpha, self.beta,
        )  # fmt: skip
        return self._make(device, problem, panel), operands

    def _make(self, device: Device, problem: Problem, _panel: Panel) -> GemmOperation:
        return GemmOperation(device, problem, self.activation, self.bias is not None, self.mode, whole=self.whole)

    def _bias_of(self, panel: Panel) -> HostOperand | None:
        if self.bias is None:
            return None
        start, size = panel[-1]
        return HostOperand(arrays.as_bytes(self.bias[start : start + size]), Layout(FLOAT32, 0, 1))

    def _start_panel(self, device: Device, panel: Panel, result: Array) -> Pending:
        operation, (a, b, c) = self._operation(device, panel)
        assert a is not None
        assert b is not None
        landing = np.empty(tuple(size for _, size in panel), result.dtype)
        _, pending = operation.start(a, b, c, self._bias_of(panel), read_into=arrays.as_bytes(landing), paced=True)
        return _Landing(pending, partial(_land, result, panel, landing))

    def _has(self, array: Array) -> tuple[bool, ...]:
        """Which axes of the batch the array really has."""
        own = array.shape[:-2]
        return (False,) * (len(self.batch) - len(own)) + tuple(size > 1 for size in own)


class _Landing(Pending):
    """A pending whose result is put in its place when it has arrived."""

    def __init__(self, pending: Pending, land: Callable[[], None]) -> None:
        self._pending = pending
        self._land = land

    def wait(self) -> None:
        self._pending.wait()
        self._finish()

    def __await__(self) -> Generator[Any, Any, None]:
        yield from self._pending.__await__()
        self._finish()

    def _finish(self) -> None:
        self.gpu_seconds = self._pending.gpu_seconds
        if not self.done:
            self._land()
            self.done = True


def _land(result: Array, panel: Panel, landing: Array) -> None:
    result[tuple(slice(start, start + size) for start, size in panel)] = landing


def _part(array: Array, panel: tuple[tuple[int, int] | None, ...]) -> Array:
    """The part of an array that broadcasts over the panel's axes; None takes an axis whole."""
    own = panel[len(panel) - array.ndim :]
    return array[
        tuple(
            slice(None) if each is None or size == 1 else slice(each[0], each[0] + each[1])
            for each, size in zip(own, array.shape, strict=True)
        )
    ]


def _placed(array: Array, shape: tuple[int, ...], type_: ElementType, limit: int) -> HostOperand:
    """The array as an operand that broadcasts to `shape`, copied where it lies too far apart."""
    low, high = arrays.span(array) if arrays.expressible(array) else (0, limit + 1)
    if arrays.is_sparse(array) or (high - low) * type_.size > limit:
        array = arrays.compact(array)
    data, offset = arrays.spanned_bytes(array)
    strides = arrays.element_strides(np.broadcast_to(array, shape))
    return HostOperand(data, Layout(type_, strides[-2], strides[-1], strides[:-2], offset))
