// The packers of families that take several steps at once, for test_pack_groups.py: exports one for each width.
// GROUP_STEPS, SOURCE_BYTES and FLIP (what every byte is xored with) come from the command line. A pair of bytes is zero-extended; four
// bytes, or two elements of 16 bits, fill a word as they are.

#include "arguments.h"
#define REAL_BYTES 4
#include "element.h"

#define HEAD_WORDS 1
#define FILLS_WORD (GROUP_STEPS * SOURCE_BYTES == 4)
#define BYTES_OF_FLIP (FLIP * 0x01010101u)

INLINE uint32_t word_of_bytes(const uint32_t type, const uint32_t side, uint32_t bytes) {
  (void)type, (void)side;
  const uint32_t flipped = bytes ^ BYTES_OF_FLIP;
  return FILLS_WORD ? flipped : (flipped & 0xff) | (flipped >> 8 & 0xff) << 16;
}

#ifdef __wasm_simd128__

INLINE v128_t load_words(const uint32_t type, const uint32_t side, address from) {
  (void)type, (void)side;
  const v128_t flip = wasm_u32x4_splat(BYTES_OF_FLIP);
  if (FILLS_WORD) return wasm_v128_xor(wasm_v128_load(at(from)), flip);
  return wasm_u16x8_extend_low_u8x16(wasm_v128_xor(wasm_v128_load64_zero(at(from)), flip));
}

INLINE void load_eight(const uint32_t type, const uint32_t side, address from, uint32_t depth_stride, v128_t *words) {
  uint32_t both[8];
  for (uint32_t lane = 0; lane < 8; lane++) {
    uint32_t bytes = 0;
    for (uint32_t step = 0; step < GROUP_STEPS; step++) {
      const address element = from + lane * SOURCE_BYTES + step * depth_stride;
      const uint32_t bits = SOURCE_BYTES == 1 ? *(const uint8_t *)at(element) : *(const uint16_t *)at(element);
      bytes |= bits << (8 * SOURCE_BYTES * step);
    }
    both[lane] = word_of_bytes(type, side, bytes);
  }
  words[0] = wasm_u32x4_make(both[0], both[1], both[2], both[3]);
  words[1] = wasm_u32x4_make(both[4], both[5], both[6], both[7]);
}

#endif

#include "pack_groups.h"

#define EXPORTED(width)                                                                                                       \
  GROUP_PACKER(width, SIDE_A)                                                                                                 \
  __attribute__((export_name("pack_" #width))) void exported_##width(uint32_t type, address source, uint32_t lane_stride,     \
                                                                     uint32_t depth_stride, uint32_t lanes, uint32_t depth,   \
                                                                     address panel) {                                         \
    pack_##width(type, source, lane_stride, depth_stride, lanes, depth, panel);                                               \
  }
EXPORTED(4)
EXPORTED(6)
EXPORTED(8)
