"""What goes wrong in the browser arrives in Python as the exceptions of the package, in the device's own words, and only once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.harness import Addresses, PyodideHost, PythonError
from tests.browser.test_bridge import run

START = """
operation, a, b, expected = tools.planned(device, 5, 7, 9, "float32", "float32", "float32", False, False)
out = tools.reads_back("float32", 35)
"""
WORKS = """
await operation.start(a, b, read_into=out)[1]
tools.unpack(bytes(out), "float32") == expected
"""


def test_waiting_where_python_cannot_wait(pyodide_page: PyodideHost) -> None:
    run(pyodide_page, "import sys; sys.modules['kept_device'] = device; 0")
    code = "import sys; device = sys.modules['kept_device']\nimport bridge_probe as tools\n" + START
    assert pyodide_page.run_sync_entry(code + "device.can_wait()") is False
    with pytest.raises(PythonError, match=r"SyncUnavailableError.*can_run_sync\(\) is false\); write `await`"):
        pyodide_page.run_sync_entry(code + "operation.start(a, b, read_into=out)[1].wait()")


def test_a_fault_of_a_shader_carries_the_compilers_words(pyodide_page: PyodideHost) -> None:
    code = """
from py_gemm.gpu.devices import browser
from py_gemm.gpu import shaders
from py_gemm.dtypes import FLOAT16
shaders.KERNELS["broken"] = shaders.KERNELS["narrow"]
keep = browser.assemble
browser.assemble = lambda key: "fn main() { let x: u32 = 1.5; }"
try:
    await device.prepare([shaders.ShaderKey("broken", (FLOAT16,))])
finally:
    browser.assemble = keep
    del shaders.KERNELS["broken"]
"""
    with pytest.raises(PythonError, match=r"(?s)GemmError.*broken_float16: Error while parsing WGSL.*u32.*1\.5"):
        run(pyodide_page, code)


TOO_MANY = """
from py_gemm.gpu.device import Dispatch, Job
from py_gemm.gpu.shaders import ShaderKey
from py_gemm.dtypes import FLOAT16
wrong = Dispatch(ShaderKey("narrow", (FLOAT16,)), (device.create_buffer(16), device.create_buffer(16)), bytes(12), (70000, 1, 1))
"""


def test_a_fault_of_a_job_is_raised_where_it_is_waited_for(pyodide_page: PyodideHost) -> None:
    code = TOO_MANY + "await device.execute(Job(dispatches=[wrong], reads=[(wrong.buffers[1], 0, 16, bytearray(16))]))"
    with pytest.raises(PythonError, match=r"(?s)GemmError.*70000.*65535"):
        run(pyodide_page, code)
    assert run(pyodide_page, START + WORKS) is True


@pytest.mark.parametrize("waiter", ["await device.read_buffer_async(device.create_buffer(bytes(4)))", "await submitted"])
def test_a_fault_that_nobody_waited_for_is_raised_by_the_next_wait_and_no_later_one(pyodide_page: PyodideHost, waiter: str) -> None:
    code = f"""{TOO_MANY}{START}
submitted = device.execute(Job(dispatches=[wrong]))
operation.start(a, b)
try:
    {waiter}
    told = None
except Exception as error:
    told = [type(error).__name__, "65535" in str(error)]
{WORKS.replace("tools", "works = tools")}
await device.execute(Job(dispatches=[]))
[told, works]
"""
    assert run(pyodide_page, code) == [["GemmError", True], True]


def test_memory_that_cannot_be_had(pyodide_page: PyodideHost) -> None:
    """SwiftShader would take the machine's memory first, so the browser's answer is made up, in the browser's own class."""
    code = (
        START
        + """
from pyodide.code import run_js
from py_gemm.errors import DeviceMemoryError
undo = run_js('''(device) => {
    const original = device.popErrorScope.bind(device);
    let count = 0;
    device.popErrorScope = () => original().then((fault) => (count++ === 0 ? new GPUOutOfMemoryError("no room for that") : fault));
    return () => { delete device.popErrorScope; };
}''')(device.handle)
try:
    await operation.start(a, b, read_into=out)[1]
except DeviceMemoryError as error:
    told = [str(error), isinstance(error, MemoryError), device._pool.free_bytes]
finally:
    undo()
"""
        + WORKS.replace("tools", "works = tools")
        + "[told, works]"
    )
    assert run(pyodide_page, code) == [["no room for that", True, 0], True]


