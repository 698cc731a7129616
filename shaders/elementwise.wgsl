// y = act(x + bias) over a strided matrix of float32, with the very functions that end a product. In place where x is y.
// Never reads the bias without HAS_BIAS, and writes nothing between the rows. Joined by gpu/shaders.py with epilogue.wgsl.

struct Parameters {
    count: u32,
    columns: u32,
    flags: u32,
    activation: u32,
    bias_offset: u32,
    // Offsets and row strides in elements.
    x_offset: u32,
    x_row: u32,
    y_offset: u32,
    y_row: u32,
}

const HAS_BIAS = 4u;
const IN_PLACE = 32u;

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

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
    let column = i % parameters.columns;
    let row = i / parameters.columns;
    let at = parameters.y_offset + row * parameters.y_row + column;
    var value = 0.0;
    if ((parameters.flags & IN_PLACE) != 0u) {
        value = y[at];
    } else {
        value = x[parameters.x_offset + row * parameters.x_row + column];
    }
    if ((parameters.flags & HAS_BIAS) != 0u) {
        value = value + bias[parameters.bias_offset + column];
    }
    y[at] = activate(value, parameters.activation);
}
