"""CpuGemm: drives a kernel family over a Problem. Every decision is made in `prepare`; a prepared CpuCall only fills in addresses.

A large product runs in strips on several threads (strips.py), where the engine has them; its bits are those of one thread.
Copies nothing in the browser but what other threads read; outside it the engine copies operands in and the result out.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from ..configuration import knob, parse_knob
from ..dtypes import FLOAT32, FLOAT64, INT32, ElementType, accumulator_type
from ..epilogue import Activation, require_exact_activation
from ..errors import AliasError, ShapeError, UnsupportedError
from ..problem import Layout, Problem, require_apart, require_in_buffer
from .blocking import Blocking, block, deep_k_bytes
from .engines import Bound, Engine, default_engine
from .engines.host_memory import PinnedBuffer
from .families import (
    EXACT_ROWS,
    LARGE_WORK,
    ROWS,
    EngineTraits,
    Row,
    SummationOrder,
    check_names,
    choose_family,
    is_deep,
    names_row,
    require_available,
    twin_of,
    yields_to_widening,
)
from .packing import Packing
from .plan import Plan, make_packing_plan, make_plan
from .probe import exact_dot
from .strips import count_threads, multiply_adds
from .threads import default_threads


@dataclass(frozen=True, slots=True)
class CpuCapabilities:
    """What the CPU road can do here, as plain data.

    engine: name and version. host, relaxed_simd: see EngineTraits. zero_copy: operands are read where the interpreter keeps them.
    token: the token in force for float32 and float64 products. why: how it came to be chosen.
    """

    engine: str
    host: str
    relaxed_simd: bool
    zero_copy: bool
    token: str
    why: str


class CpuCall:
    """A product of which everything is decided but the addresses. May be used again and again.

    variant: the name of the row that runs, such as "gemm_f32_6x8_relaxed". order: how it sums; None: exactly.
    """

    __slots__ = ("_bound", "order", "swapped", "variant")

    def __init__(self, variant: str, order: SummationOrder | None, bound: Bound | None, swapped: bool) -> None:
        self.variant, self.order, self._bound, self.swapped = variant, order, bound, swapped

    def __call__(self, a: int, b: int, c: int, d: int, bias: int) -> int:
        """Run. Native addresses of the first element of each operand; 0 where there is none. Checks nothing.

        Returns on how many threads it ran. DeviceMemoryError, the operands untouched, where memory cannot be had.
        """
        if self._bound is None:
            return 1
        if self.swapped:
            return self._bound(b, a, c, d, bias)
        return self._bound(a, b, c, d, bias)


class CpuGemm:
    """D = act(alpha * A @ B + beta * C + bias) by WebAssembly SIMD kernels.

    family: forces a row or rows of families.py by name; token: forces the instructions ("relaxed", "simd128"), before the knob
    `token` (PY_GEMM_TOKEN). ValueError for an unknown name; UnsupportedError, at the latest in `prepare`, for one that cannot run.
    threads: on how many a large product runs at most, before the knob `threads` (PY_GEMM_THREADS); ValueError where it is no number
    of at least 1. engine: None: the one of this interpreter.
    """

    def __init__(
        self, family: str | None = None, token: str | None = None, threads: int | None = None, *, engine: Engine | None = None
    ) -> None:
        self._threads: int | None = None if threads is None else parse_knob("CpuGemm", "threads", threads)
        check_names(family, token)
        self._family, self._token = family, token
        self.engine: Engine = engine or default_engine()
        names_integers = any(row.accumulator is INT32 and names_row(row, family, token) for row in ROWS)
        require_available(self._integer_traits() if names_integers else self.engine.traits, family, token)

    @property
    def zero_copy(self) -> bool:
        """Whether operands are read where the interpreter keeps them."""
        return self.engine.zero_copy

    @property
    def capabilities(self) -> CpuCapabilities:
        traits = self.engine.traits
        token = self._token_in_force()
        check_names(None, token)
        token = token or choose_family(FLOAT32, traits).token
        return CpuCapabilities(self.info["engine"], traits.host, traits.relaxed_simd, self.zero_copy, token, self._reason(traits))

    @property
    def info(self) -> dict[str, str]:
        """How the engine works here, for people to read, and on how many threads."""
        wanted, whence = self._threads_in_force()
        count, why = self.engine.threads(wanted)
        return {**self.engine.info, "threads": f"{count} ({whence}; {why})" if count > 1 or wanted > 1 else f"1 ({whence})"}

    def prepare(
        self,
        problem: Problem,
        *,
        activation: Activation = Activation.NONE,
        has_bias: bool = False,
        deterministic: bool = False,
        exact: bool = False,
        packed_a: Packing | None = None,
        packed_b: Packing | None = None,
        bias_by_row: bool = False,
    ) -> CpuCall:
        """Decide everything about a product. Offsets of the layouts play no part; the addresses of the call include them.

        deterministic: the kernel whose sums are the same on every machine. exact: the exact value of the expression (relu applied
        to it), rounded once; a gelu is an UnsupportedError, for its value can be given correctly rounded by no known bound.
        packed_a, packed_b: how an operand was packed by `prepare_packing`; its layout then has the batch strides of the packed
        operands. bias_by_row: the bias is float32[m], an element for each row, not float32[n].
        ShapeError for sizes or strides that 32-bit addresses cannot express, AliasError for a D that names an element twice,
        UnsupportedError for a forced row that cannot run, or for what is packed and cannot be read (exact kernels read no panels).
        """
        _check_sizes(problem)
        require_apart("CpuGemm", problem)
        if exact:
            require_exact_activation("CpuGemm", activation)
        accumulator = FLOAT64 if exact else problem.accumulator
        choice: dict[str, Any] = {
            "family": self._family,
            "token": self._token_in_force(),
            "deterministic": deterministic,
            "packed": tuple(each for each in (packed_a, packed_b) if each is not None),
            "table": EXACT_ROWS if exact else ROWS,
        }
        if problem.is_empty:
            work = replace(LARGE_WORK, type_a=problem.a.type, type_b=problem.b.type, type_d=problem.d.type)
            row = choose_family(accumulator, self.engine.traits, work, **choice)
            return CpuCall(row.name, None if exact else row.order, None, False)
        plan = make_plan(problem, activation, has_bias, packed_a=packed_a, packed_b=packed_b, bias_by_row=bias_by_row)
        row = choose_family(accumulator, self.engine.traits, plan.work, **choice)
        prepacked = bool(choice["packed"])
        is_plain = not (prepacked or has_bias or activation)
        if is_deep(row, plan.k, deep_k_bytes(knob("deep_kc_bytes")), plain=is_plain):
            row = twin_of(row)
        by_columns = plan.b.column != plan.b.type.size
        blocking = block(row, plan.m, plan.n, plan.k, b_by_columns=by_columns, prepacked=prepacked)
        return CpuCall(row.name, None if exact else row.order, self._bind(row, plan, blocking), plan.swapped)

    def packing(self, side: str, element: ElementType) -> Packing:
        """How an operand of that side ("a" or "b") is packed for large products of two operands of type `element`."""
        work = replace(LARGE_WORK, type_a=element, type_b=element, type_d=element)
        accumulator = accumulator_type(element, element)
        row = choose_family(accumulator, self.engine.traits, work, family=self._family, token=self._token_in_force())
        if row.reads_in_place:
            raise UnsupportedError(f"{row.name} is forced, whose kernel reads operands where they lie")
        return Packing.of(side, row)

    def prepare_packing(self, packing: Packing, layout: Layout, lanes: int, k: int, batch: tuple[int, ...]) -> CpuCall:
        """Decide everything about packing a batch of operands, none of them empty: A of lanes x k, or B of k x lanes.

        The call takes the operand's address as `a` or as `b`, whichever it is, and writes padded(lanes) * k elements of
        `packing.element` for each of the batch to `d`, dense.
        """
        row = next(row for row in ROWS if packing.serves(row) and all(each.holds(self.engine.traits) for each in row.requires))
        plan = make_packing_plan(packing, layout, lanes, k, batch)
        bound = self.engine.bind(row, plan, block(row, plan.m, plan.n, plan.k, prepacked=True))
        return CpuCall(row.name, row.order, bound, False)

    def prepare_int8(self, problem: Problem, *, block_words: int, keep_rows: bool) -> CpuCall:
        """Decide everything about an integer product: int8 and uint8 operands, a D of int32, int8 or uint8, no C.

        The call's `bias` is then the address of the block (py_gemm/int8_block.py) of `block_words` words, transposed where the call
        is `swapped`. keep_rows: some vector of
        the block has one number for each row of A. Raises as `prepare` does.
        """
        _check_sizes(problem)
        require_apart("CpuGemm", problem)
        traits, token = self._integer_traits(), self._token_in_force()
        if problem.is_empty:
            row = choose_family(INT32, traits, family=self._family, token=token)
            return CpuCall(row.name, row.order, None, False)
        plan = make_plan(problem, block_words=block_words, keep_rows=keep_rows)
        forced = self._family is not None or token is not None
        if yields_to_widening(plan.work, self._count_threads(plan), forced, knob("small_parallel_mnk")):
            traits = replace(traits, dot=None)
        row = choose_family(INT32, traits, plan.work, family=self._family, token=token)
        blocking = block(row, plan.m, plan.n, plan.k, b_by_columns=plan.b.column != plan.b.type.size)
        return CpuCall(row.name, row.order, self._bind(row, plan, blocking), plan.swapped)

    async def threads_up(self, work: int) -> None:
        """Return once the threads are there that a product of so many multiply-adds will run on."""
        await self.engine.threads_up(self._count_for(work))

    def run(
        self, problem: Problem, a: Any, b: Any, c: Any, d: Any, *, bias: Any = None, activation: str | Activation | None = None,
        bias_by_row: bool = False,
    ) -> None:  # fmt: skip
        """Multiply objects with the buffer protocol (C-contiguous; their bytes are taken as elements of the layouts' types).

        Each layout's range must lie in its buffer (ShapeError). D is written, and may share bytes with no input (AliasError) but a
        C of the very same layout. c may be None where the problem has none; bias: float32[n], with bias_by_row float32[m], or None.
        """
        act = activation if isinstance(activation, Activation) else Activation.of(activation)
        call = self.prepare(problem, activation=act, has_bias=bias is not None, bias_by_row=bias_by_row)
        bias_layout = Layout(FLOAT32, 0, 1)
        bias_shape = (1, problem.m if bias_by_row else problem.n)
        operands = [
            ("a", a, problem.a, (problem.m, problem.k), problem.batch if problem.reads_operands else None),
            ("b", b, problem.b, (problem.k, problem.n), problem.batch if problem.reads_operands else None),
            ("c", c, problem.c, (problem.m, problem.n), problem.batch if problem.c and problem.beta else None),
            ("bias", bias, bias_layout, bias_shape, () if bias is not None else None),
        ]
        with ExitStack() as held:
            output = held.enter_context(PinnedBuffer(d, writable=True))
            place_d = _Place.of("d", output, problem.d, (problem.m, problem.n), problem.batch)
            addresses = {"d": place_d.address}
            for name, source, layout, shape, batch in operands:
                if batch is None or layout is None:
                    addresses[name] = 0
                    continue
                place = _Place.of(name, held.enter_context(PinnedBuffer(source)), layout, shape, batch)
                addresses[name] = place.address
                same = name == "c" and layout == problem.d and place.address == place_d.address
                if not same and place.may_share(place_d):
                    raise AliasError(f"CpuGemm: d shares memory with {name}")
            call(addresses["a"], addresses["b"], addresses["c"], addresses["d"], addresses["bias"])

    def _integer_traits(self) -> EngineTraits:
        """The engine's traits with its int8 dot product, which is looked for when the first integer product asks."""
        return replace(self.engine.traits, dot=exact_dot(self.engine))

    def _bind(self, row: Row, plan: Plan, blocking: Blocking) -> Bound:
        threads = self._count_threads(plan)
        if threads == 1:
            return self.engine.bind(row, plan, blocking)
        return self.engine.bind_strips(row, plan, blocking, threads)

    def _count_threads(self, plan: Plan) -> int:
        """On how many threads a plan is to run."""
        work = multiply_adds(plan)
        return 1 if work < knob("parallel_threshold") else self._count_for(work)

    def _count_for(self, work: int) -> int:
        limit, _ = self.engine.threads(self._threads_in_force()[0])
        return count_threads(work, limit, knob("parallel_threshold"), knob("par_mnk_per_worker"))

    def _threads_in_force(self) -> tuple[int, str]:
        """How many threads are wanted, and who wants them."""
        if self._threads is not None:
            return self._threads, "by argument"
        wanted = knob("threads")
        if wanted is not None:
            return wanted, "by the knob threads"
        return default_threads(), "of the usable cores"

    def _token_in_force(self) -> str | None:
        if self._token is not None:
            return self._token
        token: str | None = knob("token")
        return token

    def _reason(self, traits: EngineTraits) -> str:
        if self._token is not None:
            return "forced by argument"
        if knob("token") is not None:
            return "forced by the knob token (PY_GEMM_TOKEN)"
        return "the engine accepts relaxed SIMD" if traits.relaxed_simd else "the engine has no relaxed SIMD"


# The kernels count in 32 bits and add a block to a count before they compare.
_LIMIT = 1 << 31


def _check_sizes(problem: Problem) -> None:
    for name, size in (("m", problem.m), ("n", problem.n), ("k", problem.k)):
        if not 0 <= size < _LIMIT:
            raise ShapeError(f"CpuGemm: {name} is {size}; 0 to {_LIMIT - 1} are possible")
    if problem.beta != 0.0 and problem.c is None:
        raise ShapeError(f"CpuGemm: beta is {problem.beta}, but the problem has no c")
    for name, layout in (("a", problem.a), ("b", problem.b), ("c", problem.c), ("d", problem.d)):
        if layout is not None and len(layout.batch_strides) != len(problem.batch):
            raise ShapeError(f"CpuGemm: {name} has {len(layout.batch_strides)} batch strides for a batch of {problem.batch}")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the elements of an operand lie: the address of its first element, the bytes touched, and the pace of its strides."""

    address: int
    low: int
    high: int
    size: int
    pace: int

    @staticmethod
    def of(name: str, buffer: PinnedBuffer, layout: Layout, shape: tuple[int, int], batch: tuple[int, ...]) -> _Place:
        size = layout.type.size
        extent = layout.extent(*shape, batch)
        require_in_buffer("CpuGemm", name, extent, buffer.nbytes // size)
        strides = (
            stride * size
            for count, stride in (
                (shape[0], layout.row_stride),
                (shape[1], layout.column_stride),
                *zip(batch, layout.batch_strides, strict=False),
            )
            if count > 1
        )
        base = buffer.address
        return _Place(base + layout.offset * size, base + extent[0] * size, base + extent[1] * size, size, gcd(*strides))

    def may_share(self, other: _Place) -> bool:
        """False only where no byte can be shared: the ranges are apart, or both step in a common pace past each other."""
        if self.high <= other.low or other.high <= self.low:
            return False
        pace = gcd(self.pace, other.pace)
        if pace == 0:
            return True
        ahead = (other.address - self.address) % pace
        return ahead < self.size or ahead + other.size > pace
