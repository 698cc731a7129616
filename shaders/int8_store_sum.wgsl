// Writes int32 sums as they are, four neighbours of a row at a time, or adds them to what is there. Never touches more than `count`.

@group(0) @binding(4) var<storage, read_write> d: array<i32>;

fn store(row: u32, column: u32, product: u32, sums: vec4<i32>) {
    if (row >= parameters.m || column >= parameters.n) {
        return;
    }
    let start = parameters.d_offset + product * parameters.d_batch + row * parameters.d_row + column;
    let count = min(parameters.n - column, 4u);
    var values = sums;
    for (var part = 0u; part < count; part++) {
        if (has(ADDS)) {
            values[part] += d[start + part];
        }
        d[start + part] = values[part];
    }
}
