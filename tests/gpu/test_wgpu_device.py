"""The native device: buffers, jobs, faults in wgpu's own words, loss, and the choice of an adapter."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from py_gemm.dtypes import FLOAT16, FLOAT32
from py_gemm.errors import DeviceLostError, DeviceMemoryError, GemmError, ShapeError, UnsupportedError
from py_gemm.gpu import shaders
from py_gemm.gpu.device import Buffer, Dispatch, Job
from py_gemm.gpu.devices import wgpu_recorder
from py_gemm.gpu.devices.wgpu_native import CLOCK_SLOTS, choose_adapter, request_native_device
from py_gemm.gpu.operation import DeviceOperand, GemmOperation, HostOperand
from py_gemm.gpu.shaders import ShaderKey
from py_gemm.gpu.steps import dense_layout
from py_gemm.problem import Layout, Problem

from . import tools


def adapter(device: str, backend: str, type_: str) -> dict[str, Any]:
    return {"device": device, "backend_type": backend, "adapter_type": type_}


LAVAPIPE = adapter("llvmpipe", "Vulkan", "CPU")
ROWS = [
    LAVAPIPE,
    adapter("iGPU", "Vulkan", "IntegratedGPU"),
    adapter("dGPU", "OpenGL", "DiscreteGPU"),
    adapter("dGPU", "Vulkan", "DiscreteGPU"),
]


def test_the_best_adapter_of_a_kind() -> None:
    assert choose_adapter(ROWS, "wgpu") == 3
    assert choose_adapter(ROWS[:3], "wgpu") == 2
    assert choose_adapter(ROWS[:3], "vulkan") == 1
    assert choose_adapter([LAVAPIPE], "wgpu") == 0
    assert choose_adapter([LAVAPIPE, adapter("m2", "Metal", "IntegratedGPU")], "metal") == 1
    with pytest.raises(UnsupportedError, match=r"no metal device: wgpu found llvmpipe \(Vulkan\)"):
        choose_adapter([LAVAPIPE], "metal")
    with pytest.raises(UnsupportedError, match="no adapter at all"):
        choose_adapter([], "wgpu")
    with pytest.raises(ValueError, match="known: wgpu, vulkan, metal"):
        choose_adapter([LAVAPIPE], "cuda")


def test_without_wgpu_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wgpu", None)
    with pytest.raises(UnsupportedError, match=r"wgpu is not installed .*pip install 'py_gemm\[native\]'"):
        request_native_device()


def test_a_kind_whose_back_end_is_absent() -> None:
    with pytest.raises(UnsupportedError, match=r"no metal device: wgpu found .*Vulkan"):
        request_native_device("metal")


def test_what_the_device_says_of_itself(device: Any) -> None:
    assert device.kind == "wgpu"
    assert device.lost is None
    assert device.can_wait()
    assert device.capabilities.limits.max_storage_buffer_binding_size == device.limits["max-storage-buffer-binding-size"]
    assert device.capabilities.adapter in device.adapter
    assert device.adapter.endswith("(software)") == device.capabilities.is_software
    assert {"vendor", "device", "backend_type", "adapter_type"} <= set(device.info)


@pytest.mark.parametrize("nbytes", [0, 1, 2, 3, 4, 5, 255, 256, 257, 1_000_003])
def test_bytes_go_and_come_back(device: Any, nbytes: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
    buffer = device.create_buffer(data)
    assert buffer.nbytes == max(-(-nbytes // 4) * 4, 4)
    assert device.read_buffer(buffer, 0, nbytes) == data.tobytes()
    if nbytes > 4:
        assert device.read_buffer(buffer, 4, nbytes - 4) == data[4:].tobytes()
        device.write_buffer(buffer, b"\x07", 4)
        assert device.read_buffer(buffer, 4, 1) == b"\x07"
        assert device.read_buffer(buffer, 0, 4) == data[:4].tobytes()


def test_ranges_of_a_buffer_are_checked(device: Any) -> None:
    buffer = device.create_buffer(16)
    calls: list[Callable[[], Any]] = [
        lambda: device.read_buffer(buffer, 2, 4),
        lambda: device.read_buffer(buffer, 8, 12),
        lambda: device.read_buffer(buffer, 20),
        lambda: device.write_buffer(buffer, bytes(20)),
        lambda: device.write_buffer(buffer, bytes(4), -4),
        lambda: device.create_buffer(-1),
        lambda: device.create_buffer(np.zeros((4, 4))[:, 1]),
    ]
    for call in calls:
        with pytest.raises(ShapeError):
            call()


def test_a_buffer_larger_than_the_device_takes(device: Any) -> None:
    most = device.capabilities.limits.max_buffer_size
    with pytest.raises(UnsupportedError, match=f"{most + 1:,} bytes asked, maxBufferSize of .* is {most:,}"):
        device.create_buffer(most + 1)


def test_memory_is_used_again(device: Any) -> None:
    first = device.create_buffer(5000)
    number = first.number
    device.release_buffer(first)
    device.release_buffer(first)
    with pytest.raises(ShapeError, match="has been released"):
        _ = first.handle
    second = device.create_buffer(4900)
    assert second.number == number
    created = device.counts()["buffers"]
    del second
    gc.collect()
    assert device.create_buffer(5000).number == number
    assert device.counts()["buffers"] == created


def test_a_thousand_products_create_nothing_new(device: Any) -> None:
    a = np.ones((8, 8), "f4")
    for _ in range(2):  # the first may be the one that fills an arena of parameters
        tools.product(device, a, a, result=FLOAT16)
    before = device.counts()
    for _ in range(1000):
        tools.product(device, a, a, result=FLOAT16)
    assert device.counts() == before


def test_an_adopted_buffer_stays_its_owners(device: Any) -> None:
    import wgpu

    raw = device.handle.create_buffer(size=64, usage=wgpu.BufferUsage.STORAGE)
    buffer = device.adopt(raw)
    assert device.adopt(raw).number == buffer.number
    assert device.adopt(buffer) is buffer
    free = device._pool.free_bytes
    device.release_buffer(buffer)
    assert device._pool.free_bytes == free
    with pytest.raises(TypeError, match=r"a Buffer or a wgpu\.GPUBuffer is expected, not bytes"):
        device.adopt(b"")


def operation(device: Any, size: int = 8, result: Any = FLOAT32) -> tuple[GemmOperation, Layout]:
    layout = dense_layout(size, size, ())
    return GemmOperation(device, Problem(size, size, size, layout, layout, Layout(result, size, 1))), layout


def test_results_chain_on_the_device_without_waiting(device: Any) -> None:
    planned, layout = operation(device)
    x = HostOperand(np.ones((8, 8), "f4"), layout)
    half = HostOperand(np.eye(8, dtype="f4") * 0.5, layout)
    current, _ = planned.start(x, half)
    for _ in range(19):
        assert isinstance(current, Buffer)
        current, _ = planned.start(DeviceOperand(current, layout), half)
    assert isinstance(current, Buffer)
    assert np.array_equal(np.frombuffer(device.read_buffer(current), "f4"), np.full(64, 0.5**20, "f4"))


def test_a_host_array_may_change_after_start(device: Any) -> None:
    planned, layout = operation(device)
    a, out = np.ones((8, 8), "f4"), np.empty((8, 8), "f4")
    _, pending = planned.start(HostOperand(a, layout), HostOperand(a, layout), read_into=out)
    a[:] = np.nan
    pending.wait()
    assert np.array_equal(out, np.full((8, 8), 8.0))


def test_several_read_backs_are_under_way_at_once(device: Any) -> None:
    planned, layout = operation(device)
    outs = [np.empty((8, 8), "f4") for _ in range(10)]
    pendings = []
    for index, out in enumerate(outs):
        a = np.full((8, 8), index, "f4")
        pendings.append(planned.start(HostOperand(a, layout), HostOperand(np.eye(8, dtype="f4"), layout), read_into=out)[1])
    for index in reversed(range(10)):
        pendings[index].wait()
        pendings[index].wait()
        assert np.array_equal(outs[index], np.full((8, 8), index))


def test_awaiting(device: Any) -> None:
    planned, layout = operation(device, result=FLOAT16)
    a, out = np.ones((8, 8), "f4"), np.empty((8, 8), "f2")

    async def go() -> bytes:
        _, pending = planned.start(HostOperand(a, layout), HostOperand(a, layout), read_into=out.view(np.uint16))
        await pending
        assert pending.done
        buffer, submitted = planned.start(HostOperand(a, layout), HostOperand(a, layout))
        await submitted
        assert isinstance(buffer, Buffer)
        return bytes(await device.read_buffer_async(buffer))

    # In a thread of its own: Playwright keeps a loop running in this one when browser tests ran before.
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(asyncio.run, go()).result()
    assert np.array_equal(np.frombuffer(found, "f2"), np.full(64, 8.0))
    assert np.array_equal(out, np.full((8, 8), 8.0))


def test_gpu_seconds(device: Any) -> None:
    planned, layout = operation(device, 64)
    a, out = np.ones((64, 64), "f4"), np.empty((64, 64), "f4")
    _, pending = planned.start(HostOperand(a, layout), HostOperand(a, layout), read_into=out)
    pending.wait()
    if "timestamp-query" in device.capabilities.features:
        assert pending.gpu_seconds is not None
        assert 0 < pending.gpu_seconds < 10


def test_gpu_seconds_of_what_stays_on_the_device_come_with_the_next_read_back(device: Any) -> None:
    """Of the last 64 jobs, in any place of the ring of timestamps; faulty jobs between them leave no gap."""
    planned, layout = operation(device, 64)
    x = HostOperand(np.ones((64, 64), "f4"), layout)
    out = np.empty((64, 64), "f4")
    offered = "timestamp-query" in device.capabilities.features
    for count in (1, 20, 50, CLOCK_SLOTS - 1, CLOCK_SLOTS, CLOCK_SLOTS + 7):
        pendings = [planned.start(x, x)[1] for _ in range(count)]
        assert all(each.gpu_seconds is None for each in pendings)
        broken = Dispatch(ShaderKey("narrow", (FLOAT16,)), (device.create_buffer(16), device.nothing), bytes(12), (70_000, 1, 1))
        with pytest.raises(GemmError, match=r"(?i)dispatch"):
            device.execute(Job(dispatches=[broken]))
        _, reading = planned.start(x, x, read_into=out)
        reading.wait()
        known = [each.gpu_seconds is not None and 0 < each.gpu_seconds < 10 for each in (*pendings, reading)]
        lost = max(count + 1 - CLOCK_SLOTS, 0)
        assert known == [offered and index >= lost for index in range(count + 1)], count
    _, pending = planned.start(x, x)
    pending.wait()
    assert (pending.gpu_seconds is not None) == offered


def test_wrong_operands_of_an_operation(device: Any, doomed: Any) -> None:
    planned, layout = operation(device)
    good = HostOperand(np.ones((8, 8), "f4"), layout)
    transposed = HostOperand(good.data, Layout(FLOAT32, 1, 8))
    short = HostOperand(np.ones(63, "f4"), layout)
    bias = HostOperand(np.ones(8, "f4"), Layout(FLOAT32, 0, 1))
    readonly = np.empty((8, 8), "f4")
    readonly.flags.writeable = False
    for arguments, words in (
        ((transposed, good), "operand a has layout"),
        ((good, short), "b needs elements 0 to 63, its buffer holds 63"),
        ((good, good, None, bias), "planned without a bias"),
        ((DeviceOperand(doomed.create_buffer(256), layout), good), "operand a lies on another device"),
    ):
        with pytest.raises(ShapeError, match=words):
            planned.start(*arguments)
    for destination in (np.empty(63, "f4"), np.empty((16, 8), "f4")[::2], readonly):
        with pytest.raises(ShapeError, match="the result needs 256 writable contiguous bytes"):
            planned.start(good, good, read_into=destination)


def test_limits_of_an_operation_are_checked_when_it_is_made(device: Any) -> None:
    before = device.capabilities
    try:
        device.capabilities = replace(before, limits=replace(before.limits, max_buffer_size=255))
        with pytest.raises(UnsupportedError, match="gemm: operand a has 256 bytes, one buffer of the device holds 255"):
            operation(device)
    finally:
        device.capabilities = before


def test_a_fault_of_a_shader_arrives_in_wgpus_words(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgpu_recorder, "assemble", lambda _: "fn main() { let x: u32 = 1.5; }")
    monkeypatch.setitem(shaders.KERNELS, "broken", shaders.KERNELS["narrow"])
    with pytest.raises(GemmError, match="broken_float16"):
        device.prepare([ShaderKey("broken", (FLOAT16,))])
    assert device.missing([ShaderKey("broken", (FLOAT16,))])


def test_a_fault_of_a_job_leaves_the_device_usable(device: Any) -> None:
    buffer = device.create_buffer(16)
    key = ShaderKey("narrow", (FLOAT16,))
    with pytest.raises(GemmError, match=r"(?i)dispatch"):
        device.execute(Job(dispatches=[Dispatch(key, (buffer, device.nothing), bytes(12), (70_000, 1, 1))]))
    a = np.ones((4, 4), "f4")
    assert np.array_equal(tools.product(device, a, a), np.full((4, 4), 4.0))


def test_memory_that_cannot_be_had(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lavapipe hands out any amount, so wgpu's answer is made up; it must arrive as ours, and the next call must work."""
    import wgpu

    def refuse(**_: Any) -> Any:
        raise wgpu.GPUOutOfMemoryError("Not enough memory left.")

    device.empty_pool()
    monkeypatch.setattr(device._raw, "create_buffer", refuse)
    a = np.ones((4, 4), "f4")
    with pytest.raises(DeviceMemoryError, match="Not enough memory left"):
        tools.product(device, a, a)
    monkeypatch.undo()
    assert np.array_equal(tools.product(device, a, a), np.full((4, 4), 4.0))


