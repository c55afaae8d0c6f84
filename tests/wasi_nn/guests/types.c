/* Every type of tensor, in and out; one that the model has another type for, where each value stays what it is; and outputs in order. */
#include "wasi_nn.h"

static uint32_t context;

static void set(uint32_t index, uint8_t type, const void *data, uint32_t size) {
  uint32_t dims = 2;
  nn_tensor tensor = {&dims, 1, type, data, size};
  OK(nn_set_input(context, index, &tensor));
}

static void get(uint32_t index, void *out, uint32_t size) {
  uint32_t written;
  OK(nn_get_output(context, index, out, size, &written));
  if (written != size) {
    printf("output %u has %u bytes\n", (unsigned)index, (unsigned)written);
    exit(1);
  }
}

int main(void) {
  context = context_of(named("types"));
  uint16_t f16[2] = {0x3e00, 0xc000}; /* 1.5, -2 */
  float f32[2] = {0.1f, -3e38f};
  double f64[2] = {0.1, -1e300}, exact[2] = {0.5, -1024};
  uint8_t u8[2] = {0, 200};
  int32_t i32[2] = {-5, 2000000000};
  int64_t i64[2] = {-5, 9007199254740993LL};
  set(0, F16, f16, sizeof f16);
  set(1, F32, f32, sizeof f32);
  set(2, U8, u8, sizeof u8);
  set(3, I32, i32, sizeof i32);
  set(4, I64, i64, sizeof i64);
  OK(nn_compute(context));
  get(0, f16, sizeof f16);
  get(1, f32, sizeof f32);
  get(2, u8, sizeof u8);
  get(3, i32, sizeof i32);
  get(4, i64, sizeof i64);
  printf("%04x %04x, %.9g %.9g, %u %u, %d %d, %lld %lld\n", f16[0], f16[1], f32[0], f32[1], u8[0], u8[1], (int)i32[0],
         (int)i32[1], (long long)i64[0], (long long)i64[1]);
  set(0, F64, exact, sizeof exact);
  set(1, F64, exact, sizeof exact);
  int32_t small[2] = {7, 8};
  set(1, I32, small, sizeof small);
  set(4, I32, small, sizeof small);
  OK(nn_compute(context));
  get(1, f32, sizeof f32);
  get(4, i64, sizeof i64);
  get(0, f16, sizeof f16);
  printf("%.9g %.9g, %lld %lld, %04x %04x\n", f32[0], f32[1], (long long)i64[0], (long long)i64[1], f16[0], f16[1]);
  uint32_t dims = 2;
  nn_tensor inexact = {&dims, 1, F64, f64, sizeof f64};
  printf("inexact: %u\n", (unsigned)nn_set_input(context, 1, &inexact));
  return 0;
}
