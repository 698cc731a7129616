"""Plans under made-up limits: every element of D is written exactly once, and no limit is passed."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32
from py_gemm.epilogue import Activation
from py_gemm.errors import ShapeError, UnsupportedError
from py_gemm.gpu.capabilities import Limits
from py_gemm.gpu.planner import A_ALONG_K, B_ALONG_K, HAS_ADDEND, HAS_BIAS, HAS_PRODUCT, Plan, plan_operation
from py_gemm.gpu.shaders import KERNELS
from py_gemm.gpu.split import Ranges, choose_ranges
from py_gemm.gpu.steps import Step, dense_layout, linear_grid, require_binding, require_one_grid
from py_gemm.gpu.variants import TILED, Shape
from py_gemm.problem import Layout, Problem

GUARANTEED = Limits()

FIELDS = (
    "m", "n", "k", "flags", "alpha", "beta", "activation", "bias_offset",
    "a_offset", "a_row", "a_column", "a_batch", "b_offset", "b_row", "b_column", "b_batch", "d_offset", "d_row", "d_batch",
    "ranges", "range_terms", "d_range", "part_terms",
)  # fmt: skip


def gemm_parameters(step: Step) -> dict[str, Any]:
    return dict(zip(FIELDS, struct.unpack("<4I2f2I15I", step.parameters), strict=True))


def plan(problem: Problem, limits: Limits = GUARANTEED, **options: Any) -> Plan:
    return plan_operation(
        problem, TILED, limits, **{"ranges": Ranges(1, problem.k), "activation": Activation.NONE, "has_bias": False, **options}
    )


def dense(m: int, n: int, k: int, batch: tuple[int, ...] = (), **options: Any) -> Problem:
    return Problem(m, n, k, dense_layout(m, k, batch), dense_layout(k, n, batch), dense_layout(m, n, batch), batch=batch, **options)


def written(step: Step) -> list[int]:
    """The elements of D that a dispatch of the kernel writes, with the grid it has."""
    p = gemm_parameters(step)
    x, y, z = step.workgroups
    rows = [row for row in range(64 * y) if row < p["m"]]
    columns = [column for column in range(64 * x) if column < p["n"]]
    return [
        p["d_offset"] + index * p["d_batch"] + row * p["d_row"] + column for index in range(z) for row in rows for column in columns
    ]


@given(
    st.integers(1, 150), st.integers(1, 150), st.lists(st.integers(1, 5), max_size=3).map(tuple), st.integers(1, 3), st.data()
)  # fmt: skip
def test_every_element_is_written_once_and_no_limit_is_passed(
    m: int, n: int, batch: tuple[int, ...], most: int, data: st.DataObject
) -> None:
    strides = tuple(data.draw(st.sampled_from([0, 1, 1000, -7])) for _ in batch)
    problem = replace(dense(m, n, 3, batch), a=Layout(FLOAT32, 3, 1, strides, 10_000))
    steps = plan(problem, replace(Limits(), max_compute_workgroups_per_dimension=most)).steps
    elements = [index for step in steps for index in written(step)]
    assert sorted(elements) == list(range(m * n * prod(batch)))
    assert all(max(step.workgroups) <= most for step in steps)


SUM_FIELDS = (
    "count", "m", "n", "flags", "alpha", "beta", "activation", "bias_offset", "d_offset", "d_row", "d_batch", "ranges",
)  # fmt: skip


@given(
    st.integers(1, 100), st.integers(1, 100), st.integers(128, 3000), st.lists(st.integers(1, 3), max_size=2).map(tuple),
    st.integers(1, 40), st.integers(64, 20_000), st.one_of(st.none(), st.integers(1 << 12, 1 << 22)), st.booleans(),
)  # fmt: skip
def test_a_split_product_adds_every_plane_of_every_element_once(
    m: int, n: int, k: int, batch: tuple[int, ...], most: int, binding: int, flops: int | None, invariant: bool
) -> None:
    """However small the limits: each range of k of each element goes into one word of the scratch, each element is finished once
    from all of its planes, and what a dispatch reads of the scratch the dispatches since the last sum wrote."""
    ranges = choose_ranges(Shape(m, n, k, prod(batch), batch_invariant=invariant), TILED)
    if ranges.count == 1:
        return
    problem = dense(m, n, k, batch)
    limits = replace(Limits(), max_compute_workgroups_per_dimension=most)
    with patch("py_gemm.gpu.planner.SCRATCH_BYTES", 4 * ranges.count * binding):
        planned = plan(problem, limits, ranges=ranges, most_flops=flops)
    assert planned.scratch_bytes <= 4 * ranges.count * binding
    finished: list[int] = []
    planes: dict[int, tuple[int, int, int]] = {}
    for step in planned.steps:
        assert max(step.workgroups) <= most
        if step.shader.kernel == "gemm_tiled":
            p = gemm_parameters(step)
            assert (p["flags"] & (HAS_PRODUCT | HAS_ADDEND | HAS_BIAS), p["alpha"], p["activation"]) == (HAS_PRODUCT, 1.0, 0)
            assert step.buffers[3] == "scratch"
            assert step.workgroups[2] % p["ranges"] == 0
            for z in range(step.workgroups[2]):
                index, part = divmod(z, p["ranges"])
                first = part * p["range_terms"]
                terms = min(p["k"], first + p["range_terms"]) - first
                assert terms > 0
                for row in range(p["m"]):
                    for column in range(0, p["n"], 7):
                        at = p["d_offset"] + part * p["d_range"] + index * p["d_batch"] + row * p["d_row"] + column
                        assert at not in planes
                        planes[at] = (p["a_offset"] + index * p["a_batch"] + row * k + first, p["b_offset"] + column, terms)
        else:
            p = dict(zip(SUM_FIELDS, struct.unpack("<4I2f6I", step.parameters), strict=True))
            assert p["ranges"] == ranges.count
            for i in range(p["count"]):
                column, row, index = i % p["n"], i // p["n"] % p["m"], i // (p["n"] * p["m"])
                finished.append(p["d_offset"] + index * p["d_batch"] + row * p["d_row"] + column)
                if column % 7 == 0:
                    parts = [planes.pop(part * p["count"] + i) for part in range(ranges.count)]
                    starts = [a - parts[0][0] for a, _, _ in parts]
                    assert starts == [part * ranges.terms for part in range(ranges.count)]
                    assert sum(terms for _, _, terms in parts) == k
            assert not planes
    assert sorted(finished) == list(range(m * n * prod(batch)))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), st.data())
def test_operands_keep_step_with_the_products(batch: tuple[int, ...], data: st.DataObject) -> None:
    """Each product of each dispatch reads A where its layout says, whatever dimensions were merged or made a grid."""
    strides = tuple(data.draw(st.sampled_from([0, 6, 24, 100, -60])) for _ in batch)
    a = Layout(FLOAT32, 3, 1, strides, 500)
    problem = replace(dense(2, 2, 3, batch), a=a)
    expected = {}
    for position, index in enumerate(product(*map(range, batch))):
        expected[position * 4] = 500 + sum(map(int.__mul__, index, strides))
    found = {}
    for step in plan(problem, replace(Limits(), max_compute_workgroups_per_dimension=2)).steps:
        p = gemm_parameters(step)
        for z in range(step.workgroups[2]):
            found[(p["d_offset"] + z * p["d_batch"]) % 2**32] = (p["a_offset"] + z * p["a_batch"]) % 2**32
    assert found == expected


@pytest.mark.parametrize(("size", "pieces"), [(65_535, 1), (65_536, 2), (70_000, 2), (131_071, 3)])
def test_a_batch_is_cut_at_65535(size: int, pieces: int) -> None:
    steps = plan(dense(1, 1, 1, (size,))).steps
    assert len(steps) == pieces
    assert sum(step.workgroups[2] for step in steps) == size


@pytest.mark.parametrize(("m", "pieces"), [(65_535 * 64, 1), (65_535 * 64 + 1, 2)])
def test_rows_are_cut_at_65535_tiles(m: int, pieces: int) -> None:
    steps = plan(dense(m, 1, 1)).steps
    assert len(steps) == pieces
    last = gemm_parameters(steps[-1])
    assert last["m"] == m - 65_535 * 64 * (pieces - 1)
    assert last["a_offset"] == last["d_offset"] == 65_535 * 64 * (pieces - 1)


def test_a_column_piece_takes_its_part_of_b_and_of_the_bias() -> None:
    steps = plan(dense(1, 130, 1), replace(Limits(), max_compute_workgroups_per_dimension=1), has_bias=True, bias_offset=5).steps
    parameters = [gemm_parameters(step) for step in steps]
    assert [each["bias_offset"] for each in parameters] == [5, 69, 133]
    assert [each["b_offset"] for each in parameters] == [0, 64, 128]
    assert [each["n"] for each in parameters] == [64, 64, 2]


@given(st.integers(1, 1 << 24), st.integers(1, 70_000))
def test_a_linear_grid_covers_its_count_within_the_limit(count: int, most: int) -> None:
    limits = replace(Limits(), max_compute_workgroups_per_dimension=most)
    groups = -(-count // 256)
    if groups > most * most:
        with pytest.raises(ShapeError, match="squared"):
            linear_grid("gemm", count, limits)
        return
    x, y, z = linear_grid("gemm", count, limits)
    assert max(x, y) <= most
    assert z == 1
    assert x * (y - 1) < groups <= x * y


def test_what_is_not_read_is_not_bound() -> None:
    (step,) = plan(dense(4, 4, 4)).steps
    assert step.buffers == ("a", "b", "nothing", "sum")
    assert gemm_parameters(step)["flags"] & (HAS_PRODUCT | HAS_ADDEND | HAS_BIAS) == HAS_PRODUCT
    for problem in (dense(4, 4, 4, alpha=0.0), dense(4, 4, 0)):
        (step,) = plan(problem).steps
        assert step.buffers == ("nothing", "nothing", "nothing", "sum")
        assert gemm_parameters(step)["flags"] == 0
        assert gemm_parameters(step)["k"] == 0


def test_c_is_gathered_unless_it_lies_in_place() -> None:
    problem = replace(dense(4, 4, 4, beta=2.0), c=Layout(FLOAT16, 0, 1))
    gather, gemm = plan(problem).steps
    assert gather.shader.label == "convert_float16"
    assert gather.buffers == ("c", "sum")
    assert gemm_parameters(gemm)["flags"] & HAS_ADDEND
    assert len(plan(problem, gather_c=False).steps) == 1
    assert len(plan(replace(problem, beta=0.0)).steps) == 1


def test_a_narrow_result_is_rounded_in_a_pass_of_its_own() -> None:
    problem = replace(dense(3, 3, 4), d=Layout(BFLOAT16, 3, 1))
    planned = plan(problem)
    assert [step.shader.label for step in planned.steps] == ["gemm_tiled_float32_float32", "narrow_bfloat16"]
    assert (planned.sum_bytes, planned.result_bytes) == (36, 18)
    assert plan(dense(3, 3, 4)).result_bytes == 0


def test_an_empty_problem_needs_nothing() -> None:
    for problem in (dense(0, 3, 2), dense(3, 0, 2), dense(3, 3, 2, (2, 0))):
        assert plan(problem).steps == ()


def test_staging_walks_along_the_unit_stride() -> None:
    def flags(a: Layout, b: Layout) -> int:
        (step,) = plan(replace(dense(8, 8, 8), a=a, b=b)).steps
        return int(gemm_parameters(step)["flags"]) & (A_ALONG_K | B_ALONG_K)

    rows, columns = Layout(FLOAT32, 8, 1), Layout(FLOAT32, 1, 8)
    assert flags(rows, rows) == A_ALONG_K
    assert flags(columns, rows) == 0
    assert flags(rows, columns) == A_ALONG_K | B_ALONG_K
    assert flags(Layout(FLOAT32, 8, -1, offset=7), columns) == A_ALONG_K | B_ALONG_K


def test_one_grid_or_a_shape_error_that_names_the_dimension() -> None:
    limits = Limits()
    require_one_grid("encode", dense(65_535 * 64, 64, 1, (65_535,)), TILED, limits)
    with pytest.raises(ShapeError, match=r"encode: m = 4,194,241 needs 65,536 workgroups along its axis, the device allows 65,535"):
        require_one_grid("encode", dense(65_535 * 64 + 1, 64, 1), TILED, limits)
    with pytest.raises(ShapeError, match="encode: n = "):
        require_one_grid("encode", dense(1, 65_535 * 64 + 1, 1), TILED, limits)
    with pytest.raises(ShapeError, match="encode: batch = 65,536"):
        require_one_grid("encode", dense(1, 1, 1, (65_536,)), TILED, limits)


def test_a_binding_too_large_is_unsupported_with_figures() -> None:
    require_binding("gemm", "b", 128 << 20, Limits())
    with pytest.raises(UnsupportedError, match=r"operand b has 134,217,732 bytes, one binding of the device holds 134,217,728"):
        require_binding("gemm", "b", (128 << 20) + 4, Limits())


def test_no_kernel_binds_more_than_webgpu_guarantees() -> None:
    for kernel in KERNELS.values():
        assert sum(each != "uniform" for each in kernel.bindings) <= 8
