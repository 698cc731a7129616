"""A call of the front door that is decided (prepare.py), run on a device: layouts for it, the operands handed over, the result.

Holds no checks of what the caller asked for and no choice of kernels; those are cpu/families.py and gpu/variants.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from . import arrays
from .arrays import Array, DeviceArray
from .cpu.gemm import CpuCall
from .cpu.packing import Packing
from .cut import PanelledProduct
from .dtypes import FLOAT32, FLOAT64, ElementType
from .epilogue import Activation
from .errors import UnsupportedError
from .gpu.operation import DeviceOperand, GemmOperation, HostOperand
from .gpu.pacing import Paced, Progress
from .gpu.steps import operand_bytes, result_elements
from .gpu.variants import Shape
from .prepacked import require_packing
from .problem import Layout, Problem, collapse_batch
from .report.runs import remember, remember_pending
from .request import Request, require_live

# What the CPU road copies first, for a, b, c and the result.
Copies = tuple[bool, bool, bool, bool]


def matrix_shape(shape: tuple[int, ...], *, left: bool, transpose: bool) -> tuple[int, ...]:
    """(..., rows, columns) of op(operand): 1-D promoted, the last two axes swapped by `transpose`."""
    if len(shape) == 1:
        return (1, *shape) if left else (*shape, 1)
    return (*shape[:-2], shape[-1], shape[-2]) if transpose else shape


def _matrix_strides(strides: tuple[int, ...], *, left: bool, transpose: bool) -> tuple[int, ...]:
    if len(strides) == 1:
        return (0, *strides) if left else (*strides, 0)
    return (*strides[:-2], strides[-1], strides[-2]) if transpose else strides


def _spread(shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Strides over `target` of an operand of `shape` that broadcasts to it."""
    missing = len(target) - len(shape)
    return (0,) * missing + tuple(
        0 if size == 1 and wanted != 1 else stride for size, stride, wanted in zip(shape, strides, target[missing:], strict=True)
    )


