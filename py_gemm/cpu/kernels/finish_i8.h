// Zero points go away right after packing: each lane's own is subtracted from the elements of its panel, so that the micro-kernel
// multiplies values in -255..255. From a tile of int32 sums, eight columns wide, to elements of D: stored as they are, or requantized:
// in float64 vectors, and where that leaves a doubt in exact integers (block_i8.h). Subtraction and sums wrap modulo 2^32. Never
// touches D outside the tile's rows and columns.

// panels: `lanes` lanes of `depth` steps, `width` lanes side by side in a panel; first: the row or column of the first lane.
INLINE void subtract_zeros(const uint32_t width, const Block *block, uint32_t zeros, uint32_t step, uint32_t first, uint32_t lanes,
                           uint32_t depth, address scratch, address panel) {
  if (step == 0 && word_of(block, zeros) == 0) return;
  const address own = scratch + SCRATCH_TILE;
  for (uint32_t lane = 0; lane < lanes; lane += width) {
    for (uint32_t each = 0; each < width; each++) {
      const uint32_t there = lane + each < lanes;
      *(uint32_t *)to(own + each * 4) = there ? word_of(block, zeros + (first + lane + each) * step) : 0;
    }
    for (uint32_t at_step = 0; at_step < depth; at_step++) {
      for (uint32_t each = 0; each < width; each += LANES) {
        const address where = panel + each * REAL_BYTES;
        wasm_v128_store(to(where), wasm_i32x4_sub(wasm_v128_load(at(where)), wasm_v128_load(at(own + each * 4))));
      }
      panel += width * REAL_BYTES;
    }
  }
}

// Few rows of A (rows.h): B lies where it is, zero points and all, and what they make too much comes off the sums:
// sum (a - za)(b - zb) = sum (a - za) b - zb sum (a - za). The sums of the rows' packed elements wait where other kernels keep the
// zeros that a tile starts from. sum_of_word: the sum of the elements in each word of a panel.
#define SUM_ROWS(sum_of_word, scratch, panel, groups, is_first)                                                                   \
  {                                                                                                                               \
    v128_t of_rows = is_first ? wasm_i32x4_const_splat(0) : wasm_v128_load(at(scratch + SCRATCH_ZEROS));                          \
    for (uint32_t group = 0; group < (groups); group++) {                                                                         \
      of_rows = wasm_i32x4_add(of_rows, sum_of_word(wasm_v128_load(at((panel) + group * PANEL_ROWS * REAL_BYTES))));              \
    }                                                                                                                             \
    wasm_v128_store(to(scratch + SCRATCH_ZEROS), of_rows);                                                                        \
  }

INLINE void take_zeros_of_b_off(const Arguments *arguments, address scratch, uint32_t column, uint32_t rows, uint32_t columns) {
  const Block *block = block_of(arguments);
  if (block->zeros_b_step == 0 && word_of(block, block->zeros_b) == 0) return;
  for (uint32_t j = 0; j < columns; j++) {
    const uint32_t zero = word_of(block, block->zeros_b + (column + j) * block->zeros_b_step);
    for (uint32_t row = 0; row < rows; row++) {
      *(uint32_t *)to(scratch + SCRATCH_TILE + (row * 8 + j) * REAL_BYTES) -=
          zero * *(const uint32_t *)at(scratch + SCRATCH_ZEROS + row * 4);
    }
  }
}

// What a column tile needs to requantize its rows quickly: eight scales as float64 and eight biases, zero past the last column. One
// number a row has no place here: then the vector of the columns is left at zero, and the row adds its own.
INLINE void load_bias(const Arguments *arguments, address scratch, uint32_t column, address from, uint32_t columns) {
  (void)from; // the numbers are counted from the beginning of the block
  const Block *block = block_of(arguments);
  if (!(block->flags & REQUANTIZES)) return;
  for (uint32_t each = 0; each < 8; each++) {
    const uint32_t there = each < columns;
    const uint32_t scale = there && block->scale_column ? word_of(block, block->scale + column + each) : 0;
    const uint32_t bias = there && block->bias_column ? word_of(block, block->bias + column + each) : 0;
    *(double *)to(scratch + SCRATCH_BIAS + each * 8) = scale_of(scale);
    *(uint32_t *)to(scratch + SCRATCH_BIAS_I32 + each * 4) = bias;
  }
}

typedef struct {
  v128_t first, after, lowest, highest; // float64: the zero point before the rounding and after it (one of them is 0), the bounds
} Rules;

// Two int32 in the low lanes -> their results, in the low lanes. The product in float64 is off by less than 2^-30 wherever the result
// is within the bounds, so only where it is that near a tie (`doubt`) does the exact arithmetic have to decide.
INLINE v128_t requantize_pair(v128_t values, v128_t scale, Rules rules, v128_t *doubt) {
  const v128_t exact = wasm_f64x2_add(wasm_f64x2_mul(wasm_f64x2_convert_low_i32x4(values), scale), rules.first);
  const v128_t rounded = wasm_f64x2_nearest(exact);
  const v128_t from_tie = wasm_f64x2_sub(wasm_f64x2_abs(wasm_f64x2_sub(exact, rounded)), wasm_f64x2_const_splat(0.5));
  *doubt = wasm_v128_or(*doubt, wasm_f64x2_lt(wasm_f64x2_abs(from_tie), wasm_f64x2_const_splat(0x1p-30)));
  const v128_t result = wasm_f64x2_pmin(rules.highest, wasm_f64x2_pmax(rules.lowest, wasm_f64x2_add(rounded, rules.after)));
  return wasm_i32x4_trunc_sat_f64x2_zero(result);
}

