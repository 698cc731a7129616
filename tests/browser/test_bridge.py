"""The bridge in a real Chromium: every type and odd size in every realm, one device a host, and what its memory may not do.

The products run through py_gemm/gpu alone, so the current Pyodide of npm, which has no NumPy, runs them too.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from py_gemm.gpu.devices.wgpu_native import request_native_device
from py_gemm.gpu.split import choose_ranges
from py_gemm.gpu.variants import VARIANTS, Shape
from tests.browser.harness import PyodideHost, PythonError
from tests.gpu.tools import TYPES as TYPE_OF
from tests.gpu.tools import numpy_type, replayed
from tests.gpu.tools import product as product_on

HOSTS = ["pyodide_page", "pyodide_worker", "pyodide_plain", "pyodide_csp", "pyodide_npm"]
TYPES = ["float32", "float16", "bfloat16"]

PROBE = (Path(__file__).parent / "bridge_probe.py").read_text()
TOOLS = """
import sys, types
if "bridge_probe" not in sys.modules:
    sys.modules["bridge_probe"] = types.ModuleType("bridge_probe")
    exec(source, sys.modules["bridge_probe"].__dict__)
import bridge_probe as tools
device = await tools.device()
"""


@pytest.fixture
def host(request: pytest.FixtureRequest) -> PyodideHost:
    found = request.getfixturevalue(getattr(request, "param", "pyodide_page"))
    assert isinstance(found, PyodideHost)
    return found


@pytest.fixture(scope="module")
def native() -> Any:
    """The same work outside the browser."""
    return request_native_device("wgpu")


def run(host: PyodideHost, code: str, **names: Any) -> Any:
    return host.run(TOOLS + code, source=PROBE, **names)


@pytest.mark.parametrize("wait", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("host", HOSTS, indirect=True)
def test_products_of_odd_sizes_in_every_realm(host: PyodideHost, name: str, wait: bool) -> None:
    """Both transposes of each operand, results of every type, sizes that fill neither words nor tiles."""
    cases = [
        [*size, [name, name, result], ta, tb, wait]
        for size, result, (ta, tb) in zip(
            [(1, 1, 1), (3, 5, 7), (7, 1, 9), (65, 3, 17)], [*TYPES, name], product([False, True], repeat=2), strict=True
        )
    ]
    code = "[await tools.product_is_exact(*case) for case in cases]"
    assert run(host, code, cases=cases) == [True] * len(cases)


@pytest.mark.parametrize(("name_a", "name_b"), list(product(TYPES, TYPES)))
def test_every_mix_of_types(host: PyodideHost, name_a: str, name_b: str) -> None:
    assert run(host, "await tools.product_is_exact(17, 9, 33, names, False, False, False)", names=[name_a, name_b, "float32"])


@pytest.mark.parametrize("host", HOSTS, indirect=True)
def test_bytes_of_any_length_go_and_come_back(host: PyodideHost) -> None:
    code = """
found = []
for count in [*range(1, 18), 255, 1001, 70001]:
    data = bytes((7 * each + count) % 256 for each in range(count))
    buffer = device.create_buffer(data)
    found.append(await device.read_buffer_async(buffer, 0, count) == data and device.read_buffer(buffer, 0, count) == data)
all(found)
"""
    assert run(host, code) is True


def test_part_of_a_buffer_is_written_and_read(host: PyodideHost) -> None:
    code = """
buffer = device.create_buffer(bytes(range(16)))
device.write_buffer(buffer, bytes([99, 98, 97, 96, 95]), 8)
list(await device.read_buffer_async(buffer, 4))
"""
    assert run(host, code) == [4, 5, 6, 7, 99, 98, 97, 96, 95, 0, 0, 0]


def test_numpy_arrays_of_float16_cross_as_they_are(host: PyodideHost) -> None:
    """Pyodide refuses them a typed view of their own; the bridge asks for bytes."""
    code = """
import numpy as np
from py_gemm.gpu.device import Job
data, out = np.arange(7, dtype=np.float16), np.zeros(7, np.float16)
buffer = device.create_buffer(data)
await device.execute(Job(reads=[(buffer, 0, data.nbytes, out)]))
out.tolist()
"""
    assert run(host, code) == [0, 1, 2, 3, 4, 5, 6]


def test_an_array_that_is_not_contiguous_is_refused(host: PyodideHost) -> None:
    with pytest.raises(PythonError, match=r"ShapeError.*C-contiguous"):
        run(host, "import numpy as np; device.create_buffer(np.zeros((4, 4))[:, 1])")


@pytest.mark.parametrize("host", ["pyodide_page", "pyodide_worker"], indirect=True)
def test_memory_may_grow_while_a_result_is_under_way(host: PyodideHost) -> None:
    """Growth detaches every view of Python's memory: the bridge must take its view when the bytes have arrived."""
    code = """
import js
operation, a, b, expected = tools.planned(device, 33, 33, 33, "float32", "float32", "float32", False, False)
out = tools.reads_back("float32", 33 * 33)
_, pending = operation.start(a, b, read_into=out)
from pyodide.ffi import create_proxy
proxy = create_proxy(out)
view = proxy.getBuffer("u8")
before = view.data.buffer.byteLength
hoard = []
while view.data.buffer.byteLength == before and len(hoard) < 64:
    hoard.append(bytearray(32 << 20))
grown = view.data.buffer.byteLength != before
view.release()
proxy.destroy()
await pending
[grown, tools.unpack(bytes(out), "float32") == expected]
"""
    assert run(host, code) == [True, True]


