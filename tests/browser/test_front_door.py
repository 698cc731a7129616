"""The front door inside a page: which device is taken, what happens where Python cannot wait, and what a device's faults become."""

from __future__ import annotations

import pytest

from tests.browser.harness import PyodideHost, PythonError

BIG = "import numpy as np, py_gemm as pg; a = np.ones((400, 400), np.float32); "
PRODUCT = """
import numpy as np, py_gemm as pg
a, b = np.ones((33, 65), np.float32), np.ones((65, 17), np.float32)
"""


def test_a_plain_synchronous_call_waits_for_the_gpu(pyodide_page: PyodideHost) -> None:
    assert pyodide_page.run(
        PRODUCT + "d = pg.matmul(a, b, device='webgpu'); [pg.last_run().device, float(d.min()), float(d.max())]"
    ) == [
        "webgpu",
        65.0,
        65.0,
    ]


def test_without_a_waiting_entry_the_gpu_is_refused_in_words(pyodide_page: PyodideHost) -> None:
    pyodide_page.run("import py_gemm as pg; await pg.request_device_async('webgpu'); None")
    with pytest.raises(PythonError, match=r"d = await pg\.matmul_async\(") as caught:
        pyodide_page.run_sync_entry(PRODUCT + "pg.matmul(a, b, device='webgpu')")
    assert caught.value.type == "SyncUnavailableError"
    with pytest.raises(PythonError, match=r"x = await x\.numpy_async\(\)"):
        pyodide_page.run_sync_entry(PRODUCT + "pg.matmul(pg.asarray(a, device='webgpu'), b).numpy()")


def test_without_a_waiting_entry_a_device_must_be_awaited(pyodide_page: PyodideHost) -> None:
    code = "import py_gemm as pg; from py_gemm import devices; devices.forget_devices(); pg.request_device('webgpu')"
    with pytest.raises(PythonError, match=r"await pg\.request_device_async\(\"webgpu\"\)") as caught:
        pyodide_page.run_sync_entry(code)
    assert caught.value.type == "SyncUnavailableError"


def test_without_a_waiting_entry_the_cpu_works(pyodide_page: PyodideHost) -> None:
    assert pyodide_page.run_sync_entry(PRODUCT + "float(pg.matmul(a, b).max())") == 65.0
    assert pyodide_page.run_sync_entry(BIG + "[float(pg.matmul(a, a).max()), pg.last_run().device]") == [400.0, "cpu"]


def test_a_chain_on_the_gpu_waits_once_at_its_end(pyodide_page: PyodideHost) -> None:
    """Nothing of the chain needs a waiting entry; only reading does."""
    pyodide_page.run("import py_gemm as pg; gpu = await pg.request_device_async('webgpu'); None")
    code = """
import numpy as np, py_gemm as pg
step = pg.asarray(np.eye(17, dtype=np.float16) * 2, device="webgpu")
value = step
for _ in range(7):
    value = value @ step
import builtins
builtins.chained = value
"""
    pyodide_page.run_sync_entry(code)
    assert pyodide_page.run("import builtins; (await builtins.chained.numpy_async()).diagonal().tolist()") == [256.0] * 17


def test_no_adapter_says_so_and_goes_on_with_the_cpu(pyodide_no_adapter: PyodideHost) -> None:
    with pytest.raises(PythonError, match="adapter") as caught:
        pyodide_no_adapter.run("import py_gemm as pg; await pg.request_device_async('webgpu'); None")
    assert caught.value.type == "UnsupportedError"
    assert pyodide_no_adapter.run(BIG + "[float(pg.matmul(a, a).max()), pg.last_run().device]") == [400.0, "cpu"]
    assert pyodide_no_adapter.run(BIG + "[float((await pg.matmul_async(a, a)).max()), pg.last_run().device]") == [400.0, "cpu"]
    assert pyodide_no_adapter.run("import py_gemm as pg; pg.request_device().kind") == "cpu"
    assert "adapter" in pyodide_no_adapter.run("import py_gemm as pg; pg.info().to_dict()['gpu']['device']")


def test_a_software_adapter_is_not_taken_unasked(pyodide_page: PyodideHost) -> None:
    assert pyodide_page.run(BIG + "pg.matmul(a, a); pg.last_run().device") == "cpu"
    assert pyodide_page.run("import py_gemm as pg; (await pg.request_device_async()).kind") == "cpu"


def test_the_native_kinds_are_refused_in_a_page(pyodide_page: PyodideHost) -> None:
    for kind in ("wgpu", "vulkan", "metal"):
        with pytest.raises(PythonError, match="outside the browser"):
            pyodide_page.run("import py_gemm as pg; pg.request_device(kind)", kind=kind)


def test_a_lost_device_is_said_and_a_fresh_one_works(pyodide_page: PyodideHost) -> None:
    code = (
        PRODUCT
        + """
lost = await pg.request_device_async("webgpu")
placed = pg.asarray(a, device=lost)
lost.destroy()
try:
    await (await pg.matmul_async(placed, b)).numpy_async()
    said = "nothing"
except pg.DeviceLostError as error:
    said = str(error)
fresh = await pg.request_device_async("webgpu")
d = await pg.matmul_async(a, b, device=fresh)
[said, fresh is lost, float(d.max())]
"""
    )
    said, same, value = pyodide_page.run(code)
    assert "lost" in said
    assert not same
    assert value == 65.0


def test_info_in_a_page(pyodide_page: PyodideHost, pyodide_worker: PyodideHost, pyodide_plain: PyodideHost) -> None:
    facts = "import py_gemm as pg; pg.info().to_dict()"
    assert pyodide_page.run(facts)["page"]["realm"] == "page"
    assert pyodide_worker.run(facts)["page"]["realm"] == "worker"
    assert pyodide_page.run(facts)["page"]["cross_origin_isolated"] == "True"
    assert pyodide_plain.run(facts)["page"]["cross_origin_isolated"] == "False"
