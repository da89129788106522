/* tune.c: `pisa tune`: a pack and lengths in; for every group of variants and bucket of lengths the
   fastest schedule on this GPU out, in PACK.tune. The file is replaced after every variant. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/tool.h"
#include "runtime/tool/tune.h"

enum { CHOICES = 256 };

struct tune {
  struct tune_options options;
  char path[4096]; /* of the table, which is pack->tune */
  pisa_pack *pack;
  struct tune_device on;
  struct tune_bucket buckets[OPTIONS_MAX_TOKENS];
  int n_buckets;
  struct verify_session verify;
  signed char *sound; /* [n_variants] 0: not verified yet, 1: passed, -1: failed */
  struct tune_progress progress;
  bool interrupted;
  int wrong; /* variants that failed */
};

/* ---- rows ---- */

static const struct pisa_variant *variant_of(const struct tune *t, int variant) {
  return &t->pack->manifest.variants[variant];
}

static struct pisa_tune_key key_of(const struct tune *t, const struct tune_bucket *bucket,
                                   int variant) {
  int64_t heads = t->options.heads ? t->options.heads : variant_of(t, variant)->method.heads;
  struct pisa_tune_key key = {.driver = t->on.device.driver_version,
                              .phase = PISA_PREFILL,
                              .tokens = bucket->tokens,
                              .heads = pisa_tune_bucket(t->options.batch * heads)};
  pisa_tune_device_word(t->on.device.name, key.device);
  return key;
}

static struct pisa_tune_row *find_row(const struct tune *t, const struct tune_bucket *bucket,
                                      int variant) {
  const struct pisa_tune_key key = key_of(t, bucket, variant);
  for (int i = 0; i < t->pack->tune.n; i++) {
    struct pisa_tune_row *row = &t->pack->tune.rows[i];
    if (row->variant == variant && pisa_tune_same_key(&row->key, &key) &&
        !strcmp(row->ptx, variant_of(t, variant)->ptx.sha256))
      return row;
  }
  return NULL;
}

static bool is_in(const struct tune *t, int group, int variant) {
  return tune_wants(&t->options, t->pack, variant) &&
         tune_group(&t->options, t->pack, variant) == group;
}

/* The best of |group| so far; -1: none. */
static int find_best(const struct tune *t, const struct tune_bucket *bucket, int group) {
  for (int v = group; v < t->pack->manifest.n_variants; v++) {
    const struct pisa_tune_row *row = is_in(t, group, v) ? find_row(t, bucket, v) : NULL;
    if (row && row->result == PISA_TUNE_BEST)
      return v;
  }
  return -1;
}

static pisa_status record(struct tune *t, const struct tune_bucket *bucket, int variant,
                          const struct tune_outcome *outcome, enum pisa_tune_result result,
                          pisa_error *error) {
  struct pisa_tune_row row = {.key = key_of(t, bucket, variant),
                              .variant = variant,
                              .ns = (int64_t)(outcome->challenger * 1e6),
                              .rounds = outcome->rounds,
                              .result = result};
  memcpy(row.ptx, variant_of(t, variant)->ptx.sha256, sizeof row.ptx);
  pisa_status status = pisa_tune_put(&t->pack->tune, &row, error);
  return status ? status : pisa_tune_save(t->path, &t->pack->tune, error);
}

/* Rows about other code than the pack's, and with --again those of this device. */
static void drop_rows(struct tune *t) {
  struct pisa_tune *table = &t->pack->tune;
  char device[PISA_TUNE_DEVICE];
  int n = 0;
  pisa_tune_device_word(t->on.device.name, device);
  for (int i = 0; i < table->n; i++) {
    const struct pisa_tune_row *row = &table->rows[i];
    bool known = row->variant < t->pack->manifest.n_variants &&
                 !strcmp(variant_of(t, row->variant)->ptx.sha256, row->ptx);
    if (known && !(t->options.again && !strcmp(row->key.device, device)))
      table->rows[n++] = *row;
  }
  table->n = n;
}

/* ---- verification ---- */

/* A small sample: whole blocks, an odd number of them, and a ragged end; few heads. */
static void prepare_session(struct tune *t, const struct pisa_method *method) {
  static const int64_t attended[] = {1000, 1536, 1600}, selected[] = {513, 2049};
  struct gpu_options *o = &t->verify.options;
  bool selects = method->family == PISA_PYRAMID;
  *o = (struct gpu_options){.pack = t->options.pack, .layout = -1, .seed = t->options.seed};
  o->n_tokens = selects ? 2 : 3;
  memcpy(o->tokens, selects ? selected : attended, (size_t)o->n_tokens * sizeof *o->tokens);
  o->heads = (selects ? 1 : 2) * pisa_method_group(method);
  t->verify.pack = t->pack;
  t->verify.device = t->on.device;
  t->verify.stream = t->on.stream;
}

