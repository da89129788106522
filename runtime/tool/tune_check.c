/* tune_check.c: a tuned pack in; whether its table chooses well at shapes that were not tuned out.
   Shapes are drawn from the table's buckets; at each all schedules take turns, and the table's
   choice is compared with the fastest of them and with the variant as written. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/tool/bench.h"
#include "runtime/tool/random.h"
#include "runtime/tool/tool.h"
#include "runtime/tool/tune.h"

#define SLOWER_THAN_BEST 1.05
#define SLOWER_THAN_WRITTEN 1.01 /* the same, but for what nobody would see */
enum {
  ROUNDS = 9,
  MORE_ROUNDS = 36, /* before a shape counts as failed */
  MAX_CALLS = 10,
  BURST_MS = 15,
  PAUSE_MS = 3,
  MAX_SCHEDULES = 16
};

struct check {
  const struct tune_options *options;
  const pisa_pack *pack;
  const struct tune_device *on;
  pisa_module **modules; /* [n_variants], loaded when one is needed */
  struct random random;
  int failed;
};

struct shape {
  int group; /* the variant as written */
  int64_t batch, heads, tokens;
};

struct field { /* the schedules of a shape, and what they took */
  int variants[MAX_SCHEDULES];
  int n, chosen, best; /* indices of |variants|; the first is as written */
  int calls, rounds;
  double ms[MAX_SCHEDULES][MORE_ROUNDS];
  double over_best, over_written;
};

/* ---- shapes ---- */

/* Whether the row chooses something on this device: it is the best of more than one. */
static bool counts(const struct check *c, const struct pisa_tune_row *row) {
  const struct pisa_manifest *m = &c->pack->manifest;
  char device[PISA_TUNE_DEVICE];
  pisa_tune_device_word(c->on->device.name, device);
  return row->result == PISA_TUNE_BEST && !strcmp(row->key.device, device) &&
         row->key.driver == c->on->device.driver_version && row->key.phase == PISA_PREFILL &&
         row->variant < m->n_variants && !strcmp(row->ptx, m->variants[row->variant].ptx.sha256) &&
         tune_wants(c->options, c->pack, row->variant) &&
         tune_group_size(c->options, c->pack, row->variant) > 1;
}

static int count_rows(const struct check *c) {
  int n = 0;
  for (int i = 0; i < c->pack->tune.n; i++)
    n += counts(c, &c->pack->tune.rows[i]);
  return n;
}

static const struct pisa_tune_row *nth_row(const struct check *c, int n) {
  for (int i = 0; i < c->pack->tune.n; i++)
    if (counts(c, &c->pack->tune.rows[i]) && n-- == 0)
      return &c->pack->tune.rows[i];
  return NULL;
}

static bool is_tuned(const struct tune_options *o, int64_t tokens) {
  for (int i = 0; i < o->n_tokens; i++)
    if (o->tokens[i] == tokens)
      return true;
  return false;
}

/* Anywhere in the row's buckets but for powers of two and the lengths of --tokens. */
static struct shape draw_shape(struct check *c, const struct pisa_tune_row *row) {
  const struct pisa_method *m = &c->pack->manifest.variants[row->variant].method;
  const int64_t group = pisa_method_group(m), bucket = row->key.tokens;
  struct shape s = {.group = tune_group(c->options, c->pack, row->variant), .batch = 1};
  do
    s.tokens = bucket * 5 / 7 + random_below(&c->random, bucket * 7 / 10);
  while (s.tokens < 1 || s.tokens == bucket || is_tuned(c->options, s.tokens) ||
         pisa_tune_bucket(s.tokens) != bucket);
  do {
    s.batch = 1 + random_below(&c->random, row->key.heads < 4 ? 1 : 3);
    s.heads = group * (1 + random_below(&c->random, row->key.heads * 2));
  } while (pisa_tune_bucket(s.batch * s.heads) != row->key.heads);
  return s;
}

/* ---- times ---- */

