"""What callers hand in, as NumPy arrays of a known element type; and DeviceArray, what stays on a device between calls.

Accepts NumPy arrays (any strides, any byte order), ml_dtypes' bfloat16, uint16 bits tagged as bfloat16, lists, buffers and
objects with `__array__`. Never changes an input; copies only what no kernel can express (byte order, torn strides).
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import BFLOAT16, BYTE_TYPES, FLOAT16, FLOAT32, FLOAT64, FLOAT_TYPES, INT8, UINT8, ElementType
from .errors import AliasError, DeviceMemoryError, ShapeError, SyncUnavailableError, UnsupportedError

if TYPE_CHECKING:
    from .gpu.device import Buffer, Pending
    from .report.runs import Run, RunReport

Array = NDArray[Any]

_EXACT_OVERLAP_LIMIT = 1 << 22  # elements up to which overlap within one array is enumerated (32 MiB of indices)


@cache
def bfloat16_dtype() -> np.dtype[Any]:
    """NumPy's dtype of a bfloat16 array: that of ml_dtypes where it is installed, else uint16 (the bits)."""
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def numpy_dtype(element: ElementType, *, bits: bool = False) -> np.dtype[Any]:
    """The NumPy dtype that holds `element`; with `bits`, bfloat16 is uint16 even where ml_dtypes is installed."""
    if element is BFLOAT16:
        return np.dtype(np.uint16) if bits else bfloat16_dtype()
    return np.dtype(element.name)


_BY_DTYPE: dict[np.dtype[Any], ElementType] = {np.dtype(each.name): each for each in (FLOAT32, FLOAT16, FLOAT64, INT8, UINT8)}


def element_type(operation: str, name: str, dtype: np.dtype[Any], tag: object = None) -> ElementType:
    """The element type of operand `name`; TypeError for what a floating-point product does not take.

    `tag` "bfloat16" says that a uint16 array holds bfloat16 bits.
    """
    argument = f"dtype_{name}"
    found = _known_type(operation, name, dtype, argument, tag)
    if found is not None and found.name in FLOAT_TYPES:
        return found
    if dtype.kind in "iu":
        hint = _bits_hint(dtype, argument)
        raise TypeError(f"{operation}: {name} is {dtype}: products of integers are the work of int8_gemm{hint}")
    raise TypeError(f"{operation}: {name} is {dtype}; taken are {', '.join(FLOAT_TYPES)}")


def stored_type(operation: str, dtype: np.dtype[Any], tag: object) -> ElementType:
    """The element type of the `x` of `asarray` and `prepack`, which take the bytes of int8_gemm, too. tag: their `dtype`."""
    found = _known_type(operation, "x", dtype, "dtype", tag)
    if found is None:
        taken = ", ".join((*FLOAT_TYPES, *BYTE_TYPES))
        raise TypeError(f"{operation}: x is {dtype}; taken are {taken}{_bits_hint(dtype, 'dtype')}")
    return found


def _known_type(operation: str, name: str, dtype: np.dtype[Any], argument: str, tag: object) -> ElementType | None:
    """None for what is neither a float nor a byte; TypeError where the tag, given as `argument`, is not of that type."""
    wanted = None if tag is None else requested_type(operation, argument, tag)
    if wanted is BFLOAT16 and dtype == np.uint16:
        return BFLOAT16
    found = _BY_DTYPE.get(dtype.newbyteorder("=")) or (BFLOAT16 if dtype.name == "bfloat16" else None)
    if found is not None and wanted is not None and wanted is not found:
        raise TypeError(f"{operation}: {name} is {dtype}, which {argument}={tag!r} does not describe")
    return found


def _bits_hint(dtype: np.dtype[Any], argument: str) -> str:
    return f' (for bfloat16 bits in uint16, tag them: {argument}="bfloat16")' if dtype == np.uint16 else ""


