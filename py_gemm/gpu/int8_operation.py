"""Int8Operation: a whole integer product, from operands on the host or the device to a dense result. Requantization is part of its
dispatches. Everything about jobs, buffers and long products is GemmOperation's; here are the choice, the plan and the block.
"""

from __future__ import annotations

from typing import ClassVar

from ..dtypes import INT32
from ..epilogue import Activation
from ..errors import ShapeError
from ..problem import Problem
from .device import Device
from .int8_plan import is_by_rows, plan_int8
from .int8_variants import Int8Request, Int8Variant, choose_int8_variant
from .operation import GemmOperation, Operand
from .planner import Plan
from .steps import result_elements


class Int8Operation(GemmOperation):
    """D = (A - zero points) @ (B - zero points), requantized where D is int8 or uint8, of one problem on one device.

    problem: any strides, int8 and uint8 in any mix; of `problem.d` only the type counts: int32, int8 or uint8. The `bias` of
    `start` is the block of int8_block.py, in int32. origin: the row and the column of the block's vectors at which the problem
    begins.

    Raises UnsupportedError (an operand past what one buffer holds, a variant that the device lacks) and ValueError (an unknown
    variant).
    """

    name: ClassVar[str] = "int8_gemm"

    def __init__(self, device: Device, problem: Problem, variant: str | None = None, origin: tuple[int, int] = (0, 0)) -> None:
        self.device = device
        self.problem = problem
        self.activation = Activation.NONE
        self.has_bias = True
        self.int8_row: Int8Variant = choose_int8_variant(
            Int8Request(device.capabilities, problem.m, is_by_rows(problem.b)), variant
        )
        self.origin = origin
        self._plans = {}
        self._require_buffers(problem.d.type.size)

    @property
    def variant(self) -> str:
        """The name of the row of gpu/int8_variants.py that runs."""
        return self.int8_row.name

    def _plan(self, bias_offset: int, gather_c: bool, most_flops: int | None) -> Plan:
        key = (bias_offset, gather_c, most_flops)
        if key not in self._plans:
            problem = self.problem
            if problem.is_empty:
                return Plan((), 0, 0)
            steps, scratch = plan_int8(problem, self.int8_row, self.device.capabilities.limits, most_flops, self.origin)
            self._plans[key] = Plan(tuple(steps), problem.d.type.size * result_elements(problem), 0, scratch)
        return self._plans[key]

    def _check_bias(self, bias: Operand) -> None:
        if bias.layout.type is not INT32 or bias.layout.offset:
            raise ShapeError(f"{self.name}: the block is int32 from its first word, not {bias.layout}")
