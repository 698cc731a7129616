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
// GROUP_STEPS steps of depth lie in one word of a panel of A (pack_groups.h; 1: a plain panel); a step below then is such a group,
// sums are exact in any order, and the missing steps of a last group that is not whole are zeros in the panel.
// The includer defines, beside what finish.h and pack.h need: MULTIPLY_ADD, SPLAT(pointer), SPLITS(type) (whether a type comes as
// even and odd elements), join(even, odd, half), WATCHES(type) and NOT_FINITE(seen); load_group(type, is_finite, pointer,
// depth_stride, pair, seen) and load_one(type, address, depth_stride): a step of a GROUP of columns or of one. is_finite: where the
// type is watched, infinities and NaN may come out wrong, but `seen` tells. What reads along is in rows_along.h, or the includer's own.

#define PANEL_ROWS 4
#define GROUP (2 * LANES)
#define GROUP_BYTES 32

#define UNROLLED _Pragma("clang loop unroll(full)") for

typedef struct {
  address source; // of the first column and step
  uint32_t column_stride, depth_stride;
  uint32_t columns, depth;
} Stripe;

// One step of depth: sums[row][column] += a[row] * b[column] for `groups` groups of columns.
// Pointers, not wrapped addresses: only then do the offsets within a block of columns fold into its loads.
INLINE void add_step(const uint32_t rows, const uint32_t groups, const uint32_t type, const uint32_t is_finite, const char *b,
                     uint32_t depth_stride, const char *a, v128_t *sums, v128_t *seen) {
  UNROLLED(uint32_t group = 0; group < groups; group++) {
    v128_t pair[2];
    load_group(type, is_finite, b + group * GROUP * element_size(type), depth_stride, pair, seen);
    UNROLLED(uint32_t row = 0; row < rows; row++) {
      const v128_t value = SPLAT(a + row * REAL_BYTES);
      v128_t *sum = sums + (row * groups + group) * 2;
      sum[0] = MULTIPLY_ADD(value, pair[0], sum[0]);
      sum[1] = MULTIPLY_ADD(value, pair[1], sum[1]);
    }
  }
}

// `steps` steps of a block of `groups` groups of columns, in registers. The loop leaves in its middle (micro_kernel.h says why).
INLINE v128_t across_block(const uint32_t rows, const uint32_t groups, const uint32_t type, const uint32_t is_finite, address source,
                           uint32_t depth_stride, uint32_t steps, address panel, const char *sums, uint32_t row_bytes,
                           v128_t *total) {
  const char *values = at(panel);
  v128_t seen = wasm_i32x4_const_splat(0);
  UNROLLED(uint32_t row = 0; row < rows; row++) {
    UNROLLED(uint32_t each = 0; each < 2 * groups; each++) {
      total[row * 2 * groups + each] = wasm_v128_load(sums + row * row_bytes + each * 16);
    }
  }
  for (;;) {
    add_step(rows, groups, type, is_finite, at(source), depth_stride, values, total, &seen);
    if (steps == 1) return seen;
    source += GROUP_STEPS * depth_stride;
    add_step(rows, groups, type, is_finite, at(source), depth_stride, values + PANEL_ROWS * REAL_BYTES, total, &seen);
    if (steps == 2) return seen;
    source += GROUP_STEPS * depth_stride;
    values += 2 * PANEL_ROWS * REAL_BYTES;
    steps -= 2;
  }
}

// From `column` on, as many blocks as there are: sums[row][column] += a[row][step] * b[step][column] for `steps` steps, in their
// order. Returns the column after them.
INLINE uint32_t across(const uint32_t rows, const uint32_t groups, const uint32_t type, const Stripe *stripe, address source,
                       uint32_t depth_stride, uint32_t steps, address panel, address sums, uint32_t row_bytes, uint32_t column) {
  for (; column + groups * GROUP <= stripe->columns; column += groups * GROUP) {
    char *into = to(sums + column * REAL_BYTES);
    const address from = source + column * element_size(type);
    v128_t total[8];
    const v128_t seen = across_block(rows, groups, type, 1, from, depth_stride, steps, panel, into, row_bytes, total);
    if (WATCHES(type) && NOT_FINITE(seen)) {
      across_block(rows, groups, type, 0, from, depth_stride, steps, panel, into, row_bytes, total);
    }
    UNROLLED(uint32_t row = 0; row < rows; row++) {
      UNROLLED(uint32_t each = 0; each < 2 * groups; each++) {
        wasm_v128_store(into + row * row_bytes + each * 16, total[row * 2 * groups + each]);
      }
    }
  }
  return column;
}

