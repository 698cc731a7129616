// Few rows of A: B is read where it lies, each element of it once, and nothing but A is packed. The order of summation is that of
// driver.h, product by product, so an element's bits do not tell which of the two has run.
//
//   across: columns of B lie side by side               along: the depth of B lies side by side (and any other strides)
//     sums of a block of columns wait in the scratch       a few columns at a time; their sums stay in registers for a whole
//     memory; `steps` rows of B pass by at once            chain; small transposes turn columns into steps
//
//     b0 b1 b2 b3 | b4 b5 ...  step 0                      column 0: b0 b1 b2 b3     step 0: b0 c0 d0 e0
//     b0 b1 b2 b3 | b4 b5 ...  step 1                      column 1: c0 c1 c2 c3  -> step 1: b1 c1 d1 e1
//
// A is packed by chains, 4 rows wide (PANEL_ROWS), whatever its type; more than 4 rows are taken 4 at a time.
// Sums of a row: `block_columns` reals, rounded up to a whole GROUP of two vectors. 16-bit types come as even and odd elements of a
// vector (no shuffle); a GROUP's sums then wait as 0 2 4 6 1 3 5 7 and are put in order at the end.
// The includer defines, beside what finish.h and pack.h need: MULTIPLY_ADD, SPLAT(pointer), SPLITS(type) (whether a type comes as
// even and odd elements), ALONG_IS_WIDE(type) (whether it deserves a kernel for many columns), split(type, vector, pair), join(even, odd, half), steps_at_once(type) and
// load_steps(type, columns, offset, steps): as many vectors, each a step of LANES columns; load_step(type, columns, offset): one.

#define PANEL_ROWS 4
#define GROUP (2 * LANES)
#define GROUP_BYTES 32

#define UNROLLED _Pragma("clang loop unroll(full)") for

typedef struct {
  address source; // of the first column and step
  uint32_t column_stride, depth_stride;
  uint32_t columns, depth;
} Stripe;

// A pointer, not a wrapped address: only then do the offsets within a group fold into its loads.
INLINE void load_group(const uint32_t type, const char *from, v128_t *pair) {
  if (SPLITS(type)) {
    split(type, wasm_v128_load(from), pair);
  } else {
    pair[0] = LOAD_VECTOR(type, (address)(uintptr_t)from);
    pair[1] = LOAD_VECTOR(type, (address)(uintptr_t)(from + LANES * element_size(type)));
  }
}

// `steps` steps of depth for all columns: sums[row][column] += a[row][step] * b[step][column], in the order of the steps.
INLINE void across(const uint32_t rows, const uint32_t steps, const uint32_t type, const Stripe *stripe, address source,
                   address panel, address sums, uint32_t row_bytes) {
  v128_t values[4 * 8];
  UNROLLED(uint32_t step = 0; step < steps; step++) {
    UNROLLED(uint32_t row = 0; row < rows; row++) {
      values[step * rows + row] = SPLAT(at(panel + (step * PANEL_ROWS + row) * REAL_BYTES));
    }
  }
  uint32_t column = 0;
  for (; column + GROUP <= stripe->columns; column += GROUP) {
    char *into = to(sums + column * REAL_BYTES);
    v128_t first[4], second[4];
    UNROLLED(uint32_t row = 0; row < rows; row++) {
      first[row] = wasm_v128_load(into + row * row_bytes);
      second[row] = wasm_v128_load(into + row * row_bytes + 16);
    }
    UNROLLED(uint32_t step = 0; step < steps; step++) {
      v128_t pair[2];
      load_group(type, at(source + step * stripe->depth_stride + column * element_size(type)), pair);
      UNROLLED(uint32_t row = 0; row < rows; row++) {
        first[row] = MULTIPLY_ADD(values[step * rows + row], pair[0], first[row]);
        second[row] = MULTIPLY_ADD(values[step * rows + row], pair[1], second[row]);
      }
    }
    UNROLLED(uint32_t row = 0; row < rows; row++) {
      wasm_v128_store(into + row * row_bytes, first[row]);
      wasm_v128_store(into + row * row_bytes + 16, second[row]);
    }
  }
  address into = sums + column * REAL_BYTES, from = source + column * element_size(type);
  for (; column < stripe->columns; column++) {
    for (uint32_t row = 0; row < rows; row++) {
      v128_t sum = LOAD_TILE_ONE(into + row * row_bytes);
      address element = from, value = panel + row * REAL_BYTES;
      for (uint32_t step = 0; step < steps; step++) {
        sum = MULTIPLY_ADD(SPLAT(at(value)), LOAD_ONE(type, element), sum);
        element += stripe->depth_stride;
        value += PANEL_ROWS * REAL_BYTES;
      }
      STORE_ONE(into + row * row_bytes, sum);
    }
    into += REAL_BYTES;
    from += element_size(type);
  }
}

