// The float64 family: sums in float64 of products of float64 with any other type, each widened exactly; C and D of any type.
// One source for both tokens: compiled with relaxed SIMD, multiply_add is relaxed (fused where the host can), without, it is a
// multiplication and an addition. Exports one function for each tile, and one for few rows (rows.h): (argument block, scratch memory) -> status.

#include "activation.h"
#include "arguments.h"
#include "element.h"

#define LANES 2
#define REAL_BYTES 8
#define PACKS_FLOAT64 1
#define LOAD_VECTOR load2_double
#define LOAD_ONE load1_double
#define STORE_ONE(where, value) wasm_v128_store64_lane(to(where), value, 0)
#define LOAD_TILE_ONE(where) wasm_v128_load64_zero(at(where))
#define STORE_D store2_double
#define STORE_D_ONE store1_double
#define ADD wasm_f64x2_add
#define MULTIPLY wasm_f64x2_mul
#define SPLAT_REAL(value) wasm_f64x2_splat(value)
#define SPLAT_ONE(vector) wasm_i64x2_shuffle(vector, vector, 0, 0)
#define activate activate_f64

// 2 lanes x 2 steps of depth.
INLINE void transpose(const uint32_t type, address from, uint32_t lane_stride, address into, uint32_t step_bytes) {
  v128_t a = load2_double(type, from), b = load2_double(type, from + lane_stride);
  wasm_v128_store(to(into), wasm_i64x2_shuffle(a, b, 0, 2));
  wasm_v128_store(to(into + step_bytes), wasm_i64x2_shuffle(a, b, 1, 3));
}

#include "finish.h"
#include "pack.h"

#include "driver.h"

#define SPLAT wasm_v128_load64_splat
#define SHUFFLE broadcast

INLINE v128_t broadcast(v128_t vector, const uint32_t lane) {
  return lane == 0 ? wasm_i64x2_shuffle(vector, vector, 0, 0) : wasm_i64x2_shuffle(vector, vector, 1, 1);
}

// ---- few rows ----

#define GROUP_STEPS 1
#define SPLITS(type) 0
#define ALONG_IS_WIDE(type) (element_size(type) >= 4)
#define WATCHES(type) 0
#define NOT_FINITE wasm_v128_any_true
#define join(left, right, half) ((half) == 0 ? (left) : (right))

INLINE void load_group(const uint32_t type, const uint32_t is_finite, const char *from, uint32_t depth_stride, v128_t *pair,
                       v128_t *seen) {
  (void)is_finite, (void)depth_stride, (void)seen;
  pair[0] = load2_double(type, (address)(uintptr_t)from);
  pair[1] = load2_double(type, (address)(uintptr_t)(from + LANES * element_size(type)));
}

INLINE v128_t load_one(const uint32_t type, address from, uint32_t depth_stride) {
  (void)depth_stride;
  return load1_double(type, from);
}

INLINE uint32_t steps_at_once(const uint32_t type) {
  (void)type;
  return 2;
}

INLINE void load_steps(const uint32_t type, const address *columns, uint32_t offset, v128_t *steps) {
  const v128_t a = load2_double(type, columns[0] + offset), b = load2_double(type, columns[1] + offset);
  steps[0] = wasm_i64x2_shuffle(a, b, 0, 2);
  steps[1] = wasm_i64x2_shuffle(a, b, 1, 3);
}

INLINE v128_t load_step(const uint32_t type, const address *columns, uint32_t offset) {
  return wasm_i64x2_shuffle(load1_double(type, columns[0] + offset), load1_double(type, columns[1] + offset), 0, 2);
}

#define BY_TYPE(type, CALL)              \
  switch (type) {                        \
  case FLOAT16: CALL(FLOAT16); break;    \
  case BFLOAT16: CALL(BFLOAT16); break;  \
  case FLOAT64: CALL(FLOAT64); break;    \
  default: CALL(FLOAT32);                \
  }

PACKER(4)

#ifdef __wasm_relaxed_simd__

#define MULTIPLY_ADD wasm_f64x2_relaxed_madd

PACKER(6)
#define TILE tile_6x4_relaxed
#define ROWS 6
#define BROADCAST_BY_SHUFFLE 0
#include "micro_kernel.h"
KERNEL(gemm_f64_6x4_relaxed, 6, 4, tile_6x4_relaxed)

#define TILE tile_4x4_relaxed
#define ROWS 4
#define BROADCAST_BY_SHUFFLE 1
#include "micro_kernel.h"
KERNEL(gemm_f64_4x4_relaxed, 4, 4, tile_4x4_relaxed)

#else

#define MULTIPLY_ADD(x, y, sum) wasm_f64x2_add(sum, wasm_f64x2_mul(x, y))

#define TILE tile_4x4_simd128
#define ROWS 4
#define BROADCAST_BY_SHUFFLE 1
#include "micro_kernel.h"
KERNEL(gemm_f64_4x4_simd128, 4, 4, tile_4x4_simd128)

#endif

#include "rows.h"
#include "rows_along.h"

CHAINS_ACROSS(FLOAT64)
CHAINS_ALONG(FLOAT64)
CHAINS_ACROSS(FLOAT32)
CHAINS_ALONG(FLOAT32)
CHAINS_ACROSS(FLOAT16)
CHAINS_ALONG(FLOAT16)
CHAINS_ACROSS(BFLOAT16)
CHAINS_ALONG(BFLOAT16)

#include "rows_driver.h"

#ifdef __wasm_relaxed_simd__
ROWS_KERNEL(gemv_f64_4x4_relaxed)
#else
ROWS_KERNEL(gemv_f64_4x4_simd128)
#endif
