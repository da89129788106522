/* sample_pack.h: small packs as docs/ABI.md describes them, for tests that need no compiler. */
#ifndef PISA_TESTS_RUNTIME_SAMPLE_PACK_H
#define PISA_TESTS_RUNTIME_SAMPLE_PACK_H

#include <stdbool.h>
#include <stddef.h>

struct sample_spec {  /* what goes into the manifest; NULL and 0 take the defaults in brackets */
  const char *shape;  /* ["heads=4 kv_heads=4 head_dim=128 type=bf16 mask=none"] */
  const char *blocks; /* ["query=128 key=64 lists=separate"] */
  const char *route;  /* ["top_k score=mean term=log_covariance budget=density density=125/1000
                         keep=0  threshold=0/1 variance=diagonal"] */
  const char *always; /* whole lines, "always first=256\n" [""] */
  const char *attend; /* ["selected=exact rest=taylor_hybrid mass=zeroth_order"] */
  const char *below;  /* a whole line, "below tokens=2048 use=dense\n" [""] */
  const char *target; /* ["sm_90a"] */
  const char *code;   /* text at the end of both images [""] */
  bool dense;         /* route none, all exact, two kernels; causal: one */
  const char *pages;  /* dense: a whole line, "pages size=16\n" [""] */
  bool no_cubin;
  /* method pyramid, where |pyramid| is set: */
  const char *pyramid; /* "leaf=64 group=2 page=0" */
  const char *select;  /* route ["pyramid score=lse reduce=sum keep=8 start=0 leaf_stage=clustered
                          query_tile=4"]; shape, always and below as above, but always ["always
                          first=1\nalways previous\nalways current\n"] and mask [causal] */
  const char *phases;  /* ["prefill decode"]; dense: also there [no line: prefill] */
};

struct sample {
  char *bytes;
  size_t size;
  size_t manifest_at, manifest_size; /* where the manifest lies within |bytes| */
};

/* A pack with two variants that share their code: density=0.125 (variant 0) and density=0.25, or
   one variant without choices when dense or of method pyramid. Free with sample_free. */
void sample_make(const struct sample_spec *spec, struct sample *out);
void sample_free(struct sample *sample);

/* |from| with the first |before| in the manifest replaced by |after| and the header signed anew, so
   that the reader gets as far as the manifest's content. Exits when |before| is not there. */
void sample_edit(const struct sample *from, const char *before, const char *after,
                 struct sample *out);

/* A pack of this manifest and these parts, with a right header. */
void sample_sign(const char *manifest, size_t manifest_size, const char *parts, size_t parts_size,
                 struct sample *out);

#endif
