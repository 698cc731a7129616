"""Runs inside a Pyodide host, also one without NumPy: products of whole numbers through py_gemm/gpu, and raw jobs. Asserts nothing.

Elements cross as bytes; float16 and bfloat16 are packed and unpacked here by `struct`: only the device's arithmetic is tested.
"""

from __future__ import annotations

import struct

from py_gemm.dtypes import FLOAT_TYPES
from py_gemm.epilogue import Activation
from py_gemm.gpu.devices.browser import BrowserDevice, request_browser_device
from py_gemm.gpu.operation import GemmOperation, HostOperand
from py_gemm.gpu.steps import dense_layout
from py_gemm.problem import Layout, Problem

_kept: dict[str, BrowserDevice] = {}


async def device() -> BrowserDevice:
    """The device of this host, asked for once."""
    found = _kept.get("device")
    if found is None or found.lost:
        found = _kept["device"] = await request_browser_device()
    return found


def pack(values: list[float], name: str) -> bytes:
    """The elements as bytes; whole numbers are exact in every type."""
    if name == "bfloat16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{'f' if name == 'float32' else 'e'}", *values)


def unpack(data: bytes, name: str) -> list[float]:
    """`pack` undone."""
    if name == "bfloat16":
        return [struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // (4 if name == 'float32' else 2)}{'f' if name == 'float32' else 'e'}", data))


def whole_numbers(seed: int, count: int) -> list[float]:
    """From -3 to 3, without NumPy."""
    values = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7FFF_FFFF
        values.append(float((seed >> 16) % 7 - 3))
    return values


def planned(
    on: BrowserDevice, m: int, n: int, k: int, name_a: str, name_b: str, name_d: str, transpose_a: bool, transpose_b: bool
) -> tuple[GemmOperation, HostOperand, HostOperand, list[float]]:
    """An operation, its operands, and what its result must be."""
    a, b = whole_numbers(m * 7 + k, m * k), whole_numbers(n * 5 + k, k * n)
    layout_a = Layout(FLOAT_TYPES[name_a], *((1, m) if transpose_a else (k, 1)))
    layout_b = Layout(FLOAT_TYPES[name_b], *((1, k) if transpose_b else (n, 1)))
    problem = Problem(m, n, k, layout_a, layout_b, dense_layout(m, n, (), FLOAT_TYPES[name_d]))

    def at(values: list[float], layout: Layout, row: int, column: int) -> float:
        return values[row * layout.row_stride + column * layout.column_stride]

    expected = [
        sum(at(a, layout_a, row, each) * at(b, layout_b, each, column) for each in range(k))
        for row in range(m)
        for column in range(n)
    ]
    operation = GemmOperation(on, problem, Activation.NONE)
    return operation, HostOperand(pack(a, name_a), layout_a), HostOperand(pack(b, name_b), layout_b), expected


def reads_back(name_d: str, count: int) -> bytearray:
    """Where a result of `count` elements arrives."""
    return bytearray(count * FLOAT_TYPES[name_d].size)


async def product_is_exact(m: int, n: int, k: int, names: list[str], transpose_a: bool, transpose_b: bool, wait: bool) -> bool:
    """One product compared with plain Python; `wait` blocks where else it is awaited."""
    on = await device()
    operation, a, b, expected = planned(on, m, n, k, names[0], names[1], names[2], transpose_a, transpose_b)
    out = reads_back(names[2], m * n)
    await on.prepare(operation.shaders)
    _, pending = operation.start(a, b, read_into=out)
    if wait:
        pending.wait()
    else:
        await pending
    return unpack(bytes(out), names[2]) == expected
