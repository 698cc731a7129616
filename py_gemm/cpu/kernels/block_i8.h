// The block of an integer product, which Arguments.bias points to: zero points, and how sums become int8 or uint8. Written by
// py_gemm/int8_block.py, the same words for shaders and kernels. Reads only.
//
// A vector is a place (in words from the block's beginning) and a step for each row or column; a step of 0: one number for all.
#ifndef PY_GEMM_BLOCK_I8_H
#define PY_GEMM_BLOCK_I8_H

#include <stdint.h>

#include "arguments.h"
#include "element.h"

enum { REQUANTIZES = 1, ZERO_POINT_FIRST = 2 };

typedef struct {
  uint32_t zeros_a, zeros_a_step;
  uint32_t zeros_b, zeros_b_step;
  uint32_t flags;
  int32_t zero_point, lowest, highest;
  uint32_t bias, bias_row, bias_column;
  uint32_t scale, scale_row, scale_column; // a scale is significand * 2^-shift in one word: 24 bits under 6
} Block;

_Static_assert(sizeof(Block) == 56, "the head is 14 words");

INLINE const Block *block_of(const Arguments *arguments) { return at(arguments->bias); }

INLINE uint32_t word_of(const Block *block, uint32_t index) { return ((const uint32_t *)block)[index]; }

// A scale as a number. Shifts end at 63, where any sum becomes 0 either way.
INLINE double scale_of(uint32_t word) {
  const uint64_t power = (uint64_t)(1023 - (word >> 24)) << 52;
  double unit;
  __builtin_memcpy(&unit, &power, 8);
  return (double)(word & 0xffffffu) * unit;
}

// clamp(zero point + rne(scale * (sum + bias))): the sum wraps, the product is exact (55 bits) and rounded once, ties to even. The
// magnitude is rounded, which is the same. With the zero point first only ties differ: quotient plus zero point has to be even.
INLINE int32_t requantize(const Block *block, uint32_t sum, uint32_t row, uint32_t column) {
  const uint32_t value = sum + word_of(block, block->bias + row * block->bias_row + column * block->bias_column);
  const uint32_t scale = word_of(block, block->scale + row * block->scale_row + column * block->scale_column);
  const uint32_t negative = value >> 31;
  const uint64_t product = (uint64_t)(negative ? 0u - value : value) * (scale & 0xffffffu);
  const uint64_t unit = (uint64_t)1 << (scale >> 24);
  uint64_t quotient = product >> (scale >> 24);
  const uint64_t twice_the_rest = (product & (unit - 1)) << 1;
  const uint64_t odd = (quotient + (block->flags & ZERO_POINT_FIRST ? (uint32_t)block->zero_point & 1u : 0u)) & 1u;
  if (twice_the_rest > unit || (twice_the_rest == unit && odd)) quotient++;
  const int32_t bounded = quotient > 65536 ? 65536 : (int32_t)quotient;
  const int32_t result = block->zero_point + (negative ? -bounded : bounded);
  return result < block->lowest ? block->lowest : result > block->highest ? block->highest : result;
}

#endif
