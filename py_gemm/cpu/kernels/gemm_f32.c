// The float32 family: sums in float32 of products of float32, float16 and bfloat16 in any mix; C and D of any type.
// One source for both tokens: compiled with relaxed SIMD, multiply_add is relaxed (fused where the host can), without, it is a
// multiplication and an addition. Exports one function for each tile: (argument block, scratch memory) -> status.

#include "activation.h"
#include "arguments.h"
#include "element.h"

#define LANES 4
#define REAL_BYTES 4
#define PACKS_FLOAT64 0
#define LOAD_VECTOR load4
#define LOAD_PAIR load2
#define LOAD_ONE load1
#define STORE_PAIR(where, value) wasm_v128_store64_lane(to(where), value, 0)
#define STORE_ONE(where, value) wasm_v128_store32_lane(to(where), value, 0)
#define LOAD_TILE_ONE(where) wasm_v128_load32_zero(at(where))
#define STORE_D store4
#define STORE_D_ONE store1
#define ADD wasm_f32x4_add
#define MULTIPLY wasm_f32x4_mul
#define SPLAT_REAL(value) wasm_f32x4_splat((float)(value))
#define activate activate_f32

#include "transpose4.h"

#include "finish.h"
#include "pack.h"

#include "driver.h"

#define SPLAT wasm_v128_load32_splat
#define SHUFFLE broadcast

INLINE v128_t broadcast(v128_t vector, const uint32_t lane) {
  switch (lane) {
  case 0: return wasm_i32x4_shuffle(vector, vector, 0, 0, 0, 0);
  case 1: return wasm_i32x4_shuffle(vector, vector, 1, 1, 1, 1);
  case 2: return wasm_i32x4_shuffle(vector, vector, 2, 2, 2, 2);
  default: return wasm_i32x4_shuffle(vector, vector, 3, 3, 3, 3);
  }
}

PACKER(8)

#ifdef __wasm_relaxed_simd__

#define MULTIPLY_ADD wasm_f32x4_relaxed_madd

PACKER(6)
#define TILE tile_6x8_relaxed
#define ROWS 6
#define BROADCAST_BY_SHUFFLE 0
#include "micro_kernel.h"
KERNEL(gemm_f32_6x8_relaxed, 6, 8, tile_6x8_relaxed)

PACKER(4)
#define TILE tile_4x8_relaxed
#define ROWS 4
#define BROADCAST_BY_SHUFFLE 1
#include "micro_kernel.h"
KERNEL(gemm_f32_4x8_relaxed, 4, 8, tile_4x8_relaxed)

#else

#define MULTIPLY_ADD(x, y, sum) wasm_f32x4_add(sum, wasm_f32x4_mul(x, y))

PACKER(4)
#define TILE tile_4x8_simd128
#define ROWS 4
#define BROADCAST_BY_SHUFFLE 1
#include "micro_kernel.h"
KERNEL(gemm_f32_4x8_simd128, 4, 8, tile_4x8_simd128)

#endif
