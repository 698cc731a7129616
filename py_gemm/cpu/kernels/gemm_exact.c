// The exact family: D = the exact value of alpha * A @ B + beta * C + bias (relu on top, if asked), rounded once. Operands of any
// type and strides. No result here depends on an order, a block, the tile, the instructions or the host; they only decide how
// long it takes.
//
//   for each product of the batch
//     for each block of columns, for each block of rows
//       scan: the spread of exponents of each row and column       the digits that the widest needs
//       few digits: chains of digit products, collected in int64     exact_digits.h
//       many, or hardly any rows or columns: element by element      exact_sum.h
//       finish every element                                         exact_finish.h
//
// gemm_limbs_* writes the sums themselves, for the reference: D's elements are then all digits of exact_sum.h as 32-bit words, in
// two's complement; alpha, beta, C, bias and activation play no part.
//
// Scratch memory: as arguments.h says, then `wide`, one sum, one magnitude, the facts of rows and columns; panels and totals
// where the argument block says (cpu/blocking.py lays out the same).

#include "arguments.h"
#include "element.h"
#include "exact_number.h"
#include "exact_sum.h"
#include "exact_digits.h"
#include "exact_finish.h"

enum { MOST_ROWS = 96, MOST_COLUMNS = 128 };
enum {
  SCRATCH_ROWS = SCRATCH_MAGNITUDE + (WIDE_DIGITS + 8) * 4,
  SCRATCH_COLUMNS = SCRATCH_ROWS + MOST_ROWS * (int)sizeof(Facts),
  SCRATCH_EXACT = SCRATCH_COLUMNS + MOST_COLUMNS * (int)sizeof(Facts),
};
_Static_assert(SCRATCH_EXACT <= 7744, "cpu/blocking.py: EXACT_BYTES");

#define LANES 2
#define SPLAT wasm_v128_load64_splat
#define SHUFFLE broadcast

INLINE v128_t broadcast(v128_t vector, const uint32_t lane) {
  return lane == 0 ? wasm_i64x2_shuffle(vector, vector, 0, 0) : wasm_i64x2_shuffle(vector, vector, 1, 1);
}

typedef void MicroKernel(uint32_t depth, address a, address b, address start, address tile);

typedef struct {
  address a, b, c, d;
} Operands;

INLINE uint32_t smaller(uint32_t left, uint32_t right) { return left < right ? left : right; }

typedef struct {
  uint32_t row, rows, column, columns;
} Block;

// Where the bias of an element lies.
INLINE address bias_at(const Arguments *arguments, uint32_t row, uint32_t column) {
  return arguments->bias + row * arguments->bias_row + column * arguments->bias_column;
}

INLINE void sum_block(const Arguments *arguments, Operands operands, address scratch, Block block) {
  const address digits = scratch + SCRATCH_SUM, magnitude = scratch + SCRATCH_MAGNITUDE;
  const uint32_t count = sum_digits(arguments);
  for (uint32_t row = 0; row < block.rows; row++) {
    const uint32_t i = block.row + row;
    for (uint32_t column = 0; column < block.columns; column++) {
      const uint32_t j = block.column + column;
      const address a = operands.a + i * arguments->row_a, b = operands.b + j * arguments->column_b;
      sum_products(arguments, a, b, digits);
      const uint32_t negative = carry_out(32, digits, 8, count, 1, magnitude);
      const uint32_t special =
          facts_at(scratch + SCRATCH_ROWS)[row].special | facts_at(scratch + SCRATCH_COLUMNS)[column].special;
      finish_element(32, arguments, scratch, significant(magnitude, count + 1), negative,
                     has_double(arguments) ? DOUBLE_LOWEST : SINGLE_LOWEST, special, a, b,
                     operands.c + i * arguments->row_c + j * arguments->column_c,
                     operands.d + i * arguments->row_d + j * arguments->column_d, bias_at(arguments, i, j));
    }
  }
}

