"""Elementwise: y = act(x + bias) over a float32 matrix on the device, by the same functions that end a product.

A product followed by Elementwise gives, bit for bit, what the product with the epilogue gives. (A compiler may fuse alpha * sum
with the addition of the bias where alpha is neither 1 nor a power of two; none of the devices tested does.) Records into a caller's
encoder; submits nothing, waits for nothing.
"""

from __future__ import annotations

import struct
from typing import Any

from ..epilogue import Activation
from ..errors import AliasError, ShapeError
from ..problem import require_count, require_in_buffer
from .device import Buffer, Device, Dispatch
from .planner import HAS_BIAS
from .shaders import ShaderKey
from .steps import linear_grid, require_binding

IN_PLACE = 32
_PARAMETERS = struct.Struct("<9I")
_KEY = ShaderKey("elementwise", ())


class Elementwise:
    """One function of each element: activation None, "relu", "gelu_erf" or "gelu_tanh" (py_gemm/epilogue.py defines them).

    Raises ValueError for an unknown activation, listing the known ones.
    """

    def __init__(self, device: Device, activation: str | None = None) -> None:
        self.device = device
        self.activation = Activation.of(activation)

    def encode(
        self,
        encoder: Any,
        x: Any,
        y: Any,
        rows: int,
        columns: int,
        *,
        bias: Any = None,
        bias_offset: int = 0,
        ldx: int | None = None,
        ldy: int | None = None,
        offset_x: int = 0,
        offset_y: int = 0,
    ) -> None:
        """Record y[i, j] = act(x[i, j] + bias[bias_offset + j]) for rows x columns elements, all counts in float32 elements.

        x, y, bias: Buffers, or raw GPUBuffers of this device; leading dimensions default to `columns`. x may be y, at the same
        place; elements of y outside the matrix are not touched. Raises ShapeError (sizes, ranges, a grid past the limit),
        AliasError (y shares its buffer with the bias, or with x at another place), UnsupportedError (past a binding).
        """
        operation = "elementwise"
        device = self.device
        device.require_alive()
        counts = {"rows": rows, "columns": columns, "bias_offset": bias_offset, "offset_x": offset_x, "offset_y": offset_y}
        leading = {"ldx": columns if ldx is None else ldx, "ldy": columns if ldy is None else ldy}
        for name, value in {**counts, **leading}.items():
            require_count(operation, name, value)
        for name, value in leading.items():
            if value < columns:
                raise ShapeError(f"{operation}: {name} is {value}, less than the {columns} elements of a row")
        source, target = device.adopt(x), device.adopt(y)
        given = None if bias is None else device.adopt(bias)
        empty = rows == 0 or columns == 0
        for name, buffer, start, reach in (
            ("x", source, offset_x, (rows - 1) * leading["ldx"] + columns),
            ("y", target, offset_y, (rows - 1) * leading["ldy"] + columns),
            ("bias", given, bias_offset, columns),
        ):
            if buffer is not None:
                require_in_buffer(operation, name, (start, start if empty else start + reach), buffer.nbytes // 4)
                require_binding(operation, name, buffer.nbytes, device.capabilities.limits)
        in_place = source.number == target.number
        if in_place and (offset_x, leading["ldx"]) != (offset_y, leading["ldy"]):
            raise AliasError(f"{operation}: x and y are the same device buffer at different places")
        if given is not None and given.number == target.number:
            raise AliasError(f"{operation}: y and bias are the same device buffer")
        if empty:
            return
        flags = (HAS_BIAS if given is not None else 0) | (IN_PLACE if in_place else 0)
        parameters = _PARAMETERS.pack(
            rows * columns, columns, flags, int(self.activation), bias_offset, offset_x, leading["ldx"], offset_y, leading["ldy"]
        )
        with device.lock:
            nothing: Buffer = device.nothing
            buffers = (nothing if in_place else source, nothing if given is None else given, target)
            grid = linear_grid(operation, rows * columns, device.capabilities.limits)
            device.record(encoder, (Dispatch(_KEY, buffers, parameters, grid),))

    @property
    def shaders(self) -> tuple[ShaderKey, ...]:
        """What `device.prepare` compiles ahead."""
        return (_KEY,)

    def release_bindings(self) -> None:
        """Drop the cached bind groups (at most 64), and with them the hold on their buffers."""
        self.device.release_bindings(_KEY)
