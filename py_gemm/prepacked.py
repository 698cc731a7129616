"""`prepack`: an operand that is used again and again, in the form its device reads fastest. Accepted wherever `b` (or `a`) is.

On the CPU: the kernels' own panels, packed once (cpu/packing.py). Integers, and everything on a GPU: a dense copy on the device.
A product with it has the bits of the plain call. Multiplies nothing.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from . import arrays, devices
from .arrays import Array, DeviceArray
from .cpu.packing import Packing
from .dtypes import BFLOAT16, BYTE_TYPES, ElementType
from .errors import DeviceMemoryError, UnsupportedError
from .problem import Layout


class Prepacked(DeviceArray):
    """An operand that was packed by `prepack`. A product with it is a NumPy array, unless the other operand stays on a device.

    shape, dtype, device: of the operand that was packed. side: "a" or "b". packing: how it lies on the CPU; None: as a dense array.
    """

    def __init__(self, side: str, packing: Packing | None, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.side = side
        self.packing = packing

    def __repr__(self) -> str:
        how = "a dense copy" if self.packing is None else str(self.packing)
        return f"Prepacked({self.side}, shape={self.shape}, dtype={self.element_type.name}, device={self.device.kind}: {how})"

    def numpy(self) -> Array:
        """TypeError: what is packed is not read back."""
        raise TypeError("a prepacked operand is not read back; keep the array that it was made of")

    async def numpy_async(self) -> Array:
        """TypeError, as `numpy`."""
        return self.numpy()


def stays_on_device(operand: object) -> bool:
    """Whether a product with this operand stays on the device too."""
    return isinstance(operand, DeviceArray) and not isinstance(operand, Prepacked)


def check_prepacked(operation: str, name: str, operand: object, *, transpose: bool = False) -> None:
    """ValueError or TypeError where `operand` was packed for another place than that of argument `name`."""
    if not isinstance(operand, Prepacked):
        return
    if name not in ("a", "b"):
        raise TypeError(f"{operation}: {name} is prepacked; prepacked operands are taken as a or b")
    if operand.side != name:
        raise ValueError(f'{operation}: {name} is prepacked as {operand.side}; prepack(x, side="{name}") packs it for this place')
    if transpose:
        raise ValueError(f"{operation}: transpose_{name} cannot turn a prepacked operand; prepack the transposed array")


def prepack(x: Any, *, side: str = "b", dtype: Any = None, device: Any = None) -> Prepacked:
    """A snapshot of `x`, packed for use as the operand `side` ("a" or "b") of many products: matmul, gemm, int8_gemm.

    x: what `matmul` takes as that operand, not transposed later. dtype: "bfloat16" says that uint16 elements are bfloat16 bits.
    device: as in `matmul`; None: the best there is, the CPU for float64. Every product has the bits of the plain call.

    Raises as `asarray` does; ValueError for another side. A product that cannot use what was packed (sums in float64 of a
    float32 operand, an `a` packed for another token, `mode="exact"` on the CPU) raises UnsupportedError.
    """
    if device is None or isinstance(device, str):
        device = devices.request_device(_kind(x, device))
    return _pack(x, side, dtype, device)


async def prepack_async(x: Any, *, side: str = "b", dtype: Any = None, device: Any = None) -> Prepacked:
    """`prepack`, awaitable (asking for a GPU takes waiting in a browser)."""
    if device is None or isinstance(device, str):
        device = await devices.request_device_async(_kind(x, device))
    if isinstance(x, DeviceArray) and not isinstance(x, Prepacked):
        x, dtype = await x.numpy_async(), "bfloat16" if x.bits else dtype
    return _pack(x, side, dtype, device)


def _kind(x: Any, device: str | None) -> str | None:
    """The kind of device to ask for: float64 is work for the CPU."""
    return "cpu" if device is None and getattr(x, "dtype", None) == np.float64 else device


def _pack(x: Any, side: str, tag: Any, device: Any) -> Prepacked:
    if side not in ("a", "b"):
        raise ValueError(f'prepack: unknown side {side!r}; known: "a", "b"')
    if isinstance(x, Prepacked):
        raise TypeError("prepack: x is prepacked already")
    if isinstance(x, DeviceArray):
        x, tag = x.numpy(), "bfloat16" if x.bits else tag
    array = arrays.as_array("prepack", "x", x)
    if device.kind == "cpu":
        element = arrays.stored_type("prepack", array.dtype, tag)
        if element.name not in BYTE_TYPES:
            return _pack_panels(array, element, side, device)
    array, element, bits = arrays.snapshot("prepack", array, device, tag)
    if device.kind == "cpu":
        return Prepacked(side, None, device, array.shape, element, bits=bits, array=array)
    buffer = device.create_buffer(arrays.as_bytes(array)) if array.size else device.create_buffer(4)
    return Prepacked(side, None, device, array.shape, element, bits=bits, buffer=buffer)


def _pack_panels(array: Array, element: ElementType, side: str, device: Any) -> Prepacked:
    gemm = device.gemm
    packing: Packing = gemm.packing(side, element)
    shape = array.shape
    matrix = array if array.ndim > 1 else array[None] if side == "a" else array[:, None]
    *outer, rows, columns = matrix.shape
    lanes, k = (rows, columns) if side == "a" else (columns, rows)
    padded, depth = packing.padded(lanes), packing.depth(k)
    batch = tuple(outer)
    try:
        dtype = arrays.numpy_dtype(packing.element, bits=packing.element is BFLOAT16)
        panels = np.zeros((*batch, *((padded, depth) if side == "a" else (depth, padded))), dtype)
    except (MemoryError, ValueError) as error:  # the second: more bytes than NumPy can count
        raise DeviceMemoryError(f"prepack: no room for {prod(batch) * padded * depth} elements of {packing.element}") from error
    if panels.size:
        source = matrix if arrays.expressible(matrix) and not arrays.is_sparse(matrix) else arrays.compact(matrix)
        *steps, row, column = arrays.element_strides(source)
        call = gemm.prepare_packing(packing, Layout(element, row, column, tuple(steps)), lanes, k, batch)
        address = arrays.address(source)
        call(address if side == "a" else 0, address if side == "b" else 0, 0, arrays.address(panels), 0)
    bits = bool(array.dtype == np.uint16)
    return Prepacked(side, packing, device, shape, element, bits=bits, array=panels)


def packing_of(operand: object) -> Packing | None:
    """How an operand of a product on the CPU is packed, if it is."""
    return operand.packing if isinstance(operand, Prepacked) else None


def require_packing(operation: str, packed: dict[str, Packing | None], accumulator: ElementType, *, exact: bool = False) -> None:
    """UnsupportedError where panels hold another type than the product sums in, or an exact product would have to read them."""
    for name, packing in packed.items():
        if packing is not None and exact:
            raise UnsupportedError(
                f'{operation}: {name} is prepacked; mode "exact" on the CPU reads no panels, hand over the array that was packed'
            )
        if packing is not None and packing.accumulator is not accumulator:
            raise UnsupportedError(
                f"{operation}: {name} is prepacked for sums in {packing.accumulator.name}, this product sums in {accumulator.name}"
            )
