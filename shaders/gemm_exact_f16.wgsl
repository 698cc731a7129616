// D[z] = act(alpha * A[z] @ B[z] + beta * D[z] + bias), exactly, rounded once: A and B float16, everything else float32, act none or relu.
// Integer arithmetic alone, so the bits are the same on every device and for every order, whatever it does to floats.
// Joined by gpu/shaders.py with decode.wgsl and the lines `load_a`, `load_b`, which give the 16 bits of an element.
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
// The end of an element: alpha * sum + beta * C + bias in `number`, 40 digits of radix 2^16 from 2^-304 on (alpha * sum reaches down to
// 2^-197, beta * C to 2^-298; both stay below 2^257), then one rounding to float32: to nearest, ties to even, or to odd where
// narrow.wgsl rounds on to 11 or 8 bits (24 >= 11 + 2: the second rounding is then that of the exact value).
// Infinities and NaN count as zero on the way and are worked out by `special_product` where a row or column holds one.

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

const HAS_PRODUCT = 1u;
const HAS_ADDEND = 2u;
const HAS_BIAS = 4u;
const A_ALONG_K = 8u;
const B_ALONG_K = 16u;
const ROUND_TO_ODD = 32u;
const RELU = 1u;

const TILE = 32u;
const DEPTH = 16u;
const PITCH = 33u;
const LANES = 256u;
const DIGITS = 40u;
const LOWEST = -304;

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

var<private> number: array<i32, 40>;

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

// ---- the end of an element ----

// What a term that is not finite makes of a sum: flags that are joined by `|`.
const PLUS_INFINITY = 1u;
const MINUS_INFINITY = 2u;
const NOT_A_NUMBER = 4u;

fn infinity_of(negative: bool) -> u32 {
    return select(PLUS_INFINITY, MINUS_INFINITY, negative);
}

fn is_finite32(bits: u32) -> bool {
    return (bits & 0x7f800000u) != 0x7f800000u;
}

// x * y of which one is not finite.
fn special32(x: u32, y: u32) -> u32 {
    let x_size = x & 0x7fffffffu;
    let y_size = y & 0x7fffffffu;
    if (x_size > 0x7f800000u || y_size > 0x7f800000u || x_size == 0u || y_size == 0u) {
        return NOT_A_NUMBER;
    }
    return infinity_of(((x ^ y) & 0x80000000u) != 0u);
}

fn special_product(row: u32, column: u32, product: u32) -> u32 {
    var found = 0u;
    for (var k = 0u; k < parameters.k; k++) {
        let x = load_a(parameters.a_offset + product * parameters.a_batch + row * parameters.a_row + k * parameters.a_column);
        let y = load_b(parameters.b_offset + product * parameters.b_batch + k * parameters.b_row + column * parameters.b_column);
        if (is_special(x) || is_special(y)) {
            let x_size = x & 0x7fffu;
            let y_size = y & 0x7fffu;
            if (x_size > 0x7c00u || y_size > 0x7c00u || x_size == 0u || y_size == 0u) {
                found |= NOT_A_NUMBER;
            } else {
                found |= infinity_of(((x ^ y) & 0x8000u) != 0u);
            }
        }
    }
    return found;
}

// Whether every product, times alpha, is a negative zero.
fn products_are_negative_zeros(row: u32, column: u32, product: u32) -> bool {
    let sign = (parameters.alpha >> 16u) & 0x8000u;
    for (var k = 0u; k < parameters.k; k++) {
        let x = load_a(parameters.a_offset + product * parameters.a_batch + row * parameters.a_row + k * parameters.a_column);
        let y = load_b(parameters.b_offset + product * parameters.b_batch + k * parameters.b_row + column * parameters.b_column);
        if (((x & 0x7fffu) != 0u && (y & 0x7fffu) != 0u) || ((x ^ y ^ sign) & 0x8000u) == 0u) {
            return false;
        }
    }
    return true;
}

