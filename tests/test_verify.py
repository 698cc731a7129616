"""`verify`: right results are covered, wrong ones are found where they are wrong, and what the verdict says is so."""

from __future__ import annotations

import asyncio
import importlib
import struct
import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import py_gemm as pg
import py_gemm.exact as er
from py_gemm.dtypes import FLOAT_TYPES
from py_gemm.report.picture import map_colours, png
from py_gemm.report.sampling import MOST_PRODUCTS, Sample, choose_sample, draw
from py_gemm.report.verify import unit_in_the_last_place

TYPES: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}


def operands(element: str, m: int, k: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(seed)
    return source.standard_normal((m, k)).astype(TYPES[element]), source.standard_normal((k, n)).astype(TYPES[element])


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("mode", ["fast", "deterministic", "exact"])
def test_our_own_results_are_covered(element: str, mode: str) -> None:
    a, b = operands(element, 23, 150, 31)
    verdict = pg.verify(a, b, pg.matmul(a, b, mode=mode, device="cpu"))
    assert verdict
    assert verdict.checked == verdict.covered_elements == 23 * 31
    assert verdict.dtype == element
    if mode == "exact":
        assert verdict.correctly_rounded == 23 * 31
        assert verdict.worst == ()
        assert verdict.lost_digits == 0.0


def test_numpy_is_covered_and_digits_are_counted() -> None:
    a, b = operands("float32", 40, 300, 50)
    verdict = pg.verify(a, b, a @ b)
    assert verdict.covered
    assert 0.0 < verdict.median_lost_digits < verdict.lost_digits < verdict.digits
    assert verdict.digits == pytest.approx(24 * np.log10(2))
    assert all(0 < each.margin <= 1 for each in verdict.worst)


@pytest.mark.parametrize("element", TYPES)
def test_one_wrong_element_is_found_and_named(element: str) -> None:
    a, b = operands(element, 30, 64, 20)
    result = pg.matmul(a, b, device="cpu")
    wrong = float(result[7, 13]) + 0.5
    result[7, 13] = wrong
    verdict = pg.verify(a, b, result)
    assert not verdict
    assert verdict.covered_elements == verdict.checked - 1
    first = verdict.worst[0]
    assert first.index == (7, 13)
    assert first.margin > 1
    assert first.found == float(np.asarray(wrong).astype(TYPES[element]))
    assert first.rounded == float(pg.matmul(a, b, mode="exact", device="cpu")[7, 13])
    assert verdict.outside[7, 13]
    assert verdict.outside.sum() == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found(bad: float) -> None:
    a, b = operands("float32", 6, 10, 5)
    result = a @ b
    result[2, 3] = bad
    verdict = pg.verify(a, b, result)
    assert not verdict
    assert verdict.worst[0].index == (2, 3)
    assert verdict.worst[0].ulps == np.inf
    a[2, 0] = bad
    assert not pg.verify(a, b, result), "now the whole row is not finite"
    with np.errstate(invalid="ignore"):
        assert pg.verify(a, b, a @ b)


OPTIONS: list[dict[str, Any]] = [
    {"alpha": 0.3}, {"alpha": 0.0, "bias": True}, {"c": "full"}, {"c": "row", "beta": -0.7, "alpha": 1.1},
    {"bias": True, "alpha": 0.3},
    {"c": "full", "beta": 0.1, "bias": True, "alpha": -2.0}, {"c": "full", "bias": True, "alpha": 0.0}, {"activation": "relu"},
    {"c": "full", "bias": True, "activation": "relu"}, {"c": "full", "beta": 0.0},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("element", ["float16", "float32", "float64"])
def test_every_option_of_gemm(element: str, options: dict[str, Any]) -> None:
    source = np.random.default_rng(5)
    a, b = operands(element, 12, 40, 9)
    arguments = dict(options)
    if "c" in arguments:
        arguments["c"] = source.standard_normal((12, 9) if arguments["c"] == "full" else (9,)).astype(np.float32)
    if "bias" in arguments:
        arguments["bias"] = source.standard_normal(9).astype(np.float32)
    turned_a, turned_b = a.T.copy(), b.T.copy()
    arguments |= {"transpose_a": True, "transpose_b": True}
    result = pg.gemm(turned_a, turned_b, device="cpu", **arguments)
    assert pg.verify(turned_a, turned_b, result, **arguments)
    moved = result.copy()
    moved[3, 4] += 1
    assert not pg.verify(turned_a, turned_b, moved, **arguments)


def test_relu_of_a_sum_at_zero() -> None:
    """Where the exact sum is a hair below zero, a correct implementation may return 0 or a hair above; never a negative number."""
    a = np.asarray([[1.0, 1.0, 2.0**-30]], np.float32)
    b = np.asarray([[1.0], [-1.0], [-1.0]], np.float32)
    for value, covered in ((0.0, True), (2.0**-30, True), (-(2.0**-30), False), (1.0, False)):
        assert pg.verify(a, b, np.full((1, 1), value, np.float32), activation="relu").covered is covered, value
    assert not pg.verify(-a, b, np.zeros((1, 1), np.float32) + 1, activation="relu")


def test_batches_vectors_and_tags() -> None:
    source = np.random.default_rng(6)
    a, b = source.standard_normal((3, 1, 5, 7)).astype(np.float32), source.standard_normal((2, 7, 4)).astype(np.float32)
    result = pg.matmul(a, b, device="cpu")
    assert pg.verify(a, b, result)
    result[2, 1, 4, 0] += 1
    assert pg.verify(a, b, result).worst[0].index == (2, 1, 4, 0)
    assert pg.verify(a[0, 0], b[0, :, 0], a[0, 0] @ b[0, :, 0])
    scalar = pg.verify(a[0, 0, 0], b[0, :, 0], a[0, 0, 0] @ b[0, :, 0] + 1)
    assert scalar.worst[0].index == ()
    x, y = operands("bfloat16", 8, 20, 6)
    bits = pg.matmul(x, y, device="cpu").view(np.uint16)
    assert pg.verify(x.view(np.uint16), y.view(np.uint16), bits, dtype_a="bfloat16", dtype_b="bfloat16")
    on_device = pg.asarray(x, device="cpu")
    assert pg.verify(on_device, y, pg.matmul(on_device, y))
    tagged = pg.asarray(x.view(np.uint16), device="cpu", dtype="bfloat16")
    product = pg.matmul(tagged, y)
    assert pg.verify(tagged, y, product)
    assert asyncio.run(pg.verify_async(tagged, y, product, sample=2)).checked == 2 * 6 + 6 * 2


@pytest.mark.parametrize("element", TYPES)
def test_a_wider_or_narrower_result(element: str) -> None:
    """The front door sums in the type that a and b decide, whatever type the result and c have."""
    a, b = operands(element, 9, 133, 8)
    source = np.random.default_rng(8)
    bias = source.standard_normal(8).astype(np.float32)
    options: list[dict[str, Any]] = [{}, {"alpha": 0.3, "beta": 0.7}, {"alpha": 0.0}, {"bias": bias, "beta": 1.0}]
    for name in TYPES:
        verdict = pg.verify(a, b, pg.matmul(a, b, dtype=name, device="cpu"))
        assert verdict
        assert verdict.dtype == name
        for type_c, chosen in zip(TYPES, options, strict=True):
            c = source.standard_normal((9, 8)).astype(TYPES[type_c])
            result = pg.gemm(a, b, c, dtype=name, device="cpu", **chosen)
            assert pg.verify(a, b, result, c, **chosen), (name, type_c, chosen)
            result[4, 5] += 1
            assert pg.verify(a, b, result, c, **chosen).covered_elements == 71, (name, type_c, chosen)


def test_a_wide_c_may_be_narrowed_to_the_type_of_the_sums() -> None:
    a, b, c = np.zeros((1, 0), np.float32), np.zeros((0, 1), np.float32), np.asarray([[0.1]])
    for value, covered in ((0.1, True), (float(np.float32(0.1)), True), (0.1 + 1e-8, False)):
        assert pg.verify(a, b, np.asarray([[value]]), c).covered is covered, value
    x, y = operands("float32", 5, 40, 4)
    wide = np.random.default_rng(1).standard_normal((5, 4))
    for device in ("cpu", "wgpu"):
        assert pg.verify(x, y, pg.gemm(x, y, wide, beta=0.7, dtype="float64", device=device), wide, beta=0.7), device


def test_what_other_libraries_hand_over() -> None:
    a, b = operands("float32", 7, 20, 6)
    left, right = er.asarray(a).astype("bfloat16"), er.asarray(b).astype("bfloat16")
    exact = er.matmul(left, right)
    assert pg.verify(left, right, exact).correctly_rounded == 42
    assert pg.verify(left, right, exact.rounded)
    assert pg.verify(left, right, exact).dtype == "bfloat16"
    assert not pg.verify(left, right, exact.rounded.T.reshape(7, 6))
    with pytest.raises(TypeError, match="has the outputs grad_A, grad_B"):
        pg.verify(left, right, er.gemm.backward(left, right, None, exact))


@pytest.mark.torch
def test_tensors() -> None:
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        a, b = torch.randn(12, 50, dtype=dtype, requires_grad=True), torch.randn(50, 9, dtype=dtype)
        assert pg.verify(a, b, a @ b)
        assert not pg.verify(a, b, (a @ b).flip(0))


def test_a_transposed_result_is_wrong_nearly_everywhere() -> None:
    a, b = operands("float32", 300, 300, 300)
    verdict = pg.verify(a, b, (a @ b).T)
    assert verdict.covered_elements < 1500
    assert verdict.median_lost_digits > 6


def test_arguments_that_do_not_fit() -> None:
    a, b = operands("float32", 4, 5, 6)
    with pytest.raises(pg.ShapeError, match=r"the result has shape \(6, 4\), the product \(4, 6\)"):
        pg.verify(a, b, (a @ b).T)
    with pytest.raises(
        pg.UnsupportedError, match="no bound of sums covers the activation 'gelu_erf'; verify the product without it"
    ):
        pg.verify(a, b, a @ b, activation="gelu_erf")
    with pytest.raises(pg.UnsupportedError, match="power of two"):
        pg.verify(a, b, a @ b, a @ b, alpha=0.3, bias=np.ones(6, np.float32))
    with pytest.raises(ValueError, match="there is no c"):
        pg.verify(a, b, a @ b, beta=2.0)
    with pytest.raises(ValueError, match="sample is the number"):
        pg.verify(a, b, a @ b, sample=0)
    with pytest.raises(TypeError, match="verify: alpha must be a real number, not 1j"):
        pg.verify(a, b, a @ b, alpha=1j)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="integers"):
        pg.verify(a, b, (a @ b).astype(np.int32))
    with pytest.raises(pg.ShapeError, match="bias"):
        pg.verify(a, b, a @ b, bias=np.ones(5, np.float32))


def test_a_sample_finds_a_wrong_tile_and_says_what_it_looked_at() -> None:
    a, b = operands("float32", 200, 50, 300)
    result = a @ b
    verdict = pg.verify(a, b, result, sample=8, seed=3)
    assert verdict
    assert verdict.sample.rows is not None
    assert len(verdict.sample.rows) == len(verdict.sample.columns) == 8
    assert verdict.checked == 8 * 300 + 192 * 8
    assert "8 rows and 8 columns, drawn with seed 3" in repr(verdict)
    assert pg.verify(a, b, result, sample=8, seed=3).sample == verdict.sample
    result[64:128, 64:128] = 0
    assert not pg.verify(a, b, result, sample=8, seed=3)
    result = a @ b
    result[-1, -1] += 1
    assert not pg.verify(a, b, result, sample=2), "the last row and the last column are always looked at"


def test_choice_of_a_sample_at_its_edge() -> None:
    side = round(MOST_PRODUCTS ** (1 / 3))
    assert choose_sample(1, side, side, side, None, 0).is_whole
    large = choose_sample(1, side, side, side + 1, None, 0)
    assert not large.is_whole
    assert large.elements(side, side) * (side + 1) <= MOST_PRODUCTS
    assert choose_sample(1, 9, 7, 5, 9, 0).is_whole
    assert choose_sample(100, 9, 7, 5, 2, 0).items[0::99] == (0,) or len(choose_sample(100, 9, 7, 5, 2, 0).items) <= 4
    assert Sample((0, 1), (1, 2), (0,), 0).elements(5, 4) == 2 * (2 * 4 + 3 * 1)
    huge = choose_sample(1, 10**5, 10**5, 10**5, None, 0)
    assert huge.rows is not None
    assert len(huge.rows) == 2


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("size", [1, 2, 10, 51, 1000])
def test_draws_are_spread_and_hold_both_ends(size: int, count: int) -> None:
    chosen = draw(np.random.default_rng(0), size, count)
    assert len(set(chosen)) == len(chosen) <= max(1, min(size, count))
    assert set(chosen) <= set(range(size))
    if count > 1:
        assert {0, size - 1} <= set(chosen)
        assert len(chosen) >= min(size, count) - 1 - count // 3
    if count >= 3 and size > count:
        assert max(np.diff(chosen)) <= 2 * size / (count - 2) + 2


@pytest.mark.parametrize("name", FLOAT_TYPES)
def test_unit_in_the_last_place(name: str) -> None:
    info = ml_dtypes.finfo(TYPES[name])
    values = np.asarray([1.0, 1.5, 2.0, 0.0, float(info.smallest_subnormal), float(info.tiny), float(info.max)])
    units = unit_in_the_last_place(values, FLOAT_TYPES[name]).tolist()
    eps, least = float(info.eps), float(info.smallest_subnormal)
    assert units[:6] == [eps, eps, 2 * eps, least, least, least]
    assert units[6] == float(info.max) - float(np.nextafter(np.asarray(info.max, TYPES[name]), np.asarray(0, TYPES[name])))


def test_the_picture_is_a_png_of_the_colours() -> None:
    errors = np.asarray([[0.0, 1.0, np.nan], [np.inf, 0.25, 4.0]])
    outside = np.asarray([[False, False, False], [True, False, False]])
    pixels = map_colours(errors, outside)
    assert pixels.shape == (2, 3, 3)
    assert pixels[0, 0].tolist() == [235, 244, 250]
    assert pixels[1, 0].tolist() == [213, 94, 0]
    assert pixels[0, 2].tolist() == [238, 238, 238]
    assert pixels[1, 2].tolist() == [0, 90, 150]
    data = png(pixels)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, kinds, raw = 8, [], b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        kinds.append(kind)
        raw += body if kind == b"IDAT" else b""
        at += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
    lines = zlib.decompress(raw)
    assert lines == b"".join(b"\0" + row.tobytes() for row in pixels)


def test_notebooks_get_text_and_map() -> None:
    a, b = operands("float32", 100, 20, 90)
    result = a @ b
    result[0, 0] = 9e9
    verdict = pg.verify(a, b, result)
    html = verdict._repr_html_()
    assert "covered: NO" in html
    assert 'src="data:image/png;base64,' in html
    assert 'alt="Map of the errors. covered: NO' in html
    assert repr(verdict).startswith("covered: NO (8,999 of 9,000 elements")
    assert verdict.errors.shape == (64, 64)
    assert verdict.outside.sum() == 1
    empty = pg.verify(np.zeros((0, 3), np.float32), np.zeros((3, 2), np.float32), np.zeros((0, 2), np.float32))
    assert empty
    assert "covered: yes (0 of 0" in empty._repr_html_()


@pytest.mark.parametrize(("options", "match"), [({"sample": 2.5}, "sample is"), ({"sample": 2, "seed": None}, "seed is")])
def test_samples_and_seeds_are_integers(options: dict[str, Any], match: str) -> None:
    square = np.ones((4, 4), np.float32)
    with pytest.raises(TypeError, match=match):
        pg.verify(square, square, square @ square, **options)
