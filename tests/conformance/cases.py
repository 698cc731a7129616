"""One table of cases for three places: the GPU of a browser, a GPU outside it, and the CPU road (in both).

A case is data; its id holds all of it and can be turned back into the case, so a failure is re-run from its name:

    PY_GEMM_CASE='gemm(a=float16,b=float16,m=17,n=1,k=65)' npm test

What a fraction of the time on two cores allows is sampled with a fixed seed; PY_GEMM_SOAK=1 takes every size.
This module also runs inside Pyodide: it imports NumPy and py_gemm only, and holds the oracle: int64 for integer data,
float64 for real data, fractions for mode "exact" (exactly.py), none of which shares code with any kernel.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

import py_gemm as pg
from py_gemm.configuration import configure as set_knobs
from py_gemm.dtypes import FLOAT_TYPES, promote
from py_gemm.gpu.split import MINIMUM_K, MINIMUM_TERMS, MOST_RANGES, TERMS_STEP, WORKGROUPS
from py_gemm.gpu.variants import FEW_ROWS, VARIANTS, WIDE_COLUMNS
from py_gemm.prepare import forget_prepared

from . import exactly

SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129)


def _around(thresholds: set[int]) -> tuple[int, ...]:
    """Each threshold and its neighbours on either side."""
    return tuple(sorted({size for each in thresholds for size in (each - 1, each, each + 1) if size > 0}))


# Where a pure decision of the GPU road changes its mind, generated from its tables.
EDGE_M = _around({FEW_ROWS} | {row.tile[0] for row in VARIANTS})
EDGE_N = _around({row.tile[1] for row in VARIANTS})
EDGE_K = _around({MINIMUM_K, 2 * MINIMUM_TERMS + TERMS_STEP, MOST_RANGES * MINIMUM_TERMS} | {row.tile[2] for row in VARIANTS})
SCALARS = (0.0, 1.0, 0.7, 1.3)
GPU_TYPES = ("float32", "float16", "bfloat16")
CPU_TYPES = (*GPU_TYPES, "float64")
SENTINEL = 77.0

# Unit roundoffs of result types, and the accuracy bounds of the published system: max |d - ref| / max |ref|.
ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
SCALED_BOUND = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 8e-3, "float64": 1e-13}
SMALLEST = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133, "float64": 2.0**-1074}


@dataclass(frozen=True)
class Case:
    """One product. Fields at their defaults stay out of the id."""

    a: str = "float32"
    b: str = "float32"
    m: int = 1
    n: int = 1
    k: int = 1
    batch: str = ""  # shapes of the batch dimensions of a and b: "2" | "2x1~1x3"
    ta: int = 0
    tb: int = 0
    layout: str = "dense"  # of a and b: dense | fortran | sliced | negative | zero
    alpha: float = 1.0
    beta: float = 0.0
    c: str = ""  # type of c; "" without
    c_shape: str = "full"  # full | row | column | scalar
    bias: int = 0
    act: str = ""
    out: str = ""  # "" | dense | strided | c
    dtype: str = ""  # of the result; "" the promoted type
    mode: str = "fast"
    data: str = "integers"  # integers: exact | real | spread: exponents from all over the type's range
    invariant: int = 0
    variant: str = ""  # a forced row of the GPU's table; "" the first that fits

    @property
    def id(self) -> str:
        shown = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if field.name in ("a", "b", "m", "n", "k") or getattr(self, field.name) != field.default
        ]
        return f"gemm({','.join(shown)})"

    @staticmethod
    def parse(text: str) -> Case:
        found = re.fullmatch(r"gemm\((.*)\)", text.strip())
        if not found:
            raise ValueError(f"not the id of a case: {text!r}")
        pairs = (part.split("=", 1) for part in found[1].split(","))
        return Case(**{name: _CONVERT[name](value) for name, value in pairs})

    @property
    def result(self) -> str:
        return self.dtype or promote(FLOAT_TYPES[self.a], FLOAT_TYPES[self.b]).name


_CONVERT: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("m", "n", "k", "ta", "tb", "bias", "invariant"), int),
    **dict.fromkeys(("alpha", "beta"), float),
    **dict.fromkeys(("a", "b", "batch", "layout", "c", "c_shape", "act", "out", "dtype", "mode", "data", "variant"), str),
}


# -- the table ---------------------------------------------------------------------------------------------------------------


def exact_cases(types: tuple[str, ...], count: int | None) -> list[Case]:
    """Small integers over sizes around every edge: `count` for each type, every size in every place; None: all of them."""
    cases = []
    for element in types:
        source = random.Random(f"exact {element}")
        if count is None:
            triples = [(m, n, k) for m in SIZES for n in SIZES for k in SIZES]
        else:
            triples = []
            while len(triples) < count:
                columns = [source.sample(SIZES, len(SIZES)) for _ in range(3)]
                triples += list(zip(*columns, strict=True))
            triples = triples[:count]
        for m, n, k in triples:
            cases.append(Case(element, element, m, n, k, ta=source.randrange(2), tb=source.randrange(2)))
    return cases


def option_cases(types: tuple[str, ...], count: int) -> list[Case]:
    """Everything that the front door takes, crossed by chance with a fixed seed; the first ones cross types with transposes."""
    source = random.Random("options")
    cases = [
        Case(element, element, 33, 17, 65, ta=ta, tb=tb, data=data)
        for element in types
        for ta in (0, 1)
        for tb in (0, 1)
        for data in ("integers", "real")
    ]
    for _ in range(count):
        a = source.choice(types)
        b = a if source.random() < 0.6 else source.choice(types)
        c = source.choice(("", "", *CPU_TYPES))
        result = source.choice(("", "", "", *CPU_TYPES))
        case = Case(
            a, b, source.choice(SIZES), source.choice(SIZES), source.choice((0, *SIZES)),
            batch=source.choice(("", "", "", "2", "3~1", "2x1~1x3", "0", "2x2")),
            ta=source.randrange(2), tb=source.randrange(2),
            layout=source.choice(("dense", "dense", "fortran", "sliced", "negative", "zero")),
            alpha=source.choice((1.0, 1.0, 0.0, -2.0, 0.5)),
            beta=source.choice((1.0, 0.0, -1.0, 0.5)) if c else 0.0,
            c=c, c_shape=source.choice(("full", "full", "row", "column", "scalar")),
            bias=source.randrange(2), act=source.choice(("", "", "relu", "gelu_erf", "gelu_tanh")),
            out=source.choice(("", "", "dense", "strided", "c")),
            dtype=result, mode=source.choice(("fast", "fast", "deterministic")),
            data=source.choice(("integers", "real")),
        )  # fmt: skip
        cases.append(_sensible(case))
    return list(dict.fromkeys(cases))


def rounded_once_cases(types: tuple[str, ...], count: int, *, on_gpu: bool) -> list[Case]:
    """Mode "exact": every type with every option of it; on a GPU products of float16, with scalars that float32 holds."""
    source = random.Random("rounded once")
    operands = ("float16",) if on_gpu else types
    cases: list[Case] = []
    while len(cases) < count:
        a = source.choice(operands)
        c = source.choice(("", "", *types))
        case = Case(
            a, a if source.random() < 0.6 else source.choice(operands),
            source.choice((1, 2, 3, 5, 9, 17, 33)), source.choice((1, 2, 4, 7, 15, 34)), source.choice((0, 1, 3, 8, 16, 17, 65)),
            batch=source.choice(("", "", "", "2", "2x1~1x3")),
            ta=source.randrange(2), tb=source.randrange(2),
            layout=source.choice(("dense", "fortran", "sliced", "negative", "zero")),
            alpha=source.choice((1.0, 1.0, -0.5, 0.0, 1.7001953125) if on_gpu else (1.0, 1.0, -0.5, 0.0, 0.1, 1e-200)),
            beta=source.choice((1.0, 0.0, -3.25) if on_gpu else (1.0, 0.0, -0.3)) if c else 0.0,
            c=c, c_shape=source.choice(("full", "full", "row", "scalar")), bias=source.randrange(2),
            act=source.choice(("", "", "relu")), out=source.choice(("", "", "strided", "c")), dtype=source.choice(("", "", *types)),
            mode="exact", data=source.choice(("real", "spread", "spread")),
        )  # fmt: skip
        cases.append(_sensible(case))
    return list(dict.fromkeys(cases))


def edge_cases(count: int | None, *, forced: bool) -> list[Case]:
    """Sizes around every threshold of the GPU's decisions, with scalars that round, in both modes; `forced`: each row by its name
    too, on a shape that it takes. None: every size with every other."""
    source = random.Random("edges")
    sizes = [(m, n, k) for m in EDGE_M for n in EDGE_N for k in EDGE_K]
    chosen = sizes if count is None else source.sample(sizes, count)
    chosen += [(m, n, k) for m in (1, FEW_ROWS) for n in _around({WIDE_COLUMNS}) for k in (3, 33)]
    # Where a grid of one column of tiles is just large enough not to be split; of the portable row only where time is short.
    high = {row.tile[0] for row in VARIANTS if row.splits} if count is None or count > 100 else {VARIANTS[-1].tile[0]}
    chosen += [(m, 1, MINIMUM_K) for each in high for m in (each * (WORKGROUPS - 1), each * (WORKGROUPS - 1) + 1)]
    cases = []
    for m, n, k in dict.fromkeys(chosen):
        element = source.choice(GPU_TYPES)
        c = source.choice(("", *GPU_TYPES))
        cases.append(
            Case(
                element, element, m, n, k,
                ta=source.randrange(2) if max(m, n) < 1000 else 0, tb=source.randrange(2) if max(m, n) < 1000 else 0,
                alpha=source.choice(SCALARS), beta=source.choice(SCALARS) if c else 0.0, c=c, bias=source.randrange(2),
                act=source.choice(("", "relu", "gelu_erf", "gelu_tanh")), mode=source.choice(("fast", "deterministic")),
                dtype=source.choice(("", "float32")), data="real", invariant=int(source.random() < 0.2),
            )
        )  # fmt: skip
    if forced:
        for row in (each for each in VARIANTS if not each.exact):
            for ta, tb, alpha, beta in ((0, 0, 0.7, 1.3), (0, 1, 1.3, 0.7), (1, 0, 1.0, 0.0), (1, 1, 0.0, 1.0)):
                m, n = (3, 70) if row.shape_conditions else (130, 131)
                n = WIDE_COLUMNS + 1 if n < WIDE_COLUMNS and any("columns" in each.wanted for each in row.shape_conditions) else n
                b_fits = not row.shape_conditions or tb == ("B stored N x K" in {each.wanted for each in row.shape_conditions})
                if b_fits and not (row.shape_conditions and ta):
                    cases.append(
                        Case(
                            m=m, n=n, k=133, ta=ta, tb=tb, alpha=alpha, beta=beta, c="float32", bias=1, act="gelu_tanh",
                            data="real", variant=row.name,
                        )
                    )  # fmt: skip
    return cases


def _sensible(case: Case) -> Case:
    """Drop the options that contradict each other."""
    changes: dict[str, Any] = {}
    if case.out == "c" and (case.c != case.result or case.c_shape != "full"):
        changes["out"] = "strided"
    if case.data == "integers" and (case.act.startswith("gelu") or case.alpha == 0.5 or case.beta == 0.5):
        changes["data"] = "real"
    return Case(**{**{field.name: getattr(case, field.name) for field in fields(Case)}, **changes})


def cases_for(place: str, soak: bool, only: str | None) -> list[Case]:
    """The cases of a place: "cpu" and "native" (a GPU) outside the browser, "page" (the CPU road) and "browser" (a GPU) in it."""
    if only:
        return [Case.parse(only)]
    types = CPU_TYPES if place in ("cpu", "page") else GPU_TYPES
    sampled = {"cpu": (255, 400, 200, 60), "page": (68, 120, 60, 20), "native": (136, 300, 100, 200), "browser": (85, 160, 50, 40)}
    exact, options, rounded, edges = sampled[place]
    on_gpu = place in ("native", "browser")
    cases = exact_cases(types, None if soak else exact) + option_cases(types, 4000 if soak else options)
    cases += rounded_once_cases(types, 2000 if soak else rounded, on_gpu=on_gpu)
    return list(dict.fromkeys(cases + edge_cases(None if soak else edges, forced=on_gpu)))


# -- data --------------------------------------------------------------------------------------------------------------------


def bfloat16_values(bits: np.ndarray) -> np.ndarray:
    values: np.ndarray = (bits.astype(np.uint32) << 16).view(np.float32)
    return values


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """Float64 to bfloat16 bits, rounded once to nearest even, by scaling to integers (no shifting of float32 bits)."""
    values = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        _, exponent = np.frexp(values)
        step = np.exp2(np.maximum(exponent - 8, -133).astype(np.float64))
        rounded = np.where(np.isfinite(values), np.rint(values / step) * step, values)
        return (rounded.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def to_type(values: np.ndarray, element: str) -> np.ndarray:
    """Float64 values as an array of `element` (bfloat16: uint16 bits), each rounded once."""
    if element == "bfloat16":
        return bfloat16_bits(values)
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(element)


def to_float64(array: np.ndarray, element: str) -> np.ndarray:
    return (bfloat16_values(array) if element == "bfloat16" else array).astype(np.float64)


def _values(case: Case, source: np.random.Generator, shape: tuple[int, ...], element: str = "float32") -> np.ndarray:
    if case.data == "spread":
        return exactly.spread(source, shape, element)
    if case.data == "integers":
        return source.integers(-3, 4, shape).astype(np.float64)
    return source.uniform(-1.0, 1.0, shape)


def _place(values: np.ndarray, element: str, layout: str) -> np.ndarray:
    """The values in an array of that memory layout."""
    array = to_type(values, element)
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "sliced":
        roomy = np.full((*array.shape[:-2], array.shape[-2] * 2 + 1, array.shape[-1] * 3 + 2), array.dtype.type(9), array.dtype)
        view = roomy[..., 1::2, 2::3]
        view[...] = array
        return view
    if layout == "negative":
        return np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]
    if layout == "zero":
        return np.broadcast_to(array[..., :1, :], array.shape)
    return array


def _batches(case: Case) -> tuple[tuple[int, ...], tuple[int, ...]]:
    def shape(text: str) -> tuple[int, ...]:
        return tuple(int(each) for each in text.split("x")) if text else ()

    left, _, right = case.batch.partition("~")
    return shape(left), shape(right if "~" in case.batch else left)


@dataclass
class Trial:
    """A case with its data, ready to be called, and what to compare the result with."""

    case: Case
    arguments: dict[str, Any]
    a: np.ndarray
    b: np.ndarray
    reference: np.ndarray
    bound: np.ndarray | None
    surroundings: np.ndarray | None


def build(case: Case) -> Trial:
    """The operands and the reference. The data depend on the case alone."""
    source = np.random.default_rng(zlib.crc32(case.id.encode()))
    batch_a, batch_b = _batches(case)
    shape_a = (*batch_a, *((case.k, case.m) if case.ta else (case.m, case.k)))
    shape_b = (*batch_b, *((case.n, case.k) if case.tb else (case.k, case.n)))
    a = _place(_values(case, source, shape_a, case.a), case.a, case.layout)
    b = _place(_values(case, source, shape_b, case.b), case.b, case.layout)
    wide_a, wide_b = to_float64(a, case.a), to_float64(b, case.b)
    op_a = np.swapaxes(wide_a, -1, -2) if case.ta else wide_a
    op_b = np.swapaxes(wide_b, -1, -2) if case.tb else wide_b
    product = np.matmul(op_a, op_b)
    size = np.matmul(np.abs(op_a), np.abs(op_b)) * abs(case.alpha)
    reference = case.alpha * product if case.alpha else np.zeros_like(product)
    arguments: dict[str, Any] = {
        "alpha": case.alpha, "transpose_a": bool(case.ta), "transpose_b": bool(case.tb), "mode": case.mode,
        "batch_invariant": bool(case.invariant),
        "dtype_a": "bfloat16" if case.a == "bfloat16" else None, "dtype_b": "bfloat16" if case.b == "bfloat16" else None,
    }  # fmt: skip
    if case.dtype:
        arguments["dtype"] = case.dtype
    c = wide_c = None
    if case.c:
        shape_c = {"full": reference.shape, "row": (case.n,), "column": (case.m, 1), "scalar": (1,)}[case.c_shape]
        c = to_type(_values(case, source, shape_c, case.c), case.c)
        arguments |= {"c": c, "beta": case.beta, "dtype_c": "bfloat16" if case.c == "bfloat16" else None}
        wide_c = to_float64(c, case.c)
        if case.beta == 0.0:
            c[...] = to_type(np.full((), np.nan), case.c)  # beta 0: c is not read
        else:
            reference = reference + case.beta * wide_c
            size = size + abs(case.beta) * np.abs(wide_c)
    if case.bias:
        bias = _values(case, source, (case.n,)).astype(np.float32)
        arguments["bias"] = bias
        reference = reference + bias.astype(np.float64)
        size = size + np.abs(bias)
    before = reference
    if case.act:
        arguments["activation"] = case.act
        reference = ACTIVATIONS[case.act](reference)
    if case.mode == "exact":
        reference = exactly.expression(
            op_a, op_b, wide_c, arguments.get("bias"), case.alpha, case.beta, case.act == "relu", case.result
        )
    surroundings = None
    if case.out == "c" and c is not None:
        arguments["out"] = c
    elif case.out in ("dense", "strided"):
        kept = np.uint16 if case.result == "bfloat16" else np.dtype(case.result)
        if case.out == "dense":
            arguments["out"] = np.full(reference.shape, 55, kept)
        else:
            shape = (*reference.shape[:-2], reference.shape[-2] * 2 + 3, reference.shape[-1] * 3 + 2)
            surroundings = np.full(shape, to_type(np.full((), SENTINEL), case.result), kept)
            arguments["out"] = surroundings[..., 1 : 1 + 2 * case.m : 2, 1 : 1 + 3 * case.n : 3]
    return Trial(case, arguments, a, b, reference, None if is_exact(case) else _bound(case, before, reference, size), surroundings)


def is_exact(case: Case) -> bool:
    """Whether the result must be the reference itself, bit for bit."""
    return case.data == "integers" or case.mode == "exact"


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x) if x.size else x


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.where(x > 0, x, np.where(np.isnan(x), x, 0.0)),
    "gelu_erf": lambda x: x * (1 + _erf(x / np.sqrt(2.0))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
}


def _bound(case: Case, before: np.ndarray, reference: np.ndarray, size: np.ndarray) -> np.ndarray:
    """|d - ref| <= gamma (|alpha| |A||B| + |beta C| + |bias|) + the activation's own error + half an ulp of the result.

    gamma = (k + 6) u / (1 - (k + 6) u): sums of k products in any order, then the three roundings of alpha, beta and bias
    and those of alpha, beta themselves (Higham, Accuracy and Stability, 3.1 and 4.2). gelu has slope below 1.13.
    """
    double = "float64" in (case.a, case.b)
    roundoff = ROUNDOFF["float64" if double else "float32"]
    steps = (case.k + 6) * roundoff
    error = steps / (1 - steps) * size + 2.0**-149
    if case.act.startswith("gelu"):
        own = 4e-7 if not double else 4e-15
        error = 1.13 * error + own * (1 + np.abs(before))
    bound: np.ndarray = error + ROUNDOFF[case.result] * (np.abs(reference) + error) + SMALLEST[case.result]
    return bound


def check(trial: Trial, result: Any) -> None:
    """AssertionError saying where and by how much."""
    case, reference = trial.case, trial.reference
    result = np.asarray(result)
    expected = np.dtype(np.uint16) if case.result == "bfloat16" else np.dtype(case.result)
    if result.dtype.name == "bfloat16":
        result = result.view(np.uint16)
    assert result.dtype == expected, f"{case.id}: the result is {result.dtype}, not {expected}"
    assert result.shape == reference.shape, f"{case.id}: the result has shape {result.shape}, not {reference.shape}"
    got = to_float64(result, case.result)
    if is_exact(case):
        wanted = to_float64(to_type(reference, case.result), case.result)
        wrong = np.argwhere(got != wanted)
        assert not wrong.size, (
            f"{case.id}: {len(wrong)} of {got.size} elements differ; "
            f"first at {wrong[0]}: {got[tuple(wrong[0])]}, not {wanted[tuple(wrong[0])]}"
        )
    elif got.size:
        assert trial.bound is not None
        excess = np.abs(got - reference) - trial.bound
        worst = np.unravel_index(int(np.argmax(np.where(np.isnan(excess), np.inf, excess))), excess.shape)
        assert np.all(excess <= 0), f"{case.id}: at {worst} {got[worst]}, not {reference[worst]} within {trial.bound[worst]}"
        top = np.max(np.abs(reference))
        scaled = np.max(np.abs(got - reference)) / top if top else 0.0
        bound = max(SCALED_BOUND[case.result], SCALED_BOUND["float64" if "float64" in (case.a, case.b) else "float32"])
        assert scaled <= bound or top < 1e-3, f"{case.id}: the scaled error is {scaled}, more than {bound}"
    if trial.surroundings is not None:
        around = trial.surroundings.copy()
        around[..., 1 : 1 + 2 * case.m : 2, 1 : 1 + 3 * case.n : 3] = to_type(np.full((), SENTINEL), case.result)
        assert np.all(around == to_type(np.full((), SENTINEL), case.result)), f"{case.id}: elements outside out were written"


def run(case: Case, device: Any) -> None:
    trial = build(case)
    with _forced(case):
        result = pg.gemm(trial.a, trial.b, device=device, **trial.arguments)
    check(trial, result)


async def run_async(case: Case, device: Any) -> None:
    trial = build(case)
    with _forced(case):
        result = await pg.gemm_async(trial.a, trial.b, device=device, **trial.arguments)
    check(trial, result)


@contextmanager
def _forced(case: Case) -> Iterator[None]:
    """The knob `variant` at the case's row, so that a row that is not taken is an error; decisions made before are forgotten."""
    if not case.variant:
        yield
        return
    set_knobs(variant=case.variant)
    forget_prepared()
    try:
        yield
    finally:
        set_knobs(variant=None)
        forget_prepared()
