"""The text of the register-tile kernels: float32 products with larger tiles, vector loads, no checks inside whole tiles. Pure.

A workgroup owns a tile of rows x columns of D; an invocation owns a block of it in registers, in groups of 4 rows by 4 columns:

    invocation (r, c) of the grid (rows / block rows) x (columns / block columns) owns
        row groups     r, r + grid rows, ...       a group is 4 neighbouring rows
        column groups  c, c + grid columns, ...    a group is 4 neighbouring columns, one vector

Loops over a block are written out, because compilers do not always keep an indexed array in registers. Order of summation, the same
for every element: chains of CHAIN terms, each by fma, from +0, in increasing k; the chains are added to the total in increasing k.
The tail of k is padded with zeros on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ..assets import read_asset
from .depth import deepest

# Terms of one chain: as many as keep the error at K = 4096 under 4e-7, with two sets of registers instead of four.
CHAIN = 64

# The flags of the planner; product.wgsl has the others.
A_VECTORS_ALONG_K, A_VECTORS_ACROSS, B_VECTORS_ALONG_K, B_VECTORS_ACROSS = 64, 128, 256, 512


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """rows, columns, depth: of a workgroup and its k step. block_rows, block_columns: of an invocation, multiples of 4.

    direct: nothing is staged; every invocation reads its operands itself, four terms of k at a time, and waits for nobody. The
    best where caches are good or barriers dear (Apple's GPUs, renderers on the CPU).

    scalar: direct too, and reads element by element, of any type and stride, which costs renderers on the CPU no more than vectors.
    It is theirs: they have few cores to fill, so k is not split either.
    """

    rows: int
    columns: int
    depth: int
    block_rows: int
    block_columns: int
    direct: bool = False
    scalar: bool = False

    @property
    def name(self) -> str:
        if self.direct:
            kind = "scalar" if self.scalar else "direct"
            return f"{kind}-{self.rows}x{self.columns}-block{self.block_rows}x{self.block_columns}"
        return f"register-{self.rows}x{self.columns}x{self.depth}-block{self.block_rows}x{self.block_columns}"

    @property
    def kernel(self) -> str:
        return "gemm_" + self.name.replace("-", "_")

    @property
    def invocations(self) -> int:
        return self.rows // self.block_rows * (self.columns // self.block_columns)

    @property
    def workgroup_bytes(self) -> int:
        return 0 if self.direct else 4 * self.depth * (self.rows + self.columns)

    @property
    def deepest(self) -> int:
        """The most terms that one dispatch sums. Of the three loops that stage an operand those that are skipped count 1 each."""
        if self.direct:
            return deepest(1, 1)
        staging = sum(-(-size * self.depth // (4 * self.invocations)) + 3 for size in (self.rows, self.columns))
        return deepest(self.depth, staging + self.depth + 2)


TILES = (
    RegisterTile(32, 64, 16, 4, 8),
    RegisterTile(64, 32, 16, 8, 4),
    RegisterTile(64, 64, 16, 4, 4),
    RegisterTile(64, 64, 16, 8, 4),
    RegisterTile(64, 64, 16, 4, 8),
    RegisterTile(64, 64, 8, 8, 8),
    RegisterTile(64, 64, 16, 8, 8),
    RegisterTile(64, 128, 8, 8, 8),
    RegisterTile(128, 64, 16, 8, 8),
    RegisterTile(128, 128, 8, 8, 8),
    RegisterTile(64, 64, 4, 4, 4, direct=True),
    RegisterTile(32, 32, 4, 4, 4, direct=True),
    RegisterTile(32, 64, 4, 4, 8, direct=True),
    RegisterTile(64, 32, 4, 8, 4, direct=True),
    RegisterTile(16, 32, 4, 8, 8, direct=True, scalar=True),
)


def kernel_text(tile: RegisterTile) -> str:
    """Staging of both operands and `main`; joined after product.wgsl and finish.wgsl."""
    if tile.direct:
        return "\n".join((_constants(tile), "" if tile.scalar else _VECTORS, _STORE, _direct_main(tile)))
    return "\n".join((_constants(tile), _staging("a", tile, binding=5), _staging("b", tile, binding=6), _STORE, _main(tile)))


_VECTORS = """
@group(0) @binding(5) var<storage, read> a_vectors: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> b_vectors: array<vec4<f32>>;
"""

_STORE = """
fn unfinished(row: u32, column: u32, first: u32) -> vec4<f32> {
    var sums = vec4<f32>();
    if ((parameters.flags & CONTINUES) != 0u && row < parameters.m) {
        let start = first + row * parameters.d_row + column;
        for (var part = 0u; part < 4u; part++) {
            if (column + part < parameters.n) {
                sums[part] = d[start + part];
            }
        }
    }
    return sums;
}

fn store(row: u32, column: u32, first: u32, sums: vec4<f32>) {
    if (row >= parameters.m) {
        return;
    }
    let start = first + row * parameters.d_row;
    var values = sums;
    for (var part = 0u; part < 4u; part++) {
        if (column + part < parameters.n) {
            d[start + column + part] = finish(values[part], start + column + part, column + part);
        }
    }
}
"""


def _constants(tile: RegisterTile) -> str:
    return f"""
const LANES = {tile.invocations}u;
const DEPTH = {tile.depth}u;
const A_VECTORS_ALONG_K = {A_VECTORS_ALONG_K}u;
const A_VECTORS_ACROSS = {A_VECTORS_ACROSS}u;
const B_VECTORS_ALONG_K = {B_VECTORS_ALONG_K}u;
const B_VECTORS_ACROSS = {B_VECTORS_ACROSS}u;
fn a_across() -> u32 {{ return parameters.a_row; }}
fn a_along() -> u32 {{ return parameters.a_column; }}
fn a_size() -> u32 {{ return parameters.m; }}
fn b_across() -> u32 {{ return parameters.b_column; }}
fn b_along() -> u32 {{ return parameters.b_row; }}
fn b_size() -> u32 {{ return parameters.n; }}
"""


def _staging(name: str, tile: RegisterTile, binding: int) -> str:
    size = tile.rows if name == "a" else tile.columns
    text = read_asset("shaders/stage_vectors.wgsl").decode()
    text = text.replace("OPERAND_BINDING", str(binding)).replace("OPERAND_VECTORS>", f"{size * tile.depth // 4}>")
    return text.replace("OPERAND_TILE", f"{size}u").replace("OPERAND", name.upper()).replace("operand", name)


def _main(tile: RegisterTile) -> str:
    row_groups, column_groups = tile.block_rows // 4, tile.block_columns // 4
    grid_rows, grid_columns = tile.rows // tile.block_rows, tile.columns // tile.block_columns
    block = [(row, group) for row in range(tile.block_rows) for group in range(column_groups)]
    places = {
        (
            row,
            group,
        ): f"first_row + 4u * (r + {row // 4 * grid_rows}u) + {row % 4}u, first_column + 4u * (c + {group * grid_columns}u), first"
        for row, group in block
    }
    declare = [f"    var total{row}_{group} = unfinished({places[row, group]});" for row, group in block]
    declare += [f"    var chain{row}_{group} = vec4<f32>();" for row, group in block]
    load = [f"            let a{each} = tile_a[k * {tile.rows // 4}u + r + {each * grid_rows}u];" for each in range(row_groups)]
    load += [
        f"            let b{each} = tile_b[k * {tile.columns // 4}u + c + {each * grid_columns}u];" for each in range(column_groups)
    ]
    multiply = [
        f"            chain{row}_{group} = fma(vec4<f32>(a{row // 4}.{'xyzw'[row % 4]}), b{group}, chain{row}_{group});"
        for row, group in block
    ]
    add = [f"total{row}_{group} += chain{row}_{group};" for row, group in block]
    clear = [f"chain{row}_{group} = vec4<f32>();" for row, group in block]
    store = [f"    store({places[row, group]}, total{row}_{group});" for row, group in block]
    lines = "\n".join
    return f"""
@compute @workgroup_size({tile.invocations}, 1, 1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let first_row = workgroup.y * {tile.rows}u;
    let first_column = workgroup.x * {tile.columns}u;
    let r = lane / {grid_columns}u;
    let c = lane % {grid_columns}u;
    let product = workgroup.z / parameters.ranges;
    let range = workgroup.z % parameters.ranges;
    let begin = range * parameters.range_terms;
    let end = min(parameters.k, begin + parameters.part_terms);
    let first = parameters.d_offset + product * parameters.d_batch + range * parameters.d_range;
    let a_start = parameters.a_offset + product * parameters.a_batch;
    let b_start = parameters.b_offset + product * parameters.b_batch;

{lines(declare)}

    for (var first_k = begin; first_k < end; first_k += DEPTH) {{
        stage_a(a_start, first_row, first_k, end, lane);
        stage_b(b_start, first_column, first_k, end, lane);
        workgroupBarrier();
        for (var k = 0u; k < DEPTH; k++) {{
{lines(load)}
{lines(multiply)}
        }}
        workgroupBarrier();
        if ((first_k - begin + DEPTH) % {CHAIN}u == 0u) {{
            {" ".join(add)}
            {" ".join(clear)}
        }}
    }}
    {" ".join(add)}

{lines(store)}
}}
"""


def _direct_main(tile: RegisterTile) -> str:
    """Four terms at a time, as vectors where they can be, then term by term what is left.

    Rows and columns past an edge read the last ones inside instead of being asked about, and are not stored. The chains live inside
    the loop over them, and what is seldom wanted is a loop of no turns instead of a branch: renderers on the CPU run through both
    sides of a branch, and move whatever a loop carries at every turn.
    """
    groups = tile.block_columns // 4
    grid_columns = tile.columns // tile.block_columns
    rows, columns = range(tile.block_rows), range(tile.block_columns)
    block = [(row, group) for row in rows for group in range(groups)]
    across = [4 * (each // 4) * grid_columns + each % 4 for each in columns]
    place = f"row + each / {groups}u, column + each % {groups}u * {4 * grid_columns}u, first"
    declare = [f"    var total{row}_{group} = sums[{each}];" for each, (row, group) in enumerate(block)]
    starts = [f"    let a_at{row} = a_start + min(row + {row}u, parameters.m - 1u) * parameters.a_row;" for row in rows]
    starts += [
        f"    let b_at{each} = b_start + min(column + {across[each]}u, parameters.n - 1u) * parameters.b_column;"
        for each in columns
    ]
    chains = [f"        var chain{row}_{group} = vec4<f32>();" for row, group in block]
    add = [f"        total{row}_{group} += chain{row}_{group};" for row, group in block]
    lines = "\n".join
    return f"""
