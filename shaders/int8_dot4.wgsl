// Products of four int8 with four by the instruction of the WGSL language feature packed_4x8_integer_dot_product. Exact: the largest sum
// of four is 65,536. Gives the integers of int8_plain.wgsl, which takes its place where the feature is missing.

alias Four = u32;

fn four(word: u32) -> Four {
    return word;
}

fn dot4(x: Four, y: Four) -> i32 {
    return dot4I8Packed(x, y);
}

fn sum4(x: Four) -> i32 {
    return dot4I8Packed(x, 0x01010101u);
}
