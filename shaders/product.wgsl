// What every kernel of a product is given: sizes, strides, the epilogue, and where k is split. gpu/planner.py packs it.
//
// A dispatch's z counts products and, within each, ranges of k: z = product * ranges + range. Range r covers the terms
// [r * range_terms, (r + 1) * range_terms) that lie below k, and is written to d + r * d_range; one range is the whole of k. A dispatch
// sums the first part_terms of each range; where that is not all of them, the next one begins with what this one leaves in D.

struct Parameters {
    m: u32,
    n: u32,
    k: u32,
    flags: u32,
    alpha: f32,
    beta: f32,
    activation: u32,
    bias_offset: u32,
    // Strides and offsets in elements; u32 arithmetic wraps, so a negative stride is its two's complement.
    a_offset: u32,
    a_row: u32,
    a_column: u32,
    a_batch: u32,
    b_offset: u32,
    b_row: u32,
    b_column: u32,
    b_batch: u32,
    d_offset: u32,
    d_row: u32,
    d_batch: u32,
    ranges: u32,
    range_terms: u32,
    d_range: u32,
    part_terms: u32,
}

// Staging walks the operand along the dimension in which its elements are neighbours.
const A_ALONG_K = 8u;
const B_ALONG_K = 16u;
// The sum begins with what D holds.
const CONTINUES = 1024u;
// What D gets is not finished: the sum of each lane, a plane each (gemm_rows.wgsl).
const LEAVES = 2048u;

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> d: array<f32>;
