"""Integers on every road there is, each forced by name: the CPU, and each row of the GPU's table, with and without dot4I8Packed.

Every product of two bytes, every pair of extremes at a depth of 4096, and sums that wrap.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import py_gemm as pg
from py_gemm.gpu.int8_variants import INT8_VARIANTS

PAIRS = list(product(("int8", "uint8"), repeat=2))


class Road:
    """`device="cpu"`, or wgpu with one row forced; `most_rows` of A at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind = "cpu" if name == "cpu" else "wgpu"
        self.most_rows = 16 if "skinny" in name else 256

    def multiply(self, a: Any, b: Any, **options: Any) -> Any:
        result = pg.int8_gemm(a, b, device=self.kind, **options)
        run = pg.last_run()
        assert run is not None
        assert run.variant in (("gemm_i8_4x8_i16", "gemv_i8_4x8_i16") if self.kind == "cpu" else (self.name,))
        return result


@pytest.fixture(scope="module", params=["cpu", *(row.name for row in INT8_VARIANTS)])
def road(request: pytest.FixtureRequest) -> Iterator[Road]:
    pg.configure(variant=None if request.param == "cpu" else request.param)
    yield Road(request.param)
    pg.configure(variant=None)


def every(element: str) -> Any:
    info = np.iinfo(element)
    return np.arange(info.min, info.max + 1).astype(element)


def wrapped(sums: Any) -> Any:
    return (np.asarray(sums) % (1 << 32)).astype(np.uint32).view(np.int32)


@pytest.mark.parametrize(("type_a", "type_b"), PAIRS)
def test_all_65536_products_of_two_bytes(road: Road, type_a: str, type_b: str) -> None:
    values_a, values_b = every(type_a), every(type_b)
    expected = np.multiply.outer(values_a.astype(np.int64), values_b.astype(np.int64))
    for start in range(0, 256, road.most_rows):
        rows = slice(start, start + road.most_rows)
        assert np.array_equal(road.multiply(values_a[rows, None], values_b[None, :]), expected[rows])


@pytest.mark.parametrize(("type_a", "type_b"), PAIRS)
def test_every_pair_of_extremes_at_depth_4096(road: Road, type_a: str, type_b: str) -> None:
    """Operands and zero points at both ends of their ranges, all 16 combinations; all -128 among them."""
    ends_a, ends_b = (np.iinfo(type_a).min, np.iinfo(type_a).max), (np.iinfo(type_b).min, np.iinfo(type_b).max)
    for end_a, end_b, zero_a, zero_b in product(ends_a, ends_b, ends_a, ends_b):
        a, b = np.full((5, 4096), end_a, type_a), np.full((4096, 9), end_b, type_b)
        result = road.multiply(a, b, zero_point_a=zero_a, zero_point_b=zero_b)
        assert np.all(result == 4096 * (end_a - zero_a) * (end_b - zero_b)), (end_a, end_b, zero_a, zero_b)


@pytest.mark.parametrize("depth", [33_025, 33_026, 66_051, 66_052, 70_001])
def test_sums_wrap_modulo_2_to_the_32(road: Road, depth: int) -> None:
    a, b = np.full((2, depth), 255, "u1"), np.full((depth, 5), 255, "u1")
    b[:, 1] = 0
    expected = wrapped(np.full((2, 5), depth * 255 * 255) * np.array([1, 0, 1, 1, 1]))
    assert np.array_equal(road.multiply(a, b), expected)
    expected = wrapped(np.full((2, 5), -depth * 255 * 255) * np.array([0, 1, 0, 0, 0]))
    assert np.array_equal(road.multiply(a, b, zero_point_b=255), expected)


@pytest.mark.parametrize("depth", [32_768, 32_769, 140_001, 300_000])
@pytest.mark.parametrize("step", [1, 2], ids=["neighbours", "scattered"])
def test_any_depth(road: Road, depth: int, step: int) -> None:
    """Mesa's llvmpipe ends loops after 65,535 iterations: no invocation may need more, however deep the product."""
    rng = np.random.default_rng(depth)
    a = rng.integers(-128, 128, (2, 3, step * depth)).astype("i1")[..., ::step]
    b = rng.integers(0, 256, (step * depth, 5)).astype("u1")[::step]
    sums = (a.astype("i8") + 5) @ (b.astype("i8") - [[1, 2, 3, 4, 255]])
    zeros = {"zero_point_a": -5, "zero_point_b": [[1, 2, 3, 4, 255]]}
    assert np.array_equal(road.multiply(a, b, **zeros), wrapped(sums))
    bias = rng.integers(-(1 << 20), 1 << 20, (3, 1))
    expected = np.clip(np.rint((wrapped(sums) + bias) * 2.0**-18) + 1, 0, 255)
    assert np.array_equal(road.multiply(a, b, **zeros, requantize=pg.Requantize(2.0**-18, 1, bias, "uint8")), expected)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (1, 129, 67), (3, 5, 63), (4, 32, 64), (13, 33, 65), (16, 31, 129), (9, 4, 300)]
)
def test_requantized_words_of_every_shape(road: Road, m: int, n: int, k: int) -> None:
    """Rows that begin at any byte of a word; the bytes of neighbouring rows share words."""
    rng = np.random.default_rng(m * n + k)
    a, b = rng.integers(-128, 128, (2, m, k)).astype("i1"), rng.integers(0, 256, (k, n)).astype("u1")
    zeros = rng.integers(0, 256, (1, n))
    scale, bias = rng.uniform(1e-4, 1e-2, (m, 1)).astype("f4"), rng.integers(-9999, 9999, n)
    sums = a.astype("i8") @ (b.astype("i8") - zeros) + bias
    expected = np.clip(np.rint(sums * scale.astype("f8")) + 9, 0, 255)
    rules = pg.Requantize(scale, 9, bias, "uint8")
    assert np.array_equal(road.multiply(a, b, zero_point_b=zeros, requantize=rules), expected)
