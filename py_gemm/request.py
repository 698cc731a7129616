"""What the caller of the front door asked for, and the checks that look at where arrays lie. Decides nothing (prepare.py does)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from . import arrays
from .arrays import DeviceArray
from .errors import AliasError, DeviceLostError, SyncUnavailableError

P = ParamSpec("P")
R = TypeVar("R")


class Request:
    """The arguments of a call, arrays made NumPy arrays (or left DeviceArrays), nothing checked yet."""

    __slots__ = (
        "a", "activation", "alpha", "b", "batch_invariant", "beta", "bias", "c", "dtype", "dtype_a", "dtype_b", "dtype_c", "mode",
        "operation", "out", "transpose_a", "transpose_b",
    )  # fmt: skip

    a: Any
    b: Any
    c: Any
    bias: Any

    def __init__(
        self, operation: str, a: Any, b: Any, c: Any = None, alpha: Any = 1.0, beta: Any = None, transpose_a: bool = False,
        transpose_b: bool = False, bias: Any = None, activation: Any = None, out: Any = None, dtype: Any = None,
        mode: Any = "fast", batch_invariant: bool = False, dtype_a: Any = None, dtype_b: Any = None, dtype_c: Any = None,
    ) -> None:  # fmt: skip
        self.operation = operation
        self.a = a if type(a) is np.ndarray else _operand(operation, "a", a)
        self.b = b if type(b) is np.ndarray else _operand(operation, "b", b)
        self.c = c if c is None or type(c) is np.ndarray or isinstance(c, DeviceArray) else np.asarray(c)
        self.alpha = alpha
        self.beta = beta
        self.transpose_a = transpose_a
        self.transpose_b = transpose_b
        if isinstance(bias, DeviceArray) and bias is out:
            raise AliasError(f"{operation}: out is bias itself, a DeviceArray of shape {out.shape}")
        self.bias = bias if bias is None or type(bias) is np.ndarray else np.asarray(bias)
        self.activation = activation
        self.out = out
        self.dtype = dtype
        self.mode = mode
        self.batch_invariant = batch_invariant
        self.dtype_a = dtype_a
        self.dtype_b = dtype_b
        self.dtype_c = dtype_c

    def key(self) -> tuple[Any, ...]:
        """All that `prepare` looks at."""
        a, b, c, bias, out = self.a, self.b, self.c, self.bias, self.out
        return (
            self.operation, type(a), type(b), a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype,
            c is None or (type(c), c.shape, c.strides, c.dtype), bias is None or (bias.shape, bias.dtype),
            out is None or (type(out), getattr(out, "shape", None), getattr(out, "strides", None), getattr(out, "dtype", None)),
            self.alpha, self.beta, self.transpose_a, self.transpose_b, self.activation, self.dtype, self.mode,
            self.batch_invariant, self.dtype_a, self.dtype_b, self.dtype_c,
            getattr(a, "packing", None), getattr(b, "packing", None), getattr(a, "side", None), getattr(b, "side", None),
        )  # fmt: skip


def holding(call: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Makes an awaitable call hold its DeviceArrays from the moment it is made, not only from when it is first awaited. `out` is
    its owner's all the time, for it is what the call returns."""

    @wraps(call)
    def held(*operands: P.args, **options: P.kwargs) -> Coroutine[Any, Any, R]:
        out = options.get("out")

        def hold(value: object) -> Any:
            return value.held() if isinstance(value, DeviceArray) and value is not out else value

        return call(*map(hold, operands), **{name: hold(value) for name, value in options.items()})

    return held


def _operand(operation: str, name: str, value: Any) -> Any:
    if isinstance(value, DeviceArray):
        arrays.require_dimensions(operation, name, value.shape)
        return value
    return arrays.as_array(operation, name, value)


def check_memory(request: Request) -> None:
    """What depends on where arrays lie: `out` must be writable and apart from the inputs."""
    out = request.out
    inputs = {"a": request.a, "b": request.b, "c": request.c, "bias": request.bias}
    if isinstance(out, DeviceArray):
        out.require_live()
        for name, each in inputs.items():
            if each is out and name != "c":
                raise AliasError(f"{request.operation}: out is {name} itself, a DeviceArray of shape {out.shape}")
        return
    if not out.flags.writeable:
        raise ValueError(f"{request.operation}: out is read-only")
    arrays.check_alias(
        request.operation,
        out,
        {name: each.host() if isinstance(each, DeviceArray) else each for name, each in inputs.items()},
    )


def named_device(request: Request, device: Any) -> Any:
    """The device that DeviceArrays among the arguments fix, or the one that is named.

    DeviceLostError where theirs is lost, ValueError where devices disagree.
    """
    for name in ("a", "b", "c", "out"):
        operand = getattr(request, name)
        if isinstance(operand, DeviceArray):
            require_live(request.operation, operand.device)
            if device is not None and device is not operand.device and not serves(operand.device, device):
                shown = device if isinstance(device, str) else getattr(device, "kind", device)
                raise ValueError(f"{request.operation}: {name} lies on another device ({operand.device.kind}) than {shown}")
            device = operand.device
    return device


def serves(device: Any, kind: Any) -> bool:
    """Whether `device` is of that kind: its own, or the back end that it runs on ("vulkan", "metal")."""
    return isinstance(kind, str) and kind in (device.kind, getattr(device.capabilities, "backend", None))


def require_live(operation: str, device: Any) -> None:
    """DeviceLostError where the device is gone."""
    if device.lost is not None:
        raise DeviceLostError(f"{operation}: the device is lost ({device.lost}); request_device() gives a fresh one")


def sync_unavailable(request: Request) -> SyncUnavailableError:
    """The error of a call that would have to wait where Python cannot; its text shows the line to write instead."""
    return SyncUnavailableError(
        f"{request.operation}: this entry into Python cannot wait for the GPU (can_run_sync() is False); write instead:  "
        f'd = await pg.{request.operation}_async(...)   or compute on the CPU:  pg.{request.operation}(..., device="cpu")'
    )
