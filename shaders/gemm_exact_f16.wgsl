// D[z] = act(alpha * A[z] @ B[z] + beta * D[z] + bias), exactly, rounded once: A and B float16, everything else float32, act none or relu.
// Integer arithmetic alone, so the bits are the same on every device and for every order, whatever it does to floats.
// Joined by gpu/shaders.py with decode, exact_terms, exact_finish and the lines `load_a`, `load_b`, which give the 16 bits of an element.
//
// A float16 is a whole multiple of 2^-24 below 2^40 of them. Three balanced digits of radix 2^14 hold it:
//
//     x = 2^-24 (x0 + x1 2^14 + x2 2^28),   |x0|, |x1| <= 2^13, |x2| <= 2^12
//     x y = 2^-48 (weights 0 .. 4 of radix 2^14),   weight w: sum of xi yj over i + j = w, at most 2^27
//
// Eight products of one weight stay below 2^30, so sums run in i32 for 8 steps and are then carried into eight digits of radix 2^14,
// the last of which keeps the sign: 112 bits, and 2^31 products need 80 + 31.
//
// One workgroup of 256 invocations owns a 32 x 32 tile of D; k advances in steps of 16. Invocation (r, c) owns rows r, r + 16 and columns
// c, c + 16, as the four parts of a vector.
//
// exact_finish.wgsl makes an element of D of a sum. Infinities and NaN count as zero here; exact_terms.wgsl works them out where a row or
// a column is marked to hold one.
//
// A deep k is summed part by part: with LEAVES an element of D is nine words, the digits of the sum up to here and the flags of its terms;
// CONTINUES begins with them; gemm_exact_end.wgsl finishes.

struct Parameters {
    m: u32,
    n: u32,
    k: u32,
    flags: u32,
    alpha: u32,
    beta: u32,
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
}

const A_ALONG_K = 8u;
const B_ALONG_K = 16u;
const CONTINUES = 1024u;
const LEAVES = 2048u;

const TILE = 32u;
const DEPTH = 16u;
const PITCH = 33u;
const LANES = 256u;

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<u32>;
@group(0) @binding(4) var<storage, read_write> d: array<u32>;

var<workgroup> a0: array<i32, 528>;
var<workgroup> a1: array<i32, 528>;
var<workgroup> a2: array<i32, 528>;
var<workgroup> b0: array<i32, 528>;
var<workgroup> b1: array<i32, 528>;
var<workgroup> b2: array<i32, 528>;
var<workgroup> special_rows: array<atomic<u32>, 32>;
var<workgroup> special_columns: array<atomic<u32>, 32>;

fn is_special(bits: u32) -> bool {
    return (bits & 0x7c00u) == 0x7c00u;
}

// The three digits of a finite float16; zeros for one that is not.
fn digits_of(bits: u32) -> vec3<i32> {
    let field = (bits >> 10u) & 31u;
    if (field == 31u) {
        return vec3<i32>();
    }
    let significand = select(bits & 0x3ffu, (bits & 0x3ffu) | 0x400u, field != 0u);
    let shift = max(field, 1u) - 1u;
    let low = significand << shift;
    // Bits 32 and up; shift is at most 29.
    let high = (significand >> 1u) >> (31u - shift);
    var digits = vec3<i32>(i32(low & 0x3fffu), i32((low >> 14u) & 0x3fffu), i32((low >> 28u) | (high << 4u)));
    if (digits.x >= 8192) {
        digits.x -= 16384;
        digits.y += 1;
    }
    if (digits.y >= 8192) {
        digits.y -= 16384;
        digits.z += 1;
    }
    return select(digits, -digits, (bits & 0x8000u) != 0u);
}

