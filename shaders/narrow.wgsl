// Rounds dense float32 to float16 or bfloat16, to nearest, ties to even, in integer arithmetic on the bits: subnormals, infinities
// and NaN come out right whatever the device does with them. One invocation writes one word, that is two elements; where the count
// is odd the upper half of the last word is zero. The grid is two-dimensional, so that counts past 65,535 workgroups fit.
// Joined by gpu/shaders.py with the line `encode` that names one of the two functions below.

struct Parameters {
    count: u32,
    source_offset: u32,
    // In words.
    target_offset: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;

fn encode_float16(bits: u32) -> u32 {
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return sign | 0x7e00u | ((magnitude >> 13u) & 0x03ffu);
    }
    // 65,520 and above: halfway past the largest half.
    if (magnitude >= 0x477ff000u) {
        return sign | 0x7c00u;
    }
    if (magnitude >= 0x38800000u) {
        return sign | ((magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13u) & 1u)) >> 13u);
    }
    // Below 2^-14 the result counts units of 2^-24; below half a unit it is zero.
    let exponent = magnitude >> 23u;
    if (exponent < 102u) {
        return sign;
    }
    let significand = (magnitude & 0x007fffffu) | 0x00800000u;
    let shift = 126u - exponent;
    let units = significand >> shift;
    let rest = significand & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    let up = rest > half || (rest == half && (units & 1u) == 1u);
    return sign | (units + select(0u, 1u, up));
}

fn encode_bfloat16(bits: u32) -> u32 {
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (bits >> 16u) | 0x0040u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

@compute @workgroup_size(256, 1, 1)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let word = (workgroup.y * grid.x + workgroup.x) * 256u + lane;
    let first = word * 2u;
    if (first >= parameters.count) {
        return;
    }
    var result = encode(source[parameters.source_offset + first]);
    if (first + 1u < parameters.count) {
        result |= encode(source[parameters.source_offset + first + 1u]) << 16u;
    }
    results[parameters.target_offset + word] = result;
}
