// Products of four int8 with four in plain integers, for devices without packed_4x8_integer_dot_product. Gives the integers of
// int8_dot4.wgsl; a word is taken apart once, not for each product.

alias Four = vec4<i32>;

fn four(word: u32) -> Four {
    return (vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
}

fn dot4(x: Four, y: Four) -> i32 {
    return dot(x, y);
}

fn sum4(x: Four) -> i32 {
    return x.x + x.y + x.z + x.w;
}
