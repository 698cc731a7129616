"""The CPU floor inside Pyodide, without NumPy: runs in a browser page, a worker or Node, and answers with plain data.

`check()` raises AssertionError where anything is wrong. Started by test_pyodide_in_node.py and by tests/browser/test_cpu_floor.py.
References are Python's own: float64 arithmetic on small integers, `struct` for float16, `math` for gelu.
"""

from __future__ import annotations

import array
import fractions
import hashlib
import math
import random
import struct
from collections.abc import Sequence
from typing import Any

from py_gemm.configuration import configure
from py_gemm.cpu.engines import browser
from py_gemm.cpu.engines.host_memory import PinnedBuffer
from py_gemm.cpu.families import DOT_TOKENS, ROWS
from py_gemm.cpu.gemm import CpuGemm
from py_gemm.cpu.probe import exact_dot
from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, UINT8, ElementType
from py_gemm.epilogue import Activation
from py_gemm.errors import AliasError, DeviceMemoryError, UnsupportedError
from py_gemm.int8_block import make_block
from py_gemm.problem import Layout, Problem
from py_gemm.requantize import Requantize

CODES = {FLOAT32: "f", FLOAT64: "d"}
SENTINEL = -77.0


def check() -> dict[str, Any]:
    """Everything, on the engine of this interpreter and on the one that copies. Says which engine it was and what ran."""
    gemm = CpuGemm(threads=2)
    found = gemm.capabilities
    assert found.host == "browser"
    assert found.zero_copy, gemm.info
    copying = CpuGemm(engine=browser.BrowserCopyingEngine(browser.Pyodide(), "a test"))
    assert not copying.zero_copy
    ran = []
    for each in (gemm, copying):
        check_packing(each)
        assert deterministic_hashes(each) == RECORDED
        ran += [check_rows(each) + check_integers(each), check_halves(each), check_epilogue(each), check_batch_and_strides(each)]
    check_errors(gemm)
    check_fallback()
    check_growth(gemm)
    check_exhaustion(gemm)
    dot = exact_dot(gemm.engine)
    return {"info": gemm.info, "relaxed_simd": found.relaxed_simd, "dot": dot, "token": found.token, "ran": ran[0]}


# SHA-256 of results of mode "deterministic", and of rows without relaxed SIMD that are forced: the same in every engine, on every
# machine. Recorded under wasmtime.
RECORDED = {
    "float32 13x17x300 none": "3fadb222d3548d75a10f1802a425603a61abad5266ef7ce232b0ba2f5a74f282",
    "float32 1x45x600 gelu_erf": "7d8891be06e46f8bbd093497d0bdf0ba35145265ed5e18b3861d8476b3b91983",
    "float32 37x2x257 gelu_tanh": "752e87ee224c573d75427c8a8fe0b8c9fa0e08ece2d77a177b8d23090128f085",
    "float16 13x17x300 gelu_tanh": "9f47f053c1c5c75c29b830688c4fa5c0e1e39c6eb476e1d97927b38ec4a78c18",
    "bfloat16 3x40x1100 relu": "b547541ad08e533c85af0b1743bbb75c2f5fc43bf6f949d7ddcc8b06c1e71d29",
    "float64 13x17x300 gelu_erf": "6b9ac4675920a6545491e6f17a44876d9ed547cd2c06ca48ba6edbcf27b48538",
    "float64 2x21x700 gelu_tanh": "377704f20360cf1e38b26b23920d41adbf6c96a3f84ff364d36f88b152d3c342",
    "gemm_bf16dot_4x8_pairs 13x17x301": "55b7c9f5877d77867c06c4cc701bf29bcf2736d22063f657799516457171841f",
    "gemm_bf16dot_f32_4x8_pairs 5x9x600": "93fb244433c5efa3de2d3498d6783f8a3375cd9f5dc4806feb9e1fae5db3f8df",
    "gemm_bf16_f32_4x8_simd128 7x11x300": "580f870fbecacb39cc003beddb17be74b6961a9bfe6149b16a676c6dfa5cd018",
    "gemm_f16_f32_4x8_simd128 7x11x300": "0cc5fdd3df17cb6c1c47dd4b3faf4235fba5f0340415b14ab04b4c7bddd49445",
    "gemm_f16_f32_4x8_simd128 5x9x1100": "8e647e6f7be23fd82241a4b18177535a39ae0e5a079d11f6dbae38dbf6f7ba9f",
    "gemm_f32_4x8_scalar 13x17x300": "c070f7da7f2a352dd51d2b0a7dc61e3707a02dc8a1df8302c2467df03475689c",
    "gemm_f64_4x4_scalar 5x7x300": "d57f8f122cf7d88743e3a80f708fee8e2a7a9c802eeb4df2f74d604af149cc9d",
    "gemm_bf16_4x8_scalar 5x9x300": "ae70564ae85579ff1b4b69e94778fb39c2a12c0f331265e1fbc44ee8133c7266",
    "gemm_bf16dot_4x8_scalar 13x17x301": "55b7c9f5877d77867c06c4cc701bf29bcf2736d22063f657799516457171841f",
}


