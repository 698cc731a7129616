// D[z] = (A[z] - zero points) @ (B[z] - zero points): the portable int8 kernel, any size, any strides, sums in int32 that wrap.
// Joined by gpu/shaders.py with int8_operands.wgsl, a file of products and a file that stores.
//
// One workgroup of 256 invocations owns a 64 x 64 tile of D. k advances in steps of 64 through two tiles in workgroup memory: one vec4
// is a group of four lanes, one word of four k each. Invocation (r, c), r = lane / 16, c = lane % 16, owns rows 4r..4r+3 and columns
// 4c..4c+3: two vec4 feed sixteen products of four. It also stages one group of A and one of B.
//
//     tile_a[k / 4][row / 4]   16 x 16 groups, 17 apart           sum (a - za)(b - zb) = sum ab - zb sum a - za sum b + k za zb
//     tile_b[k / 4][column / 4]                                   invocations 0..63 sum the rows of A, 64..127 the columns of B
//
// Integer sums have no order: every device gives the same bits.

const TILE = 64u;
const DEPTH = 64u;
const GROUPS = 16u;
const PITCH = 17u;

var<workgroup> tile_a: array<vec4<u32>, 272>;
var<workgroup> tile_b: array<vec4<u32>, 272>;
var<workgroup> sums_of_lanes: array<i32, 128>;

fn four_products(x: Four, y0: Four, y1: Four, y2: Four, y3: Four) -> vec4<i32> {
    return vec4<i32>(dot4(x, y0), dot4(x, y1), dot4(x, y2), dot4(x, y3));
}

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_row = workgroup.y * TILE;
    let first_column = workgroup.x * TILE;
    let product = workgroup.z;
    let r = lane / GROUPS;
    let c = lane % GROUPS;

    // Neighbouring invocations stage what neighbours in memory.
    let a_group = select(c, r, has(A_ALONG_K));
    let a_depth = select(r, c, has(A_ALONG_K));
    let b_group = select(c, r, has(B_ALONG_K));
    let b_depth = select(r, c, has(B_ALONG_K));

    var total0 = vec4<i32>();
    var total1 = vec4<i32>();
    var total2 = vec4<i32>();
    var total3 = vec4<i32>();
    var sum_of_lane = 0;
    for (var first_k = 0u; first_k < parameters.k; first_k += DEPTH) {
        tile_a[a_depth * PITCH + a_group] = group_of_a(first_row + 4u * a_group, first_k + 4u * a_depth, product);
        tile_b[b_depth * PITCH + b_group] = group_of_b(first_column + 4u * b_group, first_k + 4u * b_depth, product);
        workgroupBarrier();

        for (var at = 0u; at < GROUPS * PITCH; at += PITCH) {
            let rows = tile_a[at + r];
            let columns = tile_b[at + c];
            let y0 = four(columns.x);
            let y1 = four(columns.y);
            let y2 = four(columns.z);
            let y3 = four(columns.w);
            total0 += four_products(four(rows.x), y0, y1, y2, y3);
            total1 += four_products(four(rows.y), y0, y1, y2, y3);
            total2 += four_products(four(rows.z), y0, y1, y2, y3);
            total3 += four_products(four(rows.w), y0, y1, y2, y3);
        }
        if (lane < TILE) {
            for (var at = 0u; at < GROUPS * PITCH; at += PITCH) {
                sum_of_lane += sum4(four(tile_a[at + lane / 4u][lane % 4u]));
            }
        } else if (lane < 2u * TILE) {
            for (var at = 0u; at < GROUPS * PITCH; at += PITCH) {
                sum_of_lane += sum4(four(tile_b[at + (lane - TILE) / 4u][lane % 4u]));
            }
        }
        workgroupBarrier();
    }
    if (lane < 2u * TILE) {
        sums_of_lanes[lane] = sum_of_lane;
    }
    workgroupBarrier();

    let column = first_column + 4u * c;
    let zeros = zeros_of_b(column);
    let at_column = TILE + 4u * c;
    let sums_of_columns = vec4<i32>(
        sums_of_lanes[at_column], sums_of_lanes[at_column + 1u], sums_of_lanes[at_column + 2u], sums_of_lanes[at_column + 3u],
    );
    let lowered = sums_of_columns - zeros * bitcast<i32>(parameters.k);
    for (var part = 0u; part < 4u; part++) {
        let row = first_row + 4u * r + part;
        var total = total0;
        switch part {
            case 1u: { total = total1; }
            case 2u: { total = total2; }
            case 3u: { total = total3; }
            default: {}
        }
        store(row, column, product, total - zeros * sums_of_lanes[4u * r + part] - lowered * zero_of_a(row));
    }
}
