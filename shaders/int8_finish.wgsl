// Requantizes int32 sums that lie finished in memory: the last step of products so deep that k was cut. `a` holds the sums, dense words
// [products, m, n] of this piece, addressed by a_offset, a_row and a_batch; b is not read. Joined by gpu/shaders.py with
// int8_operands.wgsl, int8_plain.wgsl and requantize.wgsl.
//
// One workgroup of 256 invocations owns 64 x 64 elements: invocation (r, c), r = lane / 16, c = lane % 16, columns 4c..4c+3 of the
// rows r, r + 16, r + 32, r + 48.

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let column = workgroup.x * 64u + 4u * (lane % 16u);
    if (column >= parameters.n) {
        return;
    }
    let count = min(parameters.n - column, 4u);
    for (var row = workgroup.y * 64u + lane / 16u; row < min(parameters.m, workgroup.y * 64u + 64u); row += 16u) {
        let start = parameters.a_offset + workgroup.z * parameters.a_batch + row * parameters.a_row + column;
        var sums = vec4<i32>();
        for (var part = 0u; part < count; part++) {
            sums[part] = bitcast<i32>(a[start + part]);
        }
        store(row, column, workgroup.z, sums);
    }
}
