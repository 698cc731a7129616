// The one block of arguments that a call hands to a kernel: plain little-endian words in linear memory, written by
// ../arguments.py, which states the same layout for struct.pack. The kernel reads it and changes nothing but the
// batch counters, which are zero before and after a call.
//
// Strides are bytes, modulo 2^32: an address is a sum of wrapped 32-bit terms, so negative and zero strides need no case
// of their own. `c` is read only where reads_c is set, `bias` where has_bias is set; a and b only where k is not zero
// (the caller writes k = 0 where alpha is zero). The integer family has no C, alpha, beta or activation; its `bias` is the block
// of block_i8.h.
#ifndef PY_GEMM_ARGUMENTS_H
#define PY_GEMM_ARGUMENTS_H

#include <stdint.h>

typedef uint32_t address;

// py_gemm/dtypes.py: ElementType.code
enum { FLOAT32 = 0, FLOAT16 = 1, BFLOAT16 = 2, FLOAT64 = 3, INT8 = 4, UINT8 = 5, INT32 = 6 };
// py_gemm/epilogue.py: Activation
enum { NONE = 0, RELU = 1, GELU_ERF = 2, GELU_TANH = 3 };

// ../arguments.py
enum { A_IS_PANELS = 1, B_IS_PANELS = 2, D_IS_PANELS_OF_A = 4, D_IS_PANELS_OF_B = 8 };

enum { ARGUMENTS_VERSION = 4 };
enum { STATUS_DONE = 0, STATUS_OTHER_VERSION = 1 };

typedef struct {
  uint32_t size, counter;
  uint32_t stride_a, stride_b, stride_c, stride_d;
} Dimension;

typedef struct {
  address a, b, c, d, bias; // rewritten for each call; all that follows stays
  uint32_t version;
  uint32_t m, n, k;
  uint32_t type_a, type_b, type_c, type_d;
  uint32_t activation, reads_c, has_bias;
  double alpha, beta;
  uint32_t row_a, depth_a, depth_b, column_b, row_c, column_c, row_d, column_d;
  uint32_t bias_row, bias_column;    // bytes; one of them is zero
  uint32_t packing;                  // which operands are panels already, or become panels in D (driver.h)
  uint32_t chain;                    // products summed one after another from zero
  uint32_t slice;                    // steps of depth packed at a time (kc): a chain, or all of k
  uint32_t block_rows;               // rows of A packed at a time (mc)
  uint32_t block_columns;            // columns of B packed at a time (nc)
  uint32_t total_rows;               // rows whose running totals are kept at a time (ms)
  uint32_t panel_a, panel_b, totals; // where in the scratch memory these three begin
  uint32_t tile_rows, tile_columns;  // for kernels that take any tile
  uint32_t rank;
  Dimension batch[]; // slowest first
} Arguments;

// The first bytes of the scratch memory; the rest is laid out by blocking.py. The integer family keeps its scales where others keep
// the bias, and its bias in 32 bytes behind.
enum { SCRATCH_ZEROS = 0, SCRATCH_TILE = 192, SCRATCH_BIAS = 384, SCRATCH_BIAS_I32 = 448, SCRATCH_FIXED = 480 };

_Static_assert(sizeof(Dimension) == 24, "Dimension is 6 words");
_Static_assert(__builtin_offsetof(Arguments, alpha) == 64, "alpha is aligned");
_Static_assert(__builtin_offsetof(Arguments, batch) == 168, "the batch follows 168 bytes");

#endif
