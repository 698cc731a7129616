"""`mode="exact"` of the front door against the reference, which shares no code with its kernels: the same bits from both."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import py_gemm as pg
import py_gemm.exact as er
from py_gemm.exact.formats import FORMATS

from .numbers import wide_matrix

TYPES: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
SHAPES = [(1, 1, 1), (1, 40, 9), (7, 33, 1), (13, 64, 21), (40, 300, 30)]


def operands(name: str, shape: tuple[int, int, int], *, special: bool) -> list[Any]:
    m, k, n = shape
    rng = np.random.default_rng(m + k)
    found = []
    for size in ((m, k), (k, n), (m, n)):
        values = wide_matrix(rng, size, FORMATS[name])
        if special:
            values = np.where(rng.uniform(size=size) < 0.02, rng.choice([np.inf, -np.inf, np.nan, -0.0], size), values)
        found.append(values.astype(TYPES[name]))
    return found


def same(found: Any, wanted: er.Array) -> bool:
    """The same bits, but any NaN for any NaN."""
    theirs = wanted.numpy()
    assert found.dtype == theirs.dtype
    nan = np.isnan(wanted.values)
    both = nan & np.isnan(found.astype(np.float64))
    return bool((both | (found.view(f"u{found.itemsize}") == theirs.view(f"u{theirs.itemsize}"))).all())


@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_the_cpu_road_gives_the_rounded_value(name: str, shape: tuple[int, int, int], special: bool) -> None:
    a, b, c = operands(name, shape, special=special)
    for result in TYPES:
        found = pg.matmul(a, b, mode="exact", dtype=result, device="cpu")
        assert same(found, er.gemm(a, b, dtype=result).rounded), result
        found = pg.gemm(a, b, c, alpha=-0.3, beta=0.7, mode="exact", dtype=result, device="cpu")
        assert same(found, er.gemm(a, b, c, alpha=-0.3, beta=0.7, dtype=result).rounded), result


@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_gpu_gives_the_rounded_value_of_float16(shape: tuple[int, int, int], special: bool) -> None:
    a, b, c = operands("float16", shape, special=special)
    device = pg.request_device("wgpu")
    for result in ("float16", "bfloat16", "float32"):
        found = pg.gemm(a, b, c, alpha=-0.5, beta=3, mode="exact", dtype=result, device=device)
        run = pg.last_run()
        assert run is not None
        assert run.variant == "exact-f16"
        assert same(found, er.gemm(a, b, c, alpha=-0.5, beta=3, dtype=result).rounded), result


@pytest.mark.parametrize("k", [1, 63, 1024, 4096])
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_products_of_a_gpu_are_normal(name: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((17, k)).astype(TYPES[name]), rng.standard_normal((k, 13)).astype(TYPES[name])
    device = pg.request_device("wgpu")
    result = er.matmul(a, b)
    for options in ({}, {"mode": "deterministic"}, {"batch_invariant": True}):
        found = pg.matmul(a, b, device=device, **options)
        assert result.covers(found).all(), options
    row = pg.matmul(a[:1], b, device=device)
    assert er.matmul(a[:1], b).covers(row).all()
