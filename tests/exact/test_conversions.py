"""Bits to values and back for every pattern of every format of at most 16 bits, against ml_dtypes; rounding in all modes, against
gfloat and by definition."""

from __future__ import annotations

import copy
import pickle
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import py_gemm.exact as er
from py_gemm.exact.formats import FLOATS, FORMATS, Format, promote
from py_gemm.exact.rounding import round_floats, round_fraction

from .numbers import SIXTEEN_BITS_AND_LESS, nearest_even

NARROW = pytest.mark.parametrize("form", SIXTEEN_BITS_AND_LESS, ids=str)


def library_dtype(form: Format) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, form.name, form.name))


def all_patterns(form: Format) -> np.ndarray[Any, Any]:
    return np.arange(1 << 8 * form.size, dtype=f"u{form.size}")


@NARROW
def test_every_pattern_has_the_value_that_ml_dtypes_gives_it(form: Format) -> None:
    bits = all_patterns(form)
    with np.errstate(invalid="ignore"):
        wanted = bits.view(library_dtype(form)).astype(np.float64)
    found = er.Array.from_bits(bits, form).values
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(wanted[~np.isnan(wanted)]))


@NARROW
def test_every_value_goes_back_to_its_pattern(form: Format) -> None:
    array = er.Array.from_bits(all_patterns(form), form)
    again = er.asarray(array.values, form)
    regular = ~np.isnan(array.values)
    np.testing.assert_array_equal(again.stored.view(f"u{form.size}")[regular], all_patterns(form)[regular])
    assert np.isnan(again.values[~regular]).all()


@NARROW
def test_numpy_gets_ml_dtypes_own_types(form: Format) -> None:
    array = er.Array.from_bits(all_patterns(form), form)
    exported = array.numpy()
    assert exported.dtype == library_dtype(form)
    assert er.asarray(exported).form is form
    assert er.asarray(exported).tobytes() == array.tobytes()


