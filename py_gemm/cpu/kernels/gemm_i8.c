// The int8 widening family: int8 and uint8 in any mix are widened to int32 in packing, their zero points subtracted, products and
// sums are int32 and wrap. Exact, so the walk of the driver (chains of 256 steps) has no bearing on the result. D is int32, int8 or
// uint8. Exports one function for each tile, and one for few rows (rows.h): (argument block, scratch memory) -> status.
//
// Families with a dot product (pairs of int16, quadruples of int8) keep four or two steps of depth side by side and need packers
// of their own; block and finish serve them as they are.

#include "arguments.h"
#include "block_i8.h"
#include "element.h"

#define LANES 4
#define REAL_BYTES 4
#define PACKS_INTEGERS 1
#define LOAD_VECTOR load4_integer
#define LOAD_PAIR load2_integer
#define LOAD_ONE load1_integer
#define STORE_PAIR(where, value) wasm_v128_store64_lane(to(where), value, 0)
#define STORE_ONE(where, value) wasm_v128_store32_lane(to(where), value, 0)
#define ADD wasm_i32x4_add

// Bytes in the low lanes -> int32.
INLINE v128_t widen_integer(const uint32_t type, v128_t bytes) {
  v128_t half = type == UINT8 ? wasm_u16x8_extend_low_u8x16(bytes) : wasm_i16x8_extend_low_i8x16(bytes);
  return wasm_i32x4_extend_low_i16x8(half);
}

INLINE v128_t load4_integer(const uint32_t type, address where) { return widen_integer(type, wasm_v128_load32_zero(at(where))); }

INLINE v128_t load2_integer(const uint32_t type, address where) {
  return widen_integer(type, wasm_v128_load16_lane(at(where), wasm_i32x4_const_splat(0), 0));
}

INLINE v128_t load1_integer(const uint32_t type, address where) {
  return widen_integer(type, wasm_v128_load8_lane(at(where), wasm_i32x4_const_splat(0), 0));
}

#include "transpose4.h"

#include "finish_i8.h"
#include "pack.h"

#define PACKED_A(arguments, scratch, row, rows, depth)                                                                         \
  subtract_zeros(rows_of_tile, block_of(arguments), block_of(arguments)->zeros_a, block_of(arguments)->zeros_a_step, row, rows, \
                 depth, scratch, scratch + arguments->panel_a);
#define PACKED_B(arguments, scratch, column, columns, depth)                                                              \
  subtract_zeros(columns_of_tile, block_of(arguments), block_of(arguments)->zeros_b, block_of(arguments)->zeros_b_step, column, \
                 columns, depth, scratch, scratch + arguments->panel_b);
#define FINISH_TILE finish_tile

#include "driver.h"

#define SPLAT wasm_v128_load32_splat
#define SHUFFLE broadcast
#define MULTIPLY_ADD(x, y, sum) wasm_i32x4_add(sum, wasm_i32x4_mul(x, y))

INLINE v128_t broadcast(v128_t vector, const uint32_t lane) {
  switch (lane) {
  case 0: return wasm_i32x4_shuffle(vector, vector, 0, 0, 0, 0);
  case 1: return wasm_i32x4_shuffle(vector, vector, 1, 1, 1, 1);
  case 2: return wasm_i32x4_shuffle(vector, vector, 2, 2, 2, 2);
  default: return wasm_i32x4_shuffle(vector, vector, 3, 3, 3, 3);
  }
}

PACKER(8)
PACKER(4)
#define TILE tile_i8_4x8_simd128
#define ROWS 4
#define BROADCAST_BY_SHUFFLE 1
#include "micro_kernel.h"
KERNEL(gemm_i8_4x8_simd128, 4, 8, tile_i8_4x8_simd128)

// ---- few rows ----

#define GROUP_STEPS 1
#define SPLITS(type) 0
#define ALONG_IS_WIDE(type) 1
#define WATCHES(type) 0
#define NOT_FINITE wasm_v128_any_true
#define LOAD_TILE_ONE(where) wasm_v128_load32_zero(at(where))
#define join(left, right, half) ((half) == 0 ? (left) : (right))

INLINE void load_group(const uint32_t type, const uint32_t is_finite, const char *from, uint32_t depth_stride, v128_t *pair,
                       v128_t *seen) {
  (void)is_finite, (void)depth_stride, (void)seen;
  const v128_t bytes = wasm_v128_load64_zero(from);
  const v128_t halves = type == UINT8 ? wasm_u16x8_extend_low_u8x16(bytes) : wasm_i16x8_extend_low_i8x16(bytes);
  pair[0] = wasm_i32x4_extend_low_i16x8(halves);
  pair[1] = wasm_i32x4_extend_high_i16x8(halves);
}

INLINE v128_t load_one(const uint32_t type, address from, uint32_t depth_stride) {
  (void)depth_stride;
  return load1_integer(type, from);
}

INLINE uint32_t steps_at_once(const uint32_t type) {
  (void)type;
  return 4;
}

INLINE void load_steps(const uint32_t type, const address *columns, uint32_t offset, v128_t *steps) {
  const v128_t a = load4_integer(type, columns[0] + offset), b = load4_integer(type, columns[1] + offset);
  const v128_t c = load4_integer(type, columns[2] + offset), d = load4_integer(type, columns[3] + offset);
  const Columns words = transpose_words(a, b, c, d);
  steps[0] = words.first, steps[1] = words.second, steps[2] = words.third, steps[3] = words.fourth;
}

INLINE v128_t load_step(const uint32_t type, const address *columns, uint32_t offset) {
  const v128_t a = load1_integer(type, columns[0] + offset), b = load1_integer(type, columns[1] + offset);
  const v128_t c = load1_integer(type, columns[2] + offset), d = load1_integer(type, columns[3] + offset);
  return four_words(a, b, c, d);
}

#define BY_TYPE(type, CALL)           \
  switch (type) {                     \
  case UINT8: CALL(UINT8); break;     \
  default: CALL(INT8);                \
  }

#include "rows.h"
#include "rows_along.h"

CHAINS_ACROSS(INT8)
CHAINS_ALONG(INT8)
CHAINS_ACROSS(UINT8)
CHAINS_ALONG(UINT8)

#define WORD(words) (words)
#define PACKED_ROWS(arguments, scratch, row, rows, depth, panel, is_first)                                                        \
  subtract_zeros(PANEL_ROWS, block_of(arguments), block_of(arguments)->zeros_a, block_of(arguments)->zeros_a_step, row, rows,     \
                 depth, scratch, panel);                                                                                          \
  SUM_ROWS(WORD, scratch, panel, depth, is_first)
#define SUMMED_TILE take_zeros_of_b_off

#include "rows_driver.h"

ROWS_KERNEL(gemv_i8_4x8_simd128)
