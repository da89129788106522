/* quality_page.c: all results in, one self-contained HTML page out: error against density, against
   cost, against the spread of the logits, where the error sits, and every figure in a table. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/quality.h"

struct page {
  FILE *out;
  const struct quality_set *sets;
  int n;
  const struct quality_packs *packs;
  struct strip_row *rows; /* room for the results of one set */
};

static bool is_dense(const struct quality_pack *pack) {
  return pack->chosen->method.dense;
}

/* A line's first variant. */
static const struct quality_pack *pack_of(const struct page *p, int line) {
  const struct quality_pack *pack = p->packs->items;
  while (pack->line != line)
    pack++;
  return pack;
}

/* ---- error and recall against something, one scene ---- */

enum against { READ, COST, RECALL };
static const struct {
  const char *id, *title, *x_label, *y_label;
} words[] = {{"density", "Error against density", "keys read exactly",
              "relative L2 error against dense attention"},
             {"cost", "Error against cost", "FLOP, of dense attention's",
              "relative L2 error against dense attention"},
             {"recall", "Recall against density", "keys read exactly",
              "share of the heaviest blocks that the lists have"}};

/* The points of |line|. A dense pack only rounds: it is in the table, not in the pictures. */
static void add_points(const struct quality_set *set, int line, enum against what,
                       struct chart_series *out) {
  for (int r = 0; r < set->n_results; r++) {
    const struct quality_result *result = &set->results[r];
    if (result->pack->line != line || is_dense(result->pack))
      continue;
    int at = out->n++;
    double x = what == COST ? result->cost : result->read;
    for (; at > 0 && out->x[at - 1] > x; at--) {
      out->x[at] = out->x[at - 1];
      out->y[at] = out->y[at - 1];
    }
    out->x[at] = x;
    out->y[at] = what == RECALL ? result->all.recall : result->all.error;
  }
}

static void write_against(const struct page *p, int s, enum against what) {
  struct chart_series series[QUALITY_MAX_LINES] = {0};
  char id[32], title[2 * QUALITY_NAME];
  snprintf(id, sizeof id, "%s-%d", words[what].id, s);
  snprintf(title, sizeof title, "%s, %s", words[what].title, p->sets[s].scene.name);
  for (int i = 0; i < p->packs->n_lines; i++) {
    series[i].name = pack_of(p, i)->label;
    add_points(&p->sets[s], i, what, &series[i]);
  }
  const struct chart chart = {.id = id,
                              .title = title,
                              .x_label = words[what].x_label,
                              .y_label = words[what].y_label,
                              .log_x = true,
                              .linear_y = what == RECALL,
                              .percent_x = true,
                              .n = p->packs->n_lines,
                              .series = series};
  chart_write(p->out, &chart);
}

/* ---- error against the spread of the logits, all synthetic scenes ---- */

/* Of |line|'s densities the one nearest to 1/8, the published one. */
static const struct quality_result *usual(const struct quality_set *set, int line) {
  const struct quality_result *best = NULL;
  for (int r = 0; r < set->n_results; r++) {
    const struct quality_result *x = &set->results[r];
    if (x->pack->line == line && (!best || fabs(x->read - 0.125) < fabs(best->read - 0.125)))
      best = x;
  }
  return best;
}

static void write_spread(const struct page *p, double between) {
  struct chart_series series[QUALITY_MAX_LINES] = {0};
  char id[48], title[160];
  snprintf(id, sizeof id, "spread-%g", between);
  snprintf(title, sizeof title,
           "Error against the spread of logits inside key blocks, %g between them", between);
  for (int i = 0; i < p->packs->n_lines; i++) {
    struct chart_series *line = &series[i];
    line->name = pack_of(p, i)->label;
    for (int s = 0; !is_dense(pack_of(p, i)) && s < p->n; s++) {
      if (p->sets[s].scene.between != between)
        continue;
      line->x[line->n] = p->sets[s].spread.inside;
      line->y[line->n++] = usual(&p->sets[s], i)->all.error;
    }
  }
  const struct chart chart = {.id = id,
                              .title = title,
                              .x_label = "standard deviation of logits inside 64 keys",
                              .y_label = words[READ].y_label,
                              .n = p->packs->n_lines,
                              .series = series};
  fprintf(p->out, "<figure><figcaption>Spread between blocks: %g</figcaption>\n", between);
  chart_write(p->out, &chart);
  fputs("</figure>\n", p->out);
}

static void write_spreads(const struct page *p) {
  const struct quality_result *any = NULL;
  for (int i = 0; !any && i < p->packs->n_lines; i++)
    if (!is_dense(pack_of(p, i)))
      any = usual(&p->sets[0], i);
  if (!any)
    return;
  fprintf(
      p->out,
      "<h2>Error against the spread of the logits</h2>\n<p>At %.3g %% of the keys read exactly, "
      "or what a pack has nearest to 1/8. A block that is not read exactly is known by its "
      "mean, so it matters how a query's logits spread inside it.</p>\n<div class=\"row\">\n",
      100 * any->read);
  for (int s = 0; s < p->n; s++)
    if (s == 0 || p->sets[s].scene.between != p->sets[s - 1].scene.between)
      write_spread(p, p->sets[s].scene.between);
  fputs("</div>\n", p->out);
}

/* ---- where the error sits ---- */

