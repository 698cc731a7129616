"""Split k and few rows: the pure choice at every threshold, plans that keep the whole product's ranges, and the stated bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32
from py_gemm.gpu.capabilities import Capabilities
from py_gemm.gpu.gemm import Gemm
from py_gemm.gpu.operation import GemmOperation
from py_gemm.gpu.split import (
    MINIMUM_K,
    MINIMUM_TERMS,
    MOST_RANGES,
    SCRATCH_BYTES,
    TERMS_STEP,
    WORKGROUPS,
    Ranges,
    choose_ranges,
)
from py_gemm.gpu.variants import (
    FEW_ROWS,
    ROWS,
    ROWS_BY_COLUMNS,
    ROWS_WIDE,
    TILED,
    VARIANTS,
    WIDE_COLUMNS,
    Request,
    Shape,
    choose_variant,
)
from py_gemm.problem import Problem

from . import tools
from .tools import TYPES, numpy_type, product, replayed

PLAIN = Capabilities("vulkan", "a made-up adapter")

SPLITS = [
    ((128, 768, 768), Ranges(12, 64)),
    ((128, 768, 3072), Ranges(16, 192)),
    ((1024, 768, 3072), Ranges(2, 1536)),
    ((64, 64, MINIMUM_K - 1), Ranges(1, MINIMUM_K - 1)),
    ((64, 64, MINIMUM_K), Ranges(2, 64)),
    ((64, 64, 129), Ranges(2, 96)),
    ((64 * (WORKGROUPS - 1), 64, 4096), Ranges(2, 2048)),
    ((64 * WORKGROUPS, 64, 4096), Ranges(1, 4096)),
    ((64 * 190, 64, 4096), Ranges(3, 1376)),
    ((2048, 704, 4096), Ranges(2, 2048)),
    ((0, 64, 4096), Ranges(1, 4096)),
]


@pytest.mark.parametrize(("sizes", "expected"), SPLITS, ids=str)
def test_ranges_follow_from_the_shape(sizes: tuple[int, int, int], expected: Ranges) -> None:
    assert choose_ranges(Shape(*sizes), TILED) == expected


@given(
    st.integers(1, 30_000), st.integers(1, 30_000), st.integers(0, 1 << 20), st.integers(1, 400), st.booleans()
)  # fmt: skip
def test_ranges_keep_every_promise(m: int, n: int, k: int, products: int, invariant: bool) -> None:
    shape = Shape(m, n, k, products, batch_invariant=invariant)
    ranges = choose_ranges(shape, TILED)
    assert 1 <= ranges.count <= MOST_RANGES
    assert (ranges.count - 1) * ranges.terms < max(k, 1) <= max(ranges.count * ranges.terms, 1)
    if ranges.count > 1:
        assert k >= MINIMUM_K
        assert ranges.terms % TERMS_STEP == 0
        assert ranges.terms >= MINIMUM_TERMS
        if not invariant:
            assert -(-m // 64) * -(-n // 64) * products < WORKGROUPS
            assert ranges.count * m * n * products * 4 <= SCRATCH_BYTES
    if invariant:
        assert ranges == choose_ranges(Shape(1, n, k, 1, batch_invariant=True), TILED)


FEW = [
    (Shape(1, 100, 7), ROWS),
    (Shape(FEW_ROWS, WIDE_COLUMNS - 1, 7), ROWS),
    (Shape(FEW_ROWS, WIDE_COLUMNS, 7), ROWS_WIDE),
    (Shape(FEW_ROWS + 1, WIDE_COLUMNS, 7), TILED),
    (Shape(FEW_ROWS, 100, 7, b_transposed=True), ROWS_BY_COLUMNS),
    (Shape(FEW_ROWS, WIDE_COLUMNS, 7, b_transposed=True), ROWS_BY_COLUMNS),
    (Shape(FEW_ROWS + 1, 100, 7, b_transposed=True), TILED),
    (Shape(2, 100, 7, a_transposed=True), TILED),
    (Shape(1, 100, 7, batch_invariant=True), TILED),
]


@pytest.mark.parametrize(("shape", "row"), FEW, ids=str)
@pytest.mark.parametrize("mode", ["fast", "deterministic"])
@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
def test_few_rows_follow_from_the_shape(shape: Shape, row: Any, mode: str, type_: Any) -> None:
    assert choose_variant(Request(PLAIN, type_, type_, mode, shape=shape)) is row


def operands(type_: Any, m: int, n: int, k: int, batch: Any = ()) -> tuple[Any, Any]:
    rng = np.random.default_rng((m, n, k))
    a = rng.uniform(0.5, 2.0, (*batch, m, k)).astype(numpy_type(type_))
    return a, rng.uniform(0.5, 2.0, (*batch, k, n)).astype(numpy_type(type_))


def stated(a: Any, b: Any, *, stored_by_columns: bool = False, invariant: bool = False, fused: bool = True) -> Any:
    """What the table says the bits are."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    products = int(np.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), dtype=int))
    shape = Shape(m, n, k, products, b_transposed=stored_by_columns or n == 1, batch_invariant=invariant)
    row = choose_variant(Request(PLAIN, TYPES[a.dtype.name], TYPES[b.dtype.name], shape=shape))
    return replayed(row, a, b, fused=fused, ranges=choose_ranges(shape, row))


