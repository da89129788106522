/* contexts_test.c: a pack in; whether several contexts of one process give the same bits out: the
   primary context of every device, and a second one on the first device. All launch before any of
   them waits. usage: contexts_test PACK. Exit 1: they differ, 77: there is one context alone. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device.h"
#include "runtime/manifest.h"
#include "runtime/pack.h"

enum { MOST = 9, TOKENS = 2048, SKIPPED = 77 };

struct place {
  struct pisa_device
      device; /* with |context| in place of the primary one, where there is another */
  char name[64];
  pisa_module *module;
  CUstream stream;
  void *q, *k, *v, *o, *workspace;
  size_t bytes;
};

static size_t size_of(const struct pisa_method *m, int64_t heads) {
  return (size_t)(heads * TOKENS * m->head_dim) * 2;
}

static void check(pisa_status status, const pisa_error *error) {
  if (status == PISA_OK)
    return;
  fprintf(stderr, "contexts_test: %s\n", error->message);
  exit(2);
}

/* bf16 and fp16 numbers of size 0.01 to 2, in no order. */
static void fill(uint16_t *out, size_t n, uint32_t seed) {
  for (size_t i = 0; i < n; i++) {
    seed = seed * 1664525U + 1013904223U;
    out[i] = (uint16_t)(0x3c00 + (seed >> 23) - ((seed >> 8 & 1) ? 0 : 0x8000));
  }
}

static void *upload(const struct place *p, size_t bytes, uint32_t seed) {
  pisa_error error;
  void *memory = NULL, *host = malloc(bytes);
  if (!host)
    exit(2);
  fill(host, bytes / 2, seed);
  check(pisa_device_alloc(&p->device, bytes, &memory, &error), &error);
  check(pisa_device_upload(&p->device, memory, host, bytes, &error), &error);
  free(host);
  return memory;
}

static pisa_tensor tensor(void *data, int64_t heads, int64_t d) {
  return (pisa_tensor){data, {heads * TOKENS * d, TOKENS * d, d, 1}};
}

static pisa_attention call_of(const struct place *p, const struct pisa_method *m) {
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = 1,
                          .heads = m->heads,
                          .kv_heads = m->kv_heads,
                          .n_q = TOKENS,
                          .n_k = TOKENS,
                          .q = tensor(p->q, m->heads, m->head_dim),
                          .k = tensor(p->k, m->kv_heads, m->head_dim),
                          .v = tensor(p->v, m->kv_heads, m->head_dim),
                          .o = tensor(p->o, m->heads, m->head_dim)};
}

static void enter(const struct place *p) {
  pisa_error error;
  check(pisa_cuda_check(p->device.cuda, p->device.cuda->cuCtxSetCurrent(p->device.context), &error,
                        "current context"),
        &error);
}

/* In the current context. */
static void prepare(struct place *p, const pisa_pack *pack, const struct pisa_method *m) {
  pisa_error error;
  check(pisa_module_load(pack, 0, 0, &p->module, &error), &error);
  check(pisa_stream_create(&p->device, &p->stream, &error), &error);
  p->q = upload(p, size_of(m, m->heads), 1);
  p->k = upload(p, size_of(m, m->kv_heads), 2);
  p->v = upload(p, size_of(m, m->kv_heads), 3);
  p->o = upload(p, size_of(m, m->heads), 4);
  const pisa_attention call = call_of(p, m);
  check(pisa_workspace_size(p->module, &call, &p->bytes, &error), &error);
  check(pisa_device_alloc(&p->device, p->bytes, &p->workspace, &error), &error);
}

/* The primary contexts of all devices. */
static int open_primary(struct place *places) {
  pisa_error error;
  int n = 0;
  check(pisa_device_open(0, &places[n].device, &error), &error);
  snprintf(places[n].name, sizeof places[n].name, "device 0");
  for (n = 1; n < MOST - 1 && !pisa_device_open(n, &places[n].device, &error); n++)
    snprintf(places[n].name, sizeof places[n].name, "device %d", n);
  return n;
}

/* A context of its own on the first device; false where the driver makes none. */
static bool open_second(const struct place *first, struct place *out) {
  CUresult (*create)(CUcontext *, unsigned, CUdevice) = NULL;
  const char *name = getenv("PISA_LIBCUDA");
  void *library = dlopen(name ? name : "libcuda.so.1", RTLD_NOW);
  void *address = library ? dlsym(library, "cuCtxCreate_v2") : NULL;
  memcpy(&create, &address, sizeof create);
  *out = *first;
  snprintf(out->name, sizeof out->name, "a second context of device 0");
  return create && create(&out->device.context, 0, first->device.id) == CUDA_SUCCESS;
}

static bool same(struct place *places, int n, const struct pisa_method *m) {
  size_t bytes = size_of(m, m->heads);
  char *first = malloc(bytes), *other = malloc(bytes);
  pisa_error error;
  bool all = first && other;
  for (int i = 0; i < n && all; i++) {
    enter(&places[i]);
    check(pisa_device_download(&places[i].device, i ? other : first, places[i].o, bytes, &error),
          &error);
    if (i && memcmp(first, other, bytes) != 0) {
      fprintf(stderr, "contexts_test: %s gives other bits than device 0\n", places[i].name);
      all = false;
    }
  }
  free(first);
  free(other);
  return all;
}

/* A module is for one context: with another one current a launch is refused. */
static bool refuses(const struct place *p, const struct place *elsewhere,
                    const struct pisa_method *m) {
  pisa_error error;
  const pisa_attention call = call_of(p, m);
  enter(elsewhere);
  return pisa_launch(p->module, &call, p->workspace, p->bytes, p->stream, &error) ==
             PISA_INVALID_ARGUMENT &&
         strstr(error.message, "context");
}

int main(int argc, char **argv) {
  static struct place places[MOST];
  pisa_error error;
  pisa_pack *pack = NULL;
  if (argc != 2) {
    fprintf(stderr, "usage: contexts_test PACK\n");
    return 1;
  }
  check(pisa_pack_open(argv[1], &pack, &error), &error);
  const struct pisa_method *m = &pack->manifest.variants[0].method;
  int devices = open_primary(places), n = devices;
  n += open_second(&places[0], &places[n]);
  for (int i = 0; i < n; i++) {
    enter(&places[i]);
    prepare(&places[i], pack, m);
  }
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < n; i++) {
      const pisa_attention call = call_of(&places[i], m);
      enter(&places[i]);
      check(pisa_launch(places[i].module, &call, places[i].workspace, places[i].bytes,
                        places[i].stream, &error),
            &error);
    }
  for (int i = 0; i < n; i++) {
    enter(&places[i]);
    check(pisa_stream_wait(&places[i].device, places[i].stream, &error), &error);
  }
  if (!same(places, n, m))
    return 1;
  if (n > 1 && !refuses(&places[0], &places[n - 1], m)) {
    fprintf(stderr, "contexts_test: a launch into another context is not refused\n");
    return 1;
  }
  printf("%s: %d devices, %d contexts%s\n", argv[1], devices, n,
         n > 1 ? ": the same bits" : ", nothing to compare");
  return n > 1 ? 0 : SKIPPED; /* what is open ends with the process */
}
