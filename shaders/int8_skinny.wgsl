// The int8 product of few rows (M <= 16) with B stored K x N, where reading B is what takes the time: every word of B is read once for
// four rows. Joined by gpu/shaders.py with int8_operands.wgsl, a file of products and a file that stores.
//
// One workgroup of 128 invocations owns 4 rows x 32 columns. Invocation (s, c), s = lane / 8, c = lane % 8, owns columns 4c..4c+3 of
// all four rows and the sixteenth s of k: the groups of four steps s, s + 16, s + 32, ... Eight neighbours read 32 bytes of a row of B.
// The sixteen partial sums meet in workgroup memory; 32 invocations add them up and store. Integer sums have no order.

const ROWS = 4u;
const GROUPS = 8u;
const SLICES = 16u;

// [slice][row][column / 4]
var<workgroup> partial_sums: array<vec4<i32>, 512>;

fn four_products(x: Four, y0: Four, y1: Four, y2: Four, y3: Four) -> vec4<i32> {
    return vec4<i32>(dot4(x, y0), dot4(x, y1), dot4(x, y2), dot4(x, y3));
}

@compute @workgroup_size(128, 1, 1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_row = workgroup.y * ROWS;
    let first_column = workgroup.x * 4u * GROUPS;
    let product = workgroup.z;
    let slice = lane / GROUPS;
    let column = first_column + 4u * (lane % GROUPS);

    var total0 = vec4<i32>();
    var total1 = vec4<i32>();
    var total2 = vec4<i32>();
    var total3 = vec4<i32>();
    var sums_of_rows = vec4<i32>();
    var sums_of_columns = vec4<i32>();
    for (var first_k = 4u * slice; first_k < parameters.k; first_k += 4u * SLICES) {
        let rows = group_of_a(first_row, first_k, product);
        let columns = group_of_b(column, first_k, product);
        let x0 = four(rows.x);
        let x1 = four(rows.y);
        let x2 = four(rows.z);
        let x3 = four(rows.w);
        let y0 = four(columns.x);
        let y1 = four(columns.y);
        let y2 = four(columns.z);
        let y3 = four(columns.w);
        total0 += four_products(x0, y0, y1, y2, y3);
        total1 += four_products(x1, y0, y1, y2, y3);
        total2 += four_products(x2, y0, y1, y2, y3);
        total3 += four_products(x3, y0, y1, y2, y3);
        sums_of_rows += vec4<i32>(sum4(x0), sum4(x1), sum4(x2), sum4(x3));
        sums_of_columns += vec4<i32>(sum4(y0), sum4(y1), sum4(y2), sum4(y3));
    }
    // sum (a - za)(b - zb) = sum ab - zb sum a - za sum b + k za zb; the last term is added once, where the slices meet.
    let zeros = zeros_of_b(column);
    let at = slice * ROWS * GROUPS + lane % GROUPS;
    partial_sums[at] = total0 - zeros * sums_of_rows.x - sums_of_columns * zero_of_a(first_row);
    partial_sums[at + GROUPS] = total1 - zeros * sums_of_rows.y - sums_of_columns * zero_of_a(first_row + 1u);
    partial_sums[at + 2u * GROUPS] = total2 - zeros * sums_of_rows.z - sums_of_columns * zero_of_a(first_row + 2u);
    partial_sums[at + 3u * GROUPS] = total3 - zeros * sums_of_rows.w - sums_of_columns * zero_of_a(first_row + 3u);
    workgroupBarrier();

    if (lane < ROWS * GROUPS) {
        let row = first_row + lane / GROUPS;
        var total = zeros * (bitcast<i32>(parameters.k) * zero_of_a(row));
        for (var each = 0u; each < SLICES; each++) {
            total += partial_sums[each * ROWS * GROUPS + lane];
        }
        store(row, column, product, total);
    }
}
