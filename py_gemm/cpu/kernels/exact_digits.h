// The fast way to the same exact sums: fixed-point digits held in float64, multiplied by the micro-kernels of the float64 family.
//
// A row of A is scaled by a power of two so that its elements are integers below 2^(23 D - 1), and each is cut into D balanced digits:
//   x = sum of digit[i] * 2^(23 i),   |digit[i]| <= 2^22
// (D depends on the data: how far apart the highest and the lowest set bit of the row lie.) The same for each column of B. Then
//   sum over k of x * y = sum over i, j of 2^(23 (i + j)) * (sum over k of digit_x[i] * digit_y[j])
// and a chain of at most 256 steps keeps the inner sum an integer of at most 256 * 2^44 = 2^52 < 2^53: float64 holds every partial sum
// exactly, in any order, fused or not. Chains are collected in int64, carried every 128 chains (128 * 6 pairs * 2^52 < 2^62).
//
// The digits are exact: with w = x * 2^(-23 i), nearest(w) * 2^(23 i) is a multiple of a power of two and differs from x by at most
// 2^(23 i - 1), so the difference has no more bits than x had.

enum { DIGIT = 23, MOST_DIGITS = 6, CARRY_EVERY_CHAINS = 128 };

// What is known of one row of A or column of B.
typedef struct {
  int32_t lowest, highest; // all set bits lie in [2^lowest, 2^highest); equal where all elements are zero
  uint32_t special;        // an element is infinite or NaN
  uint32_t unused;
} Facts;

INLINE Facts *facts_at(address where) { return (Facts *)(uintptr_t)where; }

INLINE void scan_type(const uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride, uint32_t lanes, uint32_t depth,
                      address facts) {
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
        const int32_t low = parts.exponent + __builtin_ctzll(parts.significand), high = parts.exponent + 64 - __builtin_clzll(parts.significand);
        if (low < fact->lowest) fact->lowest = low;
        if (high > fact->highest) fact->highest = high;
      }
      from += lane_stride;
    }
  }
}

static __attribute__((noinline)) void scan(uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride, uint32_t lanes,
                                           uint32_t depth, address facts) {
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

INLINE double power_of_two(int32_t exponent) {
  return wasm_f64x2_extract_lane(wasm_i64x2_splat((int64_t)(exponent + 1023) << 52), 0);
}

INLINE double nearest(double value) { return wasm_f64x2_extract_lane(wasm_f64x2_nearest(wasm_f64x2_splat(value)), 0); }

// One panel: WIDTH lanes x depth steps, `digits` planes `plane` bytes apart. Lanes past the edge become zero.
INLINE void pack_digits_panel(const uint32_t width, const uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride,
                              uint32_t lanes, uint32_t depth, uint32_t digits, uint32_t plane, address facts, address panel) {
  for (uint32_t lane = 0; lane < width; lane++) {
    address from = source + lane * lane_stride, into = panel + lane * 8;
    // Two factors: one alone could be past the range of float64. Neither step rounds: the value goes towards an integer.
    const int32_t scale = lane < lanes ? -facts_at(facts)[lane].lowest : 0;
    const double first = power_of_two(scale / 2), second = power_of_two(scale - scale / 2);
    for (uint32_t step = 0; step < depth; step++) {
      double value = 0;
      if (lane < lanes) {
        value = wasm_f64x2_extract_lane(load1_double(type, from), 0);
        value = is_finite(value) ? value * first * second : 0;
      }
      for (uint32_t digit = digits - 1; digit > 0; digit--) {
        const double high = nearest(value * power_of_two(-(int32_t)(DIGIT * digit)));
        *(double *)to(into + digit * plane) = high;
        value -= high * power_of_two((int32_t)(DIGIT * digit));
      }
      *(double *)to(into) = value;
      from += depth_stride;
      into += width * 8;
    }
  }
}

INLINE void pack_digits(const uint32_t width, uint32_t type, address source, uint32_t lane_stride, uint32_t depth_stride, uint32_t lanes,
                        uint32_t depth, uint32_t digits, uint32_t plane, address facts, address panel) {
  for (uint32_t lane = 0; lane < lanes; lane += width) {
    const uint32_t valid = lanes - lane < width ? lanes - lane : width;
    const address from = source + lane * lane_stride, about = facts + lane * (uint32_t)sizeof(Facts);
    switch (type) {
    case FLOAT16: pack_digits_panel(width, FLOAT16, from, lane_stride, depth_stride, valid, depth, digits, plane, about, panel); break;
    case BFLOAT16: pack_digits_panel(width, BFLOAT16, from, lane_stride, depth_stride, valid, depth, digits, plane, about, panel); break;
    case FLOAT64: pack_digits_panel(width, FLOAT64, from, lane_stride, depth_stride, valid, depth, digits, plane, about, panel); break;
    default: pack_digits_panel(width, FLOAT32, from, lane_stride, depth_stride, valid, depth, digits, plane, about, panel);
    }
    panel += depth * width * 8;
  }
}

// totals += tile, integers in float64 to int64.
INLINE void collect_tile(const uint32_t elements, address tile, address totals) {
  for (uint32_t index = 0; index < elements; index++) {
    loose(totals)[index] += (int64_t)((const double *)at(tile))[index];
  }
}
