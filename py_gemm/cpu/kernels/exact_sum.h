// The superaccumulator: one element's products added one by one into loose digits of radix 32 that span every product of two
// finite elements. Integers only. Slow (3 to 10 ns a product), and right whatever the spread of exponents.
//
//   operands up to float32    24 x 24 bits, units 2^-298 .. 2^208      digits 0 .. 18, digit 0 has the weight 2^-304
//   an operand float64        53 x 53 bits, units 2^-2148 .. 2^1942    digits 0 .. 132, digit 0 has the weight 2^-2176
// Above the largest product there is room for 2^31 of them and a sign. A product of float16 has the unit 2^-48 = 2^(8 * 32 - 304),
// so their sums are digits 8 .. 11 alone. Infinities and NaN count as zero here; exact_finish.h looks after them.

enum { SINGLE_DIGITS = 19, SINGLE_LOWEST = -304, DOUBLE_DIGITS = 133, DOUBLE_LOWEST = -2176 };
enum { SINGLE_CARRY_EVERY = 1 << 14, DOUBLE_CARRY_EVERY = 64 };

INLINE uint32_t load_float_bits(uint32_t type, address where) {
  switch (type) {
  case FLOAT16: return (uint32_t)wasm_i32x4_extract_lane(load1(FLOAT16, where), 0);
  case BFLOAT16: return (uint32_t)*(const uint16_t *)at(where) << 16;
  default: return *(const uint32_t *)at(where);
  }
}

// float32 bits: sign and significand as an integer; `*position` gets the biased exponent of its unit.
INLINE int32_t signed_significand(uint32_t bits, uint32_t *position) {
  const uint32_t field = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
  *position = field ? field : 1;
  const int32_t value = field == 0xff ? 0 : (int32_t)(field ? fraction | 0x800000 : fraction);
  return (int32_t)bits < 0 ? -value : value;
}

INLINE void add_products_single(const uint32_t type_a, const uint32_t type_b, const Arguments *arguments, address a, address b,
                                address digits) {
  uint32_t until_carry = SINGLE_CARRY_EVERY;
  for (uint32_t step = 0; step < arguments->k; step++) {
    uint32_t at_a, at_b;
    const int64_t left = signed_significand(load_float_bits(type_a, a), &at_a);
    const int64_t right = signed_significand(load_float_bits(type_b, b), &at_b);
    // Units: 2^(at - 150) each; digit 0 begins at 2^-304.
    fixed_add(digits, left * right, at_a + at_b + 4);
    a += arguments->depth_a;
    b += arguments->depth_b;
    if (--until_carry == 0) {
      carry_in_place(32, digits, 8, SINGLE_DIGITS);
      until_carry = SINGLE_CARRY_EVERY;
    }
  }
}

INLINE void add_products_double(const uint32_t type_a, const uint32_t type_b, const Arguments *arguments, address a, address b,
                                address digits) {
  uint32_t until_carry = DOUBLE_CARRY_EVERY;
  const uint64_t low = ((uint64_t)1 << 27) - 1;
  for (uint32_t step = 0; step < arguments->k; step++) {
    const double x = load_double(type_a, a), y = load_double(type_b, b);
    if (is_finite(x) && is_finite(y)) {
      const Parts left = parts_of(x), right = parts_of(y);
      const int64_t sign = left.negative == right.negative ? 1 : -1;
      const int64_t left_low = (int64_t)(left.significand & low) * sign, left_high = (int64_t)(left.significand >> 27) * sign;
      const int64_t right_low = (int64_t)(right.significand & low), right_high = (int64_t)(right.significand >> 27);
      const uint32_t position = (uint32_t)(left.exponent + right.exponent - DOUBLE_LOWEST);
      fixed_add(digits, left_low * right_low, position);
      fixed_add(digits, left_low * right_high + left_high * right_low, position + 27);
      fixed_add(digits, left_high * right_high, position + 54);
    }
    a += arguments->depth_a;
    b += arguments->depth_b;
    if (--until_carry == 0) {
      carry_in_place(32, digits, 8, DOUBLE_DIGITS);
      until_carry = DOUBLE_CARRY_EVERY;
    }
  }
}

INLINE uint32_t has_double(const Arguments *arguments) { return arguments->type_a == FLOAT64 || arguments->type_b == FLOAT64; }
INLINE uint32_t sum_digits(const Arguments *arguments) { return has_double(arguments) ? DOUBLE_DIGITS : SINGLE_DIGITS; }

// The sum of one element into `digits`, carried but for the last digit, which keeps the sign. `a`: its row, `b`: its column.
static __attribute__((noinline)) void sum_products(const Arguments *arguments, address a, address b, address digits) {
  const uint32_t count = sum_digits(arguments);
  for (uint32_t index = 0; index < count; index++) loose(digits)[index] = 0;
  const uint32_t type = arguments->type_a == arguments->type_b ? arguments->type_a : ~0u;
  if (type == FLOAT32) {
    add_products_single(FLOAT32, FLOAT32, arguments, a, b, digits);
  } else if (type == FLOAT16) {
    add_products_single(FLOAT16, FLOAT16, arguments, a, b, digits);
  } else if (type == BFLOAT16) {
    add_products_single(BFLOAT16, BFLOAT16, arguments, a, b, digits);
  } else if (type == FLOAT64) {
    add_products_double(FLOAT64, FLOAT64, arguments, a, b, digits);
  } else if (has_double(arguments)) {
    add_products_double(arguments->type_a, arguments->type_b, arguments, a, b, digits);
  } else {
    add_products_single(arguments->type_a, arguments->type_b, arguments, a, b, digits);
  }
  carry_in_place(32, digits, 8, count);
}
