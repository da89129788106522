/* tune_crossover.c: a pack and a dense rival in; from which length on the method is faster, and the
   line to add to the spec, out. The rival is another pack, or the kernels that the pack itself has
   for short sequences (`below N tokens use ...`). */
#include <inttypes.h>

#include "runtime/tool/tune.h"

enum { SHORTEST = 512, STEP = 128, ROUNDS = 9 };
#define NEVER ((int64_t)1)
#define ALWAYS ((int64_t)1 << 40)

struct crossover {
  const struct tune_options *options;
  const pisa_pack *pack;
  int variant;
  const struct tune_device *on;
  pisa_pack *rival; /* NULL: the pack's own kernels */
  pisa_module *dense;
  const char *use; /* what the rival is: "dense", "flat" */
  bool interrupted;
};

/* |module| as if the spec's limit were |tokens|. */
static pisa_module with_limit(const pisa_module *module, int64_t tokens) {
  pisa_module copy = *module;
  if (copy.method.dense_below)
    copy.method.dense_below = tokens;
  if (copy.method.flat_below)
    copy.method.flat_below = tokens;
  return copy;
}

/* The module of the schedule that is fastest at |tokens| as far as the table knows. */
static pisa_status load_method(const struct crossover *c, int64_t tokens, pisa_module **out,
                               pisa_error *error) {
  const struct tune_options *o = c->options;
  const struct pisa_method *m = &c->pack->manifest.variants[c->variant].method;
  const pisa_attention call = {.struct_size = sizeof call,
                               .batch = o->batch,
                               .heads = o->heads ? o->heads : m->heads,
                               .n_k = tokens};
  int variant = c->variant;
  pisa_status status = pisa_tuned_variant(c->pack, c->variant, &call, &variant, error);
  return status ? status : pisa_module_load(c->pack, variant, 0, out, error);
}

static pisa_status race(struct crossover *c, const pisa_module *module, int64_t tokens,
                        struct tune_outcome *out, pisa_error *error) {
  const struct tune_options *o = c->options;
  const pisa_module method = with_limit(module, NEVER);
  const pisa_module own = c->rival ? *c->dense : with_limit(module, ALWAYS);
  struct tune_load loads[2] = {{.on = NULL}, {.on = NULL}};
  struct tune_racer challenger = {&method, &loads[0]}, champion = {&own, &loads[c->rival ? 1 : 0]};
  int64_t heads = o->heads ? o->heads : module->method.heads;
  pisa_status status =
      tune_load_open(&loads[0], c->on, &method, o->batch, heads, tokens, o->seed, error);
  if (!status && c->rival)
    status = tune_load_open(&loads[1], c->on, &own, o->batch, heads, tokens, o->seed, error);
  if (!status)
    status = tune_load_fit(champion.loads, &own, error);
  if (!status)
    status = tune_load_fit(challenger.loads, &method, error);
  if (!status)
    status = tune_race(c->on, &champion, &challenger, 1, ROUNDS, out, error);
  tune_load_close(&loads[0]);
  tune_load_close(&loads[1]);
  return status;
}

/* ratio: ms of the method over the rival's. */
static pisa_status compare(struct crossover *c, int64_t tokens, double *ratio, pisa_error *error) {
  pisa_module *module = NULL;
  struct tune_outcome outcome = {.ratio = 1};
  pisa_status status = load_method(c, tokens, &module, error);
  if (!status)
    status = race(c, module, tokens, &outcome, error);
  pisa_module_unload(module);
  if (status)
    return status;
  *ratio = outcome.ratio;
  c->interrupted = outcome.interrupted;
  if (!c->interrupted)
    printf("%8" PRId64 " %9.4f %9.4f %8.3f\n", tokens, outcome.challenger, outcome.champion,
           outcome.ratio);
  fflush(stdout);
  return PISA_OK;
}

/* Doubles the length until the method is faster, then halves the distance. |low|: the longest where
   it was not, 0: none; |high| the shortest where it was. */
static pisa_status search(struct crossover *c, int64_t longest, int64_t *low, int64_t *high,
                          pisa_error *error) {
  double ratio = 1;
  pisa_status status = PISA_OK;
  *low = *high = 0;
  for (int64_t n = SHORTEST; !status && !c->interrupted && !*high && n <= longest; n *= 2) {
    status = compare(c, n, &ratio, error);
    *(ratio < 1 ? high : low) = n;
  }
  while (!status && !c->interrupted && *low && *high && *high - *low > STEP &&
         *high - *low > *high / 8) {
    int64_t middle = (*low + *high) / 2 / STEP * STEP;
    status = compare(c, middle, &ratio, error);
    *(ratio < 1 ? high : low) = middle;
  }
  return status;
}

static void print_line(const struct crossover *c, int64_t low, int64_t high) {
  int64_t now = c->pack->manifest.variants[c->variant].method.dense_below +
                c->pack->manifest.variants[c->variant].method.flat_below;
  if (!high)
    printf("%s was faster at every length\n", c->use);
  else if (!low)
    printf("the method was faster at every length: no `below` is needed\n");
  else
    printf("the line for the spec: below %" PRId64 " tokens use %s\n", high, c->use);
  if (now)
    printf("the pack has: below %" PRId64 " tokens use %s\n", now, c->use);
}

static pisa_status check_rival(const struct pisa_method *a, const struct pisa_method *b,
                               pisa_error *error) {
  if (!b->dense || !b->prefill)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "the pack of --dense is not dense");
  if (a->head_dim == b->head_dim && a->type == b->type && a->mask == b->mask &&
      pisa_method_group(a) == pisa_method_group(b))
    return PISA_OK;
  return pisa_fail(error, PISA_INVALID_ARGUMENT,
                   "the pack of --dense has another head_dim, type, mask or heads / kv_heads");
}

static pisa_status open_rival(struct crossover *c, pisa_error *error) {
  const struct pisa_method *m = &c->pack->manifest.variants[c->variant].method;
  if (!c->options->dense)
    return PISA_OK;
  pisa_status status = pisa_pack_open(c->options->dense, &c->rival, error);
  if (!status)
    status = check_rival(m, &c->rival->manifest.variants[0].method, error);
  return status ? status : pisa_module_load(c->rival, 0, 0, &c->dense, error);
}

pisa_status tune_crossover(const struct tune_options *options, const pisa_pack *pack, int variant,
                           const struct tune_device *on, int64_t longest, pisa_error *error) {
  const struct pisa_method *m = &pack->manifest.variants[variant].method;
  struct crossover c = {options, pack, variant, on, .use = "dense"};
  int64_t low = 0, high = 0;
  if (m->dense || (!options->dense && !m->dense_below && !m->flat_below))
    return PISA_OK;
  if (!options->dense && m->flat_below)
    c.use = "flat";
  pisa_status status = open_rival(&c, error);
  if (!status) {
    printf("\n%8s %9s %9s %8s\n", "tokens", "method", c.use, "ratio");
    status = search(&c, longest, &low, &high, error);
  }
  if (!status && !c.interrupted)
    print_line(&c, low, high);
  pisa_module_unload(c.dense);
  pisa_pack_close(c.rival);
  return status;
}