@pytest.mark.parametrize("name", ["pyodide_page", "pyodide_worker"])
def test_a_lost_device_says_so_and_a_fresh_one_works(request: pytest.FixtureRequest, name: str) -> None:
    """Lost with a result under way: the array of the host is as it was."""
    host = request.getfixturevalue(name)
    code = (
        START
        + """
from py_gemm.errors import DeviceLostError
out[:] = b"\\x07" * len(out)
pending = operation.start(a, b, read_into=out)[1]
device.handle.destroy()
told = []
for attempt in (lambda: pending, lambda: operation.start(a, b, read_into=out)[1], lambda: device.prepare(operation.shaders)):
    try:
        await attempt()
        told.append(None)
    except DeviceLostError as error:
        told.append("lost: " in str(error) or "destroyed" in str(error))
untouched = bytes(out) == b"\\x07" * len(out)
gone = device.lost
device = await tools.device()
"""
        + START
        + WORKS.replace("tools", "works = tools")
        + "[told[:2], untouched, bool(gone), device.lost, works]"
    )
    told, untouched, gone, fresh, works = run(host, code)
    assert told == [True, True]
    assert (untouched, gone, fresh, works) == (True, True, None, True)


def test_destroying_a_device(pyodide_page: PyodideHost) -> None:
    code = """
from py_gemm.gpu.devices.browser import request_browser_device
from py_gemm.errors import DeviceLostError
other = await request_browser_device()
buffer = other.create_buffer(bytes(16))
other.destroy()
try:
    other.create_buffer(400)
except DeviceLostError as error:
    told = str(error)
del buffer
[other.lost, told]
"""
    assert run(pyodide_page, code) == ["destroyed", "the webgpu device is lost: destroyed"]


def test_no_adapter(pyodide_no_adapter: PyodideHost) -> None:
    code = "from py_gemm.gpu.devices.browser import request_browser_device\nawait request_browser_device()"
    with pytest.raises(PythonError, match=r"UnsupportedError.*WebGPU is here, but it has no adapter"):
        pyodide_no_adapter.run(code)


def test_no_webgpu_at_all(pyodide_no_adapter: PyodideHost) -> None:
    code = """
from pyodide.code import run_js
from py_gemm.gpu.devices.browser import request_browser_device
run_js("Object.defineProperty(navigator, 'gpu', { value: undefined, configurable: true })")
try:
    await request_browser_device()
finally:
    run_js("delete navigator.gpu")
"""
    with pytest.raises(PythonError, match=r"UnsupportedError.*offers no WebGPU here: no navigator\.gpu"):
        pyodide_no_adapter.run(code)


@pytest.mark.expects_console("Content Security Policy", "failed request: blob:", "failed request: data:")
def test_a_policy_that_forbids_the_bridge_is_answered_with_two_lines(
    make_host: Callable[..., PyodideHost], browser: Browser, library: Addresses
) -> None:
    """Such a page registers the bridge (tests run it so everywhere else); where it did not, the error says how."""
    host = make_host(browser, library.csp_url)
    code = "from py_gemm.gpu.devices.browser import request_browser_device\nawait request_browser_device()"
    with pytest.raises(PythonError) as caught:
        host.run(code)
    text = str(caught.value)
    assert caught.value.type == "UnsupportedError"
    assert 'import * as bridge from "./bridge.js";' in text
    assert 'pyodide.registerJsModule("py_gemm_bridge", bridge);' in text
    host.page.close()


