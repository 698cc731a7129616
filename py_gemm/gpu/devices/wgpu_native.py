"""The native device: wgpu-py over Vulkan, Metal or Direct3D. Carries out jobs; decides nothing about products. Imports no NumPy.

wgpu raises a fault in the call that caused it, so nothing is left to report later; read-backs alone are waited for.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from ...errors import DeviceLostError, DeviceMemoryError, GemmError, UnsupportedError
from ..capabilities import Capabilities, Limits, looks_like_software
from ..device import Buffer, Device, Dispatch, Finished, Job, Pending, as_bytes, exclusive
from ..pool import Allocation, Pool, size_class
from ..shaders import ShaderKey
from .timestamp_period import timestamp_period
from .wgpu_recorder import Recorder

# Unused read-back memory that is kept.
STAGING_BYTES = 64 << 20

# Jobs whose times can wait for a read-back; the bytes of their timestamps.
CLOCK_SLOTS = 64
STAMPS_BYTES = 16 * CLOCK_SLOTS

# How request_native_device spells the back ends that wgpu reports, best first for kind "wgpu".
_BACKENDS = ("Vulkan", "Metal", "D3D12", "OpenGL")
_TYPES = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU")


def choose_adapter(rows: list[dict[str, Any]], kind: str) -> int:
    """Which of the adapters (their `info`) serves `kind`: "vulkan" and "metal" want that back end, "wgpu" takes any but prefers
    the order above; then real GPUs before software. Raises UnsupportedError naming what was found, ValueError for other kinds."""
    wanted = {"wgpu": _BACKENDS, "vulkan": ("Vulkan",), "metal": ("Metal",)}.get(kind)
    if wanted is None:
        raise ValueError(f"unknown kind {kind!r} of native device; known: wgpu, vulkan, metal")

    def rank(index: int) -> tuple[int, int]:
        row = rows[index]
        type_ = row.get("adapter_type")
        return (_TYPES.index(type_) if type_ in _TYPES else 3, wanted.index(row["backend_type"]))

    fitting = [index for index, row in enumerate(rows) if row.get("backend_type") in wanted]
    if not fitting:
        found = ", ".join(f"{row.get('device')} ({row.get('backend_type')})" for row in rows) or "no adapter at all"
        raise UnsupportedError(f"no {kind} device: wgpu found {found}")
    return min(fitting, key=rank)


def request_native_device(kind: str = "wgpu") -> WgpuDevice:
    """A device of the best adapter for `kind` ("wgpu", "vulkan", "metal"), with all limits the adapter has.

    Raises UnsupportedError where wgpu is not installed or no such adapter is found.
    """
    wgpu = _import_wgpu()
    adapters = wgpu.gpu.enumerate_adapters_sync()
    adapter = adapters[choose_adapter([dict(each.info) for each in adapters], kind)]
    offered = {"timestamp-query", "subgroup", "shader-f16"} & set(adapter.features)
    try:
        raw = adapter.request_device_sync(required_features=sorted(offered))
    except RuntimeError as error:
        raise UnsupportedError(f"no {kind} device: {error}") from error
    return WgpuDevice(raw)


def _import_wgpu() -> Any:
    try:
        import wgpu
    except ImportError as error:
        raise UnsupportedError(f"no native GPU device: wgpu is not installed ({error}); pip install 'py_gemm[native]'") from error
    return wgpu


# What naga knows and wgpu does not list (wgpu 0.32 reports no language feature at all).
_PROBED_FEATURES = ("packed_4x8_integer_dot_product",)


def _accepted_features(wgpu: Any, raw: Any) -> frozenset[str]:
    """Which of the WGSL language features that matter the device's compiler accepts, found out by asking it, never by a version."""
    accepted = set()
    for name in _PROBED_FEATURES:
        try:
            raw.create_shader_module(code=f"requires {name};\n@compute @workgroup_size(1) fn main() {{}}")
        except wgpu.GPUError:
            continue
        accepted.add(name)
    return frozenset(accepted)


