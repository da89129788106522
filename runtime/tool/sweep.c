/* sweep.c: `pisa sweep`: a pack and tensors in; what each choice that changes results loses and
   takes, and with a bound the fastest that holds it, recorded in PACK.tune, out. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/sweep.h"
#include "runtime/tool/tool.h"

struct session {
  struct sweep sweep; /* first: the callbacks get it */
  struct sweep_clock *clock;
  FILE *table;
  struct tune_progress progress;
};

void sweep_budget(const struct sweep_point *p, char *out, size_t size) {
  const struct pisa_method *m = &p->pack->chosen->method;
  if (m->dense)
    snprintf(out, size, "dense");
  else if (m->family == PISA_PYRAMID)
    snprintf(out, size, "keep %" PRId64, m->keep);
  else if (m->budget == PISA_BUDGET_THRESHOLD)
    snprintf(out, size, "tau %g", (double)m->threshold_num / (double)m->threshold_den);
  else if (p->density > 0)
    snprintf(out, size, "density %g", p->density);
  else
    snprintf(out, size, "spec");
}

/* ---- points ---- */

static int count_points(const struct sweep *s) {
  int n = 0;
  for (int p = 0; p < s->packs.n; p++)
    n += !s->selects && quality_takes_density(&s->packs.items[p]) ? s->options.n_densities : 1;
  return n;
}

static void show_next(struct session *session) {
  session->progress.done = session->sweep.n;
  tune_progress_show(&session->progress, session->sweep.scene.name);
}

static pisa_status add_point(struct sweep *s, struct sweep_point point, pisa_error *error) {
  struct session *session = (struct session *)s;
  pisa_status status = session->clock ? sweep_clock_time(session->clock, &point, error) : PISA_OK;
  if (status)
    return status;
  s->points[s->n++] = point;
  show_next(session);
  return PISA_OK;
}

/* ---- what is printed ---- */

static int label_width(const struct sweep *s) {
  int width = 7;
  for (int p = 0; p < s->packs.n; p++) {
    int length = (int)strlen(s->packs.items[p].label);
    width = width > length ? width : length;
  }
  return width;
}

static void print_head(FILE *out, const struct sweep *s) {
  fprintf(out, "%s on %s: %" PRId64 " heads, %" PRId64 " queries x %" PRId64 " keys",
          s->packs.items[0].pack->manifest.name, s->scene.name, s->scene.heads, s->scene.n_q,
          s->scene.n_k);
  if (s->timed)
    fprintf(out, "; ms of %" PRId64 " heads on %s", s->times_heads, s->on.device.name);
  fprintf(out, "\n  %-*s %14s %9s %8s %8s %8s%s\n", label_width(s), "variant", "budget", "error",
          "recall", "mass", "cost", s->timed ? "        ms" : "");
}

static void print_point(FILE *out, const struct sweep *s, const struct sweep_point *p) {
  char budget[64], error[32];
  sweep_budget(p, budget, sizeof budget);
  snprintf(error, sizeof error, s->selects ? "-" : "%.4f", p->error);
  fprintf(out, "%c %-*s %14s %9s %7.1f%% %7.1f%% %7.1f%%", p->front ? '*' : ' ', label_width(s),
          p->pack->label, budget, error, 100 * p->recall, 100 * p->mass, 100 * p->cost);
  if (s->timed)
    fprintf(out, " %9.4f", p->ms);
  fputc('\n', out);
}

static void print_json(const struct sweep *s, const struct sweep_point *p, bool chosen) {
  fputs("{\"bench\": \"sweep\", \"spec\": ", stdout);
  verify_json_string(stdout, p->pack->pack->manifest.name);
  fputs(", \"variant\": ", stdout);
  verify_json_string(stdout, p->pack->chosen->choices);
  fputs(", \"tensors\": ", stdout);
  verify_json_string(stdout, s->scene.name);
  printf(", \"density\": %.9g, ", p->density);
  if (!s->selects)
    verify_json_number(stdout, "error", p->error);
  verify_json_number(stdout, "recall", p->recall);
  verify_json_number(stdout, "mass", p->mass);
  verify_json_number(stdout, "cost", p->cost);
  if (s->timed)
    verify_json_number(stdout, "ms", p->ms);
  printf("\"front\": %s, \"chosen\": %s}\n", p->front ? "true" : "false",
         chosen ? "true" : "false");
}

static void print_all(const struct session *session, int chosen) {
  const struct sweep *s = &session->sweep;
  print_head(session->table, s);
  for (int i = 0; i < s->n; i++) {
    print_point(session->table, s, &s->points[i]);
    if (s->options.json)
      print_json(s, &s->points[i], i == chosen);
  }
  fprintf(session->table, "* no other point is both %s and better\n",
          s->timed ? "faster" : "cheaper");
}

/* ---- the choice ---- */

/* Shares are written with nine places, so that they are rounded away from the bound by nobody. */
static int64_t billionths(double share) {
  return llround(fmin(1, fmax(0, share)) * PISA_TUNE_BILLION);
}

