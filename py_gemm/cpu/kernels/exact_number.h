// Exact numbers as digits in linear memory, and their one rounding. Integer arithmetic on bits throughout; nothing is lost before
// encode.
//
//   carried digits    uint32 at `magnitude`: (-1)^negative * sum of digit[i] * 2^(radix * i + exponent), 0 <= digit < 2^radix
//   loose digits      int64, the same weights, any size and sign: what sums are collected in, so that carries wait
//
// fixed_add puts a product into loose digits of radix 32 with two additions. Let v be the product, s = position mod 32:
//   v * 2^s = (v >> (32 - s)) * 2^32 + (v * 2^s mod 2^32)   exactly, in two's complement, whatever the sign of v
// The lower part adds less than 2^32, the upper at most |v| / 2 to a digit, so 2^63 / |v| products fit before carry_in_place.
//
// encode: w has its highest bit set and its lowest bit is sticky (set if anything below was not zero), which is rounding to odd
// at 64 bits; 64 >= 53 + 2, so the rounding that follows is that of the exact value (Boldo and Melquiond, Emulation of FMA and
// correctly rounded sums: proved algorithms using rounding to odd, 2008). Below the normal range fewer bits stay, and it holds
// all the more.
#ifndef PY_GEMM_EXACT_NUMBER_H
#define PY_GEMM_EXACT_NUMBER_H

#include "element.h"

INLINE int64_t *loose(address where) { return (int64_t *)(uintptr_t)where; }
INLINE uint32_t *words(address where) { return (uint32_t *)(uintptr_t)where; }

INLINE void fixed_add(address digits, int64_t value, uint32_t position) {
  int64_t *digit = loose(digits + (position >> 5) * 8);
  const uint32_t shift = position & 31;
  digit[0] += (int64_t)(uint32_t)((uint64_t)value << shift);
  digit[1] += value >> (32 - shift);
}

// Leaves digits below 2^32 everywhere but in the last, which keeps the sign.
INLINE void carry_in_place(const uint32_t radix, address digits, uint32_t step, uint32_t count) {
  const int64_t mask = ((int64_t)1 << radix) - 1;
  int64_t carry = 0;
  for (uint32_t index = 0; index + 1 < count; index++) {
    int64_t *digit = loose(digits + index * step);
    const int64_t value = *digit + carry;
    *digit = value & mask;
    carry = value >> radix;
  }
  *loose(digits + (count - 1) * step) += carry;
}

// Loose digits, `step` bytes apart, and `extra` zeros above them -> carried digits. Returns the sign. The extra digits must have
// room for all carries.
INLINE uint32_t carry_out(const uint32_t radix, address digits, uint32_t step, uint32_t count, uint32_t extra,
                          address magnitude) {
  const int64_t mask = ((int64_t)1 << radix) - 1;
  int64_t carry = 0;
  for (uint32_t index = 0; index < count + extra; index++) {
    const int64_t value = (index < count ? *loose(digits + index * step) : 0) + carry;
    words(magnitude)[index] = (uint32_t)(value & mask);
    carry = value >> radix;
  }
  if (carry >= 0) return 0;
  int64_t one = 1;
  for (uint32_t index = 0; index < count + extra; index++) {
    const int64_t value = (mask ^ (int64_t)words(magnitude)[index]) + one;
    words(magnitude)[index] = (uint32_t)(value & mask);
    one = value >> radix;
  }
  return 1;
}

// How many of `count` carried digits are left when zeros at the top are dropped; 0 for the number zero.
INLINE uint32_t significant(address magnitude, uint32_t count) {
  while (count > 0 && words(magnitude)[count - 1] == 0) count--;
  return count;
}

typedef struct {
  uint64_t bits;    // highest bit set, lowest sticky
  int32_t exponent; // of the unit of `bits`
} Window;

// The upper 64 bits of a number of `count` > 0 significant digits.
INLINE Window window(const uint32_t radix, address magnitude, uint32_t count, int32_t exponent) {
  uint32_t index = count - 1;
  const uint64_t first = words(magnitude)[index];
  uint32_t filled = 64 - (uint32_t)__builtin_clzll(first);
  uint64_t bits = first << (64 - filled);
  uint32_t rest = 0;
  const int32_t unit = exponent + (int32_t)(radix * index + filled) - 64;
  while (filled < 64 && index > 0) {
    const uint64_t digit = words(magnitude)[--index];
    if (filled + radix <= 64) {
      bits |= digit << (64 - radix - filled);
    } else {
      const uint32_t over = filled + radix - 64;
      bits |= digit >> over;
      rest |= (uint32_t)digit << (32 - over);
    }
    filled += radix;
  }
  while (index > 0) rest |= words(magnitude)[--index];
  return (Window){bits | (rest != 0), unit};
}

