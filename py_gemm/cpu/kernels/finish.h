// From a tile of sums to elements of D: alpha, beta * C, bias, activation, one rounding. In the accumulator's type, each step
// rounded by itself (never fused), so that every token gives the same bits here:
//
//   x = alpha * sum          skipped where alpha is 1; nothing where there is no product
//   x = x + beta * C         C alone where beta is 1; without a product beta * C itself, which keeps the sign of a zero
//   x = x + bias             the float32 of its column (or of its row), widened
//   D = round(act(x))
//
// Works in place in the tile. The includer defines LANES, REAL_BYTES, LOAD_VECTOR, LOAD_ONE, STORE_D, STORE_D_ONE, ADD, MULTIPLY,
// SPLAT_REAL, SPLAT_ONE(vector), LOAD_TILE_ONE(address), STORE_ONE(address, vector) and activate(code, vector).

// The bias of a tile's columns, from address `from` on.
INLINE void load_bias(const Arguments *arguments, address scratch, uint32_t column, address from, uint32_t columns) {
  (void)column;
  const address into = scratch + SCRATCH_BIAS;
  for (uint32_t index = 0; index < columns; index++) {
    STORE_ONE(into + index * REAL_BYTES, LOAD_ONE(FLOAT32, from));
    from += arguments->bias_column;
  }
}

INLINE void add_bias(const uint32_t row_bytes, const Arguments *arguments, address scratch, address bias, uint32_t rows) {
  for (address x = scratch + SCRATCH_TILE; rows > 0; rows--) {
    const v128_t of_row = SPLAT_ONE(LOAD_ONE(FLOAT32, bias));
    for (uint32_t offset = 0; offset < row_bytes; offset += LANES * REAL_BYTES) {
      const v128_t of_columns = wasm_v128_load(at(scratch + SCRATCH_BIAS + offset));
      const v128_t value = arguments->bias_row ? of_row : of_columns;
      wasm_v128_store(to(x + offset), ADD(wasm_v128_load(at(x + offset)), value));
    }
    x += row_bytes;
    bias += arguments->bias_row;
  }
}

INLINE v128_t add_c(v128_t value, v128_t c, v128_t beta, uint32_t beta_is_one, uint32_t has_product) {
  v128_t scaled = beta_is_one ? c : MULTIPLY(beta, c);
  return has_product ? ADD(value, scaled) : scaled;
}

INLINE void add_c_type(const uint32_t type, const uint32_t columns_of_tile, const Arguments *arguments, address tile, address c,
                       uint32_t rows, uint32_t columns, uint32_t has_product) {
  const uint32_t beta_is_one = arguments->beta == 1.0;
  const v128_t beta = SPLAT_REAL(arguments->beta);
  const uint32_t whole = columns == columns_of_tile && arguments->column_c == element_size(type);
  for (uint32_t row = 0; row < rows; row++) {
    if (whole) {
      for (uint32_t column = 0; column < columns_of_tile; column += LANES) {
        const address x = tile + column * REAL_BYTES;
        const v128_t value = LOAD_VECTOR(type, c + column * element_size(type));
        wasm_v128_store(to(x), add_c(wasm_v128_load(at(x)), value, beta, beta_is_one, has_product));
      }
    } else {
      for (uint32_t column = 0; column < columns; column++) {
        const address x = tile + column * REAL_BYTES;
        const v128_t value = LOAD_ONE(type, c + column * arguments->column_c);
        STORE_ONE(x, add_c(LOAD_TILE_ONE(x), value, beta, beta_is_one, has_product));
      }
    }
    c += arguments->row_c;
    tile += columns_of_tile * REAL_BYTES;
  }
}

INLINE void store_type(const uint32_t type, const uint32_t columns_of_tile, const Arguments *arguments, address tile, address d,
                       uint32_t rows, uint32_t columns) {
  const uint32_t whole = columns == columns_of_tile && arguments->column_d == element_size(type);
  for (uint32_t row = 0; row < rows; row++) {
    if (whole) {
      for (uint32_t column = 0; column < columns_of_tile; column += LANES) {
        STORE_D(type, d + column * element_size(type), wasm_v128_load(at(tile + column * REAL_BYTES)));
      }
    } else {
      for (uint32_t column = 0; column < columns; column++) {
        STORE_D_ONE(type, d + column * arguments->column_d, LOAD_TILE_ONE(tile + column * REAL_BYTES));
      }
    }
    d += arguments->row_d;
    tile += columns_of_tile * REAL_BYTES;
  }
}

static __attribute__((noinline)) void finish_tile(const uint32_t columns_of_tile, const Arguments *arguments, address scratch,
                                                  address c, address d, address bias, uint32_t rows, uint32_t columns,
                                                  uint32_t has_product) {
  const address tile = scratch + SCRATCH_TILE;
  const uint32_t row_bytes = columns_of_tile * REAL_BYTES;
  const address end = tile + rows * row_bytes;
  if (!has_product) {
    for (address x = tile; x < end; x += LANES * REAL_BYTES) wasm_v128_store(to(x), wasm_i32x4_const_splat(0));
  } else if (arguments->alpha != 1.0) {
    const v128_t alpha = SPLAT_REAL(arguments->alpha);
    for (address x = tile; x < end; x += LANES * REAL_BYTES) wasm_v128_store(to(x), MULTIPLY(alpha, wasm_v128_load(at(x))));
  }
  if (arguments->reads_c) {
    switch (arguments->type_c) {
    case FLOAT16: add_c_type(FLOAT16, columns_of_tile, arguments, tile, c, rows, columns, has_product); break;
    case BFLOAT16: add_c_type(BFLOAT16, columns_of_tile, arguments, tile, c, rows, columns, has_product); break;
    case FLOAT64: add_c_type(FLOAT64, columns_of_tile, arguments, tile, c, rows, columns, has_product); break;
    default: add_c_type(FLOAT32, columns_of_tile, arguments, tile, c, rows, columns, has_product);
    }
  }
  if (arguments->has_bias) add_bias(row_bytes, arguments, scratch, bias, rows);
  if (arguments->activation != NONE) {
    for (address x = tile; x < end; x += LANES * REAL_BYTES) wasm_v128_store(to(x), activate(arguments->activation, wasm_v128_load(at(x))));
  }
  switch (arguments->type_d) {
  case FLOAT16: store_type(FLOAT16, columns_of_tile, arguments, tile, d, rows, columns); break;
  case BFLOAT16: store_type(BFLOAT16, columns_of_tile, arguments, tile, d, rows, columns); break;
  case FLOAT64: store_type(FLOAT64, columns_of_tile, arguments, tile, d, rows, columns); break;
  default: store_type(FLOAT32, columns_of_tile, arguments, tile, d, rows, columns);
  }
}
