/* sweep_select.c: a pack that selects blocks and a scene in; recall of each variant's lists, the
   share of the softmax they hold, and what it costs, out. */
#include <math.h>

#include "runtime/size.h"
#include "runtime/tool/sweep.h"

/* FLOP of everything for a query, in units of dense attention's 4 D for each key it sees: the keys
   it reads, half as much for each node or key that is scored. A walk scores K g nodes a level, down
   to the keys of K g leaves; a flat scan the means of all leaves, or with lse all keys. */
static double cost_of(const struct pisa_method *m, int64_t n_k) {
  double keys = (double)n_k, seen = m->mask == PISA_MASK_CAUSAL ? (keys + 1) / 2 : keys;
  double leaves = fmax(1, seen / m->key), keep = (double)m->keep;
  double read = fmin(seen, keep * m->key), scored = m->score == PISA_SCORE_MEAN ? leaves : seen;
  if (!m->flat && leaves > keep) {
    double levels = ceil(log(leaves / keep) / log(m->group));
    scored = keep * m->group * (levels + m->key);
  }
  return (read + fmin(scored, seen + leaves) / 2) / seen;
}

static pisa_status check(const struct sweep *s, pisa_error *error) {
  const struct pisa_method *first = &s->packs.items[0].chosen->method;
  if (s->options.synthetic)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "packs that select blocks are swept on tensors of a model: --q, --k, --v");
  if (s->options.max_error > 0)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "lists of selected blocks have no error: --min-recall bounds their recall");
  if (s->timed && (!first->prefill || first->page))
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "sweeps time prefill of keys in one piece, and the pack %s: `--device cpu`",
                     first->page ? "reads pages" : "has phase decode alone");
  return PISA_OK;
}

/* Where no query sees more leaves than a list holds, everything is read. */
static struct sweep_point point_of(const struct select_result *result, int64_t n_k) {
  const bool reads_all = result->all.queries == 0;
  return (struct sweep_point){.pack = result->pack,
                              .error = INFINITY,
                              .recall = reads_all ? 1 : result->all.recall,
                              .mass = reads_all ? 1 : result->all.captured,
                              .cost = cost_of(&result->pack->chosen->method, n_k)};
}

pisa_status sweep_select(struct sweep *s, sweep_add add, pisa_error *error) {
  const struct quality_options *o = &s->options;
  const struct quality_run run = {.ordinal = o->ordinal, .threads = (int)o->threads};
  struct select_truth truth = {0};
  pisa_status status = check(s, error);
  if (!status)
    status = select_truth_make(&s->scene, s->packs.items[0].chosen->method.mask == PISA_MASK_CAUSAL,
                               o->every, (int)o->threads, &truth, error);
  for (int p = 0; !status && p < s->packs.n; p++) {
    const struct quality_pack *pack = &s->packs.items[p];
    struct select_result result = {.pack = pack};
    status = select_measure(&s->scene, &truth, pack, &run, &result, error);
    if (!status)
      status = add(s, point_of(&result, s->scene.n_k), error);
    select_result_free(&result);
  }
  select_truth_free(&truth);
  return status;
}
