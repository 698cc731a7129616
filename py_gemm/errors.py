"""The exceptions of py_gemm, and nothing else.

Every one is raised before anything is recorded or written, except DeviceLostError and DeviceMemoryError: after those, arrays of
the host are unchanged and the next call on a fresh device works. Messages name the operation, the dimension and the figures.
"""

from __future__ import annotations


class GemmError(Exception):
    """The root of what py_gemm raises of its own; raised itself for a fault that a device reports in its own words."""


class ShapeError(GemmError, ValueError):
    """Sizes, strides, offsets or ranges that do not fit together."""


class AliasError(GemmError, ValueError):
    """An output that shares memory with an input, or with itself, in a way that would change the result."""


class UnsupportedError(GemmError):
    """A limit or a feature that the device (or this version) lacks: says which, how much was asked, how much there is."""


class SyncUnavailableError(GemmError):
    """A synchronous call that would have to wait for the GPU where the browser does not let Python wait."""


class DeviceLostError(GemmError):
    """The GPU device is gone (driver reset, tab suspended, destroyed)."""


class DeviceMemoryError(GemmError, MemoryError):
    """The device (or the memory of the WebAssembly engine) cannot hold what the operation needs."""
