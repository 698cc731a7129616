"""The interpreter's memory by address, without NumPy: blocks it owns, and the buffers of objects. Checks no ranges."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any


class OwnedBlock:
    """`nbytes` of the interpreter's heap, zeroed, at an address that is a multiple of 64. MemoryError where there is no room."""

    __slots__ = ("_bytes", "_view", "address", "nbytes", "offset")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._bytes = bytearray(nbytes + 63)
        self._view = (ctypes.c_char * len(self._bytes)).from_buffer(self._bytes)
        start = ctypes.addressof(self._view)
        self.offset = -start % 64
        self.address = start + self.offset

    @staticmethod
    def of(content: bytes | bytearray) -> OwnedBlock:
        """A block with that content."""
        block = OwnedBlock(len(content))
        block.buffer[block.offset : block.offset + len(content)] = content
        return block

    @property
    def buffer(self) -> bytearray:
        """The bytes; the block begins at `offset` of them."""
        return self._bytes


class _PyBuffer(ctypes.Structure):
    """Py_buffer of the C API."""

    _fields_ = (
        ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    )  # fmt: skip


_SIMPLE, _WRITABLE = 0, 1


class PinnedBuffer:
    """The memory of an object with the buffer protocol, held in place inside a `with` block.

    address, nbytes: its C-contiguous bytes. BufferError where it has none, or is read-only and `writable` is asked.
    """

    __slots__ = ("_buffer", "_held", "address", "nbytes")

    def __init__(self, source: Any, *, writable: bool = False) -> None:
        self._buffer = _PyBuffer()
        self._held = False
        ctypes.pythonapi.PyObject_GetBuffer(
            ctypes.py_object(source), ctypes.byref(self._buffer), _WRITABLE if writable else _SIMPLE
        )
        self._held = True
        self.address: int = self._buffer.buf or 0
        self.nbytes: int = self._buffer.len

    def release(self) -> None:
        if self._held:
            self._held = False
            ctypes.pythonapi.PyBuffer_Release(ctypes.byref(self._buffer))

    def __enter__(self) -> PinnedBuffer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


_UNSIGNED: dict[int, tuple[Any, Any]] = {
    1: (ctypes.c_uint8, "B"), 2: (ctypes.c_uint16, "H"), 4: (ctypes.c_uint32, "I"), 8: (ctypes.c_uint64, "Q"),
}  # fmt: skip


def line_view(address: int, items: int, item: int, step: int) -> memoryview:
    """A memoryview of `items` elements of `item` bytes that lie `step` bytes apart (a multiple of `item`), as unsigned integers."""
    kind, code = _UNSIGNED[item]
    pace = step // item
    whole = (kind * ((items - 1) * pace + 1)).from_address(address)
    view: memoryview[int] = memoryview(whole).cast("B").cast(code)
    return view[::pace]


def heap_view(address: int, nbytes: int) -> memoryview:
    """A writable memoryview of these bytes."""
    return memoryview((ctypes.c_uint8 * nbytes).from_address(address)).cast("B")
