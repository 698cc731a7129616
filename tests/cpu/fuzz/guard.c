// The kernels of the fuzzer are compiled with the address sanitizer, whose checks come here instead of to its own runtime: the fuzzer
// knows better than a heap which bytes a call may touch. Addresses past 4 GiB are the machine's own stack; below lies the arena.
//
// allow(): one more range that may be read, or written too. broken(): the first access outside all of them, until forget().

#include <stdint.h>
#include <string.h>

typedef struct {
  uint64_t begin, end;
  int writes;
} Range;

static Range ranges[16];
static int count;
static uint64_t broken_at, broken_bytes, broken_is_write, accesses;

void forget(void) { count = 0, broken_bytes = 0, accesses = 0; }
void allow(uint64_t begin, uint64_t bytes, int writes) { ranges[count++] = (Range){begin, begin + bytes, writes}; }
int broken(uint64_t *what) {
  what[0] = broken_at, what[1] = broken_bytes, what[2] = broken_is_write, what[3] = accesses;
  return broken_bytes != 0;
}

static void check(uint64_t at, uint64_t bytes, int is_write) {
  if (at >> 32) return;
  accesses++;
  for (int i = 0; i < count; i++) {
    if (at >= ranges[i].begin && at + bytes <= ranges[i].end && (!is_write || ranges[i].writes)) return;
  }
  if (!broken_bytes) broken_at = at, broken_bytes = bytes, broken_is_write = is_write;
}

#define CHECKS(bytes)                                                  \
  void __asan_load##bytes(uint64_t at) { check(at, bytes, 0); }        \
  void __asan_store##bytes(uint64_t at) { check(at, bytes, 1); }
CHECKS(1)
CHECKS(2)
CHECKS(4)
CHECKS(8)
CHECKS(16)
void __asan_loadN(uint64_t at, uint64_t bytes) { check(at, bytes, 0); }
void __asan_storeN(uint64_t at, uint64_t bytes) { check(at, bytes, 1); }

void *__asan_memset(void *into, int value, uint64_t bytes) {
  check((uint64_t)into, bytes, 1);
  return memset(into, value, bytes);
}
void *__asan_memcpy(void *into, const void *from, uint64_t bytes) {
  check((uint64_t)from, bytes, 0);
  check((uint64_t)into, bytes, 1);
  return memcpy(into, from, bytes);
}
void *__asan_memmove(void *into, const void *from, uint64_t bytes) {
  check((uint64_t)from, bytes, 0);
  check((uint64_t)into, bytes, 1);
  return memmove(into, from, bytes);
}

void __asan_init(void) {}
void __asan_version_mismatch_check_v8(void) {}
void __asan_handle_no_return(void) {}
