"""The cache model at its edges: blocks fit the geometry, are multiples of the tile, and regions do not overlap."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_gemm.cpu.blocking import DEFAULT_GEOMETRY, FIXED_BYTES, Geometry, block, deep_k_bytes
from py_gemm.cpu.families import ROWS
from tests.cpu.support import row_named

TILED = [row for row in ROWS if not row.reads_in_place]
FEW_ROWS = [row for row in ROWS if row.reads_in_place]
SIZES = st.integers(1, 5000)
GEOMETRIES = st.builds(Geometry, st.integers(1, 1 << 18), st.integers(1, 1 << 21), st.integers(1, 1 << 23))


@given(st.sampled_from(TILED), SIZES, SIZES, st.integers(0, 5000), GEOMETRIES, st.booleans())
def test_blocks_are_whole_tiles_and_regions_lie_apart(
    row: object, m: int, n: int, k: int, geometry: Geometry, prepacked: bool
) -> None:
    assert row in ROWS
    chosen = next(each for each in ROWS if each is row)
    size = chosen.accumulator.size
    cut = block(chosen, m, n, k, geometry, prepacked=prepacked)
    lanes = chosen.rows * chosen.copies_a + chosen.columns
    in_l1 = not chosen.head_words and lanes * -(-k // chosen.depth_multiple) * size <= geometry.l1_bytes
    assert cut.slice == (max(k, cut.chain) if (chosen.has_single_panel or in_l1) and not prepacked else cut.chain)
    assert cut.slice == cut.chain or cut.slice >= k, "a slice ends where a chain does, so that no group of steps is cut"
    depth = -(-min(cut.slice, k) // chosen.depth_multiple) + chosen.head_words  # words a lane
    assert cut.block_rows % chosen.rows == cut.block_columns % chosen.columns == cut.total_rows % chosen.rows == 0
    assert 0 < cut.block_rows <= cut.total_rows
    row_bytes = depth * size * chosen.copies_a
    assert cut.block_rows * row_bytes <= max(geometry.a_bytes, chosen.rows * row_bytes)
    assert cut.block_columns * depth * size <= max(geometry.b_bytes, chosen.columns * depth * size)
    assert cut.panel_a >= FIXED_BYTES
    assert cut.panel_b >= cut.panel_a + cut.block_rows * row_bytes
    assert cut.totals >= cut.panel_b + cut.block_columns * depth * size
    if k > cut.slice:
        assert cut.scratch_bytes >= cut.totals + cut.total_rows * cut.block_columns * size
    else:
        assert cut.scratch_bytes >= cut.totals + chosen.rows * chosen.columns * size, "the totals of one tile"
        assert cut.total_rows >= m, "one slice needs no more totals, so all rows go in one sweep"
    assert cut.panel_a % 64 == cut.panel_b % 64 == cut.totals % 64 == 0


@given(st.sampled_from(FEW_ROWS), SIZES, SIZES, st.integers(0, 5000), st.booleans())
def test_regions_of_few_rows_hold_what_the_kernel_puts_there(row: object, m: int, n: int, k: int, b_by_columns: bool) -> None:
    chosen = next(each for each in ROWS if each is row)
    size = chosen.accumulator.size
    cut = block(chosen, m, n, k, b_by_columns=b_by_columns)
    sums = chosen.rows * cut.block_columns * size
    assert cut.block_columns % chosen.columns == 0
    assert cut.panel_a >= FIXED_BYTES
    assert cut.panel_b >= cut.panel_a + chosen.rows * -(-min(cut.chain, k) // chosen.depth_multiple) * size
    assert cut.totals >= cut.panel_b + sums
    assert cut.scratch_bytes >= cut.totals + sums
    assert cut.panel_a % 64 == cut.panel_b % 64 == cut.totals % 64 == 0


@given(st.sampled_from(ROWS), SIZES, SIZES, st.integers(1, 5000))
def test_chain_depends_on_k_alone(row: object, m: int, n: int, k: int) -> None:
    chosen = next(each for each in ROWS if each is row)
    assert block(chosen, m, n, k).chain == block(chosen, 1, 1, k).chain == chosen.order.chain_length(k)


@pytest.mark.parametrize("name", [row.name for row in ROWS])
@pytest.mark.parametrize("size", [1, 64, 256, 257, 1024, 4096, 1 << 20])
def test_scratch_is_bounded_whatever_the_size(name: str, size: int) -> None:
    row = row_named(name)
    panels = (row.rows + row.columns) * size * row.element.size if row.has_single_panel else 0
    tile = row.rows * row.columns * row.accumulator.size
    bound = FIXED_BYTES + 3 * 64 + DEFAULT_GEOMETRY.a_bytes + DEFAULT_GEOMETRY.b_bytes + DEFAULT_GEOMETRY.totals_bytes + tile
    assert block(row, size, size, size).scratch_bytes <= bound + panels


def test_default_blocks_of_a_large_square() -> None:
    cut = block(row_named("gemm_f32_6x8_relaxed"), 1024, 1024, 1024)
    assert (cut.chain, cut.slice, cut.block_rows, cut.block_columns, cut.total_rows) == (256, 256, 114, 1024, 1026)
    cut = block(row_named("gemm_bf16_6x8_relaxed"), 1024, 1024, 1024)
    assert (cut.chain, cut.slice, cut.block_rows, cut.block_columns, cut.total_rows) == (256, 1024, 30, 256, 1026)


def test_a_depth_whose_panels_share_the_first_cache_is_one_slice() -> None:
    """(6 + 8) lanes x 4 bytes x 585 steps are 32,760 bytes; one step more, and a chain at a time is packed."""
    row = row_named("gemm_f32_6x8_relaxed")
    assert [block(row, 512, 512, k).slice for k in (256, 512, 585, 586)] == [256, 512, 585, 196]
    assert block(row, 512, 512, 512, prepacked=True).slice == 256, "prepacked panels lie chain by chain"


def test_default_geometry_is_the_model_of_one_machine() -> None:
    """The panels that a micro-kernel reads lie in L1 together, and what is packed takes its share of L2."""
    for row in TILED:
        words = row.order.longest_chain // row.depth_multiple + row.head_words
        assert (row.rows * row.copies_a + row.columns) * words * row.accumulator.size <= DEFAULT_GEOMETRY.l1_bytes, row.name
    assert DEFAULT_GEOMETRY.a_bytes == DEFAULT_GEOMETRY.l2_bytes // 4
    assert DEFAULT_GEOMETRY.row_sums_bytes == DEFAULT_GEOMETRY.l1_bytes // 2


def test_nothing_of_threads_comes_in() -> None:
    """Columns and depth of a block are decided without knowing how many threads there are, so they cannot depend on it."""
    assert list(inspect.signature(block).parameters) == ["row", "m", "n", "k", "geometry", "b_by_columns", "prepacked"]


def test_the_largest_single_panel_is_the_knob_or_half_of_the_second_cache() -> None:
    assert deep_k_bytes(0) == 256 << 10
    assert deep_k_bytes(0, Geometry(l2_bytes=1001)) == 500
    assert deep_k_bytes(1) == 1
    assert deep_k_bytes(1 << 40) == 1 << 40
