"""Long integer products and large operands through the front door: pieces, panels, progress; always the integers of the whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import py_gemm as pg
from py_gemm.errors import UnsupportedError
from py_gemm.prepare import forget_prepared


@pytest.fixture
def device() -> Iterator[Any]:
    """The shared device, its limits and its pace put back afterwards."""
    found = pg.request_device("wgpu")
    before = found.capabilities
    forget_prepared()
    yield found
    found.capabilities = before
    found._pace = None
    forget_prepared()


def limit(device: Any, **limits: int) -> None:
    device.capabilities = replace(device.capabilities, limits=replace(device.capabilities.limits, **limits))
    forget_prepared()


class Product:
    """Operands with a zero point for each row and column, a requantization by row and by column, and what must come out."""

    def __init__(self, *sizes: int) -> None:
        *batch, m, n, k = sizes
        rng = np.random.default_rng(sizes)
        self.a = rng.integers(-128, 128, (*batch, m, k)).astype("i1")
        self.b = rng.integers(0, 256, (k, n)).astype("u1")
        self.zeros: dict[str, Any] = {"zero_point_a": rng.integers(-128, 128, (m, 1)), "zero_point_b": rng.integers(0, 256, n)}
        scale, bias = rng.uniform(1e-4, 1e-2, n).astype("f4"), rng.integers(-9999, 9999, (m, 1))
        self.rules = pg.Requantize(scale, -5, bias)
        self.sums = (self.a.astype("i8") - self.zeros["zero_point_a"]) @ (self.b.astype("i8") - self.zeros["zero_point_b"])
        self.bytes = np.clip(np.rint((self.sums + bias) * scale.astype("f8")) - 5, -128, 127)


SIZES = [(300, 200, 100), (3, 500, 300), (5, 70, 66, 40), (16, 129, 65)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("bytes_of_binding", [4096, 20_000])
def test_operands_past_the_binding_limit_go_in_panels(device: Any, sizes: tuple[int, ...], bytes_of_binding: int) -> None:
    case = Product(*sizes)
    limit(device, max_storage_buffer_binding_size=bytes_of_binding)
    assert np.array_equal(pg.int8_gemm(case.a, case.b, **case.zeros, device=device), case.sums)
    out = np.full((*case.sums.shape[:-1], 2 * case.sums.shape[-1]), 55, "i1")
    pg.int8_gemm(case.a, case.b, **case.zeros, requantize=case.rules, out=out[..., ::2], device=device)
    assert np.array_equal(out[..., ::2], case.bytes)
    assert np.all(out[..., 1::2] == 55)


@pytest.mark.parametrize("sizes", [*SIZES, (1, 1, 9000), (20, 3, 9000), (2, 9000, 30)], ids=str)
@pytest.mark.parametrize("by_columns", [False, True])
def test_what_lies_on_the_device_is_cut_too(device: Any, sizes: tuple[int, ...], by_columns: bool) -> None:
    case = Product(*sizes)
    a = pg.asarray(case.a, device=device)
    b = np.asfortranarray(case.b) if by_columns else pg.asarray(case.b, device=device)
    limit(device, max_storage_buffer_binding_size=4096)
    assert np.array_equal(pg.int8_gemm(a, b, **case.zeros).numpy(), case.sums)
    out = pg.asarray(np.zeros(case.sums.shape, "i1"), device=device)
    pg.int8_gemm(a, b, **case.zeros, requantize=case.rules, out=out)
    assert np.array_equal(out.numpy(), case.bytes)


def test_what_cannot_be_cut_is_refused_with_figures(device: Any) -> None:
    a = pg.asarray(np.zeros((4, 700), "i1"), device=device)
    limit(device, max_storage_buffer_binding_size=256)
    with pytest.raises(UnsupportedError, match=r"int8_gemm: operand a needs .* bytes for .*, one binding of the device holds 256"):
        pg.int8_gemm(a, np.zeros((700, 3), "i1"))


@pytest.mark.parametrize("sizes", [*SIZES, (40, 1, 3, 2)], ids=str)
def test_grids_past_the_limit_of_an_axis_are_cut(device: Any, sizes: tuple[int, ...]) -> None:
    case = Product(*sizes)
    limit(device, max_compute_workgroups_per_dimension=2)
    assert np.array_equal(pg.int8_gemm(case.a, case.b, **case.zeros, device=device), case.sums)
    assert np.array_equal(pg.int8_gemm(case.a, case.b, **case.zeros, requantize=case.rules, device=device), case.bytes)


def test_a_deep_product_within_small_limits(device: Any) -> None:
    """K in parts, pieces by the grid and by the scratch, and requantized rows and columns, all at once."""
    case = Product(2, 70, 131, 33_000)
    limit(device, max_compute_workgroups_per_dimension=1)
    assert np.array_equal(pg.int8_gemm(case.a, case.b, **case.zeros, requantize=case.rules, device=device), case.bytes)
    assert np.array_equal(pg.int8_gemm(case.a, case.b, **case.zeros, device=device), case.sums)
    few = Product(3, 70, 33_000)
    assert np.array_equal(pg.int8_gemm(few.a, few.b, **few.zeros, requantize=few.rules, device=device), few.bytes)


def test_a_batch_of_70000(device: Any) -> None:
    a = np.arange(70_000 * 2, dtype="i4").astype("i1").reshape(70_000, 1, 2)
    b = np.array([[3], [-2]], "i1")
    assert np.array_equal(pg.int8_gemm(a, a.swapaxes(1, 2), device=device), a.astype("i4") @ a.swapaxes(1, 2).astype("i4"))
    assert np.array_equal(pg.int8_gemm(a, b, device=device), a.astype("i4") @ b.astype("i4"))


@pytest.mark.parametrize("requantized", [False, True])
def test_long_products_go_in_several_submissions_and_tell_how_far(device: Any, requantized: bool) -> None:
    case = Product(260, 200, 128)
    rules = case.rules if requantized else None
    expected = case.bytes if requantized else case.sums
    device.pace.rate = 1.0
    device.pace.note = lambda *_: None
    told: list[float] = []
    result = asyncio.run(pg.int8_gemm_async(case.a, case.b, **case.zeros, requantize=rules, device=device, progress=told.append))
    assert np.array_equal(result, expected)
    assert len(told) > 3
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert np.array_equal(pg.int8_gemm(case.a, case.b, **case.zeros, requantize=rules, device=device), expected)


def test_a_stopped_product_changes_nothing(device: Any) -> None:
    case = Product(260, 200, 128)
    device.pace.rate = 1.0
    device.pace.note = lambda *_: None
    out = np.full(case.sums.shape, 55, "i4")

    def stop(fraction: float) -> None:
        raise KeyError(fraction)

    with pytest.raises(KeyError):
        asyncio.run(pg.int8_gemm_async(case.a, case.b, **case.zeros, out=out, device=device, progress=stop))
    assert np.all(out == 55)
    assert np.array_equal(pg.int8_gemm(case.a, case.b, **case.zeros, device=device), case.sums)