class WgpuDevice(Device):
    """A wgpu.GPUDevice, from `request_native_device` or the caller's own. kind is "wgpu" whatever its back end."""

    kind = "wgpu"

    def __init__(self, raw: Any) -> None:
        super().__init__()
        self._lost: str | None = None
        self._wgpu = _import_wgpu()
        self._raw = raw
        info = dict(raw.adapter.info)
        self.info = {
            name: str(info[name]) for name in ("vendor", "architecture", "device", "description", "backend_type", "adapter_type")
        }
        self.limits = {name: int(value) for name, value in raw.limits.items()}
        self.capabilities = Capabilities(
            backend=str(info["backend_type"]).lower(),
            adapter=str(info["device"] or info["description"]),
            is_software=info["adapter_type"] == "CPU" or looks_like_software(self.info.values()),
            limits=Limits.of(self.limits),
            features=frozenset(raw.features),
            language_features=frozenset(self._wgpu.gpu.wgsl_language_features) | _accepted_features(self._wgpu, raw),
        )
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._next_number = 0
        self._staging = Pool(STAGING_BYTES)
        self._recorder = Recorder(self._wgpu, raw)
        self._staging_created = 0
        self._clock = _Clock(self._wgpu, raw) if "timestamp-query" in raw.features else None

    @property
    def handle(self) -> Any:
        return self._raw

    @property
    def lost(self) -> str | None:
        return self._lost

    def can_wait(self) -> bool:
        return True

    def counts(self) -> dict[str, int]:
        return {"buffers": self.buffers_created, "staging_buffers": self._staging_created, **self._recorder.counts}

    @exclusive
    def destroy(self) -> None:
        if self._lost is None:
            self._lost = "destroyed"
            self._pool.clear()
            self._raw.destroy()

    def abandon(self, reason: str) -> None:
        """Never touch the raw device again: it is lost for `reason`."""
        self._lost = reason

    # Recording

    def create_encoder(self) -> Any:
        with self._translated():
            return self._raw.create_command_encoder()

    @exclusive
    def submit(self, encoder: Any) -> None:
        with self._translated():
            self._raw.queue.submit([encoder.finish()])

    @exclusive
    def record(self, encoder: Any, dispatches: tuple[Dispatch, ...]) -> None:
        with self._translated():
            self._recorder.record(encoder, dispatches)

    @exclusive
    def release_bindings(self, shader: ShaderKey) -> None:
        self._recorder.forget_shader(shader)

    @exclusive
    def execute(self, job: Job) -> Pending:
        with self._translated():
            for buffer, data in job.uploads:
                self._write(buffer.handle, 0, as_bytes(data))
            if not job.dispatches and not job.reads:
                return _Submitted(self)
            clock = self._clock
            encoder = self._raw.create_command_encoder()
            slot = clock.slot() if clock is not None and job.dispatches else None
            if job.dispatches:
                self._recorder.record(encoder, job.dispatches, None if clock is None or slot is None else clock.writes[slot])
            pending: Pending
            if job.reads or (job.timed and slot is not None):
                places, total = _places(job, clock is not None)
                staging = self._take_staging(total)
                for (buffer, offset, nbytes, _), place in zip(job.reads, places, strict=True):
                    encoder.copy_buffer_to_buffer(buffer.handle, offset, staging.handle, place, -(-nbytes // 4) * 4)
                reads = [(place, read[2], read[3]) for place, read in zip(places, job.reads, strict=True)]
                pending = found = _ReadBack(self, staging, total, reads, clock)
                if clock is not None:
                    found.times = clock.resolve(encoder, staging.handle, total - STAMPS_BYTES, slot, found)
            else:
                pending = _Submitted(self)
            self._raw.queue.submit([encoder.finish()])
            if clock is not None:
                clock.submitted(slot, pending)
        return pending

    @exclusive
    def _compile(self, shaders: list[ShaderKey]) -> Pending:
        self.require_alive()
        with self._translated():
            for key in shaders:
                self._recorder.pipeline(key)
                self._ready.add(key)
        return Finished()

    # Buffers

    def _allocate(self, capacity: int) -> Allocation:
        usage = self._wgpu.BufferUsage
        with self._translated():
            handle = self._raw.create_buffer(size=capacity, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
        return Allocation(capacity, self._number_of(handle), handle)

    def _number_of(self, handle: Any) -> int:
        number = self._numbers.get(handle)
        if number is None:
            self._next_number += 1
            number = self._numbers[handle] = self._next_number
        return number

    @exclusive
    def _adopt(self, handle: Any) -> Buffer:
        if not isinstance(handle, self._wgpu.GPUBuffer):
            raise TypeError(f"a Buffer or a wgpu.GPUBuffer is expected, not {type(handle).__name__}")
        return Buffer(self, Allocation(handle.size, self._number_of(handle), handle), handle.size // 4 * 4, owned=False)

    def _handle_of(self, allocation: Allocation) -> Any:
        return allocation.handle

    def _destroy(self, allocation: Allocation) -> None:
        self._recorder.forget_buffer(allocation.number)
        allocation.handle.destroy()

    def _upload(self, buffer: Buffer, data: Any, offset: int) -> None:
        self.require_alive()
        with self._translated():
            self._write(buffer.handle, offset, as_bytes(data))

    def _write(self, handle: Any, offset: int, view: memoryview) -> None:
        """The queue takes whole words: what is left over goes in a last word of its own, filled with zeros."""
        whole = view.nbytes // 4 * 4
        if whole:
            self._raw.queue.write_buffer(handle, offset, view, 0, whole)
        if whole < view.nbytes:
            self._raw.queue.write_buffer(handle, offset + whole, bytes(view[whole:]).ljust(4, b"\0"))

    def _take_staging(self, nbytes: int) -> Allocation:
        capacity = size_class(nbytes, self.capabilities.limits.max_buffer_size)
        staging = self._staging.take(capacity)
        if staging is None:
            usage = self._wgpu.BufferUsage
            staging = Allocation(capacity, 0, self._raw.create_buffer(size=capacity, usage=usage.MAP_READ | usage.COPY_DST))
            self._staging_created += 1
        return staging

    @exclusive
    def give_staging(self, staging: Allocation) -> None:
        """Keep an unmapped read-back buffer for the next one."""
        for surplus in self._staging.give(staging):
            surplus.handle.destroy()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The faults of wgpu as ours, in its own words."""
        self.require_alive()
        wgpu = self._wgpu
        try:
            yield
        except wgpu.GPUOutOfMemoryError as error:
            # Nothing dead was handed out; the memory that waits for re-use is what the next call may need.
            self.empty_pool()
            raise DeviceMemoryError(str(error)) from error
        except (wgpu.GPUError, wgpu.GPUPipelineError) as error:
            # wgpu-native reports a lost device as a fault of validation.
            if "is lost" in str(error):
                self._lost = "the driver dropped it"
                raise DeviceLostError(f"the {self.kind} device is lost: {error}") from error
            raise GemmError(str(error)) from error

    translated = _translated


def _places(job: Job, timed: bool) -> tuple[list[int], int]:
    """Where each read lies in the staging buffer, and the whole length; timestamps lie at the end."""
    places, total = [], 0
    for _, _, nbytes, _ in job.reads:
        places.append(total)
        total += -(-nbytes // 8) * 8
    return places, total + (STAMPS_BYTES if timed else 0)


class _Clock:
    """Timestamps around compute passes, in a ring of slots. A read-back brings the times of all jobs since the one before; of more
    jobs than there are slots the first go without."""

    def __init__(self, wgpu: Any, raw: Any) -> None:
        self.period = timestamp_period(raw.queue)
        self._queries = raw.create_query_set(type="timestamp", count=2 * CLOCK_SLOTS)
        usage = wgpu.BufferUsage
        # Resolved times begin at a multiple of 256 bytes; those of a ring that has wrapped lie in two runs.
        self._resolved = raw.create_buffer(size=2 * STAMPS_BYTES, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
        self.writes = [
            {"query_set": self._queries, "beginning_of_pass_write_index": 2 * slot, "end_of_pass_write_index": 2 * slot + 1}
            for slot in range(CLOCK_SLOTS)
        ]
        self._next = 0
        self._expected: OrderedDict[int, Pending] = OrderedDict()

    def slot(self) -> int:
        """The slot of the next job, taken from the job that had it."""
        self._expected.pop(self._next, None)
        return self._next

    def resolve(self, encoder: Any, staging: Any, offset: int, slot: int | None, own: Pending) -> list[Pending]:
        """Copy all times that are expected, and that of the slot just written, to `staging`; whose they are, in that order."""
        expected = [*self._expected.items(), *([] if slot is None else [(slot, own)])]
        for index, (first, count) in enumerate(_runs([slot for slot, _ in expected])):
            encoder.resolve_query_set(self._queries, 2 * first, 2 * count, self._resolved, index * STAMPS_BYTES)
            encoder.copy_buffer_to_buffer(self._resolved, index * STAMPS_BYTES, staging, offset, 16 * count)
            offset += 16 * count
        return [pending for _, pending in expected]

    def submitted(self, slot: int | None, pending: Pending) -> None:
        """A job was submitted. Only now: a time that no job writes must not be asked for."""
        if isinstance(pending, _ReadBack):
            self._expected.clear()
        elif slot is not None:
            self._expected[slot] = pending
        if slot is not None:
            self._next = (slot + 1) % CLOCK_SLOTS

    def tell(self, pendings: list[Pending], stamps: memoryview) -> None:
        """Give each its time."""
        for pending, (begin, end) in zip(pendings, struct.iter_unpack("<2Q", stamps[: 16 * len(pendings)]), strict=True):
            pending.gpu_seconds = (end - begin) * self.period * 1e-9 if end >= begin else None


def _runs(slots: list[int]) -> list[tuple[int, int]]:
    """(first, count) of the runs of slots that follow each other: one, or two where the ring has wrapped."""
    runs: list[tuple[int, int]] = []
    for slot in slots:
        if runs and runs[-1][0] + runs[-1][1] == slot:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((slot, 1))
    return runs


class _ReadBack(Pending):
    """Waits for the map of a staging buffer and copies it out. times: whose times it brings."""

    times: list[Pending]

    def __init__(
        self, device: WgpuDevice, staging: Allocation, total: int, reads: list[tuple[int, int, Any]], clock: _Clock | None
    ) -> None:
        self.times = []
        self._device = device
        self._staging = staging
        self._total = total
        self._reads = reads
        self._clock = clock

    def wait(self) -> None:
        if not self.done:
            with self._device.translated():
                self._staging.handle.map_sync("READ", 0, self._total)
                self._copy_out()

    def __await__(self) -> Generator[Any, Any, None]:
        if not self.done:
            with self._device.translated():
                yield from self._staging.handle.map_async("READ", 0, self._total).__await__()
                self._copy_out()

    def _copy_out(self) -> None:
        handle = self._staging.handle
        try:
            view = handle.read_mapped(0, self._total, copy=False)
            for place, nbytes, destination in self._reads:
                as_bytes(destination)[:] = view[place : place + nbytes]
            if self._clock is not None:
                self._clock.tell(self.times, view[self._total - STAMPS_BYTES :])
        finally:
            handle.unmap()
        self._device.give_staging(self._staging)
        self.done = True


class _Submitted(Pending):
    """A job without read-back: waiting reads one word behind it, for the queue runs in order."""

    def __init__(self, device: WgpuDevice) -> None:
        self._device = device

    def wait(self) -> None:
        if not self.done:
            self._device.read_buffer(self._device.nothing, 0, 4)
            self.done = True

    def __await__(self) -> Generator[Any, Any, None]:
        if not self.done:
            yield from self._device.read_buffer_async(self._device.nothing, 0, 4).__await__()
            self.done = True