// The bits, without sign, of w * 2^exponent rounded to nearest, ties to even, in a format of `precision` bits (the hidden one
// counted) whose smallest normal number is 2^lowest and whose infinity has the bits `infinity`.
INLINE uint64_t encode(const uint32_t precision, const int32_t lowest, const uint64_t infinity, Window number) {
  const int32_t leading = number.exponent + 63;
  if (leading > 1 - lowest) return infinity; // the largest exponent of every format here is 1 - lowest
  int32_t shift = 64 - (int32_t)precision;
  uint64_t field = 0;
  if (leading < lowest) {
    shift += lowest - leading;
    if (shift > 64) return 0;
    if (shift == 64) return number.bits > (uint64_t)1 << 63;
  } else {
    field = (uint64_t)(uint32_t)(leading - lowest) << (precision - 1);
  }
  uint64_t kept = number.bits >> shift;
  const uint64_t cut = number.bits << (64 - shift), half = (uint64_t)1 << 63;
  kept += cut > half || (cut == half && (kept & 1));
  const uint64_t result = field + kept; // the hidden bit and a carry count the exponent up by themselves
  return result < infinity ? result : infinity;
}

// ---- one element of a type that is known only at run time ----

INLINE double load_double(uint32_t type, address where) {
  switch (type) {
  case FLOAT16: return wasm_f64x2_extract_lane(load1_double(FLOAT16, where), 0);
  case BFLOAT16: return wasm_f64x2_extract_lane(load1_double(BFLOAT16, where), 0);
  case FLOAT64: return *(const double *)at(where);
  default: return (double)*(const float *)at(where);
  }
}

INLINE uint64_t bits_of(double value) { return (uint64_t)wasm_i64x2_extract_lane(wasm_f64x2_splat(value), 0); }
INLINE uint32_t is_finite(double value) { return (bits_of(value) >> 52 & 0x7ff) != 0x7ff; }
INLINE uint32_t is_negative(double value) { return (uint32_t)(bits_of(value) >> 63); }
INLINE uint32_t is_zero(double value) { return bits_of(value) << 1 == 0; }

typedef struct {
  uint64_t significand; // below 2^53; 0 only for zero
  int32_t exponent;     // of its unit: -1074 at least
  uint32_t negative;
} Parts;

// A finite double taken apart: (-1)^negative * significand * 2^exponent.
INLINE Parts parts_of(double value) {
  const uint64_t bits = bits_of(value);
  const uint32_t field = (uint32_t)(bits >> 52) & 0x7ff;
  const uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
  return (Parts){field ? fraction | (uint64_t)1 << 52 : fraction, (int32_t)(field ? field : 1) - 1075, (uint32_t)(bits >> 63)};
}

INLINE void store_number(uint32_t type, address where, uint32_t negative, Window number) {
  switch (type) {
  case FLOAT16: *(uint16_t *)to(where) = (uint16_t)(encode(11, -14, 0x7c00, number) | negative << 15); return;
  case BFLOAT16: *(uint16_t *)to(where) = (uint16_t)(encode(8, -126, 0x7f80, number) | negative << 15); return;
  case FLOAT64: *(uint64_t *)to(where) = encode(53, -1022, (uint64_t)0x7ff << 52, number) | (uint64_t)negative << 63; return;
  default: *(uint32_t *)to(where) = (uint32_t)(encode(24, -126, 0x7f800000, number) | (uint64_t)negative << 31);
  }
}

// Zero, infinity or NaN: values that every type has.
INLINE void store_special(uint32_t type, address where, double value) {
  const uint32_t negative = is_negative(value), number = is_zero(value) ? 0 : value == value ? 1 : 2;
  switch (type) {
  case FLOAT16:
    *(uint16_t *)to(where) = (uint16_t)((number == 0 ? 0 : number == 1 ? 0x7c00 : 0x7e00) | (number < 2 ? negative << 15 : 0));
    return;
  case BFLOAT16:
    *(uint16_t *)to(where) = (uint16_t)((number == 0 ? 0 : number == 1 ? 0x7f80 : 0x7fc0) | (number < 2 ? negative << 15 : 0));
    return;
  case FLOAT64:
    *(uint64_t *)to(where) = (number == 0   ? 0
                              : number == 1 ? (uint64_t)0x7ff << 52
                                            : (uint64_t)0xfff << 51) |
                             (number < 2 ? (uint64_t)negative << 63 : 0);
    return;
  default: *(uint32_t *)to(where) = (number == 0 ? 0 : number == 1 ? 0x7f800000 : 0x7fc00000) | (number < 2 ? negative << 31 : 0);
  }
}

#endif
