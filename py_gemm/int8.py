"""The front door for integers: `int8_gemm` and its awaitable twin. Checks types and zero points; call.py runs, as for floats.

D = (A - zero_point_a) @ (B - zero_point_b),  int32, wrapping modulo 2^32;  requantized to int8 or uint8 where asked
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from .api import run_prepared, run_prepared_async
from .arrays import Array, as_bytes
from .call import PreparedCall, matrix_shape
from .cpu.gemm import CpuCall
from .cut import PanelledProduct
from .dtypes import BYTE_TYPES, INT32, ElementType
from .epilogue import Activation
from .gpu.device import Device
from .gpu.int8_operation import Int8Operation
from .gpu.operation import HostOperand
from .gpu.pacing import Progress
from .gpu.panels import Panel
from .int8_block import Block, make_block, transpose_block
from .prepacked import check_prepacked, stays_on_device
from .prepare import check_out, remembered
from .problem import Layout, Problem, matmul_shapes
from .requantize import Requantize
from .request import Request, check_memory, holding, named_device

_OPERATION = "int8_gemm"


def int8_gemm(
    a: Any,
    b: Any,
    *,
    zero_point_a: Any = 0,
    zero_point_b: Any = 0,
    requantize: Requantize | None = None,
    out: Any = None,
    device: Any = None,
) -> Any:
    """The product of int8 and uint8 matrices in any mix, exact, with the shapes and the broadcasting of numpy.matmul.

    a: (..., m, k) or (k,); b: (..., k, n) or (k,); any strides; DeviceArrays are taken too. zero_point_a: an integer in the range
    of a's type, or (m, 1) of them; zero_point_b: an integer, or (n,) or (1, n). requantize: None for int32 sums, which wrap modulo
    2^32, or a Requantize for int8 or uint8. out: written in place and returned. device: as in `matmul`.

    Every device and every kernel gives the same integers. Returns a NumPy array (1-D with 1-D: a scalar), or a DeviceArray where
    `a` or `b` is one. Raises as `matmul` does; TypeError for operands that are not int8 or uint8, ValueError for zero points out of
    the range of their operand.
    """
    return run_prepared(*_decide(a, b, zero_point_a, zero_point_b, requantize, out, device))


@holding
async def int8_gemm_async(
    a: Any,
    b: Any,
    *,
    zero_point_a: Any = 0,
    zero_point_b: Any = 0,
    requantize: Requantize | None = None,
    out: Any = None,
    device: Any = None,
    progress: Progress | None = None,
) -> Any:
    """`int8_gemm`, awaitable, with `progress` and cancelling as in `matmul_async`."""
    return await run_prepared_async(*_decide(a, b, zero_point_a, zero_point_b, requantize, out, device), progress)


@dataclass(slots=True)
class PanelledInt8(PanelledProduct):
    """A call whose operands pass the binding limit of a GPU. Every panel gets the whole block, and where it begins in it."""

    def _make(self, device: Device, problem: Problem, panel: Panel) -> Int8Operation:
        return Int8Operation(device, problem, origin=(panel[-2][0], panel[-1][0]))

    def _bias_of(self, panel: Panel) -> HostOperand:  # noqa: ARG002  # the block is one for all
        assert self.bias is not None
        return _block_operand(self.bias)


@dataclass(slots=True)
class PreparedInt8(PreparedCall):
    """A call of `int8_gemm` that is decided. The request's bias is the block of int8_block.py."""

    panels: ClassVar[type[PanelledProduct]] = PanelledInt8

    keep_rows: bool = False
    block_words: int = 0

    def _cpu_call(self, device: Any, problem: Problem) -> CpuCall:
        call: CpuCall = device.gemm.prepare_int8(problem, block_words=self.block_words, keep_rows=self.keep_rows)
        return call

    def _bias(self, request: Request) -> Array | None:
        block: Array = request.bias
        return block

    def _cpu_bias(self, request: Request, call: CpuCall) -> Array | None:
        return np.frombuffer(transpose_block(request.bias.tobytes()), np.uint32) if call.swapped else self._bias(request)

    def _gpu_bias(self, request: Request) -> HostOperand:
        return _block_operand(request.bias)

    def _operation(self, device: Any, problem: Problem) -> Int8Operation:
        return Int8Operation(device, problem)


