"""The choice of a variant: pure, over made-up capabilities."""

from __future__ import annotations

from dataclasses import replace

import pytest

from py_gemm.configuration import configure
from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, ElementType
from py_gemm.errors import UnsupportedError
from py_gemm.gpu.capabilities import Capabilities, Limits, looks_like_software
from py_gemm.gpu.variants import TILED, VARIANTS, Condition, Request, SummationOrder, Variant, check_mode, choose_variant

GUARANTEED = Capabilities("vulkan", "a made-up adapter")


def request(**limits: int) -> Request:
    return Request(replace(GUARANTEED, limits=replace(Limits(), **limits)), FLOAT32, FLOAT32)


@pytest.mark.parametrize("mode", ["fast", "deterministic"])
@pytest.mark.parametrize("types", [(FLOAT32, FLOAT32), (FLOAT16, FLOAT16), (BFLOAT16, FLOAT32)])
def test_the_portable_row_needs_only_what_webgpu_guarantees(mode: str, types: tuple[ElementType, ElementType]) -> None:
    assert choose_variant(Request(GUARANTEED, *types, mode)) is TILED


def test_the_row_states_its_tile_and_its_order() -> None:
    assert TILED.name == "tiled-64x64x16"
    assert TILED.tile == (64, 64, 16)
    assert TILED.order == SummationOrder(chain=16, block=2, group=4)


@pytest.mark.parametrize(
    ("limit", "enough", "words"),
    [
        ("max_compute_invocations_per_workgroup", 256, "256 invocations"),
        ("max_compute_workgroup_size_x", 256, "256 invocations"),
        ("max_compute_workgroup_storage_size", 8320, "8,320 bytes of workgroup memory"),
        ("max_storage_buffers_per_shader_stage", 4, "4 storage buffers"),
    ],
)
def test_a_limit_one_short_is_refused_in_words(limit: str, enough: int, words: str) -> None:
    assert choose_variant(request(**{limit: enough})) is TILED
    with pytest.raises(UnsupportedError, match=words):
        choose_variant(request(**{limit: enough - 1}))


def test_float64_has_no_variant() -> None:
    with pytest.raises(UnsupportedError, match="needs float32, float16 or bfloat16 operands"):
        choose_variant(Request(GUARANTEED, FLOAT64, FLOAT64))


def test_a_forced_name_is_taken_or_refused_never_replaced() -> None:
    assert choose_variant(request(), "tiled-64x64x16") is TILED
    with pytest.raises(ValueError, match=r"unknown variant 'tiled-8x8'; known: exact-f16, .*tiled-64x64x16"):
        choose_variant(request(), "tiled-8x8")
    special = Variant("special", "special", (16, 16, 16), TILED.order, (Condition("a unicorn", lambda _: False),))
    table = (special, *VARIANTS)
    assert choose_variant(request(), table=table) is TILED
    with pytest.raises(UnsupportedError, match="special needs a unicorn"):
        choose_variant(request(), "special", table)


def test_the_first_row_that_fits_is_taken() -> None:
    fast_only = Variant("fast-only", "x", (8, 8, 8), TILED.order, (Condition("mode fast", lambda each: each.mode == "fast"),))
    table = (fast_only, *VARIANTS)
    assert choose_variant(Request(GUARANTEED, FLOAT32, FLOAT32, "fast"), table=table) is fast_only
    assert choose_variant(Request(GUARANTEED, FLOAT32, FLOAT32, "deterministic"), table=table) is TILED


def test_the_knob_forces_too_and_an_argument_wins() -> None:
    try:
        configure(variant="no-such-row")
        with pytest.raises(ValueError, match="unknown variant 'no-such-row'"):
            choose_variant(request())
        assert choose_variant(request(), "tiled-64x64x16") is TILED
    finally:
        configure(variant=None)


def test_modes() -> None:
    assert check_mode("fast") == "fast"
    assert check_mode("exact") == "exact"
    for wrong in ("quick", None, 3):
        with pytest.raises(ValueError, match="known: fast, deterministic, exact"):
            check_mode(wrong)


def test_limits_are_read_in_both_spellings() -> None:
    expected = replace(Limits(), max_buffer_size=7, max_storage_buffer_binding_size=9)
    assert Limits.of({"maxBufferSize": 7, "maxStorageBufferBindingSize": 9, "maxTextureDimension1D": 1}) == expected
    assert Limits.of({"max-buffer-size": 7, "max-storage-buffer-binding-size": 9}) == expected


def test_software_is_known_by_its_name() -> None:
    assert looks_like_software(["google", "swiftshader"])
    assert looks_like_software(["llvmpipe (LLVM 15.0.6, 256 bits)"])
    assert not looks_like_software(["nvidia", "ada"])
