"""py_gemm: matrix multiplication for Python in the browser, and the same answers outside it.

import py_gemm as pg
d = pg.matmul(a, b)                       # NumPy in, NumPy out: WebAssembly SIMD, or the GPU for large products
d = await pg.gemm_async(a, b, c, alpha=2.0, bias=bias, activation="relu", device="webgpu")

The public names and nothing else. They are fetched from their modules on first use, so that the lower floors
(`py_gemm.cpu`, `py_gemm.gpu`), which need no NumPy, can be imported where there is none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import exact
    from .api import asarray, asarray_async, configure, gemm, gemm_async, matmul, matmul_async
    from .arrays import DeviceArray
    from .cpu.gemm import CpuGemm
    from .devices import request_device, request_device_async
    from .epilogue import GemmEpilogue
    from .errors import (
        AliasError,
        DeviceLostError,
        DeviceMemoryError,
        GemmError,
        ShapeError,
        SyncUnavailableError,
        UnsupportedError,
    )
    from .gpu.elementwise import Elementwise
    from .gpu.gemm import Gemm
    from .gpu.int8 import Int8Gemm, Int8GemmSkinny
    from .int8 import int8_gemm, int8_gemm_async
    from .prepacked import Prepacked, prepack, prepack_async
    from .report.bench import Benchmark, bench, bench_async
    from .report.info import info
    from .report.runs import RunReport, last_run
    from .report.verdict import Verdict
    from .report.verify import verify, verify_async
    from .requantize import Requantize
    from .tuning import tune, tune_async

__all__ = [
    "AliasError",
    "Benchmark",
    "CpuGemm",
    "DeviceArray",
    "DeviceLostError",
    "DeviceMemoryError",
    "Elementwise",
    "Gemm",
    "GemmEpilogue",
    "GemmError",
    "Int8Gemm",
    "Int8GemmSkinny",
    "Prepacked",
    "Requantize",
    "RunReport",
    "ShapeError",
    "SyncUnavailableError",
    "UnsupportedError",
    "Verdict",
    "__version__",
    "asarray",
    "asarray_async",
    "bench",
    "bench_async",
    "configure",
    "exact",
    "gemm",
    "gemm_async",
    "info",
    "int8_gemm",
    "int8_gemm_async",
    "last_run",
    "matmul",
    "matmul_async",
    "prepack",
    "prepack_async",
    "request_device",
    "request_device_async",
    "tune",
    "tune_async",
    "verify",
    "verify_async",
]

_HOMES = {
    ".api": ("asarray", "asarray_async", "configure", "gemm", "gemm_async", "matmul", "matmul_async"),
    ".arrays": ("DeviceArray",),
    ".cpu.gemm": ("CpuGemm",),
    ".devices": ("request_device", "request_device_async"),
    ".epilogue": ("GemmEpilogue",),
    ".errors": tuple(name for name in __all__ if name.endswith("Error")),
    ".gpu.elementwise": ("Elementwise",),
    ".gpu.gemm": ("Gemm",),
    ".gpu.int8": ("Int8Gemm", "Int8GemmSkinny"),
    ".int8": ("int8_gemm", "int8_gemm_async"),
    ".prepacked": ("Prepacked", "prepack", "prepack_async"),
    ".report.bench": ("Benchmark", "bench", "bench_async"),
    ".report.info": ("info",),
    ".report.runs": ("RunReport", "last_run"),
    ".report.verdict": ("Verdict",),
    ".report.verify": ("verify", "verify_async"),
    ".requantize": ("Requantize",),
    ".tuning": ("tune", "tune_async"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "exact":
        return import_module(".exact", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'py_gemm' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
