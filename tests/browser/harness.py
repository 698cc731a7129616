"""What the browser tests stand on: the servers, the Pyodide hosts, and the watch that fails a test for what a page complains of.

Plain classes without fixtures; conftest.py makes fixtures of them. Nothing here knows py_gemm's own interface.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, Response, WebError

from scripts.paths import NODE_MODULES, ROOT
from scripts.server import HOST, Headers, SiteServer
from scripts.site import Table, library_files, site, tree

HOST_PAGE = "repository/tests/browser/pages/host.html"
NPM_PYODIDE = "pyodide-npm/"
CONFORMANCE = "conformance.zip"

# Half of what CI allows for one test: a page that never answers must not eat the whole run.
START_SECONDS = 240


@dataclass(frozen=True)
class Addresses:
    """The roots of one table of files under three sets of headers."""

    url: str
    plain_url: str
    csp_url: str


class PythonError(Exception):
    """An exception that left Python in a page; `type` is its class's name, the text its traceback."""

    def __init__(self, class_name: str, message: str) -> None:
        super().__init__(message)
        self.type = class_name


@dataclass
class Complaints:
    """What pages reported that no page should: console errors, uncaught errors, failed requests, requests to other hosts."""

    entries: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def watch(self, context: BrowserContext) -> BrowserContext:
        """Listen to every page and worker of this context from now on."""
        self.contexts.append(context)
        context.on("console", self._console)
        context.on("weberror", self._weberror)
        context.on("request", self._request)
        context.on("requestfailed", self._failed)
        context.on("response", self._response)
        context.on("close", self._closed)
        return context

    def settle(self) -> None:
        """Return after all that open pages reported up to now has arrived."""
        for context in self.contexts:
            for page in context.pages:
                page.evaluate("0")

    def unexpected(self, expected: list[str]) -> list[str]:
        """The complaints that match none of these patterns; forgets all of them."""
        entries, self.entries[:] = list(self.entries), []
        return [entry for entry in entries if not any(re.search(pattern, entry) for pattern in expected)]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.entries.append(f"console error: {message.text} ({message.location.get('url', '')})")

    def _weberror(self, error: WebError) -> None:
        self.entries.append(f"uncaught error: {error.error}")

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.hostname not in (HOST, "localhost"):
            self.entries.append(f"request to another host: {request.url}")

    def _failed(self, request: Request) -> None:
        self.entries.append(f"failed request: {request.url}: {request.failure}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.entries.append(f"failed request: {response.url}: {response.status}")

    def _closed(self, context: BrowserContext) -> None:
        if context in self.contexts:
            self.contexts.remove(context)


def library_table(wheel: Path, bundle: Path) -> Table:
    """What the hosts are served: the library's files, the pages of the tests, the bare Pyodide of npm and the table of cases."""
    files = library_files(wheel, bundle)
    for folder in ("web", "tests/browser/pages"):
        files.update(tree(ROOT / folder, f"repository/{folder}/"))
    files.update(tree(NODE_MODULES / "pyodide", NPM_PYODIDE))
    files[CONFORMANCE] = zip_folder("tests/conformance")
    return files


def site_table(wheel: Path, bundle: Path) -> Table:
    """The demo site, exactly as it is served and built."""
    return site(wheel, bundle).files


def zip_folder(name: str) -> bytes:
    """The Python files of a folder of the checkout, under their names in the checkout."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted((ROOT / name).rglob("*.py")):
            archive.writestr(path.relative_to(ROOT).as_posix(), path.read_bytes())
    return buffer.getvalue()


def serve(table: Table, headers: Headers) -> SiteServer:
    """A server of its own port (so of its own origin) for this table."""
    return SiteServer(lambda: table, headers)


def address_of(server: SiteServer) -> str:
    """The root address, by number: pages then need no name resolution."""
    return f"http://{HOST}:{server.port}/"


class PyodideHost:
    """One Pyodide in one page or worker, with py_gemm installed and `tests.conformance` importable.

    Loading takes seconds, so hosts live as long as the session; each `run` has a namespace of its own, modules are shared.
    """

    def __init__(
        self,
        context: BrowserContext,
        root: str,
        wheel: str,
        *,
        worker: bool = False,
        registered: bool = False,
        pyodide: str = "pyodide/",
        packages: tuple[str, ...] = ("numpy", "micropip"),
    ) -> None:
        self.page: Page = context.new_page()
        self.page.goto(root + HOST_PAGE)
        options = {
            "worker": worker,
            "registered": registered,
            "pyodide": root + pyodide,
            "packages": list(packages),
            "wheel": f"{root}wheels/{wheel}",
            "conformance": root + CONFORMANCE,
            "environment": {"HOME": "/home/pyodide", "PY_GEMM_SOAK": os.environ.get("PY_GEMM_SOAK", "")},
        }
        self._call("start", options, START_SECONDS)

    def run(self, code: str, /, **names: Any) -> Any:
        """Run code that may wait (through runPythonAsync; top-level await works): the value of its last expression, as JSON.

        `names` (JSON values) are visible to the code. An exception in Python is raised here as PythonError.
        """
        return self._run(True, code, names)

    def run_sync_entry(self, code: str, /, **names: Any) -> Any:
        """The same through plain runPython, where Python cannot wait for a promise."""
        return self._run(False, code, names)

    def put_file(self, name: str, data: bytes) -> None:
        """Write a file in Pyodide's file system."""
        self._call("putFile", [name, base64.b64encode(data).decode()], START_SECONDS)

    def get_file(self, name: str) -> bytes:
        """Read a file of Pyodide's file system."""
        text = self.run("import base64, pathlib; base64.b64encode(pathlib.Path(name).read_bytes()).decode()", name=name)
        return base64.b64decode(text)

    def _run(self, promising: bool, code: str, names: dict[str, Any]) -> Any:
        outcome = self._call("run", [promising, code, json.dumps(names)], START_SECONDS)
        if "error" in outcome:
            raise PythonError(outcome["error"]["type"], outcome["error"]["message"])
        return json.loads(outcome["result"])

    def _call(self, action: str, argument: Any, seconds: int) -> Any:
        script = """([action, argument, seconds]) => Promise.race([
            host[action](argument),
            new Promise((_, reject) => setTimeout(() => reject(new Error(`${action}: no answer in ${seconds} s`)), seconds * 1000)),
        ])"""
        return self.page.evaluate(script, [action, argument, seconds])
