// What the float32 accumulator is to the finish, the driver and the micro-kernels: four sums in a vector, and how they are loaded,
// stored, scaled and spread. Shared by the families that sum in float32.

#include "activation.h"
#include "arguments.h"
#include "element.h"

#define LANES 4
#define REAL_BYTES 4
#define LOAD_VECTOR load4
#define LOAD_ONE load1
#define STORE_ONE(where, value) wasm_v128_store32_lane(to(where), value, 0)
#define LOAD_TILE_ONE(where) wasm_v128_load32_zero(at(where))
#define STORE_D store4
#define STORE_D_ONE store1
#define ADD wasm_f32x4_add
#define MULTIPLY wasm_f32x4_mul
#define SPLAT_REAL(value) wasm_f32x4_splat((float)(value))
#define SPLAT_ONE(vector) wasm_i32x4_shuffle(vector, vector, 0, 0, 0, 0)
#define activate activate_f32

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
