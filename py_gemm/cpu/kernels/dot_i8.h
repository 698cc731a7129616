// The int8 family with a dot product of four bytes (relaxed SIMD): a signed by a signed or an unsigned operand, as the engine has it
// (B_IS_UNSIGNED, which the includer defines; ../probe.py finds out whether the engine is exact). Panels keep four steps of depth in
// a word (pack_groups.h). An operand of the other signedness is moved by 128, and zero points stay out of the panels:
//
//   a = a' + ca,  b = b' + cb          ca, cb: 128, 0 or -128, by the types
//   sum (a - za)(b - zb) = sum a'b' - za' sum b' - zb' (sum a' - depth za'),     za' = za - ca, zb' = zb - cb
//
// modulo 2^32, over the padded depth; each pad adds za * zb, which is taken off. All but sum a'b' is what a tile starts from.
// A panel's head: two words a lane, zero' and sum (of a lane of A: sum - depth * zero'). Exact for every input.

#include "arguments.h"
#include "block_i8.h"
#include "element.h"

#define LANES 4
#define REAL_BYTES 4
#define ADD wasm_i32x4_add
#define GROUP_STEPS 4
#define HEAD_WORDS 2

#define MOVED 0x80808080u

// Whether the operand goes into the other signedness.
INLINE uint32_t moves(const uint32_t type, const uint32_t side) { return side == 1 && B_IS_UNSIGNED ? type == INT8 : type == UINT8; }
// By how much an element is more than the byte in the panel.
INLINE int32_t moved_by(const uint32_t type, const uint32_t side) {
  if (side == 1 && B_IS_UNSIGNED) return type == INT8 ? -128 : 0;
  return type == UINT8 ? 128 : 0;
}

INLINE uint32_t word_of_bytes(const uint32_t type, const uint32_t side, uint32_t bytes) {
  return moves(type, side) ? bytes ^ MOVED : bytes;
}

INLINE v128_t move(const uint32_t type, const uint32_t side, v128_t bytes) {
  return moves(type, side) ? wasm_v128_xor(bytes, wasm_u32x4_const_splat(MOVED)) : bytes;
}

INLINE v128_t load_words(const uint32_t type, const uint32_t side, address from) {
  return move(type, side, wasm_v128_load(at(from)));
}

