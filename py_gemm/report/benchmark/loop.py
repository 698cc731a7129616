"""The ceiling: a WebAssembly loop of nothing but fused multiply-adds on twelve independent sums, put together byte by byte.

Twelve sums hide the latency of the instruction and stay in registers, so this is the most that 128-bit SIMD does on one core. No
compiler is needed, so the loop runs wherever py_gemm does. Opcodes: the WebAssembly specification 3.0, section 5.4.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

STEPS = 4_000_000  # about 10 ms: wasmtime-py's own call costs 0.16 ms
SUMS = 12

_F32, _I32, _V128, _FUNCTION = 0x7D, 0x7F, 0x7B, 0x60
_GET, _SET, _TEE = 0x20, 0x21, 0x22
_X, _Y, _FIRST = 3, 4, 5  # locals after the three parameters


def flops(type_name: str) -> int:
    """Multiplications and additions of one run: two for each lane of each sum of each step."""
    return STEPS * SUMS * 2 * (2 if type_name == "float64" else 4)


def module(type_name: str) -> bytes:
    """A module that exports `loop(steps, x, y)`: float32 (or float64 inside) sums of x * y; the total comes back, so it counts."""
    wide = type_name == "float64"
    widen, narrow = (b"\xbb", b"\xb6") if wide else (b"", b"")  # f64.promote_f32, f32.demote_f64
    splat, extract = (_simd(0x14), _simd(0x21) + b"\0") if wide else (_simd(0x13), _simd(0x1F) + b"\0")
    add, multiply_add = (_simd(0xF0), _simd(0x107)) if wide else (_simd(0xE4), _simd(0x105))
    sums = range(_FIRST, _FIRST + SUMS)
    code = bytes([_GET, 1]) + widen + splat + bytes([_SET, _X, _GET, 2]) + widen + splat + bytes([_SET, _Y])
    for each in sums:  # all different: equal sums would be one
        code += bytes([_GET, _X, _GET, each - 1]) + add + bytes([_SET, each])
    code += b"\x03\x40"  # loop
    for each in sums:
        code += bytes([_GET, _X, _GET, _Y, _GET, each]) + multiply_add + bytes([_SET, each])
    code += bytes([_GET, 0, 0x41, 1, 0x6B, _TEE, 0, 0x0D, 0, 0x0B])  # steps -= 1; again while not 0; end
    code += bytes([_GET, sums[0]]) + b"".join(bytes([_GET, each]) + add for each in sums[1:]) + extract + narrow + b"\x0b"
    body = b"\x01" + bytes([2 + SUMS, _V128]) + code
    return (
        b"\0asm\x01\0\0\0"
        + _section(1, b"\x01" + bytes([_FUNCTION, 3, _I32, _F32, _F32, 1, _F32]))
        + _section(3, b"\x01\0")
        + _section(7, b"\x01\x04loop\0\0")
        + _section(10, b"\x01" + _number(len(body)) + body)
    )


def _number(value: int) -> bytes:
    """Unsigned LEB128."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _number(rest) if rest else bytes([low])


def _simd(code: int) -> bytes:
    return b"\xfd" + _number(code)


def _section(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + _number(len(content)) + content


def ready(type_name: str) -> Callable[[], object]:
    """The loop in this interpreter's engine, ready to be run. The engine's own error where it knows no relaxed SIMD."""
    if sys.platform == "emscripten":
        import js
        from pyodide.ffi import to_js

        function = js.WebAssembly.Instance.new(js.WebAssembly.Module.new(to_js(module(type_name)))).exports.loop
        return lambda: function(STEPS, 1.0, 1e-9)
    import wasmtime

    store: Any = wasmtime.Store()
    instance = wasmtime.Instance(store, wasmtime.Module(store.engine, module(type_name)), [])
    native: Any = instance.exports(store)["loop"]
    return lambda: native(store, STEPS, 1.0, 1e-9)
