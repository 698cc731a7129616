// Zero points go away right after packing: each lane's own is subtracted from the elements of its panel, so that the micro-kernel
// multiplies values in -255..255. From a tile of int32 sums to elements of D: stored as they are, or requantized (block_i8.h).
// Subtraction and sums wrap modulo 2^32. Never touches D outside the tile's rows and columns.

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

INLINE void load_bias(const Arguments *arguments, address scratch, address from, uint32_t columns) {
  (void)arguments, (void)scratch, (void)from, (void)columns; // the block is read where it lies
}

static __attribute__((noinline)) void finish_tile(uint32_t row, uint32_t column, const uint32_t columns_of_tile,
                                                  const Arguments *arguments, address scratch, address c, address d, address bias,
                                                  uint32_t rows, uint32_t columns, uint32_t has_product) {
  (void)c, (void)bias; // an integer product has none, and its block begins at arguments->bias
  const Block *block = block_of(arguments);
  const uint32_t requantizes = block->flags & REQUANTIZES;
  address tile = scratch + SCRATCH_TILE;
  for (uint32_t i = 0; i < rows; i++) {
    if (!requantizes && has_product && columns == columns_of_tile && arguments->column_d == 4) {
      for (uint32_t j = 0; j < columns_of_tile; j += LANES) wasm_v128_store(to(d + j * 4), wasm_v128_load(at(tile + j * 4)));
    } else {
      for (uint32_t j = 0; j < columns; j++) {
        const uint32_t sum = has_product ? *(const uint32_t *)at(tile + j * 4) : 0;
        const address where = d + j * arguments->column_d;
        if (requantizes) {
          *(uint8_t *)to(where) = (uint8_t)requantize(block, sum, row + i, column + j);
        } else {
          *(uint32_t *)to(where) = sum;
        }
      }
    }
    d += arguments->row_d;
    tile += columns_of_tile * REAL_BYTES;
  }
}
