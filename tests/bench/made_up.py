"""Figures and contenders made up for tests: every rate is chosen, so every ratio is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from py_gemm.report.benchmark import suite
from py_gemm.report.benchmark.clock import Entrant


class NamesOfPeers:
    """The libraries of a page by their names alone; none of them is ever made ready."""

    def entrants(self, road: str, *_: Any) -> list[Entrant]:
        names = {"cpu": ("onnxruntime-web wasm", "tfjs-wasm", "jax-js wasm")}
        page = ("onnxruntime-web WebGPU", "tfjs-webgpu", "jax-js WebGPU")
        return [Entrant(name, "peer", _never) for name in names.get(road, page)]

    def entrant(self, _name: str, _product: Any, label: str, *_: Any) -> Entrant:
        return Entrant(label, "peer", _never)


async def _never() -> Any:
    raise AssertionError("only its name was wanted")


def row(section: str, label: str, k: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"section": section, "id": f"{section}/{label}", "label": label, "k": k, "operations": 2, "entries": entries}


def entry(name: str, rate: float, kind: str = "peer", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "note": "",
        "seconds": 1 / rate,
        "rate": rate,
        "turns": [1 / rate] * 3,
        "operations": 2,
        **more,
    }


def entry_of(name: str, kind: str, rate: Callable[[str], float]) -> dict[str, Any]:
    return entry(name, rate(name), kind, error=1e-7)


def cpu_figures(rate: Callable[[str], float]) -> dict[str, Any]:
    """Every row and every contender of the usual CPU benchmark, each with `rate(name)`; nothing is measured."""
    around = suite.Surroundings("usual", lambda _: None, NamesOfPeers(), (Entrant("FMA loop, native", "loop", _never),))  # type: ignore[arg-type]
    with patch.object(suite, "operands", lambda _product: (None, None)):  # large ones take their time, and nobody reads them
        parts = [*suite._cpu_rows(around), *suite._thread_rows(around)]
    rows = [
        row(section, product.label, product.k, [entry_of(each.name, each.kind, rate) for each in entrants])
        for section, product, _, _, entrants in parts
    ]
    rows.append(row("one call", "float32 64³", 64, [entry_of("py_gemm", "ours", rate), entry_of("FMA loop", "loop", rate)]))
    rows.append(row("front door", "float32 16³", 16, [entry_of("py_gemm", "ours", rate), entry_of("NumPy @", "peer", rate)]))
    return {"about": {"engine": "none"}, "rows": rows}
