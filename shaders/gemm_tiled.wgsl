// D[z] = act(alpha * A[z] @ B[z] + beta * D[z] + bias): the portable kernel. Sums in float32, writes float32, any size, any
// strides. Never reads A or B without HAS_PRODUCT, D without HAS_ADDEND, the bias without HAS_BIAS, nor anything outside the operands.
// Joined by gpu/shaders.py with decode, epilogue, product, finish and the two lines `load_a`, `load_b`.
//
// One workgroup of 256 invocations owns a 64 x 64 tile of D. k advances in steps of 16 through two tiles in workgroup memory,
// both stored by k so that neighbours read neighbours:
//
//                      columns 0..63 (+1 pad)                    invocation (r, c), r = lane / 16, c = lane % 16, owns
//                  k   +------------------+                      rows    r, r + 16, r + 32, r + 48
//     rows 0..63   |   | tile_b[k][column]|                      columns c, c + 16, c + 32, c + 48
//     (+1 pad)     v   +------------------+                      as four vectors of columns, one a row
//     tile_a[k][row]   16 steps
//
// Order of summation, the same for every element and every input type (gpu/variants.py states it as data):
//     chain  16 products of one step, each by fma, from +0, in increasing k
//     block  the chains of 2 steps;   group  4 blocks;   total  the groups in increasing k     (each from +0)
// The tail of k is padded with zeros on both sides, which adds nothing. Sums past the last step are joined as they stand.
// Where k is split into ranges, each range is summed so into a plane of its own and gemm_splitk_sum.wgsl adds them. A range may be
// summed part by part, each a multiple of 128 terms but for the last: CONTINUES begins with the total that the part before has left.

const TILE = 64u;
const DEPTH = 16u;
const PITCH = 65u;
const LANES = 256u;

var<workgroup> tile_a: array<f32, 1040>;
var<workgroup> tile_b: array<f32, 1040>;

fn stage(first_row: u32, first_column: u32, first_k: u32, end: u32, product: u32, lane: u32) {
    let a_start = parameters.a_offset + product * parameters.a_batch;
    let b_start = parameters.b_offset + product * parameters.b_batch;
    for (var slot = lane; slot < TILE * DEPTH; slot += LANES) {
        var along = slot / TILE;
        var across = slot % TILE;
        if ((parameters.flags & A_ALONG_K) != 0u) {
            along = slot % DEPTH;
            across = slot / DEPTH;
        }
        let row = first_row + across;
        let at = first_k + along;
        var value = 0.0;
        if (row < parameters.m && at < end) {
            value = load_a(a_start + row * parameters.a_row + at * parameters.a_column);
        }
        tile_a[along * PITCH + across] = value;
    }
    for (var slot = lane; slot < TILE * DEPTH; slot += LANES) {
        var along = slot / TILE;
        var across = slot % TILE;
        if ((parameters.flags & B_ALONG_K) != 0u) {
            along = slot % DEPTH;
            across = slot / DEPTH;
        }
        let column = first_column + across;
        let at = first_k + along;
        var value = 0.0;
        if (column < parameters.n && at < end) {
            value = load_b(b_start + at * parameters.b_row + column * parameters.b_column);
        }
        tile_b[along * PITCH + across] = value;
    }
}

fn unfinished(row: u32, column: u32, first: u32) -> vec4<f32> {
    var sums = vec4<f32>();
    if ((parameters.flags & CONTINUES) != 0u && row < parameters.m) {
        let start = first + row * parameters.d_row;
        for (var part = 0u; part < 4u; part++) {
            let at = column + 16u * part;
            if (at < parameters.n) {
                sums[part] = d[start + at];
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
        let at = column + 16u * part;
        if (at < parameters.n) {
            d[start + at] = finish(values[part], start + at, at);
        }
    }
}

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_row = workgroup.y * TILE;
    let first_column = workgroup.x * TILE;
    let r = lane / 16u;
    let c = lane % 16u;
    let product = workgroup.z / parameters.ranges;
    let range = workgroup.z % parameters.ranges;
    let begin = range * parameters.range_terms;
    let end = min(parameters.k, begin + parameters.part_terms);
    let first = parameters.d_offset + product * parameters.d_batch + range * parameters.d_range;

    var total0 = unfinished(first_row + r, first_column + c, first);
    var total1 = unfinished(first_row + r + 16u, first_column + c, first);
    var total2 = unfinished(first_row + r + 32u, first_column + c, first);
    var total3 = unfinished(first_row + r + 48u, first_column + c, first);
    var group0 = vec4<f32>();
    var group1 = vec4<f32>();
    var group2 = vec4<f32>();
    var group3 = vec4<f32>();
    var block0 = vec4<f32>();
    var block1 = vec4<f32>();
    var block2 = vec4<f32>();
    var block3 = vec4<f32>();

    var step = 0u;
    for (var first_k = begin; first_k < end; first_k += DEPTH) {
        stage(first_row, first_column, first_k, end, product, lane);
        workgroupBarrier();

        var chain0 = vec4<f32>();
        var chain1 = vec4<f32>();
        var chain2 = vec4<f32>();
        var chain3 = vec4<f32>();
        for (var at = 0u; at < DEPTH * PITCH; at += PITCH) {
            let columns = vec4<f32>(tile_b[at + c], tile_b[at + c + 16u], tile_b[at + c + 32u], tile_b[at + c + 48u]);
            chain0 = fma(vec4<f32>(tile_a[at + r]), columns, chain0);
            chain1 = fma(vec4<f32>(tile_a[at + r + 16u]), columns, chain1);
            chain2 = fma(vec4<f32>(tile_a[at + r + 32u]), columns, chain2);
            chain3 = fma(vec4<f32>(tile_a[at + r + 48u]), columns, chain3);
        }
        workgroupBarrier();

        block0 += chain0;
        block1 += chain1;
        block2 += chain2;
        block3 += chain3;
        step += 1u;
        if (step % 2u == 0u) {
            group0 += block0;
            group1 += block1;
            group2 += block2;
            group3 += block3;
            block0 = vec4<f32>();
            block1 = vec4<f32>();
            block2 = vec4<f32>();
            block3 = vec4<f32>();
        }
        if (step % 8u == 0u) {
            total0 += group0;
            total1 += group1;
            total2 += group2;
            total3 += group3;
            group0 = vec4<f32>();
            group1 = vec4<f32>();
            group2 = vec4<f32>();
            group3 = vec4<f32>();
        }
    }
    total0 += group0 + block0;
    total1 += group1 + block1;
    total2 += group2 + block2;
    total3 += group3 + block3;

    store(first_row + r, first_column + c, first, total0);
    store(first_row + r + 16u, first_column + c, first, total1);
    store(first_row + r + 32u, first_column + c, first, total2);
    store(first_row + r + 48u, first_column + c, first, total3);
}
