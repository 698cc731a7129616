// Few rows of A, along: the depth of B lies side by side (or nothing does). Small transposes turn columns into steps, so that the
// products of a column are added one after the other (rows.h, which comes before this).
// The includer defines ALONG_IS_WIDE(type) (whether it deserves a kernel for many columns), steps_at_once(type) and load_steps(type,
// columns, offset, steps): as many vectors, each a step of LANES columns; load_step(type, columns, offset): one.

// The sums of one chain of `groups` vectors of columns from `column` on; columns past the last one repeat it.
INLINE void along(const uint32_t rows, const uint32_t groups, const uint32_t type, const Stripe *stripe, uint32_t column,
                  address panel, address sums, uint32_t row_bytes, uint32_t adds) {
  const uint32_t last = stripe->columns - 1;
  address columns[4 * LANES];
  UNROLLED(uint32_t lane = 0; lane < groups * LANES; lane++) {
    columns[lane] = stripe->source + smaller(column + lane, last) * stripe->column_stride;
  }
  v128_t total[4 * 4];
  UNROLLED(uint32_t index = 0; index < rows * groups; index++) total[index] = wasm_i32x4_const_splat(0);
  uint32_t left = stripe->depth, offset = 0;
  if (stripe->depth_stride == element_size(type)) {
    const uint32_t steps = steps_at_once(type);
    for (; left >= steps; left -= steps) {
      UNROLLED(uint32_t group = 0; group < groups; group++) {
        v128_t values[8];
        load_steps(type, columns + group * LANES, offset, values);
        UNROLLED(uint32_t step = 0; step < steps; step++) {
          UNROLLED(uint32_t row = 0; row < rows; row++) {
            const v128_t value = SPLAT(at(panel + (step * PANEL_ROWS + row) * REAL_BYTES));
            total[group * rows + row] = MULTIPLY_ADD(value, values[step], total[group * rows + row]);
          }
        }
      }
      offset += steps * element_size(type);
      panel += steps * PANEL_ROWS * REAL_BYTES;
    }
  }
  for (; left > 0; left--) {
    UNROLLED(uint32_t group = 0; group < groups; group++) {
      const v128_t values = load_step(type, columns + group * LANES, offset);
      UNROLLED(uint32_t row = 0; row < rows; row++) {
        const v128_t a = SPLAT(at(panel + row * REAL_BYTES));
        total[group * rows + row] = MULTIPLY_ADD(a, values, total[group * rows + row]);
      }
    }
    offset += stripe->depth_stride;
    panel += PANEL_ROWS * REAL_BYTES;
  }
  UNROLLED(uint32_t row = 0; row < rows; row++) {
    UNROLLED(uint32_t group = 0; group < groups; group++) {
      const address into = sums + row * row_bytes + group * 16;
      v128_t sum = total[group * rows + row];
      if (adds) sum = ADD(wasm_v128_load(at(into)), sum);
      wasm_v128_store(to(into), sum);
    }
  }
}

// The columns that fill whole groups; returns how many.
INLINE uint32_t chain_along(const uint32_t rows, const uint32_t groups, const uint32_t type, const Stripe *stripe, address panel,
                            address sums, uint32_t row_bytes, uint32_t adds) {
  const uint32_t whole = stripe->columns / (groups * LANES) * (groups * LANES);
  for (uint32_t column = 0; column < whole; column += groups * LANES) {
    along(rows, groups, type, stripe, column, panel, sums + column * REAL_BYTES, row_bytes, adds);
  }
  return whole;
}

// The other columns, a vector at a time and as 4 rows: those past the last one are zeros in the panel, and their sums have room.
INLINE void chain_along_rest(uint32_t column, const uint32_t type, const Stripe *stripe, address panel, address sums,
                             uint32_t row_bytes, uint32_t adds) {
  for (; column < stripe->columns; column += LANES) {
    along(PANEL_ROWS, 1, type, stripe, column, panel, sums + column * REAL_BYTES, row_bytes, adds);
  }
}

// A function for each type and each number of rows that has a kernel of its own.
#define CHAINS_ALONG(type)                                                                                                       \
  static __attribute__((noinline)) void along_##type(uint32_t rows, address source, uint32_t column_stride, uint32_t depth_stride, \
                                                     uint32_t columns, uint32_t depth, address panel, address sums,               \
                                                     uint32_t row_bytes, uint32_t adds) {                                         \
    const Stripe stripe = {source, column_stride, depth_stride, columns, depth};                                                  \
    uint32_t done = 0;                                                                                                            \
    if (depth_stride == element_size(type) && ALONG_IS_WIDE(type)) {                                                              \
      if (rows == 1) {                                                                                                            \
        done = chain_along(1, 2, type, &stripe, panel, sums, row_bytes, adds);                                                    \
      } else if (rows == 2) {                                                                                                     \
        done = chain_along(2, 2, type, &stripe, panel, sums, row_bytes, adds);                                                    \
      } else {                                                                                                                    \
        done = chain_along(4, 2, type, &stripe, panel, sums, row_bytes, adds);                                                    \
      }                                                                                                                           \
    }                                                                                                                             \
    chain_along_rest(done, type, &stripe, panel, sums, row_bytes, adds);                                                          \
  }
