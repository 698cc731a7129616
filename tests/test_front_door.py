"""The front door's contract outside the browser: what is taken, what is refused and in which words, on the CPU and on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import py_gemm as pg
from py_gemm.errors import GemmError
from tests.front_door import odd, ones


@pytest.fixture(params=["cpu", "wgpu"])
def device(request: pytest.FixtureRequest) -> Any:
    return pg.request_device(request.param)


def thin(kind: Any, doublings: int) -> Any:
    """A column of so many ones that takes the memory of one."""
    return np.broadcast_to(kind(1), (1 << doublings, 1))


# -- what is refused ---------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, Any, type[Exception], str]] = [
    (
        "unequal k",
        lambda: pg.matmul(ones(2, 3), ones(4, 5)),
        pg.ShapeError,
        r"matmul: dimension k .* 3 columns.* 4 rows .*\(2, 3\).*\(4, 5\)",
    ),
    ("unequal k of gemm", lambda: pg.gemm(ones(2, 3), ones(2, 5)), pg.ShapeError, r"gemm: dimension k .*3.*2"),
    ("unequal k by transpose", lambda: pg.gemm(ones(2, 3), ones(3, 5), transpose_a=True), pg.ShapeError, "dimension k"),
    ("0-d left", lambda: pg.matmul(np.float32(1), ones(2, 2)), pg.ShapeError, r"matmul: a has no dimension"),
    ("0-d right", lambda: pg.matmul(ones(2, 2), 3.0), pg.ShapeError, r"matmul: b has no dimension"),
    (
        "batch",
        lambda: pg.matmul(ones(2, 3, 4), ones(5, 4, 3)),
        pg.ShapeError,
        r"batch dimension -1 .* 2 and 5 .*\(2, 3, 4\).*\(5, 4, 3\)",
    ),
    ("c", lambda: pg.gemm(ones(2, 3), ones(3, 4), ones(2, 3)), pg.ShapeError, r"gemm: c .*3 and 4"),
    ("c too deep", lambda: pg.gemm(ones(2, 3), ones(3, 4), ones(5, 2, 4)), pg.ShapeError, r"c of shape \(5, 2, 4\)"),
    (
        "bias",
        lambda: pg.gemm(ones(2, 3), ones(3, 4), bias=ones(3)),
        pg.ShapeError,
        r"bias has shape \(3,\), dimension n needs \(4,\)",
    ),
    (
        "out's shape",
        lambda: pg.matmul(ones(2, 3), ones(3, 4), out=ones(2, 3)),
        pg.ShapeError,
        r"out has shape \(2, 3\), the result \(2, 4\)",
    ),
    (
        "out's type",
        lambda: pg.matmul(ones(2, 3), ones(3, 4), out=ones(2, 4, dtype=np.float64)),
        TypeError,
        "out is float64, the result float32",
    ),
    ("out no array", lambda: pg.matmul(ones(2, 3), ones(3, 4), out=[1]), TypeError, "out must be a NumPy array"),
    ("integers", lambda: pg.matmul(ones(2, 2, dtype=np.int8), ones(2, 2)), TypeError, "a is int8.*int8_gemm"),
    ("integers right", lambda: pg.gemm(ones(2, 2), ones(2, 2, dtype=np.int64)), TypeError, "b is int64.*int8_gemm"),
    ("a list of integers", lambda: pg.matmul([[1, 2]], [[1], [2]]), TypeError, "int8_gemm"),
    ("untagged bits", lambda: pg.matmul(ones(2, 2, dtype=np.uint16), ones(2, 2)), TypeError, 'dtype_a="bfloat16"'),
    (
        "a wrong tag",
        lambda: pg.matmul(ones(2, 2), ones(2, 2), dtype_a="bfloat16"),
        TypeError,
        "a is float32, which dtype_a='bfloat16'",
    ),
    ("bool", lambda: pg.matmul(ones(2, 2, dtype=bool), ones(2, 2)), TypeError, "a is bool"),
    ("complex", lambda: pg.matmul(ones(2, 2, dtype=np.complex64), ones(2, 2)), TypeError, "a is complex64"),
    ("objects", lambda: pg.matmul(np.array([[None]]), ones(1, 1)), TypeError, "a is object"),
    ("strings", lambda: pg.matmul(ones(1, 1), np.array([["x"]])), TypeError, "b is <U1"),
    ("complex c", lambda: pg.gemm(ones(1, 1), ones(1, 1), np.ones((1, 1), complex)), TypeError, "c is complex128"),
    ("integer bias", lambda: pg.gemm(ones(1, 1), ones(1, 1), bias=np.ones(1, int)), TypeError, "bias is int64"),
    ("complex alpha", lambda: pg.gemm(ones(1, 1), ones(1, 1), **odd(alpha=1j)), TypeError, "alpha must be a real number"),
    ("string beta", lambda: pg.gemm(ones(1, 1), ones(1, 1), ones(1, 1), **odd(beta="1")), TypeError, "beta must be a real number"),
    ("beta without c", lambda: pg.gemm(ones(1, 1), ones(1, 1), beta=2.0), ValueError, "beta is 2.0, but there is no c"),
    (
        "dtype",
        lambda: pg.matmul(ones(1, 1), ones(1, 1), dtype="int8"),
        TypeError,
        "dtype='int8' is not a float type; known: float32",
    ),
    (
        "mode",
        lambda: pg.matmul(ones(1, 1), ones(1, 1), mode="quick"),
        ValueError,
        "unknown mode 'quick'; known: fast, deterministic, exact",
    ),
    (
        "mode exact",
        lambda: pg.gemm(ones(1, 1), ones(1, 1), mode="exact", activation="gelu_erf"),
        pg.UnsupportedError,
        "activation 'gelu_erf' cannot be correctly rounded",
    ),
    (
        "activation",
        lambda: pg.gemm(ones(1, 1), ones(1, 1), activation="swish"),
        ValueError,
        "unknown activation 'swish'; known: None, 'relu'",
    ),
    (
        "activation unhashable",
        lambda: pg.gemm(ones(1, 1), ones(1, 1), **odd(activation=[])),
        ValueError,
        r"unknown activation \[\]",
    ),
    (
        "kind",
        lambda: pg.matmul(ones(1, 1), ones(1, 1), device="cuda"),
        ValueError,
        "unknown device kind 'cuda'; known: webgpu, wgpu",
    ),
    ("kind of a request", lambda: pg.request_device("gpu"), ValueError, "unknown device kind 'gpu'"),
    ("no device", lambda: pg.matmul(ones(1, 1), ones(1, 1), device=3), TypeError, "device= takes a device"),
    ("webgpu outside", lambda: pg.request_device("webgpu"), pg.UnsupportedError, "browser"),
    (
        "float64 on a GPU",
        lambda: pg.matmul(ones(1, 1), ones(1, 1, dtype=float), device="wgpu"),
        pg.UnsupportedError,
        "float64 .*CPU only",
    ),
    (
        "float64 to a GPU",
        lambda: pg.asarray(ones(1, 1, dtype=float), device="wgpu"),
        pg.UnsupportedError,
        "float64 stays on the CPU",
    ),
    ("knob", lambda: pg.configure(speed=1), ValueError, "unknown knob 'speed'; known: device"),
    ("knob's value", lambda: pg.configure(device="cuda"), ValueError, "device='cuda': known kinds"),
    ("token", lambda: pg.configure(token="avx"), ValueError, "unknown token 'avx'; known: relaxed, pairs, simd128"),
    ("variant", lambda: pg.configure(variant="tiles"), ValueError, "unknown variant 'tiles'; known: exact-f16, .*, int8-skinny"),
    (
        "time",
        lambda: pg.configure(submission_ms=-5),
        ValueError,
        "submission_ms=-5: a whole number of milliseconds of at least 1 is",
    ),
    ("bool of NumPy", lambda: pg.configure(deep_kc_bytes=np.True_), ValueError, "a whole number of at least 0 is expected"),
    ("infinite", lambda: pg.configure(pool_bytes=float("inf")), ValueError, "pool_bytes=inf: a whole number of at least 0 is"),
    ("times", lambda: pg.configure(submission_ms="long"), ValueError, "submission_ms='long': a whole number of milliseconds"),
    (
        "a result past all memory",
        lambda: pg.matmul(thin(np.float32, 24), thin(np.float32, 24).T, device="cpu"),
        pg.DeviceMemoryError,
        rf"matmul: no memory for {1 << 50} bytes, float32 of shape \(16777216, 16777216\)",
    ),
    (
        "a result of more bytes than there are numbers",
        lambda: pg.int8_gemm(thin(np.int8, 31), thin(np.int8, 31).T, device="cpu"),
        pg.DeviceMemoryError,
        f"int8_gemm: no memory for {1 << 64} bytes, int32 of shape",
    ),
    (
        "an array past all memory",
        lambda: pg.asarray(np.broadcast_to(thin(np.float32, 25), (1 << 25, 1 << 23)), device="cpu"),
        pg.DeviceMemoryError,
        f"asarray: no memory for {1 << 50} bytes, float32 of shape",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_wrong_input_is_refused_in_words(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("function", [pg.asarray, pg.prepack])
@pytest.mark.parametrize(
    ("dtype", "tag", "words"),
    [
        ("complex128", None, "; taken are float32, float16, bfloat16, float64, int8, uint8$"),
        ("int16", None, "; taken are .*, int8, uint8$"),
        ("uint16", None, r'; taken are .* \(for bfloat16 bits in uint16, tag them: dtype="bfloat16"\)'),
        ("int8", "bfloat16", ", which dtype='bfloat16' does not describe"),
    ],
)
def test_what_is_not_stored_is_refused_in_words(function: Any, dtype: str, tag: str | None, words: str) -> None:
    with pytest.raises(TypeError, match=f"{function.__name__}: x is {dtype}{words}"):
        function(ones(1, 1, dtype=dtype), dtype=tag, device="cpu")


def test_the_exceptions_are_what_callers_already_catch() -> None:
    assert issubclass(pg.ShapeError, (pg.GemmError, ValueError))
    assert issubclass(pg.ShapeError, ValueError)
    assert issubclass(pg.AliasError, ValueError)
    assert issubclass(pg.DeviceMemoryError, MemoryError)
    for error in (
        pg.ShapeError,
        pg.AliasError,
        pg.UnsupportedError,
        pg.SyncUnavailableError,
        pg.DeviceLostError,
        pg.DeviceMemoryError,
    ):
        assert issubclass(error, GemmError)


def test_a_refused_call_writes_nothing(device: Any) -> None:
    out = np.full((2, 2), 7, np.float32)
    for arguments in (odd(mode="quick"), odd(dtype="float64")):
        with pytest.raises((ValueError, TypeError)):
            pg.matmul(ones(2, 3), ones(3, 2), out=out, device=device, **arguments)
    with pytest.raises(pg.ShapeError):
        pg.matmul(ones(2, 3), ones(2, 2), out=out, device=device)
    assert np.all(out == 7)


# -- out and aliasing --------------------------------------------------------------------------------------------------------


def test_out_over_an_input_is_refused(device: Any) -> None:
    a = ones(4, 4)
    calls: dict[str, Callable[[], Any]] = {
        "a": lambda: pg.matmul(a, ones(4, 4), out=a, device=device),
        "b": lambda: pg.matmul(ones(4, 4), a, out=a, device=device),
        "c": lambda: pg.gemm(ones(4, 4), ones(4, 4), a.T, out=a, device=device),
        "bias": lambda: pg.gemm(ones(4, 4), ones(4, 4), bias=a[0], out=a, device=device),
    }
    for name, call in calls.items():
        with pytest.raises(pg.AliasError, match=f"out shares memory with {name}"):
            call()
    assert np.all(a == 1)


def test_out_that_overlaps_itself_is_refused() -> None:
    base = np.zeros(8, np.float32)
    window = np.lib.stride_tricks.as_strided(base, (4, 4), (4, 4))
    with pytest.raises(pg.AliasError, match="elements of out share memory"):
        pg.matmul(ones(4, 2), ones(2, 4), out=window)
    with pytest.raises(pg.AliasError, match="elements of out share memory"):
        pg.matmul(ones(4, 2), ones(2, 4), out=np.lib.stride_tricks.as_strided(base, (4, 4), (4, 0)))


def test_strides_that_look_nested_wrong_but_do_not_overlap_are_taken() -> None:
    base = np.zeros(16, np.float32)
    odd = np.lib.stride_tricks.as_strided(base, (2, 3), (12, 8))  # elements 0 2 4 / 3 5 7
    pg.matmul(ones(2, 2), ones(2, 3), out=odd)
    assert np.all(odd == 2)


def test_interleaved_columns_do_not_overlap(device: Any) -> None:
    both = np.zeros((4, 8), np.float32)
    a, out = both[:, 0::2], both[:, 1::2]
    a[...] = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert pg.matmul(a, np.eye(4, dtype=np.float32), out=out, device=device) is out
    assert np.array_equal(out, a)


def test_c_in_the_place_of_out_is_updated(device: Any) -> None:
    c = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = 2 * c + ones(3, 5) @ ones(5, 4)
    assert pg.gemm(ones(3, 5), ones(5, 4), c, beta=2.0, out=c, device=device) is c
    assert np.array_equal(c, expected)


def test_a_read_only_out_is_refused() -> None:
    out = np.zeros((2, 2), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        pg.matmul(ones(2, 2), ones(2, 2), out=out)


# -- what is taken -----------------------------------------------------------------------------------------------------------


def test_shapes_are_those_of_numpy(device: Any) -> None:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((4, 2, 3), (3,)), ((3,), (4, 3, 2)), ((2, 1, 2, 3), (1, 3, 3, 2)),
        ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((5, 2, 3), (3, 2)), ((0, 2, 3), (3, 2)), ((1, 3), (7, 3, 1)), ((0,), (0,)),
    ]  # fmt: skip
    source = np.random.default_rng(1)
    for shape_a, shape_b in shapes:
        a, b = source.integers(-4, 5, shape_a).astype(np.float32), source.integers(-4, 5, shape_b).astype(np.float32)
        expected, got = np.matmul(a, b), pg.matmul(a, b, device=device)
        assert type(got) is type(expected), (shape_a, shape_b)
        assert got.shape == expected.shape
        assert np.array_equal(got, expected)


def test_types_promote_as_in_numpy(device: Any) -> None:
    types = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
    for name_a, type_a in types.items():
        for name_b, type_b in types.items():
            got = pg.matmul(ones(2, 3, dtype=type_a), ones(3, 2, dtype=type_b), device=device)
            assert got.dtype.name == (name_a if name_a == name_b else "float32")
            assert np.all(got == 3)
    assert pg.matmul(ones(2, 3), ones(3, 2, dtype=np.float64)).dtype == np.float64


def test_bits_in_bits_out(device: Any) -> None:
    bits = ones(2, 2, dtype=ml_dtypes.bfloat16).view(np.uint16)
    got = pg.matmul(bits, bits, dtype_a="bfloat16", dtype_b="bfloat16", device=device)
    assert got.dtype == np.uint16
    assert np.all(got.view(ml_dtypes.bfloat16) == 2)
    mixed = pg.matmul(ones(2, 2, dtype=ml_dtypes.bfloat16), bits, dtype_b=ml_dtypes.bfloat16, device=device)
    assert mixed.dtype == np.uint16


def test_any_float_type_may_be_asked_for(device: Any) -> None:
    a = np.full((2, 2), 1 / 3, np.float16)
    for dtype in ("float32", np.float64, np.dtype(np.float16), ml_dtypes.bfloat16, "bfloat16"):
        got = pg.matmul(a, a, dtype=dtype, device=device)
        exact = 2 * np.float64(a[0, 0]) ** 2
        assert np.allclose(got.astype(np.float64), exact, rtol=2.0**-8)
        assert got.dtype.name == np.dtype(dtype).name if dtype != "bfloat16" else got.dtype == ml_dtypes.bfloat16
    assert np.all(pg.matmul(a, a, dtype="float64", device=device) == 2 * np.float64(a[0, 0]) ** 2)


def test_byte_orders_and_torn_strides(device: Any) -> None:
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    torn = np.zeros((3, 4), dtype=[("tag", "u1"), ("value", "f4")])
    torn["value"] = plain
    out = np.zeros((3, 3), ">f4")
    expected = plain @ plain.T
    assert np.array_equal(pg.matmul(plain.astype(">f4"), plain.T, device=device), expected)
    assert np.array_equal(pg.matmul(torn["value"], plain.T, device=device), expected)
    assert pg.matmul(plain, plain.T, out=out, device=device) is out
    assert np.array_equal(out, expected)


def test_lists_and_array_likes(device: Any) -> None:
    class Like:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return np.full((2, 2), 2.0, np.float32)

    assert pg.matmul([[1.0, 2.0]], [[3.0], [4.0]]).tolist() == [[11.0]]
    assert pg.matmul(Like(), np.eye(2, dtype=np.float32), device=device).tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_beta_zero_and_alpha_zero_read_nothing(device: Any) -> None:
    nan = np.full((3, 3), np.nan, np.float32)
    assert np.array_equal(pg.gemm(ones(3, 3), ones(3, 3), nan, beta=0.0, device=device), np.full((3, 3), 3.0))
    assert np.array_equal(pg.gemm(ones(3, 3), ones(3, 3), nan, beta=-0.0, device=device), np.full((3, 3), 3.0))
    assert np.array_equal(pg.gemm(nan, nan, ones(3, 3), alpha=0.0, beta=2.0, device=device), np.full((3, 3), 2.0))


def test_an_empty_sum_keeps_the_sign_of_beta_c(device: Any) -> None:
    c = np.array([[0.0, -0.0, 1.0]], np.float32)
    got = pg.gemm(np.zeros((1, 0), np.float32), np.zeros((0, 3), np.float32), c, beta=-2.0, device=device)
    assert np.array_equal(got, [[0.0, 0.0, -2.0]])
    assert np.array_equal(np.signbit(got), [[True, False, True]])


def test_nan_and_infinity_appear_where_numpy_has_them(device: Any) -> None:
    a, b = np.ones((5, 6), np.float32), np.ones((6, 7), np.float32)
    a[1, 2], a[3, 0], b[4, 5], b[0, 1] = np.nan, np.inf, -np.inf, 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = a @ b
    got = pg.matmul(a, b, device=device)
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    assert np.array_equal(got[np.isfinite(expected)], expected[np.isfinite(expected)])
    assert np.array_equal(got == np.inf, expected == np.inf)
    assert np.array_equal(got == -np.inf, expected == -np.inf)


def test_activations_at_their_ends(device: Any) -> None:
    x = np.array([[np.inf, -np.inf, np.nan, -0.0, 0.0, -3.0, 3.0]], np.float32)
    nothing = np.zeros((1, 0), np.float32), np.zeros((0, 7), np.float32)
    relu = pg.gemm(*nothing, x, activation="relu", device=device)
    assert np.array_equal(relu, [[np.inf, 0.0, np.nan, 0.0, 0.0, 0.0, 3.0]], equal_nan=True)
    assert not np.signbit(relu[0, 3])
    for name in ("gelu_erf", "gelu_tanh"):
        gelu = pg.gemm(*nothing, x, activation=name, device=device)[0]
        assert gelu[0] == np.inf
        assert gelu[1] == 0
        assert np.isnan(gelu[2])
        assert gelu[3] == 0
        assert gelu[4] == 0


def test_runs_are_the_same_bits(device: Any) -> None:
    source = np.random.default_rng(3)
    a, b = source.standard_normal((65, 300)).astype(np.float32), source.standard_normal((300, 33)).astype(np.float32)
    for mode in ("fast", "deterministic"):
        first = pg.matmul(a, b, mode=mode, device=device)
        for _ in range(3):
            assert np.array_equal(pg.matmul(a, b, mode=mode, device=device), first)
        whole = pg.matmul(a, b, mode=mode, batch_invariant=True, device=device)
        for rows in (slice(0, 2), slice(1, 6), slice(60, 65)):
            assert np.array_equal(pg.matmul(a[rows], b, mode=mode, batch_invariant=True, device=device), whole[rows])
        assert np.array_equal(pg.gemm(a, b, mode=mode, device=device), first)