def _block_operand(block: Array) -> HostOperand:
    return HostOperand(as_bytes(block), Layout(INT32, 0, 1))


def _decide(
    a: Any, b: Any, zero_point_a: Any, zero_point_b: Any, requantize: Requantize | None, out: Any, device: Any
) -> tuple[PreparedCall, Any, Request]:
    request = Request(_OPERATION, a, b, out=out)
    type_a, type_b = _type_of("a", request.a), _type_of("b", request.b)
    m = matrix_shape(request.a.shape, left=True, transpose=False)[-2]
    n = matrix_shape(request.b.shape, left=False, transpose=False)[-1]
    block = _block(type_a, type_b, m, n, zero_point_a, zero_point_b, requantize)
    request.bias = np.frombuffer(block.data, np.uint32)
    prepared = remembered((*request.key(), block.form), lambda: _prepare(request, type_a, type_b, block))
    if out is not None:
        check_memory(request)
    return prepared, named_device(request, device), request


_blocks: dict[tuple[Any, ...], Block] = {}
_forgetting = Lock()
_BLOCKS_LIMIT = 256  # blocks that are remembered; the oldest goes first


def _block(
    type_a: ElementType, type_b: ElementType, m: int, n: int, zero_point_a: Any, zero_point_b: Any, requantize: Requantize | None
) -> Block:
    """The block, remembered where both zero points are plain integers."""
    plain = type(zero_point_a) is int and type(zero_point_b) is int and isinstance(requantize, Requantize | None)
    if not plain:
        return make_block(_OPERATION, type_a, type_b, m, n, zero_point_a, zero_point_b, requantize)
    key = (type_a.code, type_b.code, m, n, zero_point_a, zero_point_b, requantize)
    found = _blocks.get(key)
    if found is None:
        found = make_block(_OPERATION, type_a, type_b, m, n, zero_point_a, zero_point_b, requantize)
        with _forgetting:  # two threads must not drop the same oldest block
            if len(_blocks) >= _BLOCKS_LIMIT:
                del _blocks[next(iter(_blocks))]
            _blocks[key] = found
    return found


def _prepare(request: Request, type_a: ElementType, type_b: ElementType, block: Block) -> PreparedInt8:
    """Every check that needs no device and no address, and the decisions that follow from shapes and types."""
    a, b, out = request.a, request.b, request.out
    for name, operand in (("a", a), ("b", b), ("out", out)):
        check_prepacked(_OPERATION, name, operand)
    batch, m, n, k = matmul_shapes(
        _OPERATION, matrix_shape(a.shape, left=True, transpose=False), matrix_shape(b.shape, left=False, transpose=False)
    )
    drops_a, drops_b = a.ndim == 1, b.ndim == 1
    result_shape = (*batch, *(() if drops_a else (m,)), *(() if drops_b else (n,)))
    if out is not None:
        check_out(_OPERATION, out, result_shape, block.result, False, asked=True)
    return PreparedInt8(
        operation=_OPERATION, m=m, n=n, k=k, batch=batch, result_shape=result_shape, type_a=type_a, type_b=type_b, type_c=None,
        result_type=block.result, result_bits=False, alpha=1.0, beta=0.0, activation=Activation.NONE, transpose_a=False,
        transpose_b=False, mode="fast", has_bias=True,
        on_device=stays_on_device(a) or stays_on_device(b), drops_a=drops_a, drops_b=drops_b,
        flops=2 * m * n * k * prod(batch), batch_invariant=False, keep_rows=block.by_row, block_words=len(block.data) // 4,
    )  # fmt: skip


# By dtype, not by its name, which NumPy puts together anew each time.
_BY_DTYPE = {np.dtype(name): element for name, element in BYTE_TYPES.items()}


def _type_of(name: str, operand: Any) -> ElementType:
    dtype = operand.dtype
    found = _BY_DTYPE.get(dtype)
    if found is None:
        hint = "; products of floats are the work of matmul and gemm" if dtype.kind == "f" or dtype.name == "bfloat16" else ""
        raise TypeError(f"{_OPERATION}: {name} is {dtype}; taken are {' and '.join(BYTE_TYPES)}{hint}")
    return found
