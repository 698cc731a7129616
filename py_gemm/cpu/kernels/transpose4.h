// Small transposes for accumulators of four lanes a vector (float32, int32): steps of depth that lie side by side in the operand
// become lanes side by side in the panel. The includer defines LOAD_VECTOR(type, address), which widens to the accumulator's type.

// 4 lanes x 4 steps of depth.
INLINE void transpose(const uint32_t type, address from, uint32_t lane_stride, address into, uint32_t step_bytes) {
  v128_t a = LOAD_VECTOR(type, from), b = LOAD_VECTOR(type, from + lane_stride);
  v128_t c = LOAD_VECTOR(type, from + 2 * lane_stride), d = LOAD_VECTOR(type, from + 3 * lane_stride);
  v128_t ab_low = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), ab_high = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
  v128_t cd_low = wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), cd_high = wasm_i32x4_shuffle(c, d, 2, 6, 3, 7);
  wasm_v128_store(to(into), wasm_i64x2_shuffle(ab_low, cd_low, 0, 2));
  wasm_v128_store(to(into + step_bytes), wasm_i64x2_shuffle(ab_low, cd_low, 1, 3));
  wasm_v128_store(to(into + 2 * step_bytes), wasm_i64x2_shuffle(ab_high, cd_high, 0, 2));
  wasm_v128_store(to(into + 3 * step_bytes), wasm_i64x2_shuffle(ab_high, cd_high, 1, 3));
}

// 2 lanes x 4 steps of depth.
INLINE void transpose_pair(const uint32_t type, address from, uint32_t lane_stride, address into, uint32_t step_bytes) {
  v128_t a = LOAD_VECTOR(type, from), b = LOAD_VECTOR(type, from + lane_stride);
  v128_t low = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), high = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
  wasm_v128_store64_lane(to(into), low, 0);
  wasm_v128_store64_lane(to(into + step_bytes), low, 1);
  wasm_v128_store64_lane(to(into + 2 * step_bytes), high, 0);
  wasm_v128_store64_lane(to(into + 3 * step_bytes), high, 1);
}
