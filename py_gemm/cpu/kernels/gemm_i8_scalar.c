// The int8 family without SIMD: operands widened to int32 in packing and their zero points taken off, every sum requantized by the exact
// integer arithmetic of block_i8.h. See scalar.h.

#define REAL_BYTES 4

#include "arguments.h"
#include "block_i8.h"
#include "element.h"

#define LANES 1
#define PACKS_INTEGERS 1
#define LOAD_ONE load1_integer
#define STORE_ONE(where, value) wasm_v128_store32_lane(to(where), value, 0)
#define ADD wasm_i32x4_add
#define MULTIPLY wasm_i32x4_mul

INLINE v128_t load1_integer(const uint32_t type, address where) {
  return type == UINT8 ? *(const uint8_t *)at(where) : (uint32_t)(int32_t) * (const int8_t *)at(where);
}

// Each lane's zero point is taken off its elements; first: the row or column of the first lane.
INLINE void take_zeros(uint32_t width, const Block *block, uint32_t zeros, uint32_t step, uint32_t first, uint32_t lanes,
                       uint32_t depth, address panel) {
  for (uint32_t lane = 0; lane < lanes; lane++) {
    const uint32_t zero = word_of(block, zeros + (first + lane) * step);
    for (uint32_t at_step = 0; at_step < depth; at_step++) {
      *(uint32_t *)to(panel + ((lane / width * depth + at_step) * width + lane % width) * 4) -= zero;
    }
  }
}

INLINE void load_bias(const Arguments *arguments, address scratch, uint32_t column, address from, uint32_t columns) {
  (void)arguments, (void)scratch, (void)column, (void)from, (void)columns; // every element looks its own up
}

static __attribute__((noinline)) void finish_tile(uint32_t row, uint32_t column, uint32_t columns_of_tile, const Arguments *arguments,
                                                  address scratch, address c, address d, address bias, uint32_t rows,
                                                  uint32_t columns, uint32_t has_product) {
  (void)c, (void)bias;
  const Block *block = block_of(arguments);
  for (uint32_t i = 0; i < rows; i++) {
    for (uint32_t j = 0; j < columns; j++) {
      const uint32_t sum = has_product ? *(const uint32_t *)at(scratch + SCRATCH_TILE + (i * columns_of_tile + j) * 4) : 0;
      const address into = d + i * arguments->row_d + j * arguments->column_d;
      if (block->flags & REQUANTIZES) {
        *(uint8_t *)to(into) = (uint8_t)requantize(block, sum, row + i, column + j);
      } else {
        *(uint32_t *)to(into) = sum;
      }
    }
  }
}

#define PACKED_A(arguments, scratch, row, rows, depth)                                                                         \
  take_zeros(rows_of_tile, block_of(arguments), block_of(arguments)->zeros_a, block_of(arguments)->zeros_a_step, row, rows,    \
             depth, scratch + arguments->panel_a);
#define PACKED_B(arguments, scratch, column, columns, depth)                                                                   \
  take_zeros(columns_of_tile, block_of(arguments), block_of(arguments)->zeros_b, block_of(arguments)->zeros_b_step, column,    \
             columns, depth, scratch + arguments->panel_b);
#define FINISH_TILE finish_tile
#include "scalar.h"

SCALAR_KERNEL(gemm_i8_scalar)
