/* app: attention on the CPU from a pack. usage: app PACK [TOKENS] */
#include <pisa.h>
#include <stdio.h>
#include <stdlib.h>

/* bfloat16 noise in [-1, 1). */
static void fill(uint16_t *data, size_t n, uint32_t seed) {
  for (size_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    float x = (float)(seed >> 8) / 8388608.0f - 1.0f;
    union {
      float real;
      uint32_t bits;
    } u = {x};
    data[i] = (uint16_t)(u.bits >> 16);
  }
}

/* [1, heads, n, d], contiguous. */
static pisa_tensor tensor(void *data, int64_t heads, int64_t n, int64_t d) {
  return (pisa_tensor){data, {heads * n * d, n * d, d, 1}};
}

int main(int argc, char **argv) {
  pisa_error error;
  pisa_pack *pack;
  pisa_pack_info info;
  if (argc < 2) {
    fprintf(stderr, "usage: app PACK [TOKENS]\n");
    return 1;
  }
  if (pisa_pack_open(argv[1], &pack, &error) || pisa_pack_get_info(pack, &info, &error)) {
    fprintf(stderr, "app: %s\n", error.message);
    return 1;
  }
  int64_t n = argc > 2 ? atoi(argv[2]) : 512, h = info.heads, hk = info.kv_heads, d = info.head_dim;
  size_t q_size = (size_t)(h * n * d), k_size = (size_t)(hk * n * d);
  uint16_t *q = malloc(q_size * 2), *k = malloc(k_size * 2), *v = malloc(k_size * 2),
           *o = malloc(q_size * 2);
  if (!q || !k || !v || !o)
    return 1;
  fill(q, q_size, 1);
  fill(k, k_size, 2);
  fill(v, k_size, 3);
  pisa_attention call = {.struct_size = sizeof call,
                         .batch = 1,
                         .heads = h,
                         .kv_heads = hk,
                         .n_q = n,
                         .n_k = n,
                         .q = tensor(q, h, n, d),
                         .k = tensor(k, hk, n, d),
                         .v = tensor(v, hk, n, d),
                         .o = tensor(o, h, n, d)};
  pisa_status status = pisa_cpu_run(pack, 0, &call, NULL, &error);
  if (status)
    fprintf(stderr, "app: %s: %s\n", pisa_status_name(status), error.message);
  else
    printf("%s: o[0] = %#06x, %lld tokens, pisa %s\n", info.name, o[0], (long long)n,
           pisa_version());
  free(q);
  free(k);
  free(v);
  free(o);
  pisa_pack_close(pack);
  return status != PISA_OK;
}
