// Small transposes for accumulators of four lanes a vector (float32, int32): steps of depth that lie side by side in the operand
// become lanes side by side in the panel. The includer defines LOAD_VECTOR(type, address), which widens to the accumulator's type.

// 4 lanes x 4 steps of depth.
INLINE void transpose(const uint32_t type, address from, uint32_t lane_stride, address into, uint32_t step_bytes) {
  const Columns steps = transpose_words(LOAD_VECTOR(type, from), LOAD_VECTOR(type, from + lane_stride),
                                        LOAD_VECTOR(type, from + 2 * lane_stride), LOAD_VECTOR(type, from + 3 * lane_stride));
  wasm_v128_store(to(into), steps.first);
  wasm_v128_store(to(into + step_bytes), steps.second);
  wasm_v128_store(to(into + 2 * step_bytes), steps.third);
  wasm_v128_store(to(into + 3 * step_bytes), steps.fourth);
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
