/* convert_test.c: every 16-bit pattern, and the floats halfway between neighbours. */
#include <math.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "tests/cpu/sample.h"

static void round_trip(pisa_type type) {
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    float value = cpu_widen(type, (uint16_t)bits);
    uint16_t back = cpu_narrow(type, value);
    if (isnan(value))
      CHECK(isnan(cpu_widen(type, back)) && (back & 0x8000) == (bits & 0x8000));
    else
      CHECK(back == bits);
  }
}

/* Between every two neighbours: the midpoint goes to the even one, the next float on either side to
   the nearer. The largest finite value's upper neighbour is inf; the midpoint below it is where
   overflow begins. */
static void midpoints(pisa_type type, uint16_t infinity, double above_largest) {
  for (int sign = 0; sign < 2; sign++)
    for (uint32_t bits = 0; bits < infinity; bits++) {
      uint16_t low = (uint16_t)(bits | (uint32_t)sign << 15), high = (uint16_t)(low + 1);
      double top = bits + 1 == infinity ? above_largest : fabs((double)cpu_widen(type, high));
      double middle = (fabs((double)cpu_widen(type, low)) + top) / 2;
      float half = (float)(sign ? -middle : middle), far = sign ? -INFINITY : INFINITY;
      CHECK(fabs((double)half) == middle);
      CHECK(cpu_narrow(type, half) == (low & 1 ? high : low));
      CHECK(cpu_narrow(type, nextafterf(half, 0)) == low);
      CHECK(cpu_narrow(type, nextafterf(half, far)) == high);
    }
}

/* A NaN whose payload lies only in the dropped bits must not become inf. */
static void small_payload(pisa_type type) {
  uint32_t bits = 0x7f800001;
  float value;
  memcpy(&value, &bits, sizeof value);
  CHECK(isnan(cpu_widen(type, cpu_narrow(type, value))));
}

int main(void) {
  round_trip(PISA_BF16);
  round_trip(PISA_FP16);
  midpoints(PISA_BF16, 0x7f80, 0x1p128);
  midpoints(PISA_FP16, 0x7c00, 0x1p16);
  small_payload(PISA_BF16);
  small_payload(PISA_FP16);
  CHECK(cpu_to_fp16(1e-30f) == 0 && cpu_to_fp16(-1e-30f) == 0x8000 && cpu_to_fp16(1e30f) == 0x7c00);
  CHECK(cpu_round(PISA_BF16, 1.00390625) == 1.0 && cpu_round(PISA_BF16, 1.01171875) == 1.015625);
  return 0;
}
