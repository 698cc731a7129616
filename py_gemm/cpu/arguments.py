"""The block of arguments that a kernel reads: the same layout as kernels/arguments.h. Pure."""

from __future__ import annotations

import struct

from .blocking import Blocking
from .plan import Matrix, Plan

VERSION = 4
DONE = 0

# a, b, c, d, bias: the addresses, the only words that differ from call to call.
ADDRESSES = struct.Struct("<5I")
_FIXED = struct.Struct("<20x 11I 2d 8I 3I 5I 3I 2I I")
_DIMENSION = struct.Struct("<6I")

_WORD = 0xFFFF_FFFF


def argument_bytes(plan: Plan) -> int:
    """The size of the block."""
    return _FIXED.size + _DIMENSION.size * len(plan.batch)


def pack_arguments(plan: Plan, blocking: Blocking) -> bytearray:
    """The block, addresses still zero. Strides are taken modulo 2^32, as the kernel's addresses are."""
    c = plan.c or plan.d
    operands = (plan.a, plan.b, c, plan.d)
    block = bytearray(argument_bytes(plan))
    _FIXED.pack_into(
        block, 0,
        VERSION, plan.m, plan.n, plan.k, *(matrix.type.code for matrix in operands),
        int(plan.activation), int(plan.c is not None), int(plan.has_bias),
        plan.alpha, plan.beta, *(word for matrix in operands for word in _strides(matrix)),
        plan.bias_row, plan.bias_column, _packing(plan),
        blocking.chain, blocking.slice, blocking.block_rows, blocking.block_columns, blocking.total_rows,
        blocking.panel_a, blocking.panel_b, blocking.totals, *blocking.tile, len(plan.batch),
    )  # fmt: skip
    for index, size in enumerate(plan.batch):
        strides = (matrix.batch[index] & _WORD for matrix in operands)
        _DIMENSION.pack_into(block, _FIXED.size + index * _DIMENSION.size, size, 0, *strides)
    return block


# kernels/arguments.h: packing
A_IS_PANELS, B_IS_PANELS, D_IS_PANELS_OF_A, D_IS_PANELS_OF_B = 1, 2, 4, 8


def _packing(plan: Plan) -> int:
    if plan.packs is not None:
        return D_IS_PANELS_OF_A if plan.packs.side == "a" else D_IS_PANELS_OF_B
    return (A_IS_PANELS if plan.packed_a else 0) | (B_IS_PANELS if plan.packed_b else 0)


def _strides(matrix: Matrix) -> tuple[int, int]:
    return matrix.row & _WORD, matrix.column & _WORD
