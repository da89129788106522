/* verify.c: `pisa verify`: a pack and options in; every case on every code of the pack, a report
   and an exit code out. With --both a case runs on the cubin and then on the PTX; where the bits
   agree, so do the errors, and the oracle runs once. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/launch.h"
#include "runtime/tool/tool.h"
#include "runtime/tool/verify_select.h"

enum { MAX_CODES = VERIFY_MAX_CODES, WATCHDOG_SECONDS = 30 };

struct attempt { /* one code at one case */
  struct verify_outputs outputs;
  struct verify_result result;
};

static void note_exit(struct verify_session *s, int code) {
  if (code > s->exit_code)
    s->exit_code = code;
}

/* ---- which cases ---- */

static bool changed(const struct gpu_options *o) {
  return o->only || o->n_tokens || o->batch || o->heads || o->layout >= 0 || o->density > 0 ||
         o->keep || o->quick || o->no_poison || o->prefill || o->decode;
}

static void apply_options(struct verify_case *test, const struct gpu_options *o,
                          const struct pisa_method *method) {
  if (pisa_method_group(method) > 1 && test->kv_heads > 2)
    test->kv_heads = 2; /* enough to tell them apart; the oracle is slow */
  if (o->batch && !test->lengths)
    test->batch = o->batch;
  if (o->heads)
    test->kv_heads = o->heads / pisa_method_group(method);
  if (o->layout >= 0)
    test->layout = (enum verify_layout)o->layout;
  if (o->density > 0 || o->keep) {
    test->density = o->density;
    test->keep = o->keep;
  }
  if (method->dense || method->budget == PISA_BUDGET_THRESHOLD || test->given || test->below) {
    test->density = 0;
    test->keep = 0;
  }
}

/* Pages are laid out in arrays of whole ones, tokens first. */
static bool has_phase(const struct verify_case *test, const struct pisa_method *method) {
  if (method->page && (test->layout != VERIFY_BNHD || test->n_k % method->page))
    return false;
  return test->decode ? method->decode : method->prefill;
}

/* Whether the method has what the case is about. */
static bool makes_sense(const struct verify_case *test, const struct pisa_method *method) {
  bool threshold = !method->dense && method->budget == PISA_BUDGET_THRESHOLD;
  bool square_overflows = test->input == VERIFY_GAIN && method->type == PISA_FP16 &&
                          pisa_wants_k_variance(method); /* q beyond 4096: o would be NaN */
  return !((test->routed || test->given) && method->dense) &&
         !(test->windowed && !method->has_window) && !(test->budgeted && threshold) &&
         !(test->threshold_den && !threshold) && !(test->below && !method->dense_below) &&
         !square_overflows && !(test->halves && method->type != PISA_FP16) &&
         !(test->permute && method->mask == PISA_MASK_CAUSAL) && has_phase(test, method);
}

static void add_case(struct verify_session *s, struct verify_case test,
                     const struct pisa_method *method) {
  apply_options(&test, &s->options, method);
  if (s->n_cases < VERIFY_MAX_CASES && makes_sense(&test, method))
    s->cases[s->n_cases++] = test;
}

static bool wanted(const struct gpu_options *o, const struct verify_case *test, int variant) {
  if (o->only && strcmp(o->only, test->name) != 0)
    return false;
  return (!o->quick || test->quick) && !(test->decode ? o->prefill : o->decode) &&
         (!test->longest || (o->longest && variant == 0));
}

static void choose_cases(struct verify_session *s, const struct pisa_method *method, int variant) {
  const struct gpu_options *o = &s->options;
  s->n_cases = 0;
  for (int i = 0; i < o->n_tokens; i++)
    add_case(s,
             (struct verify_case){
                 .name = "random", .batch = 1, .n_q = o->tokens[i], .n_k = o->tokens[i]},
             method);
  for (int i = 0; !o->n_tokens && i < verify_n_cases; i++)
    if (wanted(o, &verify_cases[i], variant))
      add_case(s, verify_cases[i], method);
}

/* ---- one case ---- */

/* A kernel that waits for ever cannot be stopped: the process ends, and the table shows the case.
 */
static void on_alarm(int number) {
  static const char message[] = "\npisa verify: a launch did not end; giving up\n";
  (void)number;
  if (write(STDERR_FILENO, message, sizeof message - 1) < 0)
    _exit(TOOL_WORLD_FAILED);
  _exit(TOOL_NOT_VERIFIED);
}

