"""The native device: wgpu-py over Vulkan, Metal or Direct3D. Carries out jobs; decides nothing about products. Imports no NumPy.

Parameters of dispatches live in slots of uniform buffers ("arenas"), found by their content and never overwritten: a recorded
encoder may be submitted at any later time. A full arena is forgotten, not destroyed; whatever was recorded keeps it alive.
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
from ..device import Buffer, Device, Dispatch, Finished, Job, Pending, as_bytes
from ..pool import Allocation, Pool, size_class
from ..shaders import ShaderKey, assemble

# A slot holds any kernel's uniform block and is the alignment that WebGPU guarantees for dynamic offsets.
SLOT_BYTES = 256
ARENA_SLOTS = 256
# Bind groups kept for each pipeline, the least recently used dropped first; `Gemm.encode` promises as many triples of buffers.
BIND_GROUPS = 64
# Unused read-back memory that is kept.
STAGING_BYTES = 64 << 20

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
            language_features=frozenset(self._wgpu.gpu.wgsl_language_features),
        )
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._next_number = 0
        self._staging = Pool(STAGING_BYTES)
        self._layouts: dict[tuple[str, ...], Any] = {}
        self._pipelines: dict[ShaderKey, Any] = {}
        self._bind_groups: dict[ShaderKey, OrderedDict[tuple[int, ...], Any]] = {}
        self._arena: Any = None
        self._arena_number = 0
        self._slots: dict[bytes, int] = {}
        self._counts = {"bind_groups": 0, "parameter_slots": 0, "pipelines": 0, "staging_buffers": 0}
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
        return {"buffers": self.buffers_created, **self._counts}

    def destroy(self) -> None:
        if self._lost is None:
            self._lost = "destroyed"
            self._pool.clear()
            self._raw.destroy()

    # Recording

    def create_encoder(self) -> Any:
        with self._translated():
            return self._raw.create_command_encoder()

    def submit(self, encoder: Any) -> None:
        with self._translated():
            self._raw.queue.submit([encoder.finish()])

    def record(self, encoder: Any, dispatches: tuple[Dispatch, ...]) -> None:
        with self._translated():
            self._record(encoder, dispatches, None)

    def release_bindings(self, shader: ShaderKey) -> None:
        self._bind_groups.pop(shader, None)

    def execute(self, job: Job) -> Pending:
        with self._translated():
            for buffer, data in job.uploads:
                self._write(buffer.handle, 0, as_bytes(data))
            if not job.dispatches and not job.reads:
                return _Submitted(self)
            clock = self._clock if job.reads and job.dispatches else None
            encoder = self._raw.create_command_encoder()
            if job.dispatches:
                self._record(encoder, tuple(job.dispatches), clock)
            pending: Pending
            if job.reads:
                places, total = _places(job, clock is not None)
                staging = self._take_staging(total)
                for (buffer, offset, nbytes, _), place in zip(job.reads, places, strict=True):
                    encoder.copy_buffer_to_buffer(buffer.handle, offset, staging.handle, place, -(-nbytes // 4) * 4)
                if clock is not None:
                    clock.resolve(encoder, staging.handle, total - 16)
                pending = _ReadBack(
                    self, staging, total, [(place, read[2], read[3]) for place, read in zip(places, job.reads, strict=True)], clock
                )
            else:
                pending = _Submitted(self)
            self._raw.queue.submit([encoder.finish()])
        return pending

    def _record(self, encoder: Any, dispatches: tuple[Dispatch, ...], clock: _Clock | None) -> None:
        bound = []
        for dispatch in dispatches:
            pipeline = self._pipeline(dispatch.shader)
            offset = self._slot(dispatch.parameters)
            bound.append((pipeline, self._bind_group(dispatch), offset, dispatch.workgroups))
        compute = encoder.begin_compute_pass() if clock is None else encoder.begin_compute_pass(timestamp_writes=clock.writes)
        for pipeline, group, offset, workgroups in bound:
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group, [offset])
            compute.dispatch_workgroups(*workgroups)
        compute.end()

    def _slot(self, parameters: bytes) -> int:
        """The dynamic offset of a slot that holds `parameters`."""
        offset = self._slots.get(parameters)
        if offset is None:
            if self._arena is None or len(self._slots) == ARENA_SLOTS:
                usage = self._wgpu.BufferUsage
                self._arena = self._raw.create_buffer(size=ARENA_SLOTS * SLOT_BYTES, usage=usage.UNIFORM | usage.COPY_DST)
                self._arena_number += 1
                self._slots = {}
            offset = len(self._slots) * SLOT_BYTES
            self._raw.queue.write_buffer(self._arena, offset, parameters)
            self._slots[parameters] = offset
            self._counts["parameter_slots"] += 1
        return offset

    def _bind_group(self, dispatch: Dispatch) -> Any:
        cache = self._bind_groups.setdefault(dispatch.shader, OrderedDict())
        key = (self._arena_number, *(buffer.number for buffer in dispatch.buffers))
        group = cache.get(key)
        if group is not None:
            cache.move_to_end(key)
            return group
        entries = [{"binding": 0, "resource": {"buffer": self._arena, "offset": 0, "size": SLOT_BYTES}}]
        for binding, buffer in enumerate(dispatch.buffers, 1):
            entries.append({"binding": binding, "resource": {"buffer": buffer.handle, "offset": 0, "size": buffer.handle.size}})
        group = self._raw.create_bind_group(layout=self._layout(dispatch.shader.bindings), entries=entries)
        self._counts["bind_groups"] += 1
        cache[key] = group
        if len(cache) > BIND_GROUPS:
            cache.popitem(last=False)
        return group

    def _layout(self, bindings: tuple[str, ...]) -> Any:
        if bindings not in self._layouts:
            types = {"uniform": "uniform", "read": "read-only-storage", "write": "storage"}
            entries = [
                {
                    "binding": index,
                    "visibility": self._wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": types[each], "has_dynamic_offset": each == "uniform"},
                }
                for index, each in enumerate(bindings)
            ]
            self._layouts[bindings] = self._raw.create_bind_group_layout(entries=entries)
        return self._layouts[bindings]

    def _pipeline(self, key: ShaderKey) -> Any:
        pipeline = self._pipelines.get(key)
        if pipeline is None:
            module = self._raw.create_shader_module(label=key.label, code=assemble(key))
            layout = self._raw.create_pipeline_layout(bind_group_layouts=[self._layout(key.bindings)])
            pipeline = self._raw.create_compute_pipeline(
                label=key.label, layout=layout, compute={"module": module, "entry_point": "main"}
            )
            self._pipelines[key] = pipeline
            self._ready.add(key)
            self._counts["pipelines"] += 1
        return pipeline

    def _compile(self, shaders: list[ShaderKey]) -> Pending:
        self.require_alive()
        with self._translated():
            for key in shaders:
                self._pipeline(key)
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

    def _adopt(self, handle: Any) -> Buffer:
        if not isinstance(handle, self._wgpu.GPUBuffer):
            raise TypeError(f"a Buffer or a wgpu.GPUBuffer is expected, not {type(handle).__name__}")
        return Buffer(self, Allocation(handle.size, self._number_of(handle), handle), handle.size // 4 * 4, owned=False)

    def _handle_of(self, allocation: Allocation) -> Any:
        return allocation.handle

    def _destroy(self, allocation: Allocation) -> None:
        for cache in self._bind_groups.values():
            for key in [key for key in cache if allocation.number in key[1:]]:
                del cache[key]
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
            self._counts["staging_buffers"] += 1
        return staging

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
            self.distrust_memory()
            raise DeviceMemoryError(str(error)) from error
        except (wgpu.GPUError, wgpu.GPUPipelineError) as error:
            # wgpu-native reports a lost device as a fault of validation.
            if "is lost" in str(error):
                self._lost = "the driver dropped it"
                raise DeviceLostError(f"the {self.kind} device is lost: {error}") from error
            raise GemmError(str(error)) from error

    translated = _translated


def _places(job: Job, timed: bool) -> tuple[list[int], int]:
    """Where each read lies in the staging buffer, and the whole length; two timestamps lie at the end."""
    places, total = [], 0
    for _, _, nbytes, _ in job.reads:
        places.append(total)
        total += -(-nbytes // 8) * 8
    return places, total + (16 if timed else 0)


class _Clock:
    """Timestamps around one compute pass; jobs run in order, so one query set serves all."""

    def __init__(self, wgpu: Any, raw: Any) -> None:
        from .timestamp_period import timestamp_period

        self.period = timestamp_period(raw.queue)
        self._queries = raw.create_query_set(type="timestamp", count=2)
        usage = wgpu.BufferUsage
        self._resolved = raw.create_buffer(size=16, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
        self.writes = {"query_set": self._queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}

    def resolve(self, encoder: Any, staging: Any, offset: int) -> None:
        encoder.resolve_query_set(self._queries, 0, 2, self._resolved, 0)
        encoder.copy_buffer_to_buffer(self._resolved, 0, staging, offset, 16)

    def seconds(self, stamps: memoryview) -> float | None:
        begin, end = struct.unpack("<2Q", stamps)
        return (end - begin) * self.period * 1e-9 if end >= begin else None


class _ReadBack(Pending):
    """Waits for the map of a staging buffer and copies it out."""

    def __init__(
        self, device: WgpuDevice, staging: Allocation, total: int, reads: list[tuple[int, int, Any]], clock: _Clock | None
    ) -> None:
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
                self.gpu_seconds = self._clock.seconds(view[self._total - 16 :])
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
