"""Requantize: its checks, its words, and its arithmetic on every road against exact rationals.

With k = 0 a sum is the bias alone, so that any int32 can be requantized with any scale: rows carry the sums, columns the scales.
"""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import py_gemm as pg
from py_gemm.dtypes import INT8, UINT8
from py_gemm.errors import ShapeError
from py_gemm.int8_block import HEAD, make_block

RANGES = {"int8": (-128, 127), "uint8": (0, 255)}

SUMS = sorted(
    {
        sign * each + near
        for each in (0, 1, 2, 3, 5, 7, 127, 128, 255, 256, 1000, 4095, 65535, 65536, 1 << 23, 1 << 24, (1 << 30) + 1, (1 << 31) - 3)
        for sign in (-1, 1)
        for near in (-1, 0, 1)
    }
    | {-(1 << 31), (1 << 31) - 1}
)
SCALES = [
    float(np.float32(each))
    for each in (
        0.5, 0.25, 0.125, 1.0, 2.0, 1.5, 0.75, 1 / 3, 0.1, 1e-3, 2.0**-7, 3 * 2.0**-8, 5 * 2.0**-25, 2.0**-31, 2.0**-32, 2.0**-33,
        (2**24 - 1) * 2.0**-32, (2**24 - 1) * 2.0**-25, (2**23 + 1) * 2.0**-24, 2.0**-55, 2.0**-57, 2.0**-100, 2.0**-126, 2.0**-149,
        2.0**22, 2.0**23, 2.0**24, 2.0**127, float(np.finfo(np.float32).max), float(np.float32(1e-40)),
        float(np.nextafter(np.float32(0.5), np.float32(1))), float(np.nextafter(np.float32(0.5), np.float32(0))),
    )
]  # fmt: skip


def exactly(value: int, scale: float, zero_point: int, to: str, before: bool) -> int:
    """The definition in rationals; Python's round of a Fraction goes to the nearest, ties to even."""
    product = Fraction(scale) * value
    rounded = round(product + zero_point) if before else round(product) + zero_point
    lowest, highest = RANGES[to]
    return max(lowest, min(highest, rounded))


@pytest.fixture(params=["cpu", "wgpu"])
def device(request: pytest.FixtureRequest) -> Any:
    return pg.request_device(request.param)


def of_sums(device: Any, sums: list[int], rules: Any) -> Any:
    return pg.int8_gemm(
        np.empty((len(sums), 0), "i1"), np.empty((0, len(rules.scale.values)), "i1"), requantize=rules, device=device
    )


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize(
    ("to", "zero_point"), [("int8", 0), ("int8", -3), ("int8", 127), ("uint8", 0), ("uint8", 128), ("uint8", 255)]
)
def test_arithmetic_is_exact(device: Any, to: str, zero_point: int, before: bool) -> None:
    rules = pg.Requantize(SCALES, zero_point, [[each] for each in SUMS], to, before)
    expected = [[exactly(value, scale, zero_point, to, before) for scale in SCALES] for value in SUMS]
    assert np.array_equal(of_sums(device, SUMS, rules), expected)


@pytest.mark.parametrize("zero_point", [0, 1, -1])
def test_ties_and_where_the_zero_point_comes_in(device: Any, zero_point: int) -> None:
    """Halves go to the even quotient; with the zero point first, to the even sum. An odd zero point tells them apart."""
    sums = list(range(-9, 10))
    after = of_sums(device, sums, pg.Requantize([0.5], zero_point, [[each] for each in sums]))
    before = of_sums(device, sums, pg.Requantize([0.5], zero_point, [[each] for each in sums], zero_point_before_rounding=True))
    assert after.ravel().tolist() == [round(each / 2) + zero_point for each in sums]
    assert before.ravel().tolist() == [round(each / 2 + zero_point) for each in sums]
    assert np.array_equal(after, before) == (zero_point % 2 == 0)


