"""The superaccumulator: exact sums of products as fixed-point numbers, added up digit by digit in WebAssembly
(cpu/kernels/exact_sum.h).

Nothing is rounded, no float is used, and the time does not depend on the spread of exponents: one shift and two or six integer
additions a product. It shares no arithmetic with the other engines of the reference, which is what it is for.

    format      unit of a product   limbs of 32 bits            room above the largest product
    float16     2^-48                  4  (2^-48   .. 2^80)       2^31 products and a sign
    bfloat16    2^-266                18  (2^-272  .. 2^304)      the same
    float32     2^-298                19  (2^-304  .. 2^304)      the same
    float64     2^-2148              133  (2^-2176 .. 2^2080)     the same

Takes finite elements (what is not finite counts as zero: callers look after it). Never changes its operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from py_gemm import arrays
from py_gemm.cpu.blocking import EXACT_BYTES, Blocking
from py_gemm.cpu.engines import Engine, default_engine
from py_gemm.cpu.families import LIMBS_ROW
from py_gemm.cpu.plan import Matrix, Plan
from py_gemm.dtypes import FLOAT_TYPES, ElementType
from py_gemm.epilogue import Activation
from py_gemm.errors import ShapeError


@dataclass(frozen=True, slots=True)
class Register:
    """The fixed-point number of a format: `limbs` words from the weight 2^`lowest`. The kernel writes `written` words, from
    `first` on they are these; those below are zero."""

    lowest: int
    limbs: int
    written: int
    first: int


REGISTERS: dict[str, Register] = {
    "float16": Register(-48, 4, 19, 8),
    "bfloat16": Register(-272, 18, 19, 1),
    "float32": Register(-304, 19, 19, 0),
    "float64": Register(-2176, 133, 133, 0),
}

# A block of sums as the kernel writes them; more columns than fit into it are computed in pieces.
_MOST_BYTES = 64 << 20


def dot_products(
    a: NDArray[Any], b: NDArray[Any], format_name: str, *, engine: Engine | None = None
) -> tuple[NDArray[np.uint32], int]:
    """The exact sums of a [m, k] @ b [k, n]: (limbs [m, n, L] uint32, least significant first, two's complement; the exponent of
    bit 0).

    The value of an element is sum(limbs[i] * 2**(32 * i)) * 2**exponent, the last limb read as signed. Both operands have the type
    that `format_name` names (bfloat16: ml_dtypes' or its uint16 bits); any strides. ValueError for another format, TypeError for
    another type, ShapeError for shapes that do not fit, DeviceMemoryError where a block does not fit into WebAssembly's memory.
    """
    if format_name not in REGISTERS:
        raise ValueError(f"the superaccumulator sums {', '.join(REGISTERS)}, not {format_name!r}")
    register, element = REGISTERS[format_name], FLOAT_TYPES[format_name]
    a, b = (_operand(name, each, element) for name, each in (("a", a), ("b", b)))
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ShapeError(f"dot_products: a must be [m, k] and b [k, n], not {a.shape} and {b.shape}")
    (m, k), n = a.shape, b.shape[1]
    limbs = np.zeros((m, n, register.limbs), np.uint32)
    if 0 in (m, n, k):
        return limbs, register.lowest
    engine = engine or default_engine()
    rows = max(1, _MOST_BYTES // (n * register.written * 4))
    for top in range(0, m, rows):
        part = a[top : top + rows]
        written = np.empty((len(part), n, register.written), np.uint32)
        _run(engine, element, part, b, written)
        limbs[top : top + rows] = written[..., register.first : register.first + register.limbs]
    return limbs, register.lowest


def to_integers(limbs: NDArray[np.uint32]) -> list[int]:
    """The numbers of an array of limbs [..., L] as Python integers, in C order."""
    size = limbs.shape[-1] * 4
    data = np.ascontiguousarray(limbs, "<u4").tobytes()
    return [int.from_bytes(data[at : at + size], "little", signed=True) for at in range(0, prod(limbs.shape[:-1]) * size, size)]


def _operand(name: str, value: NDArray[Any], element: ElementType) -> NDArray[Any]:
    tag = "bfloat16" if element.name == "bfloat16" and value.dtype == np.uint16 else None
    if arrays.element_type("dot_products", name, value.dtype, tag) is not element:
        raise TypeError(f"dot_products: {name} is {value.dtype}, not {element.name}")
    return value if arrays.expressible(value) else arrays.compact(value)


def _run(engine: Engine, element: ElementType, a: NDArray[Any], b: NDArray[Any], limbs: NDArray[np.uint32]) -> None:
    (m, k), n = a.shape, b.shape[1]
    size = limbs.shape[-1] * 4
    number = ElementType(f"fixed{8 * size}", size, element.code, 8 * size, 0)
    left, right = (Matrix(element, each.strides[0], each.strides[1], ()) for each in (a, b))
    sums = Matrix(number, n * size, size, ())
    plan = Plan(m, n, k, (), left, right, None, sums, 1.0, 0.0, Activation.NONE, False, 0, 0, swapped=False)
    depth = max(4, k)
    nothing = Blocking(depth, depth, m, n, m, EXACT_BYTES, EXACT_BYTES, EXACT_BYTES, EXACT_BYTES, (1, 1))
    engine.bind(LIMBS_ROW, plan, nothing)(arrays.address(a), arrays.address(b), 0, arrays.address(limbs), 0)
