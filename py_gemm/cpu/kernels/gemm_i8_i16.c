// The int8 family with a dot product of two int16: elements are widened in packing and their zero points taken off, two steps of depth
// in a word (pack_groups.h). |a - za| <= 255, so a pair's sum fits int32 and everything is exact, on every engine.

#include "arguments.h"
#include "block_i8.h"
#include "element.h"

#define LANES 4
#define REAL_BYTES 4
#define ADD wasm_i32x4_add
#define GROUP_STEPS 2
#define HEAD_WORDS 0

INLINE uint32_t word_of_bytes(const uint32_t type, const uint32_t side, uint32_t bytes) {
  (void)side;
  const uint32_t low = type == UINT8 ? bytes & 0xff : (uint32_t)(int32_t)(int8_t)bytes & 0xffff;
  const uint32_t high = type == UINT8 ? bytes >> 8 & 0xff : (uint32_t)(int32_t)(int8_t)(bytes >> 8);
  return low | high << 16;
}

INLINE v128_t load_words(const uint32_t type, const uint32_t side, address from) {
  (void)side;
  return type == UINT8 ? wasm_u16x8_load8x8(at(from)) : wasm_i16x8_load8x8(at(from));
}

INLINE void load_eight(const uint32_t type, const uint32_t side, address from, uint32_t depth_stride, v128_t *words) {
  const v128_t a = load_words(type, side, from), b = load_words(type, side, from + depth_stride);
  words[0] = wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  words[1] = wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

#include "pack_groups.h"

#include "finish_i8.h"

// Pads keep their zero: the last group of an odd depth has but one element.
static __attribute__((noinline)) void subtract_zeros_in_pairs(const uint32_t width, const Block *block, uint32_t zeros, uint32_t step,
                                                              uint32_t first, uint32_t lanes, uint32_t depth, address scratch,
                                                              address panel) {
  if (step == 0 && word_of(block, zeros) == 0) return;
  const address own = scratch + SCRATCH_TILE;
  for (uint32_t lane = 0; lane < lanes; lane += width) {
    for (uint32_t each = 0; each < width; each++) {
      const uint32_t zero = lane + each < lanes ? word_of(block, zeros + (first + lane + each) * step) & 0xffff : 0;
      *(uint32_t *)to(own + each * 4) = zero | zero << 16;
    }
    for (uint32_t at_step = 0; at_step < depth; at_step += GROUP_STEPS) {
      const v128_t mask = wasm_u32x4_splat(at_step + 1 < depth ? 0xffffffffu : 0xffffu);
      uint32_t each = 0;
      for (; each + LANES <= width; each += LANES) {
        const v128_t zero = wasm_v128_and(wasm_v128_load(at(own + each * 4)), mask);
        wasm_v128_store(to(panel + each * 4), wasm_i16x8_sub(wasm_v128_load(at(panel + each * 4)), zero));
      }
      for (; each < width; each++) { // a width of 5 ends in one lane
        const v128_t zero = wasm_v128_and(wasm_v128_load32_zero(at(own + each * 4)), mask);
        wasm_v128_store32_lane(to(panel + each * 4), wasm_i16x8_sub(wasm_v128_load32_zero(at(panel + each * 4)), zero), 0);
      }
      panel += width * 4;
    }
  }
}

// V8 splats A as it loads; for Cranelift, whose splat takes two instructions more and whose shuffle takes one, panels of A hold each word
// four times. In place, from the end:
//
//   w0 w1 w2 w3 | ...    ->    w0 w0 w0 w0 | w1 w1 w1 w1 | w2 w2 w2 w2 | w3 w3 w3 w3 | ...
#define SPLAT_ROWS 4
#define IS_SPLAT(rows_of_tile) ((rows_of_tile) == SPLAT_ROWS)

static __attribute__((noinline)) void splat_words(address panels, uint32_t words) {
  address from = panels + words * 4, into = panels + words * 16;
  while (from > panels) {
    from -= 16, into -= 64;
    const v128_t four = wasm_v128_load(at(from));
    wasm_v128_store(to(into + 48), wasm_i32x4_shuffle(four, four, 3, 3, 3, 3));
    wasm_v128_store(to(into + 32), wasm_i32x4_shuffle(four, four, 2, 2, 2, 2));
    wasm_v128_store(to(into + 16), wasm_i32x4_shuffle(four, four, 1, 1, 1, 1));
    wasm_v128_store(to(into), wasm_i32x4_shuffle(four, four, 0, 0, 0, 0));
  }
}

#define PACKED_A(arguments, scratch, row, rows, depth)                                                                              \
  subtract_zeros_in_pairs(rows_of_tile, block_of(arguments), block_of(arguments)->zeros_a, block_of(arguments)->zeros_a_step, row,  \
                          rows, depth, scratch, scratch + arguments->panel_a);                                                      \
  if (IS_SPLAT(rows_of_tile)) splat_words(scratch + arguments->panel_a, groups_of(depth) * tiled(rows, rows_of_tile));
#define PACKED_B(arguments, scratch, column, columns, depth)                                                                        \
  subtract_zeros_in_pairs(columns_of_tile, block_of(arguments), block_of(arguments)->zeros_b, block_of(arguments)->zeros_b_step,    \
                          column, columns, depth, scratch, scratch + arguments->panel_b);
#define FINISH_TILE finish_tile
#define PANEL_BYTES group_panel_bytes
#define PANEL_A_BYTES(depth, width) (group_panel_bytes(depth, width) * (IS_SPLAT(width) ? LANES : 1))
#define STEPS_OF(depth) groups_of(depth)

#include "driver.h"

#define SPLAT wasm_v128_load32_splat
#define MULTIPLY_ADD(x, y, sum) wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(x, y))

// V8 keeps ten sums, two vectors of b, one of a and a product in its 15 registers.

GROUP_PACKER(5, SIDE_A)
GROUP_PACKER(4, SIDE_A)
GROUP_PACKER(8, SIDE_B)

#define TILE tile_i8_5x8_i16
#define ROWS 5
#define BROADCAST_BY_SHUFFLE 0
#include "micro_kernel.h"
KERNEL(gemm_i8_5x8_i16, 5, 8, tile_i8_5x8_i16)

#define TILE tile_i8_4x8_i16
#define ROWS SPLAT_ROWS
#define A_IS_SPLAT
#include "micro_kernel.h"
KERNEL(gemm_i8_4x8_i16, 4, 8, tile_i8_4x8_i16)

// ---- few rows ----

#define SPLITS(type) 0
#define WATCHES(type) 0
#define NOT_FINITE wasm_v128_any_true
#define LOAD_TILE_ONE(where) wasm_v128_load32_zero(at(where))
#define STORE_ONE(where, value) wasm_v128_store32_lane(to(where), value, 0)
#define join(left, right, half) ((half) == 0 ? (left) : (right))

INLINE void load_group(const uint32_t type, const uint32_t is_finite, const char *from, uint32_t depth_stride, v128_t *pair,
                       v128_t *seen) {
  (void)is_finite, (void)seen;
  load_eight(type, SIDE_B, (address)(uintptr_t)from, depth_stride, pair);
}

// Two steps of a column in the lowest word.
INLINE v128_t load_one(const uint32_t type, address from, uint32_t depth_stride) {
  const v128_t first = wasm_v128_load8_lane(at(from), wasm_i32x4_const_splat(0), 0);
  const v128_t bytes = wasm_v128_load8_lane(at(from + depth_stride), first, 1);
  return type == UINT8 ? wasm_u16x8_extend_low_u8x16(bytes) : wasm_i16x8_extend_low_i8x16(bytes);
}

#define BY_TYPE(type, CALL)           \
  switch (type) {                     \
  case UINT8: CALL(UINT8); break;     \
  default: CALL(INT8);                \
  }

#include "rows.h"

CHAINS_ACROSS(INT8)
CHAINS_ACROSS(UINT8)

// Where the depth of B lies side by side no transposes are needed: eight products go into the lanes of a sum, whose own sum is the
// column's. For that the words of a panel change places: of every 4 groups, those of a row lie side by side (8 steps in a vector).

INLINE void turn_panel(uint32_t depth, address panel) {
  for (uint32_t step = 0; step + 8 <= depth; step += 8) {
    const Columns rows = transpose_words(wasm_v128_load(at(panel)), wasm_v128_load(at(panel + 16)), wasm_v128_load(at(panel + 32)),
                                         wasm_v128_load(at(panel + 48)));
    wasm_v128_store(to(panel), rows.first);
    wasm_v128_store(to(panel + 16), rows.second);
    wasm_v128_store(to(panel + 32), rows.third);
    wasm_v128_store(to(panel + 48), rows.fourth);
    panel += 64;
  }
}

INLINE v128_t add_lanes(const v128_t *sums) {
  const Columns lanes = transpose_words(sums[0], sums[1], sums[2], sums[3]);
  return wasm_i32x4_add(wasm_i32x4_add(lanes.first, lanes.second), wasm_i32x4_add(lanes.third, lanes.fourth));
}

// The sums of one chain of four columns from `column` on, for `rows` rows from `first` on; columns past the last one repeat it.
INLINE void along(const uint32_t rows, const uint32_t type, const Stripe *stripe, uint32_t column, uint32_t first, address panel,
                  address sums, uint32_t row_bytes, uint32_t adds) {
  const uint32_t last = stripe->columns - 1, turned = stripe->depth_stride == 1 ? stripe->depth / 8 * 8 : 0;
  address columns[4];
  v128_t total[2 * 4];
  UNROLLED(uint32_t each = 0; each < 4; each++) columns[each] = stripe->source + smaller(column + each, last) * stripe->column_stride;
  UNROLLED(uint32_t each = 0; each < rows * 4; each++) total[each] = wasm_i32x4_const_splat(0);
  uint32_t step = 0;
  for (; step < turned; step += 8) {
    UNROLLED(uint32_t each = 0; each < 4; each++) {
      const v128_t b = load_words(type, SIDE_B, columns[each] + step);
      UNROLLED(uint32_t row = 0; row < rows; row++) {
        const v128_t a = wasm_v128_load(at(panel + (first + row) * 16));
        total[row * 4 + each] = MULTIPLY_ADD(a, b, total[row * 4 + each]);
      }
    }
    panel += 64;
  }
  v128_t sum[2];
  UNROLLED(uint32_t row = 0; row < rows; row++) sum[row] = add_lanes(total + row * 4);
  for (; step < stripe->depth; step += 2) {
    const address offset = step * stripe->depth_stride;
    const uint32_t next = step + 1 < stripe->depth ? stripe->depth_stride : 0; // a missing step: any element, times a zero
    const v128_t b = four_words(load_one(type, columns[0] + offset, next), load_one(type, columns[1] + offset, next),
                                load_one(type, columns[2] + offset, next), load_one(type, columns[3] + offset, next));
    UNROLLED(uint32_t row = 0; row < rows; row++) sum[row] = MULTIPLY_ADD(SPLAT(at(panel + (first + row) * 4)), b, sum[row]);
    panel += PANEL_ROWS * 4;
  }
  UNROLLED(uint32_t row = 0; row < rows; row++) {
    const address into = sums + (first + row) * row_bytes + column * REAL_BYTES;
    wasm_v128_store(to(into), adds ? wasm_i32x4_add(wasm_v128_load(at(into)), sum[row]) : sum[row]);
  }
}

#define CHAINS_ALONG(type)                                                                                                         \
  static __attribute__((noinline)) void along_##type(uint32_t rows, address source, uint32_t column_stride, uint32_t depth_stride, \
                                                     uint32_t columns, uint32_t depth, address panel, address sums,                \
                                                     uint32_t row_bytes, uint32_t adds) {                                          \
    const Stripe stripe = {source, column_stride, depth_stride, columns, depth};                                                   \
    if (depth_stride == 1) turn_panel(depth, panel);                                                                               \
    for (uint32_t column = 0; column < columns; column += LANES) {                                                                 \
      if (rows == 1) {                                                                                                             \
        along(1, type, &stripe, column, 0, panel, sums, row_bytes, adds);                                                          \
      } else {                                                                                                                     \
        for (uint32_t row = 0; row < rows; row += 2) along(2, type, &stripe, column, row, panel, sums, row_bytes, adds);           \
      }                                                                                                                            \
    }                                                                                                                              \
  }
CHAINS_ALONG(INT8)
CHAINS_ALONG(UINT8)

#define SUM_OF_PAIR(words) wasm_i32x4_dot_i16x8(words, wasm_i16x8_const_splat(1))
#define PACKED_ROWS(arguments, scratch, row, rows, depth, panel, is_first)                                                        \
  subtract_zeros_in_pairs(PANEL_ROWS, block_of(arguments), block_of(arguments)->zeros_a, block_of(arguments)->zeros_a_step, row,  \
                          rows, depth, scratch, panel);                                                                           \
  SUM_ROWS(SUM_OF_PAIR, scratch, panel, groups_of(depth), is_first)
#define SUMMED_TILE take_zeros_of_b_off

#include "rows_driver.h"

ROWS_KERNEL(gemv_i8_4x8_i16)
