"""Operands past the binding limit: plans that bind windows of them, cover D once, and have the bits of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product as cross
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import py_gemm as pg
from py_gemm.dtypes import FLOAT16, FLOAT32
from py_gemm.epilogue import Activation
from py_gemm.gpu.capabilities import Capabilities, Limits
from py_gemm.gpu.planner import plan_operation
from py_gemm.gpu.split import choose_ranges
from py_gemm.gpu.steps import dense_layout, operand_bytes
from py_gemm.gpu.variants import EXACT_F16, REGISTER_ROWS, ROWS, ROWS_BY_COLUMNS, TILED, Request, Shape, Variant, choose_variant
from py_gemm.gpu.windows import largest
from py_gemm.prepare import forget_prepared
from py_gemm.problem import Layout, Problem

from .plan_machine import GEMM, Machine
from .tools import replayed


@given(st.integers(1, 500), st.integers(0, 600), st.integers(1, 40))
def test_the_largest_that_fits(most: int, limit: int, step: int) -> None:
    found = largest(most, lambda count: count <= limit, step)
    fitting = [count for count in (0, *range(step, most, step), most) if count <= limit]
    assert found == fitting[-1]


def whole_numbers(rng: Any, layout: Layout, rows: int, columns: int, batch: tuple[int, ...]) -> tuple[bytes, Any]:
    """Memory of whole numbers from -2 to 2, and the matrices that the layout finds there."""
    kind = "f4" if layout.type is FLOAT32 else "f2"
    memory = rng.integers(-2, 3, -(-layout.extent(rows, columns, batch)[1] // 2) * 2).astype(kind)
    at = layout.offset + np.arange(rows)[:, None] * layout.row_stride + np.arange(columns) * layout.column_stride
    for axis, (size, stride) in enumerate(zip(batch, layout.batch_strides, strict=True)):
        at = at + (np.arange(size) * stride).reshape(-1, *(1,) * (len(batch) - 1 - axis + 2))
    return memory.tobytes(), memory[np.broadcast_to(at, (*batch, rows, columns))].astype("f8")


def stored(type_: Any, rows: int, columns: int, batch: tuple[int, ...], *, transposed: bool, pad: int, shared: bool) -> Layout:
    """A matrix with `pad` elements behind each stored row."""
    lead = (rows if transposed else columns) + pad
    size = lead * (columns if transposed else rows)
    strides = dense_layout(1, size, batch).batch_strides
    return Layout(type_, *((1, lead) if transposed else (lead, 1)), (0,) * len(batch) if shared else strides, 3)


@given(
    st.sampled_from([TILED, ROWS, ROWS_BY_COLUMNS, REGISTER_ROWS[0]]), st.integers(1, 150), st.integers(1, 150),
    st.integers(1, 700), st.lists(st.integers(1, 3), max_size=2).map(tuple), st.integers(4600, 40_000),
    st.booleans(), st.booleans(), st.data(),
)  # fmt: skip
def test_plans_within_any_binding_cover_d_once(
    row: Variant, m: int, n: int, k: int, batch: tuple[int, ...], limit: int, a_turned: bool, b_turned: bool, data: st.DataObject
) -> None:
    """Run on the host: every element of D is written once, with the right number, from windows that keep the limit; parts of k
    begin where the order of summation lets them."""
    m = min(m, row.tile[0]) if row.shape_conditions else m
    types = [FLOAT32 if row in REGISTER_ROWS else data.draw(st.sampled_from([FLOAT32, FLOAT16])) for _ in range(2)]
    pads, shared = [data.draw(st.sampled_from([0, 5])) for _ in range(2)], [data.draw(st.booleans()) for _ in range(2)]
    result = data.draw(st.sampled_from([FLOAT32, FLOAT16]))
    a = stored(types[0], m, k, batch, transposed=a_turned, pad=pads[0], shared=shared[0])
    b = stored(types[1], k, n, batch, transposed=b_turned, pad=pads[1], shared=shared[1])
    problem = Problem(m, n, k, a, b, dense_layout(m, n, batch, result), batch=batch)
    shape = Shape.of(problem)
    limits = replace(Limits(), max_storage_buffer_binding_size=limit // 4 * 4)
    options: dict[str, Any] = {"ranges": choose_ranges(shape, row), "activation": Activation.NONE, "has_bias": True}
    plan = plan_operation(problem, row, limits, **options, most_flops=data.draw(st.sampled_from([None, 1 << 20])))
    rng = np.random.default_rng((m, n, k))
    (bytes_a, left), (bytes_b, right) = whole_numbers(rng, a, m, k, batch), whole_numbers(rng, b, k, n, batch)
    bias = rng.integers(-9, 9, n).astype("f4")
    sizes = {"sum": plan.sum_bytes, "result": plan.result_bytes, "scratch": plan.scratch_bytes, **plan.panels}
    machine = Machine({"a": bytes_a, "b": bytes_b, "bias": bias.tobytes()}, sizes, row, limits.max_storage_buffer_binding_size)
    machine.run(plan.steps)
    name, kind = ("sum", "f4") if result is FLOAT32 else ("result", "f2")
    count = m * n * int(np.prod(batch, dtype=int))
    found = machine.memory[name].view(kind)[:count].reshape(*batch, m, n)
    assert np.array_equal(found, left @ right + bias)
    assert (machine.written["sum"] == 1).all()
    over = max(operand_bytes(a, m, k, batch), operand_bytes(b, k, n, batch), 4 * count) > limit
    assert bool(machine.windows or plan.panels) == over
    for step in plan.steps:
        if step.shader.kernel == row.kernel:
            *_, ranges, terms, _, part = GEMM.unpack(step.parameters)
            assert part % row.unit == 0 or part >= terms or ranges == 1


# -- on a device: the bits of the whole ---------------------------------------------------------------------------------------


class Limited:
    """The shared device with made-up limits; every binding of every dispatch is held against them. `windows` counts the parts."""

    def __init__(self, device: Any) -> None:
        self.device, self.before = device, device.capabilities
        self.windows = 0
        self.execute = device.execute
        device.execute = self._execute

    def limit(self, nbytes: int | None, **others: int) -> None:
        most = {**others} if nbytes is None else {"max_storage_buffer_binding_size": nbytes, **others}
        self.device.capabilities = replace(self.before, limits=replace(self.before.limits, **most))
        forget_prepared()

    def _execute(self, job: Any) -> Any:
        most = self.device.capabilities.limits.max_storage_buffer_binding_size
        for each in job.dispatches:
            for buffer, window in zip(each.buffers, each.windows or (None,) * len(each.buffers), strict=True):
                assert (buffer.nbytes if window is None else window[1]) <= most
                self.windows += window is not None
        return self.execute(job)

    def restore(self) -> None:
        self.device.capabilities = self.before
        del self.device.execute
        forget_prepared()


@pytest.fixture
def limited() -> Iterator[Limited]:
    found = Limited(pg.request_device("wgpu"))
    yield found
    found.restore()


def real(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype(dtype)


PRODUCTS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("one chain of groups", (150, 90, 100), {}),
    ("split k", (130, 70, 700), {"mode": "deterministic"}),
    ("split k, tuned", (130, 70, 700), {}),
    ("few rows", (3, 200, 1100), {}),
    ("few rows, B by columns", (3, 70, 2100), {"transpose_b": True}),
    ("batch", (5, 70, 66, 40), {"transpose_b": True}),
    ("batch invariant", (100, 70, 300), {"batch_invariant": True}),
    ("A by columns", (130, 40, 300), {"transpose_a": True}),
    ("both by columns, as many lanes as terms", (2, 40, 1160), {"transpose_a": True, "transpose_b": True}),
    ("one row and one column", (1, 1, 9000), {}),
    ("rows and columns too long", (40, 3, 5000), {"mode": "deterministic"}),
]


PLACED = [(*row[1:], "device") for row in PRODUCTS] + [(*row[1:], "host") for row in PRODUCTS[-2:]]


@pytest.mark.parametrize(("sizes", "options", "place"), PLACED, ids=[row[0] for row in (*PRODUCTS, *PRODUCTS[-2:])])
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["f32", "f16"])
def test_windows_change_no_bit(limited: Limited, sizes: Any, options: Any, dtype: Any, place: str) -> None:
    *batch, m, n, k = sizes
    a = real(*batch, *((k, m) if options.get("transpose_a") else (m, k)), dtype=dtype)
    b = real(*batch, *((n, k) if options.get("transpose_b") else (k, n)), dtype=dtype, seed=1)
    c = real(*batch, m, n, seed=2)
    if place == "device":
        a, b, c = (pg.asarray(each, device=limited.device) for each in (a, b, c))
    arguments = {
        **options, "alpha": 0.7, "beta": 1.3, "bias": real(n, seed=3), "activation": "gelu_tanh", "dtype": "float16",
        "device": limited.device,
    }  # fmt: skip
    whole = np.asarray(pg.gemm(a, b, c, **arguments))
    variant = pg.last_run().variant  # type: ignore[union-attr]
    limited.limit(8192)
    found = np.asarray(pg.gemm(a, b, c, **arguments))
    assert np.array_equal(found.view("u2"), whole.view("u2"))
    assert limited.windows > 0
    assert pg.last_run().variant == (variant if place == "device" else "panels")  # type: ignore[union-attr]


@pytest.mark.parametrize("turned", list(cross([False, True], repeat=2)), ids=str)
def test_windows_of_exact_products(limited: Limited, turned: tuple[bool, bool]) -> None:
    a = np.ldexp(real(*((700, 70) if turned[0] else (70, 700))), 3).astype("f2")
    b = real(*((50, 700) if turned[1] else (700, 50)), dtype=np.float16, seed=1)
    a.flat[::97] = 2.0**-24
    b.flat[5] = np.inf
    options: dict[str, Any] = {"transpose_a": turned[0], "transpose_b": turned[1], "mode": "exact", "dtype": "float16"}
    placed = [pg.asarray(each, device=limited.device) for each in (a, b)]
    whole = pg.gemm(*placed, **options).numpy()
    limited.limit(6000)
    assert np.array_equal(pg.gemm(*placed, **options).numpy(), whole, equal_nan=True)
    assert limited.windows > 0


@pytest.mark.parametrize("row", [TILED, ROWS, ROWS_BY_COLUMNS], ids=lambda row: row.name)
def test_parts_of_k_are_the_stated_order(limited: Limited, row: Variant) -> None:
    """Sums of halves in several dispatches, against the replay of the order that the row states."""
    m, n, k = (5, 6, 5000) if row is TILED else (2, 6, 5000)
    a, b = np.abs(real(m, k, dtype=np.float16)), np.abs(real(k, n, dtype=np.float16, seed=1))
    by_columns = row is ROWS_BY_COLUMNS
    shape = Shape(m, n, k, b_transposed=by_columns)
    assert choose_variant(Request(Capabilities("vulkan", "any"), FLOAT16, FLOAT16, "deterministic", shape=shape)) is row
    expected = replayed(row, a, b, fused=True, ranges=choose_ranges(shape, row))
    stored = np.ascontiguousarray(b.T) if by_columns else b
    limited.limit(4368)
    placed = [pg.asarray(each, device=limited.device) for each in (a, stored)]
    found = pg.gemm(*placed, transpose_b=by_columns, mode="deterministic", dtype="float32").numpy()
    assert np.array_equal(found, expected)
    assert limited.windows > 0


def test_a_chain_whose_results_pass_a_binding(limited: Limited) -> None:
    """c, out and the intermediate lie on the device, and none of them fits a binding."""
    x, y = real(90, 80), real(80, 90, seed=1)
    whole = pg.gemm(x @ y, x, x, device="cpu", alpha=2.0)
    a, b, out = (pg.asarray(each, device=limited.device) for each in (x, y, np.zeros_like(x)))
    limited.limit(8192)
    product = pg.matmul(a, b)
    assert pg.gemm(product, a, a, alpha=2.0, out=out) is out
    assert np.abs(out.numpy() - whole).max() < 1e-3
    narrow = pg.matmul(pg.asarray(x.astype(ml_dtypes.bfloat16), device=limited.device), b, dtype="bfloat16").numpy()
    assert np.abs(narrow.astype("f4") - x @ y).max() < 0.3


@pytest.mark.parametrize("limit", [600, 1024])
def test_a_result_is_rounded_where_a_binding_holds_few_words(limited: Limited, limit: int) -> None:
    """Pieces shorter than a workgroup still begin at a whole word of the result."""
    a, c = np.ones((31, 20), "f4"), np.random.default_rng(0).integers(-9, 9, (31, 17)).astype("f4")
    placed = pg.asarray(a, device=limited.device)
    limited.limit(limit)
    assert np.array_equal(pg.gemm(placed, a[:20, :17], c, dtype="float16").numpy(), c + 20)
    assert limited.windows > 0


def test_what_cannot_be_cut_is_refused_with_figures(limited: Limited) -> None:
    a, b = pg.asarray(real(64, 64), device=limited.device), real(64, 4)
    limited.limit(240)
    with pytest.raises(pg.UnsupportedError, match=r"operand \w+ needs [\d,]+ bytes for .*, one binding of the device holds 240 "):
        pg.matmul(a, b)
    limited.limit(10_000, max_buffer_size=12_000)
    with pytest.raises(pg.UnsupportedError, match=r"operand a has 16,384 bytes, one buffer of the device holds 12,000 "):
        pg.matmul(a, b)
    with pytest.raises(pg.UnsupportedError, match=r"operand a needs 16,384 bytes for one row or column alone, one buffer .* 12,0"):
        pg.matmul(real(2, 4096), real(4096, 2), device=limited.device)


def test_operands_of_the_host_are_cut_to_what_a_buffer_holds(limited: Limited) -> None:
    """Also where the device would bind more than one of its buffers may have."""
    a, b, c = real(90, 80), real(80, 90, seed=1), real(90, 90, seed=2)
    whole = pg.gemm(a, b, c, device=limited.device)
    limited.limit(None, max_buffer_size=12_000)
    assert np.array_equal(pg.gemm(a, b, c, device=limited.device), whole)
    assert pg.last_run().variant == "panels"  # type: ignore[union-attr]


def test_passes_over_elements_keep_to_a_grid(limited: Limited) -> None:
    """C is gathered, and D rounded, in as many dispatches as a small limit of workgroups asks for."""
    a, c = np.ones((90, 5), "f4"), np.random.default_rng(0).integers(-9, 9, (90, 70)).astype("f4")
    placed = pg.asarray(a, device=limited.device), pg.asarray(c, device=limited.device)
    limited.limit(None, max_compute_workgroups_per_dimension=3)
    found = pg.gemm(placed[0], np.ones((5, 70), "f4"), placed[1], dtype="float16").numpy()
    assert np.array_equal(found, c + 5)


def test_every_row_has_a_unit_that_its_parts_may_have() -> None:
    for row in (TILED, ROWS, ROWS_BY_COLUMNS, EXACT_F16, *REGISTER_ROWS):
        assert row.unit % row.tile[2] == 0
        assert row.deepest is None or row.deepest % row.unit == 0
    assert (TILED.unit, ROWS.unit, ROWS_BY_COLUMNS.unit, EXACT_F16.unit) == (128, 512, 1024, 16)