INLINE void load_eight(const uint32_t type, const uint32_t side, address from, uint32_t depth_stride, v128_t *words) {
  const v128_t a = wasm_v128_load64_zero(at(from)), b = wasm_v128_load64_zero(at(from + depth_stride));
  const v128_t c = wasm_v128_load64_zero(at(from + 2 * depth_stride)), d = wasm_v128_load64_zero(at(from + 3 * depth_stride));
  const v128_t ab = wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const v128_t cd = wasm_i8x16_shuffle(c, d, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  words[0] = move(type, side, wasm_i16x8_shuffle(ab, cd, 0, 8, 1, 9, 2, 10, 3, 11));
  words[1] = move(type, side, wasm_i16x8_shuffle(ab, cd, 4, 12, 5, 13, 6, 14, 7, 15));
}

#include "pack_groups.h"

#include "finish_i8.h"

// The sums of four words' bytes.
INLINE v128_t sums_of_words(const uint32_t side, v128_t words) {
  const v128_t pairs = side == SIDE_B && B_IS_UNSIGNED ? wasm_u16x8_extadd_pairwise_u8x16(words) : wasm_i16x8_extadd_pairwise_i8x16(words);
  return wasm_i32x4_extadd_pairwise_i16x8(pairs); // 510 at most
}

// The heads of all panels: zero' and sum of every lane.
static __attribute__((noinline)) void write_heads(const uint32_t width, const uint32_t side, uint32_t type, const Block *block,
                                                  uint32_t zeros, uint32_t step, uint32_t first, uint32_t lanes, uint32_t depth,
                                                  address panel) {
  const uint32_t groups = groups_of(depth);
  for (uint32_t lane = 0; lane < lanes; lane += width) {
    const address sums = panel + width * 4;
    v128_t left = wasm_i32x4_const_splat(0), right = left;
    address words = panel + HEAD_WORDS * width * 4;
    for (uint32_t group = 0; group < groups; group++) {
      left = wasm_i32x4_add(left, sums_of_words(side, wasm_v128_load(at(words))));
      const v128_t rest = width == 8 ? wasm_v128_load(at(words + 16)) : wasm_v128_load64_zero(at(words + 16)); // a width of 6
      right = wasm_i32x4_add(right, sums_of_words(side, rest));
      words += width * 4;
    }
    wasm_v128_store(to(sums), left);
    if (width == 8) {
      wasm_v128_store(to(sums + 16), right);
    } else {
      wasm_v128_store64_lane(to(sums + 16), right, 0);
    }
    for (uint32_t each = 0; each < width; each++) {
      const uint32_t zero = lane + each < lanes ? word_of(block, zeros + (first + lane + each) * step) : 0;
      const uint32_t moved_zero = zero - (uint32_t)moved_by(type, side);
      *(uint32_t *)to(panel + each * 4) = moved_zero;
      if (side == SIDE_A) *(uint32_t *)to(sums + each * 4) -= groups * GROUP_STEPS * moved_zero;
    }
    panel += group_panel_bytes(depth, width);
  }
}

// What the sums of a tile start from.
INLINE void begin_tile(const uint32_t rows_of_tile, const Arguments *arguments, address panel_a, address panel_b, uint32_t depth,
                       address start) {
  const uint32_t pads = groups_of(depth) * GROUP_STEPS - depth;
  const int32_t ca = moved_by(arguments->type_a, SIDE_A), cb = moved_by(arguments->type_b, SIDE_B);
  for (uint32_t half = 0; half < 2; half++) {
    const v128_t zero_b = wasm_v128_load(at(panel_b + half * 16)), sum_b = wasm_v128_load(at(panel_b + 32 + half * 16));
    const v128_t per_pad = wasm_i32x4_mul(wasm_i32x4_add(zero_b, wasm_i32x4_splat(cb)), wasm_i32x4_splat((int32_t)pads));
    for (uint32_t row = 0; row < rows_of_tile; row++) {
      const v128_t zero_a = wasm_v128_load32_splat(at(panel_a + row * 4));
      const v128_t sum_a = wasm_v128_load32_splat(at(panel_a + (rows_of_tile + row) * 4));
      v128_t off = wasm_i32x4_add(wasm_i32x4_mul(zero_a, sum_b), wasm_i32x4_mul(zero_b, sum_a));
      if (pads) off = wasm_i32x4_add(off, wasm_i32x4_mul(per_pad, wasm_i32x4_add(zero_a, wasm_i32x4_splat(ca))));
      wasm_v128_store(to(start + row * 32 + half * 16), wasm_i32x4_neg(off));
    }
  }
}

#define PACKED_A(arguments, scratch, row, rows, depth)                                                                              \
  write_heads(rows_of_tile, SIDE_A, arguments->type_a, block_of(arguments), block_of(arguments)->zeros_a,                           \
              block_of(arguments)->zeros_a_step, row, rows, depth, scratch + arguments->panel_a);
#define PACKED_B(arguments, scratch, column, columns, depth)                                                                        \
  write_heads(columns_of_tile, SIDE_B, arguments->type_b, block_of(arguments), block_of(arguments)->zeros_b,                        \
              block_of(arguments)->zeros_b_step, column, columns, depth, scratch + arguments->panel_b);
#define FINISH_TILE finish_tile
#define PANEL_BYTES group_panel_bytes
#define HEAD_BYTES(width) (HEAD_WORDS * (width) * 4)
#define STEPS_OF(depth) groups_of(depth)
#define BEGIN_TILE begin_tile

#include "driver.h"

#define SPLAT wasm_v128_load32_splat
#define SHUFFLE(vector, lane) (vector)
#define MULTIPLY_ADD(x, y, sum) wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, y, sum)

GROUP_PACKER(6, SIDE_A)
GROUP_PACKER(8, SIDE_B)
#define TILE tile_i8_6x8
#define ROWS 6
#define BROADCAST_BY_SHUFFLE 0
#include "micro_kernel.h"