static pisa_status verify_now(struct tune *t, int variant, pisa_error *error) {
  char *said = NULL;
  size_t size = 0;
  FILE *table = open_memstream(&said, &size);
  if (!table)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for a report");
  prepare_session(t, &variant_of(t, variant)->method);
  t->verify.report = (struct verify_report){.table = table, .seed = t->options.seed};
  int code = verify_variant(&t->verify, variant);
  fclose(table);
  t->sound[variant] = code == TOOL_DONE ? 1 : -1;
  if (code != TOOL_DONE) {
    tune_progress_hide();
    fprintf(stderr, "%s", said);
  }
  free(said);
  if (code != TOOL_DONE && code != TOOL_NOT_VERIFIED)
    return pisa_fail(error, PISA_DRIVER, "variant %d could not be verified", variant);
  return PISA_OK;
}

/* Variants of the same code are verified once. */
static pisa_status verify(struct tune *t, int variant, bool *sound, pisa_error *error) {
  pisa_status status = PISA_OK;
  for (int v = 0; v < t->pack->manifest.n_variants && !t->sound[variant]; v++)
    if (!strcmp(variant_of(t, v)->ptx.sha256, variant_of(t, variant)->ptx.sha256))
      t->sound[variant] = t->sound[v];
  if (t->options.unverified)
    t->sound[variant] = 1;
  if (!t->sound[variant])
    status = verify_now(t, variant, error);
  *sound = t->sound[variant] > 0;
  return status;
}

/* ---- one variant ---- */

static void print_row(const struct tune *t, const struct tune_bucket *bucket, int variant,
                      const struct tune_outcome *outcome, const char *verdict) {
  char choices[CHOICES];
  tune_choices(variant_of(t, variant)->choices, true, choices, sizeof choices);
  tune_progress_hide();
  printf("%8" PRId64 "  %-36s", bucket->tokens, *choices ? choices : "(as written)");
  if (outcome->rounds)
    printf(" %9.4f ms", outcome->challenger);
  else
    printf(" %9s   ", "-");
  if (outcome->champion > 0)
    printf(" %7.3f of the best,", outcome->ratio);
  printf(" %s\n", verdict);
  fflush(stdout);
}

static pisa_status settle(struct tune *t, const struct tune_bucket *bucket, int best, int variant,
                          const struct tune_outcome *outcome, pisa_error *error) {
  bool ahead = outcome->verdict == TUNE_FASTER, faster = ahead && outcome->everywhere;
  print_row(t, bucket, variant, outcome,
            faster  ? "best so far"
            : ahead ? "but not faster than as written everywhere"
                    : "not faster");
  if (faster && best >= 0)
    find_row(t, bucket, best)->result = PISA_TUNE_SLOWER;
  return record(t, bucket, variant, outcome, faster ? PISA_TUNE_BEST : PISA_TUNE_SLOWER, error);
}

static pisa_status fit_all(struct tune_load *loads, int n, const pisa_module *module,
                           pisa_error *error) {
  pisa_status status = PISA_OK;
  for (int i = 0; !status && i < n; i++)
    status = tune_load_fit(&loads[i], module, error);
  return status;
}

/* The calls of a bucket. */
struct loads {
  struct tune_load loads[TUNE_MAX_LOADS];
  int n;
};

/* |champion| -1: |challenger| alone. */
static pisa_status race(const struct tune *t, struct loads *l, int champion, int challenger,
                        struct tune_outcome *out, pisa_error *error) {
  pisa_module *modules[2] = {NULL, NULL};
  pisa_status status = pisa_module_load(t->pack, challenger, 0, &modules[1], error);
  if (!status && champion >= 0)
    status = pisa_module_load(t->pack, champion, 0, &modules[0], error);
  for (int i = 0; !status && i < 2; i++)
    if (modules[i])
      status = fit_all(l->loads, l->n, modules[i], error);
  const struct tune_racer racers[2] = {{modules[0], l->loads}, {modules[1], l->loads}};
  if (!status)
    status = tune_race(&t->on, champion < 0 ? NULL : &racers[0], &racers[1], l->n,
                       t->options.rounds, out, error);
  pisa_module_unload(modules[0]);
  pisa_module_unload(modules[1]);
  return status;
}

/* |variant| against the best so far; where it wins and that is not |group|, the variant as written,
   against that too. */
