// The float64 family without SIMD: operands and D as in gemm_f64.c, the same bits as its simd128 token. See scalar.h.

#define REAL_BYTES 8

#include "activation.h"
#include "arguments.h"
#include "element.h"

#define LANES 1
#define PACKS_FLOAT64 1
#define LOAD_VECTOR load1_double
#define LOAD_ONE load1_double
#define STORE_ONE(where, value) wasm_v128_store64_lane(to(where), value, 0)
#define LOAD_TILE_ONE(where) wasm_v128_load64_zero(at(where))
#define STORE_D store1_double
#define STORE_D_ONE store1_double
#define ADD wasm_f64x2_add
#define MULTIPLY wasm_f64x2_mul
#define SPLAT_REAL(value) wasm_f64x2_splat(value)
#define SPLAT_ONE(vector) (vector)
#define activate activate_f64

#include "finish.h"
#include "scalar.h"

SCALAR_KERNEL(gemm_f64_scalar)
