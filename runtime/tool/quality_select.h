/* quality_select.h: `pisa quality` of packs that select blocks: how much of the attention that all
   keys would get their lists hold.

       quality_select.c ......... the order of the work
       quality_select_truth.c ... the softmax over all keys, summed over granules of 16 keys
       quality_select_measure.c . one pack: its lists against the best ones, by head and position
       quality_select_report.c .. the table and the JSON lines
       quality_select_page.c .... the HTML page

   The reference set of a query is its forced leaves and, up to the pack's keep, those with the
   largest share of the softmax, averaged over the heads that share the list
   (runtime/cpu/selection_quality.h). Queries that see no more leaves than a list holds are left
   out: there nothing is chosen. Figures without any query are NaN: "-" in tables, null in JSON. */
#ifndef PISA_TOOL_QUALITY_SELECT_H
#define PISA_TOOL_QUALITY_SELECT_H

#include "runtime/cpu/selection_quality.h"
#include "runtime/tool/quality.h"

enum { SELECT_GRANULE = 16, SELECT_BINS = 16 };

struct select_truth {
  int64_t every;    /* queries 0, every, 2 every, ... are looked at */
  int64_t rows;     /* how many */
  int64_t granules; /* ceil(Nk / 16) */
  bool causal;
  float *mass; /* [Hk, rows, granules], a query's shares sum to 1 */
};

/* Free also after a failure. Values that are not finite are refused. */
pisa_status select_truth_make(const struct quality_scene *scene, bool causal, int64_t every,
                              int threads, struct select_truth *out, pisa_error *error);
void select_truth_free(struct select_truth *truth);

struct select_result {
  const struct quality_pack *pack;
  int64_t leaf, keep;
  struct selection_quality all, *heads;       /* means; [Hk] */
  struct selection_quality bins[SELECT_BINS]; /* by position of the query */
  double flat_recall; /* of the set that a flat scan with exact log-sum-exps would choose, heads
                         reduced alike */
};

/* Free also after a failure. */
pisa_status select_measure(const struct quality_scene *scene, const struct select_truth *truth,
                           const struct quality_pack *pack, const struct quality_run *run,
                           struct select_result *out, pisa_error *error);
void select_result_free(struct select_result *result);

struct select_set { /* of one file of tensors */
  struct quality_scene scene;
  struct select_truth truth; /* without its masses */
  struct select_result *results;
  int n_results;
  int label_width;
};

void select_table_head(FILE *out, const struct select_set *set);
void select_table_row(FILE *out, const struct select_result *result, const struct select_set *set);
/* One line. */
void select_json(FILE *out, const struct select_result *result, const struct select_set *set);
/* Writes one self-contained file. */
pisa_status select_page_write(const char *path, const struct select_set *set, pisa_error *error);

/* All of it: |packs| are open and of method pyramid. */
pisa_status quality_select(const struct quality_options *options, const struct quality_packs *packs,
                           FILE *table, pisa_error *error);

#endif
