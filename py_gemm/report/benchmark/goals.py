"""What the figures are to reach, as a table, and whether they do. Pure: every verdict is worked out from measured figures.

A ratio is the median of the ratios of single turns: what slows a shared machine down slows neighbours alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

# All figures by place: "chromium", "node", "wasmtime" (CPU roads), "webgpu", "wgpu" (GPUs).
Places = dict[str, dict[str, Any]]
Value = float | None


@dataclass(frozen=True, slots=True)
class Goal:
    """`found` gives the figure, None where it was not measured; it is to be at least (or, `at_most`, at most) `wanted`."""

    place: str
    text: str
    wanted: float
    found: Callable[[dict[str, Any]], Value]
    at_most: bool = False

    def verdict(self, places: Places) -> dict[str, Any]:
        figures = places.get(self.place)
        value = self.found(figures) if figures else None
        met = None if value is None else (value <= self.wanted if self.at_most else value >= self.wanted)
        return {
            "place": self.place,
            "goal": self.text,
            "wanted": self.wanted,
            "at_most": self.at_most,
            "found": value,
            "met": met,
        }


def _entries(figures: dict[str, Any], row_id: str) -> dict[str, dict[str, Any]]:
    """The entries of a row that have a figure, by name."""
    for row in figures["rows"]:
        if row["id"] == row_id:
            return {entry["name"]: entry for entry in row["entries"] if "failure" not in entry}
    return {}


def speed(ours: dict[str, Any], other: dict[str, Any]) -> float:
    """How many times as fast one entry of a row is as another."""
    turns: float = median(its / mine for mine, its in zip(ours["turns"], other["turns"], strict=False))
    return turns * float(ours["operations"] / other["operations"])


def rates(row_id: str, ours: str, other: str) -> Callable[[dict[str, Any]], Value]:
    """How many times as fast `ours` is as `other`."""

    def found(figures: dict[str, Any]) -> Value:
        entries = _entries(figures, row_id)
        return speed(entries[ours], entries[other]) if ours in entries and other in entries else None

    return found


def times(row_id: str, ours: str, other: str) -> Callable[[dict[str, Any]], Value]:
    """How many times as long `ours` takes as `other`, of the same product."""
    return rates(row_id, other, ours)


def against_best(row_id: str, among: tuple[str, ...]) -> Callable[[dict[str, Any]], Value]:
    """How many times as fast py_gemm is as the best of these that took part."""

    def found(figures: dict[str, Any]) -> Value:
        entries = _entries(figures, row_id)
        there = [entries[name] for name in among if name in entries]
        if not there or "py_gemm" not in entries:
            return None
        return speed(entries["py_gemm"], max(there, key=lambda entry: float(entry["rate"])))

    return found


def largest_error(least_k: int, most_k: int) -> Callable[[dict[str, Any]], Value]:
    """The largest error of py_gemm's float32 products with k in this range."""

    def found(figures: dict[str, Any]) -> Value:
        errors = [
            entry["error"]
            for row in figures["rows"]
            if row["label"].startswith("float32") and least_k <= row["k"] <= most_k
            for entry in row["entries"]
            if entry["name"] == "py_gemm" and "error" in entry
        ]
        return max(errors, default=None)

    return found


PAGE_CPU = ("onnxruntime-web wasm", "tfjs-wasm", "jax-js wasm")
PAGE_GPU = ("onnxruntime-web WebGPU", "tfjs-webgpu", "jax-js WebGPU")
_ROW = "products/{} 512³".format
_DOOR = "front door/float32 16³"
_FLOAT32 = "py_gemm float32"


def _browser(place: str) -> tuple[Goal, ...]:
    """What is asked of V8, one thread."""
    peers = tuple(
        Goal(
            place,
            f"float32 {size}³, to the best of {', '.join(PAGE_CPU)}",
            1.5,
            against_best(f"products/float32 {size}³", PAGE_CPU),
        )
        for size in (512, 1024)
    )
    loops = tuple(
        Goal(place, f"float32 {size}³, to the FMA loop", 0.85, rates(f"products/float32 {size}³", "py_gemm", "FMA loop"))
        for size in (512, 1024)
    )
    one_row = "vectors/float32 1 × 4096 × 4096"
    dot, i16 = "int8 512³ by the relaxed dot, to ", "int8 512³ by the i16 dot, to "
    row = "1 × 4096 × 4096, time of "
    return (
        *loops,
        *peers,
        Goal(place, "float64 512³, to float32", 0.45, rates(_ROW("float64"), "py_gemm", _FLOAT32)),
        Goal(place, "bfloat16 512³, to float32", 0.9, rates(_ROW("bfloat16"), "py_gemm", _FLOAT32)),
        Goal(place, "float16 512³, to float32", 0.9, rates(_ROW("float16"), "py_gemm", _FLOAT32)),
        Goal(place, f"{dot}float32", 3.3, rates(_ROW("int8"), "py_gemm dot", _FLOAT32)),
        Goal(place, f"{dot}onnxruntime-web's uint8", 2.5, rates(_ROW("int8"), "py_gemm dot", "onnxruntime-web uint8")),
        Goal(place, f"{dot}onnxruntime-web's int8", 25, rates(_ROW("int8"), "py_gemm dot", "onnxruntime-web int8")),
        Goal(place, f"{i16}float32", 1.4, rates(_ROW("int8"), "py_gemm i16", _FLOAT32)),
        Goal(place, f"{row}bfloat16 to float32", 0.6, times(one_row, "py_gemm bfloat16", _FLOAT32), at_most=True),
        Goal(place, f"{row}int8 to float32", 0.45, times(one_row, "py_gemm int8", _FLOAT32), at_most=True),
        Goal(place, "64³ as one call, to the FMA loop", 0.5, rates("one call/float32 64³", "py_gemm", "FMA loop")),
        Goal(place, "16³ by the front door, time to NumPy's @", 12, times(_DOOR, "py_gemm", "NumPy @"), at_most=True),
    )


GOALS: tuple[Goal, ...] = (
    *_browser("chromium"),
    Goal("chromium", "1024³, two threads to one", 1.8, rates("threads/float32 1024³", "2 threads", "1 thread")),
    Goal("chromium", "128³, two threads to one", 1.0, rates("threads/float32 128³", "2 threads", "1 thread")),
    *_browser("node"),
    Goal("wasmtime", "float32 512³, to the native 128-bit FMA loop", 0.72, rates(_ROW("float32"), "py_gemm", "FMA loop, native")),
    Goal("wasmtime", "int8 512³, to the native 128-bit FMA loop", 1.2, rates(_ROW("int8"), "py_gemm", "FMA loop, native")),
    Goal("webgpu", "float32 256³, to the best of the page", 1.0, against_best("gpu/float32 256³", PAGE_GPU)),
    Goal("webgpu", "float32 512³, to the best of the page", 1.0, against_best("gpu/float32 512³", PAGE_GPU)),
    Goal("webgpu", "largest error of float32, k from 768 to 4096", 4e-7, largest_error(768, 4096), at_most=True),
    Goal("wgpu", "largest error of float32, k from 768 to 4096", 4e-7, largest_error(768, 4096), at_most=True),
)


def verdicts(places: Places) -> list[dict[str, Any]]:
    """One for each goal of a place that was measured."""
    return [goal.verdict(places) for goal in GOALS if goal.place in places]
