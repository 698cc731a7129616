// Requantizes int32 sums that lie finished in memory: the last step of products so deep that k was cut. `a` holds the sums, dense words
// [products, m, n] of this piece, addressed by a_offset, a_row and a_batch; b is not read. Joined by gpu/shaders.py with
// int8_operands.wgsl, int8_plain.wgsl and requantize.wgsl.
//
// One workgroup of 256 invocations owns 64 rows x 16 columns: invocation (r, c), r = lane / 4, c = lane % 4, four columns of one row.

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = workgroup.y * 64u + lane / 4u;
    let column = workgroup.x * 16u + 4u * (lane % 4u);
    if (row >= parameters.m || column >= parameters.n) {
        return;
    }
    let start = parameters.a_offset + workgroup.z * parameters.a_batch + row * parameters.a_row + column;
    let count = min(parameters.n - column, 4u);
    var sums = vec4<i32>();
    for (var part = 0u; part < count; part++) {
        sums[part] = bitcast<i32>(a[start + part]);
    }
    store(row, column, workgroup.z, sums);
}