def deterministic_hashes(gemm: CpuGemm) -> dict[str, str]:
    """Products of numbers made by integer arithmetic: types, few rows, chains, all that is done to a sum; by name."""
    found = {}
    for kind, m, n, k, activation in (
        (FLOAT32, 13, 17, 300, "NONE"), (FLOAT32, 1, 45, 600, "GELU_ERF"), (FLOAT32, 37, 2, 257, "GELU_TANH"),
        (FLOAT16, 13, 17, 300, "GELU_TANH"), (BFLOAT16, 3, 40, 1100, "RELU"), (FLOAT64, 13, 17, 300, "GELU_ERF"),
        (FLOAT64, 2, 21, 700, "GELU_TANH"),
    ):  # fmt: skip
        a, b, c = (_numbers(kind, count, seed) for seed, count in enumerate((m * k, k * n, m * n)))
        bias, d = _numbers(FLOAT32, n, 9), bytearray(m * n * kind.size)
        layout_d = Layout(kind, n, 1)
        problem = Problem(m, n, k, Layout(kind, k, 1), Layout(kind, n, 1), layout_d, layout_d, (), 0.7, -1.3)
        call = gemm.prepare(problem, activation=Activation[activation], has_bias=True, deterministic=True)
        with PinnedBuffer(a) as x, PinnedBuffer(b) as y, PinnedBuffer(c) as z, PinnedBuffer(bias) as w, PinnedBuffer(d) as into:
            call(x.address, y.address, z.address, into.address, w.address)
        found[f"{kind} {m}x{n}x{k} {activation.lower()}"] = hashlib.sha256(d).hexdigest()
    configure(deep_kc_bytes=32_000)  # so that one of these is deep
    for family, m, n, k in (
        ("gemm_bf16dot_4x8_pairs", 13, 17, 301), ("gemm_bf16dot_f32_4x8_pairs", 5, 9, 600),
        ("gemm_bf16_f32_4x8_simd128", 7, 11, 300), ("gemm_f16_f32_4x8_simd128", 7, 11, 300), ("gemm_f16_4x8_simd128", 5, 9, 1100),
        ("gemm_f32_4x8_scalar", 13, 17, 300), ("gemm_f64_4x4_scalar", 5, 7, 300), ("gemm_bf16_4x8_scalar", 5, 9, 300),
        ("gemm_bf16dot_4x8_scalar", 13, 17, 301),
    ):  # fmt: skip
        row = next(each for each in ROWS if each.name == family)
        kind, into_kind = row.inputs or row.accumulator, row.output or row.accumulator
        a, b, d = _numbers(kind, m * k, 1), _numbers(kind, k * n, 2), bytearray(m * n * into_kind.size)
        problem = Problem(m, n, k, Layout(kind, k, 1), Layout(kind, n, 1), Layout(into_kind, n, 1), None, (), 0.7)
        forced = CpuGemm(family=family, engine=gemm.engine)
        forced.run(problem, a, b, None, d)
        found[f"{forced.prepare(problem).variant} {m}x{n}x{k}"] = hashlib.sha256(d).hexdigest()
    configure(deep_kc_bytes=None)
    return found