void verify_watch(const struct verify_session *s) {
  if (!s->options.quick) /* under compute-sanitizer nobody knows how long it takes */
    alarm(WATCHDOG_SECONDS);
}

void verify_unwatch(void) {
  alarm(0);
}

static pisa_status run(const struct verify_session *s, struct verify_call *call,
                       enum verify_mode mode, struct attempt *attempt,
                       struct verify_outputs *outputs, pisa_error *error) {
  verify_watch(s);
  pisa_status status = verify_call_run(call, mode, outputs, &attempt->result, error);
  verify_unwatch();
  return status;
}

/* Once more in every mode: the bits must not change. */
static pisa_status run_again(const struct verify_session *s, struct verify_call *call,
                             struct attempt *attempt, pisa_error *error) {
  static const struct {
    enum verify_mode mode;
    const char *what;
  } modes[] = {{VERIFY_DIRECT, "a second launch"},
               {VERIFY_GRAPH, "a graph launch"},
               {VERIFY_BARE, "a launch without lse and blocks"}};
  pisa_status status = PISA_OK;
  for (size_t i = 0; !status && i < sizeof modes / sizeof *modes; i++) {
    struct verify_outputs outputs;
    status = run(s, call, modes[i].mode, attempt, &outputs, error);
    const char *where =
        status ? NULL
               : verify_difference(call, &attempt->outputs, &outputs, modes[i].mode != VERIFY_BARE);
    if (where)
      verify_fail(&attempt->result, "%s gave other bits in %s", modes[i].what, where);
    verify_outputs_free(&outputs);
  }
  return status;
}

static pisa_status run_permuted(const struct verify_session *s, struct verify_call *call,
                                const struct verify_case *test, struct attempt *attempt,
                                pisa_error *error) {
  struct verify_outputs outputs = {0};
  verify_permute(&call->inputs, s->report.seed);
  pisa_status status = verify_call_upload(call, error);
  if (!status)
    status = run(s, call, VERIFY_DIRECT, attempt, &outputs, error);
  if (!status)
    verify_unchanged(call, &attempt->outputs, &outputs, &attempt->result);
  verify_outputs_free(&outputs);
  verify_fill(&call->inputs, test->input, call->module->method.type, s->report.seed);
  return status ? status : verify_call_upload(call, error);
}

/* |other|: a finished attempt of the same case, or NULL. */
static pisa_status run_code(const struct verify_session *s, struct verify_call *call,
                            const struct verify_case *test, const struct attempt *other,
                            struct attempt *attempt, pisa_error *error) {
  struct verify_result *result = &attempt->result;
  pisa_status status = run(s, call, VERIFY_DIRECT, attempt, &attempt->outputs, error);
  if (status)
    return status;
  if (other && !verify_difference(call, &other->outputs, &attempt->outputs, true)) {
    verify_inherit(result, &other->result);
    if (other->result.n_failures)
      verify_fail(result, "the bits are those of the cubin, which failed");
  } else if (!verify_compare(call, &attempt->outputs, s->report.seed, result)) {
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the oracle");
  }
  status = run_again(s, call, attempt, error);
  return !status && test->permute ? run_permuted(s, call, test, attempt, error) : status;
}

double verify_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void verify_note_status(struct verify_session *s, pisa_status status, const pisa_error *error,
                        struct verify_result *result) {
  if (!status)
    return;
  verify_fail(result, "%.180s", error->message);
  if (status == PISA_OUT_OF_MEMORY || status == PISA_NO_DEVICE)
    note_exit(s, TOOL_WORLD_FAILED);
  s->stop = s->stop || status == PISA_DRIVER || status == PISA_NO_DEVICE;
}

/* The module, with the case's always-set and threshold, which are run-time arguments of the
   kernels, and dense or not as the case wants. */
