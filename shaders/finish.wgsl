// What becomes of a finished sum, one function for every kernel that writes D: act(alpha * sum + beta * D + bias).
// Never reads D without HAS_ADDEND nor the bias without HAS_BIAS; without HAS_PRODUCT the sum takes no part.
// Joined after a file that declares `parameters` (flags, alpha, beta, activation, bias_offset), `bias` and `d`.

const HAS_PRODUCT = 1u;
const HAS_ADDEND = 2u;
const HAS_BIAS = 4u;

fn finish(sum: f32, index: u32, column: u32) -> f32 {
    var value = 0.0;
    if ((parameters.flags & HAS_ADDEND) != 0u) {
        value = parameters.beta * d[index];
        if ((parameters.flags & HAS_PRODUCT) != 0u) {
            value = fma(parameters.alpha, sum, value);
        }
    } else if ((parameters.flags & HAS_PRODUCT) != 0u) {
        value = parameters.alpha * sum;
    }
    if ((parameters.flags & HAS_BIAS) != 0u) {
        value = value + bias[parameters.bias_offset + column];
    }
    return activate(value, parameters.activation);
}
