// Walks a product of few rows: blocks of columns, in each 4 rows of A at a time, for these chain after chain of depth, then the finish.
//
//   scratch:  panel_a: a chain of A, PANEL_ROWS wide    panel_b: sums of a chain    totals: sums of all chains before it
//
// Only where B is read across does a chain need sums apart from the totals: they wait in memory while its steps pass by.
// The includer has included rows.h and made CHAINS for each type of B; BY_TYPE(type, CALL) expands CALL for the
// constant that `type` is. A family that works on the packed rows (PACKED_ROWS) or on the sums of a tile (SUMMED_TILE) defines both.

#ifndef PACKED_ROWS
#define PACKED_ROWS(arguments, scratch, row, rows, depth, panel, is_first)
#define SUMMED_TILE(arguments, scratch, column, rows, columns)
#endif

INLINE void clear_sums(const uint32_t rows, address sums, uint32_t row_bytes) {
  for (address into = sums; into < sums + rows * row_bytes; into += 16) wasm_v128_store(to(into), wasm_i32x4_const_splat(0));
}

INLINE void add_sums(const uint32_t rows, address totals, address sums, uint32_t row_bytes) {
  for (uint32_t offset = 0; offset < rows * row_bytes; offset += 16) {
    wasm_v128_store(to(totals + offset), ADD(wasm_v128_load(at(totals + offset)), wasm_v128_load(at(sums + offset))));
  }
}

// c, d, bias: of the first row and column.
static __attribute__((noinline)) void finish_rows(const Arguments *arguments, address scratch, uint32_t row, uint32_t column,
                                                  address c, address d, address bias, address totals, uint32_t row_bytes,
                                                  uint32_t rows, uint32_t columns, uint32_t splits) {
  (void)row; // only where the finish depends on the place of a tile
  const address tile = scratch + SCRATCH_TILE;
  for (const uint32_t end = column + columns; column < end; column += GROUP) {
    const uint32_t wide = smaller(end - column, GROUP);
    for (uint32_t each = 0; each < rows; each++) {
      v128_t left = wasm_v128_load(at(totals + each * row_bytes)), right = wasm_v128_load(at(totals + each * row_bytes + 16));
      if (splits && wide == GROUP) {
        wasm_v128_store(to(tile + each * GROUP_BYTES), join(left, right, 0));
        wasm_v128_store(to(tile + each * GROUP_BYTES + 16), join(left, right, 1));
      } else {
        wasm_v128_store(to(tile + each * GROUP_BYTES), left);
        wasm_v128_store(to(tile + each * GROUP_BYTES + 16), right);
      }
    }
    SUMMED_TILE(arguments, scratch, column, rows, wide);
    if (arguments->has_bias) load_bias(arguments, scratch, column, bias, wide);
    FINISH_TILE(row, column, GROUP, arguments, scratch, c, d, bias, rows, wide, 1);
    c += GROUP * arguments->column_c;
    d += GROUP * arguments->column_d;
    bias += GROUP * arguments->bias_column;
    totals += GROUP_BYTES;
  }
}

INLINE void multiply_rows(Packer *pack_a, const Arguments *arguments, Operands operands, address scratch) {
  const uint32_t m = arguments->m, n = arguments->n, k = arguments->k;
  const uint32_t column_stride = arguments->column_b, depth_stride = arguments->depth_b, type = arguments->type_b;
  // element_size() of a variable would be a table in memory
  const uint32_t size = type == FLOAT64 ? 8 : type == FLOAT32 ? 4 : type < INT8 ? 2 : 1;
  const address panel = scratch + arguments->panel_a, totals = scratch + arguments->totals;
  for (uint32_t column = 0; column < n; column += arguments->block_columns) {
    const uint32_t columns = smaller(n - column, arguments->block_columns);
    const uint32_t row_bytes = (columns + GROUP - 1) / GROUP * GROUP_BYTES;
    const uint32_t is_across = column_stride == size && (columns >= GROUP || depth_stride != size);
    for (uint32_t row = 0; row < m; row += PANEL_ROWS) {
      const uint32_t valid = smaller(m - row, PANEL_ROWS), rows = valid == 3 ? 4 : valid;
      for (uint32_t step = 0; step < k; step += arguments->chain) {
        const uint32_t depth = smaller(k - step, arguments->chain), adds = step > 0;
        const address source = operands.b + step * depth_stride + column * column_stride;
        pack_a(arguments->type_a, operands.a + row * arguments->row_a + step * arguments->depth_a, arguments->row_a,
               arguments->depth_a, valid, depth, panel);
        PACKED_ROWS(arguments, scratch, row, valid, depth, panel, !adds)
        if (is_across) {
          const address sums = adds ? scratch + arguments->panel_b : totals;
          clear_sums(rows, sums, row_bytes);
          BY_TYPE(type, CALL_ACROSS)
          if (adds) add_sums(rows, totals, sums, row_bytes);
        } else {
          const address sums = totals;
          BY_TYPE(type, CALL_ALONG)
        }
      }
      finish_rows(arguments, scratch, row, column, operands.c + row * arguments->row_c + column * arguments->column_c,
                  operands.d + row * arguments->row_d + column * arguments->column_d,
                  arguments->bias + row * arguments->bias_row + column * arguments->bias_column, totals, row_bytes, valid, columns,
                  is_across && size == 2 && SPLITS(FLOAT16));
    }
  }
}

#define ROWS_KERNEL(name)                                                                         \
  INLINE void name##_product(const Arguments *arguments, Operands operands, address scratch) {    \
    multiply_rows(pack_4, arguments, operands, scratch);                                          \
  }                                                                                               \
  __attribute__((export_name(#name))) uint32_t name(Arguments *arguments, address scratch) {      \
    return run_batch(PANEL_ROWS, GROUP, name##_product, arguments, scratch);                      \
  }