def requested_type(operation: str, name: str, dtype: object) -> ElementType:
    """The float type that a caller asks for by name, NumPy dtype or scalar type; TypeError for anything else."""
    if isinstance(dtype, ElementType):
        return dtype
    if isinstance(dtype, str) and dtype in FLOAT_TYPES:
        return FLOAT_TYPES[dtype]
    try:
        found = np.dtype(dtype).name  # type: ignore[call-overload]
    except TypeError:
        found = repr(dtype)
    if found not in FLOAT_TYPES:
        raise TypeError(f"{operation}: {name}={dtype!r} is not a float type; known: {', '.join(FLOAT_TYPES)}")
    return FLOAT_TYPES[found]


def as_array(operation: str, name: str, value: object) -> Array:
    """`value` as np.asarray takes it; ShapeError where it has no dimension."""
    array = np.asarray(value)
    require_dimensions(operation, name, array.shape)
    return array


def require_dimensions(operation: str, name: str, shape: tuple[int, ...]) -> None:
    """A product takes no operand without a dimension."""
    if not shape:
        raise ShapeError(f"{operation}: {name} has no dimension (shape ()); at least one is needed")


def expressible(array: Array) -> bool:
    """Whether kernels can address the elements where they lie: this machine's byte order, strides of whole elements."""
    size = array.dtype.itemsize
    return array.dtype.isnative and all(stride % size == 0 for stride in array.strides)


