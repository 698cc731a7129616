/* Nothing but fused multiply-adds on twelve independent sums of four float32 lanes, as native code: what the 128-bit instructions of
 * this processor do on one core, free of any WebAssembly engine. py_gemm/report/benchmark/loop.py is the same in WebAssembly. */
typedef float lanes __attribute__((vector_size(16)));

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)

float loop(int steps, float x, float y) {
  lanes a = {x, x, x, x}, b = {y, y, y, y};
#define DECLARE(i) lanes c##i = a + (float)i;
  EACH(DECLARE)
  for (int step = 0; step < steps; ++step) {
#define ADD(i) c##i = __builtin_elementwise_fma(a, b, c##i);
    EACH(ADD)
  }
  lanes sum = {0, 0, 0, 0};
#define COLLECT(i) sum += c##i;
  EACH(COLLECT)
  return sum[0];
}