def _numbers(kind: ElementType, count: int, seed: int) -> bytes:
    """Numbers between -1 and 1 of 24 bits (fewer where the type holds fewer), the same on every machine."""
    state, values = seed + 1, []
    for _ in range(count):
        state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) & 0xFFFF_FFFF_FFFF_FFFF
        values.append(((state >> 39) - (1 << 24)) / (1 << 24))
    if kind is FLOAT64:
        return struct.pack(f"<{count}d", *values)
    if kind is FLOAT16:
        return struct.pack(f"<{count}e", *values)
    wide = struct.pack(f"<{count}f", *values)
    return wide if kind is FLOAT32 else b"".join(wide[4 * at + 2 : 4 * at + 4] for at in range(count))


def expect(words: str, error: Exception) -> None:
    """There is no pytest in here."""
    assert words in str(error), error


def check_rows(gemm: CpuGemm) -> list[str]:
    """Every row that can run here: exact on small integers, sentinels around D untouched. The names of those that ran."""
    ran: list[str] = []
    functions: set[str] = set()
    chance = random.Random(1)
    for row in (row for row in ROWS if row.accumulator is not INT32):
        try:
            forced = CpuGemm(family=row.name, engine=gemm.engine)
        except UnsupportedError as error:
            expect("lacks relaxed SIMD", error)
            continue
        kind, into_kind = row.inputs or row.accumulator, row.output or row.accumulator
        shapes = ((1, 1, 1), (5, 7, 9), (6, 8, 4), (17, 33, 65), (13, 9, 300))
        for m, n, k in shapes if row.function not in functions else shapes[1:2]:  # its kernel has run, with other types
            a = [chance.randint(-3, 3) for _ in range(m * k)]
            b = [chance.randint(-3, 3) for _ in range(k * n)]
            d = stored(into_kind, [SENTINEL]) * (m * (n + 2) + 2)
            problem = Problem(m, n, k, Layout(kind, k, 1), Layout(kind, n, 1), Layout(into_kind, n + 2, 1, (), 2))
            assert forced.prepare(problem).variant == row.name
            forced.run(problem, stored(kind, a), stored(kind, b), None, d)
            for i in range(m):
                line = d[2 + i * (n + 2) : 2 + i * (n + 2) + n]
                sums = [sum(a[i * k + s] * b[s * n + j] for s in range(k)) for j in range(n)]
                assert line == stored(into_kind, sums), (row.name, m, n, k, i)
                assert d[i * (n + 2) : i * (n + 2) + 2] == stored(into_kind, [SENTINEL] * 2)
        ran.append(row.name)
        functions.add(row.function)
    return ran


def stored(kind: ElementType, values: Sequence[float]) -> array.array[Any]:
    """The numbers as elements of a type, each rounded to nearest, ties to even; halves as their bits."""
    if kind in CODES:
        return array.array(CODES[kind], values)
    if kind is FLOAT16:
        return array.array("H", struct.pack(f"<{len(values)}e", *values))
    wide = [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]
    return array.array("H", [(bits + 0x7FFF + (bits >> 16 & 1)) >> 16 for bits in wide])


