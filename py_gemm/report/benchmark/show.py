"""Figures as Markdown tables. Pure. What could not be measured is listed with its reason below its table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .goals import speed

PLACES = {
    "chromium": "CPU in Chromium",
    "node": "CPU in Node",
    "wasmtime": "CPU outside the browser",
    "page": "CPU in this page",
    "webgpu": "WebGPU",
    "wgpu": "GPU outside the browser",
}
_TITLES = {
    "products": "10⁹ operations a second",
    "gpu": "10⁹ operations a second, result read back, host clock",
    "vectors": "One row: milliseconds",
    "one call": "One call into WebAssembly, arguments ready: 10⁹ operations a second",
    "front door": "A small product by the front door: µs",
    "threads": "Threads: 10⁹ operations a second",
}
_UNITS = {"vectors": 1e3, "front door": 1e6}


def markdown(report: dict[str, Any]) -> str:
    """The whole report: `Benchmark.to_dict()`."""
    parts = [_place(name, figures) for name, figures in report["places"].items()]
    if report.get("goals"):
        parts.append(_goals(report["goals"]))
    return "\n".join(parts)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    rule = "|---|" + "---:|" * (len(header) - 1)
    return "\n".join([f"| {' | '.join(header)} |", rule, *(f"| {' | '.join(row)} |" for row in rows), ""])


def title(name: str) -> str:
    """A place as people read it."""
    return PLACES.get(name, name)


def figure(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _place(name: str, figures: dict[str, Any]) -> str:
    about = ", ".join(f"{key} {value}" for key, value in figures["about"].items())
    parts = [f"## {title(name)}\n\n{about}\n"]
    if "failure" in figures:
        parts.append(f"Not measured: {figures['failure']}\n")
    for section, kind in dict.fromkeys((row["section"], _kind(row)) for row in figures["rows"]):
        rows = [row for row in figures["rows"] if (row["section"], _kind(row)) == (section, kind)]
        parts.append(f"### {kind}{_TITLES[section]}\n\n{_section(section, rows)}")
        errors = _errors(rows) if section in ("products", "gpu") else ""
        if errors:
            parts.append(f"Largest error, to the largest element:\n\n{errors}")
        missing = _missing(rows)
        if missing:
            parts.append(f"Not measured:\n\n{missing}")
    return "\n".join(parts)


def _kind(row: dict[str, Any]) -> str:
    """Products of one kind of numbers share a table: they have the same contenders."""
    if row["section"] not in ("products", "gpu"):
        return ""
    type_name = row["label"].split()[0]
    return "float32: " if type_name == "float32" else "int8: " if type_name.endswith("int8") else "Other floats: "


def _section(section: str, rows: list[dict[str, Any]]) -> str:
    names = _names(rows)
    unit = _UNITS.get(section)
    further = _FURTHER.get(section, {})
    lines = []
    for row in rows:
        entries = {entry["name"]: entry for entry in row["entries"] if "failure" not in entry}
        cells = [
            "" if name not in entries else figure(entries[name]["rate"] if unit is None else entries[name]["seconds"] * unit)
            for name in names
        ]
        note = entries.get("py_gemm", {}).get("note", "")
        lines.append([row["label"], note, *cells, *(cell(row, entries) for cell in further.values())])
    return table(["product", "kernel", *names, *further], lines)


def lead(row: dict[str, Any]) -> tuple[float, str] | None:
    """How many times as fast py_gemm is as the fastest of the others in a row, and who that is."""
    there = {entry["name"]: entry for entry in row["entries"] if "failure" not in entry}
    others = [entry for entry in there.values() if entry["kind"] == "peer"]
    if not others or "py_gemm" not in there:
        return None
    best = max(others, key=lambda entry: float(entry["rate"]))
    return speed(there["py_gemm"], best), best["name"]


_Entries = dict[str, dict[str, Any]]


def _lead(row: dict[str, Any], _entries: _Entries) -> str:
    found = lead(row)
    return f"**{figure(found[0])}** ({found[1]})" if found else ""


def _of_the_loop(_row: dict[str, Any], entries: _Entries) -> str:
    ours, loop = entries.get("py_gemm"), entries.get("FMA loop")
    return f"{speed(ours, loop):.2f}" if ours and loop else ""


def _device_clock(_row: dict[str, Any], entries: _Entries) -> str:
    seconds = entries.get("py_gemm", {}).get("gpu_seconds")
    return "" if seconds is None else figure(seconds * 1e3)


# What else is said of py_gemm in the tables of a section.
_FURTHER: dict[str, dict[str, Callable[[dict[str, Any], _Entries], str]]] = {
    "products": {"to the best other": _lead, "of the loop": _of_the_loop},
    "gpu": {"to the best other": _lead, "GPU clock, ms": _device_clock},
    "one call": {"of the loop": _of_the_loop},
}


def _names(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(entry["name"] for row in rows for entry in row["entries"]))


def _errors(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(entry["name"] for row in rows for entry in row["entries"] if "error" in entry))
    lines = []
    for row in rows:
        found = {entry["name"]: entry["error"] for entry in row["entries"] if "error" in entry}
        integer = "int8" in row["label"]
        texts = {name: ("exact" if value == 0 else "WRONG") if integer else f"{value:.1e}" for name, value in found.items()}
        lines.append([row["label"], *(texts.get(name, "") for name in names)])
    return table(["product", *names], lines) if names else ""


def _missing(rows: list[dict[str, Any]]) -> str:
    """Who could not take part, and why: one line for each reason of each contender."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for entry in row["entries"]:
            if "failure" in entry:
                reasons.setdefault((entry["name"], entry["failure"]), []).append(row["label"])
    whole = [row["label"] for row in rows] if len(rows) > 1 else []
    products = {key: "every product" if labels == whole else ", ".join(labels) for key, labels in reasons.items()}
    return "".join(f"- {name}, {products[name, reason]}: {reason}\n" for name, reason in reasons)


def _goals(goals: list[dict[str, Any]]) -> str:
    lines = []
    for goal in goals:
        word = "not measured" if goal["met"] is None else "**met**" if goal["met"] else "not met"
        found = "" if goal["found"] is None else figure(goal["found"])
        lines.append([title(goal["place"]), goal["goal"], f"{'≤' if goal['at_most'] else '≥'} {goal['wanted']:g}", found, word])
    return "## Goals\n\n" + table(["place", "ratio", "wanted", "measured", "verdict"], lines)