@pytest.mark.parametrize("host", ["pyodide_page", "pyodide_worker"], indirect=True)
def test_repeated_products_create_nothing_and_leave_no_proxy(host: PyodideHost) -> None:
    code = """
operation, a, b, _ = tools.planned(device, 5, 7, 9, "float16", "float32", "bfloat16", False, False)
out = tools.reads_back("bfloat16", 35)
async def once():
    await operation.start(a, b, read_into=out)[1]
await once()
before = device.counts()
for _ in range(100):
    await once()
import sys
[device.counts() == before, sys.getrefcount(out) <= 3]
"""
    assert run(host, code) == [True, True]


def test_chains_stay_on_the_device(host: PyodideHost) -> None:
    """Twenty products, one read-back, one wait."""
    code = """
from py_gemm.gpu.operation import DeviceOperand, HostOperand
from py_gemm.gpu.steps import dense_layout
operation, _, _, _ = tools.planned(device, 8, 8, 8, "float32", "float32", "float32", False, False)
layout = dense_layout(8, 8, ())
half = HostOperand(tools.pack([0.5 if i % 9 == 0 else 0.0 for i in range(64)], "float32"), layout)
current, _ = operation.start(HostOperand(tools.pack([1.0] * 64, "float32"), layout), half)
for _ in range(19):
    current, _ = operation.start(DeviceOperand(current, layout), half)
tools.unpack(await device.read_buffer_async(current), "float32") == [0.5 ** 20] * 64
"""
    assert run(host, code) is True


# One chain, a step and one, a split, a ragged split; few rows of either storage, with 16 and with 32 columns to a workgroup.
BITS = [(5, 7, 1, False), (5, 7, 17, True), (5, 7, 128, False), (70, 66, 300, True)]
BITS += [(4, 20, 100, False), (3, 9, 100, True), (1, 8192, 9, False)]


@pytest.mark.parametrize(("m", "n", "k", "by_columns"), BITS)
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_sums_of_halves_have_the_stated_bits_in_chromium_on_wgpu_and_in_the_replay(
    host: PyodideHost, native: Any, name: str, m: int, n: int, k: int, by_columns: bool
) -> None:
    rng = np.random.default_rng(k)
    bits = 16 if name == "float16" else 8
    a, b = (
        rng.integers(1 << (bits - 6), 1 << (bits - 5), shape).astype(np.float32) / (1 << (bits - 6)) for shape in ((m, k), (k, n))
    )
    code = """
operation, x, y, _ = tools.planned(device, m, n, k, name, name, "float32", False, by_columns)
out = tools.reads_back("float32", m * n)
x.data, y.data = tools.pack(a, name), tools.pack(b, name)
await device.prepare(operation.shaders)
await operation.start(x, y, read_into=out)[1]
[operation.variant, operation.ranges.count, out.hex()]
"""
    stored = b.T if by_columns else b
    variant, count, text = run(
        host, code, m=m, n=n, k=k, by_columns=by_columns, name=name, a=a.ravel().tolist(), b=stored.ravel().tolist()
    )
    found = np.frombuffer(bytes.fromhex(text), np.float32).reshape(m, n)
    (row,) = [each for each in VARIANTS if each.name == variant]
    ranges = choose_ranges(Shape(m, n, k, b_transposed=by_columns), row)
    assert ranges.count == count
    assert np.array_equal(found, replayed(row, a, b, fused=True, ranges=ranges))
    halves = numpy_type(TYPE_OF[name])
    left, right = a.astype(halves), np.ascontiguousarray(stored.astype(halves))
    assert np.array_equal(found, product_on(native, left, right.T if by_columns else right))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_half_is_widened_and_narrowed_right(host: PyodideHost, name: str) -> None:
    """All 65,536 patterns there and back, on the browser's compiler: only NaN may change, and stays NaN."""
    code = """
import struct
from py_gemm.dtypes import FLOAT_TYPES
from py_gemm.gpu.device import Dispatch, Job
from py_gemm.gpu.passes import plan_convert, plan_narrow
from py_gemm.gpu.steps import dense_layout
kind, limits, count = FLOAT_TYPES[name], device.capabilities.limits, 65536
patterns = struct.pack("<65536H", *range(count))
buffers = {"c": device.create_buffer(patterns), "sum": device.create_buffer(4 * count), "result": device.create_buffer(2 * count)}
steps = [*plan_convert(dense_layout(1, count, (), kind), 1, count, (), limits, source="c"), *plan_narrow(count, kind, limits)]
wide, narrow = bytearray(4 * count), bytearray(2 * count)
await device.prepare([step.shader for step in steps])
await device.execute(Job(
    dispatches=[Dispatch(s.shader, tuple(buffers[each] for each in s.buffers), s.parameters, s.workgroups) for s in steps],
    reads=[(buffers["sum"], 0, len(wide), wide), (buffers["result"], 0, len(narrow), narrow)],
))
values = struct.unpack("<65536f", wide)
known = tools.unpack(patterns, name)
same = sum(x == y or (x != x and y != y) for x, y in zip(values, known))
back = struct.unpack("<65536H", narrow)
[same, sum(bits == each or known[each] != known[each] for each, bits in enumerate(back)), all(
    v != v for v, k in zip(tools.unpack(bytes(narrow), name), known) if k != k)]
"""
    assert run(host, code, name=name) == [65536, 65536, True]


