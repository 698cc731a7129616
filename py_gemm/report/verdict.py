"""Verdict: what `verify` found, as plain data, as text, and as a picture for notebooks. Computes nothing about products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .picture import image, map_colours
from .sampling import Sample

MAP_SIZE = 64  # cells of the error map on each side, at most
_MAP_WIDTH = 320  # CSS pixels


@dataclass(frozen=True, slots=True)
class Finding:
    """One element. margin: its distance from the exact value in units of the bound (above 1: not covered); ulps: its distance from
    the correctly rounded value in units in the last place; roundings: the same in roundings (see Verdict)."""

    index: tuple[int, ...]
    found: float
    rounded: float
    margin: float
    ulps: float
    roundings: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a result could be right. Truthy where every element that was looked at is covered.

    shape, dtype: of the result. standard: which implementations count as correct ("normal" or "any_order"). checked,
    covered_elements,
    correctly_rounded: numbers of elements. worst: the worst elements, worst first. lost_digits, median_lost_digits: log10 of the
    distance from the correctly rounded value in units in the last place, of the worst element and of the one in the middle;
    digits: those that the type has.
    errors: the largest error in each cell of a coarse map of the first item looked at, NaN where none was looked at, in roundings:
    the distance from the correctly rounded value, divided by what one rounding of every term and of the result may amount to. A
    good implementation stays near 1 and one long chain grows with the square root of k; a wrong element stands out by orders of
    magnitude.
    outside: the cells with an element that is not covered.
    """

    shape: tuple[int, ...]
    dtype: str
    standard: str
    sample: Sample
    checked: int
    covered_elements: int
    correctly_rounded: int
    worst: tuple[Finding, ...]
    lost_digits: float
    median_lost_digits: float
    digits: float
    errors: NDArray[np.float64] = field(repr=False)
    outside: NDArray[np.bool_] = field(repr=False)

    @property
    def covered(self) -> bool:
        """Whether a correct implementation could have produced every element that was looked at."""
        return self.covered_elements == self.checked

    def __bool__(self) -> bool:
        return self.covered

    def lines(self) -> list[str]:
        """The text of the verdict."""
        share = f"{self.covered_elements:,} of {self.checked:,} elements"
        order = "any order of summation" if self.standard == "any_order" else "usual orders of summation"
        told = [f"covered: {'yes' if self.covered else 'NO'} ({share} could come from a correct implementation, {order})"]
        told.append(f"looked at: {self._looked_at()}")
        if not self.checked:
            return told
        told.append(
            f"digits: at most {self.lost_digits:.1f} of {self.digits:.1f} lost, {self.median_lost_digits:.1f} in the middle; "
            f"{self.correctly_rounded:,} correctly rounded"
        )
        told += [
            f"{'worst' if not place else 'then':5} {_place(each.index)}: {each.found!r}, correctly rounded {each.rounded!r} "
            f"({_number(each.ulps)} ulp, {_number(each.margin)} of the bound)"
            for place, each in enumerate(self.worst)
        ]
        return told

    def _looked_at(self) -> str:
        total = int(np.prod(self.shape))
        if self.sample.is_whole:
            return f"all of {self.dtype} {self.shape}"
        assert self.sample.rows is not None
        products = f"in {len(self.sample.items)} products, " if len(self.shape) > 2 else ""
        return (
            f"{products}{len(self.sample.rows)} rows and {len(self.sample.columns)} columns, drawn with seed {self.sample.seed}: "
            f"{self.checked:,} of {total:,} elements of {self.dtype} {self.shape}"
        )

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        first, *rest = self.lines()
        body = "".join(f"<li>{escape(line)}</li>" for line in rest)
        picture = (
            image(map_colours(self.errors, self.outside), _MAP_WIDTH, f"Map of the errors. {first}") if self.errors.size else ""
        )
        legend = "errors from light (none) to dark blue (the largest); orange: not covered; grey: not looked at"
        return (
            f'<div style="display: flex; gap: 1em; flex-wrap: wrap"><figure style="margin: 0">{picture}'
            f'<figcaption style="max-width: {_MAP_WIDTH}px">{legend}</figcaption></figure>'
            f"<div><strong>{escape(first)}</strong><ul>{body}</ul></div></div>"
        )


def _place(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(min(max(value, -1e15), 1e15)) else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Block:
    """What was found out about rows x columns of one item; all arrays have that shape."""

    item: tuple[int, ...]
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    found: NDArray[Any]
    rounded: NDArray[Any]
    ulps: NDArray[np.float64]
    roundings: NDArray[np.float64]
    covered: NDArray[np.bool_]


class Gatherer:
    """Adds up what is found block by block, without keeping the blocks."""

    def __init__(self, shape: tuple[int, ...], m: int, n: int, worst: int) -> None:
        self.shape, self.m, self.n, self.most = shape, m, n, worst
        self.checked = self.covered = self.correct = 0
        self._candidates: list[tuple[bool, Finding]] = []
        self._ulps: list[NDArray[np.float64]] = []
        size = min(m, MAP_SIZE), min(n, MAP_SIZE)
        self._errors, self._outside = np.full(size, np.nan), np.zeros(size, bool)

    def add(self, block: Block, *, paint: bool) -> None:
        """paint: the block belongs to the item that the map shows."""
        ulps, covered, roundings = block.ulps.reshape(-1), block.covered.reshape(-1), block.roundings.reshape(-1)
        self.checked += ulps.size
        self.covered += int(covered.sum())
        self.correct += int((ulps == 0).sum())
        self._ulps.append(ulps)
        for place in np.lexsort((-roundings, covered))[: self.most].tolist():
            if ulps[place] > 0:
                r, c = divmod(place, len(block.columns))
                index = (*block.item, int(block.rows[r]), int(block.columns[c]))
                values = float(block.found[r, c]), float(block.rounded[r, c])
                self._candidates.append(
                    (bool(covered[place]), Finding(index, *values, np.nan, float(ulps[place]), float(roundings[place])))
                )
        if paint:
            height, width = self._errors.shape
            cells = np.broadcast_arrays(*np.ix_(block.rows * height // self.m, block.columns * width // self.n))
            np.fmax.at(self._errors, tuple(cells), block.roundings)
            np.logical_or.at(self._outside, tuple(cells), ~block.covered)

    def verdict(
        self, dtype: str, standard: str, sample: Sample, digits: float, drops: tuple[bool, bool],
        margin_of: Callable[[tuple[int, ...]], float],
    ) -> Verdict:  # fmt: skip
        """margin_of: the margin of one element, which takes long and is asked of the worst only. drops: axes that the result
        lacks."""
        ranked = sorted(self._candidates, key=lambda each: (each[0], -each[1].roundings))[: self.most]
        worst = tuple(replace(each, margin=margin_of(each.index), index=_dropped(each.index, drops)) for _, each in ranked)
        ulps = np.concatenate(self._ulps) if self._ulps else np.zeros(0)
        lost = np.log10(np.maximum(ulps, 1.0)) if ulps.size else np.zeros(1)
        most, middle = min(digits, float(lost.max())), min(digits, float(np.median(lost)))
        return Verdict(
            self.shape, dtype, standard, sample, self.checked, self.covered, self.correct, worst, most, middle, digits,
            self._errors, self._outside,
        )  # fmt: skip


def _dropped(index: tuple[int, ...], drops: tuple[bool, bool]) -> tuple[int, ...]:
    """The index in the caller's result, where a vector's axis is missing."""
    *item, row, column = index
    return (*item, *(() if drops[0] else (row,)), *(() if drops[1] else (column,)))
