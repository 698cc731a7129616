// How one element is read out of a 32-bit word, in integer arithmetic: needs no `shader-f16`, no 16-bit storage and no
// unpack2x16float (whose treatment of subnormals, infinities and NaN is left to the implementation).
//
// A 16-bit operand is bound as array<u32>; element i lies in word i / 2, in its low half where i is even:
//
//     word 0          word 1          ...
//     |  1   |  0   | |  3   |  2   |       (bit 31 on the left)
//
// A generated line joins these to an operand: fn load_a(index: u32) -> f32 { return decode_float16(a[index >> 1u], index); }

fn decode_float32(word: u32, index: u32) -> f32 {
    return bitcast<f32>(word);
}

fn half_of(word: u32, index: u32) -> u32 {
    return (word >> ((index & 1u) * 16u)) & 0xffffu;
}

// The exponent of an infinity or a NaN grows by twice as much. A subnormal half, magnitude * 2^-24, is a normal float32: the product is
// exact and no subnormal ever meets the float unit.
fn decode_float16(word: u32, index: u32) -> f32 {
    let bits = half_of(word, index);
    let magnitude = bits & 0x7fffu;
    let normal = (magnitude << 13u) + select(0x38000000u, 0x70000000u, magnitude >= 0x7c00u);
    let result = select(normal, bitcast<u32>(f32(magnitude) * 0x1p-24f), magnitude < 0x0400u);
    return bitcast<f32>(result | ((bits & 0x8000u) << 16u));
}

fn decode_bfloat16(word: u32, index: u32) -> f32 {
    return bitcast<f32>(half_of(word, index) << 16u);
}
