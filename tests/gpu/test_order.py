"""The order of summation is the one the variant states, bit for bit; two runs give the same bits; and the accuracy that follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32
from py_gemm.exact.orders import Chain, replay
from py_gemm.gpu import probe
from py_gemm.gpu.variants import TILED, Shape

from . import tools
from .tools import TYPES, numpy_type, product, replayed

# Operands as pieces of a product so large that neither its k is split nor its rows are few.
LARGE = Shape(1 << 20, 64, 4096)
DEPTHS = [1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 144, 160, 300, 1000]


def data(type_: Any, m: int, n: int, k: int) -> tuple[Any, Any]:
    rng = np.random.default_rng((type_.code, m, n, k))
    return tuple(rng.uniform(0.5, 2.0, shape).astype(numpy_type(type_)) for shape in ((m, k), (k, n)))  # type: ignore[return-value]


@pytest.mark.parametrize("type_", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("k", DEPTHS)
def test_sums_of_halves_have_the_stated_order_bit_for_bit(device: Any, type_: Any, k: int) -> None:
    """A product of two halves is exact in float32, so fused or not the bits are the same on every device."""
    a, b = data(type_, 5, 7, k)
    expected = replayed(TILED, a, b, fused=True)
    assert np.array_equal(expected, replayed(TILED, a, b, fused=False))
    assert np.array_equal(product(device, a, b, whole=LARGE), expected)


@pytest.mark.parametrize("k", DEPTHS)
def test_sums_of_float32_have_it_fused_or_not(device: Any, k: int) -> None:
    """WGSL lets fma round twice; a device does one or the other."""
    a, b = data(FLOAT32, 5, 7, k)
    found = product(device, a, b, whole=LARGE)
    assert any(np.array_equal(found, replayed(TILED, a, b, fused=fused)) for fused in (True, False))


def test_another_order_would_be_noticed() -> None:
    a, b = data(FLOAT16, 5, 7, 300)
    assert not np.array_equal(replay(Chain(), a, b, fused=True), replayed(TILED, a, b, fused=True))


@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
def test_two_runs_give_the_same_bits(device: Any, type_: Any) -> None:
    a, b = data(type_, 70, 90, 500)
    first = product(device, a, b)
    assert all(np.array_equal(product(device, a, b).view(np.uint32), first.view(np.uint32)) for _ in range(5))


@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
def test_a_piece_has_the_bits_of_the_whole(device: Any, type_: Any) -> None:
    a, b = data(type_, 70, 90, 200)
    whole = product(device, a, b)
    shape = Shape(70, 90, 200)
    assert np.array_equal(product(device, a[69:], b[:, 89:], whole=shape), whole[69:, 89:])
    assert np.array_equal(product(device, a[3:40], b[:, 5:80], whole=shape), whole[3:40, 5:80])


BOUNDS = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 8e-3}


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("k", [768, 3072, 4096])
def test_accuracy(device: Any, name: str, k: int) -> None:
    """The error is max |found - exact| / max |exact|, exact in float64 from the operands as rounded. Blocked sums: under 4e-7
    (a single chain reaches 1e-6 to 4.5e-6 at these depths)."""
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(shape).astype(numpy_type(TYPES[name])) for shape in ((64, k), (k, 64)))
    exact = tools.reference(a, b)
    error = np.abs(product(device, a, b) - exact).max() / np.abs(exact).max()
    assert error <= BOUNDS[name]
    assert error <= 4e-7


def test_the_probe_finds_a_device_in_order(device: Any) -> None:
    probe.probe(device)
    assert device.capabilities.nan_inf is True
    assert device.capabilities.order_kept is True


def test_the_probe_notices_other_bits(device: Any) -> None:
    before = device.capabilities
    try:
        started = probe.Probe(device)
        for pending in started.start():
            pending.wait()
        started._ordered[0] ^= 1
        started._special[0:4] = bytes(4)
        started.judge()
        assert device.capabilities.nan_inf is False
        assert device.capabilities.order_kept is False
    finally:
        device.capabilities = before
