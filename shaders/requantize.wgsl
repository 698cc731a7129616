// int32 sums -> int8 or uint8, and their place in packed words. py_gemm/requantize.py defines the arithmetic:
//
//     q = clamp(zero point + rne(scale * (sum + bias)))        sum + bias wraps; the product is exact and rounded once, ties to even
//
// A scale is significand * 2^-shift, both in one word of the block: 24 bits and 6. The product has at most 31 + 24 bits and lives in two
// words; WGSL has no integers of 64 bits. Rounding works on magnitudes, which is the same, for ties to even are symmetric.
// With the zero point added before the rounding, only ties change: the sum of quotient and zero point has to be the even one.
//
// Four neighbours of a row fill a word or straddle two. Where a word has bytes of others (the edge of another row, something beside
// D), only our bytes are changed, by one atomic AND and one OR: whoever owns the other bytes does the same, in any order.

@group(0) @binding(4) var<storage, read_write> d: array<atomic<u32>>;

const ZERO_POINT_FIRST = 2;

struct Wide {
    high: u32,
    low: u32,
}

fn product_of(x: u32, y: u32) -> Wide {
    let low = (x & 0xffffu) * (y & 0xffffu);
    let left = (x >> 16u) * (y & 0xffffu);
    let right = (x & 0xffffu) * (y >> 16u);
    let middle = (low >> 16u) + (left & 0xffffu) + (right & 0xffffu);
    return Wide(
        (x >> 16u) * (y >> 16u) + (left >> 16u) + (right >> 16u) + (middle >> 16u),
        (low & 0xffffu) | (middle << 16u),
    );
}

// value / 2^shift to the nearest integer, at most 2^31 - 1; of two equally near ones that which is even once `odd` (0 or 1) is added.
fn rounded(value: Wide, shift: u32, odd: u32) -> u32 {
    const MOST = 0x7fffffffu;
    if (shift == 0u) {
        return select(min(value.low, MOST), MOST, value.high != 0u);
    }
    var quotient = 0u;
    var rest = Wide();
    var half = Wide();
    if (shift < 32u) {
        if ((value.high >> shift) != 0u) {
            return MOST;
        }
        quotient = (value.high << (32u - shift)) | (value.low >> shift);
        rest.low = value.low & ((1u << shift) - 1u);
        half.low = 1u << (shift - 1u);
    } else if (shift == 32u) {
        quotient = value.high;
        rest.low = value.low;
        half.low = 0x80000000u;
    } else {
        quotient = value.high >> (shift - 32u);
        rest = Wide(value.high & ((1u << (shift - 32u)) - 1u), value.low);
        half.high = 1u << (shift - 33u);
    }
    let above = rest.high > half.high || (rest.high == half.high && rest.low > half.low);
    let tie = rest.high == half.high && rest.low == half.low;
    let up = above || (tie && ((quotient + odd) & 1u) == 1u);
    return min(quotient, MOST - 1u) + select(0u, 1u, up);
}

// row and column count from the first of the whole product.
fn requantize(sum: i32, row: u32, column: u32) -> i32 {
    let bias = block[u32(block[8]) + row * u32(block[9]) + column * u32(block[10])];
    let scale = bitcast<u32>(block[u32(block[11]) + row * u32(block[12]) + column * u32(block[13])]);
    let value = sum + bias;
    let zero_point = block[5];
    let odd = select(0u, bitcast<u32>(zero_point) & 1u, (block[4] & ZERO_POINT_FIRST) != 0);
    // -2^31 is its own two's complement, and as u32 its own magnitude.
    let magnitude = bitcast<u32>(select(value, -value, value < 0));
    let quotient = bitcast<i32>(min(rounded(product_of(magnitude, scale & 0xffffffu), scale >> 24u, odd), 65536u));
    return clamp(zero_point + select(quotient, -quotient, value < 0), block[6], block[7]);
}

fn put(word: u32, mask: u32, bits: u32) {
    atomicAnd(&d[word], ~mask);
    atomicOr(&d[word], bits & mask);
}

fn store(row: u32, column: u32, product: u32, sums: vec4<i32>) {
    if (row >= parameters.m || column >= parameters.n) {
        return;
    }
    let at = parameters.d_offset + product * parameters.d_batch + row * parameters.d_row + column;
    let count = min(parameters.n - column, 4u);
    var values = sums;
    var bytes = 0u;
    for (var part = 0u; part < count; part++) {
        let value = requantize(values[part], parameters.first_row + row, parameters.first_column + column + part);
        bytes |= (bitcast<u32>(value) & 0xffu) << (8u * part);
    }
    let shift = (at & 3u) * 8u;
    let mask = first_bytes(count);
    if (mask == 0xffffffffu && shift == 0u) {
        atomicStore(&d[at >> 2u], bytes);
        return;
    }
    put(at >> 2u, mask << shift, bytes << shift);
    if ((at & 3u) + count > 4u) {
        put((at >> 2u) + 1u, mask >> (32u - shift), bytes >> (32u - shift));
    }
}
