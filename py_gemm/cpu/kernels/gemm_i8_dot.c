// The int8 dot family on engines whose dot product takes signed by unsigned bytes, exactly (x86-64 with AVX-VNNI).

#define B_IS_UNSIGNED 1
#include "dot_i8.h"

KERNEL(gemm_i8_6x8_dot, 6, 8, tile_i8_6x8)