static pisa_status compete(struct tune *t, const struct tune_bucket *bucket, struct loads *l,
                           int group, int variant, pisa_error *error) {
  struct tune_outcome outcome, over_written;
  int best = find_best(t, bucket, group);
  pisa_status status = race(t, l, best, variant, &outcome, error);
  const struct pisa_tune_row *written = find_row(t, bucket, group);
  bool other = best >= 0 && best != group && written && written->result != PISA_TUNE_WRONG;
  if (!status && !outcome.interrupted && other && outcome.verdict == TUNE_FASTER) {
    status = race(t, l, group, variant, &over_written, error);
    outcome.everywhere = over_written.everywhere;
    outcome.interrupted = over_written.interrupted;
  } else if (other || best != group) {
    outcome.everywhere = true;
  }
  t->interrupted = !status && outcome.interrupted;
  return status || t->interrupted ? status : settle(t, bucket, best, variant, &outcome, error);
}

static pisa_status try_variant(struct tune *t, const struct tune_bucket *bucket, struct loads *l,
                               int group, int variant, pisa_error *error) {
  static const struct tune_outcome nothing = {.rounds = 0};
  char doing[CHOICES + 64];
  bool sound = false;
  snprintf(doing, sizeof doing, "%s, %" PRId64 " tokens", variant_of(t, variant)->choices,
           bucket->tokens);
  tune_progress_show(&t->progress, doing);
  pisa_status status = verify(t, variant, &sound, error);
  if (!status && sound)
    status = compete(t, bucket, l, group, variant, error);
  if (!status && !sound) {
    print_row(t, bucket, variant, &nothing, "wrong: never chosen");
    status = record(t, bucket, variant, &nothing, PISA_TUNE_WRONG, error);
  }
  t->progress.done += !t->interrupted;
  return status;
}

/* ---- groups ---- */

static bool is_open(const struct tune *t, const struct tune_bucket *bucket, int group,
                    int variant) {
  return is_in(t, group, variant) && !find_row(t, bucket, variant);
}

/* Variants of |group| that have no row yet. */
static int count_open(const struct tune *t, const struct tune_bucket *bucket, int group) {
  int n = 0;
  for (int v = group; v < t->pack->manifest.n_variants; v++)
    n += is_open(t, bucket, group, v);
  return n;
}

static bool is_group(const struct tune *t, int variant) {
  return is_in(t, variant, variant) && tune_group_size(&t->options, t->pack, variant) > 1;
}

static pisa_status open_loads(const struct tune *t, const struct tune_bucket *bucket, int group,
                              struct loads *l, pisa_error *error) {
  const struct pisa_method *method = &variant_of(t, group)->method;
  const struct tune_options *o = &t->options;
  struct tune_shape shapes[TUNE_MAX_LOADS];
  pisa_module *module = NULL;
  pisa_status status = pisa_module_load(t->pack, group, 0, &module, error);
  l->n = tune_shapes(bucket, o->batch, o->heads ? o->heads : method->heads,
                     pisa_method_group(method), shapes);
  for (int i = 0; !status && i < l->n; i++)
    status = tune_load_open(&l->loads[i], &t->on, module, o->batch, shapes[i].heads,
                            shapes[i].tokens, o->seed, error);
  pisa_module_unload(module);
  return status;
}

static pisa_status tune_bucket_of(struct tune *t, const struct tune_bucket *bucket, int group,
                                  pisa_error *error) {
  static struct loads l;
  l = (struct loads){.n = 0};
  if (!count_open(t, bucket, group))
    return PISA_OK;
  pisa_status status = open_loads(t, bucket, group, &l, error);
  for (int v = group; !status && v < t->pack->manifest.n_variants; v++) {
    t->interrupted = t->interrupted || tune_is_interrupted();
    if (!t->interrupted && is_open(t, bucket, group, v))
      status = try_variant(t, bucket, &l, group, v, error);
  }
  for (int i = 0; i < l.n; i++)
    tune_load_close(&l.loads[i]);
  return status;
}

static pisa_status tune_groups(struct tune *t, pisa_error *error) {
  pisa_status status = PISA_OK;
  for (int group = 0; group < t->pack->manifest.n_variants; group++) {
    char choices[CHOICES];
    if (status || t->interrupted || !is_group(t, group))
      continue;
    tune_choices(variant_of(t, group)->choices, false, choices, sizeof choices);
    printf("%s%s%s\n", t->pack->manifest.name, *choices ? ", " : "", choices);
    for (int b = 0; !status && !t->interrupted && b < t->n_buckets; b++)
      status = tune_bucket_of(t, &t->buckets[b], group, error);
  }
  return status;
}

/* ---- what was found ---- */