SIZES = [(5, 7, 127), (5, 7, 128), (5, 7, 129), (65, 3, 300), (9, 130, 1000), (5, 6, 2100)]


@pytest.mark.parametrize("type_", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_split_sums_of_halves_have_the_stated_bits(device: Any, type_: Any, sizes: Any, batch: Any) -> None:
    a, b = operands(type_, sizes[0], sizes[1], sizes[2], batch)
    assert np.array_equal(product(device, a, b), stated(a, b))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_split_sums_of_float32_have_them_fused_or_not(device: Any, sizes: Any) -> None:
    a, b = operands(FLOAT32, *sizes)
    found = product(device, a, b)
    assert any(np.array_equal(found, stated(a, b, fused=fused)) for fused in (True, False))


@pytest.mark.parametrize("type_", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("m", range(1, FEW_ROWS + 1))
@pytest.mark.parametrize(
    ("n", "k"), [(1, 1), (2, 33), (15, 16), (16, 17), (17, 100), (33, 1), (40, 255), (20, 1100), (8191, 9), (8192, 9), (8193, 40)]
)
@pytest.mark.parametrize("by_columns", [False, True])
def test_few_rows_have_the_stated_bits(device: Any, type_: Any, m: int, n: int, k: int, by_columns: bool) -> None:
    a, b = operands(type_, m, n, k)
    given = np.ascontiguousarray(b.T).T if by_columns else b
    found = product(device, a, given)
    if k == 1:
        assert np.array_equal(found, a.astype("f4") @ b.astype("f4"))
    else:
        assert np.array_equal(found, stated(a, b, stored_by_columns=by_columns))


def test_mixed_types_in_few_rows(device: Any) -> None:
    rng = np.random.default_rng(3)
    for type_a in TYPES.values():
        for type_b in TYPES.values():
            a, b = tools.small_integers(rng, (2, 3, 65), type_a), tools.small_integers(rng, (65, 50), type_b)
            c, bias = tools.small_integers(rng, (3, 50), FLOAT16), rng.integers(-4, 4, 50).astype("f4")
            found = product(device, a, b, c, alpha=2.0, beta=-1.0, bias=bias)
            assert np.array_equal(found, 2 * tools.reference(a, b) - c.astype("f8") + bias)
            found = product(device, a, np.ascontiguousarray(b.T).T, c, alpha=2.0, beta=-1.0, bias=bias)
            assert np.array_equal(found, 2 * tools.reference(a, b) - c.astype("f8") + bias)


@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
def test_batch_invariant_bits_do_not_depend_on_rows_or_products(device: Any, type_: Any) -> None:
    a, b = operands(type_, 200, 70, 300, (3,))
    whole = product(device, a, b, batch_invariant=True)
    for part in (slice(0, 1), slice(5, 9), slice(60, 70), slice(199, 200)):
        assert np.array_equal(product(device, a[:, part], b, batch_invariant=True), whole[:, part])
        assert np.array_equal(product(device, a[1, part], b[1], batch_invariant=True), whole[1, part])
    if type_ is not FLOAT32:
        assert np.array_equal(whole, stated(a, b, invariant=True))


def test_limits_cut_a_split_product_without_changing_a_bit(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(FLOAT32, 200, 150, 700, (3,))
    whole = product(device, a, b)
    before = device.capabilities
    for change in ({"max_compute_workgroups_per_dimension": 19}, {"max_storage_buffer_binding_size": 3 * 200 * 700 * 4 + 64}):
        monkeypatch.setattr(device, "capabilities", replace(before, limits=replace(before.limits, **change)))
        assert np.array_equal(product(device, a, b), whole), change


def encoded(device: Any, gemm: Gemm, a: Any, b: Any, *, fill: float = np.nan, **options: Any) -> Any:
    m, k = a.shape
    n = b.shape[0] if options.get("transpose_b") else b.shape[1]
    buffers = [device.create_buffer(np.ascontiguousarray(each).view(np.uint8)) for each in (a, b)]
    c = device.create_buffer(np.full(m * n, fill, "f4"))
    encoder = device.create_encoder()
    gemm.encode(encoder, buffers[0], buffers[1], c, m, n, k, **options)
    device.submit(encoder)
    return np.frombuffer(device.read_buffer(c), "f4").reshape(m, n)


def test_the_scratch_belongs_to_the_gemm_and_is_made_once(device: Any) -> None:
    gemm = Gemm(device, "float16")
    a, b = operands(FLOAT16, 5, 7, 300)
    made = []
    small = operands(FLOAT16, 5, 7, 20)
    encoded(device, gemm, *small)
    made.append(gemm._scratch)
    for _ in range(2):
        assert np.array_equal(encoded(device, gemm, a, b), stated(a, b))
        made.append(gemm._scratch)
    nothing, first, second = made
    assert nothing is None
    assert first is second
    assert first is not None
    assert first.nbytes == SCRATCH_BYTES
    gemm.release_bindings()
    assert first.allocation is None
    assert np.array_equal(encoded(device, gemm, a, b), stated(a, b))


def test_encode_takes_few_rows_and_a_forced_row(device: Any) -> None:
    a, b = operands(FLOAT16, 3, 40, 300)
    assert np.array_equal(encoded(device, Gemm(device, "float16"), a, b), stated(a, b))
    transposed = encoded(device, Gemm(device, "float16"), a, np.ascontiguousarray(b.T), transpose_b=True)
    assert np.array_equal(transposed, stated(a, b, stored_by_columns=True))
    forced = encoded(device, Gemm(device, "float16", variant=TILED.name), a, b)
    ranges = choose_ranges(Shape(3, 40, 300), TILED)
    assert np.array_equal(forced, replayed(TILED, a, b, fused=True, ranges=ranges))
    wide = encoded(device, Gemm(device, "float16", batch_invariant=True), a, b)
    assert np.array_equal(wide, stated(a, b, invariant=True))
    with pytest.raises(Exception, match=r"rows-4x16-16slices needs at most 4 rows of A"):
        encoded(device, Gemm(device, "float16", variant=ROWS.name), *operands(FLOAT16, 5, 40, 30))


@pytest.mark.parametrize("row", [row for row in VARIANTS if row.splits], ids=lambda row: row.name)
def test_rows_that_split_are_tiles(row: Any) -> None:
    assert not row.shape_conditions


@pytest.mark.parametrize("mode", ["fast", "deterministic"])
def test_two_runs_give_the_same_bits_under_load(device: Any, mode: str) -> None:
    """Split, few rows of both storages and whole, again and again, while other work is queued before and behind."""
    cases = [operands(FLOAT32, 70, 90, 900), operands(FLOAT32, 3, 200, 900), operands(FLOAT32, 130, 70, 100)]
    few, transposed = operands(FLOAT32, 2, 90, 500)
    cases.append((few, np.ascontiguousarray(transposed.T).T))
    first = [product(device, a, b, mode=mode) for a, b in cases]
    load_a, load_b = (tools.operand(each) for each in operands(FLOAT32, 200, 200, 200))
    load = GemmOperation(device, Problem(200, 200, 200, load_a.layout, load_b.layout, load_a.layout))
    for _ in range(8):
        for (a, b), expected in zip(cases, first, strict=True):
            load.start(load_a, load_b)
            assert np.array_equal(product(device, a, b, mode=mode), expected)
            load.start(load_a, load_b)
