/* run_pyramid.c: a call of phase decode on host arrays in; the means of its cached keys, which on a
   GPU a decoding step reads and does not make, out: by the CPU. */
#include <stdlib.h>

#include "runtime/size.h"
#include "runtime/tool/run.h"

enum { ALIGNMENT = 256 };

/* With one new key of one query of each head: pisa_cpu_run makes all means anew. */
static pisa_status fill(const struct run_call *c, void *pyramid, int32_t *blocks,
                        pisa_error *error) {
  pisa_attention call = c->call;
  call.o.data = NULL;
  call.lse = NULL;
  call.worth = NULL;
  call.blocks = blocks;
  call.n_q = 1;
  call.n_new = 1;
  call.pyramid = pyramid;
  return pisa_cpu_run(c->pack, c->variant, &call, NULL, error);
}

pisa_status run_make_pyramid(const struct run_call *c, void **out, size_t *bytes,
                             pisa_error *error) {
  pisa_status status = pisa_pyramid_size(c->pack, c->variant, &c->call, bytes, error);
  if (status)
    return status;
  *bytes = (size_t)pisa_ceil_div((int64_t)*bytes, ALIGNMENT) * ALIGNMENT;
  size_t entries = (size_t)(c->call.batch * c->call.kv_heads * c->method->keep);
  int32_t *blocks = malloc(entries * sizeof *blocks);
  *out = aligned_alloc(ALIGNMENT, *bytes);
  status = blocks && *out
               ? fill(c, *out, blocks, error)
               : pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the pyramid");
  free(blocks);
  return status;
}