@NARROW
def test_every_float16_and_bfloat16_pattern_is_rounded_as_ml_dtypes_does(form: Format) -> None:
    """From every 16-bit pattern and from float32 values around every midpoint of the format."""
    if form.size == 2:
        values = np.sort(np.unique(er.Array.from_bits(all_patterns(form), form).values))
        values = values[np.isfinite(values)]
        midpoints = (values[1:] + values[:-1]) / 2
        trial = np.concatenate([midpoints, np.nextafter(midpoints, np.inf), np.nextafter(midpoints, -np.inf)])
        trial = np.concatenate([trial, [np.inf, -np.inf, np.nan, 1e300, -0.0]])
        wanted = np.array([nearest_even(Fraction(x), form) if np.isfinite(x) else x for x in trial[: 3 * len(midpoints) : 97]])
        np.testing.assert_array_equal(round_floats(trial[: 3 * len(midpoints) : 97], form), wanted)
        if form.name == "float16":
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(round_floats(trial, form), trial.astype(np.float16).astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        patterns = [all_patterns(FORMATS[name]).view(library_dtype(FORMATS[name])) for name in ("float16", "bfloat16")]
        source = np.concatenate([each.astype(np.float32) for each in patterns])
        wanted32 = source.astype(library_dtype(form)).astype(np.float64)
        found = round_floats(source.astype(np.float64), form, overflow=form.default_overflow)
    np.testing.assert_array_equal(found, wanted32)


def finite_only(name: str, precision: int, bias: int) -> gfloat.FormatInfo:
    """The fnuz forms in gfloat's words, which has no names for them: no infinities, one NaN in the place of the negative zero."""
    return gfloat.FormatInfo(
        name, 8, precision, bias=bias, is_signed=True, domain=gfloat.Domain.Finite, has_nz=False, num_high_nans=0,
        has_subnormals=True, is_twos_complement=False,
    )  # fmt: skip


GFLOAT_FORMATS = {
    "float64": gfloat.formats.format_info_binary64,
    "float32": gfloat.formats.format_info_binary32,
    "float16": gfloat.formats.format_info_binary16,
    "bfloat16": gfloat.formats.format_info_bfloat16,
    "float8_e5m2": gfloat.formats.format_info_ocp_e5m2,
    "float8_e4m3fn": gfloat.formats.format_info_ocp_e4m3,
    "float8_e5m2fnuz": finite_only("float8_e5m2fnuz", 3, 16),
    "float8_e4m3fnuz": finite_only("float8_e4m3fnuz", 4, 8),
}
GFLOAT_MODES = {
    er.Rounding.NEAREST_EVEN: gfloat.RoundMode.TiesToEven,
    er.Rounding.NEAREST_AWAY: gfloat.RoundMode.TiesToAway,
    er.Rounding.TOWARD_ZERO: gfloat.RoundMode.TowardZero,
    er.Rounding.UP: gfloat.RoundMode.TowardPositive,
    er.Rounding.DOWN: gfloat.RoundMode.TowardNegative,
}


def hard_floats(rng: random.Random, form: Format, count: int) -> list[float]:
    """Values, midpoints and their neighbours, over the whole range and a little past it."""
    found = []
    for _ in range(count):
        exponent = rng.randrange(form.lowest_bit - 2, form.emax + 2) - form.significand_bits
        number = rng.getrandbits(form.significand_bits + 1) << 8
        number += rng.choice((0, 0, 1, -1, rng.getrandbits(8)))
        value = Fraction(number) * Fraction(2) ** (exponent - 8)
        found.append(float(value if abs(value) < FLOATS[0].highest else FLOATS[0].highest) * rng.choice((-1, 1)))
    return [*found, float(form.highest), -float(form.highest)]


@pytest.mark.parametrize("name", GFLOAT_FORMATS)
@pytest.mark.parametrize("mode", GFLOAT_MODES, ids=lambda mode: mode.value)
def test_rounding_modes_against_gfloat(name: str, mode: er.Rounding, soak: bool) -> None:
    form, info = FORMATS[name], GFLOAT_FORMATS[name]
    values = hard_floats(random.Random(name + mode.value), form, 20_000 if soak else 1_500)
    for saturate in (False, True):
        overflow = "saturate" if saturate else "ieee"
        found = round_floats(np.array(values), form, mode, overflow).tolist()
        for value, mine in zip(values, found, strict=True):
            theirs = gfloat.round_float(info, value, GFLOAT_MODES[mode], saturate)
            assert mine == theirs or (mine != mine and theirs != theirs), (name, mode, saturate, value, mine, theirs)


@pytest.mark.parametrize("form", FLOATS, ids=str)
@pytest.mark.parametrize("mode", er.Rounding, ids=lambda mode: mode.value)
@pytest.mark.parametrize("overflow", ["ieee", "saturate", "nan"])
def test_whole_arrays_round_as_single_fractions_do(form: Format, mode: er.Rounding, overflow: str) -> None:
    values = hard_floats(random.Random(form.name + mode.value + overflow), form, 300)
    found = round_floats(np.array(values), form, mode, overflow)
    wanted = [round_fraction(Fraction(value), form, mode, overflow) for value in values]
    np.testing.assert_array_equal(found, wanted)


@given(st.fractions(), st.sampled_from(FLOATS))
def test_rounding_brackets_and_keeps_values(x: Fraction, form: Format) -> None:
    down, up = (round_fraction(x, form, mode) for mode in (er.Rounding.DOWN, er.Rounding.UP))
    nearest, odd, zero = (
        round_fraction(x, form, mode) for mode in (er.Rounding.NEAREST_EVEN, er.Rounding.ODD, er.Rounding.TOWARD_ZERO)
    )
    assert down <= x <= up or np.isnan((down, up)).any()
    assert nearest in (down, up) or np.isnan(nearest)
    assert odd in (down, up) or np.isnan((down, up)).any()
    assert abs(zero) <= abs(x)
    assert np.isnan(nearest) or nearest == nearest_even(x, form)


def test_the_tie_above_the_highest_e4m3fn_value_stays() -> None:
    for value, wanted in ((464.0, 448.0), (-464.0, -448.0)):
        assert er.asarray([value], "float8_e4m3fn").tolist() == [wanted]
    assert np.isnan(er.asarray([np.nextafter(464.0, 500)], "float8_e4m3fn").values).all()


def test_python_numbers_are_rounded_once() -> None:
    # 1 + 2**-24 + 2**-80 lies above the midpoint, but its nearest float64 is the midpoint
    above = 1 + Fraction(1, 1 << 24) + Fraction(1, 1 << 80)
    assert er.asarray([above], "float32").tolist() == [1 + 2.0**-23]
    assert er.asarray([float(above)], "float32").tolist() == [1.0]
    assert er.asarray([Decimal("0.1"), Fraction(1, 10), 0.1], "float32").tolist() == [0.10000000149011612] * 3
    assert er.asarray([10**400, -(10**400)], "float64").tolist() == [np.inf, -np.inf]
    assert str(er.asarray([-0.0, Decimal("-0")]).tolist()) == "[-0.0, -0.0]"
    assert str(er.asarray([-0.0], "float8_e4m3fnuz").tolist()) == "[0.0]"
    # beyond 2**53 an integer is no float64: 2**60 + 2**36 + 1 lies above a midpoint of float32, its nearest float64 on it
    for whole in ((1 << 60) + (1 << 36) + 1, (1 << 53) + 1, 1 << 53, -(1 << 53)):
        wanted = [round_fraction(Fraction(whole), FORMATS["float32"])]
        assert er.asarray([whole], "float32").tolist() == er.asarray(np.array([whole]), "float32").tolist() == wanted
    mixed = [1, 0.1, Fraction(1, 3), Decimal("2.5"), -0.0, float("inf"), 2**60]
    for mode in er.Rounding:
        for numbers in (mixed, mixed[:2], [0.1, -0.0, float("-inf"), 3]):
            alone = [er.asarray(each, "float16", rounding=mode).tolist() for each in numbers]
            assert str(er.asarray(numbers, "float16", rounding=mode).tolist()) == str(alone)


def test_formats_are_found_by_their_contents() -> None:
    assert er.asarray([1, 2]).dtype == "int64"
    assert er.asarray([1, 2.5]).dtype == "float64"
    assert er.asarray([1, 2j]).dtype == "complex128"
    assert er.asarray(np.float32(2)).dtype == "float32"
    assert er.asarray(memoryview(b"abc")).tolist() == [97, 98, 99]
    assert er.asarray(np.array([1.5], ">f4")).tolist() == [1.5]
    assert er.asarray([1.5], np.float16).dtype == "float16"


@pytest.mark.parametrize(
    ("values", "dtype", "error"),
    [
        (["x"], None, TypeError),
        ([[1], [1, 2]], None, (TypeError, ValueError)),
        (np.array(["x"]), None, TypeError),
        (np.array([True]), None, TypeError),
        ([1], "float7", TypeError),
        ([1.5], "int8", TypeError),
        ([300], "int8", OverflowError),
        ([1j], "float32", TypeError),
        (np.array([1.0]), "int8", TypeError),
        ([float("nan")], "int8", TypeError),
    ],
)
def test_what_is_no_number_of_a_format_is_refused(values: object, dtype: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        er.asarray(values, dtype)


def test_arrays_are_snapshots_and_show_themselves() -> None:
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = er.asarray(source)
    assert array.__buffer__(0).tobytes() == source.tobytes()
    assert array.__buffer__(0).readonly
    source[:] = 9
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert array.T.shape == (3, 2)
    assert array.reshape(3, 2).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert array[1].tolist() == [3, 4, 5]
    assert len(array) == 2
    assert np.asarray(array).dtype == np.float32
    assert "float32" in repr(array)
    assert array.astype("bfloat16").dtype == "bfloat16"
    assert (array.ndim, array.size, array.nbytes) == (2, 6, 24)


@pytest.mark.parametrize("form", FORMATS.values(), ids=str)
def test_copies_and_pickles_keep_the_format(form: Format) -> None:
    """A copy of an array is of the same format object, by which formats are told apart: not its numbers read as bits."""
    array = er.asarray([[1, 2]], form)
    for again in (pickle.loads(pickle.dumps(array)), copy.copy(array), copy.deepcopy(array)):
        assert again.form is form
        assert again.tolist() == array.tolist() == [[1, 2]]
        assert er.matmul(again, array.T).rounded.tolist() == [[5]]
    result = er.matmul(array, array.T)
    for whole in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert whole.rounded.tolist() == [[5]]
        assert whole.covers(result).all()


def test_equality_is_that_of_the_numbers() -> None:
    array = er.asarray([[1.5, 2.0], [float("nan"), 4.0]], "bfloat16")
    assert (array == er.asarray([[1.5, 3.0], [float("nan"), 4.0]])).tolist() == [[True, False], [False, True]]
    assert (array != [[1.5, 2], [3, 4]]).tolist() == [[False, False], [True, False]]
    assert (er.asarray([2**53 + 1]) == er.asarray([2.0**53])).tolist() == [False]
    assert (er.asarray([2**53]) == er.asarray([2.0**53])).tolist() == [True]
    assert (er.matmul(array.T, array).rounded == er.matmul(array.T, array)).tolist() == [[False, False], [False, True]]
    assert array != "text"
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)


def test_bits_out_of_range() -> None:
    assert er.Array.from_bits([0x3C00, 0xFFFF], "float16").tolist()[0] == 1.0
    for bits in ([70_000], [-1]):
        with pytest.raises(ValueError, match=r"integers from 0 to 65535, not"):
            er.Array.from_bits(bits, "float16")
    with pytest.raises(TypeError, match="come as integers, not float64"):
        er.Array.from_bits([1.5], "float16")
    with pytest.raises(TypeError, match="128 bits of complex128"):
        er.Array.from_bits([1], "complex128")
    assert er.Array.from_bits(np.array([0x3F800000], np.uint64), "complex64").tolist() == [1 + 0j]


def test_promotion() -> None:
    table = {
        ("float16", "bfloat16"): "float32",
        ("float16", "float64"): "float64",
        ("float8_e4m3fn", "float16"): "float16",
        ("float8_e5m2", "bfloat16"): "bfloat16",
        ("int8", "uint8"): "int16",
        ("uint32", "int64"): "int64",
        ("uint16", "int16"): "int32",
        ("float32", "complex64"): "complex64",
        ("float64", "complex64"): "complex128",
    }
    for (first, second), wanted in table.items():
        assert promote(FORMATS[first], FORMATS[second]) is promote(FORMATS[second], FORMATS[first]) is FORMATS[wanted]
    for first, second in (("int8", "uint64"), ("int8", "float32"), ("float8_e5m2", "float8_e4m3fn"), ("int8", "complex64")):
        with pytest.raises(TypeError):
            promote(FORMATS[first], FORMATS[second])
