// From the exact sum of an element to D: alpha * sum + beta * C + bias in exact arithmetic, rounded once to D's type, to nearest,
// ties to even. alpha and beta are the float64 numbers of the argument block, the bias is float32.
//
//   infinities and NaN   IEEE rules on the exact expression: terms a * b of which a factor is not finite are added as float64
//                        (finite ones cannot change an infinity), alpha, beta * C and the bias after them
//   zero                 -0 only where every term is a negative zero: the products times alpha's sign, beta * C, the bias
//   relu                 on the exact value; rounding keeps its sign, so relu and rounding may change places
//
// What is not a plain sum times a power of two is collected in `wide`: loose digits of radix 32, digit 0 of the weight 2^-3264.
//   alpha * sum    the lowest digits of both: 2^-1074 * 2^-2176 = 2^-3250; below 2^1024 * 2^(2048 + 31) = 2^3103
//   beta * C       units 2^-2148, below 2^2048
// Each digit receives a few terms below 2^60, so no carry is needed on the way. `wide` is all zero between elements.

enum { SCRATCH_WIDE = SCRATCH_FIXED, WIDE_DIGITS = 208, WIDE_LOWEST = -3264 };
enum { SCRATCH_SUM = SCRATCH_WIDE + WIDE_DIGITS * 8, SCRATCH_MAGNITUDE = SCRATCH_SUM + (DOUBLE_DIGITS + 3) * 8 };

typedef struct {
  uint32_t low, high; // digits [low, high) of `wide` have been touched
} Touched;

INLINE void wide_add(address wide, Touched *touched, int64_t value, int32_t exponent) {
  const uint32_t position = (uint32_t)(exponent - WIDE_LOWEST), digit = position >> 5;
  fixed_add(wide, value, position);
  if (digit < touched->low) touched->low = digit;
  if (digit + 2 > touched->high) touched->high = digit + 2;
}

INLINE void wide_add_product(address wide, Touched *touched, Parts x, Parts y) {
  const uint64_t low = ((uint64_t)1 << 27) - 1;
  const int64_t sign = x.negative == y.negative ? 1 : -1;
  const int64_t x_low = (int64_t)(x.significand & low) * sign, x_high = (int64_t)(x.significand >> 27) * sign;
  const int64_t y_low = (int64_t)(y.significand & low), y_high = (int64_t)(y.significand >> 27);
  const int32_t exponent = x.exponent + y.exponent;
  if ((x_low * y_low) != 0) wide_add(wide, touched, x_low * y_low, exponent);
  if ((x_low * y_high + x_high * y_low) != 0) wide_add(wide, touched, x_low * y_high + x_high * y_low, exponent + 27);
  if ((x_high * y_high) != 0) wide_add(wide, touched, x_high * y_high, exponent + 54);
}

// The sum of all terms of which a factor is not finite; 0 where there is none.
static __attribute__((noinline)) double sum_not_finite(const Arguments *arguments, address a, address b) {
  double sum = 0;
  for (uint32_t step = 0; step < arguments->k; step++) {
    const double x = load_double(arguments->type_a, a), y = load_double(arguments->type_b, b);
    if (!is_finite(x) || !is_finite(y)) sum += x * y;
    a += arguments->depth_a;
    b += arguments->depth_b;
  }
  return sum;
}

static __attribute__((noinline)) uint32_t products_are_negative_zeros(const Arguments *arguments, address a, address b) {
  const uint32_t sign = is_negative(arguments->alpha);
  for (uint32_t step = 0; step < arguments->k; step++) {
    const double x = load_double(arguments->type_a, a), y = load_double(arguments->type_b, b);
    if (!is_zero(x) && !is_zero(y)) return 0;
    if ((is_negative(x) ^ is_negative(y) ^ sign) == 0) return 0;
    a += arguments->depth_a;
    b += arguments->depth_b;
  }
  return 1;
}

INLINE void store_result(const Arguments *arguments, address d, const uint32_t radix, address magnitude, uint32_t count,
                         uint32_t negative, int32_t exponent) {
  if (negative && arguments->activation == RELU) {
    store_special(arguments->type_d, d, 0.0);
  } else {
    store_number(arguments->type_d, d, negative, window(radix, magnitude, count, exponent));
  }
}