INLINE void digits_block(const uint32_t rows_of_tile, const uint32_t columns_of_tile, MicroKernel *micro_kernel,
                         DigitPacker *pack_a, DigitPacker *pack_b, const Arguments *arguments, Operands operands, address scratch,
                         Block block, uint32_t digits_a, uint32_t digits_b) {
  const uint32_t elements = rows_of_tile * columns_of_tile, weights = digits_a + digits_b;
  const uint32_t tile_rows = (block.rows + rows_of_tile - 1) / rows_of_tile,
                 tile_columns = (block.columns + columns_of_tile - 1) / columns_of_tile;
  const address zeros = scratch + SCRATCH_ZEROS, tile = scratch + SCRATCH_TILE;
  const address facts_a = scratch + SCRATCH_ROWS, facts_b = scratch + SCRATCH_COLUMNS;
  const uint32_t total_bytes = elements * weights * 8, all_totals = tile_rows * tile_columns * total_bytes;
  for (uint32_t offset = 0; offset < all_totals; offset += 16)
    wasm_v128_store(to(scratch + arguments->totals + offset), wasm_i32x4_const_splat(0));

  uint32_t until_carry = CARRY_EVERY_CHAINS;
  for (uint32_t step = 0; step < arguments->k; step += arguments->chain) {
    const uint32_t depth = smaller(arguments->k - step, arguments->chain);
    const uint32_t plane_a = tile_rows * rows_of_tile * depth * 8, plane_b = tile_columns * columns_of_tile * depth * 8;
    pack_a(arguments->type_a, operands.a + block.row * arguments->row_a + step * arguments->depth_a, arguments->row_a,
           arguments->depth_a, block.rows, depth, digits_a, plane_a, facts_a, scratch + arguments->panel_a);
    pack_b(arguments->type_b, operands.b + block.column * arguments->column_b + step * arguments->depth_b, arguments->column_b,
           arguments->depth_b, block.columns, depth, digits_b, plane_b, facts_b, scratch + arguments->panel_b);
    const uint32_t carries = --until_carry == 0;
    if (carries) until_carry = CARRY_EVERY_CHAINS;
    address totals = scratch + arguments->totals, panel_b = scratch + arguments->panel_b;
    for (uint32_t column = 0; column < tile_columns; column++) {
      address panel_a = scratch + arguments->panel_a;
      for (uint32_t row = 0; row < tile_rows; row++) {
        for (uint32_t i = 0; i < digits_a; i++) {
          for (uint32_t j = 0; j < digits_b; j++) {
            micro_kernel(depth, panel_a + i * plane_a, panel_b + j * plane_b, zeros, tile);
            collect_tile(elements, tile, totals + (i + j) * elements * 8);
          }
        }
        if (carries) {
          for (uint32_t element = 0; element < elements; element++)
            carry_in_place(DIGIT, totals + element * 8, elements * 8, weights);
        }
        panel_a += depth * rows_of_tile * 8;
        totals += total_bytes;
      }
      panel_b += depth * columns_of_tile * 8;
    }
  }

  const uint32_t plain = is_plain(arguments) && weights <= 4;
  address totals = scratch + arguments->totals;
  for (uint32_t column = 0; column < block.columns; column += columns_of_tile) {
    for (uint32_t row = 0; row < block.rows; row += rows_of_tile) {
      for (uint32_t element = 0; element < elements; element++) {
        const uint32_t r = row + element / columns_of_tile, q = column + element % columns_of_tile;
        if (r >= block.rows || q >= block.columns) continue;
        const uint32_t i = block.row + r, j = block.column + q;
        const Facts *fact_a = &facts_at(facts_a)[r], *fact_b = &facts_at(facts_b)[q];
        const address d = operands.d + i * arguments->row_d + j * arguments->column_d;
        const uint32_t special = fact_a->special | fact_b->special;
        const int32_t exponent = fact_a->lowest + fact_b->lowest;
        if (plain && !special && finish_plain(arguments, totals + element * 8, elements * 8, weights, exponent, d)) continue;
        const address magnitude = scratch + SCRATCH_MAGNITUDE;
        // Two more digits than totals: 2^31 products of the highest digits need 31 bits above them.
        const uint32_t negative = carry_out(DIGIT, totals + element * 8, elements * 8, weights, 2, magnitude);
        finish_element(DIGIT, arguments, scratch, significant(magnitude, weights + 2), negative, exponent, special,
                       operands.a + i * arguments->row_a, operands.b + j * arguments->column_b,
                       operands.c + i * arguments->row_c + j * arguments->column_c, d, bias_at(arguments, i, j));
      }
      totals += total_bytes;
    }
  }
}

// Scanning and packing a row pays only where it meets this many columns, and the other way round.
enum { LEAST_LANES = 3 };