def compact(array: Array) -> Array:
    """A C-contiguous copy in this machine's byte order."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def unwritten(operation: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array, to be written. DeviceMemoryError where there is no memory for it, or its bytes are more than NumPy can count."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:
        nbytes = prod(shape) * dtype.itemsize
        raise DeviceMemoryError(f"{operation}: no memory for {nbytes} bytes, {dtype} of shape {shape}: {error}") from error


def element_strides(array: Array) -> tuple[int, ...]:
    """The strides in elements; the array must be `expressible`."""
    size = array.dtype.itemsize
    return tuple(stride // size for stride in array.strides)


def span(array: Array) -> tuple[int, int]:
    """(low, high): the elements from the lowest to one past the highest, counted from element [0, ..., 0]."""
    if array.size == 0:
        return 0, 0
    reach = [(size - 1) * stride for size, stride in zip(array.shape, element_strides(array), strict=True)]
    return sum(each for each in reach if each < 0), sum(each for each in reach if each > 0) + 1


def is_sparse(array: Array) -> bool:
    """Whether more than half of the memory that the array spans belongs to others."""
    low, high = span(array)
    distinct = 1
    for size, stride in zip(array.shape, array.strides, strict=True):
        distinct *= size if stride else 1
    return high - low > 2 * distinct


def spanned_bytes(array: Array) -> tuple[Array, int]:
    """All memory from the lowest element to the highest as bytes, without a copy, and the index of element [0, ..., 0] in it."""
    low, high = span(array)
    # flipping the axes that run backwards puts the lowest element first
    flipped = array[tuple(slice(None, None, -1) if stride < 0 else slice(None) for stride in array.strides)]
    flat = np.lib.stride_tricks.as_strided(flipped, shape=(high - low,), strides=(array.dtype.itemsize,), writeable=False)
    return as_bytes(flat), -low


def as_bytes(array: Array) -> Array:
    """A contiguous array as uint8, without a copy (bfloat16 and float16 have no buffer format that every consumer knows)."""
    return array.reshape(-1).view(np.uint8)


def address(array: Array) -> int:
    """Where element [0, ..., 0] lies in memory."""
    return int(array.__array_interface__["data"][0])


def elements_share_memory(array: Array) -> bool:
    """Whether two elements of one array lie in the same place; exact up to 2^22 elements, beyond that on the safe side."""
    if array.size == 0 or strides_are_nested(array):
        return False
    pairs = _steps(array)
    if array.size > _EXACT_OVERLAP_LIMIT or any(stride < array.dtype.itemsize for stride, _ in pairs):
        return True
    offsets = np.zeros((), np.int64)
    for stride, size in pairs:
        offsets = np.add.outer(offsets, np.arange(size, dtype=np.int64) * stride)
    ordered = np.sort(offsets, axis=None)
    return bool(np.any(np.diff(ordered) < array.dtype.itemsize))


def strides_are_nested(array: Array) -> bool:
    """Whether each stride steps over all that the smaller ones reach, as in every view that indexing makes: then no two
    elements share memory. Kernels write only such an `out`; any other gets a copy of the result."""
    reach = array.dtype.itemsize - 1
    for stride, size in _steps(array):
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


def _steps(array: Array) -> list[tuple[int, int]]:
    return sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True) if size > 1)


def check_alias(operation: str, out: Array, inputs: dict[str, Array | None]) -> None:
    """AliasError where writing `out` could change an input before it is read; `c` in the very place of `out` is welcome."""
    if elements_share_memory(out):
        raise AliasError(f"{operation}: elements of out share memory (shape {out.shape}, strides {out.strides} bytes)")
    for name, array in inputs.items():
        if array is None or not np.may_share_memory(out, array):
            continue
        if (
            name == "c"
            and address(array) == address(out)
            and array.strides == out.strides
            and array.shape == out.shape
            and array.dtype == out.dtype
        ):
            continue
        if _share(out, array):
            raise AliasError(
                f"{operation}: out shares memory with {name} (out: shape {out.shape}, strides {out.strides} bytes; "
                f"{name}: shape {array.shape}, strides {array.strides} bytes)"
            )


def _share(first: Array, second: Array) -> bool:
    try:
        return np.shares_memory(first, second, max_work=1_000_000)  # type: ignore[arg-type]  # NumPy's stub knows two of its values
    except np.exceptions.TooHardError:
        return True


def float32_from_bfloat16(bits: Array) -> NDArray[np.float32]:
    """The values of bfloat16 bits (uint16), exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bfloat16_from_float32(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of float32 values rounded to nearest, ties to even; a NaN keeps its sign and becomes quiet."""
    word = np.ascontiguousarray(values).view(np.uint32)
    rounded = (word + np.uint32(0x7FFF) + ((word >> 16) & 1)) >> 16
    return np.where((word & 0x7FFFFFFF) > 0x7F800000, (word >> 16) | 0x40, rounded).astype(np.uint16)


def widen(array: Array, element: ElementType, wide: type[np.float32] | type[np.float64]) -> Array:
    """The values of `array` as `wide`; float64 to float32 is rounded once, everything else is exact."""
    if element is BFLOAT16:
        return float32_from_bfloat16(array.view(np.uint16)).astype(wide, copy=False)
    return array.astype(wide)


_RELEASED = "this DeviceArray was released"


class DeviceArray:
    """A matrix, or a batch of them, that stays on its device between calls. Dense, row-major, changed only as the `out` of a call.

    `shape`, `dtype`, `ndim`, `size`, `nbytes` and `device` are as in NumPy. `numpy()` waits and copies to the host
    (`numpy_async()` where waiting is not possible); `@` multiplies. What a device reports about the operation that made
    an array is raised when the array is read.
    """

    _holds = False  # whether this is the copy of a waiting call (`held`)
    __array_ufunc__ = None  # NumPy leaves `ndarray @ DeviceArray` to __rmatmul__

    def __init__(
        self,
        device: Any,
        shape: tuple[int, ...],
        element: ElementType,
        *,
        bits: bool = False,
        array: Array | None = None,
        buffer: Buffer | None = None,
        pending: Pending | None = None,
        run: Run | None = None,
    ) -> None:
        self.device = device
        self.shape = shape
        self.element_type = element
        self.bits = bits
        self._array = array
        self._buffer = buffer
        self._pending = pending
        self._run = run

    @property
    def dtype(self) -> np.dtype[Any]:
        return numpy_dtype(self.element_type, bits=self.bits)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes, as in NumPy; always those of a dense row-major array."""
        steps, step = [], self.element_type.size
        for length in reversed(self.shape):
            steps.append(step)
            step *= length
        return tuple(reversed(steps))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def nbytes(self) -> int:
        return self.size * self.element_type.size

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an unsized DeviceArray")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.element_type.name}, device={self.device.kind})"

    def numpy(self) -> Array:
        """A copy on the host. SyncUnavailableError where Python cannot wait: `await x.numpy_async()` works there."""
        array = self.host()
        if array is not None:
            return array.copy()
        if not self.device.can_wait():
            raise SyncUnavailableError(
                "DeviceArray.numpy: this entry into Python cannot wait for the GPU; write instead:  x = await x.numpy_async()"
            )
        array, reading = self._start_reading()
        if reading is not None:
            reading.wait()
            self._note_end()
        return array

    async def numpy_async(self) -> Array:
        """A copy on the host."""
        array = self.host()
        if array is not None:
            return array.copy()
        array, reading = self._start_reading()
        if reading is not None:
            await reading
            self._note_end()
        return array

    def __await__(self) -> Generator[Any, None, DeviceArray]:
        """Wait until the operation that makes this array has ended; its errors are raised here."""
        if self._pending is not None:
            yield from self._pending.__await__()
            self._pending = None
            self._note_end()
        return self

    def report(self) -> RunReport | None:
        """What is known of the call that made this array: kernel and times, as `last_run` tells them; None where no product did.
        The device's time is there once this array, or one that was made later, has been read or awaited; between two read-backs a
        device keeps the times of the last 64 submissions."""
        return None if self._run is None else self._run.report()

    def _note_end(self) -> None:
        if self._run is not None:
            self._run.ended()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a DeviceArray cannot be seen as a NumPy array without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __matmul__(self, other: Any) -> Any:
        from .api import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        from .api import matmul

        return matmul(other, self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a DeviceArray is neither copied nor pickled, it belongs to its device; x.numpy() can be both")

    def host(self) -> Array | None:
        """The NumPy array itself where the device is the CPU (not a copy); None on a GPU."""
        self.require_live()
        return self._array

    def require_live(self) -> None:
        """ValueError where the array was released."""
        if self._array is None and self._buffer is None:
            raise ValueError(_RELEASED)

    def release(self) -> None:
        """Give the memory back now rather than when the array is collected; the array cannot be used afterwards."""
        self._let_go()
        self._array = None

    def __del__(self) -> None:
        if getattr(self, "_buffer", None) is not None:
            self._let_go()

    def _let_go(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            (self.device.let_go if self._holds else self.device.release_buffer)(buffer)

    def held(self) -> DeviceArray:
        """This array as a call that waits for its turn holds it: what its owner releases meanwhile stays until the call is over."""
        if self._array is None and self._buffer is None:
            return self
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        if self._buffer is not None:
            copy._holds = True
            self.device.hold_buffer(self._buffer)
        return copy

    def _live(self) -> Buffer:
        if self._buffer is None:
            raise ValueError(_RELEASED)
        return self._buffer

    def _start_reading(self) -> tuple[Array, Pending | None]:
        """The array that will hold the values, and what to wait for (None where there are none).

        The read-back runs behind the operation that makes the array and reports its faults too: nothing else is waited for.
        """
        from .gpu.device import Job

        self._pending = None
        array = unwritten("DeviceArray.numpy", self.shape, self.dtype)
        buffer = self._live()
        if array.size == 0:
            return array, None
        return array, self.device.execute(Job(reads=[(buffer, 0, self.nbytes, as_bytes(array))]))


def snapshot(operation: str, value: object, device: Any, tag: object) -> tuple[Array, ElementType, bool]:
    """What `asarray` puts on a device: a dense array in this machine's byte order, its type, and whether it came as bits."""
    array = np.asarray(value)
    element = stored_type(operation, array.dtype, tag)
    if element is FLOAT64 and device.kind != "cpu":
        raise UnsupportedError(f"{operation}: float64 stays on the CPU; {device.kind} takes float32, float16 and bfloat16")
    bits = element is BFLOAT16 and array.dtype == np.uint16
    native = array.dtype.newbyteorder("=")
    if device.kind == "cpu":
        copy = unwritten(operation, array.shape, native)
        copy[...] = array
        return copy, element, bits
    return np.asarray(array, dtype=native, order="C"), element, bits  # the upload is the copy
