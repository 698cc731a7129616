"""A slow machine that runs plans on the host: it binds what a step binds, window by window, and does what the kernels say they do.

It adds whole numbers, so it knows nothing of orders of summation; it fails where a step binds more than the limit, begins a window
where none may begin, reads or writes outside one, or begins a part anywhere but behind the part before. Asserts only that.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from py_gemm.gpu.planner import CONTINUES, HAS_BIAS, HAS_PRODUCT, LEAVES
from py_gemm.gpu.steps import Step
from py_gemm.gpu.variants import LaneOrder, Variant

GEMM = struct.Struct("<4I2f2I15I")
TYPES = {"float32": np.float32, "float16": np.float16}


class Machine:
    """buffers: bytes by name; "sum" and "result" may be written once only. limit: what one binding holds."""

    def __init__(self, buffers: dict[str, bytes], sizes: dict[str, int], variant: Variant, limit: int) -> None:
        self.memory = {name: np.frombuffer(bytearray(data), np.uint8) for name, data in buffers.items()}
        self.memory |= {name: np.full(-(-nbytes // 4) * 4, 0xFF, np.uint8) for name, nbytes in sizes.items()}
        self.memory["nothing"] = np.zeros(16, np.uint8)
        self.variant, self.limit = variant, limit
        self.written = {name: np.zeros(nbytes, np.uint8) for name, nbytes in sizes.items() if name in ("sum", "result")}
        self.windows = 0

    def run(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            views = [self._bind(name, window) for name, window in zip(step.buffers, step.windows or (None,) * 9, strict=False)]
            if step.shader.kernel == self.variant.kernel:
                self._multiply(step, views)
            elif step.shader.kernel == "convert":
                self._convert(step, views)
            elif step.shader.kernel == "narrow":
                self._narrow(step, views)
            else:
                self._add(step, views)

    def _bind(self, name: str, window: tuple[int, int] | None) -> tuple[str, int, Any]:
        memory = self.memory[name]
        start, nbytes = window or (0, memory.size)
        self.windows += window is not None
        assert nbytes <= self.limit, (name, nbytes)
        assert start % 256 == 0
        assert nbytes > 0
        assert nbytes % 4 == 0
        assert start + nbytes <= memory.size, (name, start, nbytes, memory.size)
        return name, start, memory[start : start + nbytes]

    def _write(self, view: tuple[str, int, Any], at: Any, values: Any) -> None:
        name, start, memory = view
        words = memory.view(values.dtype)
        words[at] = values
        if name in self.written:
            size = values.dtype.itemsize
            np.add.at(self.written[name], (start + np.asarray(at)[..., None] * size + np.arange(size)).ravel(), 1)

    def _multiply(self, step: Step, views: list[Any]) -> None:
        m, n, k, flags, alpha, _, _, bias_offset, *rest = GEMM.unpack(step.parameters)
        a0, a_row, a_column, a_batch, b0, b_row, b_column, b_batch, d0, d_row, d_batch, ranges, terms, plane, part = (
            int(np.int32(np.uint32(word))) for word in rest
        )
        left, right = (view[2].view(TYPES[type_.name]) for view, type_ in zip(views, step.shader.types, strict=False))
        lanes = self.variant.lanes if flags & LEAVES else 1
        for z in range(step.workgroups[2]):
            index, each = divmod(z, ranges)
            begin = each * terms
            end = max(min(k, begin + part), begin)
            at_k = np.arange(begin, end)
            a = left[a0 + index * a_batch + np.arange(m)[:, None] * a_row + at_k * a_column].astype("f8")
            b = right[b0 + index * b_batch + at_k[:, None] * b_row + np.arange(n) * b_column].astype("f8")
            at = d0 + index * d_batch + each * plane + np.arange(m)[:, None] * d_row + np.arange(n)
            for lane in range(lanes):
                where = at + lane * plane
                value = a[:, lane::lanes] @ b[lane::lanes]
                if flags & CONTINUES:
                    value = value + views[3][2].view("f4")[where]
                elif not flags & LEAVES and flags & HAS_BIAS:
                    value = alpha * value + views[2][2].view("f4")[bias_offset : bias_offset + n]
                if isinstance(self.variant.order, LaneOrder) and flags & CONTINUES:
                    assert flags & LEAVES
                self._write(views[3], where, value.astype("f4"))
        assert flags & HAS_PRODUCT

    def _add(self, step: Step, views: list[Any]) -> None:
        count, m, n, flags, alpha, _, _, bias_offset, d0, d_row, d_batch, ranges = struct.unpack("<4I2f6I", step.parameters)
        total = alpha * views[0][2].view("f4")[: ranges * count].reshape(ranges, count).sum(0)
        column, row, index = np.arange(count) % n, np.arange(count) // n % m, np.arange(count) // (n * m)
        if flags & HAS_BIAS:
            total = total + views[1][2].view("f4")[bias_offset + column]
        self._write(views[2], d0 + index * d_batch + row * d_row + column, total.astype("f4"))

    def _convert(self, step: Step, views: list[Any]) -> None:
        count, rows, columns, *rest = struct.unpack("<8I", step.parameters)
        first, row, column, batch, target = (int(np.int32(np.uint32(word))) for word in rest)
        i = np.arange(count)
        at = first + i // (rows * columns) * batch + i // columns % rows * row + i % columns * column
        self._write(views[1], target + i, views[0][2].view(TYPES[step.shader.types[0].name])[at].astype("f4"))

    def _narrow(self, step: Step, views: list[Any]) -> None:
        count, source, target = struct.unpack("<3I", step.parameters)
        self._write(views[1], 2 * target + np.arange(count), views[0][2].view("f4")[source : source + count].astype("f2"))
