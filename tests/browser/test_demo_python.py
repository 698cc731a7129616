"""The demo page's Python that needs no page: bfloat16 rounding, reading files, pictures."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import demo_matrices
import demo_measure
from demo_matrices import MatrixError
from tests.browser.demo_page import npy


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_bfloat16_of_float32_is_what_ml_dtypes_gives(bits: list[int]) -> None:
    values = np.array(bits, np.uint32).view(np.float32)
    values = values[~np.isnan(values)]
    with np.errstate(over="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(demo_matrices.round_to_bfloat16(values), expected)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("above", "expected"), [(2.0**-40, 1 + 2.0**-7), (-(2.0**-40), 1.0), (0.0, 1.0)])
def test_bfloat16_of_float64_is_rounded_once(sign: int, above: float, expected: float) -> None:
    """1 + 2**-8 lies between two bfloat16 values; float32 alone would not see on which side of it a float64 is."""
    value = np.array([sign * (1 + 2.0**-8 + above)])
    assert demo_matrices.widen_bfloat16(demo_matrices.round_to_bfloat16(value))[0] == sign * expected


def test_bfloat16_files_of_ml_dtypes() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3).astype(ml_dtypes.bfloat16)
    matrix = demo_matrices.read("x.npy", npy(values), "file")
    assert matrix.type == "bfloat16"
    np.testing.assert_array_equal(matrix.numbers(), values.astype(np.float32))


@pytest.mark.parametrize(
    "text", ["1,2\n3,4", "1;2\r\n3;4\r\n", "1\t2\n3\t4\n", "1 2\n\n3 4\n", "\ufeffa,b\n1,2\n3,4\n", "1.0;2,0\n3;4,0"]
)
def test_csv_in_its_many_forms(text: str) -> None:
    matrix = demo_matrices.read("x.csv", text.encode(), "float64")
    np.testing.assert_array_equal(matrix.values, [[1, 2], [3, 4]])


def test_csv_with_nan_and_infinity() -> None:
    matrix = demo_matrices.read("x.csv", b"nan,inf\n-inf,1e-3\n", "file")
    assert matrix.type == "float32"
    assert matrix.summary()["unfinite"] == 3


def test_big_endian_files() -> None:
    matrix = demo_matrices.read("x.npy", npy(np.array([[1, 2.5]], ">f4")), "file")
    assert matrix.values.dtype == np.float32
    assert matrix.values.dtype.isnative
    np.testing.assert_array_equal(matrix.values, [[1, 2.5]])


def test_sides_and_seeds_differ_and_repeat() -> None:
    def made(side: str, seed: int) -> bytes:
        return demo_matrices.generate(side, 4, 5, "float32", seed, "normal").values.tobytes()

    assert made("A", 1) == made("A", 1)
    assert len({made("A", 1), made("B", 1), made("A", 2)}) == 3


def test_too_large_is_refused_before_it_is_made() -> None:
    with pytest.raises(MatrixError, match="at most 16,777,216"):
        demo_matrices.generate("A", 10**6, 10**6, "float32", 1, "normal")


def test_picture_is_a_sample_within_its_limit() -> None:
    matrix = demo_matrices.convert(np.arange(300 * 40.0).reshape(300, 40), "float64")
    picture = demo_matrices.picture(matrix)
    assert (picture["height"], picture["width"]) == (124, 40)


def test_picture_of_extremes_keeps_a_lonely_element_and_its_sign() -> None:
    values = np.zeros((1000, 700), np.float32)
    values[501, 333] = -4
    picture = demo_matrices.picture_of_extremes(demo_matrices.convert(values, "float32"))
    drawn = np.asarray(picture["values"]).reshape(124, 124)
    assert drawn.min() == -4
    assert np.count_nonzero(drawn) == 1


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("kind", "digits"), [("float16", 11), ("bfloat16", 8), ("float32", 24)])
def test_how_elements_should_be_rounded_is_told_from_one_rounding(kind: str, digits: int, sign: int) -> None:
    """1 + 2**-digits lies between two numbers of the type; float64 alone would not see on which side of it these are."""
    if np.finfo(np.longdouble).nmant < 60:
        pytest.skip("long double is float64 here")
    tie = np.longdouble(2) ** -digits
    values = sign * (1 + np.array([[tie, tie + np.longdouble(2) ** -60, tie - np.longdouble(2) ** -60]]))
    reference = demo_measure.Reference(np.arange(1), values, 1.0, "")
    right = demo_matrices.convert(sign * np.array([[1, 1 + 2.0 ** (1 - digits), 1]]), kind)
    assert demo_measure.differing(right, reference) == 0
    wrong = demo_matrices.convert(sign * np.array([[1 + 2.0 ** (1 - digits), 1, 1 + 2.0 ** (1 - digits)]]), kind)
    assert demo_measure.differing(wrong, reference) == 3


def test_a_coarse_clock_gives_no_time_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that steps by 0.1 ms, one slow call, then calls of 2 µs: one at a time these take no time that it sees."""
    now = 0.0
    durations = iter([0.02, 0.02])

    async def call() -> None:
        nonlocal now
        now += next(durations, 2e-6)

    monkeypatch.setattr("demo_measure.time.perf_counter", lambda: now // 1e-4 * 1e-4)
    with ThreadPoolExecutor(1) as pool:
        timing = pool.submit(asyncio.run, demo_measure.time_calls(call, lambda: None)).result()
    assert timing.samples == demo_measure.MOST_SAMPLES
    assert timing.median == pytest.approx(2e-6, rel=0.1)
