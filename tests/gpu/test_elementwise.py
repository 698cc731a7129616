"""The epilogue in the product's own dispatch equals the product followed by Elementwise, bit for bit; and erf, measured."""

from __future__ import annotations

from itertools import product
from math import erf, sqrt
from typing import Any

import numpy as np
import pytest

from py_gemm.assets import read_asset
from py_gemm.epilogue import Activation, GemmEpilogue
from py_gemm.errors import AliasError, ShapeError
from py_gemm.gpu.capabilities import Capabilities
from py_gemm.gpu.elementwise import Elementwise
from py_gemm.gpu.gemm import Gemm
from py_gemm.gpu.variants import VARIANTS, Request

from .tools import TYPES, numpy_type

ACTIVATIONS = [None, "relu", "gelu_erf", "gelu_tanh"]
# Sizes that each row takes: whole k, split k, few rows of either storage.
SHAPES = {
    "rows-4x32-8slices": (3, 8200, 20, False),
    "rows-4x16-16slices": (3, 70, 20, False),
    "rows-4x8-32lanes": (3, 70, 20, True),
}
PLAIN = ((70, 66, 40, False), (70, 66, 300, True))
ADAPTER = Capabilities("vulkan", "a made-up adapter")
CASES = [
    (row.name, sizes, name, mode)
    for row, name, mode in product(VARIANTS, TYPES, ("fast", "deterministic"))
    for sizes in (PLAIN if row.name not in SHAPES else (SHAPES[row.name],))
    if all(each.holds(Request(ADAPTER, TYPES[name], TYPES[name], mode)) for each in row.conditions)
]


def test_every_row_is_compared() -> None:
    """An exact row rounds the whole expression once, so nothing that follows can equal it."""
    assert {case[0] for case in CASES} == {row.name for row in VARIANTS if not row.exact}


def read(device: Any, buffer: Any) -> Any:
    return np.frombuffer(device.read_buffer(buffer), np.uint32)


@pytest.mark.parametrize(("variant", "sizes", "name", "mode"), CASES, ids=str)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.7, 0.0), (1.0, 1.3), (0.7, 1.3)], ids=str)
def test_fused_equals_product_then_elementwise(
    device: Any, variant: str, sizes: Any, name: str, mode: str, alpha: float, beta: float
) -> None:
    m, n, k, transpose_b = sizes
    rng = np.random.default_rng(m * n * k)
    stored = numpy_type(TYPES[name])
    a, b = (device.create_buffer(rng.standard_normal(count).astype(stored).view(np.uint8)) for count in (m * k, k * n))
    start = rng.standard_normal(m * n).astype("f4")
    bias = device.create_buffer(rng.standard_normal(n + 3).astype("f4"))
    gemm = Gemm(device, name, mode, variant=variant)
    fused, apart, spare = (device.create_buffer(start) for _ in range(3))
    for with_bias, activation in product((False, True), ACTIVATIONS):
        for buffer in (fused, apart):
            device.write_buffer(buffer, start)
        encoder = device.create_encoder()
        options = {"transpose_b": transpose_b, "alpha": alpha, "beta": beta}
        given = bias if with_bias else None
        gemm.encode(encoder, a, b, fused, m, n, k, epilogue=GemmEpilogue(given, 3 if with_bias else 0, activation), **options)
        gemm.encode(encoder, a, b, apart, m, n, k, **options)
        Elementwise(device).encode(encoder, apart, spare, m, n, bias=given, bias_offset=3 if with_bias else 0)
        Elementwise(device, activation).encode(encoder, spare, spare, m, n)
        device.submit(encoder)
        assert np.array_equal(read(device, fused), read(device, spare)), (with_bias, activation)


def test_strides_offsets_and_what_lies_between(device: Any) -> None:
    x = device.create_buffer(np.arange(40, dtype="f4") - 20)
    y = device.create_buffer(np.full(60, 77, "f4"))
    bias = device.create_buffer(np.array([9, 1, 2, 3], "f4"))
    encoder = device.create_encoder()
    Elementwise(device, "relu").encode(encoder, x, y, 4, 3, bias=bias, bias_offset=1, ldx=8, ldy=10, offset_x=2, offset_y=5)
    device.submit(encoder)
    expected = np.full(60, 77, "f4")
    where = 5 + 10 * np.arange(4)[:, None] + np.arange(3)
    values = 2 + 8 * np.arange(4)[:, None] + np.arange(3) - 20.0
    expected[where] = np.maximum(values + np.arange(1, 4), 0)
    assert np.array_equal(np.frombuffer(device.read_buffer(y), "f4"), expected)