static pisa_status time_turn(const struct check *c, const struct tune_load *load, int variant,
                             int calls, double *out, pisa_error *error) {
  const struct tune_device *on = c->on;
  const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
  float ms = 0;
  nanosleep(&pause, NULL);
  pisa_status status = pisa_event_record(&on->device, on->begin, on->stream, error);
  for (int i = 0; !status && i < calls; i++)
    status = pisa_launch(c->modules[variant], &load->request, load->workspace, load->bytes,
                         on->stream, error);
  if (!status)
    status = pisa_event_record(&on->device, on->end, on->stream, error);
  if (!status)
    status = pisa_event_elapsed(&on->device, on->begin, on->end, &ms, error);
  *out = fmax((double)ms / calls, 1e-6);
  return status;
}

/* Who begins moves on from round to round. */
static pisa_status run_rounds(const struct check *c, const struct tune_load *load, struct field *f,
                              pisa_error *error) {
  pisa_status status = PISA_OK;
  for (int r = 0; !status && r < ROUNDS; r++, f->rounds++)
    for (int turn = 0; !status && turn < f->n; turn++) {
      int who = (turn + f->rounds) % f->n;
      status = time_turn(c, load, f->variants[who], f->calls, &f->ms[who][f->rounds], error);
    }
  return status;
}

/* The median over rounds of what |a| took over what |b| took. */
static double ratio(const struct field *f, int a, int b) {
  double ratios[MORE_ROUNDS];
  for (int r = 0; r < f->rounds; r++)
    ratios[r] = f->ms[a][r] / f->ms[b][r];
  return bench_median(ratios, f->rounds);
}

static bool judge(struct field *f) {
  f->best = 0;
  for (int i = 1; i < f->n; i++)
    if (ratio(f, i, f->best) < 1)
      f->best = i;
  f->over_best = ratio(f, f->chosen, f->best);
  f->over_written = ratio(f, f->chosen, 0);
  return f->over_best <= SLOWER_THAN_BEST && f->over_written <= SLOWER_THAN_WRITTEN;
}

static double median_ms(const struct field *f, int i) {
  double ms[MORE_ROUNDS];
  memcpy(ms, f->ms[i], (size_t)f->rounds * sizeof *ms);
  return bench_median(ms, f->rounds);
}

/* ---- one shape ---- */

/* Variants that were found wrong are no rivals: their time is worth nothing. */
static bool is_wrong(const struct check *c, int variant) {
  const char *ptx = c->pack->manifest.variants[variant].ptx.sha256;
  for (int i = 0; i < c->pack->tune.n; i++)
    if (c->pack->tune.rows[i].result == PISA_TUNE_WRONG && !strcmp(c->pack->tune.rows[i].ptx, ptx))
      return true;
  return false;
}

static pisa_status fill_field(struct check *c, const struct shape *s, struct tune_load *load,
                              struct field *f, pisa_error *error) {
  int chosen = s->group;
  pisa_status status = pisa_tuned_variant(c->pack, s->group, &load->request, &chosen, error);
  for (int v = s->group; !status && v < c->pack->manifest.n_variants; v++) {
    if (!tune_wants(c->options, c->pack, v) || tune_group(c->options, c->pack, v) != s->group ||
        is_wrong(c, v) || f->n == MAX_SCHEDULES)
      continue;
    if (!c->modules[v])
      status = pisa_module_load(c->pack, v, 0, &c->modules[v], error);
    if (!status)
      status = tune_load_fit(load, c->modules[v], error);
    if (v == chosen)
      f->chosen = f->n;
    f->variants[f->n++] = v;
  }
  return status;
}

static pisa_status time_field(struct check *c, struct tune_load *load, struct field *f,
                              pisa_error *error) {
  double ms = 0;
  pisa_status status = time_turn(c, load, f->variants[0], 1, &ms, error);
  f->calls = (int)fmax(1, fmin(MAX_CALLS, BURST_MS / fmax(ms, 1e-6)));
  bool good = false;
  while (!status && !good && f->rounds < MORE_ROUNDS && !tune_is_interrupted()) {
    status = run_rounds(c, load, f, error);
    good = !status && judge(f);
  }
  c->failed += !status && !good && !tune_is_interrupted();
  return status;
}

