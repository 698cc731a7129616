"""Records dispatches into wgpu encoders: pipelines, bind groups and parameter slots, each made once and then found again.

Parameters of dispatches live in slots of uniform buffers ("arenas"), found by their content and never overwritten: a recorded
encoder may be submitted at any later time. A full arena is forgotten, not destroyed; whatever was recorded keeps it alive.
Submits nothing, and knows nothing of jobs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from ..device import Dispatch
from ..shaders import ShaderKey, assemble

# A slot holds any kernel's uniform block and is the alignment that WebGPU guarantees for dynamic offsets.
SLOT_BYTES = 256
ARENA_SLOTS = 256
# Bind groups kept for each pipeline, the least recently used dropped first; `Gemm.encode` promises as many triples of buffers.
BIND_GROUPS = 64


class Recorder:
    """What one wgpu.GPUDevice has made for recording. `counts`: how many of each, since the start."""

    def __init__(self, wgpu: Any, raw: Any) -> None:
        self._wgpu = wgpu
        self._raw = raw
        self._layouts: dict[tuple[str, ...], Any] = {}
        self._pipelines: dict[ShaderKey, Any] = {}
        self._bind_groups: dict[ShaderKey, OrderedDict[tuple[Any, ...], Any]] = {}
        self._arena: Any = None
        self._arena_number = 0
        self._slots: dict[bytes, int] = {}
        self.counts = {"bind_groups": 0, "parameter_slots": 0, "pipelines": 0}

    def forget_shader(self, key: ShaderKey) -> None:
        """Drop the bind groups of one pipeline."""
        self._bind_groups.pop(key, None)

    def forget_buffer(self, number: int) -> None:
        """Drop the bind groups that hold a buffer."""
        for cache in self._bind_groups.values():
            for key in [key for key in cache if number in key[1:]]:
                del cache[key]

    def record(self, encoder: Any, dispatches: Iterable[Dispatch], timestamp_writes: Any = None) -> None:
        """One compute pass; everything it needs is made before it opens."""
        bound = []
        for dispatch in dispatches:
            pipeline = self.pipeline(dispatch.shader)
            offset = self._slot(dispatch.parameters)
            bound.append((pipeline, self._bind_group(dispatch), offset, dispatch.workgroups))
        compute = encoder.begin_compute_pass(timestamp_writes=timestamp_writes)
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
            self.counts["parameter_slots"] += 1
        return offset

    def _bind_group(self, dispatch: Dispatch) -> Any:
        cache = self._bind_groups.setdefault(dispatch.shader, OrderedDict())
        key = (self._arena_number, *(buffer.number for buffer in dispatch.buffers), dispatch.windows)
        group = cache.get(key)
        if group is not None:
            cache.move_to_end(key)
            return group
        entries = [{"binding": 0, "resource": {"buffer": self._arena, "offset": 0, "size": SLOT_BYTES}}]
        windows = dispatch.windows or (None,) * len(dispatch.buffers)
        for binding, (buffer, window) in enumerate(zip(dispatch.buffers, windows, strict=True), 1):
            start, size = window or (0, buffer.handle.size)
            entries.append({"binding": binding, "resource": {"buffer": buffer.handle, "offset": start, "size": size}})
        group = self._raw.create_bind_group(layout=self._layout(dispatch.shader.bindings), entries=entries)
        self.counts["bind_groups"] += 1
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

    def pipeline(self, key: ShaderKey) -> Any:
        """The compiled pipeline."""
        pipeline = self._pipelines.get(key)
        if pipeline is None:
            module = self._raw.create_shader_module(label=key.label, code=assemble(key))
            layout = self._raw.create_pipeline_layout(bind_group_layouts=[self._layout(key.bindings)])
            pipeline = self._raw.create_compute_pipeline(
                label=key.label, layout=layout, compute={"module": module, "entry_point": "main"}
            )
            self._pipelines[key] = pipeline
            self.counts["pipelines"] += 1
        return pipeline