static struct pisa_module module_for(const struct verify_case *test, const pisa_module *module) {
  struct pisa_module copy = *module;
  if (test->always) {
    memcpy(copy.method.always, verify_always, sizeof verify_always);
    copy.method.n_always = VERIFY_N_ALWAYS;
  }
  if (test->everything) {
    copy.method.always[0] = (struct pisa_always){PISA_ALWAYS_RANGE, 0, test->n_k};
    copy.method.n_always = 1;
  }
  if (test->windowed) {
    copy.method.has_window = test->window >= 0;
    copy.method.window = test->window;
  }
  if (test->threshold_den) {
    copy.method.threshold_num = test->threshold_num;
    copy.method.threshold_den = test->threshold_den;
  }
  if (copy.method.dense_below)
    copy.method.dense_below = test->below ? test->n_k + 1 : 1;
  return copy;
}

static void run_case(struct verify_session *s, const struct verify_case *test,
                     struct verify_loaded *codes, int n_codes) {
  struct verify_call call = {
      .device = &s->device, .stream = s->stream, .poison = !s->options.no_poison};
  struct attempt attempts[MAX_CODES];
  struct pisa_module modules[MAX_CODES] = {module_for(test, codes[0].module)};
  pisa_error error = {0};
  for (int i = 1; i < n_codes; i++)
    modules[i] = module_for(test, codes[i].module);
  call.module = &modules[0];
  pisa_status opened = verify_call_open(&call, test, &modules[0].method, s->report.seed, &error);
  for (int i = 0; i < n_codes; i++) {
    double begin = verify_seconds();
    pisa_status status = opened;
    attempts[i].outputs = (struct verify_outputs){.o = NULL};
    verify_result_init(&attempts[i].result);
    verify_report_start(&s->report, &codes[i].facts, test->name, test->n_q, test->n_k, test->batch);
    call.module = &modules[i];
    if (!status && !s->stop)
      status = run_code(s, &call, test, i ? &attempts[0] : NULL, &attempts[i], &error);
    else if (s->stop)
      verify_fail(&attempts[i].result, "not run: the device no longer answers");
    verify_note_status(s, status, &error, &attempts[i].result);
    attempts[i].result.seconds = verify_seconds() - begin;
    verify_report_case(&s->report, test, &call, &attempts[i].result, &codes[i].facts);
  }
  for (int i = 0; i < n_codes; i++) {
    verify_outputs_free(&attempts[i].outputs);
    verify_result_free(&attempts[i].result);
  }
  verify_call_close(&call);
}

/* ---- one variant ---- */

/* Loads the code |kind| names; a cubin the driver does not take is a failure, not a reason to try
 * the PTX. */
static pisa_status load(const struct verify_session *s, int variant, bool ptx,
                        struct verify_loaded *code, pisa_error *error) {
  const struct pisa_variant *v = &s->pack->manifest.variants[variant];
  *code = (struct verify_loaded){.facts = {.spec = s->pack->manifest.name,
                                           .choices = v->choices,
                                           .kind = ptx ? "ptx" : "cubin",
                                           .sha256 = ptx ? v->ptx.sha256 : v->cubin.sha256,
                                           .has_cubin = v->cubin.present,
                                           .device = &s->device,
                                           .complete = !changed(&s->options)}};
  pisa_status status =
      pisa_module_load(s->pack, variant, ptx ? PISA_LOAD_PTX_ONLY : 0, &code->module, error);
  if (status || code->module->from_cubin != ptx)
    return status;
  pisa_module_unload(code->module);
  return pisa_fail(error, PISA_DRIVER, "the driver did not take the cubin of variant %d", variant);
}

/* The codes of |variant| that the options ask for. */
static int load_codes(struct verify_session *s, int variant, struct verify_loaded *codes) {
  bool has_cubin = s->pack->manifest.variants[variant].cubin.present;
  bool wanted[MAX_CODES] = {has_cubin && !s->options.ptx,
                            !has_cubin || s->options.ptx || s->options.both};
  int n = 0;
  for (int ptx = 0; ptx < MAX_CODES; ptx++) {
    pisa_error error = {0};
    if (!wanted[ptx])
      continue;
    pisa_status status = load(s, variant, ptx, &codes[n], &error);
    if (status == PISA_OK)
      n++;
    else
      note_exit(s, tool_report("verify", &error) == TOOL_WORLD_FAILED && status != PISA_DRIVER
                       ? TOOL_WORLD_FAILED
                       : TOOL_NOT_VERIFIED);
  }
  return n;
}

/* Every kernel of a code must have run, but for attend behind a threshold: lists that are as long
   as it happens to let them are the edge's. */
