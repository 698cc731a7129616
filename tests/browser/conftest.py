"""Fixtures for tests in a real headless Chromium: servers, pages, and one Pyodide for each kind of surroundings.

A test fails when a page complains (console error, uncaught error, failed request, request to another host), unless it is marked
`expects_console("pattern")`. WebGPU runs on SwiftShader here; `no_adapter` fixtures have a browser without a WebGPU adapter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, BrowserType, Page, expect

from scripts.browser import find_browser
from scripts.bundle import pyodide_bundle
from scripts.server import ISOLATED, PLAIN, STRICT, Headers, SiteServer
from scripts.site import Table
from scripts.system import is_root
from scripts.wheel import build_wheel
from tests.browser.harness import NPM_PYODIDE, Addresses, Complaints, PyodideHost, address_of, library_table, serve, site_table

# The browser keeps to itself: no updates, no synchronisation, and no host but this one resolves.
BASE_ARGUMENTS = [
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
    *(["--no-sandbox"] if is_root() else []),
]
# Conditions are waited for this long: two busy cores that load a Pyodide are slow, and a wait that ends early costs nothing.
PATIENCE_MS = 60_000

# Chromium gives software adapters only under this flag; the adapter is SwiftShader, which it brings along.
WEBGPU_ARGUMENTS = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]


def pytest_configure(config: pytest.Config) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    config.addinivalue_line("markers", "expects_console(*patterns): complaints of a page that this test brings about on purpose")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    # Variables that choose the Vulkan driver of native tests would hide the browser's own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VK_")}
    return {
        **browser_type_launch_args,
        "executable_path": find_browser(),
        "args": [*BASE_ARGUMENTS, *WEBGPU_ARGUMENTS],
        "env": environment,
    }


@pytest.fixture(scope="session")
def no_adapter_browser(browser_type: BrowserType, browser_type_launch_args: dict[str, Any]) -> Iterator[Browser]:
    """A browser in which navigator.gpu gives no adapter, as on a machine without a usable GPU."""
    browser = browser_type.launch(**{**browser_type_launch_args, "args": BASE_ARGUMENTS})
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture(autouse=True)
def no_complaints(request: pytest.FixtureRequest, complaints: Complaints, browser_name: str) -> Iterator[None]:
    """Fails a test for complaints. It names `browser_name`, a parameter, so that all tests here share one browser and its hosts."""
    complaints.unexpected([])
    yield
    complaints.settle()
    expected = [pattern for marker in request.node.iter_markers("expects_console") for pattern in marker.args]
    found = complaints.unexpected(expected)
    assert not found, "a page complained:\n" + "\n".join(found)


@pytest.fixture
def context(context: BrowserContext, complaints: Complaints) -> BrowserContext:
    context.set_default_timeout(PATIENCE_MS)
    return complaints.watch(context)


@pytest.fixture
def no_adapter_page(no_adapter_browser: Browser, complaints: Complaints) -> Iterator[Page]:
    context = complaints.watch(no_adapter_browser.new_context())
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout as it is."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def start_server() -> Iterator[Callable[[Table, Headers], SiteServer]]:
    servers = []

    def start(table: Table, headers: Headers) -> SiteServer:
        servers.append(serve(table, headers))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def _addresses(start: Callable[[Table, Headers], SiteServer], table: Table) -> Addresses:
    return Addresses(*(address_of(start(table, headers)) for headers in (ISOLATED, PLAIN, STRICT)))


@pytest.fixture(scope="session")
def library(start_server: Callable[[Table, Headers], SiteServer], wheel: Path) -> Addresses:
    """Where pages find bridge.js, the wheel, both Pyodides and the pages of the tests."""
    return _addresses(start_server, library_table(wheel, pyodide_bundle()))


@pytest.fixture(scope="session")
def site(start_server: Callable[[Table, Headers], SiteServer], wheel: Path) -> Addresses:
    """The demo page, as `npm start` serves it."""
    return _addresses(start_server, site_table(wheel, pyodide_bundle()))


@pytest.fixture(scope="session")
def make_host(wheel: Path, complaints: Complaints) -> Callable[..., PyodideHost]:
    """Start a PyodideHost in a context of its own, closed with its browser; the keyword arguments are those of PyodideHost."""

    def make(browser: Browser, root: str, **options: Any) -> PyodideHost:
        return PyodideHost(complaints.watch(browser.new_context()), root, wheel.name, **options)

    return make


@pytest.fixture(scope="session")
def pyodide_page(make_host: Callable[..., PyodideHost], browser: Browser, library: Addresses) -> PyodideHost:
    """In the page, cross-origin isolated; Python loads the bridge from its own text."""
    return make_host(browser, library.url)


@pytest.fixture(scope="session")
def pyodide_worker(make_host: Callable[..., PyodideHost], browser: Browser, library: Addresses) -> PyodideHost:
    """In a dedicated module worker, cross-origin isolated."""
    return make_host(browser, library.url, worker=True)


@pytest.fixture(scope="session")
def pyodide_plain(make_host: Callable[..., PyodideHost], browser: Browser, library: Addresses) -> PyodideHost:
    """In the page, without COOP and COEP: no shared memory, coarse timers."""
    return make_host(browser, library.plain_url)


@pytest.fixture(scope="session")
def pyodide_csp(make_host: Callable[..., PyodideHost], browser: Browser, library: Addresses) -> PyodideHost:
    """In the page, under a CSP without unsafe-eval and without blob: scripts; the bridge is registered by web/index.js."""
    return make_host(browser, library.csp_url, registered=True)


@pytest.fixture(scope="session")
def pyodide_no_adapter(make_host: Callable[..., PyodideHost], no_adapter_browser: Browser, library: Addresses) -> PyodideHost:
    """In the page of a browser that has WebGPU but no adapter."""
    return make_host(no_adapter_browser, library.url)


@pytest.fixture(scope="session")
def pyodide_npm(make_host: Callable[..., PyodideHost], browser: Browser, library: Addresses) -> PyodideHost:
    """The current Pyodide from npm, which has neither NumPy nor micropip: for the lower floors."""
    return make_host(browser, library.url, pyodide=NPM_PYODIDE, packages=())
