// Walks a batched product in blocks and lets packers, a micro-kernel and the finish do the work. Its only arithmetic on
// elements is the addition of the sums of chains.
//
//   for each product of the batch
//     for each block of nc columns, for each block of ms rows        their running totals stay in the scratch memory
//       for each slice of kc steps of depth                          in increasing k
//         pack kc x nc of B, unless it is packed already
//         for each block of mc rows: pack mc x kc of A, unless it is packed already, then for each tile, for each chain of the slice:
//           its sums, from zero; the first chain's become the totals, later ones are added to them; the last goes on to finish_tile
//
// A slice is one chain, and the totals wait in the scratch memory for the next one; or it is the whole depth (a single panel), and the
// totals are those of the tile at hand. The additions are the same ones in the same order, so the bits do not tell which it was.
//
// The order in which an element's products are added depends on k alone, never on m, n or the batch.
// The functions take the shape of the tile as constants. No stack, no data: everything else lives in the scratch memory.
// A family that works on packed panels (PACKED_A, PACKED_B), or whose finish depends on the place of a tile (FINISH_TILE), defines
// these three; the others leave them out.

// Families whose micro-kernels take several steps of depth at once define PANEL_BYTES, STEPS_OF(depth) (how many the micro-kernel
// counts), and, where their panels have heads, HEAD_BYTES and BEGIN_TILE, which says what a tile starts from.

#ifndef PANEL_BYTES
#define PANEL_BYTES(depth, width) ((depth) * (width) * REAL_BYTES)
#define STEPS_OF(depth) (depth)
#endif
// A family that keeps elements of A as whole vectors says how large its panels of A are (PANEL_A_BYTES); it has no prepacked ones.

#ifndef PANEL_A_BYTES
#define PANEL_A_BYTES PANEL_BYTES
#endif
#ifndef BEGIN_TILE
#define HEAD_BYTES(width) 0
#define BEGIN_TILE(...)
#endif
#ifndef FINISH_TILE
#define PACKED_A(arguments, scratch, row, rows, depth)
#define PACKED_B(arguments, scratch, column, columns, depth)
#define FINISH_TILE(row, column, ...) finish_tile(__VA_ARGS__)
#endif

// A token whose functions take any tile (scalar.h) defines these two, which are told its size.

#ifndef RUN_TILE
#define RUN_TILE(micro_kernel, rows, columns, ...) micro_kernel(__VA_ARGS__)
#define PACK(packer, width, ...) packer(__VA_ARGS__)
#endif

typedef void MicroKernel(uint32_t depth, address a, address b, address start, address tile);
typedef void Packer(uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride, uint32_t lanes, uint32_t depth,
                    address panel);

INLINE uint32_t smaller(uint32_t left, uint32_t right) { return left < right ? left : right; }

// `lanes` and those that fill the last tile.
INLINE uint32_t tiled(uint32_t lanes, const uint32_t of_tile) { return (lanes + of_tile - 1) / of_tile * of_tile; }

// into = totals + tile; `into` may be either of them.
INLINE void add_tile(const uint32_t bytes, address totals, address tile, address into) {
  for (uint32_t offset = 0; offset < bytes; offset += LANES * REAL_BYTES) {
    wasm_v128_store(to(into + offset), ADD(wasm_v128_load(at(totals + offset)), wasm_v128_load(at(tile + offset))));
  }
}

typedef struct {
  address a, b, c, d;
} Operands;

// One product of the batch.
typedef void Product(const Arguments *arguments, Operands operands, address scratch);

