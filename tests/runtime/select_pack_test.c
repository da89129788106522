/* select_pack_test.c: manifests of method pyramid. Every field is read, variants replace lines, and
   what breaks a rule of docs/ABI.md is refused by name. */
#include <stdio.h>
#include <string.h>

#include "runtime/pack.h"
#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

#define SIZES "leaf=64 group=2 page=0"

static pisa_error error;

static pisa_pack *read(const struct sample_spec *spec) {
  struct sample sample;
  pisa_pack *pack = NULL;
  sample_make(spec, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  sample_free(&sample);
  return pack;
}

static void check_fields(void) {
  pisa_pack *pack = read(&(struct sample_spec){.pyramid = SIZES});
  const struct pisa_method *m = &pack->manifest.variants[0].method;
  CHECK(m->family == PISA_PYRAMID && m->mask == PISA_MASK_CAUSAL && !m->dense);
  CHECK(m->query == 1 && m->key == 64 && m->group == 2 && m->page == 0 && m->keep == 8);
  CHECK(m->score == PISA_SCORE_LSE && m->reduce == PISA_REDUCE_SUM && m->start_nodes == 0);
  CHECK(!m->flat && !m->fused && m->query_tile == 4 && m->flat_below == 0);
  CHECK(m->n_always == 1 && m->always[0].kind == PISA_ALWAYS_FIRST && m->always[0].end == 1);
  CHECK(m->always_previous && m->always_current && !m->has_window);
  CHECK(m->budget == PISA_BUDGET_KEEP && m->tail == PISA_TAIL_DROP && m->prefill && m->decode);
  CHECK(pack->manifest.variants[0].kernels[PISA_KERNEL_LEAF_SCORE].smem_bytes == 132000);
  pisa_pack_close(pack);
}

static void check_words(void) {
  pisa_pack *pack = read(&(struct sample_spec){
      .shape = "heads=8 kv_heads=8 head_dim=128 type=fp16 mask=none",
      .pyramid = "leaf=128 group=8 page=16",
      .select = "flat score=half_variance reduce=max_mass keep=64 start=0 leaf_stage=fused "
                "query_tile=64",
      .always = "always last=100\nalways range=128..300\nalways current\n",
      .phases = "decode"});
  const struct pisa_method *m = &pack->manifest.variants[0].method;
  CHECK(m->type == PISA_FP16 && m->mask == PISA_MASK_NONE && m->key == 128 && m->group == 8);
  CHECK(m->page == 16 && m->keep == 64 && m->flat && m->fused);
  CHECK(m->score == PISA_SCORE_HALF_VARIANCE && m->reduce == PISA_REDUCE_MAX_MASS);
  CHECK(m->n_always == 2 && !m->always_previous && m->always_current);
  CHECK(!m->prefill && m->decode);
  pisa_pack_close(pack);
  pack = read(&(struct sample_spec){.pyramid = SIZES,
                                    .select = "pyramid score=mean reduce=lse keep=3 start=128 "
                                              "leaf_stage=fused query_tile=1",
                                    .below = "below tokens=131072 use=flat\n",
                                    .phases = "prefill"});
  m = &pack->manifest.variants[0].method;
  CHECK(m->flat_below == 131072 && m->start_nodes == 128 && m->fused && !m->flat);
  CHECK(m->score == PISA_SCORE_MEAN && m->reduce == PISA_REDUCE_LSE && m->prefill && !m->decode);
  pisa_pack_close(pack);
}

/* A variant's lines replace those above; 'always none' leaves nothing, also not 'current'. */
static void check_variant(void) {
  struct sample sample, edited;
  pisa_pack *pack = NULL;
  sample_make(&(struct sample_spec){.pyramid = SIZES}, &sample);
  sample_edit(&sample, "variant 0\n",
              "variant 0\nshape heads=32 kv_heads=2 head_dim=64 type=fp16 mask=causal\n"
              "pyramid leaf=32 group=4 page=0\nroute pyramid score=lse reduce=mass "
              "keep=1 start=0 leaf_stage=clustered query_tile=2 decode_start=128\nalways none\n",
              &edited);
  CHECK_OK(pisa_pack_read(edited.bytes, edited.size, &pack, &error), error);
  const struct pisa_method *m = &pack->manifest.variants[0].method;
  CHECK(m->key == 32 && m->group == 4 && m->keep == 1 && m->reduce == PISA_REDUCE_MASS);
  CHECK(m->type == PISA_FP16 && m->start_nodes == 0 && m->decode_start_nodes == 128);
  CHECK(m->n_always == 0 && !m->always_previous && !m->always_current && m->query == 1);
  pisa_pack_close(pack);
  sample_free(&edited);
  sample_free(&sample);
}

static const struct {
  const char *before, *after, *words;
} edits[] = {
    {"pyramid leaf", "blocks leaf", "found 'blocks' where 'pyramid' is expected"},
    {"leaf=64", "leaf=48", "leaf is 48, must be a power of two"},
    {"leaf=64", "leaf=8", "leaf is '8', must be a whole number from 16 to 128"},
    {"group=2 page", "group=16 page", "group is '16'"},
    {"group=2 page", "group=3 page", "group is 3, must be a power of two"},
    {"page=0", "page=8", "page is 8, must be 0 or from 16 to 128"},
    {"page=0", "page=256", "page is '256'"},
    {"route pyramid", "route top_k", "route 'top_k' is not known"},
    {"score=lse", "score=max", "score is 'max'"},
    {"reduce=sum", "reduce=mean", "reduce is 'mean'"},
    {"keep=8", "keep=65", "keep is '65'"},
    {"keep=8", "keep=2", "keep=2, but 3 leaves may be always read"},
    {"always first=1", "always first=400", "keep=8, but 9 leaves may be always read"},
    {"always first=1", "always last=400", "keep=8, but 10 leaves may be always read"},
    {"always first=1", "always window=1", "none of first=n, last=n, range=a..b, previous, current"},
    {"always previous", "always current", "'always current' is given twice"},
    {"leaf_stage=clustered", "leaf_stage=apart", "leaf_stage is 'apart'"},
    {"leaf_stage=clustered", "leaf_stage=fused", "kernel 'cluster' is not for this method"},
    {"query_tile=4", "query_tile=0", "query_tile is '0'"},
    {" query_tile=4", "", "'route' must have 7 fields"},
    {"rest=drop", "rest=taylor_0", "must be selected=exact rest=drop"},
    {"phases prefill decode", "phases decode prefill", "phases is 'decode prefill'"},
    {"phases prefill decode", "phases prefill", "kernel 'append' is not for this method"},
    {"phases prefill decode", "phases prefilled", "phases is 'prefilled'"},
    {"phases prefill decode\n", "", "found 'validated' where 'phases' is expected"},
    {"validated no", "below tokens=9 use=all\nvalidated no", "use is 'all'"},
    {"validated no", "below tokens=9 use=dense\nvalidated no", "kernel 'dense_edge' is missing"},
    {"validated no", "below tokens=9 use=flat\nvalidated no", "kernel 'flat' is missing"},
    {"kernel walk", "kernel flat", "kernel 'walk' is missing"},
    {"kernel walk entry=pisa_walk threads=640 smem=4096",
     "kernel walk entry=pisa_walk threads=640 smem=dynamic", "only the route kernel"},
    {"variant 0\n", "variant 0\nphases decode\n", "found 'phases' where 'part' is expected"},
};

static void check_refusals(void) {
  struct sample sample, edited;
  pisa_pack *pack = NULL;
  sample_make(&(struct sample_spec){.pyramid = SIZES}, &sample);
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    sample_edit(&sample, edits[i].before, edits[i].after, &edited);
    CHECK_FAILS(pisa_pack_read(edited.bytes, edited.size, &pack, &error), PISA_CORRUPT, error,
                edits[i].words);
    sample_free(&edited);
  }
  sample_free(&sample);
}

/* A manifest with a right digest that ends behind any of its lines but the last. */
static void check_every_end(const struct sample_spec *spec) {
  struct sample sample, edited;
  pisa_pack *pack = NULL;
  sample_make(spec, &sample);
  const char *text = sample.bytes + sample.manifest_at, *stop = text + sample.manifest_size - 1;
  for (const char *end = text; (end = memchr(end, '\n', (size_t)(stop - end)));) {
    sample_sign(text, (size_t)(++end - text), "", 0, &edited);
    CHECK_FAILS(pisa_pack_read(edited.bytes, edited.size, &pack, &error), PISA_CORRUPT, error,
                "manifest line");
    sample_free(&edited);
  }
  sample_free(&sample);
}

int main(void) {
  check_every_end(&(struct sample_spec){.pyramid = SIZES});
  check_every_end(&(struct sample_spec){.no_cubin = false});
  check_every_end(
      &(struct sample_spec){.dense = true,
                            .phases = "decode",
                            .pages = "pages size=16\n",
                            .shape = "heads=8 kv_heads=2 head_dim=64 type=bf16 mask=causal"});
  check_fields();
  check_words();
  check_variant();
  check_refusals();
  return check_result();
}
