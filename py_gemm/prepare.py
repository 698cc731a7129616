"""Decides about a call of the front door: every check that needs no device and no address, and what follows from shapes, types
and options alone. The answer is kept, so that a call that comes again costs a look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from . import arrays
from .arrays import DeviceArray
from .call import PreparedCall, matrix_shape
from .dtypes import BFLOAT16, FLOAT_TYPES, ElementType, promote
from .epilogue import Activation, require_exact_activation
from .errors import ShapeError
from .prepacked import check_prepacked, packing_of, stays_on_device
from .problem import broadcast, matmul_shapes, real_number
from .request import Request

MODES = ("fast", "deterministic", "exact")

_prepared: dict[tuple[Any, ...], PreparedCall] = {}
_forgetting = Lock()
_PREPARED_LIMIT = 256  # distinct calls that are remembered; the oldest goes first


def prepared_for(request: Request) -> PreparedCall:
    """The decision about this call, remembered or new."""
    return remembered(request.key(), lambda: prepare(request))


def remembered(key: tuple[Any, ...], make: Callable[[], PreparedCall]) -> PreparedCall:
    """What was decided about a call of this key, or what `make` decides now."""
    try:
        found = _prepared.get(key)
    except TypeError:  # an argument that cannot be hashed is not valid either: `make` says which
        return make()
    if found is None:
        found = make()
        with _forgetting:  # two threads must not drop the same oldest decision
            if len(_prepared) >= _PREPARED_LIMIT:
                del _prepared[next(iter(_prepared))]
            _prepared[key] = found
    return found


def forget_prepared() -> None:
    """Drop every decision that is remembered (after a change of knobs)."""
    with _forgetting:
        _prepared.clear()


def prepare(request: Request) -> PreparedCall:
    """Every check that needs no device and no address, and the decisions that follow from shapes, types and options."""
    operation = request.operation
    if request.mode not in MODES:
        raise ValueError(f"{operation}: unknown mode {request.mode!r}; known: {', '.join(MODES)}")
    activation = Activation.of(request.activation)
    alpha = real_number(operation, "alpha", request.alpha)
    has_c = request.c is not None
    beta = (1.0 if has_c else 0.0) if request.beta is None else real_number(operation, "beta", request.beta)
    if beta != 0.0 and not has_c:
        raise ValueError(f"{operation}: beta is {beta}, but there is no c")
    check_prepacked(operation, "a", request.a, transpose=request.transpose_a)
    check_prepacked(operation, "b", request.b, transpose=request.transpose_b)
    check_prepacked(operation, "c", request.c)
    check_prepacked(operation, "out", request.out)
    type_a, bits_a = _type_of(operation, "a", request.a, request.dtype_a)
    type_b, bits_b = _type_of(operation, "b", request.b, request.dtype_b)
    type_c, _ = _type_of(operation, "c", request.c, request.dtype_c) if has_c else (None, False)
    if request.bias is not None:
        arrays.element_type(operation, "bias", request.bias.dtype)
    if request.mode == "exact":
        require_exact_activation(operation, activation)

    batch, m, n, k = matmul_shapes(
        operation,
        matrix_shape(request.a.shape, left=True, transpose=request.transpose_a),
        matrix_shape(request.b.shape, left=False, transpose=request.transpose_b),
    )
    drops_a, drops_b = request.a.ndim == 1, request.b.ndim == 1
    result_shape = (*batch, *(() if drops_a else (m,)), *(() if drops_b else (n,)))
    if has_c and broadcast(operation, "c", request.c.shape, result_shape, (request.c.shape, result_shape)) != result_shape:
        raise ShapeError(f"{operation}: c of shape {request.c.shape} does not broadcast to the result's shape {result_shape}")
    if request.bias is not None and request.bias.shape != (n,):
        raise ShapeError(f"{operation}: bias has shape {request.bias.shape}, dimension n needs ({n},)")

    promoted = promote(type_a, type_b)
    result_type = promoted if request.dtype is None else arrays.requested_type(operation, "dtype", request.dtype)
    out = request.out
    bits = result_type is BFLOAT16 and (bits_a or bits_b or arrays.bfloat16_dtype() == np.uint16)
    if out is not None:
        bits = check_out(operation, out, result_shape, result_type, bits, asked=request.dtype is not None)
    return PreparedCall(
        operation, m, n, k, batch, result_shape, type_a, type_b, type_c, result_type, bits, alpha, beta, activation,
        bool(request.transpose_a), bool(request.transpose_b), str(request.mode), request.bias is not None,
        stays_on_device(request.a) or stays_on_device(request.b), drops_a, drops_b, 2 * m * n * k * prod(batch),
        bool(request.batch_invariant), packing_of(request.a), packing_of(request.b),
    )  # fmt: skip


def _type_of(operation: str, name: str, operand: Any, tag: Any) -> tuple[ElementType, bool]:
    if isinstance(operand, DeviceArray):
        if operand.element_type.name not in FLOAT_TYPES:
            arrays.element_type(operation, name, operand.dtype)  # which says that integers are the work of int8_gemm
        return operand.element_type, operand.bits
    element = arrays.element_type(operation, name, operand.dtype, tag)
    return element, element is BFLOAT16 and operand.dtype.kind == "u"


def check_out(operation: str, out: Any, shape: tuple[int, ...], element: ElementType, bits: bool, *, asked: bool) -> bool:
    """TypeError or ShapeError where `out` cannot take the result; whether bfloat16 is written as uint16."""
    if not isinstance(out, (np.ndarray, DeviceArray)):
        raise TypeError(f"{operation}: out must be a NumPy array or a DeviceArray, not {type(out).__name__}")
    if out.shape != shape:
        raise ShapeError(f"{operation}: out has shape {out.shape}, the result {shape}")
    if isinstance(out, DeviceArray):
        if out.element_type is not element:
            raise TypeError(f"{operation}: out is {out.element_type.name}, the result {element.name}")
        return out.bits
    native = out.dtype.newbyteorder("=")
    if element is BFLOAT16 and native == np.uint16 and (bits or asked):
        return True
    expected = arrays.numpy_dtype(element, bits=bits)
    if native != expected:
        raise TypeError(f"{operation}: out is {out.dtype}, the result {element.name} ({expected})")
    return bits
