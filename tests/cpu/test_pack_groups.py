"""The order of packed groups, byte for byte, against a naive oracle: every width, depths around whole groups, any strides."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import wasmtime

from py_gemm.cpu.kernels import build

SOURCE = 4096
PANELS = 1 << 17
HEAD = 0xEE


Probe = tuple[Any, Any, dict[str, Any]]

# Steps of a group and bytes of an element: pairs and quadruples of bytes (int8), pairs of 16 bits (bfloat16).
KINDS = [(2, 1), (4, 1), (2, 2)]
TOKENS = ["simd128", "scalar"]


@pytest.fixture(scope="module")
def probes() -> Iterator[dict[tuple[str, int, int, int], Probe]]:
    """The packers by token, kind and transform."""
    made = {(token, *kind, flip): compiled(token, *kind, flip) for token in TOKENS for kind in KINDS for flip in (0, 0x80)}
    yield made
    for store, _, _ in made.values():
        store.close()


def compiled(token: str, steps: int, size: int, flip: int) -> Probe:
    """pack_groups.h with a transform of its own: a store, its memory, the packers."""
    with TemporaryDirectory() as folder:
        made = Path(folder, "probe.wasm")
        build._compiler(
            "-target", "wasm32-freestanding", f"-mcpu={build.FEATURES[token]}", *build.COMPILE_FLAGS, "-nostdlib",
            "-Wl,--no-entry", "-Wl,--export-memory", "-Wl,--initial-memory=1048576", f"-DGROUP_STEPS={steps}",
            f"-DSOURCE_BYTES={size}", f"-DFLIP={flip}", f"-I{build.HERE}", "-o", str(made),
            str(Path(__file__).parent / "pack_groups_probe.c"),
        )  # fmt: skip
        store = wasmtime.Store()
        exports = wasmtime.Instance(store, wasmtime.Module(store.engine, made.read_bytes()), []).exports(store)
    return store, exports["memory"], {f"pack_{width}": exports[f"pack_{width}"] for width in (4, 6, 8)}


def oracle(source: np.ndarray[Any, Any], steps: int, flip: int, width: int) -> bytes:
    """Lanes x depth -> panels, one element at a time: group g, lane i, position t at g * width * steps + i * steps + t."""
    lanes, depth = source.shape
    item = np.uint8 if steps == 4 else np.uint16
    flip = flip * 0x101 if source.dtype == np.uint16 else flip
    groups = -(-depth // steps)
    made = b""
    for first in range(0, lanes, width):
        panel = np.full(groups * width * steps, flip, item)  # every pad is the transform of zero
        for lane, step in itertools.product(range(first, min(first + width, lanes)), range(depth)):
            group, position = divmod(step, steps)
            panel[group * width * steps + (lane - first) * steps + position] = int(source[lane, step]) ^ flip
        made += bytes([HEAD]) * (4 * width) + panel.tobytes()
    return made


@pytest.mark.parametrize("flip", [0, 0x80])
@pytest.mark.parametrize(("steps", "size"), KINDS)
@pytest.mark.parametrize("width", [4, 6, 8])
@pytest.mark.parametrize("token", TOKENS)
def test_panels_are_those_of_the_oracle(
    probes: dict[tuple[str, int, int, int], Probe], token: str, width: int, steps: int, size: int, flip: int
) -> None:
    store, memory, packers = probes[token, steps, size, flip]
    room = np.frombuffer(memory.get_buffer_ptr(store), np.uint8)
    room[SOURCE:PANELS] = np.random.default_rng(1).integers(1, 255, PANELS - SOURCE)
    for lanes, depth in itertools.product((1, 3, width, width + 1, 2 * width, 17), (1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 64)):
        for lane_stride, depth_stride in ((depth, 1), (depth + 3, 1), (1, lanes), (1, lanes + 5), (7, 131), (3, 61)):
            at = SOURCE + 64
            elements = room[at:PANELS].view(np.uint8 if size == 1 else np.uint16)
            places = np.arange(lanes)[:, None] * lane_stride + np.arange(depth)[None, :] * depth_stride
            expected = oracle(elements[places], steps, flip, width)
            room[PANELS : PANELS + len(expected) + 64] = HEAD
            packers[f"pack_{width}"](store, 5, at, lane_stride * size, depth_stride * size, lanes, depth, PANELS)
            assert room[PANELS : PANELS + len(expected)].tobytes() == expected, (lanes, depth, lane_stride, depth_stride)
            assert np.all(room[PANELS + len(expected) : PANELS + len(expected) + 64] == HEAD)


def test_strides_may_run_backwards(probes: dict[tuple[str, int, int, int], Probe]) -> None:
    store, memory, packers = probes["simd128", 4, 1, 0x80]
    room = np.frombuffer(memory.get_buffer_ptr(store), np.uint8)
    room[SOURCE : SOURCE + 500] = np.arange(500) % 251
    block = room[SOURCE : SOURCE + 15 * 20].reshape(15, 20)[::-1, ::-1]
    expected = oracle(block.copy(), 4, 0x80, 6)
    room[PANELS : PANELS + len(expected)] = HEAD
    packers["pack_6"](store, 5, SOURCE + 299, -20, -1, 15, 20, PANELS)
    assert room[PANELS : PANELS + len(expected)].tobytes() == expected