INLINE void multiply_exact(const uint32_t rows_of_tile, const uint32_t columns_of_tile, MicroKernel *micro_kernel,
                           DigitPacker *pack_a, DigitPacker *pack_b, const Arguments *arguments, Operands operands,
                           address scratch) {
  const uint32_t m = arguments->m, n = arguments->n, k = arguments->k;
  for (uint32_t column = 0; column < n; column += arguments->block_columns) {
    const uint32_t columns = smaller(n - column, arguments->block_columns);
    scan(arguments->type_b, operands.b + column * arguments->column_b, arguments->column_b, arguments->depth_b, columns, k,
         scratch + SCRATCH_COLUMNS);
    const uint32_t digits_b = digits_needed(scratch + SCRATCH_COLUMNS, columns);
    for (uint32_t row = 0; row < m; row += arguments->block_rows) {
      const Block block = {row, smaller(m - row, arguments->block_rows), column, columns};
      scan(arguments->type_a, operands.a + row * arguments->row_a, arguments->row_a, arguments->depth_a, block.rows, k,
           scratch + SCRATCH_ROWS);
      const uint32_t digits_a = digits_needed(scratch + SCRATCH_ROWS, block.rows);
      if (k != 0 && m >= LEAST_LANES && n >= LEAST_LANES && digits_a <= MOST_DIGITS && digits_b <= MOST_DIGITS) {
        digits_block(rows_of_tile, columns_of_tile, micro_kernel, pack_a, pack_b, arguments, operands, scratch, block, digits_a,
                     digits_b);
      } else {
        sum_block(arguments, operands, scratch, block);
      }
    }
  }
}

// The whole operation. The odometer counts in the argument block, which is as it was when the last product is done.
#define FOR_EACH_PRODUCT(what)                                                  \
  Operands operands = {arguments->a, arguments->b, arguments->c, arguments->d}; \
  for (;;) {                                                                    \
    what;                                                                       \
    uint32_t position = arguments->rank;                                        \
    for (;;) {                                                                  \
      if (position == 0) return STATUS_DONE;                                    \
      Dimension *dimension = &arguments->batch[--position];                     \
      operands.a += dimension->stride_a;                                        \
      operands.b += dimension->stride_b;                                        \
      operands.c += dimension->stride_c;                                        \
      operands.d += dimension->stride_d;                                        \
      if (++dimension->counter < dimension->size) break;                        \
      operands.a -= dimension->stride_a * dimension->size;                      \
      operands.b -= dimension->stride_b * dimension->size;                      \
      operands.c -= dimension->stride_c * dimension->size;                      \
      operands.d -= dimension->stride_d * dimension->size;                      \
      dimension->counter = 0;                                                   \
    }                                                                           \
  }

#define KERNEL(name, rows, columns, micro_kernel)                                                                             \
  __attribute__((export_name(#name))) uint32_t name(Arguments *arguments, address scratch) {                                  \
    if (arguments->version != ARGUMENTS_VERSION) return STATUS_OTHER_VERSION;                                                 \
    for (uint32_t offset = 0; offset < SCRATCH_EXACT; offset += 16)                                                           \
      wasm_v128_store(to(scratch + offset), wasm_i32x4_const_splat(0));                                                       \
    FOR_EACH_PRODUCT(                                                                                                         \
        multiply_exact(rows, columns, micro_kernel, pack_digits_##rows, pack_digits_##columns, arguments, operands, scratch)) \
  }

DIGIT_PACKER(4)

#ifdef __wasm_relaxed_simd__

#define MULTIPLY_ADD wasm_f64x2_relaxed_madd

DIGIT_PACKER(6)

#define TILE tile_6x4_relaxed
#define ROWS 6
#define BROADCAST_BY_SHUFFLE 0
#include "micro_kernel.h"
KERNEL(gemm_exact_6x4_relaxed, 6, 4, tile_6x4_relaxed)

#define TILE tile_4x4_relaxed
#define ROWS 4
#define BROADCAST_BY_SHUFFLE 1
#include "micro_kernel.h"
KERNEL(gemm_exact_4x4_relaxed, 4, 4, tile_4x4_relaxed)

#else

#define MULTIPLY_ADD(x, y, sum) wasm_f64x2_add(sum, wasm_f64x2_mul(x, y))

#define TILE tile_4x4_simd128
#define ROWS 4
#define BROADCAST_BY_SHUFFLE 1
#include "micro_kernel.h"
KERNEL(gemm_exact_4x4_simd128, 4, 4, tile_4x4_simd128)

INLINE void write_limbs(const Arguments *arguments, Operands operands, address scratch) {
  const uint32_t count = sum_digits(arguments);
  for (uint32_t i = 0; i < arguments->m; i++) {
    for (uint32_t j = 0; j < arguments->n; j++) {
      sum_products(arguments, operands.a + i * arguments->row_a, operands.b + j * arguments->column_b, scratch + SCRATCH_SUM);
      const address into = operands.d + i * arguments->row_d + j * arguments->column_d;
      for (uint32_t index = 0; index < count; index++) words(into)[index] = (uint32_t)loose(scratch + SCRATCH_SUM)[index];
    }
  }
}

__attribute__((export_name("gemm_limbs_1x1_simd128"))) uint32_t gemm_limbs_1x1_simd128(Arguments *arguments, address scratch) {
  if (arguments->version != ARGUMENTS_VERSION) return STATUS_OTHER_VERSION;
  FOR_EACH_PRODUCT(write_limbs(arguments, operands, scratch))
}

#endif
