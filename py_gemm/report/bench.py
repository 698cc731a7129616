"""`bench`: how fast py_gemm is here, next to what else is here, as ratios within one run.

It measures what runs in this interpreter: the CPU road (wasmtime, or WebAssembly in a page) and GPUs, against NumPy and, where they
are installed, scipy and torch. Browsers and the libraries of pages beside them are measured by `npm run bench` in a checkout.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import devices
from ..errors import SyncUnavailableError
from .benchmark.clock import Entrant
from .benchmark.contenders import PagePeers
from .benchmark.goals import verdicts
from .benchmark.picture import svg
from .benchmark.show import markdown
from .benchmark.suite import EXTENTS, Figures, Surroundings, measure_cpu, measure_gpu


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Figures of one or more places. `str()` gives Markdown tables, notebooks show the picture, `to_dict()` gives plain data.

    places: by name ("wasmtime", "wgpu", "chromium", ...), each with "about" and "rows".
    """

    places: dict[str, Figures]

    def to_dict(self) -> dict[str, Any]:
        return {"places": self.places, "goals": verdicts(self.places)}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False)

    def to_svg(self) -> str:
        """Horizontal bars, light or dark as the reader's system is."""
        return svg(self.to_dict())

    def __str__(self) -> str:
        return markdown(self.to_dict())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.to_svg()


def bench(
    device: Any = "cpu", *, extent: str = "usual", progress: Callable[[str], object] | None = None, more: tuple[Entrant, ...] = ()
) -> Benchmark:
    """Measure one road of this interpreter: "cpu", or a GPU by kind ("wgpu", "vulkan", "metal", "webgpu") or as a device.

    extent: "quick" (seconds), "usual" (minutes) or "full". progress: hears, before each contender's turn, what is measured; what it
    raises ends the measuring. more: further contenders of the float32 products.
    ValueError for an unknown extent or kind, UnsupportedError where there is no such device. In a page it waits where Python can;
    SyncUnavailableError elsewhere.
    """
    if devices.IN_BROWSER:
        from pyodide.ffi import can_run_sync, run_sync

        if not can_run_sync():
            raise SyncUnavailableError(
                "bench: this entry into Python cannot wait; write instead:  print(await pg.bench_async('cpu'))"
            )
        found: Benchmark = run_sync(bench_async(device, extent=extent, progress=progress, more=more))
        return found
    measuring = bench_async(device, extent=extent, progress=progress, more=more)
    try:
        measuring.send(None)
    except StopIteration as stop:
        result: Benchmark = stop.value
        return result
    raise AssertionError("outside a page nothing here waits")


async def bench_async(
    device: Any = "cpu",
    *,
    extent: str = "usual",
    progress: Callable[[str], object] | None = None,
    peers: PagePeers | None = None,
    more: tuple[Entrant, ...] = (),
) -> Benchmark:
    """`bench`, awaitable. peers: the other libraries of this page."""
    if extent not in EXTENTS:
        raise ValueError(f"bench: unknown extent {extent!r}; known: {', '.join(EXTENTS)}")

    def tell(text: str) -> None:
        if progress is not None:
            progress(text)

    around = Surroundings(extent, tell, peers, more)
    if device == "cpu":
        return Benchmark({"page" if devices.IN_BROWSER else "wasmtime": await measure_cpu(around)})
    found = await devices.request_device_async(device) if isinstance(device, str) else device
    return Benchmark({found.kind: await measure_gpu(around, found)})
