"""The register tiles: every row exact on whole numbers at every edge and storage, in its stated order, within its accuracy; chosen
only where preferred or forced."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as cross
from typing import Any

import numpy as np
import pytest

from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32
from py_gemm.errors import UnsupportedError
from py_gemm.gpu.capabilities import Capabilities, Limits
from py_gemm.gpu.planner import plan_operation
from py_gemm.gpu.register_tile import (
    A_VECTORS_ACROSS,
    A_VECTORS_ALONG_K,
    B_VECTORS_ACROSS,
    B_VECTORS_ALONG_K,
    CHAIN,
    TILES,
    kernel_text,
)
from py_gemm.gpu.split import choose_ranges
from py_gemm.gpu.variants import REGISTER_ROWS, TILED, Request, Shape, SummationOrder, choose_variant
from py_gemm.problem import Layout, Problem

from .test_planner import dense, gemm_parameters
from .tools import numpy_type, product, reference, replayed, small_integers

PLAIN = Capabilities("vulkan", "a made-up adapter")
ROWS = pytest.mark.parametrize("row", REGISTER_ROWS, ids=lambda row: row.name)
# Those that take 16 bits as well; the others are for float32.
SCALAR = [tile.name for tile in TILES if tile.scalar]
SCALAR_ROWS = pytest.mark.parametrize("row", [row for row in REGISTER_ROWS if row.name in SCALAR], ids=lambda row: row.name)


@ROWS
@pytest.mark.parametrize(("storage_a", "storage_b"), list(cross("KM", "NK")))
def test_every_edge_and_every_storage(device: Any, row: Any, storage_a: str, storage_b: str) -> None:
    """Whole tiles with vectors, ragged ones without; leading dimensions that are multiples of four and that are not."""
    tile_m, tile_n, depth = row.tile
    rng = np.random.default_rng(1)
    for m, n, k in (
        (1, 1, 1), (tile_m, tile_n, depth), (tile_m, tile_n, 4 * depth), (tile_m + 1, tile_n + 1, depth + 1),
        (2 * tile_m - 1, 2 * tile_n + 3, 2 * depth + 4), (2 * tile_m, tile_n + 4, 300),
    ):  # fmt: skip
        a, b = small_integers(rng, (2, m, k), FLOAT32), small_integers(rng, (k, n), FLOAT32)
        left = a if storage_a == "K" else np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
        right = b if storage_b == "N" else np.ascontiguousarray(b.T).T
        assert np.array_equal(product(device, left, right, variant=row.name), reference(a, b)), (m, n, k)


@ROWS
@pytest.mark.parametrize(("m", "n", "k"), [(9, 70, 63), (9, 70, 64), (9, 70, 65), (70, 9, 127), (66, 64, 500), (64, 64, 1024)])
def test_the_stated_order_bit_for_bit(device: Any, row: Any, m: int, n: int, k: int) -> None:
    """Values of eleven bits: their products are exact, so fused or not the bits are the same. Whole k and split k."""
    rng = np.random.default_rng(k)
    a, b = (rng.uniform(0.5, 2.0, shape).astype("f2").astype("f4") for shape in ((m, k), (k, n)))
    assert row.order == SummationOrder(CHAIN, 1, 1)
    ranges = choose_ranges(Shape(m, n, k), row)
    assert np.array_equal(product(device, a, b, variant=row.name), replayed(row, a, b, fused=True, ranges=ranges))
    whole = product(device, a, b, variant=row.name, whole=Shape(1 << 20, 64, k))
    assert np.array_equal(whole, replayed(row, a, b, fused=True))


@SCALAR_ROWS
@pytest.mark.parametrize("types", [(FLOAT16, FLOAT16), (BFLOAT16, BFLOAT16), (FLOAT32, FLOAT16), (BFLOAT16, FLOAT32)], ids=str)
def test_elements_of_any_type_and_stride_in_the_stated_order(device: Any, row: Any, types: Any) -> None:
    """Transposed, every other element, backwards, one row for all; values of eight bits, whose products are exact."""
    rng = np.random.default_rng(3)
    for m, n, k in ((1, 1, 1), (16, 32, 64), (17, 33, 67), (37, 70, 130)):
        wide_a, wide_b = (
            rng.uniform(0.5, 2.0, shape).astype(numpy_type(BFLOAT16)).astype(numpy_type(type_))
            for type_, shape in zip(types, ((2, 2 * k, m), (2 * k, 2 * n)), strict=True)
        )
        a, b = wide_a.swapaxes(-1, -2)[:, :, ::2], wide_b[k:, ::-2]
        assert np.array_equal(product(device, a, b, variant=row.name), replayed(row, a, b, fused=True)), (m, n, k)
        one = np.broadcast_to(a[0, :1], (m, k))
        assert np.array_equal(product(device, one, b, variant=row.name), replayed(row, one, b, fused=True)), (m, n, k)


@SCALAR_ROWS
def test_an_element_s_bits_do_not_depend_on_what_stands_beside_it(device: Any, row: Any) -> None:
    """Nor on the block in which it is computed, nor on the way that its operands lie: k is never split."""
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((3, 45, 700)).astype("f4"), rng.standard_normal((700, 61)).astype("f4")
    assert choose_ranges(Shape(3, 5, 1 << 20), row).count == 1
    whole = product(device, a, b, variant=row.name)
    assert np.array_equal(product(device, a[1, 7:12], b[:, 20:23], variant=row.name), whole[1, 7:12, 20:23])
    across = np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2), np.ascontiguousarray(b.T).T
    assert np.array_equal(product(device, *across, variant=row.name, batch_invariant=True), whole)


@SCALAR_ROWS
def test_what_lies_past_an_edge_is_neither_counted_nor_overwritten(device: Any, row: Any) -> None:
    """An infinity in the last row or column stays there, and NaN where it belongs."""
    rng = np.random.default_rng(5)
    a, b = (small_integers(rng, shape, FLOAT32) for shape in ((19, 70), (70, 35)))
    a[18, 69], b[69, 34], b[0, 3] = np.inf, np.nan, -np.inf
    a[:, 0] = 1.0
    with np.errstate(invalid="ignore"):
        expected = reference(a, b)
    assert np.array_equal(product(device, a, b, variant=row.name), expected, equal_nan=True)


@ROWS
@pytest.mark.parametrize("k", [768, 3072, 4096])
def test_accuracy(device: Any, row: Any, k: int) -> None:
    """Split and whole: the scaled error stays under 4e-7."""
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(shape).astype("f4") for shape in ((64, k), (k, 64)))
    exact = reference(a, b)
    for options in ({}, {"whole": Shape(1 << 20, 64, k)}):
        found = product(device, a, b, **{"variant": row.name, **options})
        assert np.abs(found - exact).max() / np.abs(exact).max() <= 4e-7


@pytest.mark.parametrize("storage", ["whole", "few rows"])
@pytest.mark.parametrize("k", [768, 1536, 4096])
def test_accuracy_of_the_other_rows(device: Any, storage: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(shape).astype("f4") for shape in ((4 if storage == "few rows" else 64, k), (k, 64)))
    exact = reference(a, b)
    assert np.abs(product(device, a, b) - exact).max() / np.abs(exact).max() <= 4e-7


@ROWS
def test_taken_where_preferred_in_fast_mode_and_nowhere_else(row: Any) -> None:
    """The scalar row takes 16 bits too and, as it never splits k, products whose bits may not depend on what stands beside them."""
    liked = replace(PLAIN, preferred=row.name)
    shape = Shape(100, 100, 100)
    assert choose_variant(Request(PLAIN, FLOAT32, FLOAT32, shape=shape)) is TILED
    assert choose_variant(Request(liked, FLOAT32, FLOAT32, shape=shape)) is row
    assert choose_variant(Request(liked, FLOAT32, FLOAT32, "deterministic", shape=shape)) is TILED
    elsewhere = row if row.name in SCALAR else TILED
    assert choose_variant(Request(liked, FLOAT16, FLOAT32, shape=shape)) is elsewhere
    assert choose_variant(Request(liked, BFLOAT16, FLOAT16, "deterministic", shape=shape)) is TILED
    assert choose_variant(Request(liked, FLOAT32, FLOAT32, shape=replace(shape, batch_invariant=True))) is elsewhere
    assert choose_variant(Request(liked, FLOAT32, FLOAT32, shape=replace(shape, m=3))).shape_conditions
    assert choose_variant(Request(PLAIN, FLOAT32, FLOAT32), row.name) is row
    with pytest.raises(UnsupportedError, match='needs mode "fast"'):
        choose_variant(Request(PLAIN, FLOAT32, FLOAT32, "deterministic"), row.name)


@ROWS
def test_a_device_one_short_of_a_limit_does_not_take_it(row: Any) -> None:
    (tile,) = [tile for tile in TILES if tile.name == row.name]
    for change in (
        {"max_compute_invocations_per_workgroup": tile.invocations - 1},
        {"max_compute_workgroup_storage_size": tile.workgroup_bytes - 1},
        {"max_storage_buffers_per_shader_stage": 3 if tile.scalar else 5},
    ):
        small = replace(PLAIN, preferred=row.name, limits=replace(Limits(), **change))
        request = Request(small, FLOAT32, FLOAT32)
        assert all(condition.holds(replace(request, capabilities=PLAIN)) for condition in row.conditions)
        assert not all(condition.holds(request) for condition in row.conditions)


def test_vectors_only_where_everything_is_a_multiple_of_four() -> None:
    row = REGISTER_ROWS[0]
    every = A_VECTORS_ALONG_K | A_VECTORS_ACROSS | B_VECTORS_ALONG_K | B_VECTORS_ACROSS

    def flags(a: Layout, b: Layout, batch: tuple[int, ...] = ()) -> int:
        problem: Problem = replace(dense(64, 64, 64, batch), a=a, b=b)
        plan = plan_operation(
            problem, row, Limits(), ranges=choose_ranges(Shape(1 << 20, 64, 64), row), activation=0, has_bias=False  # type: ignore[arg-type]
        )  # fmt: skip
        assert plan.steps[0].buffers == ("a", "b", "nothing", "sum", "a", "b")
        return int(gemm_parameters(plan.steps[0])["flags"]) & every

    rows, columns = Layout(FLOAT32, 64, 1), Layout(FLOAT32, 1, 64)
    assert flags(rows, rows) == A_VECTORS_ALONG_K | B_VECTORS_ACROSS
    assert flags(columns, columns) == A_VECTORS_ACROSS | B_VECTORS_ALONG_K
    for wrong in (
        replace(rows, offset=2),
        replace(rows, row_stride=66),
        replace(rows, column_stride=2),
        replace(rows, row_stride=-64),
    ):
        assert flags(wrong, wrong) == 0
    assert flags(replace(rows, batch_strides=(4098,)), replace(rows, batch_strides=(4096,)), (2,)) == B_VECTORS_ACROSS


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
def test_a_body_stays_short(tile: Any) -> None:
    """Long unrolled bodies take minutes in some compilers: no loop has more than 256 multiply-adds."""
    loops = kernel_text(tile).split("for (")
    assert max(loop.count("= fma(") for loop in loops) * 4 <= 256
    assert tile.invocations <= 256
    assert tile.workgroup_bytes <= 16_384
