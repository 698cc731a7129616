// D = act(alpha * (the planes, added in range order) + beta * D + bias): the second pass of a product whose k is split.
// A plane is the raw float32 sums of one range, dense [products, m, n]. The first plane is the total, the others are added to it.
// Writes each element of D once, and nothing between them. Joined by gpu/shaders.py with epilogue.wgsl and finish.wgsl.

struct Parameters {
    count: u32,
    m: u32,
    n: u32,
    flags: u32,
    alpha: f32,
    beta: f32,
    activation: u32,
    bias_offset: u32,
    d_offset: u32,
    d_row: u32,
    d_batch: u32,
    ranges: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> planes: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> d: array<f32>;

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
    var total = planes[i];
    for (var range = 1u; range < parameters.ranges; range++) {
        total += planes[range * parameters.count + i];
    }
    let column = i % parameters.n;
    let row = (i / parameters.n) % parameters.m;
    let product = i / (parameters.n * parameters.m);
    let at = parameters.d_offset + product * parameters.d_batch + row * parameters.d_row + column;
    d[at] = finish(total, at, column);
}
