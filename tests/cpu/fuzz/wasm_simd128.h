// What the kernels use of wasm_simd128.h, in portable vector extensions, so that the sources compile for the machine of the fuzzer
// (fuzz.py). Written from the WebAssembly specification, not from the compiler's header: a second opinion on every instruction.
//
// The relaxed instructions take one of the meanings that the specification leaves open: relaxed_madd is fused; the dot product takes
// its second operand as the kernels that use it expect (B_IS_UNSIGNED, gemm_i8_dot.c and gemm_i8_sdot.c) and is exact. With
// OWN_INSTRUCTIONS it, and what the panels' heads are summed with, are the x86 instructions that an engine makes of them
// (scripts/bench_dot.py).
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef int32_t v128_t __attribute__((vector_size(16)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef int64_t i64x2 __attribute__((vector_size(16)));
typedef uint64_t u64x2 __attribute__((vector_size(16)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef double f64x2 __attribute__((vector_size(16)));

#define NATIVE static inline __attribute__((always_inline))

// ---- memory: any alignment ----

#define LOADED(type) (((const struct { type value; } __attribute__((packed, may_alias)) *)from)->value)
#define STORED(type) (((struct { type value; } __attribute__((packed, may_alias)) *)into)->value)

NATIVE v128_t wasm_v128_load(const void *from) { return LOADED(v128_t); }
NATIVE v128_t wasm_v128_load32_zero(const void *from) { return (v128_t){LOADED(int32_t)}; }
NATIVE v128_t wasm_v128_load64_zero(const void *from) { return (v128_t)(i64x2){LOADED(int64_t)}; }
NATIVE v128_t wasm_v128_load32_splat(const void *from) { return (v128_t){0} + LOADED(int32_t); }
NATIVE v128_t wasm_v128_load64_splat(const void *from) { return (v128_t)((i64x2){0} + LOADED(int64_t)); }

#define LOAD_LANE(name, type, element)                                  \
  NATIVE v128_t name(const void *from, v128_t vector, const int lane) { \
    type lanes = (type)vector;                                          \
    lanes[lane] = LOADED(element);                                      \
    return (v128_t)lanes;                                               \
  }
LOAD_LANE(wasm_v128_load8_lane, i8x16, int8_t)
LOAD_LANE(wasm_v128_load16_lane, i16x8, int16_t)

#define LOAD_WIDER(name, wide, narrow)                                            \
  NATIVE v128_t name(const void *from) {                                          \
    typedef narrow half __attribute__((vector_size(8)));                          \
    return (v128_t)__builtin_convertvector(LOADED(half), wide);                   \
  }
LOAD_WIDER(wasm_u32x4_load16x4, u32x4, uint16_t)
LOAD_WIDER(wasm_i16x8_load8x8, i16x8, int8_t)
LOAD_WIDER(wasm_u16x8_load8x8, u16x8, uint8_t)

NATIVE void wasm_v128_store(void *into, v128_t vector) { STORED(v128_t) = vector; }
NATIVE void wasm_v128_store16_lane(void *into, v128_t vector, const int lane) { STORED(int16_t) = ((i16x8)vector)[lane]; }
NATIVE void wasm_v128_store32_lane(void *into, v128_t vector, const int lane) { STORED(int32_t) = vector[lane]; }
NATIVE void wasm_v128_store64_lane(void *into, v128_t vector, const int lane) { STORED(int64_t) = ((i64x2)vector)[lane]; }

// ---- constants and lanes ----

#define SPLATS(name, type, element) \
  NATIVE v128_t name(element value) { return (v128_t)((type){0} + value); }
SPLATS(wasm_i32x4_splat, i32x4, int32_t)
SPLATS(wasm_i32x4_const_splat, i32x4, int32_t)
SPLATS(wasm_u32x4_splat, u32x4, uint32_t)
SPLATS(wasm_u32x4_const_splat, u32x4, uint32_t)
SPLATS(wasm_i16x8_const_splat, i16x8, int16_t)
SPLATS(wasm_u16x8_const_splat, u16x8, uint16_t)
SPLATS(wasm_i64x2_splat, i64x2, int64_t)
SPLATS(wasm_i64x2_const_splat, i64x2, int64_t)
NATIVE v128_t wasm_f32x4_splat(float value) { return (v128_t)(f32x4){value, value, value, value}; }
NATIVE v128_t wasm_f64x2_splat(double value) { return (v128_t)(f64x2){value, value}; }
#define wasm_f32x4_const_splat wasm_f32x4_splat
#define wasm_f64x2_const_splat wasm_f64x2_splat

NATIVE int32_t wasm_i32x4_extract_lane(v128_t vector, const int lane) { return vector[lane]; }
NATIVE int64_t wasm_i64x2_extract_lane(v128_t vector, const int lane) { return ((i64x2)vector)[lane]; }
NATIVE double wasm_f64x2_extract_lane(v128_t vector, const int lane) { return ((f64x2)vector)[lane]; }
NATIVE v128_t wasm_f64x2_replace_lane(v128_t vector, const int lane, double value) {
  f64x2 lanes = (f64x2)vector;
  lanes[lane] = value;
  return (v128_t)lanes;
}

#define wasm_i8x16_shuffle(a, b, ...) ((v128_t)__builtin_shufflevector((i8x16)(a), (i8x16)(b), __VA_ARGS__))
#define wasm_i16x8_shuffle(a, b, ...) ((v128_t)__builtin_shufflevector((i16x8)(a), (i16x8)(b), __VA_ARGS__))
#define wasm_i32x4_shuffle(a, b, ...) ((v128_t)__builtin_shufflevector((i32x4)(a), (i32x4)(b), __VA_ARGS__))
#define wasm_i64x2_shuffle(a, b, ...) ((v128_t)__builtin_shufflevector((i64x2)(a), (i64x2)(b), __VA_ARGS__))

// ---- lane by lane; integers wrap ----

#define BINARY(name, type, operation) \
  NATIVE v128_t name(v128_t a, v128_t b) { return (v128_t)((type)a operation(type) b); }
BINARY(wasm_v128_and, i32x4, &)
BINARY(wasm_v128_or, i32x4, |)
BINARY(wasm_v128_xor, i32x4, ^)
BINARY(wasm_i16x8_add, u16x8, +)
BINARY(wasm_i16x8_sub, u16x8, -)
BINARY(wasm_i32x4_add, u32x4, +)
BINARY(wasm_i32x4_sub, u32x4, -)
BINARY(wasm_i32x4_mul, u32x4, *)
BINARY(wasm_i64x2_add, u64x2, +)
BINARY(wasm_i32x4_eq, i32x4, ==)
BINARY(wasm_i32x4_gt, i32x4, >)
BINARY(wasm_i32x4_lt, i32x4, <)
BINARY(wasm_u16x8_gt, u16x8, >)
BINARY(wasm_f32x4_add, f32x4, +)
BINARY(wasm_f32x4_mul, f32x4, *)
BINARY(wasm_f32x4_div, f32x4, /)
BINARY(wasm_f32x4_gt, f32x4, >)
BINARY(wasm_f32x4_lt, f32x4, <)
BINARY(wasm_f32x4_eq, f32x4, ==)
BINARY(wasm_f64x2_add, f64x2, +)
BINARY(wasm_f64x2_sub, f64x2, -)
BINARY(wasm_f64x2_mul, f64x2, *)
BINARY(wasm_f64x2_div, f64x2, /)
BINARY(wasm_f64x2_gt, f64x2, >)
BINARY(wasm_f64x2_lt, f64x2, <)
BINARY(wasm_f64x2_ne, f64x2, !=)

NATIVE v128_t wasm_v128_andnot(v128_t a, v128_t b) { return a & ~b; }
NATIVE v128_t wasm_v128_bitselect(v128_t a, v128_t b, v128_t mask) { return (a & mask) | (b & ~mask); }
NATIVE int wasm_v128_any_true(v128_t a) { return (((i64x2)a)[0] | ((i64x2)a)[1]) != 0; }
NATIVE v128_t wasm_i32x4_neg(v128_t a) { return (v128_t)((u32x4){0} - (u32x4)a); }
NATIVE v128_t wasm_i32x4_shl(v128_t a, uint32_t bits) { return (v128_t)((u32x4)a << (bits & 31)); }
NATIVE v128_t wasm_i32x4_shr(v128_t a, uint32_t bits) { return (v128_t)((i32x4)a >> (int32_t)(bits & 31)); }
NATIVE v128_t wasm_u32x4_shr(v128_t a, uint32_t bits) { return (v128_t)((u32x4)a >> (bits & 31)); }
NATIVE v128_t wasm_i64x2_shl(v128_t a, uint32_t bits) { return (v128_t)((u64x2)a << (uint64_t)(bits & 63)); }
NATIVE v128_t wasm_u16x8_max(v128_t a, v128_t b) { return (v128_t)__builtin_elementwise_max((u16x8)a, (u16x8)b); }
NATIVE v128_t wasm_f64x2_abs(v128_t a) { return (v128_t)((i64x2)a & INT64_MAX); }

// A NaN of either operand is the result; -0 is less than +0. pmin and pmax: "b < a ? b : a" and "a < b ? b : a".
#define EACH(type, lanes, expression)                            \
  {                                                              \
    type x = (type)a, y = (type)b, z;                            \
    for (int i = 0; i < lanes; i++) z[i] = expression;           \
    return (v128_t)z;                                            \
  }
#define LEAST(p, q) (p != p ? p : q != q ? q : p < q ? p : q < p ? q : signbit(p) ? p : q)
#define GREATEST(p, q) (p != p ? p : q != q ? q : p > q ? p : q > p ? q : signbit(p) ? q : p)
NATIVE v128_t wasm_f32x4_min(v128_t a, v128_t b) EACH(f32x4, 4, LEAST(x[i], y[i]))
NATIVE v128_t wasm_f32x4_max(v128_t a, v128_t b) EACH(f32x4, 4, GREATEST(x[i], y[i]))
NATIVE v128_t wasm_f64x2_min(v128_t a, v128_t b) EACH(f64x2, 2, LEAST(x[i], y[i]))
NATIVE v128_t wasm_f64x2_max(v128_t a, v128_t b) EACH(f64x2, 2, GREATEST(x[i], y[i]))
NATIVE v128_t wasm_f64x2_pmin(v128_t a, v128_t b) EACH(f64x2, 2, y[i] < x[i] ? y[i] : x[i])
NATIVE v128_t wasm_f64x2_pmax(v128_t a, v128_t b) EACH(f64x2, 2, x[i] < y[i] ? y[i] : x[i])
NATIVE v128_t wasm_f64x2_nearest(v128_t a) {
  return (v128_t)(f64x2){nearbyint(((f64x2)a)[0]), nearbyint(((f64x2)a)[1])};
}

// ---- between types ----

#define WIDEN(name, wide, narrow, ...)                                                                           \
  NATIVE v128_t name(v128_t a) {                                                                                 \
    return (v128_t)__builtin_convertvector(__builtin_shufflevector((narrow)a, (narrow)a, __VA_ARGS__), wide);   \
  }
WIDEN(wasm_i16x8_extend_low_i8x16, i16x8, i8x16, 0, 1, 2, 3, 4, 5, 6, 7)
WIDEN(wasm_u16x8_extend_low_u8x16, u16x8, u8x16, 0, 1, 2, 3, 4, 5, 6, 7)
WIDEN(wasm_i16x8_extend_high_i8x16, i16x8, i8x16, 8, 9, 10, 11, 12, 13, 14, 15)
WIDEN(wasm_u16x8_extend_high_u8x16, u16x8, u8x16, 8, 9, 10, 11, 12, 13, 14, 15)
WIDEN(wasm_i32x4_extend_low_i16x8, i32x4, i16x8, 0, 1, 2, 3)
WIDEN(wasm_u32x4_extend_low_u16x8, u32x4, u16x8, 0, 1, 2, 3)
WIDEN(wasm_i32x4_extend_high_i16x8, i32x4, i16x8, 4, 5, 6, 7)
WIDEN(wasm_i64x2_extend_low_i32x4, i64x2, i32x4, 0, 1)
WIDEN(wasm_f64x2_convert_low_i32x4, f64x2, i32x4, 0, 1)
WIDEN(wasm_f64x2_promote_low_f32x4, f64x2, f32x4, 0, 1)

NATIVE v128_t wasm_f32x4_demote_f64x2_zero(v128_t a) {
  return (v128_t)(f32x4){(float)((f64x2)a)[0], (float)((f64x2)a)[1]};
}

NATIVE int32_t cut_to_int32(double value) {
  return value != value ? 0 : value <= -0x1p31 ? INT32_MIN : value >= 0x1p31 - 1 ? INT32_MAX : (int32_t)value;
}
NATIVE v128_t wasm_i32x4_trunc_sat_f64x2_zero(v128_t a) {
  return (v128_t){cut_to_int32(((f64x2)a)[0]), cut_to_int32(((f64x2)a)[1])};
}

#define NARROW(name, narrow, wide, lanes, lowest, highest)                             \
  NATIVE v128_t name(v128_t a, v128_t b) {                                             \
    narrow z;                                                                          \
    for (int i = 0; i < 2 * lanes; i++) {                                              \
      const int32_t value = i < lanes ? ((wide)a)[i] : ((wide)b)[i - lanes];           \
      z[i] = value < lowest ? lowest : value > highest ? highest : value;              \
    }                                                                                  \
    return (v128_t)z;                                                                  \
  }
NARROW(wasm_i8x16_narrow_i16x8, i8x16, i16x8, 8, -128, 127)
NARROW(wasm_u8x16_narrow_i16x8, u8x16, i16x8, 8, 0, 255)
NARROW(wasm_i16x8_narrow_i32x4, i16x8, i32x4, 4, -32768, 32767)

#define ADD_PAIRS(name, wide, narrow, lanes)                                                    \
  NATIVE v128_t name(v128_t a) {                                                                \
    wide z;                                                                                     \
    for (int i = 0; i < lanes; i++) z[i] = ((narrow)a)[2 * i] + ((narrow)a)[2 * i + 1];         \
    return (v128_t)z;                                                                           \
  }
#ifdef OWN_INSTRUCTIONS
#include <immintrin.h>
NATIVE v128_t wasm_i16x8_extadd_pairwise_i8x16(v128_t a) { return (v128_t)_mm_maddubs_epi16(_mm_set1_epi8(1), (__m128i)a); }
NATIVE v128_t wasm_u16x8_extadd_pairwise_u8x16(v128_t a) { return (v128_t)_mm_maddubs_epi16((__m128i)a, _mm_set1_epi8(1)); }
NATIVE v128_t wasm_i32x4_extadd_pairwise_i16x8(v128_t a) { return (v128_t)_mm_madd_epi16((__m128i)a, _mm_set1_epi16(1)); }
#else
ADD_PAIRS(wasm_i16x8_extadd_pairwise_i8x16, i16x8, i8x16, 8)
ADD_PAIRS(wasm_u16x8_extadd_pairwise_u8x16, u16x8, u8x16, 8)
ADD_PAIRS(wasm_i32x4_extadd_pairwise_i16x8, i32x4, i16x8, 4)
#endif

NATIVE v128_t wasm_i32x4_dot_i16x8(v128_t a, v128_t b) {
  u32x4 z;
  for (int i = 0; i < 4; i++) {
    z[i] = 0;
    for (int j = 2 * i; j < 2 * i + 2; j++) z[i] += (uint32_t)(((i16x8)a)[j] * ((i16x8)b)[j]);
  }
  return (v128_t)z;
}

// ---- relaxed ----

NATIVE v128_t wasm_f32x4_relaxed_madd(v128_t a, v128_t b, v128_t c) {
  return (v128_t)__builtin_elementwise_fma((f32x4)a, (f32x4)b, (f32x4)c);
}
NATIVE v128_t wasm_f64x2_relaxed_madd(v128_t a, v128_t b, v128_t c) {
  return (v128_t)__builtin_elementwise_fma((f64x2)a, (f64x2)b, (f64x2)c);
}

NATIVE v128_t exact_dot(const int b_is_unsigned, v128_t a, v128_t b, v128_t c) {
  u32x4 z = (u32x4)c;
  for (int i = 0; i < 16; i++) z[i / 4] += (uint32_t)(((i8x16)a)[i] * (b_is_unsigned ? ((u8x16)b)[i] : ((i8x16)b)[i]));
  return (v128_t)z;
}
#ifndef OWN_INSTRUCTIONS
#define wasm_i32x4_relaxed_dot_i8x16_i7x16_add(a, b, c) exact_dot(B_IS_UNSIGNED, a, b, c)
#elif defined(__AVXVNNI__)
#define wasm_i32x4_relaxed_dot_i8x16_i7x16_add(a, b, c) ((v128_t)_mm_dpbusd_avx_epi32((__m128i)(c), (__m128i)(b), (__m128i)(a)))
#else
#define wasm_i32x4_relaxed_dot_i8x16_i7x16_add(a, b, c) ((v128_t)_mm_dpbusd_epi32((__m128i)(c), (__m128i)(b), (__m128i)(a)))
#endif
