// The activations, one function for every kernel that ends in one; their numbers are those of py_gemm/epilogue.py.
// Comparisons and `select` only: what min, max and clamp give for NaN is left to the implementation. A comparison with NaN is false,
// so NaN falls through every `select` below, and the builtin tanh (absolute error up to 1e-5) is not used.
// Both rationals were fitted for the least absolute error on the ranges named (1.4e-8 and 1.1e-8 without rounding);
// with float32 rounding the gelu functions stay within 2.5e-7 (1 + |x|) of the true value, where division is correctly rounded.
// The error function itself is off by at most 3.5e-7 over all floats (measured over each of them: 3.41e-7, at x = 5.18).

const NO_ACTIVATION = 0u;
const RELU = 1u;
const GELU_ERF = 2u;
const GELU_TANH = 3u;

fn within(x: f32, limit: f32) -> f32 {
    return select(select(x, -limit, x < -limit), limit, x > limit);
}

fn relu(x: f32) -> f32 {
    return select(x, 0.0, x <= 0.0);
}

// erf(x / sqrt 2) on [-5.5, 5.5]; past them it is 1 to within float32.
fn erf_of_scaled(x: f32) -> f32 {
    let t = within(x, 5.5);
    let y = t * t;
    let p = fma(fma(fma(fma(fma(4.54981723e-8, y, 1.27037792e-5), y, 3.37631267e-4), y, 9.35439952e-3), y, 6.77036643e-2), y, 0.797884464);
    let q = fma(fma(fma(fma(fma(1.19747858e-6, y, 7.36434085e-5), y, 1.8843899e-3), y, 2.86453757e-2), y, 0.251519889), y, 1.0);
    return t * p / q;
}

// tanh on [-8.5, 8.5]; past them it is 1 to within float32.
fn tanh_of(u: f32) -> f32 {
    let t = within(u, 8.5);
    let y = t * t;
    let p = fma(fma(fma(fma(1.40997578e-8, y, 2.11219685e-5), y, 3.52584478e-3), y, 0.134062275), y, 0.99999994);
    let q = fma(fma(fma(fma(8.07383742e-7, y, 3.33573116e-4), y, 2.59912349e-2), y, 0.467395395), y, 1.0);
    return t * p / q;
}

// x = -inf would give -inf * 0; below -10 the true value is under 1e-22.
fn gelu_of(x: f32, sign: f32) -> f32 {
    return select(0.5 * x * (1.0 + sign), -0.0, x < -10.0);
}

fn activate(x: f32, activation: u32) -> f32 {
    switch activation {
        case RELU: {
            return relu(x);
        }
        case GELU_ERF: {
            return gelu_of(x, erf_of_scaled(x));
        }
        case GELU_TANH: {
            return gelu_of(x, tanh_of(0.797884561 * x * (1.0 + 0.044715 * x * x)));
        }
        default: {
            return x;
        }
    }
}
