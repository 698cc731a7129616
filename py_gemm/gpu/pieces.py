"""How much of a product one dispatch computes: whole, or cut so that no axis of a grid, no scratch and no submission is too large.

Pure arithmetic over sizes. A cut never changes a bit: a piece keeps the order of summation and the ranges of the whole product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from operator import mul


@dataclass(frozen=True, slots=True)
class Piece:
    """The most that one dispatch takes: products, rows, columns and ranges of k."""

    products: int
    rows: int
    columns: int
    ranges: int


def piece_sizes(
    whole: Piece, k: int, tile: tuple[int, int], *, most_workgroups: int, most_elements: int | None, most_flops: int | None
) -> Piece:
    """The largest piece within the limits.

    most_workgroups: along each axis of a grid; ranges and products share the third. most_elements: of D in one piece (what the
    planes of a split product leave room for). most_flops: 2 m n k of one piece, kept where whole tiles allow it: a single tile
    with a single range is never cut.
    """
    tile_rows, tile_columns = tile
    ranges = min(whole.ranges, most_workgroups)
    piece = Piece(
        min(whole.products, most_workgroups // ranges),
        min(whole.rows, most_workgroups * tile_rows),
        min(whole.columns, most_workgroups * tile_columns),
        ranges,
    )
    if most_elements is not None:
        piece = _within(piece, most_elements, tile, hard=True)
    if most_flops is not None and k:
        piece = _within(piece, most_flops // (2 * k), tile, hard=False)
        flops = 2 * piece.products * piece.rows * piece.columns * k
        if flops > most_flops:
            ranges = max(piece.ranges * most_flops // flops, 1)
            piece = Piece(piece.products, piece.rows, piece.columns, min(piece.ranges, ranges))
    return piece


def _within(piece: Piece, most: int, tile: tuple[int, int], *, hard: bool) -> Piece:
    """Fewer products, then fewer rows, then fewer columns, until a piece has at most `most` elements of D; tiles stay whole unless
    the limit is `hard` and less than a tile."""
    products, rows, columns = piece.products, piece.rows, piece.columns
    if products * rows * columns <= most:
        return piece
    if rows * columns <= most:
        return Piece(most // (rows * columns), rows, columns, piece.ranges)
    tile_rows, tile_columns = min(tile[0], rows), min(tile[1], columns)
    rows = max(most // columns // tile_rows * tile_rows, tile_rows)
    if rows * columns > most:
        columns = max(most // rows // tile_columns * tile_columns, tile_columns)
    if hard and rows * columns > most:
        columns = max(min(columns, most), 1)
        rows = max(most // columns, 1)
    return Piece(1, rows, columns, piece.ranges)


def cuts(size: int, most: int) -> Iterator[tuple[int, int]]:
    """(start, size) of the pieces of [0, size) of at most `most`."""
    for start in range(0, size, most):
        yield start, min(most, size - start)


def batch_pieces(
    batch: tuple[int, ...], axis: int, strides: tuple[tuple[int, ...], ...], most: int
) -> Iterator[tuple[int, int, int, int]]:
    """(offset in A, in B, in D, products) of the dispatches over a batch: its longest dimension goes into the grid, `most` products
    at a time, the others become dispatches of their own."""
    if not batch:
        yield 0, 0, 0, 1
        return
    others = [range(1) if each == axis else range(size) for each, size in enumerate(batch)]
    for positions in product(*others):
        for start, count in cuts(batch[axis], most):
            a, b, d = (sum(map(mul, positions, each)) + start * each[axis] for each in strides)
            yield a, b, d, count