fn significand32(bits: u32) -> u32 {
    return select(bits & 0x7fffffu, (bits & 0x7fffffu) | 0x800000u, (bits & 0x7f800000u) != 0u);
}

// Of the significand's unit.
fn exponent32(bits: u32) -> i32 {
    return max(i32((bits >> 23u) & 255u), 1) - 150;
}

// number += (-1)^negative * value * 2^exponent, value below 2^28. Carries wait: a digit receives fewer than 2^6 parts below 2^16.
fn add_to_number(value: u32, exponent: i32, negative: bool) {
    let position = u32(exponent - LOWEST);
    let digit = position >> 4u;
    let shift = position & 15u;
    let parts = vec3<i32>(i32((value << shift) & 0xffffu), i32((value >> (16u - shift)) & 0xffffu), i32((value >> 16u) >> (16u - shift)));
    let signed = select(parts, -parts, negative);
    number[digit] += signed.x;
    number[digit + 1u] += signed.y;
    number[digit + 2u] += select(0, signed.z, shift != 0u);
}

fn add_product_to_number(x: u32, y: u32) {
    let negative = ((x ^ y) & 0x80000000u) != 0u;
    let exponent = exponent32(x) + exponent32(y);
    let p = significand32(x);
    let q = significand32(y);
    add_to_number((p & 0xfffu) * (q & 0xfffu), exponent, negative);
    add_to_number((p & 0xfffu) * (q >> 12u), exponent + 12, negative);
    add_to_number((p >> 12u) * (q & 0xfffu), exponent + 12, negative);
    add_to_number((p >> 12u) * (q >> 12u), exponent + 24, negative);
}

// Carries `number`; true where it was negative, and is then its negative.
fn carry_number() -> bool {
    var carry = 0;
    for (var index = 0u; index < DIGITS; index++) {
        let value = number[index] + carry;
        number[index] = value & 0xffff;
        carry = value >> 16u;
    }
    if (carry >= 0) {
        return false;
    }
    carry = 1;
    for (var index = 0u; index < DIGITS; index++) {
        let value = (number[index] ^ 0xffff) + carry;
        number[index] = value & 0xffff;
        carry = value >> 16u;
    }
    return true;
}

// The float32 bits of `number`, whose highest digit that is not zero is `top`.
fn round_number(top: u32) -> u32 {
    let first = u32(number[top]);
    var second = 0u;
    var third = 0u;
    if (top >= 1u) {
        second = u32(number[top - 1u]);
    }
    if (top >= 2u) {
        third = u32(number[top - 2u]);
    }
    let lead = firstLeadingBit(first);
    var bits = (((first << 16u) | second) << (15u - lead)) | (third >> (1u + lead));
    var lost = (third & ((2u << lead) - 1u)) != 0u;
    for (var index = 2u; index < top; index++) {
        lost = lost || number[index - 2u] != 0;
    }
    // 32 bits, the highest set; the lowest is sticky.
    bits |= select(0u, 1u, lost);
    let leading = LOWEST + i32(16u * top + lead);
    let odd = (parameters.flags & ROUND_TO_ODD) != 0u;
    if (leading > 127) {
        return select(0x7f800000u, 0x7f7fffffu, odd);
    }
    var shift = 8u;
    var field = 0u;
    if (leading < -126) {
        shift += u32(-126 - leading);
        if (shift > 32u) {
            return select(0u, 1u, odd);
        }
    } else {
        field = u32(leading + 126) << 23u;
    }
    var kept = 0u;
    var cut = bits;
    if (shift < 32u) {
        kept = bits >> shift;
        cut = bits << (32u - shift);
    }
    if (odd) {
        return (field + kept) | select(0u, 1u, cut != 0u);
    }
    kept += select(0u, 1u, cut > 0x80000000u || (cut == 0x80000000u && (kept & 1u) == 1u));
    return field + kept;
}

