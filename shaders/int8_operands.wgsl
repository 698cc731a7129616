// What the int8 kernels share: their parameters, and how four elements of an operand become one word. Reads no word that holds no
// element of the operand. Joined by gpu/shaders.py with int8_dot4.wgsl or int8_plain.wgsl and one of the two int8_store files.
//
// int8 and uint8 lie four to a word, element i in byte i % 4 of word i / 4; rows may begin at any byte. A group is four lanes (rows of
// A, columns of B) by four steps of k, as a vec4 with one word a lane:
//
//     operand    k0 k1 k2 k3           group.x  byte 0 = a0, 1 = a1, 2 = a2, 3 = a3
//     lane 0     a0 a1 a2 a3           group.y           b0      b1      b2      b3
//     lane 1     b0 b1 b2 b3           ...
//
// Bytes past the last lane or the last k are zero. uint8 becomes int8 by subtracting 128 (the top bit is flipped); its zero point is
// lowered by as much, so that every product is one of int8.

struct Parameters {
    m: u32,
    n: u32,
    k: u32,
    flags: u32,
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
    // Where this piece of the product begins, for the vectors of the block.
    first_row: u32,
    first_column: u32,
}

const A_UNSIGNED = 1u;
const B_UNSIGNED = 2u;
// How elements neighbour each other in memory: along k, across the lanes, or (neither flag) not at all.
const A_ALONG_K = 4u;
const A_ACROSS = 8u;
const B_ALONG_K = 16u;
const B_ACROSS = 32u;
// The sums are added to those that lie in D already: a later part of a deep k. Only where int32 is stored.
const ADDS = 64u;

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read> block: array<i32>;

fn has(flag: u32) -> bool {
    return (parameters.flags & flag) != 0u;
}

fn first_bytes(count: u32) -> u32 {
    return 0xffffffffu >> (32u - 8u * count);
}

// `count` (1 to 4) neighbours from element `at`, in the low bytes; the others are zero.
fn neighbours_of_a(at: u32, count: u32) -> u32 {
    let shift = (at & 3u) * 8u;
    var word = a[at >> 2u] >> shift;
    if ((at & 3u) + count > 4u) {
        word |= a[(at >> 2u) + 1u] << (32u - shift);
    }
    return (word ^ select(0u, 0x80808080u, has(A_UNSIGNED))) & first_bytes(count);
}

fn neighbours_of_b(at: u32, count: u32) -> u32 {
    let shift = (at & 3u) * 8u;
    var word = b[at >> 2u] >> shift;
    if ((at & 3u) + count > 4u) {
        word |= b[(at >> 2u) + 1u] << (32u - shift);
    }
    return (word ^ select(0u, 0x80808080u, has(B_UNSIGNED))) & first_bytes(count);
}

// Four words of four lanes each, one a step of k -> four words of four steps each, one a lane.
fn transpose(steps: vec4<u32>) -> vec4<u32> {
    let low = (steps.xz & vec2<u32>(0x00ff00ffu)) | ((steps.yw & vec2<u32>(0x00ff00ffu)) << vec2<u32>(8u));
    let high = ((steps.xz >> vec2<u32>(8u)) & vec2<u32>(0x00ff00ffu)) | (steps.yw & vec2<u32>(0xff00ff00u));
    return vec4<u32>(
        (low.x & 0xffffu) | (low.y << 16u),
        (high.x & 0xffffu) | (high.y << 16u),
        (low.x >> 16u) | (low.y & 0xffff0000u),
        (high.x >> 16u) | (high.y & 0xffff0000u),
    );
}

fn group_of_a(row: u32, first_k: u32, product: u32) -> vec4<u32> {
    var group = vec4<u32>();
    if (row >= parameters.m || first_k >= parameters.k) {
        return group;
    }
    let rows = min(parameters.m - row, 4u);
    let depth = min(parameters.k - first_k, 4u);
    let start = parameters.a_offset + product * parameters.a_batch + row * parameters.a_row + first_k * parameters.a_column;
    if (has(A_ALONG_K)) {
        for (var lane = 0u; lane < rows; lane++) {
            group[lane] = neighbours_of_a(start + lane * parameters.a_row, depth);
        }
    } else if (has(A_ACROSS)) {
        for (var step = 0u; step < depth; step++) {
            group[step] = neighbours_of_a(start + step * parameters.a_column, rows);
        }
        group = transpose(group);
    } else {
        for (var lane = 0u; lane < rows; lane++) {
            for (var step = 0u; step < depth; step++) {
                group[lane] |= neighbours_of_a(start + lane * parameters.a_row + step * parameters.a_column, 1u) << (8u * step);
            }
        }
    }
    return group;
}

fn group_of_b(column: u32, first_k: u32, product: u32) -> vec4<u32> {
    var group = vec4<u32>();
    if (column >= parameters.n || first_k >= parameters.k) {
        return group;
    }
    let columns = min(parameters.n - column, 4u);
    let depth = min(parameters.k - first_k, 4u);
    let start = parameters.b_offset + product * parameters.b_batch + column * parameters.b_column + first_k * parameters.b_row;
    if (has(B_ALONG_K)) {
        for (var lane = 0u; lane < columns; lane++) {
            group[lane] = neighbours_of_b(start + lane * parameters.b_column, depth);
        }
    } else if (has(B_ACROSS)) {
        for (var step = 0u; step < depth; step++) {
            group[step] = neighbours_of_b(start + step * parameters.b_row, columns);
        }
        group = transpose(group);
    } else {
        for (var lane = 0u; lane < columns; lane++) {
            for (var step = 0u; step < depth; step++) {
                group[lane] |= neighbours_of_b(start + lane * parameters.b_column + step * parameters.b_row, 1u) << (8u * step);
            }
        }
    }
    return group;
}

// The block of py_gemm/int8_block.py: its head says where each vector begins and how far its elements are apart (0: one for all).

fn zero_of_a(row: u32) -> i32 {
    let at = u32(block[0]) + (parameters.first_row + min(row, parameters.m - 1u)) * u32(block[1]);
    return block[at] - select(0, 128, has(A_UNSIGNED));
}

fn zero_of_b(column: u32) -> i32 {
    let at = u32(block[2]) + (parameters.first_column + min(column, parameters.n - 1u)) * u32(block[3]);
    return block[at] - select(0, 128, has(B_UNSIGNED));
}

fn zeros_of_b(column: u32) -> vec4<i32> {
    return vec4<i32>(zero_of_b(column), zero_of_b(column + 1u), zero_of_b(column + 2u), zero_of_b(column + 3u));
}