static void print_bucket(struct tune *t, const struct tune_bucket *bucket, int group) {
  for (int v = group; v < t->pack->manifest.n_variants; v++) {
    const struct pisa_tune_row *row = is_in(t, group, v) ? find_row(t, bucket, v) : NULL;
    if (!row || row->result == PISA_TUNE_SLOWER)
      continue;
    printf("%8" PRId64 "  variant %d  %s%s\n", bucket->tokens, v, variant_of(t, v)->choices,
           row->result == PISA_TUNE_WRONG ? ": wrong" : "");
    t->wrong += row->result == PISA_TUNE_WRONG;
  }
}

static void print_best(struct tune *t) {
  printf("\n%s: the fastest on %s\n", t->path, t->on.device.name);
  for (int group = 0; group < t->pack->manifest.n_variants; group++)
    for (int b = 0; is_group(t, group) && b < t->n_buckets; b++)
      print_bucket(t, &t->buckets[b], group);
}

static int64_t longest(const struct tune *t) {
  int64_t most = 0;
  for (int b = 0; b < t->n_buckets; b++)
    for (int i = 0; i < t->buckets[b].n; i++)
      most = t->buckets[b].lengths[i] > most ? t->buckets[b].lengths[i] : most;
  return most;
}

/* The first variant that is looked at; -1: none. */
static int first_wanted(const struct tune *t) {
  for (int v = 0; v < t->pack->manifest.n_variants; v++)
    if (tune_wants(&t->options, t->pack, v))
      return v;
  return -1;
}

static pisa_status work(struct tune *t, pisa_error *error) {
  int first = first_wanted(t), groups = 0;
  if (first < 0)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "no variant with a prefill phase has these settings; `pisa info` lists them");
  const struct pisa_method *method = &variant_of(t, first)->method;
  if (t->options.heads % pisa_method_group(method))
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "--heads is no multiple of the spec's heads / kv_heads");
  t->n_buckets = tune_buckets(&t->options, method->family == PISA_PYRAMID, t->buckets);
  drop_rows(t);
  for (int group = 0; group < t->pack->manifest.n_variants; group++) {
    groups += is_group(t, group);
    for (int b = 0; is_group(t, group) && b < t->n_buckets; b++)
      t->progress.todo += count_open(t, &t->buckets[b], group);
  }
  t->progress.begin = verify_seconds();
  pisa_status status = tune_groups(t, error);
  if (!status && !groups)
    printf("%s: no variants differ in schedule alone: nothing to tune\n", t->options.pack);
  if (!status && groups)
    print_best(t);
  if (!status && !t->interrupted)
    status = tune_crossover(&t->options, t->pack, first, &t->on, longest(t), error);
  return status;
}

static int check(struct tune *t, pisa_error *error) {
  int failed = 0;
  if (tune_check(&t->options, t->pack, &t->on, &failed, error))
    return tool_report("tune", error);
  if (tune_is_interrupted())
    return tool_say("tune", TUNE_INTERRUPTED, "interrupted");
  if (failed)
    return tool_say("tune", TOOL_NOT_VERIFIED, "the choice is too slow at %d of %" PRId64 " shapes",
                    failed, t->options.check);
  return TOOL_DONE;
}

static int run(struct tune *t, pisa_error *error) {
  pisa_status status = pisa_pack_open(t->options.pack, &t->pack, error);
  if (status)
    return tool_report("tune", error);
  if ((size_t)snprintf(t->path, sizeof t->path, "%s.tune", t->options.pack) >= sizeof t->path)
    return tool_say("tune", TOOL_WRONG_INPUT, "the path of the pack is too long");
  t->sound = calloc((size_t)t->pack->manifest.n_variants, sizeof *t->sound);
  if (!t->sound)
    return tool_say("tune", TOOL_WORLD_FAILED, "not enough host memory");
  status = tune_device_open(&t->on, error);
  if (!status && t->options.check)
    return check(t, error);
  if (!status)
    status = work(t, error);
  tune_progress_hide();
  if (status)
    return tool_report("tune", error);
  if (t->interrupted || tune_is_interrupted())
    return tool_say("tune", TUNE_INTERRUPTED,
                    "interrupted with %d of %d done; the same command goes on", t->progress.done,
                    t->progress.todo);
  return t->wrong ? TOOL_NOT_VERIFIED : TOOL_DONE;
}

int tool_tune(int argc, char **argv) {
  static struct tune t;
  pisa_error error = {0};
  int code;
  if (!tune_options_read(&t.options, argc, argv, &code))
    return code;
  tune_catch_interrupts();
  code = run(&t, &error);
  if (t.on.device.cuda)
    tune_device_close(&t.on);
  free(t.sound);
  pisa_pack_close(t.pack);
  return code;
}