def check_integers(gemm: CpuGemm) -> list[str]:
    """Every integer row: int8 with uint8, zero points, int32 and requantized; sentinels around D untouched."""
    ran = []
    chance = random.Random(2)
    for row in (row for row in ROWS if row.accumulator is INT32):
        try:
            forced = CpuGemm(family=row.name, engine=gemm.engine)
        except UnsupportedError as error:
            expect("lacks", error)
            assert row.token in DOT_TOKENS
            continue
        for m, n, k in ((1, 1, 1), (5, 9, 3), (4, 8, 260), (13, 17, 0)):
            a = array.array("b", [chance.randint(-128, 127) for _ in range(m * k)])
            b = array.array("B", [chance.randint(0, 255) for _ in range(k * n)])
            zeros = [chance.randint(0, 255) for _ in range(n)]
            sums = [[sum((a[i * k + s] + 7) * (b[s * n + j] - zeros[j]) for s in range(k)) for j in range(n)] for i in range(m)]
            rules = Requantize([[2.0**-12 * (1 + i)] for i in range(m)], -3, [7 * j for j in range(n)])
            quantized = [
                [max(-128, min(127, round(fractions.Fraction((x + 7 * j) * (1 + i), 4096)) - 3)) for j, x in enumerate(line)]
                for i, line in enumerate(sums)
            ]
            for rule, kind, code, expected in ((None, INT32, "i", sums), (rules, INT8, "b", quantized)):
                d = array.array(code, [-77]) * (m * (n + 2) + 2)
                words = make_block("smoke", INT8, UINT8, m, n, -7, zeros, rule)
                problem = Problem(m, n, k, Layout(INT8, k, 1), Layout(UINT8, n, 1), Layout(kind, n + 2, 1))
                call = forced.prepare_int8(problem, block_words=len(words.data) // 4, keep_rows=words.by_row)
                assert call.variant == row.name
                block = array.array("I", words.data)
                with PinnedBuffer(a) as at_a, PinnedBuffer(b) as at_b, PinnedBuffer(block) as at_block, PinnedBuffer(d) as at_d:
                    call(at_a.address, at_b.address, 0, at_d.address + 2 * d.itemsize, at_block.address)
                for i in range(m):
                    assert list(d[i * (n + 2) : i * (n + 2) + 2]) == [-77] * 2
                    assert list(d[2 + i * (n + 2) : 2 + i * (n + 2) + n]) == expected[i], (row.name, m, n, k, i)
        ran.append(row.name)
    return ran


def check_packing(gemm: CpuGemm) -> None:
    """Both operands prepacked: the bits of the plain product."""
    m, n, k = 13, 17, 300
    chance = random.Random(3)
    a = array.array("f", [chance.gauss(0, 1) for _ in range(m * k)])
    b = array.array("f", [chance.gauss(0, 1) for _ in range(k * n)])
    layout_a, layout_b, layout_d = Layout(FLOAT32, k, 1), Layout(FLOAT32, n, 1), Layout(FLOAT32, n, 1)
    problem = Problem(m, n, k, layout_a, layout_b, layout_d)
    plain, found = array.array("f", bytes(4 * m * n)), array.array("f", bytes(4 * m * n))
    gemm.run(problem, a, b, None, plain)
    forms = gemm.packing("a", FLOAT32), gemm.packing("b", FLOAT32)
    panels = [array.array("f", bytes(4 * k * form.padded(lanes))) for form, lanes in zip(forms, (m, n), strict=True)]
    product = gemm.prepare(problem, packed_a=forms[0], packed_b=forms[1])
    with PinnedBuffer(a) as x, PinnedBuffer(b) as y, PinnedBuffer(panels[0]) as p, PinnedBuffer(panels[1]) as q:
        gemm.prepare_packing(forms[0], layout_a, m, k, ())(x.address, 0, 0, p.address, 0)
        gemm.prepare_packing(forms[1], layout_b, n, k, ())(0, y.address, 0, q.address, 0)
        with PinnedBuffer(found, writable=True) as d:
            product(p.address, q.address, 0, d.address, 0)
    assert found == plain


def check_halves(gemm: CpuGemm) -> str:
    """All 65,536 patterns of both half types, widened as rows of A, and rounded back as D."""
    patterns = array.array("H", range(1 << 16))
    one = array.array("f", [1.0])
    for kind in (FLOAT16, BFLOAT16):
        wide = array.array("f", bytes(4 << 16))
        gemm.run(
            Problem(1 << 16, 1, 1, Layout(kind, 1, 1), Layout(FLOAT32, 1, 1), Layout(FLOAT32, 1, 1)), patterns, one, None, wide
        )
        back = array.array("H", bytes(2 << 16))
        gemm.run(Problem(1 << 16, 1, 1, Layout(kind, 1, 1), Layout(FLOAT32, 1, 1), Layout(kind, 1, 1)), patterns, one, None, back)
        for bits in patterns:
            value = widened(kind, bits)
            assert wide[bits] == value or (math.isnan(value) and math.isnan(wide[bits])), (kind, bits)
            assert back[bits] == (bits if value else 0) or (math.isnan(value) and math.isnan(widened(kind, back[bits]))), (
                kind,
                bits,
            )
    ties = [2049.0, 2051.0, 65519.99609375, 2.0**-25, 3 * 2.0**-25, 1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 5.9e-8, 1e-9]
    values = array.array("f", ties)
    rounded = array.array("H", bytes(2 * len(ties)))
    layout = Layout(FLOAT32, 1, 1)
    gemm.run(Problem(len(ties), 1, 1, layout, layout, Layout(FLOAT16, 1, 1)), values, one, None, rounded)
    assert list(rounded) == [struct.unpack("<H", struct.pack("<e", value))[0] for value in values]
    return "halves"


def widened(kind: ElementType, bits: int) -> float:
    if kind is FLOAT16:
        value: float = struct.unpack("<e", struct.pack("<H", bits))[0]
    else:
        value = struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return value


def check_epilogue(gemm: CpuGemm) -> str:
    for kind, code, bound in ((FLOAT32, "f", 4e-7), (FLOAT64, "d", 1e-15)):
        layout = Layout(kind, 5, 1)
        a, b = array.array(code, [1, 2, 3]), array.array(code, [1, -1, 2, -2, 0])
        c = array.array(code, [0.5] * 15)
        bias = array.array("f", [0, 1, 2, 3, -100])
        for activation in (None, "relu", "gelu_erf", "gelu_tanh"):
            d = array.array(code, bytes(15 * kind.size))
            problem = Problem(3, 5, 1, Layout(kind, 1, 1), layout, layout, layout, (), 2.0, -1.0)
            gemm.run(problem, a, b, c, d, bias=bias, activation=activation)
            for i in range(3):
                for j in range(5):
                    x = 2.0 * a[i] * b[j] - 0.5 + bias[j]
                    assert abs(d[i * 5 + j] - act(activation, x)) <= bound * (1 + abs(x)), (kind, activation, x)
    zeros = array.array("f", [-0.0] * 6)
    d32 = array.array("f", [1.0] * 6)
    empty = Problem(
        2, 3, 0, Layout(FLOAT32, 0, 1), Layout(FLOAT32, 3, 1), Layout(FLOAT32, 3, 1), Layout(FLOAT32, 3, 1), (), 1.0, 1.0
    )
    gemm.run(empty, None, None, zeros, d32)
    assert [math.copysign(1, value) for value in d32] == [-1] * 6
    assert Activation.of("relu") is Activation.RELU
    return "epilogue"


def act(name: str | None, x: float) -> float:
    if name == "relu":
        return max(x, 0.0)
    if name == "gelu_erf":
        return 0.5 * x * math.erfc(-x / math.sqrt(2))
    if name == "gelu_tanh":
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x


def check_batch_and_strides(gemm: CpuGemm) -> str:
    """A batch of two dimensions, A shared along one, B read backwards, D stored by columns with gaps."""
    m, n, k, batch = 3, 4, 5, (2, 3)
    a = array.array("f", range(2 * m * k))
    b = array.array("f", [value % 7 - 3 for value in range(3 * k * n)])
    d = array.array("f", [SENTINEL]) * (6 * 30)
    layout_a = Layout(FLOAT32, k, 1, (m * k, 0))
    layout_b = Layout(FLOAT32, -n, -1, (0, k * n), k * n - 1)
    problem = Problem(m, n, k, layout_a, layout_b, Layout(FLOAT32, 1, 6, (90, 30), 1), None, batch)
    gemm.run(problem, a, b, None, d)
    written = set()
    for x in range(2):
        for y in range(3):
            for i in range(m):
                for j in range(n):
                    expected = sum(a[x * 15 + i * k + s] * b[y * 20 + 19 - s * n - j] for s in range(k))
                    place = 1 + x * 90 + y * 30 + i + 6 * j
                    assert d[place] == expected, (x, y, i, j)
                    written.add(place)
    assert all(value == SENTINEL for place, value in enumerate(d) if place not in written)
    return "batch"


def check_errors(gemm: CpuGemm) -> None:
    layout = Layout(FLOAT32, 2, 1)
    shared = array.array("f", [1.0] * 8)
    try:
        gemm.run(Problem(2, 2, 2, layout, layout, layout), shared, array.array("f", [1.0] * 4), None, shared)
    except AliasError as error:
        expect("d shares memory with a", error)
    else:
        raise AssertionError("no AliasError")


def check_fallback() -> None:
    """A Pyodide that hides its memory, or whose linker fails, still multiplies: with copies, and `info` says why."""
    for hidden, words in ((None, "Pyodide hides its memory and its linker"), ("linker", "could not be put on Pyodide's memory")):
        pyodide = browser.Pyodide()
        pyodide.emscripten = pyodide.js.Object.new()
        if hidden:
            pyodide.emscripten.loadWebAssemblyModule = pyodide.js.JSON.parse  # no JSON: it throws
        engine = browser.make_browser_engine(pyodide)
        assert isinstance(engine, browser.BrowserCopyingEngine)
        assert words in engine.info["memory"], engine.info
        check_rows(CpuGemm(engine=engine))


def check_growth(gemm: CpuGemm) -> None:
    """A call prepared before the heap grows is right after it: no view of the heap is held."""
    layout = Layout(FLOAT32, 2, 1)
    call = gemm.prepare(Problem(2, 2, 2, layout, layout, layout))
    blocks = [bytearray(48 << 20) for _ in range(2)]
    a, b, d = array.array("f", [1, 2, 3, 4]), array.array("f", [5, 6, 7, 8]), array.array("f", [0] * 4)
    with PinnedBuffer(a) as x, PinnedBuffer(b) as y, PinnedBuffer(d, writable=True) as z:
        call(x.address, y.address, 0, z.address, 0)
    assert list(d) == [19, 22, 43, 50]
    assert len(blocks) == 2


def check_exhaustion(gemm: CpuGemm) -> None:
    """No room for the packed operands: DeviceMemoryError, D untouched, and the next call works."""
    m = 700
    layout = Layout(FLOAT32, m, 1)
    call = gemm.prepare(Problem(m, m, m, layout, layout, layout))
    ones, d = array.array("f", [1.0]) * (m * m), array.array("f", [SENTINEL]) * (m * m)
    owned = vars(browser)["OwnedBlock"]

    def no_room(nbytes: int) -> Any:
        raise MemoryError(nbytes)

    with PinnedBuffer(ones) as a, PinnedBuffer(d, writable=True) as z:
        setattr(browser, "OwnedBlock", no_room)  # noqa: B010
        assert isinstance(gemm.engine, browser.BrowserEngine)
        gemm.engine.forget_scratch()
        try:
            call(a.address, a.address, 0, z.address, 0)
        except DeviceMemoryError as error:
            expect("the interpreter's memory has no room for", error)
        else:
            raise AssertionError("no DeviceMemoryError")
        finally:
            setattr(browser, "OwnedBlock", owned)  # noqa: B010
        assert d[0] == d[-1] == SENTINEL
        call(a.address, a.address, 0, z.address, 0)
    assert d[0] == d[-1] == m
