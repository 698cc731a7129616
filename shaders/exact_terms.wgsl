// What the digits of an exact sum do not say, found by looking at its terms one by one: infinities and NaN, where the row or the column
// is marked to hold one, and whether a sum of zero is a sum of negative zeros. Joined with exact_finish.wgsl, which declares the flags.

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

// The flags of the terms of one element; `zero`: their sum is.
fn look(row: u32, column: u32, product: u32, special: bool, zero: bool) -> u32 {
    var about = NOT_NEGATIVE_ZEROS;
    if (zero && products_are_negative_zeros(row, column, product)) {
        about = 0u;
    }
    if (special) {
        about |= special_product(row, column, product);
    }
    return about;
}
