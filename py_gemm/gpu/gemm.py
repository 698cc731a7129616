"""Gemm: records products into a caller's encoder, on buffers that are already on the device. Submits nothing, waits for nothing.

    C[b] = act(alpha * op(A[b]) @ op(B[b]) + beta * C[b] + bias),  b in 0..batch-1

A and B: float32, float16 or bfloat16; C and the bias: float32. All sizes, strides and offsets count elements. Everything is
checked in exact integers before anything is recorded.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

from ..dtypes import FLOAT32, FLOAT_TYPES, ElementType
from ..epilogue import Activation, GemmEpilogue
from ..errors import AliasError, UnsupportedError
from ..problem import Problem, dense_problem, require_count, require_in_buffer, whole_number
from .device import Buffer, Device, Dispatch
from .planner import plan_product
from .shaders import ShaderKey
from .split import SCRATCH_BYTES, choose_ranges
from .steps import Step, require_binding, require_one_grid
from .variants import VARIANTS, Request, Shape, Variant, choose_variant

# Plans kept by the arguments of `encode`; a decoder step uses a few dozen shapes.
_PLANS = 256


class Gemm:
    """One kernel, chosen once from the device's capabilities.

    dtype: the type of A and B, by name or as an ElementType. mode: "fast", "deterministic" (the portable kernel) or "exact" (the
    correctly rounded result, of float16; alpha and beta must be float32 numbers, the activation None or "relu").
    allow_matrix_hardware: False leaves matrix hardware out of the choice. variant: a row of gpu/variants.py by name. Without it,
    products of few rows take a row of their own, whatever `variant` says of the others. batch_invariant: the bits of an element do
    not depend on how many rows or products are computed with it. Where k is split, or deep, unfinished sums lie in 16 MiB of
    scratch that belong to this object, made when they are first needed.

    Raises ValueError for an unknown dtype, mode or variant (listing the known), UnsupportedError for one that the device lacks.
    """

    def __init__(
        self,
        device: Device,
        dtype: Any = "float32",
        mode: str = "fast",
        allow_matrix_hardware: bool = True,
        variant: str | None = None,
        batch_invariant: bool = False,
    ) -> None:
        if not isinstance(device, Device):
            raise TypeError(f"a Gemm takes a GPU device, not {getattr(device, 'kind', device)!r}; on the CPU it is CpuGemm")
        self.device = device
        self.type = _element_type(dtype)
        self.batch_invariant = batch_invariant
        self._forced = variant
        self._request = Request(device.capabilities, self.type, self.type, mode, allow_matrix_hardware)
        self.row: Variant = choose_variant(self._request, variant)
        self._plans: OrderedDict[tuple[Any, ...], tuple[Problem, tuple[Step, ...]]] = OrderedDict()
        self._scratch: Buffer | None = None

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
        alpha: float = 1.0,
        beta: float = 0.0,
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
        epilogue: GemmEpilogue | None = None,
    ) -> None:
        """Record one product into `encoder`, a raw GPUCommandEncoder of this device.

        a, b, c and the epilogue's bias: Buffers, or raw GPUBuffers of this device with usage STORAGE. Leading dimensions default to
        the length of a stored row, batch strides to the dense size; stride_a = 0 or stride_b = 0 shares one operand. beta = 0 never
        reads C; alpha = 0 or k = 0 never reads A and B. Elements of C's buffer outside the product are not touched.
        Buffers must not be released before the encoder is submitted.

        Raises ShapeError (sizes, strides, ranges, a grid past the device's limit), AliasError (C's buffer is also an input),
        UnsupportedError (an operand larger than a binding; a forced variant that does not take this shape).
        The pipeline is compiled here, in the browser blocking, unless
        `device.prepare(gemm.shaders)` was waited for.
        """
        device = self.device
        device.require_alive()
        if type(m) is not int or type(n) is not int or type(k) is not int:
            m, n, k = (whole_number("encode", name, value) for name, value in (("m", m), ("n", n), ("k", k)))
        key = (
            m, n, k, transpose_a, transpose_b, alpha, beta, batch, lda, ldb, ldc,
            stride_a, stride_b, stride_c, offset_a, offset_b, offset_c,
            None if epilogue is None else (epilogue.bias is None, epilogue.bias_offset, epilogue.activation),
        )  # fmt: skip
        try:
            found = self._plans[key]
            self._plans.move_to_end(key)
        except (KeyError, TypeError):
            found = None
        problem = found[0] if found is not None else dense_problem(
            "encode", m, n, k, type_in=self.type, transpose_a=transpose_a, transpose_b=transpose_b,
            alpha=alpha, beta=beta, batch=batch, lda=lda, ldb=ldb, ldc=ldc,
            stride_a=stride_a, stride_b=stride_b, stride_c=stride_c,
            offset_a=offset_a, offset_b=offset_b, offset_c=offset_c,
        )  # fmt: skip
        row = self._row_of(problem) if found is None else self.row
        buffers = {"a": device.adopt(a), "b": device.adopt(b), "sum": device.adopt(c)}
        if epilogue is not None and epilogue.bias is not None:
            buffers["bias"] = device.adopt(epilogue.bias)
        self._check_buffers(problem, buffers, 0 if epilogue is None else epilogue.bias_offset)
        if found is None:
            found = self._plans[key] = problem, self._plan(problem, row, epilogue)
            if len(self._plans) > _PLANS:
                self._plans.popitem(last=False)
        steps = found[1]
        if not steps:
            return
        with device.lock:
            buffers["nothing"] = device.nothing
            if any("scratch" in step.buffers for step in steps):
                buffers["scratch"] = self._scratch_buffer()
            device.record(
                encoder,
                tuple(
                    Dispatch(step.shader, tuple(buffers[name] for name in step.buffers), step.parameters, step.workgroups)
                    for step in steps
                ),
            )

    @property
    def shaders(self) -> tuple[ShaderKey, ...]:
        """What `device.prepare` compiles ahead: the pipelines of every shape."""
        rows = [self.row] if self._forced else [row for row in VARIANTS if row is self.row or self._may_take(row)]
        keys = [ShaderKey(row.kernel, (self.type, self.type)) for row in rows]
        return (*keys, ShaderKey(self.row.ending, ()))

    def _may_take(self, row: Variant) -> bool:
        """Whether some shape takes this row instead."""
        return bool(row.shape_conditions) and all(condition.holds(self._request) for condition in row.conditions)

    def release_bindings(self) -> None:
        """Drop the cached bind groups (at most 64 a pipeline), and with them the hold on their buffers; the scratch too."""
        for key in self.shaders:
            self.device.release_bindings(key)
        if self._scratch is not None:
            self.device.release_buffer(self._scratch)
            self._scratch = None

    def _scratch_buffer(self) -> Buffer:
        if self._scratch is None:
            limits = self.device.capabilities.limits
            self._scratch = self.device.create_buffer(min(SCRATCH_BYTES, limits.max_storage_buffer_binding_size))
        return self._scratch

    def _row_of(self, problem: Problem) -> Variant:
        """The row that runs this product, whose grid the device must allow."""
        row = self.row
        if not problem.is_empty:
            shape = Shape.of(problem, batch_invariant=self.batch_invariant)
            row = choose_variant(replace(self._request, shape=shape), self._forced)
        require_one_grid("encode", problem, row, self.device.capabilities.limits)
        return row

    def _plan(self, problem: Problem, row: Variant, epilogue: GemmEpilogue | None) -> tuple[Step, ...]:
        activation = Activation.of(None if epilogue is None else epilogue.activation)
        if problem.is_empty:
            return ()
        steps, _, _ = plan_product(
            problem,
            problem.d,
            row,
            self.device.capabilities.limits,
            ranges=choose_ranges(Shape.of(problem, batch_invariant=self.batch_invariant), row),
            activation=activation,
            has_bias=epilogue is not None and epilogue.bias is not None,
            bias_offset=0 if epilogue is None else epilogue.bias_offset,
        )
        return tuple(steps)

    def _check_buffers(self, problem: Problem, buffers: dict[str, Buffer], bias_offset: int) -> None:
        limits = self.device.capabilities.limits
        require_count("encode", "bias_offset", bias_offset)
        extents = {
            "a": (problem.a.extent(problem.m, problem.k, problem.batch), problem.a.type.size),
            "b": (problem.b.extent(problem.k, problem.n, problem.batch), problem.b.type.size),
            "sum": (problem.d.extent(problem.m, problem.n, problem.batch), 4),
            "bias": ((bias_offset, bias_offset + problem.n), FLOAT32.size),
        }
        for name, buffer in buffers.items():
            shown = "c" if name == "sum" else name
            extent, size = extents[name]
            require_in_buffer("encode", shown, extent, buffer.nbytes // size)
            require_binding("encode", shown, buffer.nbytes, limits)
        target = buffers["sum"].number
        for name, buffer in buffers.items():
            read = name == "bias" or (name != "sum" and problem.reads_operands)
            if read and buffer.number == target:
                raise AliasError(
                    f"encode: c and {name} are the same device buffer; WebGPU lets no dispatch write a buffer that it also binds "
                    "for reading, not even at another offset"
                )


def _element_type(dtype: Any) -> ElementType:
    """Of a name, an ElementType, a NumPy dtype (`.name`) or a scalar type (`.__name__`), all without NumPy."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", getattr(dtype, "__name__", None))
    type_ = dtype if isinstance(dtype, ElementType) else FLOAT_TYPES.get(str(name))
    if type_ is None:
        raise ValueError(f"unknown dtype {dtype!r}; a Gemm takes float32, float16 or bfloat16")
    if type_.size > 4:
        raise UnsupportedError(f"{type_} runs on the CPU only: WGSL has no such type; a Gemm takes float32, float16 or bfloat16")
    return type_
