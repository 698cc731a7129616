"""The Python half of the benchmark page: measures one product after another, and hands each row over when it is done.

Answers are plain data. A road that is not there is named with its reason; whatever else goes wrong is a defect and is let through.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import js
import numpy as np
from pyodide.ffi import to_js

import py_gemm as pg
from py_gemm.report.bench import Benchmark
from py_gemm.report.benchmark.contenders import PagePeers
from py_gemm.report.benchmark.products import Product, cube
from py_gemm.report.benchmark.show import lead
from py_gemm.report.benchmark.suite import Surroundings, about, measure_product

# What the page measures, in this order: squares, then what a transformer multiplies (an encoder's rows, a decoder's one).
PRODUCTS: dict[str, tuple[Product, ...]] = {
    "gpu": (cube(256), cube(512), cube(1024), cube(512, "float16"), Product(128, 768, 768), Product(1, 3072, 768)),
    "cpu": (
        cube(256), cube(512), cube(1024), cube(512, "float16"), cube(512, "bfloat16"), cube(512, "int8"), cube(512, "float64"),
        Product(1, 3072, 768),
    ),
}  # fmt: skip
EXTENTS = {"short": cube(512).flops, "long": cube(1024).flops}


class StoppedError(Exception):
    """Somebody asked to stop; nothing is wrong."""


class Session:
    """`post(kind, data)` tells the page what happens in between; `stopped()` says whether somebody wants a run to end.

    module, root: web/demo/bench/peers.js and the address of its libraries, where they are installed.
    """

    def __init__(self, post: Callable[[str, Any], None], stopped: Callable[[], bool], module: Any = None, root: str = "") -> None:
        self._post, self._stopped = post, stopped
        self._peers = None if module is None else PagePeers(module, root)
        self._gpu: Any = None
        self._no_gpu = ""
        self._figures: dict[str, dict[str, Any]] = {}
        self._road = ""

    async def start(self) -> Any:
        """Asks for the GPU; what runs here, and the products that will be measured."""
        try:
            self._gpu = await pg.request_device_async("webgpu")
        except pg.GemmError as error:
            self._no_gpu = str(error)
        return _plain(
            {
                "py_gemm": pg.__version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                "adapter": "" if self._gpu is None else self._gpu.adapter,
                "no_gpu": self._no_gpu,
                "peers": self._peers is not None,
                "info": str(pg.info()),
            }
        )

    def products(self, road: str, extent: str) -> Any:
        """Labels of what `run` will measure."""
        return _plain([product.label for product in self._chosen(road, extent)])

    def _chosen(self, road: str, extent: str) -> list[Product]:
        if road == "gpu" and self._gpu is None:
            return []
        return [each for each in PRODUCTS[road] if each.flops <= EXTENTS[extent]]

    async def run(self, roads: Any, extent: str) -> Any:
        """Measures the roads ("gpu", "cpu"); posts "row" for each product. {"stopped": whether somebody ended it}."""
        self._figures = {}
        around = Surroundings("usual", self._tell, self._peers)
        try:
            for road in roads.to_py():
                chosen = self._chosen(road, extent)
                device, self._road = "cpu" if road == "cpu" else self._gpu, road
                if not chosen:
                    continue
                figures = self._figures["page" if road == "cpu" else "webgpu"] = {"about": about(device), "rows": []}
                for product in chosen:
                    row = await measure_product(around, product, device)
                    figures["rows"].append(row)
                    self._post("row", _plain({"road": road, "label": row["label"], "entries": row["entries"], "lead": lead(row)}))
        except StoppedError:
            return _plain({"stopped": True})
        return _plain({"stopped": False})

    def _tell(self, text: str) -> None:
        if self._stopped():
            raise StoppedError
        product, _, name = text.rpartition(", ")
        self._post("stage", _plain({"road": self._road, "label": product, "name": name}))

    def report(self, form: str) -> str:
        """The figures so far as "markdown", "json" or "svg"."""
        found = Benchmark(self._figures)
        forms: dict[str, Callable[[Benchmark], str]] = {"markdown": str, "json": Benchmark.to_json, "svg": Benchmark.to_svg}
        return forms[form](found)


def _plain(value: object) -> Any:
    return to_js(value, dict_converter=js.Object.fromEntries)