def test_what_is_refused(device: Any) -> None:
    x, y = device.create_buffer(64), device.create_buffer(64)
    relu, encoder = Elementwise(device, "relu"), device.create_encoder()
    with pytest.raises(ShapeError, match="elementwise: y needs elements 1 to 16, its buffer holds 16"):
        relu.encode(encoder, x, y, 4, 4, offset_y=1)
    with pytest.raises(ShapeError, match="elementwise: ldx is 3"):
        relu.encode(encoder, x, y, 4, 4, ldx=3)
    with pytest.raises(ShapeError, match="elementwise: rows is negative"):
        relu.encode(encoder, x, y, -1, 4)
    with pytest.raises(AliasError, match="x and y are the same device buffer at different places"):
        relu.encode(encoder, x, x, 1, 4, offset_y=4)
    with pytest.raises(AliasError, match="y and bias"):
        relu.encode(encoder, x, y, 1, 4, bias=y)
    with pytest.raises(ValueError, match="unknown activation 'silu'"):
        Elementwise(device, "silu")
    relu.encode(encoder, x, y, 0, 4)
    device.submit(encoder)


def test_recording_again_allocates_nothing(device: Any) -> None:
    x, y = device.create_buffer(64), device.create_buffer(64)
    relu = Elementwise(device, "relu")
    relu.encode(device.create_encoder(), x, y, 4, 4)
    before = device.counts()
    relu.encode(device.create_encoder(), x, y, 4, 4)
    assert device.counts() == before
    relu.release_bindings()
    relu.encode(device.create_encoder(), x, y, 4, 4)
    assert device.counts()["bind_groups"] == before["bind_groups"] + 1


ERF = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) at: vec3<u32>) { y[at.x] = erf_of_scaled(x[at.x]); }
"""


@pytest.fixture(scope="module")
def erf_of_scaled(device: Any) -> Any:
    """erf(x / sqrt 2) of 256 * n values, as the shaders compute it."""
    raw = device.handle
    import wgpu

    module = raw.create_shader_module(code=read_asset("shaders/epilogue.wgsl").decode() + ERF)
    pipeline = raw.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})

    def call(values: Any) -> Any:
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
        source = raw.create_buffer_with_data(data=values, usage=usage)
        target = raw.create_buffer(size=values.nbytes, usage=usage)
        entries = [{"binding": i, "resource": {"buffer": each}} for i, each in enumerate((source, target))]
        group = raw.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
        encoder = raw.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(values.size // 256)
        compute.end()
        raw.queue.submit([encoder.finish()])
        return np.frombuffer(raw.queue.read_buffer(target), "f4")

    return call


# Measured over all floats (the sweep of `npm run soak`); shaders/epilogue.wgsl states it.
LARGEST_ERROR = 3.5e-7


def largest_error(erf_of_scaled: Any, patterns: Any) -> float:
    patterns = patterns[: patterns.size // 256 * 256]
    x = patterns.view("f4")
    exact = np.fromiter((erf(value / sqrt(2)) for value in x.tolist()), float, x.size)
    return float(np.abs(erf_of_scaled(x) - exact).max())


def test_erf_is_good_to_float32(erf_of_scaled: Any) -> None:
    """A few hundred thousand floats of either sign, subnormals and those past the clamp among them."""
    positive = np.arange(0, 0x7F800000, 9973, dtype=np.uint32)
    dense = np.arange(0x3E000000, 0x40C00000, 401, dtype=np.uint32)
    for patterns in (positive, dense, positive | np.uint32(0x80000000)):
        assert largest_error(erf_of_scaled, patterns) <= LARGEST_ERROR
    assert f"at most {LARGEST_ERROR:.1e} over all floats".replace("e-07", "e-7") in read_asset("shaders/epilogue.wgsl").decode()


@pytest.mark.soak
def test_erf_over_every_float(erf_of_scaled: Any) -> None:
    """Erf is odd in the shader too: the positive floats are all."""
    worst = 0.0
    for start in range(0, 0x40C00000, 1 << 23):
        worst = max(worst, largest_error(erf_of_scaled, np.arange(start, start + (1 << 23), dtype=np.uint32)))
    assert worst <= LARGEST_ERROR


def test_activation_codes_are_those_of_the_shader() -> None:
    text = read_asset("shaders/epilogue.wgsl").decode()
    for each in Activation:
        name = "NO_ACTIVATION" if each is Activation.NONE else each.name
        assert f"const {name} = {int(each)}u;" in text
