// The element types in memory and in vectors: every load widens (or narrows) to the accumulator's type, every store rounds
// once, to nearest, ties to even. Integer arithmetic on the bits, so subnormals, infinities and NaN come out right whatever
// the host does; NaN stays NaN (quiet). No tables: a module on a borrowed memory must hold no data.
//
// The functions take `type` as a constant: the switch is gone after inlining.
#ifndef PY_GEMM_ELEMENT_H
#define PY_GEMM_ELEMENT_H

#include <stdint.h>

#include "arguments.h"

#define INLINE static inline __attribute__((always_inline))

INLINE const void *at(address where) { return (const void *)(uintptr_t)where; }
INLINE void *to(address where) { return (void *)(uintptr_t)where; }

#ifdef __wasm_simd128__
#include <wasm_simd128.h>

typedef struct {
  v128_t first, second, third, fourth;
} Columns;

// 4 x 4 words, transposed.
INLINE Columns transpose_words(v128_t a, v128_t b, v128_t c, v128_t d) {
  const v128_t ab_low = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), ab_high = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
  const v128_t cd_low = wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), cd_high = wasm_i32x4_shuffle(c, d, 2, 6, 3, 7);
  return (Columns){wasm_i64x2_shuffle(ab_low, cd_low, 0, 2), wasm_i64x2_shuffle(ab_low, cd_low, 1, 3),
                   wasm_i64x2_shuffle(ab_high, cd_high, 0, 2), wasm_i64x2_shuffle(ab_high, cd_high, 1, 3)};
}

// The lowest words of four vectors.
INLINE v128_t four_words(v128_t a, v128_t b, v128_t c, v128_t d) {
  return wasm_i64x2_shuffle(wasm_i32x4_shuffle(a, b, 0, 4, 0, 4), wasm_i32x4_shuffle(c, d, 0, 4, 0, 4), 0, 2);
}
#else
#include "one_lane.h"
#endif

INLINE uint32_t element_size(const uint32_t type) {
  switch (type) {
  case FLOAT64: return 8;
  case FLOAT16:
  case BFLOAT16: return 2;
  case INT8:
  case UINT8: return 1;
  default: return 4;
  }
}

// Four float16 in the low halves of four words -> four float32. The exponent is rebased by one multiplication with 2^112,
// which is exact and turns float16 subnormals into normal float32.
INLINE v128_t widen_float16(v128_t half) {
  v128_t magnitude = wasm_i32x4_shl(wasm_v128_and(half, wasm_u32x4_const_splat(0x7fff)), 13);
  v128_t sign = wasm_i32x4_shl(wasm_v128_and(half, wasm_u32x4_const_splat(0x8000)), 16);
  v128_t special = wasm_i32x4_gt(magnitude, wasm_u32x4_const_splat(0x0f7fffff));
  v128_t rebased = wasm_f32x4_mul(magnitude, wasm_f32x4_const_splat(0x1p112f));
  v128_t exponent = wasm_v128_and(special, wasm_u32x4_const_splat(0x7f800000));
  return wasm_v128_or(wasm_v128_or(rebased, exponent), sign);
}

// Four float32 -> four float16 in the low halves of four words.
INLINE v128_t narrow_float16(v128_t value) {
  v128_t sign = wasm_v128_and(value, wasm_u32x4_const_splat(0x80000000));
  v128_t magnitude = wasm_v128_xor(value, sign);
  // Normal: round the 13 bits that go, by carrying into those that stay.
  v128_t odd = wasm_v128_and(wasm_u32x4_shr(magnitude, 13), wasm_u32x4_const_splat(1));
  v128_t rounded = wasm_i32x4_add(wasm_i32x4_add(magnitude, wasm_u32x4_const_splat(0xc8000fffu)), odd);
  v128_t normal = wasm_u32x4_shr(rounded, 13);
  // Subnormal: adding 0.5 lets the float32 adder round at 2^-24.
  v128_t half = wasm_u32x4_const_splat(0x3f000000);
  v128_t subnormal = wasm_i32x4_sub(wasm_f32x4_add(magnitude, half), half);
  v128_t large = wasm_v128_bitselect(wasm_u32x4_const_splat(0x7e00), wasm_u32x4_const_splat(0x7c00),
                                     wasm_i32x4_gt(magnitude, wasm_u32x4_const_splat(0x7f800000)));
  v128_t result = wasm_v128_bitselect(subnormal, normal, wasm_i32x4_lt(magnitude, wasm_u32x4_const_splat(0x38800000)));
  result = wasm_v128_bitselect(large, result, wasm_i32x4_gt(magnitude, wasm_u32x4_const_splat(0x477fffff)));
  return wasm_v128_or(result, wasm_u32x4_shr(sign, 16));
}

INLINE v128_t widen_bfloat16(v128_t half) { return wasm_i32x4_shl(half, 16); }

INLINE v128_t narrow_bfloat16(v128_t value) {
  v128_t odd = wasm_v128_and(wasm_u32x4_shr(value, 16), wasm_u32x4_const_splat(1));
  v128_t rounded = wasm_i32x4_add(wasm_i32x4_add(value, wasm_u32x4_const_splat(0x7fff)), odd);
  v128_t quiet = wasm_v128_or(value, wasm_u32x4_const_splat(0x00400000));
  return wasm_u32x4_shr(wasm_v128_bitselect(rounded, quiet, wasm_f32x4_eq(value, value)), 16);
}

