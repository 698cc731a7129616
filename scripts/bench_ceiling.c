/* Nothing but fused multiply-adds on twelve independent accumulators: the most that 128-bit SIMD does on one core.
 * 12 accumulators x 4 lanes x 2 operations a step. The result is returned, so that no compiler drops the loop. */
#include <wasm_simd128.h>

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)

__attribute__((export_name("ceiling"))) float ceiling(int steps, float x, float y) {
  v128_t a = wasm_f32x4_splat(x), b = wasm_f32x4_splat(y);
#define DECLARE(i) v128_t c##i = wasm_f32x4_splat(x + i);
  EACH(DECLARE)
  for (int step = 0; step < steps; ++step) {
#define ADD(i) c##i = wasm_f32x4_relaxed_madd(a, b, c##i);
    EACH(ADD)
  }
  v128_t sum = wasm_f32x4_splat(0);
#define COLLECT(i) sum = wasm_f32x4_add(sum, c##i);
  EACH(COLLECT)
  return wasm_f32x4_extract_lane(sum, 0);
}
