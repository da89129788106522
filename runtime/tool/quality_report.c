/* quality_report.c: a result in; a row of the table, or a JSON line, out. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/tool/quality.h"

/* ---- the table ---- */

void quality_table_head(FILE *out, const struct quality_set *set) {
  const struct quality_scene *s = &set->scene;
  fprintf(out,
          "%s: %" PRId64 " head%s of %d, %" PRId64 " queries x %" PRId64 " keys, %s\n"
          "logits of a query: standard deviation %.3f inside 64 keys, %.3f between; rounding of o "
          "alone: error %.4f\n"
          "%-*s %8s %10s %9s %9s %9s %8s %8s %8s %8s\n",
          s->name, s->n_wanted, s->n_wanted == 1 ? "" : "s", s->head_dim, s->n_q, s->n_k,
          quality_type_name(s->type), set->spread.inside, set->spread.between, set->rounding,
          set->label_width, "pack", "density", "blocks", "error", "worst", "PSNR dB", "recall",
          "mass", "best", "cost");
}

/* The largest error of a head. */
static double worst_head(const struct quality_result *r, const struct quality_scene *s) {
  double worst = 0;
  for (int64_t h = 0; h < s->heads; h++)
    if (s->where[h].wanted && !(r->heads[h].error <= worst))
      worst = r->heads[h].error;
  return worst;
}

/* 0: there is none. */
static double threshold(const struct quality_result *r) {
  const struct pisa_method *m = &r->pack->chosen->method;
  bool used = !m->dense && m->budget == PISA_BUDGET_THRESHOLD;
  return used ? (double)m->threshold_num / (double)m->threshold_den : 0;
}

static void density_text(const struct quality_result *r, char *out, size_t size) {
  if (threshold(r) > 0)
    snprintf(out, size, "tau %g", threshold(r));
  else if (r->density > 0)
    snprintf(out, size, "%g", r->density);
  else
    snprintf(out, size, "%s", r->pack->chosen->method.dense ? "dense" : "spec");
}

void quality_table_row(FILE *out, const struct quality_result *r, const struct quality_set *set) {
  const struct quality_figures *f = &r->all;
  char density[32], blocks[48];
  density_text(r, density, sizeof density);
  snprintf(blocks, sizeof blocks, "%.4g/%" PRId64, r->listed, r->k_blocks);
  fprintf(out, "%-*s %8s %10s %9.4f %9.4f %9.2f %7.1f%% %7.1f%% %7.1f%% %7.1f%%\n",
          set->label_width, r->pack->label, density, blocks, f->error, worst_head(r, &set->scene),
          f->psnr, 100 * f->recall, 100 * f->mass, 100 * f->best_mass, 100 * r->cost);
  fflush(out);
}

/* ---- JSON ---- */

/* JSON has no infinity and no NaN. */
static void number(FILE *out, double value, int digits) {
  if (isfinite(value))
    fprintf(out, "%.*g", digits, value);
  else
    fputs("null", out);
}

static void field(FILE *out, const char *name, double value) {
  fprintf(out, "\"%s\": ", name);
  number(out, value, 5);
}

static void figures(FILE *out, const struct quality_figures *f, const struct quality_spread *s) {
  const struct {
    const char *name;
    double value;
  } fields[] = {{"error", f->error},        {"psnr", f->psnr},           {"recall", f->recall},
                {"mass", f->mass},          {"best_mass", f->best_mass}, {"inside_std", s->inside},
                {"between_std", s->between}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    fputs(i ? ", " : "", out);
    field(out, fields[i].name, fields[i].value);
  }
}

static void heads(FILE *out, const struct quality_result *r, const struct quality_set *set) {
  const char *comma = "";
  fputs(", \"heads\": [", out);
  for (int64_t h = 0; h < set->scene.heads; h++) {
    const struct quality_head *where = &set->scene.where[h];
    if (!where->wanted)
      continue;
    fprintf(out, "%s{\"b\": %" PRId64 ", \"h\": %" PRId64 ", ", comma, where->b, where->h);
    figures(out, &r->heads[h], &set->spreads[h]);
    fputc('}', out);
    comma = ", ";
  }
  fputc(']', out);
}

static void numbers(FILE *out, const char *name, const double *values, int64_t n) {
  fprintf(out, ", \"%s\": [", name);
  for (int64_t i = 0; i < n; i++) {
    fputs(i ? ", " : "", out);
    number(out, values[i], 3);
  }
  fputc(']', out);
}

void quality_json(FILE *out, const struct quality_result *r, const struct quality_set *set) {
  const struct quality_scene *s = &set->scene;
  const struct pisa_method *m = &r->pack->chosen->method;
  fputc('{', out);
  quality_json_text(out, "spec", r->pack->pack->manifest.name);
  quality_json_text(out, "variant", r->pack->chosen->choices);
  quality_json_text(out, "tensors", s->name);
  if (s->synthetic)
    fprintf(out, "\"asked\": {\"inside_std\": %g, \"between_std\": %g}, ", s->spread, s->between);
  fprintf(out,
          "\"shape\": {\"heads\": %" PRId64 ", \"Nq\": %" PRId64 ", \"Nk\": %" PRId64
          ", \"D\": %d, \"type\": \"%s\", \"query\": %d, \"key\": %d}, \"density\": ",
          s->n_wanted, s->n_q, s->n_k, s->head_dim, quality_type_name(s->type), m->query, m->key);
  number(out, r->density > 0 ? r->density : NAN, 9);
  fputs(", \"threshold\": ", out);
  number(out, threshold(r) > 0 ? threshold(r) : NAN, 9);
  fprintf(out, ", \"blocks\": %" PRId64 ", ", r->k_blocks);
  field(out, "listed", r->listed);
  fputs(", ", out);
  field(out, "read", r->read);
  fputs(", ", out);
  field(out, "cost", r->cost);
  fputs(", ", out);
  figures(out, &r->all, &set->spread);
  fputs(", ", out);
  field(out, "rounding", set->rounding);
  heads(out, r, set);
  numbers(out, "query_blocks", r->blocks, r->q_blocks);
  numbers(out, "query_recall", r->recalls, r->q_blocks);
  fputs("}\n", out);
  fflush(out);
}
