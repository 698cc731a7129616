"""GemmOperation: a whole product, from operands on the host or the device to a dense result. Plans once, runs often.

Knows nothing of arrays: an operand is bytes (or a device buffer) and a Layout. One call of `start` is one crossing into the
device, but for products so long that they are submitted piece by piece. Device buffers come from the pool and go back to it as
soon as their work is submitted, which the order of the queue makes safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..configuration import knob
from ..dtypes import FLOAT32, FLOAT64
from ..epilogue import Activation
from ..errors import ShapeError, UnsupportedError
from ..problem import Layout, Problem, require_in_buffer
from .device import Buffer, Device, Dispatch, Finished, Job, Pending, Together, as_bytes
from .pacing import Paced, Progress, submissions
from .planner import Plan, plan_operation
from .shaders import ShaderKey
from .split import choose_ranges
from .steps import dense_layout, operand_bytes, require_binding, require_buffer, result_elements
from .variants import Request, Shape, choose_variant


@dataclass(slots=True)
class HostOperand:
    """C-contiguous bytes on the host; `layout` counts elements inside them."""

    data: Any
    layout: Layout


@dataclass(slots=True)
class DeviceOperand:
    """A device buffer; `layout` counts elements inside it. Read only, never changed."""

    buffer: Buffer
    layout: Layout


Operand = HostOperand | DeviceOperand


class GemmOperation:
    """D = act(alpha * A @ B + beta * C + bias) of one problem on one device.

    problem: any strides, any mix of float32, float16, bfloat16; of `problem.d` only the type counts.
    activation, has_bias: the epilogue. mode, variant, batch_invariant: as in Gemm. whole: the shape of the product of which this
    problem is a piece; kernel and ranges are chosen by it, so that a piece has the bits that the whole would have.

    An operand past a binding is bound window by window, which changes no bit. Raises UnsupportedError (float64, an operand past
    what one buffer holds, a variant that the device lacks) and ValueError (an unknown mode or variant).
    """

    # Whom messages name.
    name: ClassVar[str] = "gemm"

    def __init__(
        self,
        device: Device,
        problem: Problem,
        activation: Activation = Activation.NONE,
        has_bias: bool = False,
        mode: str = "fast",
        variant: str | None = None,
        batch_invariant: bool = False,
        whole: Shape | None = None,
    ) -> None:
        self.device = device
        self.problem = problem
        self.activation = activation
        self.has_bias = has_bias
        for name, layout in (("a", problem.a), ("b", problem.b), ("c", problem.c), ("the result", problem.d)):
            if layout is not None and layout.type is FLOAT64:
                raise UnsupportedError(f"gemm: {name} is float64, which runs on the CPU only: WGSL has no such type")
        type_c = None if problem.c is None else problem.c.type
        shape = whole or Shape.of(problem, batch_invariant=batch_invariant)
        request = Request(
            device.capabilities,
            problem.a.type,
            problem.b.type,
            mode,
            alpha=problem.alpha,
            beta=problem.beta,
            type_c=type_c,
            type_d=problem.d.type,
            shape=shape,
        )
        self.row = choose_variant(request, variant)
        self.ranges = choose_ranges(shape, self.row)
        self._plans: dict[tuple[int, bool, int | None], Plan] = {}
        self._require_buffers(FLOAT32.size)

    def _require_buffers(self, size: int) -> None:
        """Every operand, and the result of `size` bytes an element, must fit one buffer."""
        problem, limits = self.problem, self.device.capabilities.limits
        if problem.is_empty:
            return
        if problem.reads_operands:
            require_buffer(self.name, "a", operand_bytes(problem.a, problem.m, problem.k, problem.batch), limits)
            require_buffer(self.name, "b", operand_bytes(problem.b, problem.k, problem.n, problem.batch), limits)
        if problem.c is not None and problem.beta != 0.0:
            require_buffer(self.name, "c", operand_bytes(problem.c, problem.m, problem.n, problem.batch), limits)
        require_buffer(self.name, "result", size * result_elements(problem), limits)

    @property
    def variant(self) -> str:
        """The name of the row of gpu/variants.py that runs."""
        return self.row.name

    @property
    def shaders(self) -> tuple[ShaderKey, ...]:
        """The pipelines of the operation, for `device.missing` and `device.prepare`; with C, those that gather it included."""
        return self._plan(0, True, None).shaders

    def start(
        self,
        a: Operand,
        b: Operand,
        c: Operand | None = None,
        bias: Operand | None = None,
        *,
        read_into: Any = None,
        paced: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Buffer | None, Pending]:
        """Upload, compute, and start to read back into `read_into` (writable, C-contiguous, exactly the result's bytes).

        Operands must have the layouts of the problem; `c` is needed where beta is not zero. The bias is float32 with unit
        stride; its layout's offset counts. Returns (None, pending) with `read_into`, else (the result's buffer, pending): dense
        [batch..., m, n] of the result's type, ready for the next operation without waiting.

        A product longer than the knob `submission_ms` goes to the device in several submissions: all at once, or, `paced`, each
        when the one before has ended, while the pending is waited for (the result is then ready only after that); `progress` is
        told the fraction that is done.
        """
        with self.device.lock:
            return self._start(a, b, c, bias, read_into, paced, progress)

    def _start(
        self,
        a: Operand,
        b: Operand,
        c: Operand | None,
        bias: Operand | None,
        read_into: Any,
        paced: bool,
        progress: Progress | None,
    ) -> tuple[Buffer | None, Pending]:
        problem, device = self.problem, self.device
        adds = problem.c is not None and problem.beta != 0.0
        self._check("a", a, problem.a)
        self._check("b", b, problem.b)
        if adds:
            if c is None:
                raise ShapeError("gemm: beta is not zero and c is missing")
            self._check("c", c, problem.c)
        if self.has_bias != (bias is not None):
            raise ShapeError(f"{self.name}: planned {'with' if self.has_bias else 'without'} a bias")
        if bias is not None:
            self._check_bias(bias)
        if read_into is not None:
            self._check_destination(read_into)
        if problem.is_empty:
            return (None if read_into is not None else device.create_buffer(0)), Finished()
        in_place = adds and isinstance(c, HostOperand) and self._is_dense_sum(c)
        most_flops = self._most_flops()
        plan = self._plan(0 if bias is None else bias.layout.offset, not in_place, most_flops)

        upload = Job()
        names: dict[str, Buffer] = {"nothing": device.nothing}
        mine: list[Buffer] = []

        def create(nbytes: int) -> Buffer:
            buffer = device.create_buffer(nbytes)
            mine.append(buffer)
            return buffer

        result: Buffer | None = None
        kept = False
        try:
            names["sum"] = create(plan.sum_bytes)
            result = names["sum"]
            if plan.scratch_bytes:
                names["scratch"] = create(plan.scratch_bytes)
            for name, nbytes in plan.panels.items():
                names[name] = create(nbytes)
            if plan.result_bytes:
                result = names["result"] = create(plan.result_bytes)
            given = {"a": a, "b": b} if problem.reads_operands else {}
            if adds and c is not None and not in_place:
                given["c"] = c
            if bias is not None:
                given["bias"] = bias
            uploaded: dict[int, Buffer] = {}
            for name, operand in given.items():
                names[name] = self._bring(name, operand, upload, create, uploaded)
            if in_place and isinstance(c, HostOperand):
                upload.uploads.append((names["sum"], c.data))
            groups = submissions(plan.steps, most_flops)
            jobs = [
                Job(
                    dispatches=[
                        Dispatch(
                            step.shader, tuple(names[each] for each in step.buffers), step.parameters, step.workgroups, step.windows
                        )
                        for step in group
                    ],
                    timed=paced and len(groups) > 1,
                )
                for group in groups
            ]
            jobs[0].uploads = upload.uploads
            if read_into is not None:
                jobs[-1].reads.append((result, 0, plan.result_bytes or plan.sum_bytes, read_into))
            if paced and len(jobs) > 1:
                held = [buffer for buffer in mine if buffer is not result or read_into is not None]
                flops = [sum(step.flops for step in group) for group in groups]
                pending: Pending = Paced(device, [partial(device.execute, job) for job in jobs], flops, held, progress)
                kept = True
            else:
                pendings = [device.execute(job) for job in jobs]
                pending = pendings[0] if len(pendings) == 1 else Together(pendings)
        except BaseException:
            result = None
            raise
        finally:
            # Last in, first out: the next call of this shape finds each buffer in the same part, and so its bind groups.
            for buffer in reversed(mine):
                if not kept and (buffer is not result or read_into is not None):
                    device.release_buffer(buffer)
        return (None if read_into is not None else result), pending

    def _bring(self, name: str, operand: Operand, job: Job, create: Any, uploaded: dict[int, Buffer]) -> Buffer:
        if isinstance(operand, DeviceOperand):
            if operand.buffer.device is not self.device:
                raise ShapeError(f"{self.name}: operand {name} lies on another device")
            self._require_bound(name, operand.buffer.nbytes)
            return operand.buffer
        found = uploaded.get(id(operand.data))
        if found is None:
            nbytes = as_bytes(operand.data).nbytes
            self._require_bound(name, nbytes)
            found = uploaded[id(operand.data)] = create(nbytes)
            if nbytes:
                job.uploads.append((found, operand.data))
        return found

    def _require_bound(self, name: str, nbytes: int) -> None:
        """A buffer of which the operand is a small part is bound whole."""
        problem, limits = self.problem, self.device.capabilities.limits
        layout, rows, columns = {
            "a": (problem.a, problem.m, problem.k),
            "b": (problem.b, problem.k, problem.n),
            "c": (problem.c, problem.m, problem.n),
            "bias": (Layout(FLOAT32, 0, 1), 1, problem.n),
        }[name]
        assert layout is not None
        batch = problem.batch if layout.batch_strides else ()
        if operand_bytes(layout, rows, columns, batch) <= limits.max_storage_buffer_binding_size:
            require_binding(self.name, name, nbytes, limits)

    def _most_flops(self) -> int | None:
        """The work of one submission; None where the whole product is less."""
        problem = self.problem
        most = self.device.pace.flops_in(knob("submission_ms"))
        return most if 2 * problem.m * problem.n * problem.k * problem.products > most else None

    def _plan(self, bias_offset: int, gather_c: bool, most_flops: int | None) -> Plan:
        key = (bias_offset, gather_c, most_flops)
        if key not in self._plans:
            self._plans[key] = plan_operation(
                self.problem,
                self.row,
                self.device.capabilities.limits,
                ranges=self.ranges,
                activation=self.activation,
                has_bias=self.has_bias,
                bias_offset=bias_offset,
                gather_c=gather_c,
                most_flops=most_flops,
            )
        return self._plans[key]

    def _check(self, name: str, operand: Operand, layout: Layout | None) -> None:
        if layout is None or operand.layout != layout:
            raise ShapeError(f"{self.name}: operand {name} has layout {operand.layout}, the operation was made for {layout}")
        problem = self.problem
        rows, columns = {"a": (problem.m, problem.k), "b": (problem.k, problem.n), "c": (problem.m, problem.n)}[name]
        require_in_buffer(self.name, name, layout.extent(rows, columns, problem.batch), _operand_bytes(operand) // layout.type.size)

    def _check_bias(self, bias: Operand) -> None:
        if bias.layout.type is not FLOAT32:
            raise ShapeError(f"{self.name}: the bias must be float32 on the device, not {bias.layout.type}")
        extent = (bias.layout.offset, bias.layout.offset + self.problem.n)
        require_in_buffer(self.name, "bias", extent, _operand_bytes(bias) // FLOAT32.size)

    def _check_destination(self, destination: Any) -> None:
        view = memoryview(destination)
        expected = result_elements(self.problem) * self.problem.d.type.size
        if view.readonly or not view.c_contiguous or view.nbytes != expected:
            raise ShapeError(
                f"{self.name}: the result needs {expected} writable contiguous bytes, "
                f"not {view.nbytes}{' read-only' if view.readonly else ''}{'' if view.c_contiguous else ' scattered'}"
            )

    def _is_dense_sum(self, operand: HostOperand) -> bool:
        problem = self.problem
        dense = dense_layout(problem.m, problem.n, problem.batch)
        return operand.layout == dense and as_bytes(operand.data).nbytes == 4 * result_elements(problem)


def _operand_bytes(operand: Operand) -> int:
    return operand.buffer.nbytes if isinstance(operand, DeviceOperand) else as_bytes(operand.data).nbytes
