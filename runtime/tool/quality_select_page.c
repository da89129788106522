/* quality_select_page.c: all results of one file of tensors in; one self-contained HTML page out:
   recall and captured mass by position, and every figure in a table. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/tool/quality_select.h"

enum figure { RECALL, RATIO, CAPTURED };
static const struct {
  const char *id, *title, *y_label;
} words[] = {{"recall", "Recall by position", "share of the best leaves that a list has"},
             {"ratio", "Mass ratio by position", "mass of the list / mass of the best leaves"},
             {"captured", "Captured mass by position", "share of the softmax on listed leaves"}};

static double value_of(const struct selection_quality *q, enum figure figure) {
  return figure == RECALL ? q->recall : figure == RATIO ? q->ratio : q->captured;
}

static void write_chart(FILE *out, const struct select_set *set, enum figure figure) {
  struct chart_series series[QUALITY_MAX_LINES] = {0};
  char title[2 * QUALITY_NAME];
  snprintf(title, sizeof title, "%s, %s", words[figure].title, set->scene.name);
  for (int i = 0; i < set->n_results && i < QUALITY_MAX_LINES; i++) {
    const struct select_result *r = &set->results[i];
    struct chart_series *line = &series[i];
    line->name = r->pack->label;
    for (int b = 0; b < SELECT_BINS; b++) {
      if (r->bins[b].queries == 0)
        continue;
      line->x[line->n] = ((double)b + 0.5) / SELECT_BINS * (double)set->scene.n_q;
      line->y[line->n++] = value_of(&r->bins[b], figure);
    }
  }
  const struct chart chart = {.id = words[figure].id,
                              .title = title,
                              .x_label = "position of the query",
                              .y_label = words[figure].y_label,
                              .linear_y = true,
                              .fitted_y = true,
                              .n = set->n_results,
                              .series = series};
  chart_write(out, &chart);
}

static void write_share(FILE *out, double share) {
  if (isnan(share))
    fputs("<td>-</td>", out);
  else
    fprintf(out, "<td>%.2f %%</td>", 100 * share);
}

static void write_figures(FILE *out, const struct selection_quality *q) {
  write_share(out, q->recall);
  write_share(out, q->captured);
  write_share(out, q->ratio);
}

static void write_table(FILE *out, const struct select_set *set) {
  int64_t group = set->scene.heads / set->scene.kv_heads;
  fputs("<table><tr><th>pack</th><th>leaf</th><th>keep</th><th>batch, key head</th><th>recall</th>"
        "<th>captured</th><th>ratio</th><th>recall of the flat exact scan</th></tr>\n",
        out);
  for (int i = 0; i < set->n_results; i++) {
    const struct select_result *r = &set->results[i];
    for (int64_t h = -1; h < set->scene.kv_heads; h++) {
      fputs("<tr><td>", out);
      page_text(out, r->pack->label);
      fprintf(out, "</td><td>%" PRId64 "</td><td>%" PRId64 "</td>", r->leaf, r->keep);
      if (h < 0) {
        fputs("<td>all</td>", out);
        write_figures(out, &r->all);
        write_share(out, r->flat_recall);
        fputs("</tr>\n", out);
        continue;
      }
      const struct quality_head *where = &set->scene.where[h * group];
      fprintf(out, "<td>%" PRId64 ", %" PRId64 "</td>", where->b, where->h / group);
      write_figures(out, &r->heads[h]);
      fputs("<td></td></tr>\n", out);
    }
  }
  fputs("</table>\n", out);
}

static void write_page(FILE *out, const struct select_set *set) {
  fprintf(out,
          "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
          "content=\"width=device-width\"><title>pisa quality</title><style>%s</style>\n"
          "<h1>How good the selected blocks are</h1>\n"
          "<p>The best leaves of a query: those always read and, up to keep, those with the "
          "largest share of the softmax over all keys, averaged over the heads that share a list. "
          "Recall: the share of them that a list has. Captured: the share of the softmax on listed "
          "leaves. Ratio: that of the list over that of the best leaves, query by query. Queries "
          "that see no more leaves than a list holds are left out.</p>\n<h2>",
          quality_style);
  page_text(out, set->scene.name);
  fputs("</h2>\n<div class=\"row\">\n", out);
  write_chart(out, set, RECALL);
  write_chart(out, set, RATIO);
  write_chart(out, set, CAPTURED);
  fputs("</div>\n<h2>Figures</h2>\n", out);
  write_table(out, set);
  fputs("</html>\n", out);
}

pisa_status select_page_write(const char *path, const struct select_set *set, pisa_error *error) {
  FILE *out = fopen(path, "w");
  bool failed = !out;
  if (!failed) {
    write_page(out, set);
    failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
  }
  return failed ? pisa_fail(error, PISA_IO, "cannot write '%s': %s", path, strerror(errno))
                : PISA_OK;
}
