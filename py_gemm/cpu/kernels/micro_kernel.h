// One micro-kernel: a tile of ROWS x COLUMNS sums over one chain of `depth` products, in registers. Included once for each tile.
//
//   panel a: depth x ROWS      panel b: depth x COLUMNS       tile: ROWS x COLUMNS, row-major, contiguous
//   a0 a1 .. | a0 a1 ..        b0 b1 .. | b0 b1 ..            tile[i][j] = start[i][j] + sum over depth of a[i] * b[j], in order
//
// The includer defines TILE (the name), ROWS, LANES (elements of a vector), BROADCAST_BY_SHUFFLE (0 or 1), SPLAT(pointer),
// SHUFFLE(vector, lane) and MULTIPLY_ADD(x, y, sum); or A_IS_SPLAT, where each element of panel a is a whole vector of copies already
// and nothing is left to broadcast. COLUMNS is two vectors. Where a panel keeps two steps in a word (pack_groups.h), it
// also defines WORD_STEPS as 2 and WIDEN_STEP(vector, which), which makes a vector of elements of one of them; `depth` counts steps.
//
// Shaped for two compilers. V8: 12 sums + 2 of b + 1 of a fill its 15 vector registers, each a loaded by a splat. Cranelift:
// 8 sums, a loaded as a whole vector and shuffled (its splat costs two more instructions); sums are loaded from memory and
// stored to a contiguous tile (constants or a leading dimension there cost it a spill); the loop leaves early in the middle,
// which keeps it from moving all loads of both steps to the front.

#ifndef WORD_STEPS
#define WORD_STEPS 1
#define WIDEN_STEP(vector, which) (vector)
#endif
#define VECTOR_BYTES 16
#define STEP_B (2 * VECTOR_BYTES)

#ifdef A_IS_SPLAT
#define A_BYTES VECTOR_BYTES
#else
#define A_BYTES (VECTOR_BYTES / LANES)
#endif
#define STEP_A (ROWS * A_BYTES)

#ifdef A_IS_SPLAT
#define LOAD_ROWS(where, which)
#define ROW(where, row, which) wasm_v128_load((where) + (row) * A_BYTES)
#elif BROADCAST_BY_SHUFFLE
#define LOAD_ROWS(where, which)                                                                            \
  v128_t rows[ROWS / LANES];                                                                               \
  _Pragma("clang loop unroll(full)") for (uint32_t group = 0; group < ROWS / LANES; group++) rows[group] = \
      WIDEN_STEP(wasm_v128_load((where) + group * VECTOR_BYTES), which);
#define ROW(where, row, which) SHUFFLE(rows[(row) / LANES], (row) % LANES)
#else
#define LOAD_ROWS(where, which)
#define ROW(where, row, which) WIDEN_STEP(SPLAT((where) + (row) * A_BYTES), which)
#endif

#define STEP(step)                                                                                 \
  {                                                                                                \
    const char *of_b = b + (step) / WORD_STEPS * STEP_B, *of_a = a + (step) / WORD_STEPS * STEP_A; \
    v128_t left = WIDEN_STEP(wasm_v128_load(of_b), step);                                          \
    v128_t right = WIDEN_STEP(wasm_v128_load(of_b + VECTOR_BYTES), step);                          \
    LOAD_ROWS(of_a, step)                                                                          \
    _Pragma("clang loop unroll(full)") for (uint32_t row = 0; row < ROWS; row++) {                 \
      v128_t value = ROW(of_a, row, step);                                                         \
      sums[row][0] = MULTIPLY_ADD(value, left, sums[row][0]);                                      \
      sums[row][1] = MULTIPLY_ADD(value, right, sums[row][1]);                                     \
    }                                                                                              \
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
    a += 2 / WORD_STEPS * STEP_A;
    b += 2 / WORD_STEPS * STEP_B;
    depth -= 2;
  }
  _Pragma("clang loop unroll(full)") for (uint32_t row = 0; row < ROWS; row++) {
    wasm_v128_store(tile + row * STEP_B, sums[row][0]);
    wasm_v128_store(tile + row * STEP_B + VECTOR_BYTES, sums[row][1]);
  }
}

#undef VECTOR_BYTES
#undef A_BYTES
#undef STEP_A
#undef STEP_B
#undef LOAD_ROWS
#undef ROW
#undef STEP
#undef TILE
#undef ROWS
#undef BROADCAST_BY_SHUFFLE
#undef A_IS_SPLAT