def _dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@dataclass(slots=True)
class PreparedCall:
    """What is decided about a call before any device is looked at. Element counts throughout.

    panels: what runs the call where an operand passes the binding limit.
    """

    panels: ClassVar[type[PanelledProduct]] = PanelledProduct

    operation: str
    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    result_shape: tuple[int, ...]
    type_a: ElementType
    type_b: ElementType
    type_c: ElementType | None
    result_type: ElementType
    result_bits: bool
    alpha: float
    beta: float
    activation: Activation
    transpose_a: bool
    transpose_b: bool
    mode: str
    has_bias: bool
    on_device: bool
    drops_a: bool
    drops_b: bool
    flops: int
    batch_invariant: bool
    packed_a: Packing | None = None
    packed_b: Packing | None = None
    _cpu: tuple[CpuCall, Copies] | None = None
    _gpu: dict[Any, Any] = field(default_factory=dict)

    @property
    def uses_float64(self) -> bool:
        return FLOAT64 in (self.type_a, self.type_b)

    @property
    def exact_obstacles(self) -> list[str]:
        """What an exact product lacks for a GPU, in words; empty for one that a GPU can do, and in the other modes."""
        if self.mode != "exact":
            return []
        from .gpu.capabilities import Capabilities
        from .gpu.variants import Request, exact_obstacles

        any_device = Capabilities("any", "any GPU")
        return exact_obstacles(
            Request(any_device, self.type_a, self.type_b, self.mode, True, self.alpha, self.beta, self.type_c, self.result_type)
        )

    @property
    def stays_on_cpu(self) -> bool:
        """Whether no GPU can compute it."""
        return self.uses_float64 or bool(self.exact_obstacles)

    @property
    def is_empty(self) -> bool:
        return 0 in self.result_shape

    # -- layouts ---------------------------------------------------------------------------------------------------------

    def problem(
        self, a: tuple[tuple[int, ...], int], b: tuple[tuple[int, ...], int], c: tuple[tuple[int, ...], int] | None,
        d: tuple[int, ...], shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], type_c: ElementType | None,
        type_d: ElementType,
    ) -> Problem:  # fmt: skip
        """The Problem over given element strides (and offsets) of the operands as the caller shaped them."""
        (strides_a, offset_a), (strides_b, offset_b) = a, b
        shape_a, shape_b, shape_c = shapes
        full_a = _spread(
            matrix_shape(shape_a, left=True, transpose=self.transpose_a),
            _matrix_strides(strides_a, left=True, transpose=self.transpose_a),
            (*self.batch, self.m, self.k),
        )
        full_b = _spread(
            matrix_shape(shape_b, left=False, transpose=self.transpose_b),
            _matrix_strides(strides_b, left=False, transpose=self.transpose_b),
            (*self.batch, self.k, self.n),
        )
        full_d = self._as_matrix(d)
        full_c = self._as_matrix(_spread(shape_c, c[0], self.result_shape)) if c is not None else full_d
        batch, strides = collapse_batch(self.batch, (full_a[:-2], full_b[:-2], full_c[:-2], full_d[:-2]))
        layout_c = None
        if c is not None:
            assert type_c is not None
            layout_c = Layout(type_c, full_c[-2], full_c[-1], strides[2], c[1])
        return Problem(
            self.m, self.n, self.k,
            Layout(self.type_a, full_a[-2], full_a[-1], strides[0], offset_a),
            Layout(self.type_b, full_b[-2], full_b[-1], strides[1], offset_b),
            Layout(type_d, full_d[-2], full_d[-1], strides[3]),
            layout_c, batch, self.alpha, self.beta,
        )  # fmt: skip

    def _as_matrix(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        """Strides of the result as the caller sees it -> strides over (batch, m, n)."""
        depth = len(self.batch)
        inner = list(strides[depth:])
        row = 0 if self.drops_a else inner.pop(0)
        column = 0 if self.drops_b else inner.pop(0)
        return (*strides[:depth], row, column)

    def result_array(self) -> Array:
        return arrays.unwritten(self.operation, self.result_shape, arrays.numpy_dtype(self.result_type, bits=self.result_bits))

    # -- the CPU road ----------------------------------------------------------------------------------------------------

    def run_on_cpu(self, device: Any, request: Request) -> Any:
        """Compute now. Returns the caller's result."""
        out = request.out
        a, b, c = _host(request.a), _host(request.b), _host(request.c)
        if self.beta == 0.0:
            c = None
        target = _host(out)
        result = self.result_array() if target is None else target
        if not self.is_empty:
            if self._cpu is None:
                self._cpu = self._plan_cpu(device, a, b, c, result)
            call, (copy_a, copy_b, copy_c, copy_d) = self._cpu
            if copy_a:
                a = arrays.compact(a)
            if copy_b:
                b = arrays.compact(b)
            if copy_c:
                c = arrays.compact(c)
            written = self.result_array() if copy_d else result
            bias = self._cpu_bias(request, call)
            started = perf_counter()
            threads = call(
                arrays.address(a), arrays.address(b), 0 if c is None else arrays.address(c), arrays.address(written),
                0 if bias is None else arrays.address(bias),
            )  # fmt: skip
            remember(device, call.variant, self.flops, perf_counter() - started, None, threads)
            if copy_d:
                result[...] = written
        if out is not None:
            return out
        if self.on_device:
            return DeviceArray(device, self.result_shape, self.result_type, bits=self.result_bits, array=result)
        return result if self.result_shape else result[()]

    def _plan_cpu(self, device: Any, a: Array, b: Array, c: Array | None, d: Array) -> tuple[CpuCall, Copies]:
        zero_copy = device.gemm.zero_copy

        def needs_copy(array: Array | None) -> bool:
            return array is not None and (not arrays.expressible(array) or (not zero_copy and arrays.is_sparse(array)))

        def strides(array: Array, copied: bool) -> tuple[int, ...]:
            return _dense_strides(array.shape) if copied else arrays.element_strides(array)

        copies = (needs_copy(a), needs_copy(b), needs_copy(c), needs_copy(d) or not arrays.strides_are_nested(d))
        problem = self.problem(
            (strides(a, copies[0]), 0),
            (strides(b, copies[1]), 0),
            None if c is None else (strides(c, copies[2]), 0),
            strides(d, copies[3]),
            (a.shape, b.shape, () if c is None else c.shape),
            self.type_c,
            self.result_type,
        )
        return self._cpu_call(device, problem), copies

    def _cpu_call(self, device: Any, problem: Problem) -> CpuCall:
        packed = {"a": self.packed_a, "b": self.packed_b}
        require_packing(self.operation, packed, problem.accumulator, exact=self.mode == "exact")
        if self.packed_a is not None:
            problem = replace(problem, a=replace(problem.a, type=self.packed_a.element))
        if self.packed_b is not None:
            problem = replace(problem, b=replace(problem.b, type=self.packed_b.element))
        call: CpuCall = device.gemm.prepare(
            problem,
            activation=self.activation,
            has_bias=self.has_bias,
            deterministic=self.mode == "deterministic",
            exact=self.mode == "exact",
            packed_a=self.packed_a,
            packed_b=self.packed_b,
        )
        return call

    def _bias(self, request: Request) -> Array | None:
        """What a kernel finds at the address of the bias."""
        return _float32_bias(request.bias)

    def _cpu_bias(self, request: Request, call: CpuCall) -> Array | None:  # noqa: ARG002  # a block of integers is transposed
        return self._bias(request)

    # -- the GPU road ----------------------------------------------------------------------------------------------------

    def check_gpu(self, device: Any, request: Request) -> None:
        """What a GPU cannot do, said before anything is recorded."""
        if self.uses_float64:
            raise UnsupportedError(
                f"{self.operation}: float64 is computed on the CPU only (a is {self.type_a.name}, b is {self.type_b.name}, the "
                f'device is {device.kind}); leave device=None, name device="cpu", or narrow the operands to float32'
            )
        if obstacles := self.exact_obstacles:
            raise UnsupportedError(
                f'{self.operation}: mode "exact" on {device.kind} needs {" and ".join(obstacles)}; the CPU takes every type '
                '(leave device=None, or name device="cpu")'
            )
        if self.result_type is FLOAT64 and self.returns_device_array(request):
            raise UnsupportedError(f"{self.operation}: a float64 result cannot stay on {device.kind}; ask for float32")
        require_live(self.operation, device)

    def returns_device_array(self, request: Request) -> bool:
        return isinstance(request.out, DeviceArray) or (self.on_device and request.out is None)

    def start_on_gpu(
        self, device: Any, request: Request, *, paced: bool = False, progress: Progress | None = None
    ) -> tuple[Any, Callable[[], Any]]:
        """Submit. Returns what to wait for (None: nothing) and what then makes the caller's result.

        paced: a long product may leave pieces to be submitted while the pending is waited for, also where the result is a
        DeviceArray; `progress` is told the fraction that is done.
        """
        out = request.out
        if self.is_empty:
            return None, lambda: self._empty_result(device, request)
        operation, host = self._gpu_operation(device, request)
        started = perf_counter()
        if isinstance(operation, PanelledProduct):
            landing = arrays.unwritten(self.operation, self.result_shape, self._device_dtype())
            pending: Any = operation.start(device, landing.reshape(operation.sizes), progress)
            return pending, lambda: self._finish(device, request, "panels", landing, started, pending.gpu_seconds)
        a, b, c = (self._gpu_operand(each, problem_layout) for each, problem_layout in host)
        bias = self._gpu_bias(request)
        if self.returns_device_array(request):
            buffer, pending = operation.start(a, b, c, bias, paced=paced, progress=progress)
            unfinished = isinstance(pending, Paced)

            def keep() -> Any:
                run = remember_pending(device, operation.variant, self.flops, started, pending)
                if unfinished:
                    run.ended()
                left = None if unfinished else pending
                if out is not None:
                    out.release()
                    out._buffer, out._pending, out._run = buffer, left, run
                    return out
                return DeviceArray(
                    device, self.result_shape, self.result_type, bits=self.result_bits, buffer=buffer, pending=left, run=run
                )

            return (pending, keep) if unfinished else (None, keep)
        dtype = self._device_dtype()
        direct = out is not None and out.dtype == dtype and out.flags.c_contiguous and out.flags.aligned
        landing = out if direct else arrays.unwritten(self.operation, self.result_shape, dtype)
        _, pending = operation.start(a, b, c, bias, read_into=arrays.as_bytes(landing), paced=True, progress=progress)
        return pending, lambda: self._finish(device, request, operation.variant, landing, started, pending.gpu_seconds)

    def _device_dtype(self) -> Any:
        return arrays.numpy_dtype(FLOAT32 if self.result_type is FLOAT64 else self.result_type, bits=self.result_bits)

    def _finish(
        self, device: Any, request: Request, variant: str, landing: Array, started: float, gpu_seconds: float | None
    ) -> Any:
        """What the caller gets, once `landing` has arrived."""
        seconds = perf_counter() - started
        remember(device, variant, self.flops, seconds, gpu_seconds)
        device.pace.note(self.flops, seconds if gpu_seconds is None else gpu_seconds)
        out = request.out
        if landing is out:
            return out
        if out is not None:
            out[...] = landing
            return out
        result = landing.astype(np.float64) if self.result_type is FLOAT64 else landing
        return result if self.result_shape else result[()]

    def gpu_shaders(self, device: Any, request: Request) -> Any:
        """The shaders that the call needs, for compiling them ahead; empty where nothing runs."""
        if self.is_empty:
            return ()
        operation = self._gpu_operation(device, request)[0]
        return operation.first_operation(device).shaders if isinstance(operation, PanelledProduct) else operation.shaders

    def _empty_result(self, device: Any, request: Request) -> Any:
        if request.out is not None:
            return request.out
        if self.on_device:
            return DeviceArray(device, self.result_shape, self.result_type, bits=self.result_bits, buffer=device.create_buffer(4))
        return self.result_array()

    def _gpu_operation(self, device: Any, request: Request) -> tuple[Any, list[tuple[Any, Layout | None]]]:
        """The planned operation (kept per device), and each operand with its layout on that device."""
        c = None if self.beta == 0.0 else request.c
        if isinstance(c, np.ndarray) and self.type_c is FLOAT64:
            c = arrays.compact(c).astype(np.float32)
        found = self._gpu.get(device)
        if found is None:
            views = [_device_view(each) for each in (request.a, request.b, c)]
            (strides_a, offset_a, shape_a), (strides_b, offset_b, shape_b), (strides_c, offset_c, shape_c) = views
            device_type = FLOAT32 if self.result_type is FLOAT64 else self.result_type
            problem = self.problem(
                (strides_a, offset_a), (strides_b, offset_b), None if c is None else (strides_c, offset_c),
                _dense_strides(self.result_shape), (shape_a, shape_b, shape_c),
                FLOAT32 if self.type_c is FLOAT64 else self.type_c, device_type,
            )  # fmt: skip
            if self._passes_binding(device, problem) and not self._touches_device(request):
                return self._panelled(request, c, Shape.of(problem, batch_invariant=self.batch_invariant)), []
            self._gpu.clear()
            found = self._gpu[device] = (self._operation(device, problem), problem)
        operation, problem = found
        return operation, [(request.a, problem.a), (request.b, problem.b), (c, problem.c)]

    def _operation(self, device: Any, problem: Problem) -> Any:
        return GemmOperation(device, problem, self.activation, self.has_bias, self.mode, batch_invariant=self.batch_invariant)

    def _touches_device(self, request: Request) -> bool:
        return any(isinstance(each, DeviceArray) for each in (request.a, request.b, request.c, request.out))

    def _passes_binding(self, device: Any, problem: Problem) -> bool:
        """Whether an operand (where it is read) or the float32 result is larger than one binding of the device."""
        shapes = [(problem.a, self.m, self.k), (problem.b, self.k, self.n)] if problem.reads_operands else []
        if problem.c is not None:
            shapes.append((problem.c, self.m, self.n))
        spans = [operand_bytes(layout, rows, columns, problem.batch) for layout, rows, columns in shapes]
        most: int = device.capabilities.limits.largest_bound
        return max([*spans, 4 * result_elements(problem)]) > most

    def _panelled(self, request: Request, c: Array | None, whole: Shape) -> PanelledProduct:
        def matrix(array: Array, *, left: bool, transpose: bool) -> Array:
            if array.ndim == 1:
                return array[None] if left else array[:, None]
            return array.swapaxes(-1, -2) if transpose else array

        if c is not None:
            c = c[(None,) * (len(self.result_shape) - c.ndim)]
            c = c[..., None] if self.drops_b else c
            c = c[..., None, :] if self.drops_a else c
        type_c = FLOAT32 if self.type_c in (FLOAT64, None) else self.type_c
        assert type_c is not None
        return self.panels(
            self.operation,
            matrix(request.a, left=True, transpose=self.transpose_a),
            matrix(request.b, left=False, transpose=self.transpose_b),
            c,
            self._bias(request),
            (self.type_a, self.type_b, type_c),
            FLOAT32 if self.result_type is FLOAT64 else self.result_type,
            self.batch,
            self.alpha,
            self.beta,
            self.activation,
            self.mode,
            whole,
        )

    def _gpu_bias(self, request: Request) -> Any:
        bias = self._bias(request)
        return None if bias is None else HostOperand(arrays.as_bytes(bias), Layout(FLOAT32, 0, 1))

    def _gpu_operand(self, operand: Any, layout: Layout | None) -> Any:
        if operand is None or layout is None:
            return None
        if isinstance(operand, DeviceArray):
            return DeviceOperand(operand._live(), layout)
        data, _ = arrays.spanned_bytes(_uploadable(operand))
        return HostOperand(data, layout)


def _uploadable(array: Array) -> Array:
    return array if arrays.expressible(array) and not arrays.is_sparse(array) else arrays.compact(array)


def _device_view(operand: Any) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Element strides, index of the first element and shape of an operand as it will lie in a device buffer."""
    if operand is None:
        return (), 0, ()
    if isinstance(operand, DeviceArray):
        return _dense_strides(operand.shape), 0, operand.shape
    array = _uploadable(operand)
    return arrays.element_strides(array), -arrays.span(array)[0], array.shape


def _float32_bias(bias: Array | None) -> Array | None:
    if bias is None:
        return None
    if bias.dtype == np.float32 and bias.flags.c_contiguous:
        return bias
    element = arrays.element_type("gemm", "bias", bias.dtype)
    return np.ascontiguousarray(arrays.widen(arrays.compact(bias), element, np.float32))


def _host(operand: Any) -> Any:
    """The NumPy array of an operand on the CPU."""
    return operand.host() if isinstance(operand, DeviceArray) else operand