// The columns from `column` on, one by one.
INLINE void across_rest(const uint32_t rows, const uint32_t type, const Stripe *stripe, address source, uint32_t depth_stride,
                        uint32_t steps, address panel, address sums, uint32_t row_bytes, uint32_t column) {
  for (; column < stripe->columns; column++) {
    for (uint32_t row = 0; row < rows; row++) {
      const address into = sums + row * row_bytes + column * REAL_BYTES;
      v128_t sum = LOAD_TILE_ONE(into);
      address element = source + column * element_size(type), value = panel + row * REAL_BYTES;
      for (uint32_t step = 0; step < steps; step++) {
        sum = MULTIPLY_ADD(SPLAT(at(value)), load_one(type, element, depth_stride), sum);
        element += GROUP_STEPS * depth_stride;
        value += PANEL_ROWS * REAL_BYTES;
      }
      STORE_ONE(into, sum);
    }
  }
}

// `steps` steps of all columns.
INLINE void steps_across(const uint32_t rows, const uint32_t groups, const uint32_t type, const Stripe *stripe, address source,
                         uint32_t depth_stride, uint32_t steps, address panel, address sums, uint32_t row_bytes) {
  uint32_t column = across(rows, groups, type, stripe, source, depth_stride, steps, panel, sums, row_bytes, 0);
  if (groups > 1) column = across(rows, 1, type, stripe, source, depth_stride, steps, panel, sums, row_bytes, column);
  across_rest(rows, type, stripe, source, depth_stride, steps, panel, sums, row_bytes, column);
}

// As many rows of B at once as processors can follow; with more, their lines push each other out of the first cache.
#define ROWS_ACROSS 8

INLINE void chain_across(const uint32_t rows, const uint32_t groups, const uint32_t type, const Stripe *stripe, address panel,
                         address sums, uint32_t row_bytes) {
  address source = stripe->source;
  for (uint32_t left = stripe->depth / GROUP_STEPS, steps; left > 0; left -= steps) {
    steps = smaller(left, ROWS_ACROSS / GROUP_STEPS);
    steps_across(rows, groups, type, stripe, source, stripe->depth_stride, steps, panel, sums, row_bytes);
    source += steps * GROUP_STEPS * stripe->depth_stride;
    panel += steps * PANEL_ROWS * REAL_BYTES;
  }
  // The missing steps of a last group: any elements, times the zeros of the panel.
  if (stripe->depth % GROUP_STEPS) steps_across(rows, groups, type, stripe, source, 0, 1, panel, sums, row_bytes);
}

// A function for each type and each number of rows that has a kernel of its own: 3 rows run as 4, the last one of zeros.
#define CHAINS_ACROSS(type)                                                                                                       \
  static __attribute__((noinline)) void across_##type(uint32_t rows, address source, uint32_t column_stride, uint32_t depth_stride, \
                                                      uint32_t columns, uint32_t depth, address panel, address sums,              \
                                                      uint32_t row_bytes) {                                                       \
    const Stripe stripe = {source, column_stride, depth_stride, columns, depth};                                                  \
    if (rows == 1) {                                                                                                              \
      chain_across(1, 3, type, &stripe, panel, sums, row_bytes);                                                                  \
    } else if (rows == 2) {                                                                                                       \
      chain_across(2, 2, type, &stripe, panel, sums, row_bytes);                                                                  \
    } else {                                                                                                                      \
      chain_across(4, 1, type, &stripe, panel, sums, row_bytes);                                                                  \
    }                                                                                                                             \
  }

#define CALL_ACROSS(type) across_##type(rows, source, column_stride, depth_stride, columns, depth, panel, sums, row_bytes)
#define CALL_ALONG(type) along_##type(rows, source, column_stride, depth_stride, columns, depth, panel, sums, row_bytes, adds)
