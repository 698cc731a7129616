// The bfloat16 dot family without SIMD: panels as in gemm_bf16dot.c, the same bits. See scalar.h.

#include "scalar_f32.h"

#include "pairs_bf16.h"

static __attribute__((noinline)) void pack_any(uint32_t width, uint32_t type, address source, uint32_t lane_stride,
                                               uint32_t depth_stride, uint32_t lanes, uint32_t depth, address panel) {
  pack_groups(width, type, SIDE_A, source, lane_stride, depth_stride, lanes, depth, panel);
}

#define ELEMENT_AT(panel, width, step, lane) \
  widen_bfloat16(element_bits((panel) + (((step) / 2 * (width) + (lane)) * 2 + (step) % 2) * SOURCE_BYTES))

#include "finish.h"
#include "scalar.h"

SCALAR_KERNEL(gemm_bf16dot_scalar)