// The digits of the sum, radix 2^14, carried; the last keeps the sign.
fn finish(sum: array<i32, 8>, row: u32, column: u32, product: u32, special: bool, index: u32) -> u32 {
    let has_product = (parameters.flags & HAS_PRODUCT) != 0u;
    let has_addend = (parameters.flags & HAS_ADDEND) != 0u;
    let has_bias = (parameters.flags & HAS_BIAS) != 0u;
    let relu = parameters.activation == RELU;
    let alpha = parameters.alpha;
    let beta = parameters.beta;
    var c = 0u;
    if (has_addend) {
        c = d[index];
    }
    var shift = 0u;
    if (has_bias) {
        shift = bias[parameters.bias_offset + column];
    }

    var digits = sum;
    let negative = digits[7] < 0;
    if (negative) {
        var carry = 1;
        for (var each = 0u; each < 8u; each++) {
            let value = (digits[each] ^ 0x3fff) + carry;
            digits[each] = value & 0x3fff;
            carry = value >> 14u;
        }
    }
    var any = 0;
    for (var each = 0u; each < 8u; each++) {
        any |= digits[each];
    }

    var found = 0u;
    if (has_product) {
        var of_product = 0u;
        if (special) {
            of_product = special_product(row, column, product);
        }
        if (of_product != 0u) {
            if (of_product > MINUS_INFINITY || (alpha & 0x7fffffffu) > 0x7f800000u) {
                found = NOT_A_NUMBER;
            } else {
                found = infinity_of((of_product == MINUS_INFINITY) != ((alpha & 0x80000000u) != 0u));
            }
        } else if (!is_finite32(alpha)) {
            found = special32(alpha, select(select(0x3f800000u, 0xbf800000u, negative), 0u, any == 0));
        }
    }
    if (has_addend && !(is_finite32(c) && is_finite32(beta))) {
        found |= special32(beta, c);
    }
    if (has_bias && !is_finite32(shift)) {
        found |= special32(shift, 0x3f800000u);
    }
    if (found > MINUS_INFINITY) {
        return 0x7fc00000u;
    }
    if (found != 0u) {
        return select(0x7f800000u, select(0xff800000u, 0u, relu), found == MINUS_INFINITY);
    }

    for (var each = 0u; each < DIGITS; each++) {
        number[each] = 0;
    }
    if (has_product && any != 0) {
        let factor = significand32(alpha);
        let minus = negative != ((alpha & 0x80000000u) != 0u);
        for (var each = 0u; each < 8u; each++) {
            let exponent = exponent32(alpha) + 14 * i32(each) - 48;
            add_to_number(u32(digits[each]) * (factor & 0xfffu), exponent, minus);
            add_to_number(u32(digits[each]) * (factor >> 12u), exponent + 12, minus);
        }
    }
    if (has_addend) {
        add_product_to_number(beta, c);
    }
    if (has_bias) {
        add_to_number(significand32(shift), exponent32(shift), (shift & 0x80000000u) != 0u);
    }
    let below = carry_number();
    var top = DIGITS;
    while (top > 0u && number[top - 1u] == 0) {
        top--;
    }
    if (top > 0u) {
        if (below && relu) {
            return 0u;
        }
        return round_number(top - 1u) | select(0u, 0x80000000u, below);
    }

    // Zero: negative only where every term is.
    var minus = !relu && (has_product || has_addend || has_bias);
    if (has_addend) {
        minus = minus && ((c & 0x7fffffffu) == 0u || (beta & 0x7fffffffu) == 0u) && ((c ^ beta) & 0x80000000u) != 0u;
    }
    if (has_bias) {
        minus = minus && shift == 0x80000000u;
    }
    if (minus && has_product) {
        minus = products_are_negative_zeros(row, column, product);
    }
    return select(0u, 0x80000000u, minus);
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
            let index = parameters.d_offset + workgroup.z * parameters.d_batch + row * parameters.d_row + column;
            let sum = array<i32, 8>(t0[part], t1[part], t2[part], t3[part], t4[part], t5[part], t6[part], t7[part]);
            d[index] = finish(sum, row, column, workgroup.z, special, index);
        }
    }
}