INLINE void multiply_block(const uint32_t rows_of_tile, const uint32_t columns_of_tile, MicroKernel *micro_kernel,
                           const Arguments *arguments, Operands operands, address scratch, address panels_a, address panel_b,
                           uint32_t row_base, uint32_t rows, uint32_t column_base, uint32_t columns, address totals,
                           uint32_t depth, uint32_t first_slice, uint32_t last_slice) {
  const uint32_t tile_bytes = rows_of_tile * columns_of_tile * REAL_BYTES;
  const uint32_t totals_step = first_slice && last_slice ? 0 : tile_bytes;
  const address start = scratch + SCRATCH_ZEROS, tile = scratch + SCRATCH_TILE;
  for (uint32_t column = 0; column < columns; column += columns_of_tile) {
    address panel_a = panels_a;
    const uint32_t wide = smaller(columns - column, columns_of_tile);
    address bias = arguments->bias + row_base * arguments->bias_row + (column_base + column) * arguments->bias_column;
    if (last_slice && arguments->has_bias) load_bias(arguments, scratch, column_base + column, bias, wide);
    for (uint32_t row = 0; row < rows; row += rows_of_tile) {
      BEGIN_TILE(rows_of_tile, arguments, panel_a, panel_b, depth, start);
      address a = panel_a + HEAD_BYTES(rows_of_tile), b = panel_b + HEAD_BYTES(columns_of_tile);
      uint32_t left = depth, first = first_slice;
      for (;;) {
        const uint32_t chain = smaller(left, arguments->chain), last = last_slice && chain == left;
        RUN_TILE(micro_kernel, rows_of_tile, columns_of_tile, STEPS_OF(chain), a, b, start, first && !last ? totals : tile);
        if (!first) add_tile(tile_bytes, totals, tile, last ? tile : totals);
        left -= chain;
        if (left == 0) break;
        first = 0;
        a += PANEL_A_BYTES(chain, rows_of_tile) - HEAD_BYTES(rows_of_tile);
        b += PANEL_BYTES(chain, columns_of_tile) - HEAD_BYTES(columns_of_tile);
      }
      if (last_slice) {
        const uint32_t i = row_base + row, j = column_base + column;
        FINISH_TILE(i, j, columns_of_tile, arguments, scratch, operands.c + i * arguments->row_c + j * arguments->column_c,
                    operands.d + i * arguments->row_d + j * arguments->column_d, bias, smaller(rows - row, rows_of_tile), wide, 1);
        bias += rows_of_tile * arguments->bias_row;
      }
      panel_a += PANEL_A_BYTES(depth, rows_of_tile);
      totals += totals_step;
    }
    panel_b += PANEL_BYTES(depth, columns_of_tile);
  }
}

// Prepacking: the panels of a whole operand become D, each chain after the one before it.
INLINE void pack_whole(const uint32_t rows_of_tile, const uint32_t columns_of_tile, Packer *pack_a, Packer *pack_b,
                       const Arguments *arguments, Operands operands) {
  for (uint32_t step = 0; step < arguments->k; step += arguments->chain) {
    const uint32_t depth = smaller(arguments->k - step, arguments->chain);
    if (arguments->packing & D_IS_PANELS_OF_A) {
      PACK(pack_a, rows_of_tile, arguments->type_a, operands.a + step * arguments->depth_a, arguments->row_a, arguments->depth_a,
           arguments->m, depth, operands.d + PANEL_BYTES(step, tiled(arguments->m, rows_of_tile)));
    } else {
      PACK(pack_b, columns_of_tile, arguments->type_b, operands.b + step * arguments->depth_b, arguments->column_b, arguments->depth_b,
           arguments->n, depth, operands.d + PANEL_BYTES(step, tiled(arguments->n, columns_of_tile)));
    }
  }
}

INLINE void multiply(const uint32_t rows_of_tile, const uint32_t columns_of_tile, MicroKernel *micro_kernel, Packer *pack_a,
                     Packer *pack_b, const Arguments *arguments, Operands operands, address scratch) {
  const uint32_t m = arguments->m, n = arguments->n, k = arguments->k;
  if (arguments->packing & (D_IS_PANELS_OF_A | D_IS_PANELS_OF_B)) {
    pack_whole(rows_of_tile, columns_of_tile, pack_a, pack_b, arguments, operands);
    return;
  }
  for (uint32_t column = 0; column < n; column += arguments->block_columns) {
    const uint32_t columns = smaller(n - column, arguments->block_columns);
    const uint32_t columns_in_tiles = tiled(columns, columns_of_tile);
    for (uint32_t top = 0; top < m; top += arguments->total_rows) {
      const uint32_t bottom = top + smaller(m - top, arguments->total_rows);
      for (uint32_t step = 0; step < k; step += arguments->slice) {
        const uint32_t depth = smaller(k - step, arguments->slice);
        address panels_b = scratch + arguments->panel_b;
        if (arguments->packing & B_IS_PANELS) {
          panels_b = operands.b + PANEL_BYTES(step, tiled(n, columns_of_tile)) + PANEL_BYTES(depth, column);
        } else {
          PACK(pack_b, columns_of_tile, arguments->type_b, operands.b + step * arguments->depth_b + column * arguments->column_b,
               arguments->column_b, arguments->depth_b, columns, depth, panels_b);
          PACKED_B(arguments, scratch, column, columns, depth)
        }
        for (uint32_t row = top; row < bottom; row += arguments->block_rows) {
          const uint32_t rows = smaller(bottom - row, arguments->block_rows);
          address panels_a = scratch + arguments->panel_a;
          if (arguments->packing & A_IS_PANELS) {
            panels_a = operands.a + PANEL_BYTES(step, tiled(m, rows_of_tile)) + PANEL_BYTES(depth, row);
          } else {
            PACK(pack_a, rows_of_tile, arguments->type_a, operands.a + row * arguments->row_a + step * arguments->depth_a,
                 arguments->row_a, arguments->depth_a, rows, depth, panels_a);
            PACKED_A(arguments, scratch, row, rows, depth)
          }
          const address totals = scratch + arguments->totals + (depth < k ? (row - top) * columns_in_tiles * REAL_BYTES : 0);
          multiply_block(rows_of_tile, columns_of_tile, micro_kernel, arguments, operands, scratch, panels_a, panels_b, row, rows,
                         column, columns, totals, depth, step == 0, step + depth >= k);
        }
      }
    }
  }
}

