// The product of at most four rows of A: B is streamed once. Any types, any strides.
// Joined by gpu/shaders.py with decode, epilogue, product, finish, `load_a`, `load_b` and four constants.
//
// A workgroup of 256 invocations owns COLUMNS columns of D, all rows of it; LANES invocations share a column, and lane l takes
// k = l, l + LANES, ... for every row. COLUMNS * LANES = 256. Which index runs fastest among the invocations follows the storage
// of B, so that neighbours read neighbours:
//
//     B stored K x N (FAST_COLUMNS)      invocation = lane * COLUMNS + column      a row of B, COLUMNS elements at a time
//     B stored N x K                     invocation = column * LANES + lane        a column of B, LANES elements at a time
//
// Order of summation (gpu/variants.py states it as data): a lane sums chains of CHAIN of its terms, each by fma, from +0, and adds
// the chains in increasing k, from +0. The sum of lane 0 is the total, those of the other lanes are added to it in order, by one
// invocation. A lane without terms adds +0.
//
// A k too long for one binding is summed part by part, each but the last a multiple of LANES * CHAIN terms: with LEAVES lane l writes its
// sum to plane l of D, CONTINUES begins with it, and gemm_splitk_sum.wgsl adds the planes, in the same order.

var<workgroup> sums: array<vec4<f32>, 256>;

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) invocation: u32) {
    var lane = invocation / COLUMNS;
    var owned = invocation % COLUMNS;
    if (!FAST_COLUMNS) {
        lane = invocation % LANES;
        owned = invocation / LANES;
    }
    let column = workgroup.x * COLUMNS + owned;
    let product = workgroup.z;

    // Rows past the last repeat it, so that nothing outside A is read; they are not written.
    let last = parameters.m - 1u;
    let rows = min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last)) * parameters.a_row
        + vec4<u32>(parameters.a_offset + product * parameters.a_batch);
    let b_start = parameters.b_offset + product * parameters.b_batch + column * parameters.b_column;
    let first_of_lane = parameters.d_offset + product * parameters.d_batch + lane * parameters.d_range + column;
    var own = vec4<f32>();
    if (column < parameters.n) {
        if ((parameters.flags & CONTINUES) != 0u) {
            for (var row = 0u; row < parameters.m; row++) {
                own[row] = d[first_of_lane + row * parameters.d_row];
            }
        }
        for (var first = lane; first < parameters.k; first += LANES * CHAIN) {
            var chain = vec4<f32>();
            let end = min(parameters.k, first + LANES * CHAIN);
            for (var k = first; k < end; k += LANES) {
                let at = rows + vec4<u32>(k * parameters.a_column);
                let left = vec4<f32>(load_a(at.x), load_a(at.y), load_a(at.z), load_a(at.w));
                chain = fma(left, vec4<f32>(load_b(b_start + k * parameters.b_row)), chain);
            }
            own += chain;
        }
    }
    if ((parameters.flags & LEAVES) != 0u) {
        if (column < parameters.n) {
            for (var row = 0u; row < parameters.m; row++) {
                d[first_of_lane + row * parameters.d_row] = own[row];
            }
        }
        return;
    }
    sums[owned * LANES + lane] = own;
    workgroupBarrier();
    if (lane != 0u || column >= parameters.n) {
        return;
    }
    var total = sums[owned * LANES];
    for (var each = 1u; each < LANES; each++) {
        total += sums[owned * LANES + each];
    }
    for (var row = 0u; row < parameters.m; row++) {
        let at = parameters.d_offset + product * parameters.d_batch + row * parameters.d_row + column;
        d[at] = finish(total[row], at, column);
    }
}
