// The fast way to the same exact sums: fixed-point digits held in float64, multiplied by the micro-kernels of the float64 family.
//
// A row of A is scaled by a power of two so that its elements are integers below 2^(23 D - 1), each cut into D balanced digits:
//   x = sum of digit[i] * 2^(23 i),   |digit[i]| <= 2^22
// (D depends on the data: how far apart the highest and the lowest set bit of the row lie.) The same for each column of B. Then
//   sum over k of x * y = sum over i, j of 2^(23 (i + j)) * (sum over k of digit_x[i] * digit_y[j])
// and a chain of at most 256 steps keeps the inner sum an integer of at most 256 * 2^44 = 2^52 < 2^53: float64 holds every
// partial sum exactly, in any order, fused or not. Chains are collected in int64 and carried every 128 chains, which leave them
// below 128 * 6 pairs * 2^52 < 2^62.
//
// The digits are exact: with w = x * 2^(-23 i), nearest(w) * 2^(23 i) is a multiple of a power of two and differs from x by at
// most 2^(23 i - 1), so the difference has no more bits than x had.

enum { DIGIT = 23, MOST_DIGITS = 6, CARRY_EVERY_CHAINS = 128 };

// What is known of one row of A or column of B.
typedef struct {
  int32_t lowest, highest; // all set bits lie in [2^lowest, 2^highest); equal where all elements are zero
  uint32_t special;        // an element is infinite or NaN
  uint32_t unused;
} Facts;

INLINE Facts *facts_at(address where) { return (Facts *)(uintptr_t)where; }

INLINE void scan_type(const uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride, uint32_t lanes,
                      uint32_t depth, address facts) {
  for (uint32_t lane = 0; lane < lanes; lane++) facts_at(facts)[lane] = (Facts){1 << 20, -(1 << 20), 0, 0};
  for (uint32_t step = 0; step < depth; step++) {
    address from = source + step * depth_stride;
    for (uint32_t lane = 0; lane < lanes; lane++) {
      const double value = wasm_f64x2_extract_lane(load1_double(type, from), 0);
      Facts *fact = &facts_at(facts)[lane];
      if (!is_finite(value)) {
        fact->special = 1;
      } else if (!is_zero(value)) {
        const Parts parts = parts_of(value);
        const int32_t low = parts.exponent + __builtin_ctzll(parts.significand),
                      high = parts.exponent + 64 - __builtin_clzll(parts.significand);
        if (low < fact->lowest) fact->lowest = low;
        if (high > fact->highest) fact->highest = high;
      }
      from += lane_stride;
    }
  }
}

static __attribute__((noinline)) void scan(uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride,
                                           uint32_t lanes, uint32_t depth, address facts) {
  switch (type) {
  case FLOAT16: scan_type(FLOAT16, source, lane_stride, depth_stride, lanes, depth, facts); return;
  case BFLOAT16: scan_type(BFLOAT16, source, lane_stride, depth_stride, lanes, depth, facts); return;
  case FLOAT64: scan_type(FLOAT64, source, lane_stride, depth_stride, lanes, depth, facts); return;
  default: scan_type(FLOAT32, source, lane_stride, depth_stride, lanes, depth, facts);
  }
}

// Digits that the widest of these lanes needs, at least 1. A lane of zeros gets a scale that means nothing.
static __attribute__((noinline)) uint32_t digits_needed(address facts, uint32_t lanes) {
  uint32_t most = 1;
  for (uint32_t lane = 0; lane < lanes; lane++) {
    Facts *fact = &facts_at(facts)[lane];
    if (fact->highest < fact->lowest) fact->highest = fact->lowest = 0;
    const uint32_t digits = ((uint32_t)(fact->highest - fact->lowest) + DIGIT) / DIGIT;
    if (digits > most) most = digits;
  }
  return most;
}

INLINE v128_t power_of_two(int32_t exponent) { return wasm_i64x2_splat((int64_t)(exponent + 1023) << 52); }

// Two values to their digits, by two steps; infinities and NaN to zero. `first` and `second` are the two halves of the scale: one
// factor could be past the range of float64. Neither rounds, for the value goes towards an integer. Leaves digit 0 in the result,
// and calls STORE(digit, vector) for the others.
#define SPLIT(value, first, second, digits, STORE)                                                            \
  {                                                                                                           \
    const v128_t finite = wasm_f64x2_lt(wasm_f64x2_abs(value), wasm_f64x2_splat(__builtin_inf()));            \
    value = wasm_f64x2_mul(wasm_f64x2_mul(wasm_v128_and(value, finite), first), second);                      \
    for (uint32_t digit = (digits) - 1; digit > 0; digit--) {                                                 \
      const v128_t high = wasm_f64x2_nearest(wasm_f64x2_mul(value, power_of_two(-(int32_t)(DIGIT * digit)))); \
      STORE(digit, high);                                                                                     \
      value = wasm_f64x2_sub(value, wasm_f64x2_mul(high, power_of_two((int32_t)(DIGIT * digit))));            \
    }                                                                                                         \
    STORE(0, value);                                                                                          \
  }

INLINE int32_t scale_of(address facts, uint32_t lane) { return -facts_at(facts)[lane].lowest; }