// `count` significant digits at SCRATCH_MAGNITUDE: the sum of products. `special`: an operand of it is not finite. a, b: where
// its row and its column begin; c, d: its elements there; bias_place: where its bias lies.
static __attribute__((noinline)) void finish_element(const uint32_t radix, const Arguments *arguments, address scratch,
                                                     uint32_t count, uint32_t negative, int32_t exponent, uint32_t special,
                                                     address a, address b, address c, address d, address bias_place) {
  const address magnitude = scratch + SCRATCH_MAGNITUDE, wide = scratch + SCRATCH_WIDE;
  const double alpha = arguments->alpha, beta = arguments->beta;
  const uint32_t has_product = arguments->k != 0;
  const double x = arguments->reads_c ? load_double(arguments->type_c, c) : 0.0;
  const double bias = arguments->has_bias ? (double)*(const float *)at(bias_place) : 0.0;
  const uint32_t adds = arguments->reads_c || arguments->has_bias;

  double not_finite = 0;
  if (special) not_finite = alpha * sum_not_finite(arguments, a, b);
  if (has_product && is_zero(not_finite) && !is_finite(alpha)) not_finite = alpha * (count == 0 ? 0.0 : negative ? -1.0 : 1.0);
  if (arguments->reads_c && !(is_finite(x) && is_finite(beta))) not_finite += beta * x;
  if (!is_finite(bias)) not_finite += bias;
  if (!is_zero(not_finite)) {
    const uint32_t cut = not_finite < 0 && arguments->activation == RELU;
    store_special(arguments->type_d, d, cut ? 0.0 : not_finite);
    return;
  }

  const Parts factor = parts_of(alpha);
  if (!adds && count != 0 && (factor.significand & (factor.significand - 1)) == 0) {
    store_result(arguments, d, radix, magnitude, count, negative ^ factor.negative,
                 exponent + factor.exponent + __builtin_ctzll(factor.significand));
    return;
  }
  if (has_product || adds) {
    Touched touched = {WIDE_DIGITS, 0};
    const int64_t sign = negative == factor.negative ? 1 : -1;
    const int64_t low = (int64_t)(factor.significand & (((uint64_t)1 << 27) - 1)) * sign,
                  high = (int64_t)(factor.significand >> 27) * sign;
    for (uint32_t index = 0; index < count; index++) {
      const int64_t digit = words(magnitude)[index];
      if (digit == 0) continue;
      const int32_t unit = exponent + (int32_t)(radix * index) + factor.exponent;
      if (low != 0) wide_add(wide, &touched, digit * low, unit);
      if (high != 0) wide_add(wide, &touched, digit * high, unit + 27);
    }
    if (arguments->reads_c) wide_add_product(wide, &touched, parts_of(beta), parts_of(x));
    const Parts shift = parts_of(bias);
    if (shift.significand != 0)
      wide_add(wide, &touched, shift.negative ? -(int64_t)shift.significand : (int64_t)shift.significand, shift.exponent);
    if (touched.low < touched.high) {
      const address start = wide + touched.low * 8;
      const uint32_t used = touched.high - touched.low;
      const uint32_t below = carry_out(32, start, 8, used, 2, magnitude);
      for (uint32_t index = 0; index < used; index++) loose(start)[index] = 0;
      const uint32_t left = significant(magnitude, used + 2);
      if (left != 0) {
        store_result(arguments, d, 32, magnitude, left, below, WIDE_LOWEST + (int32_t)(32 * touched.low));
        return;
      }
    }
  }

  uint32_t minus = arguments->activation != RELU && (has_product || adds);
  if (minus && arguments->reads_c) minus = (is_zero(x) || is_zero(beta)) && (is_negative(x) ^ is_negative(beta));
  if (minus && arguments->has_bias) minus = is_zero(bias) && is_negative(bias);
  if (minus && has_product) minus = products_are_negative_zeros(arguments, a, b);
  store_special(arguments->type_d, d, minus ? -0.0 : 0.0);
}

// ---- the common end: a plain product of few digits ----

// Whether D is the sum of products times a power of two: neither C nor bias, and nothing that is not finite in alpha.
INLINE uint32_t is_plain(const Arguments *arguments) {
  const uint64_t significand = parts_of(arguments->alpha).significand;
  return !arguments->reads_c && !arguments->has_bias && is_finite(arguments->alpha) && (significand & (significand - 1)) == 0;
}

// The sum of up to 4 loose digits of radix 23, `step` bytes apart, in 128 bits (they reach 2^(3 * 23 + 52)): stored, unless it is
// zero.
INLINE uint32_t finish_plain(const Arguments *arguments, address digits, uint32_t step, uint32_t count, int32_t exponent,
                             address d) {
  uint64_t low = (uint64_t)*loose(digits);
  int64_t high = (int64_t)low >> 63;
  for (uint32_t index = 1; index < count; index++) {
    const int64_t digit = *loose(digits + index * step);
    const uint32_t shift = 23 * index;
    const uint64_t part = shift < 64 ? (uint64_t)digit << shift : 0;
    high += shift < 64 ? digit >> (64 - shift) : digit << (shift - 64);
    low += part;
    high += low < part;
  }
  if ((low | (uint64_t)high) == 0) return 0;
  const Parts alpha = parts_of(arguments->alpha);
  uint32_t negative = high < 0;
  if (negative) {
    low = -low;
    high = ~high + (low == 0);
  }
  const uint64_t upper = (uint64_t)high;
  const int32_t unit = exponent + alpha.exponent + __builtin_ctzll(alpha.significand);
  Window number;
  if (upper == 0) {
    const int32_t shift = __builtin_clzll(low);
    number = (Window){low << shift, unit - shift};
  } else {
    const int32_t shift = __builtin_clzll(upper); // at least 1
    const uint64_t rest = low << shift;
    number = (Window){upper << shift | low >> (64 - shift) | (rest != 0), unit + 64 - shift};
  }
  negative ^= alpha.negative;
  if (negative && arguments->activation == RELU) {
    store_special(arguments->type_d, d, 0.0);
  } else {
    store_number(arguments->type_d, d, negative, number);
  }
  return 1;
}
