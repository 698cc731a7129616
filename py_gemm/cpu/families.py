"""The table of kernel families and tokens, and the one function that picks a row. Pure: knows no engine, only its traits.

A family says how panels are laid out and what is summed; a token says which instructions run the inner loop. The name of a
row is `<op>_<input type>_<tile>_<token>`, and the name of the exported function of the module `gemm_<token>.wasm`.

Rows that other families will add here, each with a kernel file and a test of its own (and no new `if` elsewhere):
float16 and bfloat16 families with depth multiple 2, deep-k twins, complex ones. Until then float16 and bfloat16 are widened in
packing and run on the float32 family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..dtypes import FLOAT32, FLOAT64, INT32, ElementType
from ..errors import UnsupportedError
from .packing import Packing


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """What the choice needs to know of a WebAssembly engine.

    host: "browser" (V8, SpiderMonkey, JavaScriptCore: wide register allocators) or "wasmtime" (Cranelift).
    relaxed_simd: whether the engine accepts a module with relaxed SIMD, found out by validating one, never by a name.
    dot: the token whose int8 dot product is exact here (probe.py finds out), None where none is, or where nobody has looked yet.
    """

    host: str
    relaxed_simd: bool
    dot: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A named condition on the engine; `text` completes "this engine lacks ..."."""

    name: str
    holds: Callable[[EngineTraits], bool]
    text: str


RELAXED_SIMD = Condition("relaxed_simd", lambda traits: traits.relaxed_simd, "relaxed SIMD")
EXACT_DOT = Condition("exact_dot", lambda traits: traits.dot == "dot", "an exact dot product of signed and unsigned bytes")
EXACT_SDOT = Condition("exact_sdot", lambda traits: traits.dot == "sdot", "an exact dot product of signed bytes")
BROWSER_HOST = Condition("browser_host", lambda traits: traits.host == "browser", "a browser's compiler")


@dataclass(frozen=True, slots=True)
class Work:
    """What the choice needs to know of a product, as its plan has it: m x k times k x n.

    b_has_unit_stride: neighbours in a row or in a column of B lie side by side in memory.
    """

    m: int
    n: int
    k: int
    b_has_unit_stride: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """A named condition on the product."""

    name: str
    holds: Callable[[Work], bool]


# Packing B pays when it is read again for enough rows. Measured in V8 only, at 1 to 8 rows, 1024 x 1024 and
# 4096 x 4096, both layouts of B: reading it in place wins to the end of the kernel's own width.
FEW_ROWS_LIMIT = 4
FEW_ROWS = Fit("few_rows", lambda work: work.m <= FEW_ROWS_LIMIT)
UNIT_STRIDE = Fit("b_has_unit_stride", lambda work: work.b_has_unit_stride)


