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

from ..assets import read_asset

# Terms of one chain: as many as keep the error at K = 4096 under 4e-7, with two sets of registers instead of four.
CHAIN = 64

# The flags of the planner; product.wgsl has the others.
A_VECTORS_ALONG_K, A_VECTORS_ACROSS, B_VECTORS_ALONG_K, B_VECTORS_ACROSS = 64, 128, 256, 512


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """rows, columns, depth: of a workgroup and its k step. block_rows, block_columns: of an invocation, multiples of 4."""

    rows: int
    columns: int
    depth: int
    block_rows: int
    block_columns: int

    @property
    def name(self) -> str:
        return f"register-{self.rows}x{self.columns}x{self.depth}-block{self.block_rows}x{self.block_columns}"

    @property
    def kernel(self) -> str:
        return "gemm_" + self.name.replace("-", "_")

    @property
    def invocations(self) -> int:
        return self.rows // self.block_rows * (self.columns // self.block_columns)

    @property
    def workgroup_bytes(self) -> int:
        return 4 * self.depth * (self.rows + self.columns)


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
)


def kernel_text(tile: RegisterTile) -> str:
    """Staging of both operands and `main`; joined after product.wgsl and finish.wgsl."""
    return "\n".join((_constants(tile), _staging("a", tile, binding=5), _staging("b", tile, binding=6), _main(tile)))


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
    declare = [f"    var {kind}{row}_{group} = vec4<f32>();" for kind in ("total", "chain") for row, group in block]
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
    store = [
        f"    store(first_row + 4u * (r + {row // 4 * grid_rows}u) + {row % 4}u, "
        f"first_column + 4u * (c + {group * grid_columns}u), first, total{row}_{group});"
        for row, group in block
    ]
    lines = "\n".join
    return f"""
fn store(row: u32, column: u32, first: u32, sums: vec4<f32>) {{
    if (row >= parameters.m) {{
        return;
    }}
    let start = first + row * parameters.d_row;
    var values = sums;
    for (var part = 0u; part < 4u; part++) {{
        if (column + part < parameters.n) {{
            d[start + column + part] = finish(values[part], start + column + part, column + part);
        }}
    }}
}}

@compute @workgroup_size({tile.invocations}, 1, 1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let first_row = workgroup.y * {tile.rows}u;
    let first_column = workgroup.x * {tile.columns}u;
    let r = lane / {grid_columns}u;
    let c = lane % {grid_columns}u;
    let product = workgroup.z / parameters.ranges;
    let range = workgroup.z % parameters.ranges;
    let begin = range * parameters.range_terms;
    let end = min(parameters.k, begin + parameters.range_terms);
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

    let first = parameters.d_offset + product * parameters.d_batch + range * parameters.d_range;
{lines(store)}
}}
"""
