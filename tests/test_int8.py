"""int8_gemm on the CPU and on wgpu: shapes, out, device arrays, errors in words."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import py_gemm as pg
from py_gemm.errors import AliasError, ShapeError, UnsupportedError

SKINNY = "int8-skinny-4x32-16slices"


@pytest.fixture(params=["cpu", "wgpu"])
def device(request: pytest.FixtureRequest) -> Any:
    return pg.request_device(request.param)


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [
        ((7,), (7,)), ((3, 7), (7,)), ((7,), (7, 5)), ((2, 3, 7), (7, 5)), ((3, 7), (2, 7, 5)), ((2, 1, 3, 7), (1, 4, 7, 5)),
        ((4, 7), (3, 2, 7, 5)), ((0, 7), (7, 5)), ((3, 0), (0, 5)), ((3, 7), (7, 0)), ((0, 3, 7), (7, 5)), ((2, 7), (2, 7, 1)),
    ],
)  # fmt: skip
def test_shapes_are_those_of_numpy(device: Any, shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, shape_a).astype("i1"), rng.integers(0, 256, shape_b).astype("u1")
    result = pg.int8_gemm(a, b, device=device)
    expected = np.matmul(a.astype("i8"), b.astype("i8"))
    assert result.dtype == np.int32
    assert result.shape == expected.shape
    assert np.array_equal(result, expected)
    assert isinstance(result, np.ndarray if expected.ndim else np.int32)


def test_vectors_in_a_batch_count_within_each_product(device: Any) -> None:
    """Rows keep their numbers where products of a batch share B and lie one under the other."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(-128, 128, (3, 4, 6)).astype("i1"), rng.integers(-128, 128, (6, 5)).astype("i1")
    zeros = np.array([[1], [-2], [3], [-4]])
    expected = (a.astype("i8") - zeros) @ b.astype("i8")
    assert np.array_equal(pg.int8_gemm(a, b, zero_point_a=zeros, device=device), expected)
    rules = pg.Requantize(2.0 ** -np.arange(3.0, 7.0)[:, None], 0, zeros)
    expected = np.clip(np.rint((expected + zeros) * 2.0 ** -np.arange(3.0, 7.0)[:, None]), -128, 127)
    assert np.array_equal(pg.int8_gemm(a, b, zero_point_a=zeros, requantize=rules, device=device), expected)
    one_row = rng.integers(-128, 128, (3, 1, 6)).astype("i1")
    assert np.array_equal(pg.int8_gemm(one_row, b, zero_point_a=[[9]], device=device), (one_row.astype("i8") - 9) @ b)


def test_the_decision_does_not_keep_numbers(device: Any) -> None:
    """The same shapes with other zero points, scales and biases, one call after the other."""
    rng = np.random.default_rng(3)
    a, b = rng.integers(-128, 128, (3, 6)).astype("i1"), rng.integers(-128, 128, (6, 3)).astype("i1")
    for zero, scale, bias in ((0, 0.01, 5), (7, 0.02, -9), (-128, 0.5, 0)):
        sums = (a.astype("i8") - zero) @ b.astype("i8")
        assert np.array_equal(pg.int8_gemm(a, b, zero_point_a=zero, device=device), sums)
        expected = np.clip(np.rint((sums + bias) * np.float64(np.float32(scale))), -128, 127)
        rules = pg.Requantize(scale, 0, bias)
        assert np.array_equal(pg.int8_gemm(a, b, zero_point_a=zero, requantize=rules, device=device), expected)
    by_row = pg.int8_gemm(a, b, requantize=pg.Requantize([[1.0], [0.5], [0.25]]), device=device)
    by_column = pg.int8_gemm(a, b, requantize=pg.Requantize([1.0, 0.5, 0.25]), device=device)
    sums = a.astype("i8") @ b.astype("i8")
    scales = np.array([1.0, 0.5, 0.25])
    assert np.array_equal(by_row, np.clip(np.rint(sums * scales[:, None]), -128, 127))
    assert np.array_equal(by_column, np.clip(np.rint(sums * scales), -128, 127))