static void write_where(const struct page *p, int s) {
  const struct quality_set *set = &p->sets[s];
  int n = 0;
  for (int r = 0; r < set->n_results; r++) {
    const struct quality_result *result = &set->results[r];
    struct strip_row *row = &p->rows[n];
    if (is_dense(result->pack))
      continue;
    *row = (struct strip_row){
        .color = result->pack->line, .values = result->blocks, .n = result->q_blocks};
    snprintf(row->name, sizeof row->name, "%s %.3g %%", result->pack->label, 100 * result->read);
    n++;
  }
  if (!n)
    return;
  fputs("<h2>Where the error sits</h2>\n<p>Relative error of each query block, all heads together, "
        "by pack and share of the keys that is read exactly.</p>\n",
        p->out);
  strip_write(p->out, "where", "query blocks, from the first to the last", "relative L2 error",
              p->rows, n);
}

/* ---- tables ---- */

static void write_figures(FILE *out, const struct quality_figures *f, double cost) {
  fprintf(out, "<td>%.2f %%</td><td>%.1f</td><td>%.1f %%</td><td>%.1f %%</td><td>%.1f %%</td>",
          100 * f->error, f->psnr, 100 * f->recall, 100 * f->mass, 100 * f->best_mass);
  if (cost > 0)
    fprintf(out, "<td>%.1f %%</td>", 100 * cost);
  fputs("</tr>\n", out);
}

static void write_table(FILE *out, const struct quality_set *set) {
  fputs("<table><tr><th>pack</th><th>read</th><th>blocks</th><th>error</th><th>PSNR, dB</th>"
        "<th>recall</th><th>mass</th><th>best mass</th><th>cost</th></tr>\n",
        out);
  for (int r = 0; r < set->n_results; r++) {
    const struct quality_result *x = &set->results[r];
    fputs("<tr><td>", out);
    page_text(out, x->pack->label);
    fprintf(out, "</td><td>%.1f %%</td><td>%.4g of %" PRId64 "</td>", 100 * x->read, x->listed,
            x->k_blocks);
    write_figures(out, &x->all, x->cost);
  }
  fputs("</table>\n", out);
}

static void write_heads(FILE *out, const struct quality_set *set) {
  fputs("<details><summary>Every head</summary>\n<table><tr><th>pack</th><th>read</th><th>batch, "
        "head</th><th>error</th><th>PSNR, dB</th><th>recall</th><th>mass</th><th>best "
        "mass</th></tr>\n",
        out);
  for (int r = 0; r < set->n_results; r++)
    for (int64_t h = 0; h < set->scene.heads; h++) {
      const struct quality_result *x = &set->results[r];
      const struct quality_head *where = &set->scene.where[h];
      if (!where->wanted)
        continue;
      fputs("<tr><td>", out);
      page_text(out, x->pack->label);
      fprintf(out, "</td><td>%.1f %%</td><td>%" PRId64 ", %" PRId64 "</td>", 100 * x->read,
              where->b, where->h);
      write_figures(out, &x->heads[h], 0);
    }
  fputs("</table></details>\n", out);
}

/* ---- the page ---- */

static void write_tensors(FILE *out, const struct quality_set *set) {
  const struct quality_scene *s = &set->scene;
  fprintf(out,
          "<p class=\"soft\">%" PRId64 " head%s of %d, %" PRId64 " queries, %" PRId64
          " keys. A query's logits have standard deviation %.2f inside 64 keys and %.2f between. "
          "Rounding dense attention's output to the type alone is an error of %.2f %%.</p>\n",
          s->n_wanted, s->n_wanted == 1 ? "" : "s", s->head_dim, s->n_q, s->n_k, set->spread.inside,
          set->spread.between, 100 * set->rounding);
}

static void write_scene(const struct page *p, int s) {
  fputs("<h2>", p->out);
  page_text(p->out, p->sets[s].scene.name);
  fputs("</h2>\n", p->out);
  write_tensors(p->out, &p->sets[s]);
  fputs("<div class=\"row\">\n", p->out);
  write_against(p, s, READ);
  write_against(p, s, COST);
  write_against(p, s, RECALL);
  fputs("</div>\n", p->out);
  if (p->n == 1)
    write_where(p, s);
  fputs(p->n == 1 ? "<h2>Figures</h2>\n" : "<details><summary>Figures</summary>\n", p->out);
  write_table(p->out, &p->sets[s]);
  fputs(p->n == 1 ? "" : "</details>\n", p->out);
  if (p->n == 1 && p->sets[s].scene.n_wanted > 1)
    write_heads(p->out, &p->sets[s]);
}

static void write_page(const struct page *p) {
  fprintf(p->out,
          "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
          "content=\"width=device-width\"><title>pisa quality</title><style>%s</style>\n"
          "<h1>What is lost against dense attention</h1>\n"
          "<p>Error: ||o - dense|| / ||dense||, dense attention being exact softmax attention of "
          "the same tensors. PSNR: 20 log10(max |dense| / rmse). Recall: the share of the k "
          "heaviest key blocks, by softmax mass, that a list of k blocks has. Mass: the share of "
          "the softmax on listed blocks; best mass: on the k heaviest. Cost: FLOP from q, k, v to "
          "o.</p>\n",
          quality_style);
  if (p->n > 1)
    write_spreads(p);
  for (int s = 0; s < p->n; s++)
    write_scene(p, s);
  fputs("</html>\n", p->out);
}

pisa_status quality_page_write(const char *path, const struct quality_set *sets, int n,
                               const struct quality_packs *packs, pisa_error *error) {
  struct page page = {.sets = sets, .n = n, .packs = packs};
  page.rows = calloc((size_t)sets[0].n_results, sizeof *page.rows); /* every set has as many */
  if (!page.rows)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the page");
  page.out = fopen(path, "w");
  bool failed = !page.out;
  if (!failed) {
    write_page(&page);
    failed = ferror(page.out) != 0;
    failed = fclose(page.out) != 0 || failed;
  }
  free(page.rows);
  return failed ? pisa_fail(error, PISA_IO, "cannot write '%s': %s", path, strerror(errno))
                : PISA_OK;
}
