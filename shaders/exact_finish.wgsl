// The end of an exact element: from the exact sum of its products to the bits of D, in integer arithmetic. Joined after a file that
// declares `parameters` (flags, alpha, beta, activation, bias_offset; floats as bits), `bias` and `d`.
//
// alpha * sum + beta * C + bias is collected in `number`, 40 digits of radix 2^16 from 2^-304 on (alpha * sum reaches down to 2^-197,
// beta * C to 2^-298; both stay below 2^257), and rounded once to float32: to nearest, ties to even, or to odd where narrow.wgsl rounds
// on to 11 or 8 bits (24 >= 11 + 2: the second rounding is then that of the exact value).
//
//   infinities and NaN   IEEE rules on the exact expression, by flags (exact_terms.wgsl finds those of the products)
//   zero                 -0 only where every term is a negative zero
//   relu                 on the exact value; rounding keeps its sign

const HAS_PRODUCT = 1u;
const HAS_ADDEND = 2u;
const HAS_BIAS = 4u;
const ROUND_TO_ODD = 32u;
const RELU = 1u;
const DIGITS = 40u;
const LOWEST = -304;

var<private> number: array<i32, 40>;

// What terms that are not finite make of a sum: flags that are joined by `|`. The last: not every product is a negative zero.
const PLUS_INFINITY = 1u;
const MINUS_INFINITY = 2u;
const NOT_A_NUMBER = 4u;
const NOT_NEGATIVE_ZEROS = 8u;

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

// sum: digits of radix 2^14, carried; the last keeps the sign. about: the flags of the products.
fn finish(sum: array<i32, 8>, about: u32, column: u32, index: u32) -> u32 {
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
        let of_product = about & (PLUS_INFINITY | MINUS_INFINITY | NOT_A_NUMBER);
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
    if (has_product) {
        minus = minus && (about & NOT_NEGATIVE_ZEROS) == 0u;
    }
    return select(0u, 0x80000000u, minus);
}