@dataclass(frozen=True, slots=True)
class SummationOrder:
    """How the k products of one element are added; enough to replay a result bit for bit.

    The k steps are cut into chains of `chain_length(k)`. Each chain is summed from +0.0 in increasing k, one multiply-add for
    each product; the sums of the chains are then added to the running total in increasing k (the first one is the total).
    fused: False: product rounded, then sum rounded. None: fused where the host has such an instruction, else as False.
    Nothing else has any influence: neither m nor n nor the batch, nor which of the rows of one token and accumulator runs. So a
    vector's product has the bits that it has as one row of a matrix.
    """

    longest_chain: int
    fused: bool | None

    def chain_length(self, k: int) -> int:
        """Chains of nearly equal length, a multiple of 4 (packing transposes 4 steps at a time), at most `longest_chain`."""
        chains = max(1, -(-k // self.longest_chain))
        return max(4, -(-k // (chains * 4)) * 4)


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel. `requires`: without them it cannot run. `prefers`, `suits`: where one does not hold, a later row is the better
    choice, for the engine or for the product; forced by name, the row runs all the same. depth_multiple: steps of depth that one
    instruction takes; they share one word of the accumulator's size in a panel. head_words: words a lane before them.

    exact: the result is the exact value, rounded once; `order` then only says how long a chain of digit products may be.
    Exact kernels of a token are a module of their own.
    """

    family: str
    token: str
    rows: int
    columns: int
    accumulator: ElementType
    order: SummationOrder
    requires: tuple[Condition, ...] = ()
    prefers: tuple[Condition, ...] = ()
    suits: tuple[Fit, ...] = ()
    depth_multiple: int = 1
    head_words: int = 0
    exact: bool = False

    @property
    def module(self) -> str:
        """Which module exports the kernel (see `module_asset`)."""
        return f"exact_{self.token}" if self.exact else self.token

    @property
    def tile(self) -> str:
        return f"{self.family}_{self.rows}x{self.columns}"

    @property
    def name(self) -> str:
        return f"{self.tile}_{self.token}"


# 256 steps: a chain's panels of A and B (14 to 20 KiB) share an L1 cache of 32 KiB; the fastest of
# 128, 192, 256, 384 and 512 at 1024 cubed (AMD Zen 5, V8 14.6).
_RELAXED = SummationOrder(longest_chain=256, fused=None)
_PLAIN = SummationOrder(longest_chain=256, fused=False)
_PAIRS = SummationOrder(longest_chain=512, fused=False)
_QUADS = SummationOrder(longest_chain=1024, fused=False)

# The tiles: 12 sums + 2 of B + 1 of A fill the 15 vector registers a browser's compiler leaves on x86-64 (6 x 8); Cranelift
# spills them and is at its best with 8 sums (4 x 8), and so is every compiler where product and sum are two instructions.
# gemv: B is read in place, for few rows of A (kernels/rows.h).
_VECTORS = (FEW_ROWS, UNIT_STRIDE)
ROWS: tuple[Row, ...] = (
    Row("gemv_f32", "relaxed", 4, 8, FLOAT32, _RELAXED, (RELAXED_SIMD,), suits=_VECTORS),
    Row("gemm_f32", "relaxed", 6, 8, FLOAT32, _RELAXED, (RELAXED_SIMD,), (BROWSER_HOST,)),
    Row("gemm_f32", "relaxed", 4, 8, FLOAT32, _RELAXED, (RELAXED_SIMD,)),
    Row("gemv_f32", "simd128", 4, 8, FLOAT32, _PLAIN, suits=_VECTORS),
    Row("gemm_f32", "simd128", 4, 8, FLOAT32, _PLAIN),
    Row("gemv_f64", "relaxed", 4, 4, FLOAT64, _RELAXED, (RELAXED_SIMD,), suits=_VECTORS),
    Row("gemm_f64", "relaxed", 6, 4, FLOAT64, _RELAXED, (RELAXED_SIMD,), (BROWSER_HOST,)),
    Row("gemm_f64", "relaxed", 4, 4, FLOAT64, _RELAXED, (RELAXED_SIMD,)),
    Row("gemv_f64", "simd128", 4, 4, FLOAT64, _PLAIN, suits=_VECTORS),
    Row("gemm_f64", "simd128", 4, 4, FLOAT64, _PLAIN),
    # Sums of integers wrap and have no order; `order` only says how far the driver walks at a time (the same bytes for all).
    Row("gemm_i8", "dot", 6, 8, INT32, _QUADS, (RELAXED_SIMD, EXACT_DOT), (BROWSER_HOST,), depth_multiple=4, head_words=2),
    Row("gemm_i8", "sdot", 6, 8, INT32, _QUADS, (RELAXED_SIMD, EXACT_SDOT), (BROWSER_HOST,), depth_multiple=4, head_words=2),
    Row("gemm_i8", "i16", 4, 8, INT32, _PAIRS, depth_multiple=2),
    Row("gemm_i8", "simd128", 4, 8, INT32, _PLAIN),
)

TOKENS: tuple[str, ...] = tuple(dict.fromkeys(row.token for row in ROWS))

# The correctly rounded product of operands of any type (kernels/gemm_exact.c). 256 steps are the longest chain of digit products
# that float64 holds exactly; below that, any order and any token give the same bits.
EXACT_ROWS: tuple[Row, ...] = (
    Row("gemm_exact", "relaxed", 6, 4, FLOAT64, _RELAXED, (RELAXED_SIMD,), (BROWSER_HOST,), exact=True),
    Row("gemm_exact", "relaxed", 4, 4, FLOAT64, _RELAXED, (RELAXED_SIMD,), exact=True),
    Row("gemm_exact", "simd128", 4, 4, FLOAT64, _PLAIN, exact=True),
)

# The exact sums themselves, as fixed-point numbers, for exact/superaccumulator.py; never chosen for a product.
LIMBS_ROW = Row("gemm_limbs", "simd128", 1, 1, FLOAT64, _PLAIN, exact=True)

ALL_ROWS: tuple[Row, ...] = (*ROWS, *EXACT_ROWS, LIMBS_ROW)

MODULES: tuple[str, ...] = tuple(dict.fromkeys(row.module for row in ALL_ROWS))

# The tokens of which an engine has at most one.
DOT_TOKENS: tuple[str, ...] = ("dot", "sdot")


def module_asset(module: str) -> str:
    """The name of the asset that holds a module: the kernels of a token, or its exact ones."""
    return f"cpu/kernels/gemm_{module}.wasm"


# The token whose sums are the same on every machine.
DETERMINISTIC_TOKEN = "simd128"


# What a choice is made for where no product is at hand.
LARGE_WORK = Work(1 << 10, 1 << 10, 1 << 10, True)


def check_names(family: str | None, token: str | None) -> None:
    """ValueError, listing the known names, where `family` or `token` names nothing in the table.

    `family` may be a family ("gemm_f32"), a tile of it ("gemm_f32_6x8") or a whole row ("gemm_f32_6x8_relaxed").
    """
    families = tuple(dict.fromkeys(name for row in (*ROWS, *EXACT_ROWS) for name in _names(row)))
    if family is not None and family not in families:
        raise ValueError(f"unknown kernel family {family!r}; known: {', '.join(families)}")
    if token is not None and token not in TOKENS:
        raise ValueError(f"unknown token {token!r}; known: {', '.join(TOKENS)}")


def choose_family(
    accumulator: ElementType,
    traits: EngineTraits,
    work: Work = LARGE_WORK,
    *,
    family: str | None = None,
    token: str | None = None,
    deterministic: bool = False,
    packed: tuple[Packing, ...] = (),
    table: tuple[Row, ...] = ROWS,
) -> Row:
    """The first row of `table` that sums in `accumulator`, can run on the engine, is preferred there and suits the product.

    family, token: force names (see `check_names`); what is forced and cannot run is an UnsupportedError, never a fallback.
    packed: what is prepacked already; a row that cannot read it is out of the question, and where none is left, UnsupportedError.
    deterministic: only rows whose bits are the same on every machine; forcing another token with it is an UnsupportedError.
    """
    check_names(family, token)
    if deterministic and token not in (None, DETERMINISTIC_TOKEN):
        raise UnsupportedError(f"token {token!r} is forced, but only {DETERMINISTIC_TOKEN!r} gives the same bits on every machine")
    wanted = DETERMINISTIC_TOKEN if deterministic else token
    named = [row for row in table if family in (None, *_names(row)) and wanted in (None, row.token)]
    if not named:
        raise UnsupportedError(f"no kernel of family {family!r} has the token {wanted!r}; there are: {_list(table)}")
    fitting = [row for row in named if row.accumulator is accumulator]
    if not fitting:
        forced = "" if token is None else f"token {token!r} is forced, but "
        raise UnsupportedError(f"{forced}{_list(named)} cannot be used: the product sums in {accumulator.name}")
    for packing in packed:
        served = [row for row in fitting if packing.serves(row)]
        if not served:
            raise UnsupportedError(
                f"{packing.side} is prepacked for {packing}, which {_list(fitting)} cannot read; pack it again for this product"
            )
        fitting = served
    runnable = [row for row in fitting if all(condition.holds(traits) for condition in row.requires)]
    if not runnable:
        lacking = dict.fromkeys(condition.text for row in fitting for condition in row.requires if not condition.holds(traits))
        raise UnsupportedError(f"{_list(fitting)} cannot run: this engine ({traits.host}) lacks {' and '.join(lacking)}")
    suited = [row for row in runnable if all(fit.holds(work) for fit in row.suits)] or runnable
    preferred = [row for row in suited if all(condition.holds(traits) for condition in row.prefers)]
    return (preferred or suited)[0]


def require_available(traits: EngineTraits, family: str | None, token: str | None) -> None:
    """The error of `choose_family` where what is forced can run for no type of accumulator at all."""
    check_names(family, token)
    errors = []
    for table in (ROWS, EXACT_ROWS):
        named = [row.accumulator for row in table if family in (None, *_names(row)) and token in (None, row.token)]
        for accumulator in dict.fromkeys(named):
            try:
                choose_family(accumulator, traits, family=family, token=token, table=table)
            except UnsupportedError as error:
                errors.append(error)
            else:
                return
    if not errors:
        choose_family(FLOAT32, traits, family=family, token=token)
    raise errors[0]


def names_row(row: Row, family: str | None, token: str | None) -> bool:
    """Whether forced names, at least one of them given, leave `row` in question."""
    return (family, token) != (None, None) and family in (None, *_names(row)) and token in (None, row.token)


def _names(row: Row) -> tuple[str, str, str]:
    return row.family, row.tile, row.name


def _list(rows: Iterable[Row]) -> str:
    return ", ".join(row.name for row in rows)
