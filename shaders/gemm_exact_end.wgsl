// D from the exact sums that gemm_exact_f16.wgsl has left part by part: nine words an element, dense [products, m, n].
// Writes each element of D once, and nothing between them. Joined by gpu/shaders.py with exact_finish.wgsl.

struct Parameters {
    count: u32,
    m: u32,
    n: u32,
    flags: u32,
    alpha: u32,
    beta: u32,
    activation: u32,
    bias_offset: u32,
    d_offset: u32,
    d_row: u32,
    d_batch: u32,
    ranges: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> sums: array<u32>;
@group(0) @binding(2) var<storage, read> bias: array<u32>;
@group(0) @binding(3) var<storage, read_write> d: array<u32>;

@compute @workgroup_size(256, 1, 1)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = (workgroup.y * grid.x + workgroup.x) * 256u + lane;
    if (i >= parameters.count) {
        return;
    }
    var sum = array<i32, 8>();
    for (var each = 0u; each < 8u; each++) {
        sum[each] = i32(sums[9u * i + each]);
    }
    let column = i % parameters.n;
    let row = (i / parameters.n) % parameters.m;
    let product = i / (parameters.n * parameters.m);
    let at = parameters.d_offset + product * parameters.d_batch + row * parameters.d_row + column;
    d[at] = finish(sum, sums[9u * i + 8u], column, at);
}