static void check_reached(const struct verify_session *s, int variant, struct verify_code *code) {
  const struct pisa_variant *v = &s->pack->manifest.variants[variant];
  bool uneven = v->method.family == PISA_PIECEWISE && !v->method.dense &&
                v->method.budget == PISA_BUDGET_THRESHOLD;
  for (int id = 0; code->complete && id < PISA_N_KERNELS; id++)
    if (v->kernels[id].present && !(code->reached >> id & 1) &&
        !(uneven && id == PISA_KERNEL_ATTEND)) {
      fprintf(s->report.table, "    no case launched %s\n", pisa_kernel_names[id]);
      code->failed++;
    }
}

/* How many cases there are. */
static int run_cases(struct verify_session *s, const struct pisa_method *method, int variant,
                     struct verify_loaded *codes, int n_codes) {
  if (method->family == PISA_PYRAMID)
    return select_verify(s, method, variant, codes, n_codes);
  choose_cases(s, method, variant);
  verify_report_begin(&s->report);
  for (int i = 0; i < s->n_cases && !s->stop; i++)
    run_case(s, &s->cases[i], codes, n_codes);
  return s->n_cases;
}

static void run_variant(struct verify_session *s, int variant) {
  struct verify_loaded codes[MAX_CODES];
  int n = load_codes(s, variant, codes);
  const struct pisa_method *method = &s->pack->manifest.variants[variant].method;
  int cases = n ? run_cases(s, method, variant, codes, n) : 0;
  for (int c = 0; c < n; c++) {
    codes[c].facts.complete = codes[c].facts.complete && codes[c].facts.cases == cases;
    check_reached(s, variant, &codes[c].facts);
    verify_report_end(&s->report, &codes[c].facts);
    if (codes[c].facts.failed || !codes[c].facts.cases)
      note_exit(s, TOOL_NOT_VERIFIED);
    pisa_module_unload(codes[c].module);
  }
}

int verify_variant(struct verify_session *s, int variant) {
  signal(SIGALRM, on_alarm);
  s->exit_code = TOOL_DONE;
  run_variant(s, variant);
  return s->exit_code;
}

static bool seen_before(const struct pisa_manifest *manifest, int variant) {
  for (int i = 0; i < variant; i++)
    if (strcmp(manifest->variants[i].ptx.sha256, manifest->variants[variant].ptx.sha256) == 0)
      return true;
  return false;
}

static int verify_variants(struct verify_session *s) {
  const struct gpu_options *o = &s->options;
  pisa_error error = {0};
  int chosen = 0;
  if (o->n_settings && pisa_pack_find_variant(s->pack, o->settings, o->n_settings, &chosen, &error))
    return tool_report("verify", &error);
  if (o->heads % pisa_method_group(&s->pack->manifest.variants[chosen].method))
    return tool_say("verify", TOOL_WRONG_INPUT,
                    "--heads is no multiple of the spec's heads / kv_heads");
  if (o->n_settings) {
    run_variant(s, chosen);
    return s->exit_code;
  }
  for (int v = 0; v < s->pack->manifest.n_variants && !s->stop; v++)
    if (!seen_before(&s->pack->manifest, v))
      run_variant(s, v);
  return s->exit_code;
}

static int verify_on_device(struct verify_session *s) {
  pisa_error error = {0};
  if (pisa_device_open(0, &s->device, &error))
    return tool_report("verify", &error);
  int code = TOOL_WORLD_FAILED;
  if (pisa_stream_create(&s->device, &s->stream, &error))
    tool_report("verify", &error);
  else
    code = verify_variants(s);
  if (s->stream)
    pisa_stream_destroy(&s->device, s->stream);
  pisa_device_close(&s->device);
  return code;
}

int tool_verify(int argc, char **argv) {
  struct verify_session s = {0};
  pisa_error error = {0};
  int code;
  if (!gpu_options_read(&s.options, OPTIONS_VERIFY, argc, argv, &code))
    return code;
  s.report = (struct verify_report){.table = s.options.json ? stderr : stdout,
                                    .json = s.options.json ? stdout : NULL,
                                    .seed = s.options.seed};
  if (pisa_pack_open(s.options.pack, &s.pack, &error))
    return tool_report("verify", &error);
  signal(SIGALRM, on_alarm);
  code = verify_on_device(&s);
  pisa_pack_close(s.pack);
  return code;
}