static void report(const struct check *c, const struct shape *s, const struct field *f) {
  const struct pisa_variant *variants = c->pack->manifest.variants;
  const struct pisa_method *m = &variants[s->group].method;
  const char *best = variants[f->variants[f->best]].choices;
  const char *chosen = variants[f->variants[f->chosen]].choices;
  bool good = f->over_best <= SLOWER_THAN_BEST && f->over_written <= SLOWER_THAN_WRITTEN;
  fprintf(c->options->json ? stderr : stdout,
          "%3" PRId64 " x %3" PRId64 " heads, %6" PRId64 " tokens  %9.4f ms  %.3f of the best, "
          "%.3f of as written%s  %s\n",
          s->batch, s->heads, s->tokens, median_ms(f, f->chosen), f->over_best, f->over_written,
          good ? "" : "  TOO SLOW", chosen);
  if (!c->options->json)
    return;
  printf("{\"bench\": \"tune\", \"variant\": \"%s\", \"device\": \"%s\", \"driver\": %d, \"seed\": "
         "%" PRIu64 ", \"shape\": {\"B\": %" PRId64 ", \"H\": %" PRId64 ", \"Hk\": %" PRId64
         ", \"Nq\": %" PRId64 ", \"Nk\": %" PRId64 ", \"D\": %d, \"type\": \"%s\"}, ",
         c->pack->manifest.name, c->on->device.name, c->on->device.driver_version, c->options->seed,
         s->batch, s->heads, s->heads / pisa_method_group(m), s->tokens, s->tokens, m->head_dim,
         m->type == PISA_BF16 ? "bf16" : "fp16");
  printf("\"chosen\": \"%s\", \"best\": \"%s\", \"written\": \"%s\", \"rounds\": %d, \"ms\": %.5f, "
         "\"over_best\": %.4f, \"over_written\": %.4f}\n",
         chosen, best, variants[s->group].choices, f->rounds, median_ms(f, f->chosen), f->over_best,
         f->over_written);
}

static pisa_status check_shape(struct check *c, const struct shape *s, pisa_error *error) {
  struct tune_load load = {.on = NULL};
  static struct field f;
  f = (struct field){.n = 0};
  pisa_status status = PISA_OK;
  if (!c->modules[s->group])
    status = pisa_module_load(c->pack, s->group, 0, &c->modules[s->group], error);
  if (!status)
    status = tune_load_open(&load, c->on, c->modules[s->group], s->batch, s->heads, s->tokens,
                            c->options->seed, error);
  if (!status)
    status = fill_field(c, s, &load, &f, error);
  if (!status)
    status = time_field(c, &load, &f, error);
  if (!status && !tune_is_interrupted())
    report(c, s, &f);
  fflush(stdout);
  tune_load_close(&load);
  return status;
}

pisa_status tune_check(const struct tune_options *options, const pisa_pack *pack,
                       const struct tune_device *on, int *failed, pisa_error *error) {
  struct check c = {
      .options = options, .pack = pack, .on = on, .random = random_at(options->seed, 0, 0)};
  int rows = count_rows(&c);
  if (!rows)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "the table says nothing of this pack on %s: run `pisa tune` first",
                     on->device.name);
  c.modules = calloc((size_t)pack->manifest.n_variants, sizeof(pisa_module *));
  if (!c.modules)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for modules");
  fprintf(options->json ? stderr : stdout, "%" PRId64 " shapes, seed %" PRIu64 "\n", options->check,
          options->seed);
  pisa_status status = PISA_OK;
  for (int64_t i = 0; !status && i < options->check && !tune_is_interrupted(); i++) {
    struct shape s = draw_shape(&c, nth_row(&c, (int)(i % rows)));
    status = check_shape(&c, &s, error);
  }
  for (int v = 0; v < pack->manifest.n_variants; v++)
    pisa_module_unload(c.modules[v]);
  free(c.modules);
  *failed = c.failed;
  return status;
}
