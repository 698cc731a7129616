// The bfloat16 dot family: pairs of bfloat16 lie in 32-bit words (pack_groups.h, two steps of depth in a group) and are taken two steps
// a word. WebAssembly has no dot product of bfloat16, so a word is widened twice and multiplied twice: the even step first, then the
// odd one (x86's vdpbf16ps takes the odd one first). That is increasing k, and the last step of an odd depth goes alone: the sums are
// those of the float32 family, bit for bit, from panels of half the size. Sums, finish and D as there.
// Exports one function: (argument block, scratch memory) -> status.

#include "sums_f32.h"

#include "finish.h"
#include "pairs_bf16.h"

#include "driver.h"

#define WORD_STEPS 2
#define WIDEN_STEP(words, which) \
  ((which) == 0 ? wasm_i32x4_shl(words, 16) : wasm_v128_and(words, wasm_u32x4_const_splat(0xffff0000)))
#define MULTIPLY_ADD(x, y, sum) wasm_f32x4_add(sum, wasm_f32x4_mul(x, y))

GROUP_PACKER(4, SIDE_A)
GROUP_PACKER(8, SIDE_B)
#define TILE tile_bf16dot_4x8
#define ROWS 4
#define BROADCAST_BY_SHUFFLE 1
#include "micro_kernel.h"
KERNEL(gemm_bf16dot_4x8_pairs, 4, 8, tile_bf16dot_4x8)
