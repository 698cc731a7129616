"""The assembled WGSL: what is in it, what must not be, and that every text compiles on wgpu."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from py_gemm.assets import read_asset
from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from py_gemm.gpu.shaders import KERNELS, READABLE, ShaderKey, assemble
from py_gemm.gpu.variants import REGISTER_ROWS, VARIANTS

KEYS = [
    *(ShaderKey("gemm_tiled", pair) for pair in product(READABLE, READABLE)),
    *(ShaderKey(row.kernel, pair) for row in VARIANTS if row.shape_conditions for pair in product(READABLE, READABLE)),
    *(ShaderKey(row.kernel, (FLOAT32, FLOAT32)) for row in REGISTER_ROWS if row.splits),
    *(ShaderKey(row.kernel, pair) for row in REGISTER_ROWS if not row.splits for pair in product(READABLE, READABLE)),
    ShaderKey("gemm_splitk_sum", ()),
    ShaderKey("gemm_exact_end", ()),
    ShaderKey("elementwise", ()),
    *(ShaderKey("convert", (each,)) for each in READABLE),
    *(ShaderKey("narrow", (each,)) for each in (FLOAT16, BFLOAT16)),
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.label)
def test_the_text_needs_nothing_that_webgpu_does_not_guarantee(key: ShaderKey) -> None:
    text = assemble(key)
    code = re.sub(r"//.*", "", text)
    for absent in ("enable", "requires", "override", "unpack2x16float", "f16", "atomic", "subgroup"):
        assert not re.search(rf"\b{absent}\b", code), absent
    assert code.count("@compute") == 1
    bindings = re.findall(r"@group\(0\) @binding\((\d)\)", code)
    assert [int(each) for each in bindings] == list(range(len(key.bindings)))
    floats = sum(
        int(count) * (4 if vector else 1) for vector, count in re.findall(r"var<workgroup> \w+: array<(vec4<)?f32>?, (\d+)>", code)
    )
    assert floats * 4 <= 16_384


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.label)
def test_the_text_compiles(key: ShaderKey, device: Any) -> None:
    device.prepare([key]).wait()
    assert not device.missing([key])


def test_halves_are_read_in_pairs() -> None:
    text = assemble(ShaderKey("gemm_tiled", (FLOAT16, FLOAT32)))
    assert "fn load_a(index: u32) -> f32 { return decode_float16(a[index >> 1u], index); }" in text
    assert "fn load_b(index: u32) -> f32 { return decode_float32(b[index], index); }" in text


def test_what_cannot_be_made_is_refused() -> None:
    for key in (
        ShaderKey("gemm_tiled", (FLOAT64, FLOAT32)),
        ShaderKey("gemm_tiled", (FLOAT32,)),
        ShaderKey("narrow", (FLOAT32,)),
        ShaderKey("convert", ()),
    ):
        with pytest.raises(ValueError, match=r"not \("):
            assemble(key)


def test_every_shader_opens_by_saying_what_it_is_for() -> None:
    for name in {part for kernel in KERNELS.values() for part in kernel.parts}:
        assert read_asset(f"shaders/{name}.wgsl").startswith(b"// ")
