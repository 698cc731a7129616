"""The table of integer cases for three places: the GPU of a browser, a GPU outside it, and the CPU road (in both).

As in cases.py a case is data, and its id holds all of it:

    PY_GEMM_INT8_CASE='int8(a=int8,b=uint8,m=17,n=5,k=65,za=vector)' npm test

This module also runs inside Pyodide: it imports NumPy and py_gemm only, and holds the oracle, which shares no code with any kernel:
int64 sums taken modulo 2^32, and requantization by floor division of int64, where 31 + 24 bits find room.
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

import py_gemm as pg
from py_gemm.gpu.int8_variants import FEW_ROWS, INT8_VARIANTS

TYPES = ("int8", "uint8")
# Each threshold and its neighbours: the bytes of a word, the columns of the CPU's tiles, what the GPU's tables say, two tiles.
THRESHOLDS = {4, 8, FEW_ROWS, 128, *(size for row in INT8_VARIANTS for size in row.tile)}
SIZES = tuple(sorted({1, 2, *(size for each in THRESHOLDS for size in (each - 1, each, each + 1))}))
SENTINEL = 77


@dataclass(frozen=True)
class Int8Case:
    """One product. Fields at their defaults stay out of the id."""

    a: str = "int8"
    b: str = "int8"
    m: int = 1
    n: int = 1
    k: int = 1
    batch: str = ""  # shapes of the batch dimensions of a and b: "2" | "2x1~1x3"
    layout: str = "dense"  # of a: dense | fortran | sliced | negative | zero | odd (rows begin at any byte)
    layout_b: str = "dense"
    za: str = "0"  # zero points: 0 | scalar | vector
    zb: str = "0"
    to: str = ""  # "" int32 | int8 | uint8
    scale: str = "one"  # one | row | column
    bias: str = ""  # "" | one | row | column
    before: int = 0
    out: str = ""  # "" | dense | strided
    data: str = "random"  # random | extremes | lowest

    @property
    def id(self) -> str:
        shown = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if field.name in ("a", "b", "m", "n", "k") or getattr(self, field.name) != field.default
        ]
        return f"int8({','.join(shown)})"

    @staticmethod
    def parse(text: str) -> Int8Case:
        found = re.fullmatch(r"int8\((.*)\)", text.strip())
        if not found:
            raise ValueError(f"not the id of a case: {text!r}")
        pairs = dict(part.split("=", 1) for part in found[1].split(","))
        numbers = ("m", "n", "k", "before")
        return Int8Case(**{name: int(value) if name in numbers else value for name, value in pairs.items()})  # type: ignore[arg-type]


def cases_for(place: str, soak: bool, only: str | None) -> list[Int8Case]:
    """The cases of a place, as in cases.py: each mix of types over sizes around every edge, then all options crossed by chance."""
    if only:
        return [Int8Case.parse(only)]
    count = 3000 if soak else {"cpu": 400, "native": 300, "browser": 160, "page": 100}[place]
    source = random.Random("int8")
    cases = [
        Int8Case(a, b, m, n, k, data=data, za=zero, zb=zero)
        for a in TYPES
        for b in TYPES
        for m, n, k in ((1, 33, 67), (16, 64, 64), (17, 65, 63))
        for data, zero in (("random", "0"), ("extremes", "vector"), ("lowest", "scalar"))
    ]
    for _ in range(count):
        to = source.choice(("", "int8", "uint8"))
        cases.append(
            Int8Case(
                source.choice(TYPES), source.choice(TYPES), source.choice(SIZES), source.choice(SIZES), source.choice((0, *SIZES)),
                batch=source.choice(("", "", "", "2", "3~1", "2x1~1x3", "~3", "0")),
                layout=source.choice(("dense", "dense", "odd", "fortran", "sliced", "negative", "zero")),
                layout_b=source.choice(("dense", "dense", "odd", "fortran", "sliced", "negative", "zero")),
                za=source.choice(("0", "scalar", "vector")), zb=source.choice(("0", "scalar", "vector")), to=to,
                scale=source.choice(("one", "row", "column")) if to else "one",
                bias=source.choice(("", "one", "row", "column")) if to else "", before=source.randrange(2) if to else 0,
                out=source.choice(("", "", "dense", "strided")), data=source.choice(("random", "random", "extremes")),
            )
        )  # fmt: skip
    return list(dict.fromkeys(cases))


@dataclass
class Trial:
    """A case with its data, ready to be called, and what the result must be."""

    case: Int8Case
    arguments: dict[str, Any]
    a: np.ndarray
    b: np.ndarray
    expected: np.ndarray
    surroundings: np.ndarray | None

    @property
    def window(self) -> tuple[Any, ...]:
        """Where `out` lies in its surroundings."""
        return (..., slice(1, 1 + 2 * self.case.m, 2), slice(1, 1 + 3 * self.case.n, 3))


def _values(case: Int8Case, source: np.random.Generator, shape: tuple[int, ...], element: str) -> np.ndarray:
    lowest, highest = np.iinfo(element).min, np.iinfo(element).max
    if case.data == "lowest":
        return np.full(shape, lowest, element)
    if case.data == "extremes":
        return source.choice([lowest, highest], shape).astype(element)
    return source.integers(lowest, highest + 1, shape).astype(element)


def _place(array: np.ndarray, layout: str) -> np.ndarray:
    """The values in an array of that memory layout."""
    if layout == "fortran":
        return np.asfortranarray(array.swapaxes(-1, -2)).swapaxes(-1, -2) if array.ndim > 2 else np.asfortranarray(array)
    if layout == "sliced":
        roomy = np.full((*array.shape[:-2], array.shape[-2] * 2 + 1, array.shape[-1] * 3 + 2), 9, array.dtype)
        view = roomy[..., 1::2, 2::3]
        view[...] = array
        return view
    if layout == "odd":
        roomy = np.full((*array.shape[:-2], array.shape[-2] + 1, array.shape[-1] | 1), 9, array.dtype)
        view = roomy[..., 1:, : array.shape[-1]]
        view[...] = array
        return view
    if layout == "negative":
        return np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]
    if layout == "zero":
        return np.broadcast_to(array[..., :1, :], array.shape)
    return array


def _zero_points(source: np.random.Generator, how: str, element: str, shape: tuple[int, ...]) -> Any:
    if how == "0":
        return 0
    info = np.iinfo(element)
    values = source.integers(info.min, info.max + 1, shape)
    return int(values.flat[0]) if how == "scalar" and values.size else values if how == "vector" else 0


def _vector(source: np.random.Generator, how: str, m: int, n: int, low: float, high: float) -> np.ndarray:
    shape = {"one": (), "row": (m, 1), "column": (n,)}[how]
    return np.exp(source.uniform(np.log(low), np.log(high), shape))


def build(case: Int8Case) -> Trial:
    """The operands and the result. The data depend on the case alone."""
    source = np.random.default_rng(zlib.crc32(case.id.encode()))
    left, _, right = case.batch.partition("~")
    batch_a, batch_b = (
        tuple(int(each) for each in text.split("x")) if text else () for text in (left, right if "~" in case.batch else left)
    )
    a = _place(_values(case, source, (*batch_a, case.m, case.k), case.a), case.layout)
    b = _place(_values(case, source, (*batch_b, case.k, case.n), case.b), case.layout_b)
    arguments: dict[str, Any] = {
        "zero_point_a": _zero_points(source, case.za, case.a, (case.m, 1)),
        "zero_point_b": _zero_points(source, case.zb, case.b, (case.n,)),
    }
    sums = np.matmul(a.astype(np.int64) - arguments["zero_point_a"], b.astype(np.int64) - arguments["zero_point_b"])
    expected = wrapped(sums)
    result = np.dtype(case.to or "int32")
    if case.to:
        # Most results inside the range, many at its ends.
        size = 40.0 * max(case.k, 1) ** 0.5 * 100
        scale = _vector(source, case.scale, case.m, case.n, 10 / size, 1000 / size).astype(np.float32)
        zero_point = int(source.integers(np.iinfo(result).min, np.iinfo(result).max + 1))
        bias = None
        if case.bias:
            bias = (_vector(source, case.bias, case.m, case.n, 1, size) * source.choice([-1, 1])).astype(np.int64)
        arguments["requantize"] = pg.Requantize(scale, zero_point, bias, case.to, bool(case.before))
        expected = requantized(expected, scale, zero_point, 0 if bias is None else bias, case.to, before=bool(case.before))
    expected = expected.astype(result)
    surroundings = None
    if case.out == "dense":
        arguments["out"] = np.full(expected.shape, 55, result)
    trial = Trial(case, arguments, a, b, expected, surroundings)
    if case.out == "strided":
        shape = (*expected.shape[:-2], case.m * 2 + 3, case.n * 3 + 2)
        trial.surroundings = np.full(shape, SENTINEL, result)
        arguments["out"] = trial.surroundings[trial.window]
    return trial


def wrapped(sums: np.ndarray) -> np.ndarray:
    """int64 modulo 2^32, as int64 in the range of int32."""
    low: np.ndarray = (sums + (1 << 31)) % (1 << 32) - (1 << 31)
    return low


def requantized(sums: np.ndarray, scale: np.ndarray, zero_point: int, bias: Any, to: str, *, before: bool) -> np.ndarray:
    """clamp(zero_point + rne(scale * (sums + bias))), exact; with `before` the zero point is added before the rounding."""
    mantissa, exponent = np.frexp(np.asarray(scale, np.float64))
    significand = (mantissa * (1 << 24)).astype(np.int64)
    shift = 24 - exponent.astype(np.int64)  # scale = significand / 2^shift
    product = wrapped(np.asarray(sums, np.int64) + np.asarray(bias, np.int64)) * significand
    # Below 2^-61 nothing but zero can come of 2^55; above 2^0 everything but zero saturates.
    step = np.int64(1) << np.clip(shift, 0, 61)
    floor = product // step
    twice = 2 * (product - floor * step)
    odd = (floor + (zero_point if before else 0)) % 2
    value = floor + np.where((twice > step) | ((twice == step) & (odd == 1)), 1, 0) + zero_point
    info = np.iinfo(to)
    bounded: np.ndarray = np.clip(value, info.min, info.max)
    return bounded


def check(trial: Trial, result: Any) -> None:
    """AssertionError saying where and by how much."""
    case, expected = trial.case, trial.expected
    result = np.asarray(result)
    assert result.dtype == expected.dtype, f"{case.id}: the result is {result.dtype}, not {expected.dtype}"
    assert result.shape == expected.shape, f"{case.id}: the result has shape {result.shape}, not {expected.shape}"
    wrong = np.argwhere(result != expected)
    assert not wrong.size, (
        f"{case.id}: {len(wrong)} of {result.size} elements differ; "
        f"first at {wrong[0]}: {result[tuple(wrong[0])]}, not {expected[tuple(wrong[0])]}"
    )
    if trial.surroundings is not None:
        around = trial.surroundings.copy()
        around[trial.window] = SENTINEL
        assert np.all(around == SENTINEL), f"{case.id}: elements outside out were written"


def run(case: Int8Case, device: Any) -> None:
    trial = build(case)
    check(trial, pg.int8_gemm(trial.a, trial.b, device=device, **trial.arguments))


async def run_async(case: Int8Case, device: Any) -> None:
    trial = build(case)
    check(trial, await pg.int8_gemm_async(trial.a, trial.b, device=device, **trial.arguments))
