"""That each Pyodide host is what it says: isolation, content policy, adapter, ways into Python. All others lean on it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from scripts.wheel import version
from tests.browser.harness import Addresses, Complaints, PyodideHost, PythonError

HOSTS = ["pyodide_page", "pyodide_worker", "pyodide_plain", "pyodide_csp", "pyodide_no_adapter"]

ADAPTER = """
import js
adapter = await js.navigator.gpu.requestAdapter()
adapter and adapter.info.architecture
"""


@pytest.fixture
def host(request: pytest.FixtureRequest) -> PyodideHost:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, PyodideHost)
    return found


@pytest.mark.parametrize("host", [*HOSTS, "pyodide_npm"], indirect=True)
def test_wheel_is_installed_with_its_version(host: PyodideHost) -> None:
    assert host.run("import importlib.metadata; importlib.metadata.version('py_gemm')") == version()
    assert "site-packages" in host.run("import importlib.util; importlib.util.find_spec('py_gemm').origin")


@pytest.mark.parametrize("host", HOSTS, indirect=True)
def test_numpy_came_with_micropip(host: PyodideHost) -> None:
    assert host.run("import numpy; (numpy.arange(3.0) @ numpy.ones(3)).item()") == 3.0


def test_npm_pyodide_has_no_numpy(pyodide_npm: PyodideHost) -> None:
    assert pyodide_npm.run("import importlib.util; importlib.util.find_spec('numpy') is None")


@pytest.mark.parametrize("host", [*HOSTS, "pyodide_npm"], indirect=True)
def test_python_may_wait_only_behind_an_asynchronous_entry(host: PyodideHost) -> None:
    code = "from pyodide.ffi import can_run_sync; can_run_sync()"
    assert host.run(code) is True
    assert host.run_sync_entry(code) is False


@pytest.mark.parametrize("host", ["pyodide_page", "pyodide_worker", "pyodide_plain", "pyodide_csp", "pyodide_npm"], indirect=True)
def test_webgpu_runs_on_swiftshader(host: PyodideHost) -> None:
    assert host.run(ADAPTER) == "swiftshader"


def test_browser_without_adapter(pyodide_no_adapter: PyodideHost) -> None:
    assert pyodide_no_adapter.run(ADAPTER) is None


@pytest.mark.parametrize(
    ("host", "isolated"),
    [("pyodide_page", True), ("pyodide_worker", True), ("pyodide_csp", True), ("pyodide_plain", False)],
    indirect=["host"],
)
def test_cross_origin_isolation(host: PyodideHost, isolated: bool) -> None:
    assert host.run("import js; bool(js.crossOriginIsolated)") is isolated


def test_worker_is_a_worker(pyodide_page: PyodideHost, pyodide_worker: PyodideHost) -> None:
    code = "import js; hasattr(js, 'document')"
    assert pyodide_page.run(code) is True
    assert pyodide_worker.run(code) is False


def test_content_policy_forbids_eval_and_scripts_from_text(pyodide_csp: PyodideHost) -> None:
    with pytest.raises(PythonError, match="Content Security Policy"):
        pyodide_csp.run("import js; js.eval('1')")


@pytest.mark.parametrize(("host", "registered"), [("pyodide_page", False), ("pyodide_csp", True)], indirect=["host"])
def test_bridge_is_registered_only_under_the_policy(host: PyodideHost, registered: bool) -> None:
    assert host.run("import importlib.util; importlib.util.find_spec('py_gemm_bridge') is not None") is registered


def test_results_and_errors_cross_as_they_are(pyodide_page: PyodideHost) -> None:
    assert pyodide_page.run("import numpy; [x, numpy.float32(0.5), numpy.eye(2)]", x={"y": [1]}) == [
        {"y": [1]},
        0.5,
        [[1, 0], [0, 1]],
    ]
    with pytest.raises(PythonError, match="nothing of the kind") as raised:
        pyodide_page.run("raise LookupError('nothing of the kind')")
    assert raised.value.type == "LookupError"
    with pytest.raises(PythonError, match="x"):
        pyodide_page.run("x")


def test_files_cross_both_ways(pyodide_worker: PyodideHost) -> None:
    data = bytes(range(256)) * 5
    pyodide_worker.put_file("/tmp/data.bin", data)
    assert pyodide_worker.get_file("/tmp/data.bin") == data


@pytest.mark.expects_console("console error: on purpose", r"failed request: .*/nowhere: 404", "status of 404")
def test_complaints_are_seen(page: Page, library: Addresses, complaints: Complaints) -> None:
    page.goto(library.url + "repository/tests/browser/pages/host.html")
    page.evaluate("console.error('on purpose')")
    page.evaluate("fetch('/nowhere').then((answer) => answer.status)")
    complaints.settle()
    assert any("on purpose" in entry for entry in complaints.entries)
    assert any("/nowhere: 404" in entry for entry in complaints.entries)


@pytest.mark.expects_console("request to another host: https://example.com/", "failed request: https://example.com/", "ERR_")
def test_other_hosts_are_out_of_reach(page: Page, library: Addresses, complaints: Complaints) -> None:
    page.goto(library.plain_url + "repository/tests/browser/pages/host.html")
    assert page.evaluate("fetch('https://example.com/').then(() => 'reached', () => 'refused')") == "refused"
    complaints.settle()
    assert any("another host" in entry for entry in complaints.entries)
