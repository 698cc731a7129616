// The scalar token: a slow reference without SIMD that takes any tile, as arguments (tile_rows, tile_columns), so that packing, edges
// and finish can be tried with absurd ones. A tile's sums fill at most SCRATCH_TILE's 192 bytes, its columns SCRATCH_BIAS's 64.
// Sums as the simd128 token does: product rounded, then sum rounded, in increasing k from the start.
//
// The includer defines REAL_BYTES, LANES as 1, all that driver.h needs beside what is here, MULTIPLY, and what pack.h needs; or, where
// panels are not those of pack.h, pack_any(width, ...) and ELEMENT_AT(panel, width, step, lane), an element of a panel as a sum.

#ifndef ELEMENT_AT
#include "pack.h"

static __attribute__((noinline)) void pack_any(uint32_t width, uint32_t type, address source, uint32_t lane_stride,
                                               uint32_t depth_stride, uint32_t lanes, uint32_t depth, address panel) {
  const Slab slab = {source, lane_stride, depth_stride, lanes, depth};
  pack(width, type, &slab, panel);
}

#define ELEMENT_AT(panel, width, step, lane) wasm_v128_load(at((panel) + ((step) * (width) + (lane)) * REAL_BYTES))
#endif

#define RUN_TILE(micro_kernel, rows, columns, ...) ((void)micro_kernel, sum_tile(rows, columns, __VA_ARGS__))
#define PACK(packer, width, ...) ((void)packer, pack_any(width, __VA_ARGS__))

static __attribute__((noinline)) void sum_tile(uint32_t rows, uint32_t columns, uint32_t depth, address a, address b, address start,
                                               address tile) {
  for (uint32_t row = 0; row < rows; row++) {
    for (uint32_t column = 0; column < columns; column++) {
      v128_t sum = wasm_v128_load(at(start));
      for (uint32_t step = 0; step < depth; step++) {
        sum = ADD(sum, MULTIPLY(ELEMENT_AT(a, rows, step, row), ELEMENT_AT(b, columns, step, column)));
      }
      wasm_v128_store(to(tile), sum);
      start += REAL_BYTES;
      tile += REAL_BYTES;
    }
  }
}

#include "driver.h"

INLINE void scalar_product(const Arguments *arguments, Operands operands, address scratch) {
  multiply(arguments->tile_rows, arguments->tile_columns, 0, 0, 0, arguments, operands, scratch);
}

#define SCALAR_KERNEL(name)                                                                              \
  __attribute__((export_name(#name))) uint32_t name(Arguments *arguments, address scratch) {             \
    return run_batch(arguments->tile_rows, arguments->tile_columns, scalar_product, arguments, scratch); \
  }
