// The int8 dot family on engines whose dot product takes signed by signed bytes, exactly (ARM with the dot product extension).

#define B_IS_UNSIGNED 0
#include "dot_i8.h"

KERNEL(gemm_i8_6x8_sdot, 6, 8, tile_i8_6x8)
