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

#define SPLITS(type) (element_size(type) == 2)
#define ALONG_IS_WIDE(type) 1

// Eight 16-bit elements -> the even ones and the odd ones, as float32.
INLINE void split(const uint32_t type, v128_t halves, v128_t *pair) {
  if (type == BFLOAT16) {
    pair[0] = wasm_i32x4_shl(halves, 16);
    pair[1] = wasm_v128_and(halves, wasm_u32x4_const_splat(0xffff0000));
  } else {
    pair[0] = widen_float16(wasm_v128_and(halves, wasm_u32x4_const_splat(0x0000ffff)));
    pair[1] = widen_float16(wasm_u32x4_shr(halves, 16));
  }
}

INLINE v128_t join(v128_t even, v128_t odd, const uint32_t half) {
  return half == 0 ? wasm_i32x4_shuffle(even, odd, 0, 4, 1, 5) : wasm_i32x4_shuffle(even, odd, 2, 6, 3, 7);
}

INLINE uint32_t steps_at_once(const uint32_t type) { return SPLITS(type) ? 8 : 4; }

INLINE void load_steps(const uint32_t type, const address *columns, uint32_t offset, v128_t *steps) {
  const v128_t a = wasm_v128_load(at(columns[0] + offset)), b = wasm_v128_load(at(columns[1] + offset));
  const v128_t c = wasm_v128_load(at(columns[2] + offset)), d = wasm_v128_load(at(columns[3] + offset));
  const v128_t ab_low = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), ab_high = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
  const v128_t cd_low = wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), cd_high = wasm_i32x4_shuffle(c, d, 2, 6, 3, 7);
  const v128_t words[4] = {wasm_i64x2_shuffle(ab_low, cd_low, 0, 2), wasm_i64x2_shuffle(ab_low, cd_low, 1, 3),
                           wasm_i64x2_shuffle(ab_high, cd_high, 0, 2), wasm_i64x2_shuffle(ab_high, cd_high, 1, 3)};
  _Pragma("clang loop unroll(full)") for (uint32_t word = 0; word < 4; word++) {
    if (SPLITS(type)) { // a word holds two steps
      split(type, words[word], steps + 2 * word);
    } else {
      steps[word] = words[word];
    }
  }
}

INLINE v128_t load_step(const uint32_t type, const address *columns, uint32_t offset) {
  const v128_t a = load1(type, columns[0] + offset), b = load1(type, columns[1] + offset);
  const v128_t c = load1(type, columns[2] + offset), d = load1(type, columns[3] + offset);
  return wasm_i64x2_shuffle(wasm_i32x4_shuffle(a, b, 0, 4, 0, 4), wasm_i32x4_shuffle(c, d, 0, 4, 0, 4), 0, 2);
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

CHAINS(FLOAT32)
CHAINS(FLOAT16)
CHAINS(BFLOAT16)

#include "rows_driver.h"

#ifdef __wasm_relaxed_simd__
ROWS_KERNEL(gemv_f32_4x8_relaxed)
#else
ROWS_KERNEL(gemv_f32_4x8_simd128)
#endif
