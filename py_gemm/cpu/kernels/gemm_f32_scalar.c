// The float32 family without SIMD: operands and D as in gemm_f32.c, the same bits as its simd128 token. See scalar.h.

#include "scalar_f32.h"

#define PACKS_FLOAT64 0

#include "finish.h"
#include "scalar.h"

SCALAR_KERNEL(gemm_f32_scalar)