// Two float64 -> two float32 (in the low lanes) rounded to odd: cut, and the last bit set where anything was lost. A second
// rounding, to float16 or bfloat16, then gives what one rounding of the float64 would have given.
INLINE v128_t narrow_to_odd(v128_t value) {
  v128_t nearest = wasm_f32x4_demote_f64x2_zero(value);
  v128_t back = wasm_f64x2_promote_low_f32x4(nearest);
  v128_t inexact = wasm_v128_andnot(wasm_f64x2_ne(back, value), wasm_f64x2_ne(value, value));
  v128_t above = wasm_f64x2_gt(wasm_f64x2_abs(back), wasm_f64x2_abs(value));
  inexact = wasm_i32x4_shuffle(inexact, inexact, 0, 2, 0, 2);
  above = wasm_i32x4_shuffle(above, above, 0, 2, 0, 2);
  v128_t cut = wasm_i32x4_add(nearest, wasm_v128_and(above, inexact)); // a mask of ones is -1
  return wasm_v128_or(cut, wasm_v128_and(inexact, wasm_u32x4_const_splat(1)));
}

// ---- float32 accumulator: four elements, two elements (in the low lanes), one element ----

#ifdef __wasm_simd128__

INLINE v128_t load4(const uint32_t type, address where) {
  switch (type) {
  case FLOAT16: return widen_float16(wasm_u32x4_load16x4(at(where)));
  case BFLOAT16: return widen_bfloat16(wasm_u32x4_load16x4(at(where)));
  case FLOAT64: {
    v128_t low = wasm_f32x4_demote_f64x2_zero(wasm_v128_load(at(where)));
    v128_t high = wasm_f32x4_demote_f64x2_zero(wasm_v128_load(at(where + 16)));
    return wasm_i64x2_shuffle(low, high, 0, 2);
  }
  default: return wasm_v128_load(at(where));
  }
}

INLINE v128_t load2(const uint32_t type, address where) {
  switch (type) {
  case FLOAT16: return widen_float16(wasm_u32x4_extend_low_u16x8(wasm_v128_load32_zero(at(where))));
  case BFLOAT16: return widen_bfloat16(wasm_u32x4_extend_low_u16x8(wasm_v128_load32_zero(at(where))));
  case FLOAT64: return wasm_f32x4_demote_f64x2_zero(wasm_v128_load(at(where)));
  default: return wasm_v128_load64_zero(at(where));
  }
}

#endif

INLINE v128_t load1(const uint32_t type, address where) {
  switch (type) {
  case FLOAT16: return widen_float16(wasm_u32x4_extend_low_u16x8(wasm_v128_load16_lane(at(where), wasm_i32x4_const_splat(0), 0)));
  case BFLOAT16:
    return widen_bfloat16(wasm_u32x4_extend_low_u16x8(wasm_v128_load16_lane(at(where), wasm_i32x4_const_splat(0), 0)));
  case FLOAT64: return wasm_f32x4_demote_f64x2_zero(wasm_v128_load64_zero(at(where)));
  default: return wasm_v128_load32_zero(at(where));
  }
}

INLINE v128_t narrow4(const uint32_t type, v128_t value) {
  return type == FLOAT16 ? narrow_float16(value) : narrow_bfloat16(value);
}

#ifdef __wasm_simd128__

INLINE void store4(const uint32_t type, address where, v128_t value) {
  switch (type) {
  case FLOAT16:
  case BFLOAT16: {
    v128_t half = narrow4(type, value);
    wasm_v128_store64_lane(to(where), wasm_i16x8_shuffle(half, half, 0, 2, 4, 6, 0, 2, 4, 6), 0);
    return;
  }
  case FLOAT64:
    wasm_v128_store(to(where), wasm_f64x2_promote_low_f32x4(value));
    wasm_v128_store(to(where + 16), wasm_f64x2_promote_low_f32x4(wasm_i64x2_shuffle(value, value, 1, 1)));
    return;
  default: wasm_v128_store(to(where), value);
  }
}

#endif

INLINE void store1(const uint32_t type, address where, v128_t value) {
  switch (type) {
  case FLOAT16:
  case BFLOAT16: wasm_v128_store16_lane(to(where), narrow4(type, value), 0); return;
  case FLOAT64: wasm_v128_store64_lane(to(where), wasm_f64x2_promote_low_f32x4(value), 0); return;
  default: wasm_v128_store32_lane(to(where), value, 0);
  }
}

// ---- float64 accumulator: two elements, one element ----

#ifdef __wasm_simd128__

INLINE v128_t load2_double(const uint32_t type, address where) {
  return type == FLOAT64 ? wasm_v128_load(at(where)) : wasm_f64x2_promote_low_f32x4(load2(type, where));
}

#endif

INLINE v128_t load1_double(const uint32_t type, address where) {
  return type == FLOAT64 ? wasm_v128_load64_zero(at(where)) : wasm_f64x2_promote_low_f32x4(load1(type, where));
}

#ifdef __wasm_simd128__

INLINE void store2_double(const uint32_t type, address where, v128_t value) {
  switch (type) {
  case FLOAT16:
  case BFLOAT16: {
    v128_t half = narrow4(type, narrow_to_odd(value));
    wasm_v128_store32_lane(to(where), wasm_i16x8_shuffle(half, half, 0, 2, 0, 2, 0, 2, 0, 2), 0);
    return;
  }
  case FLOAT64: wasm_v128_store(to(where), value); return;
  default: wasm_v128_store64_lane(to(where), wasm_f32x4_demote_f64x2_zero(value), 0);
  }
}

#endif

INLINE void store1_double(const uint32_t type, address where, v128_t value) {
  switch (type) {
  case FLOAT16:
  case BFLOAT16: wasm_v128_store16_lane(to(where), narrow4(type, narrow_to_odd(value)), 0); return;
  case FLOAT64: wasm_v128_store64_lane(to(where), value, 0); return;
  default: wasm_v128_store32_lane(to(where), wasm_f32x4_demote_f64x2_zero(value), 0);
  }
}

#endif
