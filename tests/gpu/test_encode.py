"""Gemm.encode on wgpu: records into the caller's encoder, checks everything first, allocates nothing on a hit."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from py_gemm.epilogue import GemmEpilogue
from py_gemm.errors import AliasError, DeviceLostError, ShapeError, UnsupportedError
from py_gemm.gpu.devices.wgpu_recorder import ARENA_SLOTS, BIND_GROUPS
from py_gemm.gpu.gemm import Gemm

from .tools import TYPES, numpy_type, small_integers

SENTINEL = np.float32(12345.0)


def run(device: Any, gemm: Gemm, *arguments: Any, **options: Any) -> None:
    encoder = device.create_encoder()
    gemm.encode(encoder, *arguments, **options)
    device.submit(encoder)


def read(device: Any, buffer: Any, count: int) -> Any:
    return np.frombuffer(device.read_buffer(buffer, 0, 4 * count), "f4")


def place(device: Any, matrices: Any, rows: int, columns: int, leading: int, stride: int, offset: int) -> Any:
    """A buffer of sentinels with the matrices laid into it, and that memory as an array."""
    batch = len(matrices)
    memory = np.full(offset + (batch - 1) * stride + rows * leading + 3, SENTINEL, matrices.dtype)
    where = offset + stride * np.arange(batch)[:, None, None] + leading * np.arange(rows)[:, None] + np.arange(columns)
    memory[where] = matrices
    return device.create_buffer(memory.view(np.uint8)), memory, where


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_leading_dimensions_offsets_and_batches(device: Any, name: str, transpose_a: bool, transpose_b: bool, beta: float) -> None:
    rng = np.random.default_rng(1)
    m, n, k, batch = 33, 17, 21, 3
    type_ = TYPES[name]
    a, b, c = (
        small_integers(rng, (batch, *shape), each) for shape, each in (((m, k), type_), ((k, n), type_), ((m, n), TYPES["float32"]))
    )
    stored_a, stored_b = (x.transpose(0, 2, 1) if swap else x for x, swap in ((a, transpose_a), (b, transpose_b)))
    rows_a, columns_a = stored_a.shape[1:]
    rows_b, columns_b = stored_b.shape[1:]
    lda, ldb, ldc = columns_a + 3, columns_b + 1, n + 5
    stride_a, stride_b, stride_c = rows_a * lda + 7, rows_b * ldb, m * ldc + 11
    buffer_a, _, _ = place(device, stored_a, rows_a, columns_a, lda, stride_a, 5)
    buffer_b, _, _ = place(device, stored_b, rows_b, columns_b, ldb, stride_b, 1)
    buffer_c, expected, where = place(device, c, m, n, ldc, stride_c, 9)
    run(
        device, Gemm(device, name), buffer_a, buffer_b, buffer_c, m, n, k, transpose_a=transpose_a, transpose_b=transpose_b,
        alpha=0.5, beta=beta, batch=batch, lda=lda, ldb=ldb, ldc=ldc, stride_a=stride_a, stride_b=stride_b, stride_c=stride_c,
        offset_a=5, offset_b=1, offset_c=9,
    )  # fmt: skip
    expected[where] = 0.5 * (a.astype("f8") @ b.astype("f8")) + beta * c
    assert np.array_equal(read(device, buffer_c, expected.size), expected)


def dense(device: Any, *counts: int) -> list[Any]:
    return [device.create_buffer(np.ones(count, "f4")) for count in counts]


def triple(device: Any) -> tuple[Any, Any, Any]:
    a, b, c = dense(device, 16, 16, 16)
    return a, b, c


def test_one_b_serves_a_batch(device: Any) -> None:
    rng = np.random.default_rng(2)
    a, b = small_integers(rng, (4, 5, 6), TYPES["float32"]), small_integers(rng, (6, 7), TYPES["float32"])
    c = device.create_buffer(4 * 140)
    run(device, Gemm(device), device.create_buffer(a), device.create_buffer(b), c, 5, 7, 6, batch=4, stride_b=0)
    assert np.array_equal(read(device, c, 140).reshape(4, 5, 7), a @ b)


def test_epilogue(device: Any) -> None:
    a, b, c, bias = dense(device, 12, 12, 9, 5)
    device.write_buffer(bias, np.array([9, 9, -5, -4, 7], "f4"))
    run(device, Gemm(device), a, b, c, 3, 3, 4, epilogue=GemmEpilogue(bias, 2, "relu"))
    assert np.array_equal(read(device, c, 9).reshape(3, 3), [[0, 0, 11]] * 3)
    run(device, Gemm(device), a, b, c, 3, 3, 4, alpha=-1.0, epilogue=GemmEpilogue(activation="relu"))
    assert not read(device, c, 9).any()


def test_nothing_is_submitted_and_order_in_one_encoder_holds(device: Any) -> None:
    a, b, c, d = dense(device, 4, 4, 4, 4)
    gemm = Gemm(device)
    encoder = device.create_encoder()
    gemm.encode(encoder, a, b, c, 2, 2, 2)
    gemm.encode(encoder, c, b, d, 2, 2, 2)
    gemm.encode(encoder, d, b, c, 2, 2, 2, beta=1.0)
    assert np.array_equal(read(device, c, 4), np.ones(4))
    device.submit(encoder)
    assert np.array_equal(read(device, c, 4), np.full(4, 10.0))


def test_parameters_survive_until_a_late_submission(device: Any) -> None:
    """More products than an arena has slots are recorded before the first encoder is submitted."""
    a, b, c = dense(device, 1, 1, 1)
    gemm = Gemm(device)
    early = device.create_encoder()
    gemm.encode(early, a, b, c, 1, 1, 1, alpha=7.5)
    late = device.create_encoder()
    for index in range(ARENA_SLOTS + 5):
        gemm.encode(late, a, b, c, 1, 1, 1, alpha=1000.0 + index)
    device.submit(early)
    assert read(device, c, 1) == 7.5
    device.submit(late)
    assert read(device, c, 1) == 1000.0 + ARENA_SLOTS + 4


def test_a_callers_own_encoder_and_buffers(device: Any) -> None:
    import wgpu

    raw = device.handle
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    a, b = (raw.create_buffer_with_data(data=np.full(4, value, "f4"), usage=usage) for value in (2, 3))
    c = raw.create_buffer(size=16, usage=usage)
    encoder = raw.create_command_encoder()
    Gemm(device).encode(encoder, a, b, c, 2, 2, 2)
    raw.queue.submit([encoder.finish()])
    assert np.array_equal(np.frombuffer(raw.queue.read_buffer(c), "f4"), np.full(4, 12.0))
    with pytest.raises(AliasError):
        Gemm(device).encode(raw.create_command_encoder(), a, b, device.adopt(a), 2, 2, 2)


def test_a_hit_allocates_nothing(device: Any) -> None:
    gemm = Gemm(device, "float16")
    triples = [triple(device) for _ in range(BIND_GROUPS)]
    for a, b, c in triples:
        run(device, gemm, a, b, c, 4, 4, 4)
    before = device.counts()
    encoder = device.create_encoder()
    for a, b, c in triples:
        gemm.encode(encoder, a, b, c, 4, 4, 4)
    assert device.counts() == before
    device.submit(encoder)
    x, y, z = triple(device)
    gemm.encode(device.create_encoder(), x, y, z, 4, 4, 4)
    a, b, c = triples[-1]
    gemm.encode(device.create_encoder(), a, b, c, 4, 4, 4)
    assert device.counts()["bind_groups"] == before["bind_groups"] + 1
    gemm.release_bindings()
    gemm.encode(device.create_encoder(), a, b, c, 4, 4, 4)
    assert device.counts()["bind_groups"] == before["bind_groups"] + 2


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"m": -1}, "encode: m is negative: -1"),
    ({"n": 2.0}, "encode: n must be an integer"),
    ({"lda": 3}, "encode: lda is 3, less than the 4 elements of a row"),
    ({"ldb": 1}, "encode: ldb is 1"),
    ({"ldc": 3}, "encode: ldc is 3"),
    ({"batch": 2, "stride_c": 15}, "encode: stride_c is 15"),
    ({"offset_a": 1}, "encode: a needs elements 1 to 16, its buffer holds 16"),
    ({"offset_b": 1}, "encode: b needs elements 1 to 16, its buffer holds 16"),
    ({"offset_c": 1}, "encode: c needs elements 1 to 16, its buffer holds 16"),
    ({"batch": 2}, "encode: a needs elements 0 to 31, its buffer holds 16"),
    ({"offset_c": -1}, "encode: offset_c is negative"),
    ({"k": 5}, "encode: a needs elements 0 to 19"),
]


@pytest.mark.parametrize(("change", "words"), WRONG, ids=str)
def test_wrong_shapes_are_named_before_anything_is_recorded(device: Any, change: dict[str, Any], words: str) -> None:
    a, b, c = dense(device, 16, 16, 16)
    encoder = device.create_encoder()
    with pytest.raises(ShapeError, match=words):
        Gemm(device).encode(encoder, a, b, c, **{"m": 4, "n": 4, "k": 4, **change})
    device.submit(encoder)
    assert np.array_equal(read(device, c, 16), np.ones(16))


def test_a_bias_out_of_range(device: Any) -> None:
    a, b, c, bias = dense(device, 16, 16, 16, 4)
    with pytest.raises(ShapeError, match="encode: bias needs elements 1 to 4, its buffer holds 4"):
        Gemm(device).encode(device.create_encoder(), a, b, c, 4, 4, 4, epilogue=GemmEpilogue(bias, 1))
    with pytest.raises(ValueError, match="unknown activation 'silu'"):
        Gemm(device).encode(device.create_encoder(), a, b, c, 4, 4, 4, epilogue=GemmEpilogue(bias, 0, "silu"))


def test_c_may_not_be_an_input(device: Any) -> None:
    a, b, c = dense(device, 32, 16, 16)
    gemm, encoder = Gemm(device), device.create_encoder()
    with pytest.raises(AliasError, match="c and a are the same device buffer"):
        gemm.encode(encoder, a, b, a, 4, 4, 4, offset_c=16)
    with pytest.raises(AliasError, match="c and b are"):
        gemm.encode(encoder, a, c, c, 4, 4, 4)
    with pytest.raises(AliasError, match="c and bias are"):
        gemm.encode(encoder, a, b, c, 4, 4, 4, epilogue=GemmEpilogue(c))
    gemm.encode(encoder, c, c, c, 4, 4, 4, alpha=0.0)
    gemm.encode(encoder, a, a, c, 4, 4, 4)


def test_a_grid_too_large_is_a_shape_error(device: Any) -> None:
    a, b, c = dense(device, 1, 1, 70_000)
    with pytest.raises(ShapeError, match="encode: batch = 70,000 needs 70,000 workgroups along its axis, the device allows 65,535"):
        Gemm(device).encode(device.create_encoder(), a, b, c, 1, 1, 1, batch=70_000, stride_a=0, stride_b=0)


def test_an_operand_too_large_for_a_binding(device: Any) -> None:
    a, b, c = dense(device, 64, 16, 16)
    before = device.capabilities
    try:
        device.capabilities = replace(before, limits=replace(before.limits, max_storage_buffer_binding_size=128))
        with pytest.raises(UnsupportedError, match="encode: operand a has 256 bytes, one binding of the device holds 128"):
            Gemm(device).encode(device.create_encoder(), a, b, c, 4, 4, 4)
    finally:
        device.capabilities = before


def test_empty_products_record_nothing(device: Any) -> None:
    a, b, c = dense(device, 16, 16, 16)
    encoder = device.create_encoder()
    Gemm(device).encode(encoder, a, b, c, 0, 4, 4)
    Gemm(device).encode(encoder, a, b, c, 4, 0, 4)
    Gemm(device).encode(encoder, a, b, c, 4, 4, 4, batch=0)
    device.submit(encoder)
    assert np.array_equal(read(device, c, 16), np.ones(16))
    run(device, Gemm(device), a, b, c, 4, 4, 0, beta=3.0)
    assert np.array_equal(read(device, c, 16), np.full(16, 3.0))


def test_beta_zero_and_alpha_zero_read_nothing(device: Any) -> None:
    a, b, c = dense(device, 16, 16, 16)
    nan = np.full(16, np.nan, "f4")
    device.write_buffer(c, nan)
    run(device, Gemm(device), a, b, c, 4, 4, 4)
    assert np.array_equal(read(device, c, 16), np.full(16, 4.0))
    device.write_buffer(a, nan)
    run(device, Gemm(device), a, b, c, 4, 4, 4, alpha=0.0, beta=0.5)
    assert np.array_equal(read(device, c, 16), np.full(16, 2.0))


def test_types_modes_and_variants(device: Any) -> None:
    for name in TYPES:
        assert Gemm(device, name, "deterministic", allow_matrix_hardware=False).variant == "tiled-64x64x16"
    with pytest.raises(UnsupportedError, match="float64 runs on the CPU only"):
        Gemm(device, "float64")
    with pytest.raises(ValueError, match="unknown dtype 'int8'"):
        Gemm(device, "int8")
    with pytest.raises(ValueError, match="unknown mode 'quick'"):
        Gemm(device, mode="quick")
    assert Gemm(device, "float16", mode="exact").variant == "exact-f16"
    with pytest.raises(UnsupportedError, match="exact-f16 needs float16 operands; tiled-64x64x16 needs mode"):
        Gemm(device, mode="exact")
    with pytest.raises(ValueError, match=r"known: exact-f16, .*tiled-64x64x16"):
        Gemm(device, variant="simdgroup")
    assert Gemm(device, variant="tiled-64x64x16").type is TYPES["float32"]


def test_a_lost_device(doomed: Any) -> None:
    a, b, c = dense(doomed, 16, 16, 16)
    gemm, encoder = Gemm(doomed), doomed.create_encoder()
    doomed.destroy()
    with pytest.raises(DeviceLostError, match="the wgpu device is lost: destroyed"):
        gemm.encode(encoder, a, b, c, 4, 4, 4)


def test_numbers_of_halves_pad_to_words(device: Any) -> None:
    """An odd count of halves: the last word is half used."""
    a = np.array([[1, 2, 3]], numpy_type(TYPES["float16"]))
    buffer_a, buffer_b = device.create_buffer(a.view(np.uint16)), device.create_buffer(a.view(np.uint16))
    assert buffer_a.nbytes == 8
    c = device.create_buffer(4)
    run(device, Gemm(device, "float16"), buffer_a, buffer_b, c, 1, 1, 3)
    assert read(device, c, 1) == 14.0
