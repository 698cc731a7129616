"""`npm start [-- PORT]`: serves the demo page on this machine, cross-origin isolated, and prints its address.

The port is the argument, else $PORT, else 8000; where that one is taken the next free one is used and said aloud. Files of
web/demo are read anew at each request, so a reload of the page shows an edit. The benchmark page lies beside it, at bench/.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from . import bench_peers
from .bundle import pyodide_bundle
from .server import ISOLATED, SiteServer
from .site import Table, site
from .wheel import build_wheel

DEFAULT_PORT = 8000
PORTS_TRIED = 50


def main(words: list[str]) -> int:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="npm start --", description="Serve the demo page on localhost.")
    parser.add_argument("port", nargs="?", type=int, default=os.environ.get("PORT") or DEFAULT_PORT)
    wanted = parser.parse_args(words).port
    try:
        pyodide = pyodide_bundle()
        wheel = build_wheel()
        site(wheel, pyodide)
    except (RuntimeError, FileNotFoundError) as error:
        print(f"py_gemm: {error}", file=sys.stderr)
        return 1

    peers = bench_peers.table()

    def table() -> Table:
        return site(wheel, pyodide, peers).files

    server = listen(table, wanted)
    if server.port != wanted:
        print(f"Port {wanted} is taken; using {server.port} instead.")
    print(f"The demo page is at {server.url}\nThe benchmark page is at {server.url}bench/\nStop it with Ctrl+C.", flush=True)
    try:
        server.wait()
    except KeyboardInterrupt:
        print()
    server.close()
    return 0


def listen(table: Callable[[], Table], wanted: int) -> SiteServer:
    """A server on `wanted`, or on the first free port after it, or on any."""
    for port in (*range(wanted, min(wanted + PORTS_TRIED, 65536)), 0):
        try:
            return SiteServer(table, ISOLATED, port)
        except OSError:
            continue
    raise AssertionError("port 0 is always free")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
