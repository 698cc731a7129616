"""Which elements of a result a verdict looks at: all of a small product, whole rows and whole columns of a large one. Pure.

One wrong element lies in some row and some column; a tile that went wrong, an edge that was left out, a stride that was off by one
put many rows and columns wrong. So rows and columns are drawn one from each of equal strata, and the first and the last are always
among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

# Products that may be looked at without sampling, and that a sample may cost: 512 x 512 x 512, half a second of the reference on
# one core.
MOST_PRODUCTS = 1 << 27
MOST_LINES = 32
MOST_ITEMS = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """items: indices into the flattened batch. rows, columns: looked at in full, in each of these items; None: every row.

    seed: what they were drawn with.
    """

    items: tuple[int, ...]
    rows: tuple[int, ...] | None
    columns: tuple[int, ...]
    seed: int

    @property
    def is_whole(self) -> bool:
        return self.rows is None

    def elements(self, m: int, n: int) -> int:
        """How many elements are looked at."""
        if self.rows is None:
            return len(self.items) * m * n
        return len(self.items) * (len(self.rows) * n + (m - len(self.rows)) * len(self.columns))


def choose_sample(items: int, m: int, n: int, k: int, sample: int | None, seed: int) -> Sample:
    """Everything where the products are few (sample None), else `sample` rows and columns, or as many as MOST_PRODUCTS allows.

    ValueError for a sample that is not positive, TypeError for a sample or a seed that is no integer: a verdict can be repeated.
    """
    for name, value in (("sample", sample), ("seed", seed)):
        if not (hasattr(value, "__index__") or (name == "sample" and value is None)):
            raise TypeError(f"{name} is an integer, not {value!r}")
    if sample is not None and sample < 1:
        raise ValueError(f"sample is the number of rows and columns to look at, at least 1, not {sample}")
    whole = items * m * n * max(k, 1)
    if whole <= MOST_PRODUCTS if sample is None else sample >= max(m, n):
        return Sample(tuple(range(items)), None, (), seed)
    source = np.random.default_rng(seed)
    chosen = draw(source, items, MOST_ITEMS)
    lines = sample
    if lines is None:
        lines = min(MOST_LINES, max(2, MOST_PRODUCTS // max(1, len(chosen) * (m + n) * max(k, 1))))
    return Sample(chosen, draw(source, m, lines), draw(source, n, lines), seed)


def draw(source: Any, size: int, count: int) -> tuple[int, ...]:
    """At most `count` of range(size), sorted: the first, the last, and one from each of equal strata between."""
    if count >= size:
        return tuple(range(size))
    if count == 1:
        return (int(source.integers(size)),)
    edges = np.linspace(1, size - 1, count - 1).astype(int)
    inner = [int(source.integers(low, high)) for low, high in pairwise(edges.tolist()) if low < high]
    return tuple(sorted({0, size - 1, *inner}))