INLINE v128_t high_pair(v128_t vector) { return wasm_i64x2_shuffle(vector, vector, 1, 1); }

// One row of the tile, eight sums -> eight bytes in the low half.
INLINE v128_t requantize_row(const Block *block, address scratch, address sums, uint32_t row, uint32_t has_product, v128_t *doubt) {
  const v128_t first = wasm_f64x2_splat(block->flags & ZERO_POINT_FIRST ? block->zero_point : 0);
  const v128_t after = wasm_f64x2_splat(block->flags & ZERO_POINT_FIRST ? 0 : block->zero_point);
  const Rules rules = {first, after, wasm_f64x2_splat(block->lowest), wasm_f64x2_splat(block->highest)};
  const v128_t own_bias = wasm_i32x4_splat((int32_t)(block->bias_column ? 0 : word_of(block, block->bias + row * block->bias_row)));
  const uint32_t by_column = block->scale_column != 0;
  const v128_t own_scale = wasm_f64x2_splat(by_column ? 0 : scale_of(word_of(block, block->scale + row * block->scale_row)));
  v128_t halves = wasm_i32x4_const_splat(0), previous = halves;
  _Pragma("clang loop unroll(full)") for (uint32_t each = 0; each < 8; each += LANES) {
    v128_t values = wasm_i32x4_add(own_bias, wasm_v128_load(at(scratch + SCRATCH_BIAS_I32 + each * 4)));
    if (has_product) values = wasm_i32x4_add(values, wasm_v128_load(at(sums + each * 4)));
    const address scales = scratch + SCRATCH_BIAS + each * 8;
    const v128_t left = by_column ? wasm_v128_load(at(scales)) : own_scale;
    const v128_t right = by_column ? wasm_v128_load(at(scales + 16)) : own_scale;
    const v128_t low = requantize_pair(values, left, rules, doubt), high = requantize_pair(high_pair(values), right, rules, doubt);
    const v128_t four = wasm_i64x2_shuffle(low, high, 0, 2);
    halves = each == 0 ? four : wasm_i16x8_narrow_i32x4(previous, four);
    previous = four;
  }
  return block->lowest < 0 ? wasm_i8x16_narrow_i16x8(halves, halves) : wasm_u8x16_narrow_i16x8(halves, halves);
}

INLINE void requantize_tile(const Arguments *arguments, address scratch, uint32_t row, uint32_t column, address d, uint32_t rows,
                            uint32_t columns, uint32_t has_product) {
  const Block *block = block_of(arguments);
  address sums = scratch + SCRATCH_TILE;
  for (uint32_t i = 0; i < rows; i++) {
    v128_t doubt = wasm_i32x4_const_splat(0);
    const v128_t bytes = requantize_row(block, scratch, sums, row + i, has_product, &doubt);
    if (wasm_v128_any_true(doubt)) {
      for (uint32_t j = 0; j < columns; j++) {
        const uint32_t sum = has_product ? *(const uint32_t *)at(sums + j * 4) : 0;
        *(uint8_t *)to(d + j * arguments->column_d) = (uint8_t)requantize(block, sum, row + i, column + j);
      }
    } else if (columns == 8 && arguments->column_d == 1) {
      wasm_v128_store64_lane(to(d), bytes, 0);
    } else {
      wasm_v128_store64_lane(to(sums), bytes, 0); // the sums have been read
      for (uint32_t j = 0; j < columns; j++) *(uint8_t *)to(d + j * arguments->column_d) = *(const uint8_t *)at(sums + j);
    }
    d += arguments->row_d;
    sums += 8 * REAL_BYTES;
  }
}

static __attribute__((noinline)) void finish_tile(uint32_t row, uint32_t column, const uint32_t columns_of_tile,
                                                  const Arguments *arguments, address scratch, address c, address d, address bias,
                                                  uint32_t rows, uint32_t columns, uint32_t has_product) {
  (void)c, (void)bias; // an integer product has no C, and its block begins at arguments->bias
  if (block_of(arguments)->flags & REQUANTIZES) {
    requantize_tile(arguments, scratch, row, column, d, rows, columns, has_product);
    return;
  }
  address tile = scratch + SCRATCH_TILE;
  for (uint32_t i = 0; i < rows; i++) {
    if (has_product && columns == columns_of_tile && arguments->column_d == 4) {
      for (uint32_t j = 0; j < columns_of_tile; j += LANES) wasm_v128_store(to(d + j * 4), wasm_v128_load(at(tile + j * 4)));
    } else {
      for (uint32_t j = 0; j < columns; j++) {
        *(uint32_t *)to(d + j * arguments->column_d) = has_product ? *(const uint32_t *)at(tile + j * 4) : 0;
      }
    }
    d += arguments->row_d;
    tile += columns_of_tile * REAL_BYTES;
  }
}
