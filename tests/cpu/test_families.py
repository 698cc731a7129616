"""The table of rows and the choice among them, at every edge, with made-up engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from py_gemm.cpu.families import (
    DOT_TOKENS,
    FEW_ROWS_LIMIT,
    ROWS,
    SMALL_K_LIMIT,
    SMALL_MN_LIMIT,
    TOKENS,
    EngineTraits,
    Row,
    SummationOrder,
    Work,
    choose_family,
    is_deep,
    twin_of,
)
from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32, ElementType
from py_gemm.errors import UnsupportedError

LARGE = Work(1000, 1000, 1000, True)


def work_for(row: Row) -> Work:
    """A product of the types that the row takes."""
    real = row.inputs or row.accumulator
    return replace(LARGE, type_a=real, type_b=real, type_d=row.output or real)


V8 = EngineTraits("browser", True)
OLD_BROWSER = EngineTraits("browser", False)
WASMTIME = EngineTraits("wasmtime", True)
PLAIN_WASMTIME = EngineTraits("wasmtime", False)


@pytest.mark.parametrize(
    ("accumulator", "traits", "name"),
    [
        (FLOAT32, V8, "gemm_f32_6x8_relaxed"),
        (FLOAT32, OLD_BROWSER, "gemm_f32_4x8_simd128"),
        (FLOAT32, WASMTIME, "gemm_f32_4x8_relaxed"),
        (FLOAT32, PLAIN_WASMTIME, "gemm_f32_4x8_simd128"),
        (FLOAT64, V8, "gemm_f64_6x4_relaxed"),
        (FLOAT64, OLD_BROWSER, "gemm_f64_4x4_simd128"),
        (FLOAT64, WASMTIME, "gemm_f64_4x4_relaxed"),
        (FLOAT64, PLAIN_WASMTIME, "gemm_f64_4x4_simd128"),
        (INT32, V8, "gemm_i8_5x8_i16"),
        (INT32, OLD_BROWSER, "gemm_i8_5x8_i16"),
        (INT32, EngineTraits("browser", True, "dot"), "gemm_i8_6x8_dot"),
        (INT32, EngineTraits("browser", True, "sdot"), "gemm_i8_6x8_sdot"),
        (INT32, EngineTraits("wasmtime", True, "sdot"), "gemm_i8_4x8_i16"),
        (INT32, PLAIN_WASMTIME, "gemm_i8_4x8_i16"),
    ],
)
def test_first_row_that_runs_and_is_preferred(accumulator: ElementType, traits: EngineTraits, name: str) -> None:
    assert choose_family(accumulator, traits).name == name


@pytest.mark.parametrize("accumulator", [FLOAT32, FLOAT64])
@pytest.mark.parametrize("traits", [V8, OLD_BROWSER, WASMTIME, PLAIN_WASMTIME])
def test_few_rows_of_a_take_the_row_that_reads_b_in_place(traits: EngineTraits, accumulator: ElementType) -> None:
    kind = "f32" if accumulator is FLOAT32 else "f64"
    for m, unit, family in (
        (1, True, "gemv"), (FEW_ROWS_LIMIT, True, "gemv"), (FEW_ROWS_LIMIT + 1, True, "gemm"), (1, False, "gemm"),
    ):  # fmt: skip
        work = Work(m, 100, 100, unit)
        row = choose_family(accumulator, traits, work)
        assert row.family == f"{family}_{kind}"
        assert row.token == choose_family(accumulator, traits).token
        assert choose_family(accumulator, traits, work, family=f"gemm_{kind}").family == f"gemm_{kind}"
    assert choose_family(accumulator, traits, Work(99, 9, 9, False), family=f"gemv_{kind}").family == f"gemv_{kind}"
    deterministic = choose_family(accumulator, traits, Work(1, 9, 9, True), deterministic=True)
    assert (deterministic.family, deterministic.token) == (f"gemv_{kind}", "simd128")


@pytest.mark.parametrize("traits", [V8, OLD_BROWSER, WASMTIME, PLAIN_WASMTIME])
@pytest.mark.parametrize("accumulator", [FLOAT32, FLOAT64])
def test_deterministic_takes_the_plain_token(accumulator: ElementType, traits: EngineTraits) -> None:
    row = choose_family(accumulator, traits, deterministic=True)
    assert row.token == "simd128"
    assert row.order.fused is False


def test_every_row_can_be_forced_by_each_of_its_names() -> None:
    for each in ROWS:
        traits = EngineTraits("wasmtime", True, each.token if each.token in DOT_TOKENS else None)
        work = work_for(each)
        assert choose_family(each.accumulator, traits, work, family=each.name) is each
        assert choose_family(each.accumulator, traits, work, family=each.tile, token=each.token) is each
        assert choose_family(each.accumulator, traits, work, family=each.family, token=each.token).token == each.token


def test_a_forced_row_runs_where_it_is_not_preferred() -> None:
    assert choose_family(FLOAT32, WASMTIME, family="gemm_f32_6x8").name == "gemm_f32_6x8_relaxed"


@pytest.mark.parametrize("traits", [V8, WASMTIME])
def test_a_forced_token_keeps_the_preference_among_its_rows(traits: EngineTraits) -> None:
    assert choose_family(FLOAT32, traits, token="relaxed").name == choose_family(FLOAT32, traits).name


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"unknown kernel family 'gemm_f33'; known: gemv_f32, gemv_f32_4x8, gemv_f32_4x8_relaxed, gemm_bf16dot, .*"
    ):
        choose_family(FLOAT32, V8, family="gemm_f33")
    with pytest.raises(ValueError, match="unknown token 'avx'; known: relaxed, pairs, simd128"):
        choose_family(FLOAT32, V8, token="avx")


def test_forcing_what_cannot_run_is_an_error_and_no_fallback() -> None:
    with pytest.raises(UnsupportedError, match=r"gemm_f32_6x8_relaxed cannot run: this engine \(browser\) lacks relaxed SIMD"):
        choose_family(FLOAT32, OLD_BROWSER, family="gemm_f32_6x8_relaxed")
    with pytest.raises(UnsupportedError, match="lacks relaxed SIMD"):
        choose_family(FLOAT64, OLD_BROWSER, token="relaxed")
    for token in DOT_TOKENS:
        with pytest.raises(UnsupportedError, match=f"gemm_i8_6x8_{token} cannot run: .* lacks an exact dot product of signed"):
            choose_family(INT32, V8, token=token)
    with pytest.raises(UnsupportedError, match="cannot be used: the product sums in float32"):
        choose_family(FLOAT32, V8, token="i16")
    with pytest.raises(UnsupportedError, match="cannot be used: the product sums in float64"):
        choose_family(FLOAT64, V8, family="gemm_f32")
    with pytest.raises(UnsupportedError, match="no kernel of family 'gemm_f32_6x8' has the token 'simd128'"):
        choose_family(FLOAT32, V8, family="gemm_f32_6x8", token="simd128")
    with pytest.raises(UnsupportedError, match="token 'relaxed' is forced, but only 'simd128' gives the same bits"):
        choose_family(FLOAT32, V8, token="relaxed", deterministic=True)


def test_names_are_unique_and_say_what_they_are() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert TOKENS == ("relaxed", "pairs", "simd128", "scalar", "i16", "dot", "sdot")
    for row in ROWS:
        assert row.name == f"{row.family}_{row.rows}x{row.columns}_{row.token}"
        assert row.columns * row.accumulator.size == 32, "a row of the tile is two vectors"


# ---- half families ----

WITH_BF16_DOT = EngineTraits("browser", True, bf16_dot=True)


def halves(m: int, n: int, k: int, half: ElementType = BFLOAT16, d: ElementType | None = None, *, unit: bool = True) -> Work:
    return Work(m, n, k, unit, half, half, d or half)


@pytest.mark.parametrize(
    ("traits", "tile"),
    [(V8, "6x8_relaxed"), (OLD_BROWSER, "4x8_simd128"), (WASMTIME, "4x8_relaxed"), (PLAIN_WASMTIME, "4x8_simd128")],
)
def test_products_of_one_half_type_have_families_of_their_own(traits: EngineTraits, tile: str) -> None:
    for half, name in ((BFLOAT16, "gemm_bf16"), (FLOAT16, "gemm_f16")):
        row = choose_family(FLOAT32, traits, halves(99, 99, 99, half))
        assert row.name == f"{name}_{tile}"
        assert row.function == f"gemm_f32_{tile}", "which are the kernels of the float32 family, widening in packing"
        twin = choose_family(FLOAT32, traits, halves(99, 99, 99, half, FLOAT32))
        assert twin.name == f"{name}_f32_{tile}"
        assert twin_of(row) is twin
        assert (row.has_single_panel, twin.has_single_panel) == (True, False)
        for other in (FLOAT64, BFLOAT16 if half is FLOAT16 else FLOAT16):
            assert choose_family(FLOAT32, traits, halves(99, 99, 99, half, other)).name == f"gemm_f32_{tile}"
        mixed = Work(99, 99, 99, True, half, FLOAT32, half)
        assert choose_family(FLOAT32, traits, mixed).name == f"gemm_f32_{tile}"


def test_pairs_run_where_they_are_asked_for_and_nowhere_else() -> None:
    for traits in (V8, OLD_BROWSER, WASMTIME, PLAIN_WASMTIME):
        assert choose_family(FLOAT32, traits, halves(99, 99, 99)).family == "gemm_bf16"
        for d, name in ((BFLOAT16, "gemm_bf16dot"), (FLOAT32, "gemm_bf16dot_f32")):
            work = halves(99, 99, 99, d=d)
            assert choose_family(FLOAT32, traits, work, token="pairs").name == f"{name}_4x8_pairs"
            assert choose_family(FLOAT32, traits, work, family=name).name == f"{name}_4x8_pairs"
            assert choose_family(FLOAT32, traits, halves(1, 1, 1, d=d), token="pairs").family == name, "forced, whatever the shape"


@pytest.mark.parametrize(
    ("m", "n", "k", "unit", "family"),
    [
        (FEW_ROWS_LIMIT, 99, 99, True, "gemv_f32"),
        (FEW_ROWS_LIMIT, 99, 99, False, "gemm_bf16"),
        (99, FEW_ROWS_LIMIT, 99, True, "gemm_bf16"),
        (FEW_ROWS_LIMIT + 1, 99, 99, True, "gemm_bf16dot"),
        (99, FEW_ROWS_LIMIT + 1, 99, True, "gemm_bf16dot"),
        (SMALL_MN_LIMIT, SMALL_MN_LIMIT, 99, True, "gemm_bf16"),
        (SMALL_MN_LIMIT + 1, SMALL_MN_LIMIT, 99, True, "gemm_bf16dot"),
        (SMALL_MN_LIMIT, SMALL_MN_LIMIT + 1, 99, True, "gemm_bf16dot"),
        (99, 99, SMALL_K_LIMIT, True, "gemm_bf16"),
        (99, 99, SMALL_K_LIMIT + 1, True, "gemm_bf16dot"),
    ],
)
def test_vectors_and_small_products_stay_with_the_widening_families(m: int, n: int, k: int, unit: bool, family: str) -> None:
    """With a made-up engine that has an instruction for pairs, where they would be the better choice."""
    assert choose_family(FLOAT32, WITH_BF16_DOT, halves(m, n, k, unit=unit)).family == family
    if family == "gemm_bf16dot":
        assert choose_family(FLOAT32, WITH_BF16_DOT, halves(m, n, k, d=FLOAT32, unit=unit)).family == "gemm_bf16dot_f32"


def test_half_families_take_their_types_only() -> None:
    with pytest.raises(
        UnsupportedError,
        match=r"gemm_bf16_6x8_relaxed.* cannot be used: the product is float16 by float16, and D float16; "
        r"they take bfloat16 by bfloat16 to bfloat16",
    ):
        choose_family(FLOAT32, V8, halves(9, 9, 9, FLOAT16), family="gemm_bf16")
    with pytest.raises(UnsupportedError, match="they take bfloat16 by bfloat16 to bfloat16 or bfloat16 by bfloat16 to float32"):
        choose_family(FLOAT32, V8, token="pairs")
    with pytest.raises(UnsupportedError, match="the product sums in float64"):
        choose_family(FLOAT64, V8, token="pairs")
    with pytest.raises(UnsupportedError, match="only 'simd128' gives the same bits"):
        choose_family(FLOAT32, V8, halves(9, 9, 9), token="pairs", deterministic=True)


@pytest.mark.parametrize("row", [row for row in ROWS if row.has_single_panel], ids=lambda row: row.name)
def test_the_gate_of_deep_products_at_its_edges(row: Row) -> None:
    step = row.columns * row.element.size  # bytes of a panel of B for each step of depth
    assert step == (16 if row.family == "gemm_bf16dot" else 32)
    k = 1000
    assert not is_deep(row, k, step * k, plain=True)
    assert is_deep(row, k, step * k - 1, plain=True)
    assert is_deep(row, 1, 1, plain=True), "1 forces the twin at any depth"
    assert not is_deep(row, k, step * k - 1, plain=False), "not with a bias, an activation or a prepacked operand"
    beyond = (1 << 32) // step
    assert is_deep(row, beyond - 1, 1, plain=True)
    assert not is_deep(row, beyond, 1, plain=True), "an overflowing size does not engage"
    assert not is_deep(row, 1 << 70, 1, plain=True)
    twin = twin_of(row)
    assert (twin.function, twin.order, twin.output) == (row.function, row.order, FLOAT32)
    assert not is_deep(twin, k, 1, plain=True)


def test_every_engine_has_a_row_for_every_accumulator() -> None:
    for accumulator in (FLOAT32, FLOAT64, INT32):
        for host in ("browser", "wasmtime"):
            choose_family(accumulator, EngineTraits(host, False))


@pytest.mark.parametrize(
    ("k", "length"),
    [(0, 4), (1, 4), (4, 4), (5, 8), (255, 256), (256, 256), (257, 132), (512, 256), (513, 172), (1024, 256), (1025, 208)],
)
def test_chains_are_nearly_equal_and_never_longer_than_the_longest(k: int, length: int) -> None:
    assert SummationOrder(256, False).chain_length(k) == length


def test_no_chain_but_the_last_ends_inside_a_group() -> None:
    """So a slice of a deep product is whole groups, and only the last one of an odd depth is padded."""
    for row in ROWS:
        assert all(row.order.chain_length(k) % row.depth_multiple == 0 for k in range(3000)), row.name


def test_chains_cover_k() -> None:
    order = SummationOrder(256, False)
    for k in range(1, 3000):
        length = order.chain_length(k)
        assert length <= 256
        assert length % 4 == 0
        assert -(-k // length) <= -(-k // 256)
