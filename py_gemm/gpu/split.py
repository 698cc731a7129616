"""Split k: into how many ranges the sum over k is cut where a grid of tiles is too small to fill a device. Pure.

Each range is summed in the order of the variant's row into a plane of its own; then the planes are added in range order (the first
range's sum is the total), and alpha, beta, bias and activation follow. No atomics. The choice depends on the shape alone, never on
a device or a limit, so it serves both modes and a product keeps its bits however it is cut into pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

from .variants import Shape, Variant

# A grid of this many workgroups fills a device; fewer are split, aiming at as many.
WORKGROUPS = 384
# Fewer terms are not split at all; a range has at least so many; their number is a multiple of the last.
MINIMUM_K, MINIMUM_TERMS, TERMS_STEP = 128, 64, 32
MOST_RANGES = 16
# What the planes of one product may take together, in bytes of float32.
SCRATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Ranges:
    """`count` ranges of `terms` terms each, the last one shorter; one range is the whole of k."""

    count: int
    terms: int


def choose_ranges(shape: Shape, variant: Variant) -> Ranges:
    """The ranges of a product.

    With `batch_invariant` they follow from n and k as though there were one tile of rows and one product: then an element's bits
    depend neither on the rows nor on the products that are computed with it. The planes of more rows are made piece by piece.
    """
    whole = Ranges(1, shape.k)
    if not variant.splits or shape.k < MINIMUM_K:
        return whole
    tile_rows, tile_columns, _ = variant.tile
    m, products = (tile_rows, 1) if shape.batch_invariant else (shape.m, shape.products)
    workgroups = -(-m // tile_rows) * -(-shape.n // tile_columns) * products
    if workgroups == 0 or workgroups >= WORKGROUPS:
        return whole
    count = min(MOST_RANGES, -(-WORKGROUPS // workgroups), shape.k // MINIMUM_TERMS)
    plane = m * shape.n * products * 4
    while count > 1:
        terms = -(-shape.k // (count * TERMS_STEP)) * TERMS_STEP
        ranges = Ranges(-(-shape.k // terms), terms)
        if ranges.count * plane <= SCRATCH_BYTES:
            return ranges if ranges.count > 1 else whole
        count = ranges.count - 1
    return whole
