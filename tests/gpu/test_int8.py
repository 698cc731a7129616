"""Int8Gemm and Int8GemmSkinny on wgpu: bytes at any place, words shared with others, plans, choices, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import py_gemm as pg
from py_gemm.dtypes import INT8, INT32, UINT8, ElementType
from py_gemm.errors import AliasError, ShapeError, UnsupportedError
from py_gemm.gpu.capabilities import Capabilities, Limits
from py_gemm.gpu.depth import DEEPEST
from py_gemm.gpu.int8 import Int8Gemm, Int8GemmSkinny
from py_gemm.gpu.int8_plan import ADDS, plan_int8
from py_gemm.gpu.int8_variants import DOT_FEATURE, INT8_VARIANTS, Int8Request, Int8Variant, choose_int8_variant
from py_gemm.gpu.shaders import KERNELS, ShaderKey, assemble
from py_gemm.gpu.steps import dense_layout
from py_gemm.problem import Layout, Problem

KEYS = [ShaderKey(name, ()) for name in KERNELS if name.startswith("int8_")]
SENTINEL = 77
GUARANTEED = Capabilities("vulkan", "a made-up adapter", language_features=frozenset({DOT_FEATURE}))
TILED, SKINNY = INT8_VARIANTS[3], INT8_VARIANTS[1]


# -- the assembled WGSL ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.label)
def test_the_text_needs_nothing_that_its_row_does_not_ask_for(key: ShaderKey) -> None:
    code = re.sub(r"//.*", "", assemble(key))
    for absent in ("enable", "requires", "override", "f16", "f32", "subgroup"):
        assert not re.search(rf"\b{absent}\b", code), absent
    assert ("dot4I8Packed" in code) == ("dot4" in key.kernel)
    assert ("atomic" in code) == key.kernel.endswith(("bytes", "finish"))
    assert code.count("@compute") == 1
    assert [int(each) for each in sorted(re.findall(r"@group\(0\) @binding\((\d)\)", code))] == list(range(5))


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.label)
def test_the_text_compiles(key: ShaderKey, device: Any) -> None:
    device.prepare([key]).wait()
    assert not device.missing([key])


def test_the_rows_ask_for_the_workgroup_memory_that_the_text_takes() -> None:
    sizes = {"vec4<u32>": 16, "vec4<i32>": 16, "i32": 4}
    for row in INT8_VARIANTS:
        arrays = re.findall(r"var<workgroup> \w+: array<([\w<>]+), (\d+)>", assemble(ShaderKey(f"{row.kernel}_sum", ())))
        taken = sum(sizes[type_] * int(count) for type_, count in arrays)
        assert any(f"{taken:,} bytes of workgroup memory" in condition.wanted for condition in row.conditions)


# -- encode ------------------------------------------------------------------------------------------------------------------


def place(device: Any, matrices: Any, leading: int, stride: int, offset: int) -> tuple[Any, Any, Any]:
    """A buffer of sentinels with the matrices laid into it, that memory as an array, and where the elements lie."""
    batch, rows, columns = matrices.shape
    memory = np.full(offset + (batch - 1) * stride + rows * leading + 7, SENTINEL, matrices.dtype)
    where = offset + stride * np.arange(batch)[:, None, None] + leading * np.arange(rows)[:, None] + np.arange(columns)
    memory[where] = matrices
    padded = np.full(-(-memory.nbytes // 4) * 4, SENTINEL, np.uint8)
    padded[: memory.nbytes] = memory.view(np.uint8)
    return device.create_buffer(padded), memory, where


def read(device: Any, buffer: Any, like: Any) -> Any:
    return np.frombuffer(device.read_buffer(buffer)[: like.nbytes], like.dtype)


def run(device: Any, gemm: Any, *arguments: Any, **options: Any) -> None:
    encoder = device.create_encoder()
    gemm.encode(encoder, *arguments, **options)
    device.submit(encoder)


def wrapped(sums: Any) -> Any:
    return (np.asarray(sums) % (1 << 32)).astype(np.uint32).view(np.int32)


def random_bytes(rng: Any, shape: tuple[int, ...], element: str) -> Any:
    return rng.integers(np.iinfo(element).min, np.iinfo(element).max + 1, shape).astype(element)


@pytest.mark.parametrize(("type_a", "type_b"), list(product(("int8", "uint8"), repeat=2)))
@pytest.mark.parametrize(("transpose_a", "transpose_b"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize("to", ["", "int8", "uint8"])
@pytest.mark.parametrize("plain", [False, True], ids=["dot4", "plain"])
def test_odd_leading_dimensions_offsets_and_batches(
    device: Any, type_a: str, type_b: str, transpose_a: bool, transpose_b: bool, to: str, plain: bool
) -> None:
    rng = np.random.default_rng(1)
    m, n, k, batch = 21, 67, 37, 3
    a, b = random_bytes(rng, (batch, m, k), type_a), random_bytes(rng, (batch, k, n), type_b)
    zeros_a, zeros_b = random_bytes(rng, (m, 1), type_a), random_bytes(rng, (1, n), type_b)
    stored_a, stored_b = (x.transpose(0, 2, 1) if swap else x for x, swap in ((a, transpose_a), (b, transpose_b)))
    lda, ldb, ldc = stored_a.shape[2] + 2, stored_b.shape[2] + 1, n + 4
    stride_a, stride_b, stride_c = stored_a.shape[1] * lda + 5, stored_b.shape[1] * ldb, m * ldc + 3
    buffer_a, _, _ = place(device, stored_a, lda, stride_a, 5)
    buffer_b, _, _ = place(device, stored_b, ldb, stride_b, 3)
    buffer_c, expected, where = place(device, np.zeros((batch, m, n), to or "int32"), ldc, stride_c, 7)
    sums = (a.astype("i8") - zeros_a) @ (b.astype("i8") - zeros_b)
    rules = None
    if to:
        scale, bias = rng.uniform(1e-4, 1e-2, (m, 1)).astype("f4"), rng.integers(-9999, 9999, n)
        rules = pg.Requantize(scale, 5, bias, to)
        sums = np.clip(np.rint((sums + bias) * scale.astype("f8")) + 5, np.iinfo(to).min, np.iinfo(to).max)
    row = INT8_VARIANTS[3 if plain else 2].name
    run(
        device, Int8Gemm(device, type_a, type_b, row), buffer_a, buffer_b, buffer_c, m, n, k, transpose_a=transpose_a,
        transpose_b=transpose_b, zero_point_a=zeros_a, zero_point_b=zeros_b, requantize=rules, batch=batch, lda=lda, ldb=ldb,
        ldc=ldc,
        stride_a=stride_a, stride_b=stride_b, stride_c=stride_c, offset_a=5, offset_b=3, offset_c=7,
    )  # fmt: skip
    expected[where] = sums
    assert np.array_equal(read(device, buffer_c, expected), expected)


@pytest.mark.parametrize("m", [1, 3, 4, 5, 16])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 66])
@pytest.mark.parametrize("row", [each.name for each in INT8_VARIANTS if each.is_skinny])
def test_few_rows(device: Any, m: int, n: int, row: str) -> None:
    rng = np.random.default_rng(m + n)
    for k, to, transpose_a in ((1, "", False), (63, "int8", True), (65, "", False), (200, "uint8", False)):
        a, b = random_bytes(rng, (2, m, k), "uint8"), random_bytes(rng, (1, k, n), "int8")
        zero_b = random_bytes(rng, (n,), "int8")
        buffer_a, _, _ = place(
            device, a.transpose(0, 2, 1) if transpose_a else a, (m if transpose_a else k) + 1, (m + 1) * (k + 1), 3
        )
        buffer_b, _, _ = place(device, b, n + 3, 0, 1)
        buffer_c, expected, where = place(device, np.zeros((2, m, n), to or "int32"), n + 1, m * (n + 1) + 1, 2)
        sums = (a.astype("i8") - 200) @ (b.astype("i8") - zero_b)
        rules = pg.Requantize(2.0**-9, dtype=to) if to else None
        run(
            device, Int8GemmSkinny(device, "uint8", "int8", row), buffer_a, buffer_b, buffer_c, m, n, k, transpose_a=transpose_a,
            zero_point_a=200, zero_point_b=zero_b, requantize=rules, batch=2, lda=(m if transpose_a else k) + 1, ldb=n + 3,
            ldc=n + 1,
            stride_a=(m + 1) * (k + 1), stride_b=0, stride_c=m * (n + 1) + 1, offset_a=3, offset_b=1, offset_c=2,
        )  # fmt: skip
        expected[where] = np.clip(np.rint(sums * 2.0**-9), np.iinfo(to).min, np.iinfo(to).max) if to else sums
        assert np.array_equal(read(device, buffer_c, expected), expected)


def test_columns_written_one_by_one_leave_their_neighbours_alone(device: Any) -> None:
    """Four products share every word of D: each owns one byte of it."""
    rng = np.random.default_rng(3)
    a = random_bytes(rng, (70, 9), "int8")
    b = random_bytes(rng, (4, 9, 1), "int8")
    d = device.create_buffer(np.full(280, SENTINEL, "u1"))
    buffer_a = device.create_buffer(np.append(a.ravel(), np.zeros(2, "i1")))
    gemm = Int8Gemm(device)
    encoder = device.create_encoder()
    buffers_b = [device.create_buffer(np.append(each.ravel(), np.zeros(3, "i1"))) for each in b]
    for column, buffer_b in enumerate(buffers_b):
        gemm.encode(encoder, buffer_a, buffer_b, d, 70, 1, 9, ldc=4, offset_c=column, requantize=pg.Requantize(2.0**-8))
    device.submit(encoder)
    expected = np.clip(np.rint((a.astype("i8") @ b.astype("i8"))[..., 0].T * 2.0**-8), -128, 127)
    assert np.array_equal(np.frombuffer(device.read_buffer(d), "i1").reshape(70, 4), expected)


def test_the_same_bits_again_and_again(device: Any) -> None:
    """Neighbours that race for the halves of a word."""
    rng = np.random.default_rng(4)
    a, b = random_bytes(rng, (65, 33), "int8"), random_bytes(rng, (33, 67), "int8")
    rules = pg.Requantize(2.0**-8, bias=rng.integers(-999, 999, 67))
    first = pg.int8_gemm(a, b, requantize=rules, device=device)
    for _ in range(30):
        assert np.array_equal(pg.int8_gemm(a, b, requantize=rules, device=device), first)


def test_nothing_is_allocated_once_seen(device: Any) -> None:
    a, b, c = device.create_buffer(np.ones(64, "i1")), device.create_buffer(np.ones(64, "i1")), device.create_buffer(256)
    gemm = Int8Gemm(device)
    rules = pg.Requantize([1.0] * 8, 3)
    options: list[dict[str, Any]] = [{}, {"zero_point_a": 4}, {"requantize": rules}, {"zero_point_b": list(range(8))}]
    for each in options:
        run(device, gemm, a, b, c, 8, 8, 8, **each)
    before = device.counts()
    for each in options * 20:
        run(device, gemm, a, b, c, 8, 8, 8, **each)
    assert device.counts() == before
    assert np.array_equal(np.frombuffer(device.read_buffer(c), "i4").reshape(8, 8), [[8 - 8 * j for j in range(8)]] * 8)
    gemm.release_bindings()
    run(device, gemm, a, b, c, 8, 8, 8)
    assert device.counts()["bind_groups"] == before["bind_groups"] + 1


def test_depth_zero_reads_nothing(device: Any) -> None:
    c = device.create_buffer(np.full(12, SENTINEL, "i4"))
    empty = device.create_buffer(0)
    run(device, Int8Gemm(device), empty, empty, c, 3, 3, 0, offset_c=1)
    assert np.frombuffer(device.read_buffer(c), "i4").tolist() == [SENTINEL, *[0] * 9, SENTINEL, SENTINEL]
    rules = pg.Requantize(1.0, 2, [[1], [2], [3]])
    run(device, Int8Gemm(device), empty, empty, c, 3, 3, 0, requantize=rules)
    assert np.frombuffer(device.read_buffer(c), "i1")[:9].tolist() == [3, 3, 3, 4, 4, 4, 5, 5, 5]
    for sizes in ((0, 3, 0), (3, 0, 0)):
        run(device, Int8Gemm(device), empty, empty, empty, *sizes)


def test_mistakes_are_named_before_anything_is_recorded(device: Any) -> None:
    a, b, c = device.create_buffer(np.ones(64, "i1")), device.create_buffer(np.ones(64, "i1")), device.create_buffer(256)
    gemm = Int8Gemm(device)
    encoder = device.create_encoder()
    rules = pg.Requantize(1.0)
    many = {"batch": 70_000, "stride_c": 1, "stride_a": 0, "stride_b": 0}
    for words, arguments, options in (
        ("encode: k is negative", (a, b, c, 8, 8, -1), {}),
        ("encode: lda is 7, less than the 8 elements of a row", (a, b, c, 8, 8, 8), {"lda": 7}),
        ("encode: a needs elements 1 to 64, its buffer holds 64", (a, b, c, 8, 8, 8), {"offset_a": 1}),
        ("encode: b needs elements 0 to 71, its buffer holds 64", (a, b, c, 8, 9, 8), {}),
        ("encode: c needs elements 3 to 66, its buffer holds 64", (a, b, c, 8, 8, 8), {"offset_c": 3}),
        ("encode: c needs elements 200 to 263, its buffer holds 256", (a, b, c, 8, 8, 8), {"offset_c": 200, "requantize": rules}),
        ("encode: zero_point_a has 2 elements, one a row; dimension m is 8", (a, b, c, 8, 8, 8), {"zero_point_a": [[1], [2]]}),
        ("encode: batch = 70,000 needs 70,000 workgroups", (a, b, c, 1, 1, 1), many),
    ):  # fmt: skip
        with pytest.raises(ShapeError, match=re.escape(words)):
            gemm.encode(encoder, *arguments, **options)
    with pytest.raises(ValueError, match="zero_point_b is 300, out of the range of int8"):
        gemm.encode(encoder, a, b, c, 8, 8, 8, zero_point_b=300)
    with pytest.raises(AliasError, match="c and b are the same device buffer"):
        gemm.encode(encoder, a, b, b, 2, 2, 2)
    with pytest.raises(ValueError, match="unknown dtype_b 'int16'; an Int8Gemm takes int8 or uint8"):
        Int8Gemm(device, "int8", "int16")
    with pytest.raises(ValueError, match="unknown int8 variant 'x'; known: int8-tiled"):
        Int8Gemm(device, variant="x")
    skinny = Int8GemmSkinny(device)
    with pytest.raises(ShapeError, match="m is 17; Int8GemmSkinny takes at most 16 rows"):
        skinny.encode(encoder, a, b, c, 17, 1, 1)
    with pytest.raises(ShapeError, match="b is transposed; Int8GemmSkinny takes B stored K x N"):
        skinny.encode(encoder, a, b, c, 2, 3, 4, transpose_b=True)
    assert skinny.variant.startswith("int8-skinny")


# -- the choice --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "by_rows", "dot", "name"),
    [
        (1, True, True, "int8-skinny-4x32-16slices-dot4"),
        (16, True, True, "int8-skinny-4x32-16slices-dot4"),
        (16, True, False, "int8-skinny-4x32-16slices"),
        (17, True, True, "int8-tiled-64x64x64-dot4"),
        (1, False, True, "int8-tiled-64x64x64-dot4"),
        (17, True, False, "int8-tiled-64x64x64"),
    ],
)
def test_the_first_row_that_fits_is_taken(m: int, by_rows: bool, dot: bool, name: str) -> None:
    capabilities = GUARANTEED if dot else replace(GUARANTEED, language_features=frozenset())
    assert choose_int8_variant(Int8Request(capabilities, m, by_rows)).name == name


@pytest.mark.parametrize(
    ("limit", "enough", "words"),
    [
        ("max_compute_invocations_per_workgroup", 256, "256 invocations"),
        ("max_compute_workgroup_size_x", 256, "256 invocations"),
        ("max_compute_workgroup_storage_size", 9216, "9,216 bytes of workgroup memory"),
        ("max_storage_buffers_per_shader_stage", 4, "4 storage buffers"),
    ],
)
def test_a_limit_one_short_is_refused_in_words(limit: str, enough: int, words: str) -> None:
    def request(value: int) -> Int8Request:
        return Int8Request(replace(GUARANTEED, limits=replace(Limits(), **{limit: value})), 64, True)

    assert choose_int8_variant(request(enough)).name == "int8-tiled-64x64x64-dot4"
    with pytest.raises(UnsupportedError, match=words):
        choose_int8_variant(request(enough - 1))


def test_a_forced_row_without_its_feature_is_refused() -> None:
    bare = replace(GUARANTEED, language_features=frozenset())
    with pytest.raises(
        UnsupportedError, match="int8-tiled-64x64x64-dot4 needs the WGSL language feature packed_4x8_integer_dot_product"
    ):
        choose_int8_variant(Int8Request(bare, 64, True), "int8-tiled-64x64x64-dot4")


def test_wgpu_is_asked_for_the_feature_that_it_does_not_list(device: Any) -> None:
    assert DOT_FEATURE in device.capabilities.language_features


# -- plans -------------------------------------------------------------------------------------------------------------------


def covered(
    problem: Problem, variant: Int8Variant, limits: Limits, most_flops: int | None = None
) -> Iterator[tuple[int, int, int, int]]:
    """(element of D, of A, of B at k = 0, of the block's row and column as one number) of everything that the plan computes."""
    steps, scratch = plan_int8(problem, variant, limits, most_flops, (3, 7))
    assert scratch == 0
    for step in steps:
        words = np.frombuffer(step.parameters, "<i4").tolist()
        m, n, _, _, a, a_row, _, a_batch, b, _, b_column, b_batch, d, d_row, d_batch, first_row, first_column = words
        most = limits.max_compute_workgroups_per_dimension
        assert step.workgroups[0] == -(-n // variant.tile[1]) <= most
        assert step.workgroups[1] == -(-m // variant.tile[0]) <= most
        assert step.workgroups[2] <= most
        for z, i, j in product(range(step.workgroups[2]), range(m), range(n)):
            yield (
                d + z * d_batch + i * d_row + j,
                a + z * a_batch + i * a_row,
                b + z * b_batch + j * b_column,
                (first_row - 3 + i) * 10_000 + first_column - 7 + j,
            )


@given(
    st.integers(1, 9), st.integers(1, 70), st.lists(st.integers(1, 3), max_size=3), st.integers(1, 3),
    st.sampled_from([(2, 1), (1, 3), (64, 64)]), st.sampled_from([None, 40, 400]), st.sampled_from([INT8, INT32]),
)  # fmt: skip
def test_plans_cover_every_element_once(
    m: int, n: int, batch: list[int], most: int, tile: tuple[int, int], most_flops: int | None, result: ElementType
) -> None:
    row = replace(TILED, tile=tile)
    k = 5
    sizes = tuple(batch)
    d = dense_layout(m, n, sizes, result)
    b = replace(dense_layout(k, n, sizes, UINT8), batch_strides=(0,) * len(sizes))
    problem = Problem(m, n, k, dense_layout(m, k, sizes, INT8), b, d, batch=sizes)
    limits = replace(Limits(), max_compute_workgroups_per_dimension=max(most, -(-m // tile[0]) // 40))
    found = sorted(covered(problem, row, limits, most_flops))
    count = m * n * int(np.prod(sizes, dtype=int))
    rows = [(index // n, index % n) for index in range(count)]
    assert found == [(index, i * k, j, (i % m) * 10_000 + j) for index, (i, j) in enumerate(rows)]


@pytest.mark.parametrize(
    ("a", "b", "flags"),
    [
        (Layout(INT8, 9, 1), Layout(INT8, 7, 1), 4 | 32),
        (Layout(UINT8, 1, 5), Layout(UINT8, 1, 9), 1 | 2 | 8 | 16),
        (Layout(INT8, -9, -1), Layout(UINT8, 14, 2), 2),
        (Layout(INT8, 0, 1), Layout(INT8, 0, 0), 4),
    ],
)
def test_flags_say_what_neighbours_in_memory(a: Layout, b: Layout, flags: int) -> None:
    (step,), _ = plan_int8(Problem(5, 7, 9, a, b, Layout(INT32, 7, 1)), TILED, Limits())
    assert np.frombuffer(step.parameters, "<u4")[3] == flags


@pytest.mark.parametrize("k", [DEEPEST, DEEPEST + 1, 2 * DEEPEST + 5])
@pytest.mark.parametrize("result", [INT32, INT8])
def test_a_deep_k_is_cut_into_parts_that_add_up(k: int, result: ElementType) -> None:
    problem = Problem(3, 40, k, Layout(INT8, k, 1), Layout(INT8, 40, 1), Layout(result, 40, 1))
    steps, scratch = plan_int8(problem, TILED, Limits())
    parts = [step for step in steps if step.shader.kernel != "int8_finish"]
    words = [np.frombuffer(step.parameters, "<u4") for step in parts]
    assert sum(int(each[2]) for each in words) == k
    assert max(int(each[2]) for each in words) <= DEEPEST
    assert [int(each[4]) for each in words] == [DEEPEST * index for index in range(len(parts))]
    assert [int(each[8]) for each in words] == [DEEPEST * 40 * index for index in range(len(parts))]
    assert [bool(each[3] & ADDS) for each in words] == [index > 0 for index in range(len(parts))]
    finishes = result is INT8 and k > DEEPEST
    assert [step.buffers[3] for step in steps] == [*["scratch" if finishes else "sum"] * len(parts), *["sum"] * finishes]
    assert scratch == (3 * 40 * 4 if finishes else 0)
    assert sum(step.flops for step in steps) == 2 * 3 * 40 * k


@pytest.mark.parametrize("skinny", [False, True])
def test_a_deep_product_in_a_callers_encoder(device: Any, skinny: bool) -> None:
    rng = np.random.default_rng(7)
    m, n, k = 5, 9, 70_001
    a, b = random_bytes(rng, (1, m, k), "int8"), random_bytes(rng, (1, k, n), "uint8")
    zeros = random_bytes(rng, (m, 1), "int8")
    buffer_a, _, _ = place(device, a, k + 2, 0, 1)
    buffer_b, _, _ = place(device, b, n + 1, 0, 3)
    gemm = (Int8GemmSkinny if skinny else Int8Gemm)(device, "int8", "uint8")
    sums = (a[0].astype("i8") - zeros) @ (b[0].astype("i8") - 128)
    for to in ("", "int8"):
        buffer_c, expected, where = place(device, np.zeros((1, m, n), to or "int32"), n + 3, 0, 5)
        rules = pg.Requantize(2.0**-16, 3, dtype=to) if to else None
        run(
            device, gemm, buffer_a, buffer_b, buffer_c, m, n, k, zero_point_a=zeros, zero_point_b=128, requantize=rules, lda=k + 2,
            ldb=n + 1, ldc=n + 3, offset_a=1, offset_b=3, offset_c=5,
        )  # fmt: skip
        expected[where] = np.clip(np.rint(sums * 2.0**-16) + 3, -128, 127) if to else sums
        assert np.array_equal(read(device, buffer_c, expected), expected)
