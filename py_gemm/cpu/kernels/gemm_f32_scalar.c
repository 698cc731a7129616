// The float32 family without SIMD: operands and D as in gemm_f32.c, the same bits as its simd128 token. See scalar.h.

#include "scalar_f32.h"

#define LANES 1
#define PACKS_FLOAT64 0

#include "pack.h"

static __attribute__((noinline)) void pack_any(uint32_t width, uint32_t type, address source, uint32_t lane_stride,
                                               uint32_t depth_stride, uint32_t lanes, uint32_t depth, address panel) {
  const Slab slab = {source, lane_stride, depth_stride, lanes, depth};
  pack(width, type, &slab, panel);
}

#define ELEMENT_AT(panel, width, step, lane) wasm_v128_load(at((panel) + ((step) * (width) + (lane)) * REAL_BYTES))

#include "finish.h"
#include "scalar.h"

SCALAR_KERNEL(gemm_f32_scalar)
