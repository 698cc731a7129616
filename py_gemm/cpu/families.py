"""The table of kernel families and tokens, and the one function that picks a row. Pure: knows no engine, only its traits.

A family says how panels are laid out and what is summed; a token says which instructions run the inner loop. The name of a
row is `<op>_<input type>_<tile>_<token>`, and the name of the exported function of the module `gemm_<token>.wasm`.

Families that sum in float32, with what they take and give:

    gemm_f32                          any mix of float32, float16, bfloat16; D of any type
    gemm_bf16, gemm_f16               both operands of that type, and D; the kernels of gemm_f32, which widen in packing
    gemm_bf16_f32, gemm_f16_f32       their twins: D is float32, the sums themselves
    gemm_bf16dot, gemm_bf16dot_f32    bfloat16 in pairs (kernels/gemm_bf16dot.c): panels of half the size, forced by name only
    gemv_f32                          few rows of any of these: B is widened in the kernel

A family whose D is narrower than its sums packs the whole depth at once (a single panel). Where that is too deep (`is_deep`) its
twin runs, slice by slice: each begins with the totals that the one before it left in a float32 scratch, and a sweep over a block's
totals, which rides on its last slice, makes D of them. The bits are the same: see SummationOrder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32, ElementType
from ..errors import UnsupportedError
from .packing import Packing


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """What the choice needs to know of a WebAssembly engine.

    host: "browser" (V8, SpiderMonkey, JavaScriptCore: wide register allocators) or "wasmtime" (Cranelift).
    relaxed_simd: whether the engine accepts a module with relaxed SIMD, found out by validating one, never by a name.
    dot: the token whose int8 dot product is exact here (probe.py finds out), None where none is, or where nobody has looked yet.
    bf16_dot: whether the engine multiplies pairs of bfloat16 in one instruction. WebAssembly has none, so no engine says so today.
    """

    host: str
    relaxed_simd: bool
    dot: str | None = None
    bf16_dot: bool = False


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
BF16_DOT = Condition("bf16_dot", lambda traits: traits.bf16_dot, "an instruction for pairs of bfloat16")
ASKED_FOR = Condition("asked_for", lambda _: False, "a reason to run a reference")


@dataclass(frozen=True, slots=True)
class Work:
    """What the choice needs to know of a product, as its plan has it: m x k times k x n.

    b_has_unit_stride: neighbours in a row or in a column of B lie side by side in memory. type_a, type_b, type_d: of the elements.
    """

    m: int
    n: int
    k: int
    b_has_unit_stride: bool
    type_a: ElementType = FLOAT32
    type_b: ElementType = FLOAT32
    type_d: ElementType = FLOAT32


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

# Where pairs fold nothing and the padding of the depth is pure loss: gemmkit's defaults (its book, Tuning Knobs).
SMALL_MN_LIMIT = 16
SMALL_K_LIMIT = 16
NO_VECTOR = Fit("no_vector", lambda work: min(work.m, work.n) > FEW_ROWS_LIMIT)
NOT_SMALL = Fit("not_small", lambda work: work.m > SMALL_MN_LIMIT or work.n > SMALL_MN_LIMIT)
NOT_SHALLOW = Fit("not_shallow", lambda work: work.k > SMALL_K_LIMIT)


@dataclass(frozen=True, slots=True)
class SummationOrder:
    """How the k products of one element are added; enough to replay a result bit for bit.

    The k steps are cut into chains of `chain_length(k)`. Each chain is summed from +0.0 in increasing k, one multiply-add for
    each product; the sums of the chains are then added to the running total in increasing k (the first one is the total).
    fused: False: product rounded, then sum rounded. None: fused where the host has such an instruction, else as False.
    group: the order of the steps that share a group of depth (Row.depth_multiple). (0, 1): even, then odd, which is increasing k.
    Nothing else has any influence: neither m nor n nor the batch, nor which of the rows of one token and accumulator runs. So a
    vector's product has the bits that it has as one row of a matrix. Nor does it matter how much of the depth is packed at a time:
    a slice begins where a chain does, with the running totals, and adds to them what a single panel would.
    """

    longest_chain: int
    fused: bool | None
    group: tuple[int, ...] = (0,)

    def chain_length(self, k: int) -> int:
        """Chains of nearly equal length, a multiple of 4 (packing transposes 4 steps at a time), at most `longest_chain`."""
        chains = max(1, -(-k // self.longest_chain))
        return max(4, -(-k // (chains * 4)) * 4)


# The room for a tile and for the bias of its columns in the scratch memory (kernels/arguments.h: SCRATCH_TILE, SCRATCH_BIAS).
TILE_BYTES, TILE_ROW_BYTES = 192, 64


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel. `requires`: without them it cannot run. `prefers`, `suits`: where one does not hold, a later row is the better
    choice, for the engine or for the product; forced by name, the row runs all the same. depth_multiple: steps of depth that one
    instruction takes; they share one word of the accumulator's size in a panel. head_words: words a lane before them. copies_a: how
    many times a panel of A holds each word.

    exact: the result is the exact value, rounded once; `order` then only says how long a chain of digit products may be.
    Exact kernels of a token are a module of their own.

    kernel: the family whose kernels and panels these are; None: its own. inputs, output: the only type of A and B, and of D, that
    the row takes; None: any. twin: the family of its float32 twin. panel_type: of an element in a panel; None: the accumulator's.
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
    copies_a: int = 1
    exact: bool = False
    kernel: str | None = None
    inputs: ElementType | None = None
    output: ElementType | None = None
    twin: str | None = None
    panel_type: ElementType | None = None

    def __post_init__(self) -> None:
        size = self.accumulator.size
        if self.rows * self.columns * size > TILE_BYTES or self.columns * size > TILE_ROW_BYTES:
            raise ValueError(f"{self.name}: a tile holds at most {TILE_BYTES} bytes of sums and {TILE_ROW_BYTES} in a row")

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

    @property
    def panels(self) -> str:
        """The family whose panels the row reads."""
        return self.kernel or self.family

    @property
    def element(self) -> ElementType:
        """What panels hold."""
        return self.panel_type or self.accumulator

    @property
    def function(self) -> str:
        """The name of the exported function. The scalar ones take any tile, as an argument."""
        tile = "" if self.token == SCALAR_TOKEN else f"_{self.rows}x{self.columns}"
        return f"{self.panels}{tile}_{self.token}"

    @property
    def reads_in_place(self) -> bool:
        """Whether B is read where it lies, for few rows of A, and not packed."""
        return FEW_ROWS in self.suits

    @property
    def has_single_panel(self) -> bool:
        """Whether the whole depth is packed at once, however long it is: D is narrower than the sums, which are rounded once."""
        return self.twin is not None

    def takes(self, work: Work) -> bool:
        """Whether the operands and D of a product have the types that the row is for."""
        return self.inputs is None or (work.type_a is work.type_b is self.inputs and work.type_d is self.output)


# 256 steps: a chain's panels of A and B (14 to 20 KiB) share an L1 cache of 32 KiB; the fastest of
# 128, 192, 256, 384 and 512 at 1024 cubed (AMD Zen 5, V8 14.6).
_RELAXED = SummationOrder(longest_chain=256, fused=None)
_PLAIN = SummationOrder(longest_chain=256, fused=False)
_EVEN_ODD = SummationOrder(longest_chain=256, fused=False, group=(0, 1))
_PAIRS = SummationOrder(longest_chain=512, fused=False)
_QUADS = SummationOrder(longest_chain=1024, fused=False)

# The token whose kernels have no SIMD instruction and take any tile: a reference, run where it is asked for.
SCALAR_TOKEN = "scalar"


def _halves(
    token: str, rows: int, order: SummationOrder, requires: tuple[Condition, ...] = (), prefers: tuple[Condition, ...] = ()
) -> tuple[Row, ...]:
    """The half families of one tile of gemm_f32, each with its twin: its kernels, which widen in packing."""
    made = []
    for name, half in (("gemm_bf16", BFLOAT16), ("gemm_f16", FLOAT16)):
        shared = Row(name, token, rows, 8, FLOAT32, order, requires, prefers, kernel="gemm_f32", inputs=half)
        made += [replace(shared, output=half, twin=f"{name}_f32"), replace(shared, family=f"{name}_f32", output=FLOAT32)]
    return tuple(made)


def _pairs(token: str, preferred: Condition) -> tuple[Row, ...]:
    """The bfloat16 dot family and its twin: both operands always packed, in pairs; an order of sums stated by group."""
    dot = Row(
        "gemm_bf16dot", token, 4, 8, FLOAT32, _EVEN_ODD, (), (preferred,), (NO_VECTOR, NOT_SMALL, NOT_SHALLOW), 2,
        inputs=BFLOAT16, output=BFLOAT16, twin="gemm_bf16dot_f32", panel_type=BFLOAT16,
    )  # fmt: skip
    return dot, replace(dot, family="gemm_bf16dot_f32", kernel="gemm_bf16dot", output=FLOAT32, twin=None)


# The tiles: 12 sums + 2 of B + 1 of A fill the 15 vector registers a browser's compiler leaves on x86-64 (6 x 8); Cranelift
# spills them and is at its best with 8 sums (4 x 8), and so is every compiler where product and sum are two instructions.
# gemv: B is read in place, for few rows of A (kernels/rows.h).
_VECTORS = (FEW_ROWS, UNIT_STRIDE)
ROWS: tuple[Row, ...] = (
    Row("gemv_f32", "relaxed", 4, 8, FLOAT32, _RELAXED, (RELAXED_SIMD,), suits=_VECTORS),
    *_pairs("pairs", BF16_DOT),
    *_halves("relaxed", 6, _RELAXED, (RELAXED_SIMD,), (BROWSER_HOST,)),
    Row("gemm_f32", "relaxed", 6, 8, FLOAT32, _RELAXED, (RELAXED_SIMD,), (BROWSER_HOST,)),
    *_halves("relaxed", 4, _RELAXED, (RELAXED_SIMD,)),
    Row("gemm_f32", "relaxed", 4, 8, FLOAT32, _RELAXED, (RELAXED_SIMD,)),
    Row("gemv_f32", "simd128", 4, 8, FLOAT32, _PLAIN, suits=_VECTORS),
    *_halves("simd128", 4, _PLAIN),
    Row("gemm_f32", "simd128", 4, 8, FLOAT32, _PLAIN),
    Row("gemv_f64", "relaxed", 4, 4, FLOAT64, _RELAXED, (RELAXED_SIMD,), suits=_VECTORS),
    Row("gemm_f64", "relaxed", 6, 4, FLOAT64, _RELAXED, (RELAXED_SIMD,), (BROWSER_HOST,)),
    Row("gemm_f64", "relaxed", 4, 4, FLOAT64, _RELAXED, (RELAXED_SIMD,)),
    Row("gemv_f64", "simd128", 4, 4, FLOAT64, _PLAIN, suits=_VECTORS),
    Row("gemm_f64", "simd128", 4, 4, FLOAT64, _PLAIN),
    *_halves(SCALAR_TOKEN, 4, _PLAIN, prefers=(ASKED_FOR,)),
    Row("gemm_f32", SCALAR_TOKEN, 4, 8, FLOAT32, _PLAIN, prefers=(ASKED_FOR,)),
    *_pairs(SCALAR_TOKEN, ASKED_FOR),
    Row("gemm_f64", SCALAR_TOKEN, 4, 4, FLOAT64, _PLAIN, prefers=(ASKED_FOR,)),
    # Sums of integers wrap and have no order; `order` only says how far the driver walks at a time (the same bytes for all).
    Row("gemv_i8", "i16", 4, 8, INT32, _PAIRS, suits=_VECTORS, depth_multiple=2),
    Row("gemm_i8", "dot", 6, 8, INT32, _QUADS, (RELAXED_SIMD, EXACT_DOT), (BROWSER_HOST,), depth_multiple=4, head_words=2),
    Row("gemm_i8", "sdot", 6, 8, INT32, _QUADS, (RELAXED_SIMD, EXACT_SDOT), (BROWSER_HOST,), depth_multiple=4, head_words=2),
    Row("gemm_i8", "i16", 5, 8, INT32, _PAIRS, (), (BROWSER_HOST,), depth_multiple=2),
    Row("gemm_i8", "i16", 4, 8, INT32, _PAIRS, depth_multiple=2, copies_a=4),
    Row("gemv_i8", "simd128", 4, 8, INT32, _PLAIN, suits=_VECTORS),
    Row("gemm_i8", "simd128", 4, 8, INT32, _PLAIN),
    Row("gemm_i8", SCALAR_TOKEN, 4, 8, INT32, _PLAIN, prefers=(ASKED_FOR,)),
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
        raise UnsupportedError(_nothing_named(family, wanted, table))
    summing = [row for row in named if row.accumulator is accumulator]
    if not summing:
        forced = "" if token is None else f"token {token!r} is forced, but "
        raise UnsupportedError(f"{forced}{_list(named)} cannot be used: the product sums in {accumulator.name}")
    fitting = [row for row in summing if row.takes(work)]
    if not fitting:
        raise UnsupportedError(
            f"{_list(summing)} cannot be used: the product is {work.type_a} by {work.type_b}, and D {work.type_d}; "
            f"they take {' or '.join(dict.fromkeys(f'{row.inputs} by {row.inputs} to {row.output}' for row in summing))}"
        )
    for packing in packed:
        served = [row for row in fitting if packing.serves(row)]
        if not served:
            raise UnsupportedError(
                f"{packing.side} is prepacked for {packing}, which {_list(fitting)} cannot read; "
                "hand over the array that was packed"
            )
        fitting = served
    runnable = _runnable(fitting, traits)
    suited = [row for row in runnable if all(fit.holds(work) for fit in row.suits)] or runnable
    return min(suited, key=lambda row: sum(not condition.holds(traits) for condition in row.prefers))


def _runnable(rows: list[Row], traits: EngineTraits) -> list[Row]:
    """Those that can run on the engine; UnsupportedError, saying what it lacks, where none can."""
    runnable = [row for row in rows if all(condition.holds(traits) for condition in row.requires)]
    if not runnable:
        lacking = dict.fromkeys(condition.text for row in rows for condition in row.requires if not condition.holds(traits))
        raise UnsupportedError(f"{_list(rows)} cannot run: this engine ({traits.host}) lacks {' and '.join(lacking)}")
    return runnable


def yields_to_widening(work: Work, threads: int, forced: bool, least: int) -> bool:
    """Whether an integer product leaves the dot rows to those that widen in packing: one that runs on several threads, is smaller
    than `least` multiply-adds, and has no row forced. (What the dot rows do beside their products, the sums of all lanes, every
    strip does for itself.)
    """
    return threads > 1 and not forced and work.m * work.n * work.k < least


def require_available(traits: EngineTraits, family: str | None, token: str | None) -> None:
    """The error of `choose_family` where what is forced can run for no product at all."""
    check_names(family, token)
    named = [row for row in (*ROWS, *EXACT_ROWS) if family in (None, *_names(row)) and token in (None, row.token)]
    if not named:
        raise UnsupportedError(_nothing_named(family, token, ROWS))
    _runnable(named, traits)


def is_deep(row: Row, k: int, threshold: int, *, plain: bool) -> bool:
    """Whether a product of depth k leaves the single panel of `row` for the slices of its twin: a panel of B, columns x k elements
    as packed, is larger than `threshold` bytes (blocking.py: deep_k_bytes). Exact integers.

    Never for a size that a 32-bit address cannot count (a broadcast operand may have an absurd k), nor for a product with a bias
    or an activation, or a prepacked operand (plain=False).
    """
    nbytes = row.columns * k * row.element.size
    return row.has_single_panel and plain and threshold < nbytes < 1 << 32


def twin_of(row: Row) -> Row:
    """The float32 twin of a row that has one: the same kernel with the same tile and token."""
    return next(each for each in ROWS if (each.family, each.token, each.rows) == (row.twin, row.token, row.rows))


def names_row(row: Row, family: str | None, token: str | None) -> bool:
    """Whether forced names, at least one of them given, leave `row` in question."""
    return (family, token) != (None, None) and family in (None, *_names(row)) and token in (None, row.token)


def _names(row: Row) -> tuple[str, str, str]:
    return row.family, row.tile, row.name


def _nothing_named(family: str | None, token: str | None, table: tuple[Row, ...]) -> str:
    named = "" if family is None else f" of family {family!r}"
    lacks = "serves this mode" if token is None else f"has the token {token!r}"
    return f"no kernel{named} {lacks}; there are: {_list(table)}"


def _list(rows: Iterable[Row]) -> str:
    return ", ".join(row.name for row in rows)
