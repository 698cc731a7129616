"""The demo site as files and as served: complete, with relative addresses only, with the right headers and media types."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from posixpath import dirname, join, normpath

import pytest

from scripts.build import main as build
from scripts.bundle import pyodide_bundle
from scripts.paths import ROOT
from scripts.server import HOST, ISOLATED, PLAIN, STRICT, SiteServer
from scripts.site import Table
from scripts.wheel import wheel_name

ABSOLUTE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|/)", re.IGNORECASE)
# Names that are no request: pictures in the text itself, links for people, files made by the page.
HARMLESS = re.compile(r"^(?:data:|blob:|#|$)")
JS_REFERENCES = re.compile(
    r"""(?:\bfrom\s*|\bimport\s*\(?\s*)(["'])([^"'`$]+)\1|new URL\(\s*(["'])([^"'`$]+)\3\s*,\s*import\.meta\.url"""
)
COMMENTS = re.compile(r"/\*.*?\*/|^\s*//[^\n]*$", re.DOTALL | re.MULTILINE)
CSS_REFERENCES = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')]+)["']?""")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("build") / "site"
    assert build([str(target)]) == 0
    return target


class _Links(HTMLParser):
    """Collects what a page loads by itself: everything with src, and links that are not for people."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.found += [value for name, value in attrs if name in ("src", "poster") and value]
        if tag == "link" and named.get("href"):
            self.found.append(str(named["href"]))
        self.inline += [f"<{tag} {name}>" for name in named if name.startswith("on")]
        self._script = tag == "script" and "src" not in named

    def handle_data(self, data: str) -> None:
        if self._script and data.strip():
            self.inline.append(data.strip())

    def handle_endtag(self, tag: str) -> None:
        self._script = self._script and tag != "script"


def references(folder: Path) -> Iterator[tuple[str, str]]:
    """(file, what it refers to) for every page, script and style sheet of our own."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.startswith("pyodide/") or path.suffix not in (".html", ".js", ".css"):
            continue
        text = COMMENTS.sub("", path.read_text())
        if path.suffix == ".html":
            links = _Links()
            links.feed(text)
            yield from ((name, link) for link in links.found)
        elif path.suffix == ".js":
            yield from ((name, match[2] or match[4]) for match in JS_REFERENCES.finditer(text))
        else:
            yield from ((name, match[1]) for match in CSS_REFERENCES.finditer(text))


def test_every_reference_is_relative_and_leads_to_a_file(folder: Path) -> None:
    found = [(name, link) for name, link in references(folder) if not HARMLESS.match(link)]
    assert any(name == "index.html" for name, _ in found)
    assert [row for row in found if ABSOLUTE.match(row[1])] == []
    lost = []
    for name, link in found:
        target = folder / normpath(join(dirname(name), link.split("?")[0].split("#")[0]))
        if not target.exists():
            lost.append((name, link))
    assert lost == []


def test_page_has_no_inline_scripts(folder: Path) -> None:
    links = _Links()
    links.feed((folder / "index.html").read_text())
    assert links.inline == []


def test_site_describes_itself(folder: Path) -> None:
    about = json.loads((folder / "site.json").read_text())
    assert about["wheel"] == f"wheels/{wheel_name()}"
    assert (folder / about["wheel"]).is_file()
    there = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    del there["site.json"]
    assert about["bytes"] == there


def test_pyodide_of_the_site_is_complete(folder: Path) -> None:
    lock = json.loads((folder / "pyodide" / "pyodide-lock.json").read_text())
    assert {"numpy", "micropip"} <= set(lock["packages"])
    for row in lock["packages"].values():
        assert (folder / "pyodide" / row["file_name"]).is_file()
        assert set(row["depends"]) <= set(lock["packages"])


def test_third_parties_are_named(folder: Path) -> None:
    notice = (folder / "THIRD-PARTY.txt").read_text()
    assert all(name in notice for name in ("Pyodide", "NumPy", "Inter", "JetBrains Mono", "STIX Two Text"))
    assert "SIL OPEN FONT LICENSE" in (folder / "fonts" / "LICENSE-inter.txt").read_text().upper()


def test_build_leaves_other_folders_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    assert build([str(tmp_path)]) == 1
    assert "left alone" in capsys.readouterr().err
    assert (tmp_path / "precious.txt").read_text() == "mine"


def fetch(port: int, path: str, method: str = "GET") -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


@pytest.mark.parametrize("headers", [ISOLATED, PLAIN, STRICT], ids=["isolated", "plain", "strict"])
def test_server_sends_its_headers_with_everything(headers: dict[str, str]) -> None:
    table: Table = {"index.html": b"<p>", "a/b.wasm": b"\0asm"}
    server = SiteServer(lambda: table, headers)
    try:
        for path in ("/", "/a/b.wasm", "/nowhere"):
            answer, _ = fetch(server.port, path)
            sent = dict(answer.getheaders())
            assert {name: sent.get(name) for name in headers} == headers
            assert "Cross-Origin-Opener-Policy" in sent or not headers
    finally:
        server.close()


def test_server_media_types_and_absence() -> None:
    types = {
        "a.html": "text/html; charset=utf-8",
        "a.js": "text/javascript; charset=utf-8",
        "a.mjs": "text/javascript; charset=utf-8",
        "a.css": "text/css; charset=utf-8",
        "a.json": "application/json",
        "a.wasm": "application/wasm",
        "a.woff2": "font/woff2",
        "a.svg": "image/svg+xml",
        "a.zip": "application/zip",
        "a.whl": "application/octet-stream",
    }
    table: Table = dict.fromkeys(types, b"12345")
    server = SiteServer(lambda: table, PLAIN)
    try:
        for name, media_type in types.items():
            answer, body = fetch(server.port, f"/{name}?x=1")
            assert (answer.status, answer.getheader("Content-Type"), body) == (200, media_type, b"12345")
        answer, body = fetch(server.port, "/a.html", "HEAD")
        assert (answer.status, answer.getheader("Content-Length"), body) == (200, "5", b"")
        for path in ("/../pyproject.toml", "/%2e%2e/pyproject.toml", "//etc/passwd", "/"):
            assert fetch(server.port, path)[0].status == 404
    finally:
        server.close()


def test_server_is_not_reachable_from_outside() -> None:
    server = SiteServer(dict, PLAIN)
    try:
        assert server._server.server_address[0] == HOST
    finally:
        server.close()


def test_start_says_where_it_is_and_passes_over_a_taken_port() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "scripts.start", str(port)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            second = process.stdout.readline()
            try:
                assert re.match(rf"Port {port} is taken; using \d+ instead\.", first)
                address = re.search(r"http://localhost:(\d+)/", second)
                assert address
                answer, body = fetch(int(address[1]), "/")
                assert answer.status == 200
                assert b"<html" in body
                assert answer.getheader("Cross-Origin-Embedder-Policy") == "require-corp"
                answer, body = fetch(int(address[1]), "/pyodide/pyodide.asm.wasm")
                assert body == (pyodide_bundle() / "pyodide.asm.wasm").read_bytes()
            finally:
                process.terminate()