def test_device_arrays_chain_and_stay(device: Any) -> None:
    rng = np.random.default_rng(4)
    a, b, c = (rng.integers(-128, 128, shape).astype("i1") for shape in ((5, 7), (7, 9), (9, 3)))
    on_device = pg.asarray(a, device=device)
    assert on_device.dtype == np.int8
    assert np.array_equal(on_device.numpy(), a)
    middle = pg.int8_gemm(on_device, b, requantize=pg.Requantize(0.01, 3, dtype="uint8"))
    assert isinstance(middle, pg.DeviceArray)
    assert middle.dtype == np.uint8
    result = pg.int8_gemm(middle, pg.asarray(c, device=device), zero_point_a=3)
    assert isinstance(result, pg.DeviceArray)
    between = np.clip(np.rint((a.astype("i8") @ b) * np.float64(np.float32(0.01))) + 3, 0, 255)
    assert np.array_equal(middle.numpy(), between)
    assert np.array_equal(result.numpy(), (between - 3) @ c)
    assert pg.int8_gemm(b.T.copy(), pg.asarray(a.T, device=device)).shape == (9, 5)
    with pytest.raises(TypeError, match="matmul: a is int8: products of integers are the work of int8_gemm"):
        pg.matmul(on_device, np.ones((7, 2), "f4"))
    with pytest.raises(TypeError, match="int8_gemm: a is int32; taken are int8 and uint8"):
        pg.int8_gemm(result, b)


def test_out_is_written_in_place_and_nothing_else(device: Any) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-128, 128, (5, 7)).astype("i1"), rng.integers(-128, 128, (7, 6)).astype("i1")
    expected = a.astype("i8") @ b
    for dtype, rules in (("i4", None), ("i1", pg.Requantize(2.0**-10))):
        wanted = expected if rules is None else np.rint(expected * 2.0**-10)
        room = np.full((13, 22), 55, dtype)
        for view in (room[1:11:2, 1:19:3], room[11:1:-2, 18:0:-3], room[:6, :5].T):
            room[...] = 55
            assert pg.int8_gemm(a, b, requantize=rules, out=view, device=device) is view
            assert np.array_equal(view, wanted)
            view[...] = 55
            assert np.all(room == 55)


def test_out_as_a_device_array(device: Any) -> None:
    out = pg.int8_gemm(pg.asarray(np.zeros((2, 3), "i1"), device=device), np.zeros((3, 2), "i1"))
    assert pg.int8_gemm(np.ones((2, 3), "i1"), np.ones((3, 2), "i1"), out=out) is out
    assert np.array_equal(out.numpy(), np.full((2, 2), 3))


def test_aliases_are_refused(device: Any) -> None:
    memory = np.zeros(64, "i1")
    a, b = memory[:16].reshape(4, 4), memory[16:32].reshape(4, 4)
    rules = pg.Requantize(1.0)
    with pytest.raises(AliasError, match="out shares memory with a"):
        pg.int8_gemm(a, b, requantize=rules, out=a, device=device)
    with pytest.raises(AliasError, match="out shares memory with b"):
        pg.int8_gemm(a, b, requantize=rules, out=memory[28:44].reshape(4, 4), device=device)
    with pytest.raises(AliasError, match="elements of out share memory"):
        pg.int8_gemm(a, b, requantize=rules, out=as_strided(memory[32:], (4, 4), (0, 1)), device=device)
    pg.int8_gemm(a, b, requantize=rules, out=memory[32:48].reshape(4, 4), device=device)
    frozen = np.zeros((4, 4), "i4")
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        pg.int8_gemm(a, b, out=frozen, device=device)


def test_operands_may_be_read_only_one_array_and_its_own_transpose(device: Any) -> None:
    a = np.random.default_rng(6).integers(-128, 128, (9, 5)).astype("i1")
    a.flags.writeable = False
    assert np.array_equal(pg.int8_gemm(a, a.T, device=device), a.astype("i8") @ a.astype("i8").T)


@pytest.mark.parametrize(
    ("a", "words"),
    [
        (np.ones((2, 3), "f4"), "a is float32; taken are int8 and uint8; products of floats are the work of matmul and gemm"),
        (np.ones((2, 3), bool), "a is bool; taken are int8 and uint8"),
        (np.ones((2, 3), "i2"), "a is int16; taken are int8 and uint8"),
        ([[1, 2, 3]], "a is int64; taken are int8 and uint8"),
    ],
)
def test_other_types_are_refused(a: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"int8_gemm: {words}"):
        pg.int8_gemm(a, np.ones((3, 2), "i1"))