// No product to sum (k = 0 or alpha = 0): D = act(beta * C + bias).
INLINE void without_product(const uint32_t rows_of_tile, const uint32_t columns_of_tile, const Arguments *arguments,
                            Operands operands, address scratch) {
  for (uint32_t column = 0; column < arguments->n; column += columns_of_tile) {
    const uint32_t wide = smaller(arguments->n - column, columns_of_tile);
    address bias = arguments->bias + column * arguments->bias_column;
    if (arguments->has_bias) load_bias(arguments, scratch, column, bias, wide);
    for (uint32_t row = 0; row < arguments->m; row += rows_of_tile) {
      FINISH_TILE(row, column, columns_of_tile, arguments, scratch, operands.c + row * arguments->row_c + column * arguments->column_c,
                  operands.d + row * arguments->row_d + column * arguments->column_d, bias,
                  smaller(arguments->m - row, rows_of_tile), wide, 0);
      bias += rows_of_tile * arguments->bias_row;
    }
  }
}

// The whole operation. The odometer counts in the argument block, which is as it was when the last product is done.
INLINE uint32_t run_batch(const uint32_t rows_of_tile, const uint32_t columns_of_tile, Product *multiply_product,
                          Arguments *arguments, address scratch) {
  if (arguments->version != ARGUMENTS_VERSION) return STATUS_OTHER_VERSION;
  for (uint32_t offset = 0; offset < SCRATCH_FIXED; offset += LANES * REAL_BYTES)
    wasm_v128_store(to(scratch + offset), wasm_i32x4_const_splat(0));
  Operands operands = {arguments->a, arguments->b, arguments->c, arguments->d};
  for (;;) {
    if (arguments->k == 0) {
      without_product(rows_of_tile, columns_of_tile, arguments, operands, scratch);
    } else {
      multiply_product(arguments, operands, scratch);
    }
    uint32_t position = arguments->rank;
    for (;;) {
      if (position == 0) return STATUS_DONE;
      Dimension *dimension = &arguments->batch[--position];
      operands.a += dimension->stride_a;
      operands.b += dimension->stride_b;
      operands.c += dimension->stride_c;
      operands.d += dimension->stride_d;
      if (++dimension->counter < dimension->size) break;
      operands.a -= dimension->stride_a * dimension->size;
      operands.b -= dimension->stride_b * dimension->size;
      operands.c -= dimension->stride_c * dimension->size;
      operands.d -= dimension->stride_d * dimension->size;
      dimension->counter = 0;
    }
  }
}

// A packer for panels of one width, shared by the tiles of that width; and the exported function of one tile.
#define PACKER(width)                                                                                                            \
  static __attribute__((noinline)) void pack_##width(uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride, \
                                                     uint32_t lanes, uint32_t depth, address panel) {                            \
    const Slab slab = {source, lane_stride, depth_stride, lanes, depth};                                                         \
    pack(width, type, &slab, panel);                                                                                             \
  }

#define KERNEL(name, rows, columns, micro_kernel)                                                           \
  INLINE void name##_product(const Arguments *arguments, Operands operands, address scratch) {              \
    multiply(rows, columns, micro_kernel, pack_##rows, pack_##columns, arguments, operands, scratch);       \
  }                                                                                                         \
  __attribute__((export_name(#name))) uint32_t name(Arguments *arguments, address scratch) {                \
    return run_batch(rows, columns, name##_product, arguments, scratch);                                    \
  }