static pisa_status record(const struct sweep *s, const struct sweep_point *p, pisa_error *error) {
  const struct quality_options *o = &s->options;
  pisa_pack *pack = s->packs.open[0];
  char path[4096];
  bool by_error = o->max_error > 0;
  struct pisa_tune_choice choice = {.present = true,
                                    .variant = p->pack->variant,
                                    .density = billionths(p->density),
                                    .bound = by_error ? PISA_TUNE_MAX_ERROR : PISA_TUNE_MIN_RECALL,
                                    .limit = billionths(by_error ? o->max_error : o->min_recall),
                                    .reached = billionths(by_error ? p->error : p->recall)};
  memcpy(choice.ptx, p->pack->chosen->ptx.sha256, sizeof choice.ptx);
  if ((size_t)snprintf(path, sizeof path, "%s.tune", o->packs.items[0]) >= sizeof path)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "the path of the pack is too long");
  pack->tune.choice = choice;
  return pisa_tune_save(path, &pack->tune, error);
}

static void tell_choice(const struct session *session, const struct sweep_point *p) {
  char budget[64];
  sweep_budget(p, budget, sizeof budget);
  fprintf(session->table, "chosen and recorded in %s.tune: variant %d (%s), %s\n",
          session->sweep.options.packs.items[0], p->pack->variant, p->pack->label, budget);
}

/* The bound is wrong for this pack: nothing is recorded, and what was is left alone. */
static pisa_status tell_nearest(const struct sweep *s, pisa_error *error) {
  bool by_error = s->options.max_error > 0;
  double nearest = by_error ? INFINITY : 0;
  for (int i = 0; i < s->n; i++)
    nearest = by_error ? fmin(nearest, s->points[i].error) : fmax(nearest, s->points[i].recall);
  return pisa_fail(error, PISA_UNSUPPORTED, "no point holds --%s %g: the %s is %.4f",
                   by_error ? "max-error" : "min-recall",
                   by_error ? s->options.max_error : s->options.min_recall,
                   by_error ? "least error" : "highest recall", nearest);
}

static pisa_status finish(struct session *session, pisa_error *error) {
  struct sweep *s = &session->sweep;
  bool bounded = s->options.max_error > 0 || s->options.min_recall > 0;
  sweep_find_front(s);
  int chosen = sweep_pick(s);
  print_all(session, chosen);
  pisa_status status =
      s->options.html ? sweep_page_write(s->options.html, s, chosen, error) : PISA_OK;
  if (!status && bounded)
    status = chosen < 0 ? tell_nearest(s, error) : record(s, &s->points[chosen], error);
  if (!status && chosen >= 0)
    tell_choice(session, &s->points[chosen]);
  return status;
}

/* ---- the order of the work ---- */

static pisa_status open_scene(struct sweep *s, pisa_error *error) {
  const struct quality_options *o = &s->options;
  if (!s->selects && !o->synthetic && !o->v)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "--v FILE is needed: the pack attends");
  return o->synthetic && !s->selects
             ? quality_scene_make(o, &s->packs, o->spreads[0], o->betweens[0], &s->scene, error)
         : o->synthetic ? PISA_OK /* sweep_select refuses it */
                        : quality_scene_read(o, &s->packs, &s->scene, error);
}

static pisa_status open_clock(struct session *session, pisa_error *error) {
  struct sweep *s = &session->sweep;
  if (s->options.ordinal < 0 || s->scene.heads == 0)
    return PISA_OK;
  if (s->options.ordinal > 0)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "sweeps are timed on cuda:0; CUDA_VISIBLE_DEVICES names another");
  s->timed = true;
  pisa_status status = tune_device_open(&s->on, error);
  return status ? status : sweep_clock_open(s, &session->clock, error);
}

static pisa_status run(struct session *session, pisa_error *error) {
  struct sweep *s = &session->sweep;
  pisa_status status = quality_packs_open(&s->options, &s->packs, error);
  if (status)
    return status;
  s->selects = s->packs.items[0].chosen->method.family == PISA_PYRAMID;
  s->room = count_points(s);
  s->points = calloc((size_t)s->room, sizeof *s->points);
  if (!s->points)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the points");
  session->progress = (struct tune_progress){.todo = s->room, .begin = verify_seconds()};
  status = open_scene(s, error);
  if (!status)
    status = open_clock(session, error);
  if (!status)
    status = (s->selects ? sweep_select : sweep_attend)(s, add_point, error);
  tune_progress_hide();
  return status ? status : finish(session, error);
}

int tool_sweep(int argc, char **argv) {
  static struct session session;
  pisa_error error = {0};
  int code;
  session.table = stdout;
  if (!quality_options_read(&session.sweep.options, QUALITY_SWEEP, argc, argv, &code))
    return code;
  session.sweep.options.all = true;
  if (session.sweep.options.json)
    session.table = stderr;
  pisa_status status = run(&session, &error);
  sweep_clock_close(session.clock);
  if (session.sweep.on.device.cuda)
    tune_device_close(&session.sweep.on);
  quality_scene_free(&session.sweep.scene);
  free(session.sweep.points);
  quality_packs_close(&session.sweep.packs);
  return status ? tool_report("sweep", &error) : TOOL_DONE;
}