fn stage(first_row: u32, first_column: u32, first_k: u32, product: u32, lane: u32) {
    let a_start = parameters.a_offset + product * parameters.a_batch;
    let b_start = parameters.b_offset + product * parameters.b_batch;
    for (var slot = lane; slot < TILE * DEPTH; slot += LANES) {
        let along = select(slot / TILE, slot % DEPTH, (parameters.flags & A_ALONG_K) != 0u);
        let across = select(slot % TILE, slot / DEPTH, (parameters.flags & A_ALONG_K) != 0u);
        let row = first_row + across;
        let at = first_k + along;
        var bits = 0u;
        if (row < parameters.m && at < parameters.k) {
            bits = load_a(a_start + row * parameters.a_row + at * parameters.a_column);
        }
        if (is_special(bits)) {
            atomicStore(&special_rows[across], 1u);
        }
        let digits = digits_of(bits);
        a0[along * PITCH + across] = digits.x;
        a1[along * PITCH + across] = digits.y;
        a2[along * PITCH + across] = digits.z;
    }
    for (var slot = lane; slot < TILE * DEPTH; slot += LANES) {
        let along = select(slot / TILE, slot % DEPTH, (parameters.flags & B_ALONG_K) != 0u);
        let across = select(slot % TILE, slot / DEPTH, (parameters.flags & B_ALONG_K) != 0u);
        let column = first_column + across;
        let at = first_k + along;
        var bits = 0u;
        if (column < parameters.n && at < parameters.k) {
            bits = load_b(b_start + at * parameters.b_row + column * parameters.b_column);
        }
        if (is_special(bits)) {
            atomicStore(&special_columns[across], 1u);
        }
        let digits = digits_of(bits);
        b0[along * PITCH + across] = digits.x;
        b1[along * PITCH + across] = digits.y;
        b2[along * PITCH + across] = digits.z;
    }
}

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_row = workgroup.y * TILE;
    let first_column = workgroup.x * TILE;
    let r = lane / 16u;
    let c = lane % 16u;

    // WGSL begins workgroup memory at zero, but not every implementation begins atomics so; a flag too many costs time.
    if (lane < TILE) {
        atomicStore(&special_rows[lane], 0u);
        atomicStore(&special_columns[lane], 0u);
    }
    workgroupBarrier();

    var t0 = vec4<i32>();
    var t1 = vec4<i32>();
    var t2 = vec4<i32>();
    var t3 = vec4<i32>();
    var t4 = vec4<i32>();
    var t5 = vec4<i32>();
    var t6 = vec4<i32>();
    var t7 = vec4<i32>();

    let first = parameters.d_offset + workgroup.z * parameters.d_batch;
    for (var part = 0u; part < 4u; part++) {
        let row = first_row + r + 16u * (part / 2u);
        let column = first_column + c + 16u * (part % 2u);
        if ((parameters.flags & CONTINUES) != 0u && row < parameters.m && column < parameters.n) {
            let at = 9u * (first + row * parameters.d_row + column);
            t0[part] = i32(d[at]);
            t1[part] = i32(d[at + 1u]);
            t2[part] = i32(d[at + 2u]);
            t3[part] = i32(d[at + 3u]);
            t4[part] = i32(d[at + 4u]);
            t5[part] = i32(d[at + 5u]);
            t6[part] = i32(d[at + 6u]);
            t7[part] = i32(d[at + 7u]);
        }
    }

    for (var first_k = 0u; first_k < parameters.k; first_k += DEPTH) {
        stage(first_row, first_column, first_k, workgroup.z, lane);
        workgroupBarrier();
        for (var half = 0u; half < DEPTH * PITCH; half += 8u * PITCH) {
            var s0 = vec4<i32>();
            var s1 = vec4<i32>();
            var s2 = vec4<i32>();
            var s3 = vec4<i32>();
            var s4 = vec4<i32>();
            for (var at = half; at < half + 8u * PITCH; at += PITCH) {
                let x0 = vec4<i32>(a0[at + r], a0[at + r], a0[at + r + 16u], a0[at + r + 16u]);
                let x1 = vec4<i32>(a1[at + r], a1[at + r], a1[at + r + 16u], a1[at + r + 16u]);
                let x2 = vec4<i32>(a2[at + r], a2[at + r], a2[at + r + 16u], a2[at + r + 16u]);
                let y0 = vec4<i32>(b0[at + c], b0[at + c + 16u], b0[at + c], b0[at + c + 16u]);
                let y1 = vec4<i32>(b1[at + c], b1[at + c + 16u], b1[at + c], b1[at + c + 16u]);
                let y2 = vec4<i32>(b2[at + c], b2[at + c + 16u], b2[at + c], b2[at + c + 16u]);
                s0 += x0 * y0;
                s1 += x0 * y1 + x1 * y0;
                s2 += x0 * y2 + x1 * y1 + x2 * y0;
                s3 += x1 * y2 + x2 * y1;
                s4 += x2 * y2;
            }
            let mask = vec4<i32>(0x3fff);
            let bits = vec4<u32>(14u);
            s0 += t0;
            t0 = s0 & mask;
            s1 += t1 + (s0 >> bits);
            t1 = s1 & mask;
            s2 += t2 + (s1 >> bits);
            t2 = s2 & mask;
            s3 += t3 + (s2 >> bits);
            t3 = s3 & mask;
            s4 += t4 + (s3 >> bits);
            t4 = s4 & mask;
            t5 += s4 >> bits;
            t6 += t5 >> bits;
            t5 &= mask;
            t7 += t6 >> bits;
            t6 &= mask;
        }
        workgroupBarrier();
    }

    for (var part = 0u; part < 4u; part++) {
        let across = r + 16u * (part / 2u);
        let along = c + 16u * (part % 2u);
        let row = first_row + across;
        let column = first_column + along;
        if (row < parameters.m && column < parameters.n) {
            let special = (atomicLoad(&special_rows[across]) | atomicLoad(&special_columns[along])) != 0u;
            let index = first + row * parameters.d_row + column;
            var sum = array<i32, 8>(t0[part], t1[part], t2[part], t3[part], t4[part], t5[part], t6[part], t7[part]);
            var any = 0;
            for (var each = 0u; each < 8u; each++) {
                any |= sum[each];
            }
            var about = look(row, column, workgroup.z, special, any == 0);
            if ((parameters.flags & LEAVES) == 0u) {
                d[index] = finish(sum, about, column, index);
                continue;
            }
            if ((parameters.flags & CONTINUES) != 0u) {
                about |= d[9u * index + 8u];
            }
            for (var each = 0u; each < 8u; each++) {
                d[9u * index + each] = u32(sum[each]);
            }
            d[9u * index + 8u] = about;
        }
    }
}
