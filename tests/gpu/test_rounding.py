"""convert.wgsl and narrow.wgsl over every half, and every tie between two neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from py_gemm.dtypes import BFLOAT16, FLOAT16, ElementType
from py_gemm.gpu.capabilities import Limits
from py_gemm.gpu.device import Dispatch, Job
from py_gemm.gpu.passes import plan_convert, plan_narrow
from py_gemm.problem import Layout

PATTERNS = np.arange(65_536, dtype=np.uint16)
NARROW = {"float16": (FLOAT16, np.dtype(np.float16)), "bfloat16": (BFLOAT16, np.dtype(ml_dtypes.bfloat16))}


def widen(device: Any, bits: Any, type_: ElementType, layout: Layout | None = None, shape: tuple[int, int] | None = None) -> Any:
    rows, columns = shape or (1, bits.size)
    layout = layout or Layout(type_, columns, 1)
    source, target = device.create_buffer(bits), device.create_buffer(4 * rows * columns)
    steps = plan_convert(layout, rows, columns, (), Limits(), source="source", target="target")
    return run(device, steps, {"source": source, "target": target}, target, 4 * rows * columns).view(np.float32)


def narrow(device: Any, values: Any, type_: ElementType, limits: Limits | None = None) -> Any:
    source, target = device.create_buffer(values), device.create_buffer(2 * values.size)
    (step,) = plan_narrow(values.size, type_, limits or Limits())
    return run(device, [step], {"sum": source, "result": target}, target, 2 * values.size).view(np.uint16)


def run(device: Any, steps: Any, buffers: Any, target: Any, nbytes: int) -> Any:
    out = np.empty(nbytes, np.uint8)
    dispatches = [
        Dispatch(each.shader, tuple(buffers[name] for name in each.buffers), each.parameters, each.workgroups) for each in steps
    ]
    device.execute(Job(dispatches=dispatches, reads=[(target, 0, nbytes, out)])).wait()
    return out


def nan_aside(bits: Any, dtype: Any) -> tuple[Any, Any]:
    """(which are NaN, the bits of the others)."""
    nan = np.isnan(bits.view(dtype).astype(np.float32))
    return nan, np.where(nan, 0, bits)


@pytest.mark.parametrize("name", NARROW)
def test_every_pattern_widens_exactly(device: Any, name: str) -> None:
    type_, dtype = NARROW[name]
    found = widen(device, PATTERNS, type_)
    expected = PATTERNS.view(dtype).astype(np.float32)
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(found), nan)
    assert np.array_equal(found.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


@pytest.mark.parametrize("name", NARROW)
def test_every_pattern_comes_back(device: Any, name: str) -> None:
    type_, dtype = NARROW[name]
    found = narrow(device, PATTERNS.view(dtype).astype(np.float32), type_)
    for x, y in zip(nan_aside(found, dtype), nan_aside(PATTERNS, dtype), strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("nudge", [-1, 0, 1])
def test_ties_go_to_even_and_their_neighbours_do_not(device: Any, name: str, nudge: int) -> None:
    """The float32 halfway between each pattern and the next, and the float32 on either side of it."""
    type_, dtype = NARROW[name]
    with np.errstate(invalid="ignore", over="ignore"):
        low = PATTERNS[:-1].view(dtype).astype(np.float64)
        high = PATTERNS[1:].view(dtype).astype(np.float64)
        middle = ((low + high) / 2).astype(np.float32)
    middle = middle[np.isfinite(middle)]
    values = (middle.view(np.int32) + nudge).view(np.float32)
    found = narrow(device, np.ascontiguousarray(values), type_)
    assert np.array_equal(found, rounded(values, dtype))


def rounded(values: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        return values.astype(dtype).view(np.uint16)


@pytest.mark.parametrize("name", NARROW)
def test_any_float32_rounds_as_the_host_rounds(device: Any, name: str) -> None:
    type_, dtype = NARROW[name]
    values = np.random.default_rng(0).integers(0, 2**32, 1 << 18, dtype=np.uint32).view(np.float32)
    edges = np.array([65504, 65519.996, 65520, 65536, 3.4e38, np.inf, 2**-24, 2**-25, 2**-25 * 1.0000001, 2**-26, 1e-40, 0], "f4")
    values = np.concatenate([values, edges, -edges])
    found = narrow(device, values, type_)
    for x, y in zip(nan_aside(found, dtype), nan_aside(rounded(values, dtype), dtype), strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize("count", [1, 2, 3, 255, 511, 512, 513, 1025])
def test_an_odd_count_leaves_the_upper_half_of_the_last_word_zero(device: Any, count: int) -> None:
    values = np.arange(1, count + 1, dtype=np.float32)
    source, target = device.create_buffer(values), device.create_buffer(2 * count)
    (step,) = plan_narrow(count, FLOAT16, Limits())
    words = -(-count // 2)
    out = run(device, [step], {"sum": source, "result": target}, target, 4 * words).view(np.uint16)
    assert np.array_equal(out[:count], values.astype(np.float16).view(np.uint16))
    assert not out[count:].any()


def test_a_grid_of_several_rows_leaves_nothing_out(device: Any) -> None:
    values = np.random.default_rng(1).standard_normal(5 * 512 + 3).astype("f4")
    limits = replace(Limits(), max_compute_workgroups_per_dimension=3)
    assert plan_narrow(values.size, FLOAT16, limits)[0].workgroups == (3, 2, 1)
    assert np.array_equal(narrow(device, values, FLOAT16, limits), values.astype(np.float16).view(np.uint16))


def test_a_strided_gather(device: Any) -> None:
    base = np.arange(1, 400, dtype=np.float16)
    layout = Layout(FLOAT16, -20, 3, (), 390)
    found = widen(device, base.view(np.uint16), FLOAT16, layout, (19, 3)).reshape(19, 3)
    expected = base[390 - 20 * np.arange(19)[:, None] + 3 * np.arange(3)]
    assert np.array_equal(found, expected.astype("f4"))
