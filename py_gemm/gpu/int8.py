"""Int8Gemm and Int8GemmSkinny: record integer products into a caller's encoder. Submit nothing, wait for nothing.

    C[b] = requantize((op(A[b]) - zero point) @ (op(B[b]) - zero point)),  b in 0..batch-1

A and B: int8 or uint8 in any mix, four to a word of the device, from any byte. C: int32 sums that wrap modulo 2^32, or,
requantized, int8 or uint8 in packed words. All sizes, strides and offsets count elements. Everything is checked before anything
is recorded.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

from ..dtypes import BYTE_TYPES, INT32, ElementType
from ..errors import AliasError, ShapeError
from ..int8_block import Block, make_block
from ..problem import Problem, dense_problem, require_in_buffer
from ..requantize import Requantize
from .device import Buffer, Device, Dispatch
from .int8_plan import plan_int8, require_one_int8_grid
from .int8_variants import FEW_ROWS, SKINNY_VARIANTS, TILED_VARIANTS, Int8Request, Int8Variant, choose_int8_variant
from .shaders import ShaderKey
from .steps import Step, require_binding

# Plans kept by the arguments of `encode`.
_PLANS = 256


class Int8Gemm:
    """The portable kernel: any sizes, every storage of A and B.

    dtype_a, dtype_b: "int8" or "uint8". variant: a row of gpu/int8_variants.py by name. Raises ValueError for unknown names
    (listing the known), UnsupportedError for a row that the device lacks.
    """

    _table = TILED_VARIANTS
    _request = (FEW_ROWS + 1, False)

    def __init__(
        self, device: Device, dtype_a: str | ElementType = "int8", dtype_b: str | ElementType = "int8", variant: str | None = None
    ) -> None:
        self.device = device
        self.type_a, self.type_b = _byte_type("dtype_a", dtype_a), _byte_type("dtype_b", dtype_b)
        m, by_rows = self._request
        self.row: Int8Variant = choose_int8_variant(Int8Request(device.capabilities, m, by_rows), variant, self._table)
        self._plans: OrderedDict[tuple[Any, ...], tuple[Problem, list[Step], int]] = OrderedDict()
        self._blocks: dict[bytes, Buffer] = {}
        self._made: OrderedDict[tuple[Any, ...], Block] = OrderedDict()
        self._scratch: Buffer | None = None
        self._outgrown: list[Buffer] = []

    @property
    def variant(self) -> str:
        """The name of the row that runs."""
        return self.row.name

    def encode(
        self,
        encoder: Any,
        a: Any,
        b: Any,
        c: Any,
        m: int,
        n: int,
        k: int,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        zero_point_a: Any = 0,
        zero_point_b: Any = 0,
        requantize: Requantize | None = None,
        batch: int = 1,
        lda: int | None = None,
        ldb: int | None = None,
        ldc: int | None = None,
        stride_a: int | None = None,
        stride_b: int | None = None,
        stride_c: int | None = None,
        offset_a: int = 0,
        offset_b: int = 0,
        offset_c: int = 0,
    ) -> None:
        """Record one product into `encoder`, a raw GPUCommandEncoder of this device.

        a, b, c: Buffers, or raw GPUBuffers of this device with usage STORAGE. zero_point_a: an integer in the range of A's type, or
        (m, 1) of them; zero_point_b: an integer, (n,) or (1, n). Leading dimensions default to the length of a stored row, batch
        strides to the dense size; stride_a = 0 or stride_b = 0 shares one operand. Elements of C's buffer outside the product are
        not touched, not even in words that the product shares with them.

        Zero points and requantization go into a small buffer, made when they are first used and kept until `release_bindings`; so
        are int32 sums, where a product of k > 32,768 is requantized. Buffers must not be released before the encoder is submitted.

        Raises ShapeError (sizes, strides, ranges, a grid past the device's limit), ValueError (zero points), AliasError (C's
        buffer is also an input), UnsupportedError (an operand larger than a binding).
        """
        device = self.device
        device.require_alive()
        result = INT32 if requantize is None else requantize.type
        key = (
            m, n, k, transpose_a, transpose_b, result, batch, lda, ldb, ldc,
            stride_a, stride_b, stride_c, offset_a, offset_b, offset_c,
        )  # fmt: skip
        try:
            found = self._plans[key]
        except (KeyError, TypeError):
            found = None
        if found is None:
            problem = dense_problem(
                "encode", m, n, k, type_in=self.type_a, transpose_a=transpose_a, transpose_b=transpose_b, batch=batch,
                lda=lda, ldb=ldb, ldc=ldc, stride_a=stride_a, stride_b=stride_b, stride_c=stride_c,
                offset_a=offset_a, offset_b=offset_b, offset_c=offset_c,
            )  # fmt: skip
            problem = replace(problem, b=replace(problem.b, type=self.type_b), d=replace(problem.d, type=result))
            self._check_shape(problem)
        else:
            problem = found[0]
        block = self._block(m, n, zero_point_a, zero_point_b, requantize)
        buffers = {"a": device.adopt(a), "b": device.adopt(b), "c": device.adopt(c)}
        self._check_buffers(problem, buffers)
        if found is None:
            limits = device.capabilities.limits
            planned = ([], 0) if problem.is_empty else plan_int8(problem, self.row, limits, target=problem.d)
            found = self._plans[key] = problem, *planned
            if len(self._plans) > _PLANS:
                self._plans.popitem(last=False)
        _, steps, scratch = found
        if not steps:
            return
        with device.lock:
            buffers |= {"bias": self._on_device(block), "sum": buffers["c"], "nothing": device.nothing}
            if scratch:
                buffers["scratch"] = self._scratch_of(scratch)
            device.record(
                encoder,
                tuple(
                    Dispatch(step.shader, tuple(buffers[name] for name in step.buffers), step.parameters, step.workgroups)
                    for step in steps
                ),
            )

    @property
    def shaders(self) -> tuple[ShaderKey, ...]:
        """What `device.prepare` compiles ahead: for int32 results, for requantized ones, and for those of a deep k."""
        return tuple(ShaderKey(name, ()) for name in (f"{self.row.kernel}_sum", f"{self.row.kernel}_bytes", "int8_finish"))

    def release_bindings(self) -> None:
        """Drop the cached bind groups (at most 64 a pipeline), with them the hold on their buffers, and the buffers of zero points
        and requantizations: everything recorded must have been submitted."""
        for key in self.shaders:
            self.device.release_bindings(key)
        self._blocks.clear()
        self._outgrown.clear()
        self._scratch = None

    def _check_shape(self, problem: Problem) -> None:
        require_one_int8_grid("encode", problem, self.row, self.device.capabilities.limits)

    def _scratch_of(self, nbytes: int) -> Buffer:
        """Sums of a deep k on their way to bytes. A larger one takes the place of a smaller; the encoders of before keep theirs."""
        if self._scratch is None or self._scratch.nbytes < nbytes:
            if self._scratch is not None:
                self._outgrown.append(self._scratch)
            self._scratch = self.device.create_buffer(nbytes)
        return self._scratch

    def _block(self, m: int, n: int, zero_point_a: Any, zero_point_b: Any, requantize: Requantize | None) -> Block:
        """The block, remembered where the zero points are plain integers."""
        plain = type(zero_point_a) is int and type(zero_point_b) is int
        key = (m, n, zero_point_a, zero_point_b, requantize) if plain else None
        found = self._made.get(key) if key is not None else None
        if found is None:
            found = make_block("encode", self.type_a, self.type_b, m, n, zero_point_a, zero_point_b, requantize)
            if key is not None:
                self._made[key] = found
                if len(self._made) > _PLANS:
                    self._made.popitem(last=False)
        return found

    def _on_device(self, block: Block) -> Buffer:
        """The block's buffer: found by content and never overwritten, so that recording before a later submission is safe."""
        buffer = self._blocks.get(block.data)
        if buffer is None:
            buffer = self._blocks[block.data] = self.device.create_buffer(block.data)
        return buffer

    def _check_buffers(self, problem: Problem, buffers: dict[str, Buffer]) -> None:
        limits = self.device.capabilities.limits
        layouts = {
            "a": (problem.a, problem.m, problem.k),
            "b": (problem.b, problem.k, problem.n),
            "c": (problem.d, problem.m, problem.n),
        }
        for name, buffer in buffers.items():
            layout, rows, columns = layouts[name]
            require_in_buffer("encode", name, layout.extent(rows, columns, problem.batch), buffer.nbytes // layout.type.size)
            require_binding("encode", name, buffer.nbytes, limits)
        for name in ("a", "b"):
            if problem.k and buffers[name].number == buffers["c"].number:
                raise AliasError(
                    f"encode: c and {name} are the same device buffer; WebGPU lets no dispatch write a buffer that it also binds "
                    "for reading, not even at another offset"
                )


class Int8GemmSkinny(Int8Gemm):
    """The kernel for few rows: m at most 16, B not transposed (stored K x N). ShapeError for anything else; else as Int8Gemm."""

    _table = SKINNY_VARIANTS
    _request = (1, True)

    def _check_shape(self, problem: Problem) -> None:
        if problem.m > FEW_ROWS:
            raise ShapeError(f"encode: m is {problem.m}; Int8GemmSkinny takes at most {FEW_ROWS} rows, Int8Gemm any number")
        if problem.b.column_stride != 1:
            raise ShapeError("encode: b is transposed; Int8GemmSkinny takes B stored K x N, Int8Gemm either way")
        super()._check_shape(problem)


def _byte_type(name: str, dtype: str | ElementType) -> ElementType:
    type_ = dtype if isinstance(dtype, ElementType) else BYTE_TYPES.get(str(dtype))
    if type_ is None or type_.name not in BYTE_TYPES:
        raise ValueError(f"unknown {name} {dtype!r}; an Int8Gemm takes int8 or uint8")
    return type_
