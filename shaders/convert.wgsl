// Gathers a batch of strided matrices of any of the three types into dense float32: target[target_offset + i] for element i of
// [products, rows, columns] in row-major order. Widening is exact. Never writes outside those elements.
// Joined by gpu/shaders.py with decode.wgsl and the line `load_source`.

struct Parameters {
    count: u32,
    rows: u32,
    columns: u32,
    // Strides and offsets in elements; u32 arithmetic wraps, so a negative stride is its two's complement.
    source_offset: u32,
    source_row: u32,
    source_column: u32,
    source_batch: u32,
    target_offset: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;

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
    let row = (i / parameters.columns) % parameters.rows;
    let product = i / (parameters.columns * parameters.rows);
    let at = parameters.source_offset + product * parameters.source_batch + row * parameters.source_row
        + column * parameters.source_column;
    results[parameters.target_offset + i] = bitcast<u32>(load_source(at));
}