// One lane, its steps side by side or apart: two steps at a time, then one.
INLINE void pack_digits_lane(const uint32_t width, const uint32_t type, address from, uint32_t depth_stride, uint32_t depth,
                             uint32_t digits, uint32_t plane, int32_t scale, address into) {
  const v128_t first = power_of_two(scale / 2), second = power_of_two(scale - scale / 2);
  uint32_t step = 0;
  if (depth_stride == element_size(type)) {
    for (; step + 2 <= depth; step += 2) {
      v128_t value = load2_double(type, from);
#define STORE_STEPS(digit, vector)                               \
  wasm_v128_store64_lane(to(into + (digit) * plane), vector, 0); \
  wasm_v128_store64_lane(to(into + (digit) * plane + width * 8), vector, 1)
      SPLIT(value, first, second, digits, STORE_STEPS)
#undef STORE_STEPS
      from += 2 * depth_stride;
      into += 2 * width * 8;
    }
  }
  for (; step < depth; step++) {
    v128_t value = load1_double(type, from);
#define STORE_STEP(digit, vector) wasm_v128_store64_lane(to(into + (digit) * plane), vector, 0)
    SPLIT(value, first, second, digits, STORE_STEP)
#undef STORE_STEP
    from += depth_stride;
    into += width * 8;
  }
}

// Two lanes that lie side by side.
INLINE void pack_digits_pair(const uint32_t width, const uint32_t type, address from, uint32_t depth_stride, uint32_t depth,
                             uint32_t digits, uint32_t plane, int32_t left, int32_t right, address into) {
  const v128_t first = wasm_f64x2_replace_lane(power_of_two(left / 2), 1, wasm_f64x2_extract_lane(power_of_two(right / 2), 0));
  const v128_t second =
      wasm_f64x2_replace_lane(power_of_two(left - left / 2), 1, wasm_f64x2_extract_lane(power_of_two(right - right / 2), 0));
  for (uint32_t step = 0; step < depth; step++) {
    v128_t value = load2_double(type, from);
#define STORE_LANES(digit, vector) wasm_v128_store(to(into + (digit) * plane), vector)
    SPLIT(value, first, second, digits, STORE_LANES)
#undef STORE_LANES
    from += depth_stride;
    into += width * 8;
  }
}

// One panel: WIDTH lanes x depth steps, `digits` planes `plane` bytes apart. Lanes past the edge become zero.
INLINE void pack_digits_panel(const uint32_t width, const uint32_t type, address source, uint32_t lane_stride,
                              uint32_t depth_stride, uint32_t lanes, uint32_t depth, uint32_t digits, uint32_t plane,
                              address facts, address panel) {
  uint32_t lane = 0;
  if (lane_stride == element_size(type)) {
    for (; lane + 2 <= lanes; lane += 2) {
      pack_digits_pair(width, type, source + lane * lane_stride, depth_stride, depth, digits, plane, scale_of(facts, lane),
                       scale_of(facts, lane + 1), panel + lane * 8);
    }
  }
  for (; lane < lanes; lane++) {
    pack_digits_lane(width, type, source + lane * lane_stride, depth_stride, depth, digits, plane, scale_of(facts, lane),
                     panel + lane * 8);
  }
  for (; lane < width; lane++) {
    for (uint32_t digit = 0; digit < digits; digit++) {
      for (uint32_t step = 0; step < depth; step++) *(double *)to(panel + digit * plane + (step * width + lane) * 8) = 0;
    }
  }
}

INLINE void pack_digits(const uint32_t width, uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride,
                        uint32_t lanes, uint32_t depth, uint32_t digits, uint32_t plane, address facts, address panel) {
  for (uint32_t lane = 0; lane < lanes; lane += width) {
    const uint32_t valid = lanes - lane < width ? lanes - lane : width;
    const address from = source + lane * lane_stride, about = facts + lane * (uint32_t)sizeof(Facts);
    switch (type) {
    case FLOAT16:
      pack_digits_panel(width, FLOAT16, from, lane_stride, depth_stride, valid, depth, digits, plane, about, panel);
      break;
    case BFLOAT16:
      pack_digits_panel(width, BFLOAT16, from, lane_stride, depth_stride, valid, depth, digits, plane, about, panel);
      break;
    case FLOAT64:
      pack_digits_panel(width, FLOAT64, from, lane_stride, depth_stride, valid, depth, digits, plane, about, panel);
      break;
    default: pack_digits_panel(width, FLOAT32, from, lane_stride, depth_stride, valid, depth, digits, plane, about, panel);
    }
    panel += depth * width * 8;
  }
}

typedef void DigitPacker(uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride, uint32_t lanes,
                         uint32_t depth, uint32_t digits, uint32_t plane, address facts, address panel);

#define DIGIT_PACKER(width)                                                                                                  \
  static __attribute__((noinline)) void pack_digits_##width(uint32_t type, address source, uint32_t lane_stride,             \
                                                            uint32_t depth_stride, uint32_t lanes, uint32_t depth,           \
                                                            uint32_t digits, uint32_t plane, address facts, address panel) { \
    pack_digits(width, type, source, lane_stride, depth_stride, lanes, depth, digits, plane, facts, panel);                  \
  }

// totals += tile, integers in float64 to int64.
INLINE void collect_tile(const uint32_t elements, address tile, address totals) {
  for (uint32_t index = 0; index < elements; index++) {
    loose(totals)[index] += (int64_t)((const double *)at(tile))[index];
  }
}
