/* quality_select_report.c: a result in; a row of the table, or a JSON line, out. */
#include <inttypes.h>
#include <math.h>

#include "runtime/tool/quality_select.h"

void select_table_head(FILE *out, const struct select_set *set) {
  const struct quality_scene *s = &set->scene;
  fprintf(out,
          "%s: %" PRId64 " key heads of %d, %" PRId64 " queries each, of %" PRId64
          " one in %" PRId64 " looked at, %" PRId64 " keys, %s\n"
          "%-*s %6s %6s %9s %9s %9s %9s %9s\n",
          s->name, s->kv_heads, s->head_dim, s->heads / s->kv_heads, s->n_q, set->truth.every,
          s->n_k, quality_type_name(s->type), set->label_width, "pack", "leaf", "keep", "recall",
          "worst", "captured", "ratio", "of flat");
}

/* The lowest recall of a key head that has one. */
static double worst_head(const struct select_result *r, const struct quality_scene *s) {
  double worst = NAN;
  for (int64_t h = 0; h < s->kv_heads; h++)
    worst = fmin(worst, r->heads[h].recall);
  return worst;
}

static void cell(FILE *out, double value) {
  if (isnan(value))
    fprintf(out, " %9s", "-");
  else
    fprintf(out, " %9.4f", value);
}

void select_table_row(FILE *out, const struct select_result *r, const struct select_set *set) {
  const double figures[] = {r->all.recall, worst_head(r, &set->scene), r->all.captured,
                            r->all.ratio, r->flat_recall};
  fprintf(out, "%-*s %6" PRId64 " %6" PRId64, set->label_width, r->pack->label, r->leaf, r->keep);
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
    cell(out, figures[i]);
  fputc('\n', out);
  fflush(out);
}

/* ---- JSON ---- */

static void number(FILE *out, const char *name, double value) {
  if (isnan(value))
    fprintf(out, ", \"%s\": null", name);
  else
    fprintf(out, ", \"%s\": %.5g", name, value);
}

static void figures(FILE *out, const struct selection_quality *q) {
  fprintf(out, "\"queries\": %" PRId64, q->queries);
  number(out, "recall", q->recall);
  number(out, "captured", q->captured);
  number(out, "ratio", q->ratio);
}

void select_json(FILE *out, const struct select_result *r, const struct select_set *set) {
  const struct quality_scene *s = &set->scene;
  fputc('{', out);
  quality_json_text(out, "spec", r->pack->pack->manifest.name);
  quality_json_text(out, "variant", r->pack->chosen->choices);
  quality_json_text(out, "tensors", s->name);
  fprintf(out,
          "\"shape\": {\"heads\": %" PRId64 ", \"kv_heads\": %" PRId64 ", \"Nq\": %" PRId64
          ", \"Nk\": %" PRId64 ", \"D\": %d, \"type\": \"%s\"}, \"leaf\": %" PRId64
          ", \"keep\": %" PRId64 ", \"every\": %" PRId64 ", ",
          s->heads, s->kv_heads, s->n_q, s->n_k, s->head_dim, quality_type_name(s->type), r->leaf,
          r->keep, set->truth.every);
  figures(out, &r->all);
  number(out, "flat_recall", r->flat_recall);
  fputs(", \"heads\": [", out);
  int64_t group = s->heads / s->kv_heads;
  for (int64_t h = 0; h < s->kv_heads; h++) {
    const struct quality_head *where = &s->where[h * group];
    fprintf(out, "%s{\"b\": %" PRId64 ", \"kv_head\": %" PRId64 ", ", h ? ", " : "", where->b,
            where->h / group);
    figures(out, &r->heads[h]);
    fputc('}', out);
  }
  fputs("], \"positions\": [", out);
  for (int b = 0; b < SELECT_BINS; b++) {
    fprintf(out, "%s{", b ? ", " : "");
    figures(out, &r->bins[b]);
    fputc('}', out);
  }
  fputs("]}\n", out);
  fflush(out);
}
