// Packing for kernels that take several steps of depth in one instruction: GROUP_STEPS steps of a lane lie side by side in one
// 32-bit word. The one place that knows this order:
//
//   group g, lane i, position t: element g * width * GROUP_STEPS + i * GROUP_STEPS + t of the panel
//
//   lane 0: a b c d e    width 2, 4 steps in a group    panel:  a b c d | p q r s    e 0 0 0 | t 0 0 0
//   lane 1: p q r s t                                            group 0              group 1
//
// A panel begins with HEAD_WORDS words a lane, left to the includer. Every element goes through a transform, and every pad (lanes past
// the edge, steps past the depth) is the transform of 0. Never reads outside the operand.
// Elements of an operand are bytes, or have 16 bits where the includer says so (SOURCE_BYTES).
// The includer defines GROUP_STEPS, HEAD_WORDS, word_of_bytes(type, side, four bytes) -> a word of GROUP_STEPS elements,
// load_words(type, side, address) -> a vector of 4 words, the next 4 groups of a lane, and
// load_eight(type, side, address, depth_stride, words) -> two vectors, one group of eight lanes that lie side by side.

enum { SIDE_A = 0, SIDE_B = 1 };

#ifndef SOURCE_BYTES
#define SOURCE_BYTES 1
#endif

INLINE uint32_t element_bits(address where) {
  return SOURCE_BYTES == 1 ? *(const uint8_t *)at(where) : *(const uint16_t *)at(where);
}

INLINE uint32_t groups_of(uint32_t depth) { return (depth + GROUP_STEPS - 1) / GROUP_STEPS; }
INLINE uint32_t group_panel_bytes(uint32_t depth, const uint32_t width) { return (groups_of(depth) + HEAD_WORDS) * width * 4; }

// One word at a time, from group `first` on.
INLINE void pack_words(const uint32_t width, const uint32_t type, const uint32_t side, address source, uint32_t lane_stride,
                       uint32_t depth_stride, uint32_t lanes, uint32_t depth, uint32_t first, address words) {
  for (uint32_t lane = 0; lane < width; lane++) {
    address from = source + lane * lane_stride + first * GROUP_STEPS * depth_stride;
    address into = words + (first * width + lane) * 4;
    for (uint32_t step = first * GROUP_STEPS; step < depth; step += GROUP_STEPS) {
      uint32_t bytes = 0;
      for (uint32_t each = 0; each < GROUP_STEPS; each++) {
        if (lane < lanes && step + each < depth) bytes |= element_bits(from) << (8 * SOURCE_BYTES * each);
        from += depth_stride;
      }
      *(uint32_t *)to(into) = word_of_bytes(type, side, bytes);
      into += width * 4;
    }
  }
}

#ifdef __wasm_simd128__

