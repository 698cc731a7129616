"""A fuzzer for the entry points of the kernels, compiled for this machine with sanitizers (native.py):

    python -m tests.cpu.fuzz.fuzz --cases N | --seconds S | --only INDEX  [--seed N]

A case is a row of the table and a problem that it can take, drawn at random: sizes, strides of either sign and zero, gaps, batches,
types, alpha and beta, bias, relu, C in D's place, zero points, requantization, panels packed beforehand, small caches and short
chains (so that small products have many blocks). Operands lie in random bytes. Numbers are small integers, so that any order of
summation is exact: results are compared bit by bit with NumPy's int64 and float64. Every byte around the elements of D must stay,
and no byte outside the operands may be read. The same seed and index give the same case.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np

import py_gemm as pg
from py_gemm.cpu.arguments import ADDRESSES, argument_bytes, pack_arguments
from py_gemm.cpu.blocking import Geometry, block
from py_gemm.cpu.families import ALL_ROWS, LIMBS_ROW, SCALAR_TOKEN, TILE_BYTES, TILE_ROW_BYTES, Row
from py_gemm.cpu.packing import Packing
from py_gemm.cpu.plan import Plan, make_packing_plan, make_plan
from py_gemm.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, UINT8, ElementType
from py_gemm.epilogue import Activation
from py_gemm.int8_block import Block, make_block, transpose_block
from py_gemm.problem import Layout, Problem
from tests.conformance.int8_cases import requantized, wrapped
from tests.cpu.fuzz.native import ARENA_AT, Arena, Kernels, compile_library

NUMPY: dict[ElementType, Any] = {
    FLOAT32: np.float32, FLOAT16: np.float16, BFLOAT16: ml_dtypes.bfloat16, FLOAT64: np.float64, INT8: np.int8, UINT8: np.uint8,
    INT32: np.int32,
}  # fmt: skip
ROWS = [row for row in ALL_ROWS if row is not LIMBS_ROW]
GUARD = 64


@dataclass
class Operand:
    """Matrices in the arena. `values` is a view of them, batch dimensions first."""

    layout: Layout
    address: int
    low: int
    nbytes: int
    values: Any


@dataclass
class Case:
    """One product, drawn but not yet run."""

    row: Row
    problem: Problem
    text: str
    operands: dict[str, Operand]
    activation: Activation = Activation.NONE
    has_bias: bool = False
    block: Block | None = None
    rules: dict[str, Any] = field(default_factory=dict)
    geometry: Geometry = field(default_factory=Geometry)
    packs: tuple[str, ...] = ()
    name: str = ""


class Fuzzer:
    """Draws cases of some rows and runs them in one arena."""

    def __init__(self, kernels: Kernels, arena: Arena, rows: Sequence[Row] = ROWS) -> None:
        self._kernels, self._arena, self._rows = kernels, arena, rows
        self._garbage = np.random.default_rng(0).integers(0, 256, arena.bytes.size, np.uint8)
        self._end = 0

    def run(self, seed: int, index: int) -> str:
        """Run one case; AssertionError names it. Returns the row's name."""
        case = self._draw(random.Random(f"{seed}/{index}"))
        try:
            self._check(case)
        except AssertionError as error:
            raise AssertionError(f"--seed {seed} --only {index}: {case.text}\n{error}") from error
        return case.name

    def check_product(self, row: Row, a: Any, b: Any) -> None:
        """The int32 product of two arrays of bytes, dense and in the arena, by one row."""
        self._end = 0
        types = {np.dtype(NUMPY[type_]): type_ for type_ in (INT8, UINT8)}
        (m, k), n = a.shape, b.shape[1]
        words = make_block("fuzz", types[a.dtype], types[b.dtype], m, n)
        operands = {}
        for name, values in (("a", a), ("b", b), ("d", np.zeros((m, n), np.int32)), ("bias", np.frombuffer(words.data, np.uint8))):
            at = self._reserve(values.nbytes)
            view = self._view(at, values.nbytes).view(values.dtype).reshape(values.shape)
            view[...] = values
            layout = Layout(types.get(values.dtype, INT32), values.shape[-1], 1)
            operands[name] = Operand(layout, at, at, values.nbytes, view)
        problem = Problem(m, n, k, operands["a"].layout, operands["b"].layout, operands["d"].layout)
        self._check(Case(row, problem, row.name, operands, has_bias=True, block=words, rules={"zeros": [0, 0]}))

    # ---- memory ----

    def _reserve(self, nbytes: int) -> int:
        """An address with that many bytes and a guard around them."""
        self._end += -self._end % 64 + GUARD
        at = ARENA_AT + self._end
        self._end += nbytes + GUARD
        assert self._end < self._arena.bytes.size
        self._arena.bytes[at - ARENA_AT - GUARD : self._end] = self._garbage[at - ARENA_AT - GUARD : self._end]
        return at

    def _view(self, at: int, nbytes: int) -> Any:
        return self._arena.bytes[at - ARENA_AT : at - ARENA_AT + nbytes]

    def _place(self, source: random.Random, type_: ElementType, sizes: tuple[int, ...], *, repeats: bool) -> Operand:
        """An operand of any strides that name no element twice; `repeats`: some may be zero besides."""
        order = list(range(len(sizes)))
        if source.random() < 0.5:
            order[-2:] = order[:-3:-1]
        if source.random() < 0.1:
            source.shuffle(order)
        strides = [0] * len(sizes)
        gaps = (0, 0, 0, 1, 2, 13) if prod(sizes) <= 1 << 16 else (0, 0, 0, 1, 1, 1)  # so that all operands fit into the arena
        reach = 1
        for axis in reversed(order):
            stride = reach + source.choice(gaps)
            strides[axis] = -stride if source.random() < 0.15 else stride
            reach = stride * (sizes[axis] - 1) + reach if sizes[axis] else reach
            if repeats and source.random() < 0.05:
                strides[axis] = 0
        layout = Layout(type_, strides[-2], strides[-1], tuple(strides[:-2]))
        low, high = layout.extent(sizes[-2], sizes[-1], sizes[:-2])
        nbytes = (high - low) * type_.size
        # A multiple of the element's size, as in NumPy, but of no more.
        at = self._reserve(nbytes) + type_.size * source.randrange(4)
        self._end += 4 * type_.size
        base = at - low * type_.size
        values = np.lib.stride_tricks.as_strided(
            self._view(at, nbytes).view(NUMPY[type_])[-low:] if nbytes else np.zeros(0, NUMPY[type_]),
            sizes, [stride * type_.size for stride in strides],
        )  # fmt: skip
        return Operand(layout, base, at, nbytes, values)

    # ---- drawing ----

    def _draw(self, source: random.Random) -> Case:
        self._end = 0
        row = source.choice(self._rows)
        name = row.name
        size = source.choice((4, 9, 20, 70))
        m, n = source.randint(1, size), source.randint(1, size)
        k = source.randint(0, source.choice((3, 20, 100, 700)))
        if source.random() < 0.3:
            m, n = source.choice(((1, n), (m, 1), (2, 3 * n), (4, n)))
        batch = tuple(source.randint(1, 3) for _ in range(source.choice((0, 0, 0, 1, 2))))
        longest = source.choice((row.order.longest_chain, 4, 8, 64))
        row = replace(row, order=replace(row.order, longest_chain=min(longest, row.order.longest_chain)))
        if row.token == SCALAR_TOKEN:  # which takes any tile
            columns = source.randint(1, TILE_ROW_BYTES // row.accumulator.size)
            row = replace(row, rows=source.randint(1, TILE_BYTES // (columns * row.accumulator.size)), columns=columns)
        whole = Geometry()
        geometry = Geometry(
            a_bytes=source.choice((whole.a_bytes, 1024, 256)), b_bytes=source.choice((whole.b_bytes, 1024, 256)),
            totals_bytes=source.choice((whole.totals_bytes, 1024, 256)),
            row_sums_bytes=source.choice((whole.row_sums_bytes, 1024, 256)), few_columns=source.choice((8, 32)),
            l1_bytes=source.choice((whole.l1_bytes, 1024, 256)),
        )  # fmt: skip
        draw = self._draw_integers if row.accumulator is INT32 else self._draw_floats
        case = draw(source, row, batch, m, n, k)
        case.geometry, case.name = geometry, name
        case.text = f"{row.name} m={m} n={n} k={k} batch={batch} chain<={row.order.longest_chain} {geometry} {case.text}"
        return case

    def _draw_floats(self, source: random.Random, row: Row, batch: tuple[int, ...], m: int, n: int, k: int) -> Case:
        narrow = (FLOAT32, FLOAT16, BFLOAT16)
        every = (*narrow, FLOAT64)
        inputs = every if row.accumulator is FLOAT64 else narrow
        types = [source.choice(inputs), source.choice(inputs), source.choice(every), source.choice(every)]
        if row.inputs and row.output:
            types = [row.inputs, row.inputs, types[2], row.output]
        operands = {
            "a": self._place(source, types[0], (*batch, m, k), repeats=True),
            "b": self._place(source, types[1], (*batch, k, n), repeats=True),
            "d": self._place(source, types[3], (*batch, m, n), repeats=False),
            "bias": self._place(source, FLOAT32, (1, n), repeats=False),
        }
        operands["bias"].values[...] = _small(source, (1, n))
        alpha, beta = source.choice((1.0, 1.0, 0.0, 2.0, -0.5)), source.choice((0.0, 0.0, 1.0, -2.0))
        if beta and source.random() < 0.3:
            operands["c"] = operands["d"]
        elif beta:
            operands["c"] = self._place(source, types[2], (*batch, m, n), repeats=True)
        for name in ("a", "b", *(("c",) if beta else ())):
            operands[name].values[...] = _small(source, operands[name].values.shape)
        problem = Problem(
            m, n, k, operands["a"].layout, operands["b"].layout, operands["d"].layout, operands["c"].layout if beta else None,
            batch, alpha, beta,
        )  # fmt: skip
        packs: tuple[str, ...] = ()
        if not (row.reads_in_place or row.exact) and k and alpha:
            packs = source.choice(((), (), ("a",), ("b",), ("a", "b")))
        has_bias = source.random() < 0.4
        bias = operands["bias"]
        if not has_bias or bias.layout.column_stride != 1:
            has_bias = False
            del operands["bias"]
        activation = source.choice((Activation.NONE, Activation.NONE, Activation.RELU))
        text = f"{problem} bias={has_bias} {activation.name} packs={packs}"
        return Case(row, problem, text, operands, activation, has_bias, packs=packs)

    def _draw_integers(self, source: random.Random, row: Row, batch: tuple[int, ...], m: int, n: int, k: int) -> Case:
        type_a, type_b = source.choice((INT8, UINT8)), source.choice((INT8, UINT8))
        to = source.choice((INT32, INT8, UINT8))
        operands = {
            "a": self._place(source, type_a, (*batch, m, k), repeats=True),
            "b": self._place(source, type_b, (*batch, k, n), repeats=True),
            "d": self._place(source, to, (*batch, m, n), repeats=False),
        }
        numbers = np.random.default_rng(source.randrange(1 << 30))
        for name, type_ in (("a", type_a), ("b", type_b)):
            limits = np.iinfo(NUMPY[type_])
            shape = operands[name].values.shape
            found = numbers.integers(limits.min, limits.max + 1, shape)
            extremes = numbers.choice([limits.min, limits.max], shape)
            operands[name].values[...] = np.where(numbers.random(shape) < source.choice((0.1, 0.9)), extremes, found)
        zeros = []
        for type_, shape in ((type_a, (m, 1)), (type_b, (n,))):
            limits = np.iinfo(NUMPY[type_])
            how = source.choice(("none", "one", "vector"))
            drawn = numbers.integers(limits.min, limits.max + 1, shape if how == "vector" else ())
            zeros.append(0 if how == "none" else drawn)
        rules: dict[str, Any] = {"zeros": zeros}
        requantize = None
        if to is not INT32:
            spread = 80.0 * (k + 1) ** 0.5
            scale = _vector(source, m, n, lambda shape: numbers.uniform(0.1, 4, shape) / spread).astype(np.float32)
            if source.random() < 0.3:
                scale = np.exp2(np.round(np.log2(scale))).astype(np.float32)  # powers of two: many ties
            bias = _vector(source, m, n, lambda shape: numbers.integers(-(1 << 12), 1 << 12, shape))
            limits = np.iinfo(NUMPY[to])
            rules |= {"scale": scale, "bias": bias, "zero_point": int(numbers.integers(limits.min, limits.max + 1)), "to": to.name}
            rules["before"] = source.random() < 0.5
            requantize = pg.Requantize(scale, rules["zero_point"], bias, to.name, rules["before"])
        words = make_block("fuzz", type_a, type_b, m, n, zeros[0], zeros[1], requantize)
        at = self._reserve(len(words.data))
        self._view(at, len(words.data))[:] = np.frombuffer(words.data, np.uint8)
        operands["bias"] = Operand(Layout(INT32, 0, 1), at, at, len(words.data), None)
        problem = Problem(m, n, k, operands["a"].layout, operands["b"].layout, operands["d"].layout, None, batch)
        return Case(row, problem, f"{problem} {rules}", operands, has_bias=True, block=words, rules=rules)

    # ---- running ----

    def _check(self, case: Case) -> None:
        expected = _integers_expected(case) if case.block else _floats_expected(case)
        d = case.operands["d"]
        surroundings = slice(d.low - ARENA_AT - GUARD, d.low - ARENA_AT + d.nbytes + GUARD)
        packed = {side: self._pack(case, side) for side in case.packs}
        before = self._arena.bytes[surroundings].copy()
        if case.block:
            plan = make_plan(case.problem, block_words=len(case.block.data) // 4, keep_rows=case.block.by_row)
        else:
            packings = {side: packing for side, (packing, _) in packed.items()}
            plan = make_plan(case.problem, case.activation, case.has_bias, packed_a=packings.get("a"), packed_b=packings.get("b"))
        places = {name: (each.address, each.low, each.nbytes) for name, each in case.operands.items()}
        places |= {side: (place[0], place[0], place[1]) for side, (_, place) in packed.items()}
        if plan.swapped:
            places["a"], places["b"] = places["b"], places["a"]
        if plan.swapped and case.block:
            block_at, _, nbytes = places["bias"]
            self._view(block_at, nbytes)[:] = np.frombuffer(transpose_block(case.block.data), np.uint8)
        self._call(case, case.row, plan, places)
        found = d.values.copy()
        assert np.array_equal(_bits(found), _bits(expected)), f"{found}\nis not\n{expected}"
        after = self._arena.bytes[surroundings].copy()
        self._view(d.low, d.nbytes)[:] = before[GUARD : GUARD + d.nbytes]
        d.values[...] = found
        before[GUARD : GUARD + d.nbytes] = self._view(d.low, d.nbytes)
        assert np.array_equal(before, after), "bytes around D or between its elements were written"

    def _pack(self, case: Case, side: str) -> tuple[Packing, tuple[int, int]]:
        """Panels of an operand, made by the kernel itself."""
        problem, operand = case.problem, case.operands[side]
        packing = Packing.of(side, case.row)
        lanes = problem.m if side == "a" else problem.n
        plan = make_packing_plan(packing, operand.layout, lanes, problem.k, problem.batch)
        size = packing.padded(lanes) * packing.depth(problem.k) * packing.element.size
        nbytes = size * problem.products
        at = self._reserve(nbytes)
        self._call(case, case.row, plan, {side: (operand.address, operand.low, operand.nbytes), "d": (at, at, nbytes)})
        strides: list[int] = []
        step = size // packing.element.size
        for count in reversed(problem.batch):
            strides.insert(0, step)
            step *= count
        layout = Layout(packing.element, 0, 0, tuple(strides))
        case.problem = replace(problem, a=layout) if side == "a" else replace(problem, b=layout)
        return packing, (at, nbytes)

    def _call(self, case: Case, row: Row, plan: Plan, places: dict[str, tuple[int, int, int]]) -> None:
        by_columns, prepacked = plan.b.column != plan.b.type.size, bool(plan.packs or plan.packed_a or plan.packed_b)
        blocking = block(row, plan.m, plan.n, plan.k, case.geometry, b_by_columns=by_columns, prepacked=prepacked)
        arguments = pack_arguments(plan, blocking)
        ADDRESSES.pack_into(arguments, 0, *(places.get(name, (0, 0, 0))[0] & 0xFFFF_FFFF for name in ("a", "b", "c", "d", "bias")))
        at = self._reserve(argument_bytes(plan))
        scratch = self._reserve(blocking.scratch_bytes)
        self._view(at, len(arguments))[:] = np.frombuffer(arguments, np.uint8)
        ranges = [("the arguments", at, len(arguments), True), ("the scratch memory", scratch, blocking.scratch_bytes, True)]
        ranges += [(name, low, nbytes, name == "d") for name, (_, low, nbytes) in places.items()]
        self._kernels.run(row, ranges, at, scratch)
        assert bytes(self._view(at, len(arguments))) == bytes(arguments), "the arguments were changed"


def _small(source: random.Random, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(source.randrange(1 << 30)).integers(-3, 4, shape)


def _vector(source: random.Random, m: int, n: int, draw: Callable[[tuple[int, ...]], Any]) -> Any:
    """Numbers for a tensor, for rows or for columns."""
    return np.asarray(draw(source.choice(((), (m, 1), (n,)))))


def _bits(array: Any) -> Any:
    """Values to compare; -0 equals +0 where a sum of zeros may be either."""
    return array.astype(np.float64) if array.dtype.kind not in "iu" else array


def _floats_expected(case: Case) -> Any:
    problem, operands = case.problem, case.operands
    total = np.zeros((*problem.batch, problem.m, problem.n))
    if problem.reads_operands:
        total += problem.alpha * (operands["a"].values.astype(np.float64) @ operands["b"].values.astype(np.float64))
    if problem.beta:
        total += problem.beta * operands["c"].values.astype(np.float64)
    if case.has_bias:
        total += operands["bias"].values.astype(np.float64)
    if case.activation is Activation.RELU:
        total = np.maximum(total, 0.0)
    # Exact in float32, so one rounding to whatever D is.
    return total.astype(np.float32).astype(NUMPY[problem.d.type])


def _integers_expected(case: Case) -> Any:
    operands, rules = case.operands, case.rules
    a, b = (operands[name].values.astype(np.int64) - zero for name, zero in zip("ab", rules["zeros"], strict=True))
    sums = wrapped(a @ b)
    if "scale" not in rules:
        return sums.astype(np.int32)
    result = requantized(sums, rules["scale"], rules["zero_point"], rules["bias"], rules["to"], before=rules["before"])
    return result.astype(rules["to"])


def _work(library: Path, chosen: argparse.Namespace, index: Any, rows: Any) -> None:
    """Cases until a count or a time is reached, or one fails. `index`: the case that is running."""
    fuzzer = Fuzzer(Kernels(library), Arena())
    counts: dict[str, int] = {}
    end = time.monotonic() + chosen.seconds
    while index.value < chosen.cases and time.monotonic() < end:
        name = fuzzer.run(chosen.seed, index.value)
        counts[name] = counts.get(name, 0) + 1
        index.value += 1
    rows.put(counts)


def main() -> int:
    """The cases run in a process of their own, which a sanitizer may end; this one says in which case."""
    parser = argparse.ArgumentParser(description="Fuzz the kernels, compiled with sanitizers.")
    parser.add_argument("--cases", type=int, default=1 << 40)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="run the case of this index alone")
    chosen = parser.parse_args()
    if not (chosen.cases > 0 and chosen.seconds > 0 and (chosen.only is None or chosen.only >= 0)):
        parser.error("--cases and --seconds must be above 0, --only 0 or more")
    processes = multiprocessing.get_context("spawn")
    index, rows = processes.Value("q", chosen.only or 0, lock=False), processes.SimpleQueue()
    if chosen.only is not None:
        chosen.cases = chosen.only + 1
    with TemporaryDirectory() as folder:
        worker = processes.Process(target=_work, args=(compile_library(Path(folder)), chosen, index, rows))
        worker.start()
        worker.join()
    if worker.exitcode != 0:
        sys.stderr.write(f"ended with {worker.exitcode} in --seed {chosen.seed} --only {index.value}\n")
        return 1
    sys.stdout.write(f"{index.value - (chosen.only or 0)} cases without a finding; of each row: {rows.get()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
