// Brings a tile of one float32 operand into workgroup memory as vectors of four neighbours across (rows of A, columns of B), stored
// by k: tile_operand[k * (TILE / 4) + group]. Written once; gpu/register_tile.py puts the name of each operand in the place of
// `operand` (and OPERAND in the constants) and adds operand_across, operand_along and operand_size, which read `parameters`.
//
// A tile that lies whole inside the operand is read without checks, four neighbours at a load, where the operand's strides allow it;
// any other is read element by element, and what lies outside is zero. Every element of the tile is written in every case.

@group(0) @binding(OPERAND_BINDING) var<storage, read> operand_vectors: array<vec4<f32>>;

var<workgroup> tile_operand: array<vec4<f32>, OPERAND_VECTORS>;

fn fetch_operand(start: u32, across: u32, k: u32, end: u32) -> f32 {
    if (across < operand_size() && k < end) {
        return load_operand(start + across * operand_across() + k * operand_along());
    }
    return 0.0;
}

fn stage_operand(start: u32, first: u32, first_k: u32, end: u32, lane: u32) {
    let groups = OPERAND_TILE / 4u;
    let whole = first + OPERAND_TILE <= operand_size() && first_k + DEPTH <= end;
    if (whole && (parameters.flags & OPERAND_VECTORS_ALONG_K) != 0u) {
        // Four by four elements, turned: neighbours in memory are neighbours in k.
        for (var unit = lane; unit < groups * (DEPTH / 4u); unit += LANES) {
            let group = unit / (DEPTH / 4u);
            let quarter = unit % (DEPTH / 4u);
            let step = operand_across() / 4u;
            let at = (start + (first + 4u * group) * operand_across() + first_k) / 4u + quarter;
            let v0 = operand_vectors[at];
            let v1 = operand_vectors[at + step];
            let v2 = operand_vectors[at + 2u * step];
            let v3 = operand_vectors[at + 3u * step];
            let to = 4u * quarter * groups + group;
            tile_operand[to] = vec4<f32>(v0.x, v1.x, v2.x, v3.x);
            tile_operand[to + groups] = vec4<f32>(v0.y, v1.y, v2.y, v3.y);
            tile_operand[to + 2u * groups] = vec4<f32>(v0.z, v1.z, v2.z, v3.z);
            tile_operand[to + 3u * groups] = vec4<f32>(v0.w, v1.w, v2.w, v3.w);
        }
    } else if (whole && (parameters.flags & OPERAND_VECTORS_ACROSS) != 0u) {
        for (var unit = lane; unit < groups * DEPTH; unit += LANES) {
            let k = unit / groups;
            let group = unit % groups;
            tile_operand[unit] = operand_vectors[(start + first + (first_k + k) * operand_along()) / 4u + group];
        }
    } else {
        for (var unit = lane; unit < groups * DEPTH; unit += LANES) {
            var k = unit / groups;
            var group = unit % groups;
            if ((parameters.flags & OPERAND_ALONG_K) != 0u) {
                k = unit % DEPTH;
                group = unit / DEPTH;
            }
            let across = first + 4u * group;
            let at = first_k + k;
            tile_operand[k * groups + group] = vec4<f32>(
                fetch_operand(start, across, at, end),
                fetch_operand(start, across + 1u, at, end),
                fetch_operand(start, across + 2u, at, end),
                fetch_operand(start, across + 3u, at, end),
            );
        }
    }
}