def test_a_destroyed_device_says_so(doomed: Any) -> None:
    planned, layout = operation(doomed)
    x = HostOperand(np.ones((8, 8), "f4"), layout)
    out = np.full((8, 8), 5.0, "f4")
    doomed.destroy()
    doomed.destroy()
    assert doomed.lost == "destroyed"
    for call in (
        lambda: planned.start(x, x, read_into=out),
        lambda: doomed.create_buffer(4),
        lambda: doomed.create_encoder(),
        lambda: doomed.prepare(planned.shaders),
    ):
        with pytest.raises(DeviceLostError, match="the wgpu device is lost: destroyed"):
            call()
    assert np.array_equal(out, np.full((8, 8), 5.0))


def test_a_device_lost_behind_our_back(doomed: Any) -> None:
    """The driver says it only when asked for something; from then on the device says it too."""
    planned, layout = operation(doomed)
    x = HostOperand(np.ones((8, 8), "f4"), layout)
    tools.product(doomed, np.ones((8, 8), "f4"), np.ones((8, 8), "f4"))
    doomed.handle.destroy()
    with pytest.raises(DeviceLostError, match="is lost"):
        planned.start(x, x, read_into=np.empty((8, 8), "f4"))
    assert doomed.lost is not None


def test_memory_from_before_a_shortage_is_not_used_again(device: Any) -> None:
    """A browser reports a shortage after it has handed out dead buffers: those in somebody's hands must not reach the pool."""
    before = device.create_buffer(3000)
    number = before.number
    device.distrust_memory()
    device.release_buffer(before)
    assert device._pool.free_bytes == 0
    assert device.create_buffer(3000).number != number
    a = np.ones((4, 4), "f4")
    assert np.array_equal(tools.product(device, a, a), np.full((4, 4), 4.0))
