"""Figures as a picture: an SVG of horizontal bars, one small chart for each product, light or dark as the reader's system is. Pure.

Cobalt is py_gemm on a GPU, orange on the CPU, as on the demo page; the others are grey, and the ceiling is a line.
"""

from __future__ import annotations

from html import escape
from typing import Any

from .show import figure, lead, title

_WIDTH, _MARGIN, _GAP, _COLUMNS = 1040, 32, 40, 2
_CHART = (_WIDTH - 2 * _MARGIN - _GAP * (_COLUMNS - 1)) // _COLUMNS
_NAME, _VALUE = 180, 60
_BAR, _PITCH, _HEAD = 14, 22, 34
_LEGEND = "10⁹ operations a second, medians of interleaved runs. Dashed: a loop of nothing but fused multiply-adds."
_GPUS = ("webgpu", "wgpu")

# Every rule is bound to the picture: in a notebook it lies in the page itself.
_STYLE = """
.py-gemm-bench {
  color-scheme: light dark; --page: #f5f7f7; --ink: #10181d; --soft: #51606a;
  --gpu: #2743d2; --cpu: #b84e00; --other: #9fabb1;
}
@media (prefers-color-scheme: dark) {
  .py-gemm-bench {
    --page: #0d1316; --ink: #e9eff0; --soft: #9aaab2; --gpu: #8ea4ff; --cpu: #ff9c57; --other: #5d6b73;
  }
}
.py-gemm-bench text {
  font: 13px Inter, system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  fill: var(--ink); font-variant-numeric: tabular-nums;
}
.py-gemm-bench text.place { font: 26px "STIX Two Text", Cambria, "Times New Roman", serif; }
.py-gemm-bench text.product { font-weight: 600; font-size: 14px; }
.py-gemm-bench text.soft { fill: var(--soft); }
.py-gemm-bench text.ours { font-weight: 600; }
.py-gemm-bench text.value { paint-order: stroke; stroke: var(--page); stroke-width: 5px; stroke-linejoin: round; }
.py-gemm-bench .page { fill: var(--page); }
.py-gemm-bench .other { fill: var(--other); }
.py-gemm-bench .gpu { fill: var(--gpu); }
.py-gemm-bench .cpu { fill: var(--cpu); }
.py-gemm-bench .rule { stroke: var(--ink); stroke-width: 1; }
.py-gemm-bench .loop { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 3 3; }
"""


def svg(report: dict[str, Any]) -> str:
    """The picture of a report: every row that gives rates, place by place."""
    parts: list[str] = []
    y = _MARGIN
    for name, figures in report["places"].items():
        rows = [row for row in figures["rows"] if row["section"] in ("products", "gpu") and _bars(row)]
        if not rows:
            continue
        about = ", ".join(str(value) for key, value in figures["about"].items() if key in ("engine", "adapter", "host"))
        parts.append(f'<line class="rule" x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y}" y2="{y}"/>')
        parts.append(_text(_MARGIN, y + 32, title(name), "place"))
        parts.append(_text(_WIDTH - _MARGIN, y + 30, about, "soft", "end"))
        y += 60
        lowest = [y] * _COLUMNS
        for row in rows:
            column = lowest.index(min(lowest))
            x = _MARGIN + column * (_CHART + _GAP)
            chart, height = _chart(x, lowest[column], row, "gpu" if name in _GPUS else "cpu")
            parts.append(chart)
            lowest[column] += height
        y = max(lowest) + 20
    parts.append(
        _text(
            _MARGIN,
            y,
            "10⁹ operations a second, medians of interleaved runs. Dashed: a loop of nothing but fused multiply-adds.",
            "soft",
        )
    )
    height = y + _MARGIN
    box = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="py-gemm-bench" {box} role="img">'
    return "\n".join(
        [
            head,
            "<title>Speed of matrix products: py_gemm and others</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _bars(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Who gets a bar, the fastest first: py_gemm as it chooses for itself, and the others."""
    there = [entry for entry in row["entries"] if "failure" not in entry]
    chosen = [entry for entry in there if entry["name"] == "py_gemm" or entry["kind"] == "peer"]
    return sorted(chosen, key=lambda entry: -entry["rate"])


def _chart(x: int, y: int, row: dict[str, Any], hue: str) -> tuple[str, int]:
    """The chart of one product at (x, y), and its height."""
    bars = _bars(row)
    loops = [entry["rate"] for entry in row["entries"] if entry["name"] == "FMA loop" and "failure" not in entry]
    longest = max([entry["rate"] for entry in bars] + loops)
    left, room = x + _NAME, _CHART - _NAME - _VALUE
    found = lead(row)
    ahead = f"{figure(found[0])} × {found[1]}" if found else ""
    parts = [_text(x, y + 14, row["label"], "product"), _text(x + _CHART, y + 14, ahead, "soft", "end")]
    values: list[str] = []
    for place, entry in enumerate(bars):
        top = y + _HEAD - 8 + place * _PITCH
        ours = entry["kind"] == "ours"
        length = max(1.0, room * entry["rate"] / longest)
        parts.append(_text(x, top + 12, entry["name"], "ours" if ours else "soft"))
        parts.append(f'<rect class="{hue if ours else "other"}" x="{left}" y="{top + 1}" width="{length:.1f}" height="{_BAR}"/>')
        values.append(_text(left + length + 7, top + 12, figure(entry["rate"]), "ours value" if ours else "soft value"))
    for rate in loops:
        at = left + room * rate / longest
        end = y + _HEAD - 8 + len(bars) * _PITCH
        parts.append(f'<line class="loop" x1="{at:.1f}" x2="{at:.1f}" y1="{y + _HEAD - 11}" y2="{end - 4}"/>')
    parts += values  # above the line, which they interrupt
    return "\n".join(parts), _HEAD + len(bars) * _PITCH + 16


def _text(x: float, y: float, content: str, kind: str, anchor: str = "start") -> str:
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}"{place}>{escape(content)}</text>'
