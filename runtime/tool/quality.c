/* quality.c: `pisa quality`. Packs and tensors in; a table, JSON lines and a page out: what each
   pack loses against dense attention at each density, and what it costs. */
#include "runtime/tool/quality_select.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/tool/tool.h"

struct work {
  struct quality_options options;
  struct quality_packs packs;
  struct quality_set *sets; /* [n_sets] */
  int n_sets;
  FILE *table;
  char doing[2 * QUALITY_NAME + 32]; /* for the progress line */
  int step, steps, shown;
};

/* ---- progress ---- */

static void show(void *user, int64_t done, int64_t total) {
  struct work *w = user;
  int percent = (int)(100 * done / total);
  if (percent == w->shown)
    return;
  w->shown = percent;
  fprintf(stderr, "\r\033[Kpisa quality: %d of %d, %s: %3d %%", w->step, w->steps, w->doing,
          percent);
}

static quality_progress begin_step(struct work *w, const char *what, const char *scene) {
  snprintf(w->doing, sizeof w->doing, "%s, %s", scene, what);
  w->step++;
  w->shown = -1;
  return isatty(STDERR_FILENO) ? show : NULL;
}

static void end_step(void) {
  if (isatty(STDERR_FILENO))
    fprintf(stderr, "\r\033[K");
}

static int count_runs(const struct work *w) {
  int n = 0;
  for (int p = 0; p < w->packs.n; p++)
    n += quality_takes_density(&w->packs.items[p]) ? w->options.n_densities : 1;
  return n;
}

/* ---- one scene ---- */

static pisa_status measure(struct work *w, struct quality_set *set,
                           const struct quality_truth *truth, const struct quality_pack *pack,
                           double density, pisa_error *error) {
  struct quality_result *result = &set->results[set->n_results++];
  struct quality_run run = {.ordinal = w->options.ordinal,
                            .threads = (int)w->options.threads,
                            .progress = begin_step(w, pack->label, set->scene.name),
                            .user = w};
  pisa_status status = quality_measure(&set->scene, truth, pack, density, &run, result, error);
  end_step();
  if (status)
    return status;
  quality_table_row(w->table, result, set);
  if (w->options.json)
    quality_json(stdout, result, set);
  return PISA_OK;
}

static pisa_status measure_all(struct work *w, struct quality_set *set,
                               const struct quality_truth *truth, pisa_error *error) {
  pisa_status status = PISA_OK;
  for (int p = 0; p < w->packs.n; p++) {
    int length = (int)strlen(w->packs.items[p].label);
    set->label_width = set->label_width > length ? set->label_width : length;
  }
  quality_table_head(w->table, set);
  for (int p = 0; !status && p < w->packs.n; p++) {
    const struct quality_pack *pack = &w->packs.items[p];
    int n = quality_takes_density(pack) ? w->options.n_densities : 1;
    for (int i = 0; !status && i < n; i++)
      status = measure(w, set, truth, pack, w->options.densities[i], error);
  }
  return status;
}

/* |set->scene| is made. */
static pisa_status look_at(struct work *w, struct quality_set *set, pisa_error *error) {
  struct quality_truth truth = {0};
  set->results = calloc((size_t)count_runs(w), sizeof *set->results);
  if (!set->results)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the results");
  quality_progress progress = begin_step(w, "dense attention", set->scene.name);
  pisa_status status =
      quality_truth_make(&set->scene, (int)w->options.threads, progress, w, &truth, error);
  end_step();
  set->spread = truth.spread;
  set->spreads = truth.spreads;
  set->rounding = truth.rounding;
  truth.spreads = NULL;
  if (!status)
    status = measure_all(w, set, &truth, error);
  quality_truth_free(&truth);
  return status;
}

/* ---- all scenes ---- */

static pisa_status look_at_files(struct work *w, pisa_error *error) {
  struct quality_set *set = &w->sets[w->n_sets++];
  pisa_status status = quality_scene_read(&w->options, &w->packs, &set->scene, error);
  if (!status)
    status = look_at(w, set, error);
  quality_scene_forget(&set->scene);
  return status;
}

static pisa_status look_at_synthetic(struct work *w, pisa_error *error) {
  const struct quality_options *o = &w->options;
  pisa_status status = PISA_OK;
  for (int b = 0; !status && b < o->n_betweens; b++)
    for (int s = 0; !status && s < o->n_spreads; s++) {
      struct quality_set *set = &w->sets[w->n_sets++];
      status = quality_scene_make(o, &w->packs, o->spreads[s], o->betweens[b], &set->scene, error);
      if (!status)
        status = look_at(w, set, error);
      quality_scene_forget(&set->scene);
    }
  return status;
}

static pisa_status run(struct work *w, pisa_error *error) {
  int n = w->options.synthetic ? w->options.n_spreads * w->options.n_betweens : 1;
  pisa_status status = quality_packs_open(&w->options, &w->packs, error);
  if (status)
    return status;
  if (w->packs.items[0].chosen->method.family == PISA_PYRAMID)
    return quality_select(&w->options, &w->packs, w->table, error);
  if (!w->options.synthetic && !w->options.v)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "--v FILE is needed: the packs attend");
  w->sets = calloc((size_t)n, sizeof *w->sets);
  w->steps = n * (1 + count_runs(w));
  if (!w->sets)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the results");
  status = w->options.synthetic ? look_at_synthetic(w, error) : look_at_files(w, error);
  if (!status && w->options.html)
    status = quality_page_write(w->options.html, w->sets, w->n_sets, &w->packs, error);
  if (!status && (fflush(stdout) != 0 || ferror(stdout)))
    status = pisa_fail(error, PISA_IO, "cannot write to stdout: %s", strerror(errno));
  return status;
}

static void set_free(struct quality_set *set) {
  for (int i = 0; i < set->n_results; i++)
    quality_result_free(&set->results[i]);
  free(set->results);
  free(set->spreads);
  quality_scene_free(&set->scene);
}

int tool_quality(int argc, char **argv) {
  struct work w = {.table = stdout};
  pisa_error error = {0};
  int code;
  if (!quality_options_read(&w.options, QUALITY_COMPARE, argc, argv, &code))
    return code;
  if (w.options.json)
    w.table = stderr;
  pisa_status status = run(&w, &error);
  for (int i = 0; i < w.n_sets; i++)
    set_free(&w.sets[i]);
  free(w.sets);
  quality_packs_close(&w.packs);
  return status ? tool_report("quality", &error) : TOOL_DONE;
}
