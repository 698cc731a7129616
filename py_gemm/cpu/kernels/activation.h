// relu and the two gelu on a vector of float32 or of float64. py_gemm/epilogue.py defines them; here is how they are computed.
// No library, no tables. NaN stays: min and max of WebAssembly pass it on.
//
// float32: erf(x / sqrt 2) on |x| <= 5.5 and tanh(u) on |u| <= 8.5 as t * P(t^2) / Q(t^2), fitted by weighted least squares on
//   4000 Chebyshev points with Lawson's reweighting (error of the fits 1.4e-8 and 1.1e-8). With the roundings of float32:
//   gelu_erf within 2.4e-7 (1 + |x|), gelu_tanh within 2.1e-7 (1 + |x|).
// float64: gelu_tanh(x) = x / (1 + exp(-2u)); gelu_erf(x) = x * Phi(x), Phi(-t) = exp(-t^2 / 2) * M(t), M(t) a polynomial of
//   degree 18 in (t - 4) / (t + 4), interpolated on Chebyshev points for 0 <= t <= 9 (error 9.1e-18). Both within 5e-16 (1 + |x|).
#ifndef PY_GEMM_ACTIVATION_H
#define PY_GEMM_ACTIVATION_H

#include "arguments.h"
#include "element.h"

#define F32(value) wasm_f32x4_const_splat(value)
#define F64(value) wasm_f64x2_const_splat(value)

INLINE v128_t horner_f32(v128_t sum, v128_t y, v128_t next) { return wasm_f32x4_add(wasm_f32x4_mul(sum, y), next); }
INLINE v128_t horner_f64(v128_t sum, v128_t y, v128_t next) { return wasm_f64x2_add(wasm_f64x2_mul(sum, y), next); }

// erf(x / sqrt 2)
INLINE v128_t erf_f32(v128_t x) {
  v128_t t = wasm_f32x4_min(wasm_f32x4_max(x, F32(-5.5f)), F32(5.5f)), y = wasm_f32x4_mul(t, t);
  v128_t p = horner_f32(F32(4.54981723e-08f), y, F32(1.27037792e-05f));
  p = horner_f32(p, y, F32(0.000337631267f));
  p = horner_f32(p, y, F32(0.00935439952f));
  p = horner_f32(p, y, F32(0.0677036643f));
  p = horner_f32(p, y, F32(0.797884464f));
  v128_t q = horner_f32(F32(1.19747858e-06f), y, F32(7.36434085e-05f));
  q = horner_f32(q, y, F32(0.0018843899f));
  q = horner_f32(q, y, F32(0.0286453757f));
  q = horner_f32(q, y, F32(0.251519889f));
  q = horner_f32(q, y, F32(1.0f));
  return wasm_f32x4_div(wasm_f32x4_mul(t, p), q);
}

INLINE v128_t tanh_f32(v128_t u) {
  v128_t t = wasm_f32x4_min(wasm_f32x4_max(u, F32(-8.5f)), F32(8.5f)), y = wasm_f32x4_mul(t, t);
  v128_t p = horner_f32(F32(1.40997578e-08f), y, F32(2.11219685e-05f));
  p = horner_f32(p, y, F32(0.00352584478f));
  p = horner_f32(p, y, F32(0.134062275f));
  p = horner_f32(p, y, F32(0.99999994f));
  v128_t q = horner_f32(F32(8.07383742e-07f), y, F32(0.000333573116f));
  q = horner_f32(q, y, F32(0.0259912349f));
  q = horner_f32(q, y, F32(0.467395395f));
  q = horner_f32(q, y, F32(1.0f));
  return wasm_f32x4_div(wasm_f32x4_mul(t, p), q);
}

INLINE v128_t activate_f32(uint32_t activation, v128_t x) {
  if (activation == RELU) return wasm_f32x4_max(x, F32(0.0f)); // max(-0, +0) is +0
  v128_t s;
  if (activation == GELU_ERF) {
    s = erf_f32(x);
  } else {
    v128_t cubic = wasm_f32x4_add(wasm_f32x4_mul(wasm_f32x4_mul(x, x), F32(0.044715f)), F32(1.0f));
    s = tanh_f32(wasm_f32x4_mul(wasm_f32x4_mul(x, F32(0.797884561f)), cubic));
  }
  v128_t gelu = wasm_f32x4_mul(wasm_f32x4_mul(x, F32(0.5f)), wasm_f32x4_add(s, F32(1.0f)));
  gelu = wasm_v128_bitselect(x, gelu, wasm_f32x4_gt(x, F32(10.0f)));
  return wasm_v128_bitselect(F32(-0.0f), gelu, wasm_f32x4_lt(x, F32(-10.0f))); // -inf * 0 would be NaN
}

