/* sweep_page.c: points in; one self-contained HTML page out: loss against time, or cost, the front
   that no point beats, and every figure in a table. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/sweep.h"

static const char *const style = ".front{font-weight:600}.chosen{background:#fff8c5}";

enum figure { ERROR, RECALL };

static double figure_of(const struct sweep_point *point, enum figure what) {
  return what == ERROR ? point->error : point->recall;
}

/* Points of a line, or of the front, by rising effort. */
static void add_point(const struct sweep *s, const struct sweep_point *point, enum figure what,
                      struct chart_series *out) {
  double x = sweep_effort(s, point);
  int at = out->n;
  if (out->n == CHART_MAX_POINTS)
    return;
  for (; at > 0 && out->x[at - 1] > x; at--) {
    out->x[at] = out->x[at - 1];
    out->y[at] = out->y[at - 1];
  }
  out->x[at] = x;
  out->y[at] = figure_of(point, what);
  out->n++;
}

static void write_chart(FILE *out, const struct sweep *s, enum figure what,
                        struct chart_series *series) {
  int n = s->packs.n_lines < QUALITY_MAX_LINES ? s->packs.n_lines : QUALITY_MAX_LINES - 1;
  for (int line = 0; line < n; line++)
    series[line + 1] = (struct chart_series){.name = s->packs.labels[line]};
  series[0] = (struct chart_series){.name = "no point is better"};
  for (int i = 0; i < s->n; i++) {
    const struct sweep_point *point = &s->points[i];
    if (point->pack->line < n && !point->pack->chosen->method.dense)
      add_point(s, point, what, &series[point->pack->line + 1]);
    if (point->front)
      add_point(s, point, what, &series[0]);
  }
  const struct chart chart = {.id = what == ERROR ? "error" : "recall",
                              .title = what == ERROR ? "Error" : "Recall",
                              .x_label = s->timed ? "ms" : "FLOP, of dense attention's",
                              .y_label = what == ERROR
                                             ? "relative L2 error against dense attention"
                                             : "share of the heaviest blocks that the lists have",
                              .log_x = true,
                              .linear_y = what == RECALL,
                              .percent_x = !s->timed,
                              .n = n + 1,
                              .series = series};
  chart_write(out, &chart);
}

static void write_row(FILE *out, const struct sweep *s, const struct sweep_point *point,
                      bool chosen) {
  char budget[64];
  sweep_budget(point, budget, sizeof budget);
  fprintf(out, "<tr class=\"%s%s\"><td>", point->front ? "front " : "", chosen ? "chosen" : "");
  page_text(out, point->pack->label);
  fprintf(out, "</td><td>%s</td>", budget);
  if (s->selects)
    fputs("<td>-</td>", out);
  else
    fprintf(out, "<td>%.4f</td>", point->error);
  fprintf(out, "<td>%.1f %%</td><td>%.1f %%</td><td>%.1f %%</td>", 100 * point->recall,
          100 * point->mass, 100 * point->cost);
  if (s->timed)
    fprintf(out, "<td>%.4f</td>", point->ms);
  fputs("</tr>\n", out);
}

static void write_page(FILE *out, const struct sweep *s, int chosen, struct chart_series *series) {
  fprintf(out,
          "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>pisa "
          "sweep</title><style>%s%s</style>\n<h1>",
          quality_style, style);
  page_text(out, s->packs.items[0].pack->manifest.name);
  fputs(" on ", out);
  page_text(out, s->scene.name);
  fprintf(out, "</h1>\n<p>%" PRId64 " heads, %" PRId64 " queries, %" PRId64 " keys", s->scene.heads,
          s->scene.n_q, s->scene.n_k);
  if (s->timed)
    fprintf(out, "; times are of %" PRId64 " heads", s->times_heads);
  fputs(". Bold: no other point is both faster and better.</p>\n<div class=\"row\">\n", out);
  if (!s->selects)
    write_chart(out, s, ERROR, series);
  write_chart(out, s, RECALL, series);
  fprintf(out,
          "</div>\n<table><tr><th>variant</th><th>budget</th><th>error</th><th>recall</th>"
          "<th>mass</th><th>cost</th>%s</tr>\n",
          s->timed ? "<th>ms</th>" : "");
  for (int i = 0; i < s->n; i++)
    write_row(out, s, &s->points[i], i == chosen);
  fputs("</table>\n</html>\n", out);
}

pisa_status sweep_page_write(const char *path, const struct sweep *s, int chosen,
                             pisa_error *error) {
  struct chart_series *series = calloc(QUALITY_MAX_LINES + 1, sizeof *series);
  if (!series)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the page");
  FILE *out = fopen(path, "w");
  bool failed = !out;
  if (!failed) {
    write_page(out, s, chosen, series);
    failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
  }
  free(series);
  return failed ? pisa_fail(error, PISA_IO, "cannot write '%s': %s", path, strerror(errno))
                : PISA_OK;
}
