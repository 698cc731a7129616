// The float32 family: sums in float32 of products of float32, float16 and bfloat16 in any mix; C and D of any type.
// One source for both tokens: compiled with relaxed SIMD, multiply_add is relaxed (fused where the host can), without, it is a
// multiplication and an addition. Exports one function for each tile: (argument block, scratch memory) -> status.

#include "sums_f32.h"

#define PACKS_FLOAT64 0
#define LOAD_PAIR load2
#define STORE_PAIR(where, value) wasm_v128_store64_lane(to(where), value, 0)

#include "transpose4.h"

#include "finish.h"
#include "pack.h"

#include "driver.h"

// ---- few rows ----

#define GROUP_STEPS 1
#define SPLITS(type) (element_size(type) == 2)
#define ALONG_IS_WIDE(type) 1

// A float16 in the upper half of each word, anything in the lower one -> float32. One multiplication rebases the exponent, of
// subnormals too; infinities and NaN come out as numbers from 2^16 on.
INLINE v128_t widen_upper_finite(v128_t words) {
  const v128_t shifted = wasm_v128_and(wasm_i32x4_shr(words, 3), wasm_u32x4_const_splat(0x8fffe000));
  return wasm_f32x4_mul(shifted, wasm_f32x4_const_splat(0x1p112f));
}

INLINE v128_t widen_upper(v128_t words) {
  const v128_t ones = wasm_u32x4_const_splat(0x7c000000);
  const v128_t special = wasm_i32x4_eq(wasm_v128_and(words, ones), ones);
  return wasm_v128_or(widen_upper_finite(words), wasm_v128_and(special, wasm_u32x4_const_splat(0x7f800000)));
}

// Whether `is_finite` (rows.h) pays for the type. `seen`: the greatest magnitudes, doubled.
#define WATCHES(type) ((type) == FLOAT16)
#define NOT_FINITE(seen) wasm_v128_any_true(wasm_u16x8_gt(seen, wasm_u16x8_const_splat(0xf7ff)))

// Eight 16-bit elements -> the even ones and the odd ones, as float32.
INLINE void split(const uint32_t type, v128_t halves, v128_t *pair) {
  if (type == BFLOAT16) {
    pair[0] = wasm_i32x4_shl(halves, 16);
    pair[1] = wasm_v128_and(halves, wasm_u32x4_const_splat(0xffff0000));
  } else {
    pair[0] = widen_upper(wasm_i32x4_shl(halves, 16));
    pair[1] = widen_upper(halves);
  }
}

INLINE void load_group(const uint32_t type, const uint32_t is_finite, const char *from, uint32_t depth_stride, v128_t *pair,
                       v128_t *seen) {
  (void)depth_stride;
  const v128_t vector = wasm_v128_load(from);
  if (!SPLITS(type)) {
    pair[0] = vector;
    pair[1] = wasm_v128_load(from + 16);
  } else if (WATCHES(type) && is_finite) {
    *seen = wasm_u16x8_max(*seen, wasm_i16x8_add(vector, vector));
    pair[0] = widen_upper_finite(wasm_i32x4_shl(vector, 16));
    pair[1] = widen_upper_finite(vector);
  } else {
    split(type, vector, pair);
  }
}

INLINE v128_t load_one(const uint32_t type, address from, uint32_t depth_stride) {
  (void)depth_stride;
  return load1(type, from);
}

INLINE v128_t join(v128_t even, v128_t odd, const uint32_t half) {
  return half == 0 ? wasm_i32x4_shuffle(even, odd, 0, 4, 1, 5) : wasm_i32x4_shuffle(even, odd, 2, 6, 3, 7);
}

INLINE uint32_t steps_at_once(const uint32_t type) { return SPLITS(type) ? 8 : 4; }

INLINE void load_steps(const uint32_t type, const address *columns, uint32_t offset, v128_t *steps) {
  const v128_t a = wasm_v128_load(at(columns[0] + offset)), b = wasm_v128_load(at(columns[1] + offset));
  const v128_t c = wasm_v128_load(at(columns[2] + offset)), d = wasm_v128_load(at(columns[3] + offset));
  const Columns words = transpose_words(a, b, c, d);
  if (SPLITS(type)) { // a word holds two steps
    split(type, words.first, steps);
    split(type, words.second, steps + 2);
    split(type, words.third, steps + 4);
    split(type, words.fourth, steps + 6);
  } else {
    steps[0] = words.first, steps[1] = words.second, steps[2] = words.third, steps[3] = words.fourth;
  }
}

INLINE v128_t load_step(const uint32_t type, const address *columns, uint32_t offset) {
  const v128_t a = load1(type, columns[0] + offset), b = load1(type, columns[1] + offset);
  const v128_t c = load1(type, columns[2] + offset), d = load1(type, columns[3] + offset);
  return four_words(a, b, c, d);
}

#define BY_TYPE(type, CALL)              \
  switch (type) {                        \
  case FLOAT16: CALL(FLOAT16); break;    \
  case BFLOAT16: CALL(BFLOAT16); break;  \
  default: CALL(FLOAT32);                \
  }

PACKER(8)
PACKER(4)

#ifdef __wasm_relaxed_simd__

#define MULTIPLY_ADD wasm_f32x4_relaxed_madd

PACKER(6)
#define TILE tile_6x8_relaxed
#define ROWS 6
#define BROADCAST_BY_SHUFFLE 0
#include "micro_kernel.h"
KERNEL(gemm_f32_6x8_relaxed, 6, 8, tile_6x8_relaxed)

#define TILE tile_4x8_relaxed
#define ROWS 4
#define BROADCAST_BY_SHUFFLE 1
#include "micro_kernel.h"
KERNEL(gemm_f32_4x8_relaxed, 4, 8, tile_4x8_relaxed)

#else

#define MULTIPLY_ADD(x, y, sum) wasm_f32x4_add(sum, wasm_f32x4_mul(x, y))

#define TILE tile_4x8_simd128
#define ROWS 4
#define BROADCAST_BY_SHUFFLE 1
#include "micro_kernel.h"
KERNEL(gemm_f32_4x8_simd128, 4, 8, tile_4x8_simd128)

#endif

#include "rows.h"
#include "rows_along.h"

CHAINS_ACROSS(FLOAT32)
CHAINS_ALONG(FLOAT32)
CHAINS_ACROSS(FLOAT16)
CHAINS_ALONG(FLOAT16)
CHAINS_ACROSS(BFLOAT16)
CHAINS_ALONG(BFLOAT16)

#include "rows_driver.h"

#ifdef __wasm_relaxed_simd__
ROWS_KERNEL(gemv_f32_4x8_relaxed)
#else
ROWS_KERNEL(gemv_f32_4x8_simd128)
#endif
