"""py_gemm: matrix multiplication for Python in the browser, and the same answers outside it.

import py_gemm as pg
d = pg.matmul(a, b)                       # NumPy in, NumPy out: WebAssembly SIMD, or the GPU for large products
d = await pg.gemm_async(a, b, c, alpha=2.0, bias=bias, activation="relu", device="webgpu")
"""

from ._version import __version__
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
from .gpu.gemm import Gemm
from .report.info import info
from .report.runs import RunReport, last_run

__all__ = [
    "AliasError",
    "CpuGemm",
    "DeviceArray",
    "DeviceLostError",
    "DeviceMemoryError",
    "Gemm",
    "GemmEpilogue",
    "GemmError",
    "RunReport",
    "ShapeError",
    "SyncUnavailableError",
    "UnsupportedError",
    "__version__",
    "asarray",
    "asarray_async",
    "configure",
    "gemm",
    "gemm_async",
    "info",
    "last_run",
    "matmul",
    "matmul_async",
    "request_device",
    "request_device_async",
]