def test_other_mistakes_are_named() -> None:
    a, b = np.ones((2, 3), "i1"), np.ones((3, 4), "u1")
    with pytest.raises(ShapeError, match="int8_gemm: dimension k differs: a has 3 columns, b has 2 rows"):
        pg.int8_gemm(a, b[:2])
    with pytest.raises(ShapeError, match="int8_gemm: a has no dimension"):
        pg.int8_gemm(np.int8(1), b)
    with pytest.raises(ShapeError, match="batch dimension -1 does not broadcast: 2 and 3"):
        pg.int8_gemm(np.ones((2, 2, 3), "i1"), np.ones((3, 3, 4), "i1"))
    with pytest.raises(ValueError, match="zero_point_a is 128, out of the range of int8: -128 to 127"):
        pg.int8_gemm(a, b, zero_point_a=128)
    with pytest.raises(ValueError, match="zero_point_b is -1, out of the range of uint8: 0 to 255"):
        pg.int8_gemm(a, b, zero_point_b=[0, 0, 0, -1])
    with pytest.raises(TypeError, match=r"zero_point_a must be an integer, not 1\.0"):
        pg.int8_gemm(a, b, zero_point_a=1.0)
    with pytest.raises(ShapeError, match="zero_point_a has 3 elements, one a row; dimension m is 2"):
        pg.int8_gemm(a, b, zero_point_a=np.zeros((3, 1), int))
    with pytest.raises(TypeError, match=r"requantize takes a Requantize or None, not \[0\.5\]"):
        pg.int8_gemm(a, b, requantize=[0.5])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"out is int64, the result int32"):
        pg.int8_gemm(a, b, out=np.zeros((2, 4), int))
    with pytest.raises(TypeError, match=r"out is int32, the result uint8"):
        pg.int8_gemm(a, b, out=np.zeros((2, 4), "i4"), requantize=pg.Requantize(1.0, dtype="uint8"))
    with pytest.raises(ShapeError, match=r"out has shape \(4, 2\), the result \(2, 4\)"):
        pg.int8_gemm(a, b, out=np.zeros((4, 2), "i4"))
    with pytest.raises(ValueError, match="unknown device kind 'gpu'"):
        pg.int8_gemm(a, b, device="gpu")
    with pytest.raises(TypeError, match="matmul: a is int8: products of integers are the work of int8_gemm"):
        pg.matmul(a, b)


@pytest.mark.parametrize(
    ("row", "a", "b", "words"),
    [
        (SKINNY, np.ones((17, 3), "i1"), np.ones((3, 4), "u1"), f"{SKINNY} needs at most 16 rows of A"),
        (SKINNY, np.ones((2, 3), "i1"), np.ones((4, 3), "u1").T, f"{SKINNY} needs B stored K x N"),
    ],
)
def test_a_forced_row_runs_or_is_refused(row: str, a: Any, b: Any, words: str) -> None:
    pg.configure(variant=row)
    try:
        with pytest.raises(UnsupportedError, match=words):
            pg.int8_gemm(a, b, device="wgpu")
    finally:
        pg.configure(variant=None)


def test_the_knob_names_a_row_of_one_table_and_leaves_the_other_alone() -> None:
    a, b = np.ones((3, 4), "i1"), np.ones((4, 5), "i1")
    for row, integer in (("tiled-64x64x16", False), ("int8-tiled-64x64x64", True)):
        pg.configure(variant=row)
        try:
            pg.int8_gemm(a, b, device="wgpu")
            runs = [pg.last_run()]
            pg.matmul(a.astype("f4"), b.astype("f4"), device="wgpu")
            runs.append(pg.last_run())
        finally:
            pg.configure(variant=None)
        assert [run is not None and run.variant == row for run in runs] == [integer, not integer]


def test_a_forced_token_without_an_integer_kernel_is_an_error() -> None:
    pg.configure(token="relaxed")
    try:
        with pytest.raises(UnsupportedError, match=r"token 'relaxed' is forced, but .* cannot be used: the product sums in int32"):
            pg.int8_gemm(np.ones((2, 3), "i1"), np.ones((3, 2), "i1"), device="cpu")
    finally:
        pg.configure(token=None)


def test_device_none_and_the_awaitable_twin() -> None:
    a, b = np.ones((2, 3), "i1"), np.full((3, 4), 255, "u1")
    assert np.array_equal(pg.int8_gemm(a, b), np.full((2, 4), 765))

    async def both() -> None:
        for device in (None, "cpu", "wgpu"):
            result = await pg.int8_gemm_async(a, b, zero_point_b=250, requantize=pg.Requantize(1.0), device=device)
            assert np.array_equal(result, np.full((2, 4), 15))
            assert result.dtype == np.int8

    asyncio.run(both())