// The depth lies side by side: 4 groups of 4 lanes at a time, transposed.
INLINE void pack_depth(const uint32_t width, const uint32_t type, const uint32_t side, address source, uint32_t lane_stride,
                       uint32_t depth, address words) {
  const uint32_t whole = depth / (4 * GROUP_STEPS) * 4;
  uint32_t lane = 0;
  _Pragma("clang loop unroll(full)") for (; lane + 4 <= width; lane += 4) {
    address from = source + lane * lane_stride, into = words + lane * 4;
    for (uint32_t group = 0; group < whole; group += 4) {
      const Columns groups = transpose_words(load_words(type, side, from), load_words(type, side, from + lane_stride),
                                             load_words(type, side, from + 2 * lane_stride),
                                             load_words(type, side, from + 3 * lane_stride));
      wasm_v128_store(to(into), groups.first);
      wasm_v128_store(to(into + width * 4), groups.second);
      wasm_v128_store(to(into + 2 * width * 4), groups.third);
      wasm_v128_store(to(into + 3 * width * 4), groups.fourth);
      from += 4 * GROUP_STEPS * SOURCE_BYTES;
      into += 4 * width * 4;
    }
  }
  if (lane + 1 == width) { // a width of 5 ends in one lane
    address from = source + lane * lane_stride, into = words + lane * 4;
    for (uint32_t group = 0; group < whole; group += 4) {
      const v128_t groups = load_words(type, side, from);
      wasm_v128_store32_lane(to(into), groups, 0);
      wasm_v128_store32_lane(to(into + width * 4), groups, 1);
      wasm_v128_store32_lane(to(into + 2 * width * 4), groups, 2);
      wasm_v128_store32_lane(to(into + 3 * width * 4), groups, 3);
      from += 4 * GROUP_STEPS * SOURCE_BYTES;
      into += 4 * width * 4;
    }
  } else if (lane < width) { // a width of 6 ends in two lanes
    address from = source + lane * lane_stride, into = words + lane * 4;
    for (uint32_t group = 0; group < whole; group += 4) {
      const v128_t a = load_words(type, side, from), b = load_words(type, side, from + lane_stride);
      const v128_t low = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), high = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
      wasm_v128_store64_lane(to(into), low, 0);
      wasm_v128_store64_lane(to(into + width * 4), low, 1);
      wasm_v128_store64_lane(to(into + 2 * width * 4), high, 0);
      wasm_v128_store64_lane(to(into + 3 * width * 4), high, 1);
      from += 4 * GROUP_STEPS * SOURCE_BYTES;
      into += 4 * width * 4;
    }
  }
  pack_words(width, type, side, source, lane_stride, SOURCE_BYTES, width, depth, whole, words);
}

// Eight lanes lie side by side.
INLINE void pack_eight_lanes(const uint32_t type, const uint32_t side, address source, uint32_t depth_stride, uint32_t depth,
                             address words) {
  const uint32_t whole = depth / GROUP_STEPS;
  address from = source, into = words;
  for (uint32_t group = 0; group < whole; group++) {
    v128_t pair[2];
    load_eight(type, side, from, depth_stride, pair);
    wasm_v128_store(to(into), pair[0]);
    wasm_v128_store(to(into + 16), pair[1]);
    from += GROUP_STEPS * depth_stride;
    into += 32;
  }
  pack_words(8, type, side, source, SOURCE_BYTES, depth_stride, 8, depth, whole, words);
}

#endif

INLINE void pack_groups(const uint32_t width, const uint32_t type, const uint32_t side, address source, uint32_t lane_stride,
                        uint32_t depth_stride, uint32_t lanes, uint32_t depth, address panel) {
  for (uint32_t lane = 0; lane < lanes; lane += width) {
    const address words = panel + HEAD_WORDS * width * 4;
#ifdef __wasm_simd128__
    const uint32_t whole = lane + width <= lanes;
    if (whole && depth_stride == SOURCE_BYTES) {
      pack_depth(width, type, side, source, lane_stride, depth, words);
    } else if (whole && lane_stride == SOURCE_BYTES && width == 8) {
      pack_eight_lanes(type, side, source, depth_stride, depth, words);
    } else
#endif
    {
      pack_words(width, type, side, source, lane_stride, depth_stride, lanes - lane, depth, 0, words);
    }
    source += width * lane_stride;
    panel += group_panel_bytes(depth, width);
  }
}

#define GROUP_PACKER(width, side)                                                                                                \
  static __attribute__((noinline)) void pack_##width(uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride, \
                                                     uint32_t lanes, uint32_t depth, address panel) {                            \
    if (SOURCE_BYTES == 2) {                                                                                                     \
      pack_groups(width, BFLOAT16, side, source, lane_stride, depth_stride, lanes, depth, panel);                                \
    } else if (type == UINT8) {                                                                                                  \
      pack_groups(width, UINT8, side, source, lane_stride, depth_stride, lanes, depth, panel);                                   \
    } else {                                                                                                                     \
      pack_groups(width, INT8, side, source, lane_stride, depth_stride, lanes, depth, panel);                                    \
    }                                                                                                                            \
  }
