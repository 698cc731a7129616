// The panels of the bfloat16 dot family: two steps of depth, as they are, in a 32-bit word (pack_groups.h).

#define GROUP_STEPS 2
#define HEAD_WORDS 0
#define SOURCE_BYTES 2

INLINE uint32_t word_of_bytes(const uint32_t type, const uint32_t side, uint32_t bits) {
  (void)type, (void)side;
  return bits;
}

#ifdef __wasm_simd128__

INLINE v128_t load_words(const uint32_t type, const uint32_t side, address from) {
  (void)type, (void)side;
  return wasm_v128_load(at(from));
}

INLINE void load_eight(const uint32_t type, const uint32_t side, address from, uint32_t depth_stride, v128_t *words) {
  const v128_t even = load_words(type, side, from), odd = load_words(type, side, from + depth_stride);
  words[0] = wasm_i16x8_shuffle(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
  words[1] = wasm_i16x8_shuffle(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
}

#endif

#include "pack_groups.h"

#define PANEL_BYTES group_panel_bytes
#define STEPS_OF(depth) (depth)