def test_the_probe_finds_the_browser_in_order(host: PyodideHost) -> None:
    code = """
from py_gemm.gpu.probe import probe_async
await probe_async(device)
[device.capabilities.nan_inf, device.capabilities.order_kept]
"""
    assert run(host, code) == [True, True]


def test_what_the_device_says_of_itself(host: PyodideHost) -> None:
    code = """
[device.kind, device.adapter, device.lost, device.capabilities.backend, device.capabilities.is_software,
 device.capabilities.limits.max_storage_buffer_binding_size == device.limits["maxStorageBufferBindingSize"],
 "timestamp-query" in device.capabilities.features, device.can_wait()]
"""
    assert run(host, code) == ["webgpu", "google swiftshader (software)", None, "webgpu", True, True, True, True]


def test_the_adapters_limits_are_asked_for(host: PyodideHost) -> None:
    """WebGPU gives 128 MiB a binding and 256 MiB a buffer unless more is asked for."""
    code = """
import js
adapter = await js.navigator.gpu.requestAdapter()
[device.limits["maxStorageBufferBindingSize"] == adapter.limits.maxStorageBufferBindingSize > 128 << 20,
 device.limits["maxBufferSize"] == adapter.limits.maxBufferSize > 256 << 20]
"""
    assert run(host, code) == [True, True]


def test_gpu_seconds_are_told(host: PyodideHost) -> None:
    code = """
operation, a, b, _ = tools.planned(device, 65, 65, 65, "float32", "float32", "float32", False, False)
_, pending = operation.start(a, b, read_into=tools.reads_back("float32", 65 * 65))
await pending
[isinstance(pending.gpu_seconds, float) and 0 <= pending.gpu_seconds < 60, pending.done]
"""
    assert run(host, code) == [True, True]


def test_gpu_seconds_of_a_chain_come_with_one_read_back(host: PyodideHost) -> None:
    """Also of more products than the ring of timestamps has slots; and nothing is created for them the second time."""
    code = """
operation, a, b, _ = tools.planned(device, 65, 65, 65, "float32", "float32", "float32", False, False)
found = []
for count in (3, 3, 50, 70):
    before = device.counts()
    pendings = [operation.start(a, b)[1] for _ in range(count)]
    early = any(each.gpu_seconds is not None for each in pendings)
    last = operation.start(a, b, read_into=tools.reads_back("float32", 65 * 65))[1]
    await last
    times = [each.gpu_seconds for each in [*pendings, last]]
    made = device.counts() != before
    found.append([early, sum(isinstance(each, float) and 0 <= each < 60 for each in times), times[0] is None, made])
_, alone = operation.start(a, b)
await alone
[found[1:], isinstance(alone.gpu_seconds, float)]
"""
    expected = [[False, 4, False, False], [False, 51, False, False], [False, 64, True, False]]
    assert run(host, code) == [expected, True]


def test_operands_past_a_binding_are_bound_in_windows(host: PyodideHost) -> None:
    """A made-up limit: whole numbers come out exact, and bind groups of windows are forgotten with their buffer."""
    code = """
from dataclasses import replace
before = device.capabilities
exact = [await tools.product_is_exact(m, n, k, names, ta, tb, False) for m, n, k, names, ta, tb in cases]
device.capabilities = replace(before, limits=replace(before.limits, max_storage_buffer_binding_size=4096))
windows = 0
spell = device._spell
def counting(dispatches):
    global windows
    windows += sum(each is not None for one in dispatches for each in one.windows)
    return spell(dispatches)
device._spell = counting
try:
    exact += [await tools.product_is_exact(m, n, k, names, ta, tb, False) for m, n, k, names, ta, tb in cases]
finally:
    device.capabilities = before
    del device._spell
device.empty_pool()
exact += [await tools.product_is_exact(m, n, k, names, ta, tb, False) for m, n, k, names, ta, tb in cases]
[all(exact), windows > 10]
"""
    cases = [
        [33, 40, 65, ["float32", "float32", "float16"], False, False],
        [2, 40, 700, ["float16", "float32", "float32"], False, False],
        [2, 9, 1100, ["float32", "bfloat16", "float32"], False, True],
        [40, 3, 300, ["float32", "float32", "float32"], True, False],
    ]
    assert run(host, code, cases=cases) == [True, True]
