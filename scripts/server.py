"""A static server for one table of files, on this machine only. It serves nothing outside the table.

Three sets of headers: ISOLATED makes a page cross-origin isolated (finer timers, shared memory), PLAIN is what most static hosts
send, STRICT adds the Content-Security-Policy under which py_gemm must work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .site import Content, Table

HOST = "127.0.0.1"

Headers = dict[str, str]

PLAIN: Headers = {}
ISOLATED: Headers = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# Pyodide needs 'wasm-unsafe-eval' to compile WebAssembly, and nothing beyond: no 'unsafe-eval', no blob: scripts.
STRICT: Headers = {
    **ISOLATED,
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self' 'wasm-unsafe-eval'",
            "worker-src 'self'",
            "connect-src 'self'",
            "style-src 'self'",
            "font-src 'self'",
            "img-src 'self' data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    ),
}

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ts": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".wgsl": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}


class SiteServer:
    """Serves what `table()` holds at the time of each request, in threads of its own until `close`.

    `port` 0 takes any free one; OSError where the port is taken.
    """

    def __init__(self, table: Callable[[], Table], headers: Headers, port: int = 0) -> None:
        class Handler(_Handler):
            files = staticmethod(table)
            extra = headers

        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://localhost:{self.port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until the server is closed from another thread, or KeyboardInterrupt."""
        self._thread.join()

    def close(self) -> None:
        """Stop listening; requests in flight are finished by their own threads."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    files: Callable[[], Table]
    extra: Headers
    protocol_version = "HTTP/1.1"
    server_version = "py_gemm"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        address = unquote(urlsplit(self.path).path).lstrip("/")
        if address == "" or address.endswith("/"):
            address += "index.html"
        content = self.files().get(address)
        data = _read(content)
        if data is None:
            self._send(HTTPStatus.NOT_FOUND, MEDIA_TYPES[".txt"], f"{address} is not here\n".encode(), with_body)
            return
        self._send(HTTPStatus.OK, MEDIA_TYPES.get(Path(address).suffix, "application/octet-stream"), data, with_body)

    def _send(self, status: HTTPStatus, media_type: str, data: bytes, with_body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in self.extra.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            try:
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the reader went away: a closed tab

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass  # a browser shows its requests itself; the terminal stays readable


def _read(content: Content | None) -> bytes | None:
    if isinstance(content, Path):
        return content.read_bytes() if content.is_file() else None
    return content