@compute @workgroup_size({tile.invocations}, 1, 1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let row = workgroup.y * {tile.rows}u + lane / {grid_columns}u * {tile.block_rows}u;
    let column = workgroup.x * {tile.columns}u + lane % {grid_columns}u * 4u;
    let product = workgroup.z / parameters.ranges;
    let range = workgroup.z % parameters.ranges;
    let begin = range * parameters.range_terms;
    let end = min(parameters.k, begin + parameters.part_terms);
    let first = parameters.d_offset + product * parameters.d_batch + range * parameters.d_range;
    let a_start = parameters.a_offset + product * parameters.a_batch;
    let b_start = parameters.b_offset + product * parameters.b_batch;

    var sums: array<vec4<f32>, {len(block)}>;
    for (var each = select({len(block)}u, 0u, (parameters.flags & CONTINUES) != 0u); each < {len(block)}u; each++) {{
        sums[each] = unfinished({place});
    }}
{lines(declare)}
{lines(starts)}

    {_four_at_once(tile, across[-1] + 1)}
    for (var first_k = begin; first_k < end; first_k += {CHAIN}u) {{
        let last_k = min(first_k + {CHAIN}u, end);
{lines(chains)}
        var k = first_k;
        for (; four_at_once && k + 4u <= last_k; k += 4u) {{
{lines(_terms(tile, range(4), vectors=not tile.scalar))}
        }}
        for (; k < last_k; k++) {{
{lines(_terms(tile, range(1), vectors=False))}
        }}
{lines(add)}
    }}

    sums = array<vec4<f32>, {len(block)}>({", ".join(f"total{row}_{group}" for row, group in block)});
    let bare = (parameters.flags & (HAS_PRODUCT | HAS_ADDEND | HAS_BIAS)) == HAS_PRODUCT && parameters.activation == NO_ACTIVATION;
    let inside = row + {tile.block_rows}u <= parameters.m && column + {across[-1] + 1}u <= parameters.n;
    var each = 0u;
    for (; bare && inside && each < {len(block)}u; each++) {{
        let at = first + (row + each / {groups}u) * parameters.d_row + column + each % {groups}u * {4 * grid_columns}u;
        let values = parameters.alpha * sums[each];
        d[at] = values.x;
        d[at + 1u] = values.y;
        d[at + 2u] = values.z;
        d[at + 3u] = values.w;
    }}
    for (; each < {len(block)}u; each++) {{
        store({place}, sums[each]);
    }}
}}
"""


def _four_at_once(tile: RegisterTile, reach: int) -> str:
    """Whether a block reads four terms at a time: elements always; vectors where both operands have them, and whole ones."""
    if tile.scalar:
        return "let four_at_once = true;"
    return f"""let wanted = A_VECTORS_ALONG_K | B_VECTORS_ACROSS;
    let whole = parameters.n % 4u == 0u || column + {reach}u <= parameters.n;
    let four_at_once = whole && (parameters.flags & wanted) == wanted;"""


def _terms(tile: RegisterTile, terms: range, *, vectors: bool) -> list[str]:
    """The products of the `terms` from k on: B whole, then A row by row."""
    groups = range(tile.block_columns // 4)
    text = []
    for term, group in product(terms, groups):
        along = f"(k + {term}u) * parameters.b_row"
        if vectors:
            text.append(f"let b{term}_{group} = b_vectors[(b_at{4 * group} + {along}) / 4u];")
        else:
            four = ", ".join(f"load_b(b_at{4 * group + part} + {along})" for part in range(4))
            text.append(f"let b{term}_{group} = vec4<f32>({four});")
    for row in range(tile.block_rows):
        if vectors:
            text.append(f"let a{row} = a_vectors[(a_at{row} + k) / 4u];")
        for term in terms:
            a = f"a{row}.{'xyzw'[term]}" if vectors else f"load_a(a_at{row} + (k + {term}u) * parameters.a_column)"
            text.append(f"let a{row}_{term} = vec4<f32>({a});")
            text += [f"chain{row}_{group} = fma(a{row}_{term}, b{term}_{group}, chain{row}_{group});" for group in groups]
    return [f"            {line}" for line in text]