def test_sum_and_bias_wrap(device: Any) -> None:
    a, b = np.full((1, 4), 127, "i1"), np.full((4, 1), 127, "i1")
    rules = pg.Requantize(2.0**-24, 0, (1 << 31) - 1)
    expected = exactly(4 * 127 * 127 + (1 << 31) - 1 - (1 << 32), 2.0**-24, 0, "int8", False)
    assert pg.int8_gemm(a, b, requantize=rules, device=device).item() == expected < 0


@given(
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=9),
    st.lists(st.integers(1, 0x7F7F_FFFF), min_size=1, max_size=9),
    st.integers(-128, 127),
    st.booleans(),
)
def test_any_sum_with_any_scale(sums: list[int], bits: list[int], zero_point: int, before: bool) -> None:
    scales = [struct.unpack("<f", struct.pack("<I", each))[0] for each in bits]
    rules = pg.Requantize(scales, zero_point, [[each] for each in sums], "int8", before)
    expected = [[exactly(value, scale, zero_point, "int8", before) for scale in scales] for value in sums]
    for kind in ("cpu", "wgpu"):
        assert np.array_equal(of_sums(kind, sums, rules), expected), kind


@given(st.integers(-250, 250), st.integers(0, 40), st.integers(0, (1 << 24) - 1), st.integers(-128, 127), st.booleans())
def test_near_ties(quotient: int, shift: int, low: int, zero_point: int, before: bool) -> None:
    """Products within one unit of a tie: (2 quotient + 1) 2^(shift - 1), scale 2^-shift and its neighbours."""
    value = max(-(1 << 31), min((1 << 31) - 1, ((2 * quotient + 1) << shift >> 1) + low % 3 - 1))
    scale = np.float32(2.0**-shift)
    scales = [float(each) for each in (np.nextafter(scale, np.float32(0)), scale, np.nextafter(scale, np.float32(2)))]
    rules = pg.Requantize(scales, zero_point, value, "int8", before)
    expected = [[exactly(value, each, zero_point, "int8", before) for each in scales]]
    for kind in ("cpu", "wgpu"):
        assert np.array_equal(of_sums(kind, [value], rules), expected), kind


# -- what is taken and what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf"), float("nan"), 1e39, 1e-46, 10**400, [0.5, 0.0], -0.0])
def test_a_scale_must_be_finite_and_positive_as_float32(wrong: Any) -> None:
    with pytest.raises(ValueError, match="scale must be finite and positive as float32"):
        pg.Requantize(wrong)


@pytest.mark.parametrize(("to", "wrong"), [("int8", 128), ("int8", -129), ("uint8", -1), ("uint8", 256)])
def test_a_zero_point_lies_in_the_range_of_the_result(to: str, wrong: int) -> None:
    lowest, highest = RANGES[to]
    with pytest.raises(ValueError, match=f"zero_point is {wrong}, out of the range of {to}: {lowest} to {highest}"):
        pg.Requantize(1.0, wrong, dtype=to)


def test_a_bias_is_int32() -> None:
    with pytest.raises(ValueError, match=r"bias is 2147483648, out of the range of int32"):
        pg.Requantize(1.0, bias=1 << 31)
    with pytest.raises(TypeError, match=r"bias must be an integer, not 0\.5"):
        pg.Requantize(1.0, bias=[1, 0.5])


@pytest.mark.parametrize("wrong", ["0.5", 1j, True, None])
def test_a_scale_is_a_real_number(wrong: Any) -> None:
    with pytest.raises(TypeError, match="scale must be a real number"):
        pg.Requantize(wrong)


@pytest.mark.parametrize("wrong", [True, 0.0, "1", None, 1.5])
def test_a_zero_point_is_an_integer(wrong: Any) -> None:
    with pytest.raises(TypeError, match="zero_point must be an integer"):
        pg.Requantize(1.0, wrong)


