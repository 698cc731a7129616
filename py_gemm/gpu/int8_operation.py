"""Int8Operation: a whole integer product, from operands on the host or the device to a dense result. Plans once, runs often.

Knows nothing of arrays: an operand is bytes (or a device buffer) and a Layout. One call of `start` is one crossing into the device;
requantization is part of the one dispatch. Device buffers come from the pool and go back to it as soon as the job is submitted.
"""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..problem import Layout, Problem, require_in_buffer
from .device import Buffer, Device, Dispatch, Finished, Job, Pending, as_bytes
from .int8_plan import int8_shader, is_by_rows, plan_int8
from .int8_variants import Int8Request, choose_int8_variant
from .operation import DeviceOperand, HostOperand, Operand
from .planner import operand_bytes, require_binding, result_elements
from .shaders import ShaderKey


class Int8Operation:
    """D = (A - zero points) @ (B - zero points), requantized where D is int8 or uint8, of one problem on one device.

    problem: any strides, int8 and uint8 in any mix; D dense [batch..., m, n] of int32, int8 or uint8.

    Raises UnsupportedError (an operand past a binding, a variant that the device lacks) and ValueError (an unknown variant).
    """

    def __init__(self, device: Device, problem: Problem, variant: str | None = None) -> None:
        self.device = device
        self.problem = problem
        self.row = choose_int8_variant(Int8Request(device.capabilities, problem.m, is_by_rows(problem.b)), variant)
        self.result_bytes = result_elements(problem) * problem.d.type.size
        limits = device.capabilities.limits
        if not problem.is_empty:
            if problem.k:
                require_binding("int8_gemm", "a", operand_bytes(problem.a, problem.m, problem.k, problem.batch), limits)
                require_binding("int8_gemm", "b", operand_bytes(problem.b, problem.k, problem.n, problem.batch), limits)
            require_binding("int8_gemm", "result", self.result_bytes, limits)
        self._steps = [] if problem.is_empty else plan_int8(problem, self.row, limits)

    @property
    def variant(self) -> str:
        """The name of the row of gpu/int8_variants.py that runs."""
        return self.row.name

    @property
    def shaders(self) -> tuple[ShaderKey, ...]:
        """The pipeline of the operation, for `device.missing` and `device.prepare`."""
        return () if self.problem.is_empty else (int8_shader(self.problem, self.row),)

    def start(
        self, a: Operand, b: Operand, _c: None, block: HostOperand, *, read_into: Any = None
    ) -> tuple[Buffer | None, Pending]:
        """Upload, compute, and start to read back into `read_into` (writable, C-contiguous, exactly the result's bytes).

        Operands must have the layouts of the problem. _c: an integer product has no C. block: the words of int8_block.py.
        Returns (None, pending) with `read_into`, else (the result's buffer, pending), ready for the next operation without waiting.
        """
        problem, device = self.problem, self.device
        self._check("a", a, problem.a, problem.m, problem.k)
        self._check("b", b, problem.b, problem.k, problem.n)
        if read_into is not None:
            self._check_destination(read_into)
        if problem.is_empty:
            return (None if read_into is not None else device.create_buffer(0)), Finished()
        job = Job()
        mine: list[Buffer] = []
        uploaded: dict[int, Buffer] = {}

        def bring(name: str, operand: Operand) -> Buffer:
            if not problem.k:
                return device.nothing
            if isinstance(operand, DeviceOperand):
                if operand.buffer.device is not device:
                    raise ShapeError(f"int8_gemm: operand {name} lies on another device")
                require_binding("int8_gemm", name, operand.buffer.nbytes, device.capabilities.limits)
                return operand.buffer
            found = uploaded.get(id(operand.data))
            if found is None:
                nbytes = as_bytes(operand.data).nbytes
                require_binding("int8_gemm", name, nbytes, device.capabilities.limits)
                found = uploaded[id(operand.data)] = device.create_buffer(nbytes)
                mine.append(found)
                job.uploads.append((found, operand.data))
            return found

        result: Buffer | None = None
        try:
            result = device.create_buffer(self.result_bytes)
            mine.append(result)
            words = device.create_buffer(as_bytes(block.data).nbytes)
            mine.append(words)
            job.uploads.append((words, block.data))
            buffers = (bring("a", a), bring("b", b), words, result)
            job.dispatches = [Dispatch(step.shader, buffers, step.parameters, step.workgroups) for step in self._steps]
            if read_into is not None:
                job.reads.append((result, 0, self.result_bytes, read_into))
            pending = device.execute(job)
        except BaseException:
            result = None
            raise
        finally:
            # Last in, first out: the next call of this shape finds each buffer in the same part, and so its bind groups.
            for buffer in reversed(mine):
                if buffer is not result or read_into is not None:
                    device.release_buffer(buffer)
        return (None if read_into is not None else result), pending

    def _check(self, name: str, operand: Operand, layout: Layout, rows: int, columns: int) -> None:
        if operand.layout != layout:
            raise ShapeError(f"int8_gemm: operand {name} has layout {operand.layout}, the operation was made for {layout}")
        held = operand.buffer.nbytes if isinstance(operand, DeviceOperand) else as_bytes(operand.data).nbytes
        require_in_buffer("int8_gemm", name, layout.extent(rows, columns, self.problem.batch), held)

    def _check_destination(self, destination: Any) -> None:
        view = memoryview(destination)
        if view.readonly or not view.c_contiguous or view.nbytes != self.result_bytes:
            raise ShapeError(f"int8_gemm: the result needs {self.result_bytes} writable contiguous bytes, not {view.nbytes}")