INLINE void chain_across(const uint32_t rows, const uint32_t steps, const uint32_t type, const Stripe *stripe, address panel,
                         address sums, uint32_t row_bytes) {
  address source = stripe->source;
  uint32_t left = stripe->depth;
  for (; left >= steps; left -= steps) {
    across(rows, steps, type, stripe, source, panel, sums, row_bytes);
    source += steps * stripe->depth_stride;
    panel += steps * PANEL_ROWS * REAL_BYTES;
  }
  for (; left > 0; left--) {
    across(rows, 1, type, stripe, source, panel, sums, row_bytes);
    source += stripe->depth_stride;
    panel += PANEL_ROWS * REAL_BYTES;
  }
}

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

// A function for each type and each number of rows that has a kernel of its own: 3 rows run as 4, the last one of zeros.
#define CHAINS(type)                                                                                                              \
  static __attribute__((noinline)) void across_##type(uint32_t rows, address source, uint32_t column_stride, uint32_t depth_stride, \
                                                      uint32_t columns, uint32_t depth, address panel, address sums,              \
                                                      uint32_t row_bytes) {                                                       \
    const Stripe stripe = {source, column_stride, depth_stride, columns, depth};                                                  \
    if (rows == 1) {                                                                                                              \
      chain_across(1, 8, type, &stripe, panel, sums, row_bytes);                                                                  \
    } else if (rows == 2) {                                                                                                       \
      chain_across(2, 4, type, &stripe, panel, sums, row_bytes);                                                                  \
    } else {                                                                                                                      \
      chain_across(4, 4, type, &stripe, panel, sums, row_bytes);                                                                  \
    }                                                                                                                             \
  }                                                                                                                               \
  static __attribute__((noinline)) void along_##type(uint32_t rows, address source, uint32_t column_stride, uint32_t depth_stride, \
                                                     uint32_t columns, uint32_t depth, address panel, address sums,               \
                                                     uint32_t row_bytes, uint32_t adds) {                                         \
    const Stripe stripe = {source, column_stride, depth_stride, columns, depth};                                                  \
    uint32_t done = 0;                                                                                                            \
    if (depth_stride == element_size(type) && ALONG_IS_WIDE(type)) {                                                              \
      if (rows == 1) {                                                                                                            \
        done = chain_along(1, 4, type, &stripe, panel, sums, row_bytes, adds);                                                    \
      } else if (rows == 2) {                                                                                                     \
        done = chain_along(2, 2, type, &stripe, panel, sums, row_bytes, adds);                                                    \
      } else {                                                                                                                    \
        done = chain_along(4, 2, type, &stripe, panel, sums, row_bytes, adds);                                                    \
      }                                                                                                                           \
    }                                                                                                                             \
    chain_along_rest(done, type, &stripe, panel, sums, row_bytes, adds);                                                          \
  }

#define CALL_ACROSS(type) across_##type(rows, source, column_stride, depth_stride, columns, depth, panel, sums, row_bytes)
#define CALL_ALONG(type) along_##type(rows, source, column_stride, depth_stride, columns, depth, panel, sums, row_bytes, adds)
