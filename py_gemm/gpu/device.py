"""The Device: buffers, pipelines, encoders and jobs, the same for the browser and for wgpu. Decides nothing about products.

An operation is one Job: uploads, dispatches and read-backs that cross into the device in one call. `execute` is synchronous up
to the submission, so the order of calls is the order on the device's queue; only the read-back is waited for, by the Pending.
Python threads may share a device: what touches its books holds its lock, waiting does not.
Subclasses in devices/ supply the few raw steps at the end of this file. Any object with the buffer protocol is data; no NumPy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from ..configuration import knob
from ..errors import DeviceLostError, ShapeError, UnsupportedError
from .capabilities import Capabilities
from .pace import Pace
from .pool import Allocation, Pool, size_class
from .shaders import ShaderKey

P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound="Device")


def exclusive(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
    """One thread at a time in these methods of a device; the same thread may enter again."""

    @wraps(method)
    def locked(self: Self, *arguments: P.args, **named: P.kwargs) -> R:
        with self.lock:
            return method(self, *arguments, **named)

    return cast("Callable[Concatenate[Self, P], R]", locked)


class Buffer:
    """Memory of a device. `nbytes` is padded to whole 32-bit words; dropped or released, the memory goes back to the pool."""

    __slots__ = ("__weakref__", "allocation", "device", "holders", "nbytes", "owned", "unwanted")

    def __init__(self, device: Device, allocation: Allocation, nbytes: int, owned: bool = True) -> None:
        self.device = device
        self.allocation: Allocation | None = allocation
        self.nbytes = nbytes
        self.owned = owned
        # Calls that wait for their turn with this buffer, and whether its owner has released it meanwhile.
        self.holders = 0
        self.unwanted = False

    @property
    def number(self) -> int:
        """The buffer's name among those of its device; two Buffers with one number are one piece of memory."""
        return self._alive().number

    @property
    def handle(self) -> Any:
        """The raw GPUBuffer: a JsProxy in the browser, a wgpu.GPUBuffer outside."""
        allocation = self._alive()
        if allocation.handle is None:
            allocation.handle = self.device._handle_of(allocation)
        return allocation.handle

    def _alive(self) -> Allocation:
        if self.allocation is None:
            raise ShapeError("this device buffer has been released")
        return self.allocation

    def __del__(self) -> None:
        if getattr(self, "allocation", None) is not None:
            self.device.release_buffer(self)

    def __repr__(self) -> str:
        state = "released" if self.allocation is None else f"number {self.allocation.number}"
        return f"<Buffer of {self.nbytes} bytes on {self.device.kind}, {state}>"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One dispatch: buffers in the order of the shader's storage bindings, the bytes of its uniform block, the grid. windows: what
    is bound of each, (first byte, bytes), None for all of it; empty where every buffer is bound whole."""

    shader: ShaderKey
    buffers: tuple[Buffer, ...]
    parameters: bytes
    workgroups: tuple[int, int, int]
    windows: tuple[tuple[int, int] | None, ...] = ()


@dataclass(slots=True)
class Job:
    """One crossing: uploads, then dispatches, then reads.

    uploads: (buffer, data): C-contiguous bytes of any length, copied during the call, to the buffer's start.
    reads: (buffer, byte_offset, nbytes, destination): byte_offset in whole words, destination writable and C-contiguous.
    timed: bring the time of the dispatches back now, as a read does. Every job's is taken where the device can; without reads it
    comes with those of a later job.
    """

    uploads: list[tuple[Buffer, Any]] = field(default_factory=list)
    dispatches: list[Dispatch] = field(default_factory=list)
    reads: list[tuple[Buffer, int, int, Any]] = field(default_factory=list)
    timed: bool = False


class Pending(ABC):
    """What a job leaves to wait for: its read-backs have arrived, or (without any) the device has finished it.

    Faults that the device reported for this job, or for an earlier one that nobody waited for, are raised here.
    """

    gpu_seconds: float | None = None
    """Seconds that the dispatches took on the device, by timestamp queries; None where not offered, or not known yet. Chrome rounds
    to 100 us."""

    done: bool = False

    @abstractmethod
    def wait(self) -> None:
        """Wait; SyncUnavailableError where the browser does not let Python wait."""

    @abstractmethod
    def __await__(self) -> Generator[Any, Any, None]: ...


class Together(Pending):
    """Jobs that were submitted one behind the other: the last ends last."""

    def __init__(self, parts: list[Pending]) -> None:
        self._parts = parts

    def wait(self) -> None:
        self._parts[-1].wait()
        self.done = True

    def __await__(self) -> Generator[Any, Any, None]:
        yield from self._parts[-1].__await__()
        self.done = True

    @property
    def gpu_seconds(self) -> float | None:  # type: ignore[override]  # a sum of what arrives later
        seconds = [part.gpu_seconds for part in self._parts]
        return None if None in seconds else sum(each for each in seconds if each is not None)


class Finished(Pending):
    """Nothing to wait for."""

    done = True

    def wait(self) -> None:
        return

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


class Device(ABC):
    """One GPU device."""

    kind: str
    capabilities: Capabilities
    info: dict[str, str]
    limits: dict[str, int]

    def __init__(self) -> None:
        self.lock = RLock()
        self._pool = Pool(knob("pool_bytes"))
        self._ready: set[ShaderKey] = set()
        self._nothing: Buffer | None = None
        self._generation = 0
        self.buffers_created = 0
        self._pace: Pace | None = None

    @property
    def pace(self) -> Pace:
        """How fast this device multiplies, as far as is known."""
        if self._pace is None:
            self._pace = Pace(self.capabilities.is_software)
        return self._pace

    # Buffers

    def create_buffer(self, source: Any) -> Buffer:
        """A buffer of `source` bytes (undefined contents), or one that holds a copy of the data `source`.

        Raises UnsupportedError where the device takes no buffer that large.
        """
        if isinstance(source, int):
            return self._create(source)
        view = as_bytes(source)
        buffer = self._create(view.nbytes)
        if view.nbytes:
            self.execute(Job(uploads=[(buffer, source)]))
        return buffer

    @exclusive
    def _create(self, nbytes: int) -> Buffer:
        if nbytes < 0:
            raise ShapeError(f"create_buffer: the size is negative: {nbytes}")
        limits = self.capabilities.limits
        if nbytes > limits.max_buffer_size:
            raise UnsupportedError(
                f"create_buffer: {nbytes:,} bytes asked, maxBufferSize of {self.capabilities.adapter} is {limits.max_buffer_size:,}"
            )
        capacity = size_class(nbytes, limits.largest_bound)
        allocation = self._pool.take(capacity)
        if allocation is None:
            self.require_alive()
            allocation = self._allocate(capacity)
            allocation.generation = self._generation
            self.buffers_created += 1
        return Buffer(self, allocation, max(-(-nbytes // 4) * 4, 4))

    @exclusive
    def release_buffer(self, buffer: Buffer) -> None:
        """Give the memory back to the pool, as soon as no waiting call holds it. Work already submitted still finds it; releasing
        twice does nothing."""
        if buffer.holders:
            buffer.unwanted = True
            return
        allocation, buffer.allocation = buffer.allocation, None
        if allocation is None or not buffer.owned or self.lost:
            return
        if allocation.generation != self._generation:
            self._destroy(allocation)
            return
        for surplus in self._pool.give(allocation):
            self._destroy(surplus)

    @exclusive
    def hold_buffer(self, buffer: Buffer) -> None:
        """Keep the memory for a call that waits for its turn."""
        buffer.holders += 1

    @exclusive
    def let_go(self, buffer: Buffer) -> None:
        """The call of one `hold_buffer` is over."""
        buffer.holders -= 1
        if buffer.unwanted:
            self.release_buffer(buffer)

    @exclusive
    def empty_pool(self) -> None:
        """Destroy all buffers that wait for re-use."""
        for allocation in self._pool.clear():
            self._destroy(allocation)

    @exclusive
    def distrust_memory(self) -> None:
        """After a device ran out of memory: a browser tells it late, so any buffer made up to now may be a dead one. None of
        them is used again once its owner lets go."""
        self._generation += 1
        self._nothing = None
        self.empty_pool()

    def adopt(self, handle: Any) -> Buffer:
        """A raw GPUBuffer of this same device (usage STORAGE, and COPY_DST or COPY_SRC where it is written or read) as a Buffer;
        it stays its owner's."""
        return handle if isinstance(handle, Buffer) else self._adopt(handle)

    @property
    @exclusive
    def nothing(self) -> Buffer:
        """The buffer that is bound where a kernel reads none."""
        if self._nothing is None:
            self._nothing = self._create(16)
        return self._nothing

    @exclusive
    def write_buffer(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        """Copy `data` to byte `offset` (whole words) of `buffer`. A last word that is not whole is filled up with zeros."""
        nbytes = as_bytes(data).nbytes
        self._require_range("write_buffer", buffer, offset, nbytes)
        if nbytes:
            self._upload(buffer, data, offset)

    def read_buffer(self, buffer: Buffer, offset: int = 0, nbytes: int | None = None) -> bytes:
        """Wait for and return `nbytes` (default: to the end) from byte `offset` (whole words)."""
        destination, job = self._read_job(buffer, offset, nbytes)
        self.execute(job).wait()
        return bytes(destination)

    async def read_buffer_async(self, buffer: Buffer, offset: int = 0, nbytes: int | None = None) -> bytes:
        """`read_buffer`, awaited."""
        destination, job = self._read_job(buffer, offset, nbytes)
        await self.execute(job)
        return bytes(destination)

    def _read_job(self, buffer: Buffer, offset: int, nbytes: int | None) -> tuple[bytearray, Job]:
        count = buffer.nbytes - offset if nbytes is None else nbytes
        self._require_range("read_buffer", buffer, offset, count)
        destination = bytearray(count)
        return destination, Job(reads=[(buffer, offset, count, destination)] if count else [])

    def _require_range(self, operation: str, buffer: Buffer, offset: int, nbytes: int) -> None:
        if offset < 0 or offset % 4:
            raise ShapeError(f"{operation}: offset must be a multiple of 4 bytes that is not negative, not {offset}")
        if nbytes < 0 or offset + nbytes > buffer.nbytes:
            raise ShapeError(f"{operation}: bytes {offset} to {offset + nbytes - 1} asked, the buffer holds {buffer.nbytes}")

    # Pipelines

    def missing(self, shaders: Iterable[ShaderKey]) -> bool:
        """Whether some of these pipelines are not compiled yet."""
        return not self._ready.issuperset(shaders)

    def prepare(self, shaders: Iterable[ShaderKey]) -> Pending:
        """Compile what is missing, in the browser without blocking the page. `execute` would compile synchronously."""
        missing = [key for key in shaders if key not in self._ready]
        return self._compile(missing) if missing else Finished()

    # Verdicts of the probe

    def adopt_verdict(self, *, nan_inf: bool, order_kept: bool) -> None:
        """Keep what gpu/probe.py found; `capabilities` is then another frozen value."""
        self.capabilities = replace(self.capabilities, nan_inf=nan_inf, order_kept=order_kept)

    def prefer(self, row: str | None) -> None:
        """Take this tuned row for float32 from now on (None: the portable row)."""
        self.capabilities = replace(self.capabilities, preferred=row)

    def require_alive(self) -> None:
        """DeviceLostError where the device is gone."""
        if self.lost:
            raise DeviceLostError(f"the {self.kind} device is lost: {self.lost}")

    @property
    def adapter(self) -> str:
        """One line for people: what runs."""
        return f"{self.capabilities.adapter}{' (software)' if self.capabilities.is_software else ''}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.adapter}{f', lost: {self.lost}' if self.lost else ''}>"

    # What a device supplies

    @property
    @abstractmethod
    def lost(self) -> str | None:
        """None, or why the device is gone: it never comes back, ask for another."""

    @property
    @abstractmethod
    def handle(self) -> Any:
        """The raw GPUDevice."""

    @abstractmethod
    def create_encoder(self) -> Any:
        """A raw GPUCommandEncoder; callers may as well bring their own from `handle`."""

    @abstractmethod
    def submit(self, encoder: Any) -> None:
        """Finish `encoder` and submit it."""

    @abstractmethod
    def record(self, encoder: Any, dispatches: tuple[Dispatch, ...]) -> None:
        """Record into a caller's encoder, submit nothing. Allocates nothing once bind groups and parameters are cached."""

    @abstractmethod
    def execute(self, job: Job) -> Pending:
        """Upload, encode, submit; start the read-back."""

    @abstractmethod
    def can_wait(self) -> bool:
        """Whether `Pending.wait` works here and now."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """How many objects of each kind were created since the start: for tests and `info`."""

    @abstractmethod
    def release_bindings(self, shader: ShaderKey) -> None:
        """Drop the cached bind groups of one pipeline."""

    @abstractmethod
    def destroy(self) -> None:
        """Destroy the device: `lost` is then "destroyed"."""

    @abstractmethod
    def _allocate(self, capacity: int) -> Allocation: ...

    @abstractmethod
    def _adopt(self, handle: Any) -> Buffer: ...

    @abstractmethod
    def _handle_of(self, allocation: Allocation) -> Any: ...

    @abstractmethod
    def _destroy(self, allocation: Allocation) -> None: ...

    @abstractmethod
    def _upload(self, buffer: Buffer, data: Any, offset: int) -> None: ...

    @abstractmethod
    def _compile(self, shaders: list[ShaderKey]) -> Pending: ...


def as_bytes(data: Any) -> memoryview:
    """A flat view of the bytes of a C-contiguous object with the buffer protocol."""
    view = memoryview(data)
    if not view.c_contiguous:
        raise ShapeError("device data must be C-contiguous")
    return view.cast("B") if view.nbytes else memoryview(b"")
