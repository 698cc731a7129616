"""Pictures for notebooks without any drawing library: a small PNG from an array of colours, and the page text that shows it."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape

import numpy as np
from numpy.typing import NDArray


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG of pixels [rows, columns, 3], red green blue. Source: the PNG specification, third edition (8-bit truecolour, filter
    0)."""
    rows, columns, _ = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def image(pixels: NDArray[np.uint8], width: int, description: str) -> str:
    """An <img> of `width` CSS pixels that keeps its pixels square and sharp; `description` is read out where it cannot be seen."""
    rows, columns, _ = pixels.shape
    data = base64.b64encode(png(pixels)).decode()
    return (
        f'<img alt="{escape(description, quote=True)}" width="{width}" height="{max(1, round(width * rows / columns))}" '
        f'style="image-rendering: pixelated; border: 1px solid #8884" src="data:image/png;base64,{data}">'
    )


# From no error to the largest, light to dark, and what no correct sum can give. Colours by Okabe and Ito, which people with
# any colour vision can tell apart.
_CALM, _FULL, _OUTSIDE, _UNKNOWN = ((235, 244, 250), (0, 90, 150), (213, 94, 0), (238, 238, 238))


def map_colours(errors: NDArray[np.float64], outside: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Colours of errors [rows, columns]: from light to dark blue, `outside` orange, NaN (not looked at) grey. The darkest blue is
    the largest error that is not outside, or 1 where all are below."""
    inside = errors[~outside & np.isfinite(errors)]
    top = max(1.0, float(inside.max(initial=0.0)))
    part = np.sqrt(np.clip(np.nan_to_num(errors, nan=0.0, posinf=top) / top, 0.0, 1.0))[..., None]
    colours = np.asarray(_CALM) * (1 - part) + np.asarray(_FULL) * part
    colours = np.where(np.isnan(errors)[..., None], _UNKNOWN, colours)
    colours = np.where(outside[..., None], _OUTSIDE, colours)
    return np.rint(colours).astype(np.uint8)
