"""The cache model: how a product is cut into blocks. Pure.

                 n                      kc: steps of depth packed at a time: a chain, of which MR and NR lanes share L1
            +----nc----+                mc: rows of A packed at a time; mc x kc of A take a quarter of L2
            | kc x nc  |  packed B      nc: columns of B packed at a time; kc x nc of B take a share of L3
       +--kc+----------+                ms: rows whose running totals are kept while k advances (only where k > kc)
    mc | A  | totals ms x nc

A row for few rows of A packs no B: its block of columns is as wide as the sums of its rows may be to stay in L1. A single panel
(kc = k, `_slice`) needs no totals but those of one tile.

The chain alone decides the order of summation, and comes from the row (`SummationOrder`), not from here. The geometry of the caches
is pinned, so that neither the bits nor the scratch memory depend on the machine; and `block` is told nothing of threads, so that kc
and nc cannot depend on how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from .families import Row


@dataclass(frozen=True, slots=True)
class Geometry:
    """Bytes that each kind of packed block may take, and the second cache that they are shares of.

    The defaults suit every machine with 32 KiB of L1 and 512 KiB of L2: a quarter of L2 for A, 1 MiB of L3 for B, and 4.5 MiB of
    totals (1,024 x 1,024 float32 and a margin), which pass by once for each chain of 256 products and need no cache. Half of L1 for
    the sums of few rows, which pass by once for each 8 steps. few_columns: columns of B read side by side, from end to end, before
    the next ones (of 32, 128, 512 and 4096 the fastest at 1 x 4096 x 4096, for float32 and int8: fewer, and A is packed too often;
    more, and their pages leave the address cache).
    """

    a_bytes: int = 128 << 10
    b_bytes: int = 1 << 20
    totals_bytes: int = 9 << 19
    row_sums_bytes: int = 16 << 10
    few_columns: int = 512
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10


DEFAULT_GEOMETRY = Geometry()


def deep_k_bytes(knob: int, geometry: Geometry = DEFAULT_GEOMETRY) -> int:
    """The most bytes of B in a single panel (families.py: is_deep): the knob deep_kc_bytes, or half of L2 where that is 0.

    The other half is for the panel of A and what passes by. Measured for bfloat16 (wasmtime, AMD EPYC): to k = 4096 a single panel
    is as fast as slices, at 8192 (all of that half) it takes 1.08 times as long, at 16384 1.25 times.
    """
    return knob or geometry.l2_bytes // 2


# What kernels/arguments.h keeps at the start of the scratch memory (SCRATCH_FIXED), rounded up to a cache line.
FIXED_BYTES = 480


@dataclass(frozen=True, slots=True)
class Blocking:
    """Sizes in elements; where the three regions begin in the scratch memory, and its whole size, in bytes. chain: products summed
    from zero; slice: steps of depth packed at a time, a chain or all (kc); tile: rows and columns, for kernels that take any."""

    chain: int
    slice: int
    block_rows: int
    block_columns: int
    total_rows: int
    panel_a: int
    panel_b: int
    totals: int
    scratch_bytes: int
    tile: tuple[int, int]


# What kernels/gemm_exact.c keeps at the start of the scratch memory (SCRATCH_EXACT), and the most that it takes: rows and columns
# of a block, and digits of an element. 96 x 128 elements of 12 totals, and panels of 6 digits, take 4 MiB where a row needs them.
EXACT_BYTES = 7744
EXACT_ROWS, EXACT_COLUMNS, EXACT_DIGITS = 96, 128, 6


def block(
    row: Row, m: int, n: int, k: int, geometry: Geometry = DEFAULT_GEOMETRY, *, b_by_columns: bool = False, prepacked: bool = False
) -> Blocking:
    """Cut a product of m x n x k (none of them zero but k) for one kernel. b_by_columns: the depth of B lies side by side.
    prepacked: an operand's panels lie chain by chain, and so must the other's."""
    if row.exact:
        return _block_exact(row, m, n, k)
    if row.reads_in_place:
        return _block_few_rows(row, m, n, k, geometry.few_columns if b_by_columns else n, geometry)
    return _block_sums(row, m, n, k, geometry, prepacked=prepacked)


def _block_exact(row: Row, m: int, n: int, k: int) -> Blocking:
    chain = row.order.chain_length(k)
    depth = min(chain, k)
    rows, columns = _balance(m, EXACT_ROWS, row.rows), _balance(n, EXACT_COLUMNS, row.columns)
    size = row.accumulator.size
    panel_a = _round_up(EXACT_BYTES, 64)
    panel_b = _round_up(panel_a + rows * depth * size * EXACT_DIGITS, 64)
    totals = _round_up(panel_b + columns * depth * size * EXACT_DIGITS, 64)
    end = totals + rows * columns * size * 2 * EXACT_DIGITS
    return Blocking(chain, chain, rows, columns, rows, panel_a, panel_b, totals, end, (row.rows, row.columns))


def _block_sums(row: Row, m: int, n: int, k: int, geometry: Geometry, *, prepacked: bool) -> Blocking:
    size = row.accumulator.size
    chain, slice_ = row.order.chain_length(k), _slice(row, k, geometry, prepacked=prepacked)
    depth = _words(row, min(slice_, k))
    columns = _balance(n, geometry.b_bytes // max(1, depth * size), row.columns)
    has_totals = k > slice_
    kept_rows = _balance(m, geometry.totals_bytes // (columns * size), row.rows) if has_totals else _round_up(m, row.rows)
    rows = _balance(kept_rows, geometry.a_bytes // max(1, depth * size * row.copies_a), row.rows)
    panel_a = _round_up(FIXED_BYTES, 64)
    panel_b = _round_up(panel_a + rows * depth * size * row.copies_a, 64)
    totals = _round_up(panel_b + columns * depth * size, 64)
    end = totals + (kept_rows * columns if has_totals else row.rows * row.columns) * size
    return Blocking(chain, slice_, rows, columns, kept_rows, panel_a, panel_b, totals, end, (row.rows, row.columns))


def _slice(row: Row, k: int, geometry: Geometry, *, prepacked: bool) -> int:
    """A chain; or all of the depth, in a single panel, where the row wants it or where a panel of each operand then fits into L1:
    no totals have to wait in memory (float32 of 512 cubed: 1.03 times as fast in V8). A panel with a head holds one chain."""
    chain = row.order.chain_length(k)
    lanes = row.rows * row.copies_a + row.columns
    fits = not row.head_words and lanes * _words(row, k) * row.accumulator.size <= geometry.l1_bytes
    return max(chain, k) if (row.has_single_panel or fits) and not prepacked else chain


def _words(row: Row, depth: int) -> int:
    """Words of a lane in a panel of so many steps."""
    return -(-depth // row.depth_multiple) + row.head_words


def _block_few_rows(row: Row, m: int, n: int, k: int, most_columns: int, geometry: Geometry) -> Blocking:
    """Regions: a chain of A (4 rows), the sums of a chain, the totals (4 rows of a block of columns each)."""
    size = row.accumulator.size
    chain = row.order.chain_length(k)
    columns = _balance(n, min(most_columns, geometry.row_sums_bytes // (min(m, row.rows) * size)), row.columns)
    panel_a = _round_up(FIXED_BYTES, 64)
    sums = _round_up(panel_a + row.rows * _words(row, min(chain, k)) * size, 64)
    totals = sums + _round_up(row.rows * columns * size, 64)
    end = totals + row.rows * columns * size
    return Blocking(chain, chain, row.rows, columns, row.rows, panel_a, sums, totals, end, (row.rows, row.columns))


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _balance(total: int, most: int, multiple: int) -> int:
    """A block size, a multiple of `multiple`, of at most about `most`, that cuts `total` into nearly equal blocks."""
    most = max(multiple, most // multiple * multiple)
    blocks = max(1, -(-total // most))
    return _round_up(-(-total // blocks), multiple)
