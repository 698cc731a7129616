"""What the tests of the GPU road share: NumPy views as operands, results as arrays, and a float64 reference. Asserts nothing."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32, ElementType
from py_gemm.epilogue import Activation
from py_gemm.exact.orders import replay, stated
from py_gemm.gpu.device import Device
from py_gemm.gpu.operation import DeviceOperand, GemmOperation, HostOperand
from py_gemm.gpu.split import Ranges
from py_gemm.gpu.steps import dense_layout
from py_gemm.gpu.variants import Variant
from py_gemm.problem import Layout, Problem

TYPES = {"float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16}
SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129)


def numpy_type(type_: ElementType) -> Any:
    return np.dtype(ml_dtypes.bfloat16) if type_ is BFLOAT16 else np.dtype(type_.name)


def type_of(array: Any) -> ElementType:
    return TYPES[array.dtype.name]


def as_bytes(array: Any) -> Any:
    """The array's memory as bytes: bfloat16 has no buffer protocol of its own."""
    return array.view(np.uint8).reshape(-1) if array.ndim else array.reshape(1).view(np.uint8)


def operand(view: Any, batch: tuple[int, ...] = ()) -> HostOperand:
    """A strided view of a C-contiguous array, broadcast to `batch`."""
    base = view
    while isinstance(base.base, np.ndarray) and base.base.dtype == view.dtype:
        base = base.base
    assert base.flags.c_contiguous
    view = np.broadcast_to(view, (*batch, *view.shape[-2:]))
    offset = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // view.itemsize
    strides = [stride // view.itemsize for stride in view.strides]
    layout = Layout(type_of(view), strides[-2], strides[-1], tuple(strides[:-2]), offset)
    return HostOperand(as_bytes(base), layout)


def on_device(device: Device, given: HostOperand) -> DeviceOperand:
    return DeviceOperand(device.create_buffer(np.ascontiguousarray(given.data)), given.layout)


def product(
    device: Device,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    bias: Any = None,
    activation: Activation = Activation.NONE,
    result: ElementType = FLOAT32,
    place: Any = lambda given: given,
    paced: bool = False,
    **options: Any,
) -> Any:
    """The operation on NumPy views, as an array; `place` may put operands on the device first; `options` go
    to the operation."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    first, second = place(operand(a, batch)), place(operand(b, batch))
    third = None if c is None else place(operand(np.broadcast_to(c, (*np.shape(c)[:-2], m, n)), batch))
    fourth = None if bias is None else HostOperand(bias, Layout(FLOAT32, 0, 1))
    beta = (1.0 if c is not None else 0.0) if beta is None else beta
    layout_c = None if third is None else third.layout
    problem = Problem(m, n, k, first.layout, second.layout, dense_layout(m, n, batch, result), layout_c, batch, alpha, beta)
    operation = GemmOperation(device, problem, activation, bias is not None, **options)
    out = np.empty((*batch, m, n), numpy_type(result))
    _, pending = operation.start(first, second, third, fourth, read_into=as_bytes(out), paced=paced)
    pending.wait()
    return out


def reference(a: Any, b: Any) -> Any:
    """A @ B in float64, from the elements as they are."""
    return a.astype(np.float64) @ b.astype(np.float64)


def replayed(row: Variant, a: Any, b: Any, *, fused: bool, ranges: Ranges | None = None) -> Any:
    """A @ B as the row states its order, each of the `ranges` by itself."""
    assert row.order is not None
    return replay(stated(row.order, a.shape[-1], ranges), a, b, fused=fused)


def small_integers(rng: Any, shape: tuple[int, ...], type_: ElementType, most: int = 3) -> Any:
    """Whole numbers whose products of up to 129 terms every accumulator holds exactly."""
    return rng.integers(-most, most + 1, shape).astype(numpy_type(type_))
