// One micro-kernel: a tile of ROWS x COLUMNS sums over one chain of `depth` products, in registers. Included once for each tile.
//
//   panel a: depth x ROWS      panel b: depth x COLUMNS       tile: ROWS x COLUMNS, row-major, contiguous
//   a0 a1 .. | a0 a1 ..        b0 b1 .. | b0 b1 ..            tile[i][j] = start[i][j] + sum over depth of a[i] * b[j], in order
//
// The includer defines TILE (the name), ROWS, LANES (elements of a vector), BROADCAST_BY_SHUFFLE (0 or 1), SPLAT(pointer),
// SHUFFLE(vector, lane) and MULTIPLY_ADD(x, y, sum). COLUMNS is two vectors.
//
// Shaped for two compilers. V8: 12 sums + 2 of b + 1 of a fill its 15 vector registers, each a loaded by a splat. Cranelift:
// 8 sums, a loaded as a whole vector and shuffled (its splat costs two more instructions); sums are loaded from memory and
// stored to a contiguous tile (constants or a leading dimension there cost it a spill); the loop leaves early in the middle,
// which keeps it from moving all loads of both steps to the front.

#define VECTOR_BYTES 16
#define STEP_A (ROWS * VECTOR_BYTES / LANES)
#define STEP_B (2 * VECTOR_BYTES)

#if BROADCAST_BY_SHUFFLE
#define LOAD_ROWS(where)                                                                                   \
  v128_t rows[ROWS / LANES];                                                                               \
  _Pragma("clang loop unroll(full)") for (uint32_t group = 0; group < ROWS / LANES; group++) rows[group] = \
      wasm_v128_load((where) + group * VECTOR_BYTES);
#define ROW(where, row) SHUFFLE(rows[(row) / LANES], (row) % LANES)
#else
#define LOAD_ROWS(where)
#define ROW(where, row) SPLAT((where) + (row) * (VECTOR_BYTES / LANES))
#endif

#define STEP(offset)                                                               \
  {                                                                                \
    v128_t left = wasm_v128_load(b + (offset) * STEP_B);                           \
    v128_t right = wasm_v128_load(b + (offset) * STEP_B + VECTOR_BYTES);           \
    LOAD_ROWS(a + (offset) * STEP_A)                                               \
    _Pragma("clang loop unroll(full)") for (uint32_t row = 0; row < ROWS; row++) { \
      v128_t value = ROW(a + (offset) * STEP_A, row);                              \
      sums[row][0] = MULTIPLY_ADD(value, left, sums[row][0]);                      \
      sums[row][1] = MULTIPLY_ADD(value, right, sums[row][1]);                     \
    }                                                                              \
  }

static __attribute__((noinline)) void TILE(uint32_t depth, address panel_a, address panel_b, address start_tile,
                                           address into_tile) {
  // Pointers, not wrapped addresses: only then do the offsets of a step fold into its loads.
  const char *a = at(panel_a), *b = at(panel_b), *start = at(start_tile);
  char *tile = to(into_tile);
  v128_t sums[ROWS][2];
  _Pragma("clang loop unroll(full)") for (uint32_t row = 0; row < ROWS; row++) {
    sums[row][0] = wasm_v128_load(start + row * STEP_B);
    sums[row][1] = wasm_v128_load(start + row * STEP_B + VECTOR_BYTES);
  }
  for (;;) {
    STEP(0)
    if (depth == 1) break;
    STEP(1)
    if (depth == 2) break;
    a += 2 * STEP_A;
    b += 2 * STEP_B;
    depth -= 2;
  }
  _Pragma("clang loop unroll(full)") for (uint32_t row = 0; row < ROWS; row++) {
    wasm_v128_store(tile + row * STEP_B, sums[row][0]);
    wasm_v128_store(tile + row * STEP_B + VECTOR_BYTES, sums[row][1]);
  }
}

#undef VECTOR_BYTES
#undef STEP_A
#undef STEP_B
#undef LOAD_ROWS
#undef ROW
#undef STEP
#undef TILE
#undef ROWS
#undef BROADCAST_BY_SHUFFLE
