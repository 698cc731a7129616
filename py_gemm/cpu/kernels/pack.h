// Packing: copies lanes (rows of A, columns of B) x depth of an operand of any type and strides into panels of the
// accumulator's type, WIDTH lanes each. Never reads outside the operand; lanes past its edge become zero.
//
//   operand, WIDTH = 4, 6 lanes, depth 3          panels
//        lane 0 1 2 3 4 5                          0: a0 b0 c0 d0 | a1 b1 c1 d1 | a2 b2 c2 d2
//   depth 0   a b c d e f                          1: e0 f0  0  0 | e1 f1  0  0 | e2 f2  0  0
//
// Three ways by stride: neighbouring lanes (vector copies), neighbouring depth (small transposes), and element by element, which is
// the only one where a vector holds one element.
// The includer defines LANES, REAL_BYTES, LOAD_VECTOR(type, address), LOAD_ONE and STORE_ONE(address, vector), and transpose().

typedef struct {
  address source;
  uint32_t lane_stride, depth_stride; // bytes
  uint32_t lanes, depth;
} Slab;

INLINE void pack_elements(const uint32_t width, const uint32_t type, const Slab *slab, address source, uint32_t lanes,
                          uint32_t first, address panel) {
  for (uint32_t lane = 0; lane < width; lane++) {
    address from = source + lane * slab->lane_stride + first * slab->depth_stride;
    address into = panel + (first * width + lane) * REAL_BYTES;
    for (uint32_t step = first; step < slab->depth; step++) {
      STORE_ONE(into, lane < lanes ? LOAD_ONE(type, from) : wasm_i32x4_const_splat(0));
      from += slab->depth_stride;
      into += width * REAL_BYTES;
    }
  }
}

#ifdef __wasm_simd128__

// Lanes lie side by side. Eight steps of depth at a time, so that whole cache lines are read and written.
INLINE void pack_neighbouring_lanes(const uint32_t width, const uint32_t type, const Slab *slab, uint32_t panels, address panel) {
  const uint32_t stride = slab->depth * width * REAL_BYTES;
  const uint32_t step_bytes = width * element_size(type);
  for (uint32_t first = 0; first < slab->depth; first += 8) {
    const uint32_t last = first + 8 < slab->depth ? first + 8 : slab->depth;
    address from_first = slab->source + first * slab->depth_stride;
    address into_first = panel + first * width * REAL_BYTES;
    for (uint32_t index = 0; index < panels; index++) {
      address from = from_first, into = into_first;
      for (uint32_t step = first; step < last; step++) {
        uint32_t lane = 0;
        _Pragma("clang loop unroll(full)") for (; lane + LANES <= width; lane += LANES) {
          wasm_v128_store(to(into + lane * REAL_BYTES), LOAD_VECTOR(type, from + lane * element_size(type)));
        }
#if LANES == 4
        if (lane < width) STORE_PAIR(into + lane * REAL_BYTES, LOAD_PAIR(type, from + lane * element_size(type)));
#endif
        from += slab->depth_stride;
        into += width * REAL_BYTES;
      }
      from_first += step_bytes;
      into_first += stride;
    }
  }
}

// Steps of depth lie side by side: LANES x LANES transposes.
INLINE void pack_neighbouring_depth(const uint32_t width, const uint32_t type, const Slab *slab, address source, address panel) {
  const uint32_t whole = slab->depth - slab->depth % LANES;
  uint32_t lane = 0;
  _Pragma("clang loop unroll(full)") for (; lane + LANES <= width; lane += LANES) {
    address from = source + lane * slab->lane_stride;
    address into = panel + lane * REAL_BYTES;
    for (uint32_t step = 0; step < whole; step += LANES) {
      transpose(type, from, slab->lane_stride, into, width * REAL_BYTES);
      from += LANES * element_size(type);
      into += LANES * width * REAL_BYTES;
    }
  }
#if LANES == 4 // a width of 6 ends in half a vector
  if (lane < width) {
    address from = source + lane * slab->lane_stride;
    address into = panel + lane * REAL_BYTES;
    for (uint32_t step = 0; step < whole; step += LANES) {
      transpose_pair(type, from, slab->lane_stride, into, width * REAL_BYTES);
      from += LANES * element_size(type);
      into += LANES * width * REAL_BYTES;
    }
  }
#endif
  pack_elements(width, type, slab, source, width, whole, panel);
}

#endif

INLINE void pack_type(const uint32_t width, const uint32_t type, const Slab *slab, address panel) {
  address source = slab->source;
  uint32_t lanes = slab->lanes;
  const uint32_t stride = slab->depth * width * REAL_BYTES;
#ifdef __wasm_simd128__
  if (slab->lane_stride == element_size(type)) {
    const uint32_t panels = lanes / width;
    pack_neighbouring_lanes(width, type, slab, panels, panel);
    source += panels * width * slab->lane_stride;
    panel += panels * stride;
    lanes -= panels * width;
  } else if (slab->depth_stride == element_size(type)) {
    for (; lanes >= width; lanes -= width) {
      pack_neighbouring_depth(width, type, slab, source, panel);
      source += width * slab->lane_stride;
      panel += stride;
    }
  }
#endif
  for (;;) {
    if (lanes == 0) return;
    const uint32_t valid = lanes < width ? lanes : width;
    pack_elements(width, type, slab, source, valid, 0, panel);
    source += width * slab->lane_stride;
    panel += stride;
    lanes -= valid;
  }
}

#if PACKS_INTEGERS
INLINE void pack(const uint32_t width, uint32_t type, const Slab *slab, address panel) {
  if (type == UINT8) {
    pack_type(width, UINT8, slab, panel);
  } else {
    pack_type(width, INT8, slab, panel);
  }
}
#else
INLINE void pack(const uint32_t width, uint32_t type, const Slab *slab, address panel) {
  switch (type) {
  case FLOAT16: pack_type(width, FLOAT16, slab, panel); return;
  case BFLOAT16: pack_type(width, BFLOAT16, slab, panel); return;
#if PACKS_FLOAT64
  case FLOAT64: pack_type(width, FLOAT64, slab, panel); return;
#endif
  default: pack_type(width, FLOAT32, slab, panel);
  }
}
#endif
