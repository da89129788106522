/* quality_select.c: packs that select blocks and the tensors of the command line in; a table, JSON
   lines and a page out. */
#include "runtime/tool/quality_select.h"

#include <stdlib.h>
#include <string.h>

static pisa_status check_packs(const struct quality_options *o, const struct quality_packs *packs,
                               pisa_error *error) {
  const struct pisa_method *first = &packs->items[0].chosen->method;
  if (o->synthetic)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "packs that select blocks are looked at on tensors of a model: --q, --k");
  for (int p = 0; p < packs->n; p++) {
    const struct pisa_method *m = &packs->items[p].chosen->method;
    if (m->mask != first->mask)
      return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s has another mask than %s",
                       packs->items[p].label, packs->items[0].label);
  }
  return PISA_OK;
}

static pisa_status measure_all(const struct quality_options *o, const struct quality_packs *packs,
                               struct select_set *set, FILE *table, pisa_error *error) {
  pisa_status status = PISA_OK;
  const struct quality_run run = {.ordinal = o->ordinal, .threads = (int)o->threads};
  for (int p = 0; p < packs->n; p++) {
    int length = (int)strlen(packs->items[p].label);
    set->label_width = set->label_width > length ? set->label_width : length;
  }
  select_table_head(table, set);
  for (int p = 0; !status && p < packs->n; p++) {
    struct select_result *result = &set->results[set->n_results++];
    status = select_measure(&set->scene, &set->truth, &packs->items[p], &run, result, error);
    if (status)
      return status;
    select_table_row(table, result, set);
    if (o->json)
      select_json(stdout, result, set);
  }
  return status;
}

static pisa_status look_at(const struct quality_options *o, const struct quality_packs *packs,
                           struct select_set *set, FILE *table, pisa_error *error) {
  bool causal = packs->items[0].chosen->method.mask == PISA_MASK_CAUSAL;
  set->results = calloc((size_t)packs->n, sizeof *set->results);
  if (!set->results)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the results");
  pisa_status status = quality_scene_read(o, packs, &set->scene, error);
  if (!status)
    status = select_truth_make(&set->scene, causal, o->every, (int)o->threads, &set->truth, error);
  if (!status)
    status = measure_all(o, packs, set, table, error);
  if (!status && o->html)
    status = select_page_write(o->html, set, error);
  return status;
}

pisa_status quality_select(const struct quality_options *o, const struct quality_packs *packs,
                           FILE *table, pisa_error *error) {
  struct select_set set = {0};
  pisa_status status = check_packs(o, packs, error);
  if (!status)
    status = look_at(o, packs, &set, table, error);
  for (int i = 0; i < set.n_results; i++)
    select_result_free(&set.results[i]);
  free(set.results);
  select_truth_free(&set.truth);
  quality_scene_free(&set.scene);
  return status;
}