@pytest.mark.parametrize("wrong", [np.ones((2, 2)), np.ones((1, 2, 1)), [[1.0, 2.0], [1.0]], [[1.0], 2.0], [1.0, [2.0]]])
def test_other_shapes_are_refused(wrong: Any) -> None:
    with pytest.raises(ShapeError, match="scale"):
        pg.Requantize(wrong)


def test_an_unknown_dtype_lists_the_known() -> None:
    for wrong in ("int16", np.float32, 8):
        with pytest.raises(ValueError, match="known: int8, uint8"):
            pg.Requantize(1.0, dtype=wrong)
    assert pg.Requantize(1.0, dtype=np.uint8).dtype == pg.Requantize(1.0, dtype=np.dtype("uint8")).dtype == "uint8"


@pytest.mark.parametrize(
    "scale",
    [
        0.5,
        [0.5],
        [[0.5]],
        np.float32(0.5),
        np.array(0.5),
        np.array([[0.5]], ml_dtypes.bfloat16),
        Fraction(1, 2),
        memoryview(b"\x01").cast("b"),
    ],
)
def test_one_number_in_any_dress(scale: Any) -> None:
    rules = pg.Requantize(scale)
    assert rules.scale.along is None
    assert len(rules.scale.values) == 1


def test_it_does_not_change_and_says_what_it_is() -> None:
    rules = pg.Requantize(np.ones(3), 4, [[1], [2]], "uint8", zero_point_before_rounding=True)
    with pytest.raises(AttributeError, match="does not change"):
        rules.zero_point = 5
    assert repr(rules) == "Requantize(scale per column, bias per row, zero_point=4, dtype=uint8, zero point before rounding)"


# -- the block ---------------------------------------------------------------------------------------------------------------


def test_the_words_of_the_block() -> None:
    rules = pg.Requantize([0.5, 3.0], -1, [[7], [-8], [9]], "int8", zero_point_before_rounding=True)
    block = make_block("test", INT8, UINT8, 3, 2, [[-1], [2], [3]], 200, rules)
    words = np.frombuffer(block.data, "<i4").tolist()
    assert words[:HEAD] == [14, 1, 17, 0, 3, -1, -128, 127, 18, 1, 0, 21, 0, 1]
    assert words[HEAD:] == [-1, 2, 3, 200, 7, -8, 9, 0x800000 | 24 << 24, 0xC00000 | 22 << 24]
    assert block.by_row
    assert block.result is INT8
    plain = make_block("test", INT8, UINT8, 3, 2)
    assert np.frombuffer(plain.data, "<i4").tolist() == [14, 0, 15, 0, *[0] * 10, 0, 0]
    assert not plain.by_row


@pytest.mark.parametrize(
    ("zeros_a", "zeros_b", "words"),
    [
        ([1, 2, 3], 0, r"zero_point_a must be one number or \(m, 1\) numbers, not one a column"),
        (0, [[1], [2]], r"zero_point_b must be one number, \(n,\) or \(1, n\) numbers, not one a row"),
        ([[1], [2]], 0, r"zero_point_a has 2 elements, one a row; dimension m is 3"),
        (0, [1, 2, 3], r"zero_point_b has 3 elements, one a column; dimension n is 2"),
    ],
)
def test_zero_points_of_a_wrong_shape(zeros_a: Any, zeros_b: Any, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        make_block("test", INT8, UINT8, 3, 2, zeros_a, zeros_b)


def test_vectors_of_a_wrong_length() -> None:
    with pytest.raises(ShapeError, match="the scale of requantize has 3 elements, one a column; dimension n is 2"):
        make_block("test", INT8, INT8, 3, 2, requantize=pg.Requantize([1.0, 2.0, 3.0]))
    with pytest.raises(ShapeError, match="the bias of requantize has 2 elements, one a row; dimension m is 3"):
        make_block("test", INT8, INT8, 3, 2, requantize=pg.Requantize(1.0, bias=[[1], [2]]))
    with pytest.raises(TypeError, match="takes a Requantize or None"):
        make_block("test", INT8, INT8, 3, 2, requantize=0.5)  # type: ignore[arg-type]
