// A vector of one element, for kernels without SIMD: of the operations of wasm_simd128.h those that work lane by lane, on a single
// lane, float32 or int32 (in the low half) or float64. So what decides values (element.h, activation.h, finish.h) is one source for
// all tokens, and the scalar kernels have the bits of the others. A whole vector in memory is REAL_BYTES long here.
#ifndef PY_GEMM_ONE_LANE_H
#define PY_GEMM_ONE_LANE_H

typedef uint64_t v128_t;

INLINE float to_f32(v128_t lane) {
  const uint32_t bits = (uint32_t)lane;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

INLINE v128_t of_f32(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}

INLINE double to_f64(v128_t lane) {
  double value;
  __builtin_memcpy(&value, &lane, 8);
  return value;
}

INLINE v128_t of_f64(double value) {
  v128_t lane;
  __builtin_memcpy(&lane, &value, 8);
  return lane;
}

#define OF_TWO(name, expression) \
  INLINE v128_t wasm_##name(v128_t a, v128_t b) { return expression; }
#define OF_ONE(name, expression) \
  INLINE v128_t wasm_##name(v128_t a) { return expression; }
#define MASK_IF(condition, ones) ((condition) ? (ones) : 0)
// NaN where either is; of zeros the negative one is the smaller.
#define EXTREME(to, of, before, of_equals) \
  (to(a) != to(a) || to(b) != to(b) ? of(to(a) + to(b)) : to(a) == to(b) ? (a of_equals b) : to(a) before to(b) ? a : b)
#define ONES_32 0xffffffffu
#define ONES_64 0xffffffffffffffffu

OF_TWO(v128_and, a & b)
OF_TWO(v128_or, a | b)
OF_TWO(v128_xor, a ^ b)
OF_TWO(v128_andnot, a & ~b)
INLINE v128_t wasm_v128_bitselect(v128_t a, v128_t b, v128_t mask) { return (a & mask) | (b & ~mask); }

OF_TWO(i32x4_add, (uint32_t)a + (uint32_t)b)
OF_TWO(i32x4_sub, (uint32_t)a - (uint32_t)b)
OF_TWO(i32x4_mul, (uint32_t)a * (uint32_t)b)
OF_TWO(i32x4_gt, MASK_IF((int32_t)a > (int32_t)b, ONES_32))
OF_TWO(i32x4_lt, MASK_IF((int32_t)a < (int32_t)b, ONES_32))
INLINE v128_t wasm_i32x4_shl(v128_t a, uint32_t count) { return (uint32_t)a << count; }
INLINE v128_t wasm_u32x4_shr(v128_t a, uint32_t count) { return (uint32_t)a >> count; }
OF_TWO(i64x2_add, a + b)
INLINE v128_t wasm_i64x2_shl(v128_t a, uint32_t count) { return a << count; }
OF_ONE(i64x2_extend_low_i32x4, (v128_t)(int64_t)(int32_t)a)
OF_ONE(u32x4_extend_low_u16x8, a & 0xffff)

OF_TWO(f32x4_add, of_f32(to_f32(a) + to_f32(b)))
OF_TWO(f32x4_mul, of_f32(to_f32(a) * to_f32(b)))
OF_TWO(f32x4_div, of_f32(to_f32(a) / to_f32(b)))
OF_TWO(f32x4_min, EXTREME(to_f32, of_f32, <, |))
OF_TWO(f32x4_max, EXTREME(to_f32, of_f32, >, &))
OF_TWO(f32x4_eq, MASK_IF(to_f32(a) == to_f32(b), ONES_32))
OF_TWO(f32x4_gt, MASK_IF(to_f32(a) > to_f32(b), ONES_32))
OF_TWO(f32x4_lt, MASK_IF(to_f32(a) < to_f32(b), ONES_32))

OF_TWO(f64x2_add, of_f64(to_f64(a) + to_f64(b)))
OF_TWO(f64x2_sub, of_f64(to_f64(a) - to_f64(b)))
OF_TWO(f64x2_mul, of_f64(to_f64(a) * to_f64(b)))
OF_TWO(f64x2_div, of_f64(to_f64(a) / to_f64(b)))
OF_TWO(f64x2_min, EXTREME(to_f64, of_f64, <, |))
OF_TWO(f64x2_max, EXTREME(to_f64, of_f64, >, &))
OF_TWO(f64x2_ne, MASK_IF(to_f64(a) != to_f64(b), ONES_64))
OF_TWO(f64x2_gt, MASK_IF(to_f64(a) > to_f64(b), ONES_64))
OF_TWO(f64x2_lt, MASK_IF(to_f64(a) < to_f64(b), ONES_64))
OF_ONE(f64x2_abs, of_f64(__builtin_fabs(to_f64(a))))
OF_ONE(f64x2_nearest, of_f64(__builtin_rint(to_f64(a))))
OF_ONE(f64x2_promote_low_f32x4, of_f64((double)to_f32(a)))
OF_ONE(f32x4_demote_f64x2_zero, of_f32((float)to_f64(a)))
// Of numbers within int32, and of NaN, which is 0.
OF_ONE(i32x4_trunc_sat_f64x2_zero, to_f64(a) != to_f64(a) ? 0 : (uint32_t)(int32_t)to_f64(a))

#define wasm_f32x4_splat(value) of_f32(value)
#define wasm_f64x2_splat(value) of_f64(value)
#define wasm_f32x4_const_splat(value) of_f32(value)
#define wasm_f64x2_const_splat(value) of_f64(value)
#define wasm_i32x4_const_splat(value) ((v128_t)(uint32_t)(value))
#define wasm_u32x4_const_splat(value) ((v128_t)(uint32_t)(value))
#define wasm_i64x2_const_splat(value) ((v128_t)(value))
// Only ever the low words of the lanes of a mask of float64, for lanes of float32.
#define wasm_i32x4_shuffle(a, b, ...) ((v128_t)(uint32_t)(a))

INLINE v128_t wasm_v128_load(const void *from) { return REAL_BYTES == 8 ? *(const uint64_t *)from : *(const uint32_t *)from; }
INLINE v128_t wasm_v128_load64_zero(const void *from) { return *(const uint64_t *)from; }
INLINE v128_t wasm_v128_load32_zero(const void *from) { return *(const uint32_t *)from; }
#define wasm_v128_load16_lane(from, vector, lane) ((v128_t) * (const uint16_t *)(from))

INLINE void wasm_v128_store64(void *into, v128_t lane) { *(uint64_t *)into = lane; }
INLINE void wasm_v128_store32(void *into, v128_t lane) { *(uint32_t *)into = (uint32_t)lane; }
INLINE void wasm_v128_store16(void *into, v128_t lane) { *(uint16_t *)into = (uint16_t)lane; }
INLINE void wasm_v128_store(void *into, v128_t lane) {
  if (REAL_BYTES == 8) {
    wasm_v128_store64(into, lane);
  } else {
    wasm_v128_store32(into, lane);
  }
}
#define wasm_v128_store64_lane(into, vector, lane) wasm_v128_store64(into, vector)
#define wasm_v128_store32_lane(into, vector, lane) wasm_v128_store32(into, vector)
#define wasm_v128_store16_lane(into, vector, lane) wasm_v128_store16(into, vector)

#endif
