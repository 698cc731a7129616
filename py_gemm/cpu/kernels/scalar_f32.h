// What the float32 accumulator is to the finish and the driver where a vector holds one element (sums_f32.h: four).

#define LANES 1
#define REAL_BYTES 4

#include "activation.h"
#include "arguments.h"
#include "element.h"

#define LOAD_VECTOR load1
#define LOAD_ONE load1
#define STORE_ONE(where, value) wasm_v128_store32_lane(to(where), value, 0)
#define LOAD_TILE_ONE(where) wasm_v128_load32_zero(at(where))
#define STORE_D store1
#define STORE_D_ONE store1
#define ADD wasm_f32x4_add
#define MULTIPLY wasm_f32x4_mul
#define SPLAT_REAL(value) wasm_f32x4_splat((float)(value))
#define SPLAT_ONE(vector) (vector)
#define activate activate_f32