// exp(x) for x in [-700, 700] (beyond: as at the end): x = n ln 2 + r, Taylor's series to r^13 (its rest is below 4e-18).
INLINE v128_t exp_f64(v128_t x) {
  x = wasm_f64x2_min(wasm_f64x2_max(x, F64(-700.0)), F64(700.0));
  v128_t n = wasm_f64x2_nearest(wasm_f64x2_mul(x, F64(0x1.71547652b82fep+0)));
  v128_t r = wasm_f64x2_sub(x, wasm_f64x2_mul(n, F64(0x1.62e42fefa0000p-1))); // ln 2, its first 37 bits: n times it is exact
  r = wasm_f64x2_sub(r, wasm_f64x2_mul(n, F64(0x1.cf79abc9e3b3ap-40)));       // the rest of ln 2
  v128_t sum = horner_f64(F64(1.0 / 6227020800.0), r, F64(1.0 / 479001600.0));
  sum = horner_f64(sum, r, F64(1.0 / 39916800.0));
  sum = horner_f64(sum, r, F64(1.0 / 3628800.0));
  sum = horner_f64(sum, r, F64(1.0 / 362880.0));
  sum = horner_f64(sum, r, F64(1.0 / 40320.0));
  sum = horner_f64(sum, r, F64(1.0 / 5040.0));
  sum = horner_f64(sum, r, F64(1.0 / 720.0));
  sum = horner_f64(sum, r, F64(1.0 / 120.0));
  sum = horner_f64(sum, r, F64(1.0 / 24.0));
  sum = horner_f64(sum, r, F64(1.0 / 6.0));
  sum = horner_f64(sum, r, F64(0.5));
  sum = horner_f64(sum, r, F64(1.0));
  sum = horner_f64(sum, r, F64(1.0));
  v128_t exponent = wasm_i64x2_extend_low_i32x4(wasm_i32x4_trunc_sat_f64x2_zero(n));
  return wasm_f64x2_mul(sum, wasm_i64x2_shl(wasm_i64x2_add(exponent, wasm_i64x2_const_splat(1023)), 52));
}

// Phi(x), the normal distribution function.
INLINE v128_t normal_f64(v128_t x) {
  v128_t t = wasm_f64x2_min(wasm_f64x2_abs(x), F64(9.0));
  v128_t s = wasm_f64x2_div(wasm_f64x2_sub(t, F64(4.0)), wasm_f64x2_add(t, F64(4.0)));
  v128_t m = horner_f64(F64(-0x1.3f46fd9c15ff4p-27), s, F64(-0x1.cd555d1fd7543p-25));
  m = horner_f64(m, s, F64(-0x1.2d6097b898f40p-24));
  m = horner_f64(m, s, F64(0x1.eab4f3b730997p-23));
  m = horner_f64(m, s, F64(0x1.63eb3b91a45e8p-21));
  m = horner_f64(m, s, F64(-0x1.c1f33d6514733p-21));
  m = horner_f64(m, s, F64(-0x1.2110e86717f26p-18));
  m = horner_f64(m, s, F64(0x1.36e22dc93fa44p-18));
  m = horner_f64(m, s, F64(0x1.e0a7d9e94f360p-16));
  m = horner_f64(m, s, F64(-0x1.7e2453467a852p-15));
  m = horner_f64(m, s, F64(-0x1.888dd8b3587c5p-13));
  m = horner_f64(m, s, F64(0x1.4eec245a18d68p-11));
  m = horner_f64(m, s, F64(0x1.0a1bd44e7a933p-11));
  m = horner_f64(m, s, F64(-0x1.1644dc2ee0f14p-7));
  m = horner_f64(m, s, F64(0x1.f9b05f0eefce6p-6));
  m = horner_f64(m, s, F64(-0x1.25b6aa965894ep-4));
  m = horner_f64(m, s, F64(0x1.fd751a1fba46fp-4));
  m = horner_f64(m, s, F64(-0x1.5cf97b0ae8826p-3));
  m = horner_f64(m, s, F64(0x1.82b4bb8c94dcdp-4));
  v128_t below = wasm_f64x2_mul(m, exp_f64(wasm_f64x2_mul(wasm_f64x2_mul(t, t), F64(-0.5))));
  return wasm_v128_bitselect(below, wasm_f64x2_sub(F64(1.0), below), wasm_f64x2_lt(x, F64(0.0)));
}

INLINE v128_t activate_f64(uint32_t activation, v128_t x) {
  if (activation == RELU) return wasm_f64x2_max(x, F64(0.0));
  v128_t gelu;
  if (activation == GELU_ERF) {
    gelu = wasm_f64x2_mul(x, normal_f64(x));
  } else {
    v128_t cubic = wasm_f64x2_add(wasm_f64x2_mul(wasm_f64x2_mul(x, x), F64(0.044715)), F64(1.0));
    v128_t twice = wasm_f64x2_mul(wasm_f64x2_mul(x, F64(-0x1.9884533d43651p+0)), cubic); // -2 sqrt(2 / pi)
    gelu = wasm_f64x2_div(x, wasm_f64x2_add(exp_f64(twice), F64(1.0)));
  }
  return wasm_v128_bitselect(F64(-0.0), gelu, wasm_f64x2_lt(x, F64(-40.0)));
}

#endif
