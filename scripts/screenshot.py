"""Takes the README's picture of the demo page: `python -m scripts.screenshot [FILE]`. Needs what the browser tests need.

Multiplies two matrices of cosines and photographs the page from its head to the end of the readings. Tests nothing.
"""

from __future__ import annotations

import base64
import struct
import sys
import tempfile
import zlib
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from .browser import find_browser
from .bundle import pyodide_bundle
from .paths import ROOT
from .server import ISOLATED, SiteServer
from .site import site
from .system import is_root
from .wheel import build_wheel

PICTURE = ROOT / "web" / "demo" / "screenshot.png"
SIZES = {"m": 384, "k": 512, "n": 640}
WIDTH = 1240
PATIENCE_MS = 120_000
ARGUMENTS = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", *(["--no-sandbox"] if is_root() else [])]

# Rounds every colour to a multiple of eight, which nobody sees: antialiased text has few colours then, and packs well.
PIXELS = """async (source) => {
    const image = await createImageBitmap(await (await fetch(source)).blob());
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    const { data } = context.getImageData(0, 0, image.width, image.height);
    const rounded = data.filter((_, index) => index % 4 < 3).map((value) => Math.round(value / 8) * 8);
    const pieces = Array.from({ length: image.height }, (_, row) =>
        String.fromCharCode(...rounded.subarray(row * image.width * 3, (row + 1) * image.width * 3)));
    return { width: image.width, height: image.height, rows: pieces.map((piece) => btoa(piece)) };
}"""


def png(width: int, height: int, rows: list[bytes]) -> bytes:
    """A PNG of 8-bit RGB rows, unfiltered: flat colours and text pack best so."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def take(address: str, picture: Path) -> None:
    """Photographs the page at this address after one product."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000}, reduced_motion="reduce")
        page.goto(address)
        for name, size in SIZES.items():
            page.locator(f"#size-{name}").fill(str(size))
        expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE_MS)
        page.locator("#run").click()
        expect(page.locator("#to-readings")).to_be_visible(timeout=PATIENCE_MS)
        page.mouse.move(0, 0)
        end = page.locator("#console").bounding_box()
        assert end is not None
        taken = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": end["y"]})
        source = f"data:image/png;base64,{base64.b64encode(taken).decode()}"
        pixels = browser.new_page().evaluate(PIXELS, source)
        picture.write_bytes(png(pixels["width"], pixels["height"], [base64.b64decode(row) for row in pixels["rows"]]))
        browser.close()


def main() -> None:
    """Builds the site, serves it and takes the picture."""
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with tempfile.TemporaryDirectory() as folder:
        files = site(build_wheel(Path(folder)), pyodide_bundle()).files
        server = SiteServer(lambda: files, ISOLATED)
        take(server.url, picture)
        server.close()
    print(f"{picture}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
