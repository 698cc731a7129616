"""Finds out by trying which int8 dot product the running engine has. The kernels themselves are tried, on data that every known
liberty of relaxed SIMD gets wrong; no engine is known by its name. Needs no NumPy; looks only once at an engine.

WebAssembly leaves open whether i32x4.relaxed_dot_i8x16_i7x16_add_s takes its second operand as signed or unsigned where a byte has
its top bit set, and whether a sum of two products saturates at 16 bits. A kernel that is right on the data below is right on any:
every pair of a row and a column holds extreme bytes whose pair sums pass 2^15 in both directions, and random ones.
https://github.com/WebAssembly/relaxed-simd/blob/main/proposals/relaxed-simd/Overview.md
"""

from __future__ import annotations

import array
from weakref import WeakKeyDictionary

from ..dtypes import INT8, INT32, UINT8, ElementType
from ..int8_block import make_block
from ..problem import Layout, Problem
from .blocking import block
from .engines import Engine
from .engines.host_memory import PinnedBuffer
from .families import DOT_TOKENS, ROWS, Row
from .plan import make_plan

_M, _N, _K = 7, 9, 150
_EXTREMES = (-128, -128, 127, 127, -128, 127, -1, -128, 0, -128, 127, -127)

_known: WeakKeyDictionary[Engine, str | None] = WeakKeyDictionary()


def exact_dot(engine: Engine) -> str | None:
    """The token whose int8 dot kernels are exact on this engine, or None where none is."""
    if engine not in _known:
        _known[engine] = _probe(engine) if engine.traits.relaxed_simd else None
    return _known[engine]


def _probe(engine: Engine) -> str | None:
    for token in DOT_TOKENS:
        rows = [row for row in ROWS if row.token == token]
        if all(is_exact(engine, row, type_a, type_b) for row in rows for type_a in (INT8, UINT8) for type_b in (INT8, UINT8)):
            return token
    return None


def is_exact(engine: Engine, row: Row, type_a: ElementType, type_b: ElementType) -> bool:
    """Whether the kernel of `row` multiplies the probe's data exactly here."""
    a, b = _bytes(_M * _K, 1), _bytes(_K * _N, 2)
    values_a, values_b = _values(a, type_a), _values(b, type_b)
    expected = [sum(values_a[i * _K + step] * values_b[step * _N + j] for step in range(_K)) for i in range(_M) for j in range(_N)]
    words = make_block("probe", type_a, type_b, _M, _N).data
    problem = Problem(_M, _N, _K, Layout(type_a, _K, 1), Layout(type_b, _N, 1), Layout(INT32, _N, 1))
    plan = make_plan(problem, block_words=len(words) // 4)
    call = engine.bind(row, plan, block(row, plan.m, plan.n, plan.k))
    found = array.array("i", bytes(4 * _M * _N))
    with PinnedBuffer(a) as at_a, PinnedBuffer(b) as at_b, PinnedBuffer(words) as at_block, PinnedBuffer(found) as at_d:
        call(at_a.address, at_b.address, 0, at_d.address, at_block.address)
    return found.tolist() == expected


def _bytes(count: int, seed: int) -> bytes:
    """Extreme bytes and random ones by turns of 12."""
    state, made = seed, bytearray()
    for index in range(count):
        state = (state * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        extreme = _EXTREMES[(index * seed + state // 65_536 % 2) % len(_EXTREMES)]
        made.append((extreme if index // len(_EXTREMES) % 2 else state >> 16) & 0xFF)
    return bytes(made)


def _values(data: bytes, type_: ElementType) -> list[int]:
    return list(data) if type_ is UINT8 else [value - 256 if value > 127 else value for value in data]
