"""The table of rows and the choice among them, at every edge, with made-up engines."""

from __future__ import annotations

import pytest

from py_gemm.cpu.families import DOT_TOKENS, FEW_ROWS_LIMIT, ROWS, TOKENS, EngineTraits, SummationOrder, Work, choose_family
from py_gemm.dtypes import FLOAT32, FLOAT64, INT32, ElementType
from py_gemm.errors import UnsupportedError

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
        (INT32, V8, "gemm_i8_4x8_i16"),
        (INT32, OLD_BROWSER, "gemm_i8_4x8_i16"),
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
        assert choose_family(each.accumulator, traits, family=each.name) is each
        assert choose_family(each.accumulator, traits, family=each.tile, token=each.token) is each
        assert choose_family(each.accumulator, traits, family=each.family, token=each.token).token == each.token


def test_a_forced_row_runs_where_it_is_not_preferred() -> None:
    assert choose_family(FLOAT32, WASMTIME, family="gemm_f32_6x8").name == "gemm_f32_6x8_relaxed"


@pytest.mark.parametrize("traits", [V8, WASMTIME])
def test_a_forced_token_keeps_the_preference_among_its_rows(traits: EngineTraits) -> None:
    assert choose_family(FLOAT32, traits, token="relaxed").name == choose_family(FLOAT32, traits).name


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"unknown kernel family 'gemm_f33'; known: gemv_f32, gemv_f32_4x8, gemv_f32_4x8_relaxed, gemm_f32, .*"
    ):
        choose_family(FLOAT32, V8, family="gemm_f33")
    with pytest.raises(ValueError, match="unknown token 'avx'; known: relaxed, simd128"):
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
    assert TOKENS == ("relaxed", "simd128", "i16", "dot", "sdot")
    for row in ROWS:
        assert row.name == f"{row.family}_{row.rows}x{row.columns}_{row.token}"
        assert row.columns * row.accumulator.size == 32, "a row of the tile is two vectors"


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


def test_chains_cover_k() -> None:
    order = SummationOrder(256, False)
    for k in range(1, 3000):
        length = order.chain_length(k)
        assert length <= 256
        assert length % 4 == 0
        assert -(-k // length) <= -(-k // 256)