def encode(host: PyodideHost, body: str, **names: Any) -> Any:
    code = """
from py_gemm.gpu.gemm import Gemm
from py_gemm.epilogue import GemmEpilogue
ones = lambda count: device.create_buffer(tools.pack([1.0] * count, "float32"))
a, b, c = ones(16), ones(16), ones(16)
gemm = Gemm(device)
await device.prepare(gemm.shaders)
async def read(buffer):
    return tools.unpack(await device.read_buffer_async(buffer), "float32")
"""
    return run(host, code + body, **names)


@pytest.mark.parametrize("name", ["pyodide_page", "pyodide_worker", "pyodide_npm"])
def test_encode_into_the_callers_encoder(request: pytest.FixtureRequest, name: str) -> None:
    body = """
encoder = device.handle.createCommandEncoder()
gemm.encode(encoder, a, b, c, 4, 4, 4)
gemm.encode(encoder, c.handle, b, a, 4, 4, 4, alpha=0.5, beta=3.0, epilogue=GemmEpilogue(activation="relu"))
before = await read(a)
device.submit(encoder)
[before == [1.0] * 16, await read(c) == [4.0] * 16, await read(a) == [11.0] * 16, gemm.variant]
"""
    assert encode(request.getfixturevalue(name), body) == [True, True, True, "tiled-64x64x16"]


def test_encode_allocates_nothing_on_a_hit(pyodide_page: PyodideHost) -> None:
    body = """
triples = [[ones(16) for _ in range(3)] for _ in range(64)]
encoder = device.create_encoder()
for triple in triples:
    gemm.encode(encoder, *triple, 4, 4, 4)
before = device.counts()
for triple in triples:
    gemm.encode(encoder, *triple, 4, 4, 4)
same = device.counts() == before
device.submit(encoder)
gemm.encode(device.create_encoder(), ones(16), b, c, 4, 4, 4)
one_more = device.counts()["bind_groups"] - before["bind_groups"]
gemm.release_bindings()
gemm.encode(device.create_encoder(), *triples[-1], 4, 4, 4)
[same, one_more, device.counts()["bind_groups"] - before["bind_groups"], await read(triples[0][2]) == [4.0] * 16]
"""
    assert encode(pyodide_page, body) == [True, 1, 2, True]


def test_parameters_survive_until_a_late_submission(pyodide_page: PyodideHost) -> None:
    body = """
early, late = device.create_encoder(), device.create_encoder()
gemm.encode(early, a, b, c, 1, 1, 1, alpha=7.5)
for index in range(300):
    gemm.encode(late, a, b, c, 1, 1, 1, alpha=1000.0 + index)
device.submit(early)
first = (await read(c))[0]
device.submit(late)
[first, (await read(c))[0]]
"""
    assert encode(pyodide_page, body) == [7.5, 1299.0]


def test_wrong_arguments_of_encode(pyodide_page: PyodideHost) -> None:
    body = """
told = []
for options in (dict(lda=3), dict(offset_c=1), dict(batch=70000, stride_a=0, stride_b=0, ldc=4, stride_c=16)):
    try:
        gemm.encode(device.create_encoder(), a, b, c, 4, 4, 4, **options)
    except ValueError as error:
        told.append(f"{type(error).__name__} {error}")
for wrong in (a, "text"):
    try:
        gemm.encode(device.create_encoder(), a, b, wrong, 4, 4, 4)
    except (ValueError, TypeError) as error:
        told.append(f"{type(error).__name__} {error}".partition(";")[0])
told
"""
    assert encode(pyodide_page, body) == [
        "ShapeError encode: lda is 3, less than the 4 elements of a row",
        "ShapeError encode: c needs elements 1 to 16, its buffer holds 16",
        "ShapeError encode: batch = 70,000 needs 70,000 workgroups along its axis, the device allows 65,535",
        "AliasError encode: c and a are the same device buffer",
        "TypeError a Buffer or a GPUBuffer is expected, not str",
    ]
