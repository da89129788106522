/* verify_select.c: a variant that selects blocks and its codes in; every case on each of them, rows
   of the report out. Where two codes give the same bits the oracle runs once. */
#include <string.h>

#include "runtime/tool/verify_select.h"

struct attempt { /* one code at one case */
  struct select_outputs outputs;
  struct verify_result result;
};

/* ---- which cases ---- */

static struct select_case apply_options(struct select_case test, const struct gpu_options *o,
                                        const struct pisa_method *method) {
  if (o->batch && o->batch <= SELECT_MAX_BATCH && !test.lengths && !test.q_starts)
    test.batch = o->batch;
  if (o->heads)
    test.kv_heads = o->heads / pisa_method_group(method);
  if (o->layout == VERIFY_BHND || o->layout == VERIFY_BNHD || o->layout == VERIFY_GAPPED)
    test.layout = (enum verify_layout)o->layout;
  return test;
}

/* Whether the method has what the case is about. */
static bool makes_sense(const struct select_case *test, const struct pisa_method *method) {
  if (test->steps ? !(method->decode && method->prefill) : !method->prefill)
    return false;
  return !(test->below && !method->flat_below && !method->dense_below) &&
         !(test->q_starts && method->page) &&
         !(test->completed && !(method->always_current && method->mask == PISA_MASK_CAUSAL)) &&
         test->n_new <= method->key;
}

/* How many cases there are; the |wanted|-th (from 0) gets into |out|. */
static int pick_case(const struct gpu_options *o, const struct pisa_method *method, int variant,
                     int wanted, struct select_case *out) {
  int n = 0;
  for (int i = 0; i < o->n_tokens; i++, n++)
    if (n == wanted)
      *out = apply_options(
          (struct select_case){
              .name = "random", .batch = 1, .n_q = o->tokens[i], .n_k = o->tokens[i]},
          o, method);
  for (int i = 0; !o->n_tokens && i < select_n_cases; i++) {
    const struct select_case *test = &select_cases[i];
    if ((o->only && strcmp(o->only, test->name) != 0) || (o->quick && !test->quick) ||
        (variant && !test->variants && !o->only) || (test->steps ? o->prefill : o->decode) ||
        !makes_sense(test, method))
      continue;
    if (n++ == wanted)
      *out = apply_options(*test, o, method);
  }
  return n;
}

/* ---- one case ---- */

static pisa_status run(const struct verify_session *s, struct select_call *call,
                       enum select_mode mode, struct verify_result *result,
                       struct select_outputs *outputs, pisa_error *error) {
  verify_watch(s);
  pisa_status status = select_call_run(call, mode, outputs, result, error);
  verify_unwatch();
  return status;
}

/* Once more in every mode: the bits must not change. */
static pisa_status run_again(const struct verify_session *s, struct select_call *call,
                             struct attempt *attempt, pisa_error *error) {
  static const struct {
    enum select_mode mode;
    const char *what;
  } modes[] = {{SELECT_DIRECT, "a second launch"},
               {SELECT_GRAPH, "a graph launch"},
               {SELECT_BARE, "attention without lists"},
               {SELECT_ALONE, "selection without attention"}};
  pisa_status status = PISA_OK;
  for (size_t i = 0; !status && i < sizeof modes / sizeof *modes; i++) {
    struct select_outputs outputs;
    if (call->shape.dense && modes[i].mode == SELECT_ALONE)
      continue; /* it selects nothing */
    status = run(s, call, modes[i].mode, &attempt->result, &outputs, error);
    const char *where =
        status ? NULL : select_difference(call, &attempt->outputs, &outputs, modes[i].mode);
    if (where)
      verify_fail(&attempt->result, "%s gave other bits in %s", modes[i].what, where);
    select_outputs_free(&outputs);
  }
  return status;
}

/* |other|: a finished attempt of the same case, or NULL. */
static pisa_status run_prefill(const struct verify_session *s, struct select_call *call,
                               const struct attempt *other, struct attempt *attempt,
                               pisa_error *error) {
  struct verify_result *result = &attempt->result;
  pisa_status status = run(s, call, SELECT_DIRECT, result, &attempt->outputs, error);
  if (status)
    return status;
  if (other && other->outputs.o &&
      !select_difference(call, &other->outputs, &attempt->outputs, SELECT_DIRECT)) {
    verify_inherit(result, &other->result);
    if (other->result.n_failures)
      verify_fail(result, "the bits are those of the cubin, which failed");
  } else if (!select_compare(call, &attempt->outputs, result)) {
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the oracle");
  }
  return run_again(s, call, attempt, error);
}

/* Which path a call takes by its length is the case's: `below N tokens use flat | dense`. */
static struct pisa_module module_for(const struct select_case *test, const pisa_module *module) {
  struct pisa_module copy = *module;
  const int64_t below = test->below ? (int64_t)1 << 40 : 1;
  if (copy.method.flat_below)
    copy.method.flat_below = below;
  if (copy.method.dense_below)
    copy.method.dense_below = below;
  return copy;
}

/* The queries of each leaf, of lists that are right. */
static pisa_status run_csr(const struct verify_session *s, const struct select_call *call,
                           struct attempt *attempt, pisa_error *error) {
  if (call->test->steps || call->shape.dense || attempt->result.n_failures > 0)
    return PISA_OK;
  verify_watch(s);
  pisa_status status = select_compare_csr(call, attempt->outputs.blocks, &attempt->result, error);
  verify_unwatch();
  return status;
}

static pisa_status attempt_code(const struct verify_session *s, struct select_call *call,
                                const struct attempt *other, struct attempt *attempt,
                                pisa_error *error) {
  pisa_status status = call->test->steps ? select_decode(s, call, &attempt->result, error)
                                         : run_prefill(s, call, other, attempt, error);
  if (!status)
    status = run_csr(s, call, attempt, error);
  const struct verify_result *r = &attempt->result;
  double limit = verify_limits_of(call->module->method.type).o_rel;
  if (!status && !(verify_o_rel(r) <= limit))
    verify_fail(&attempt->result, "o: relative L2 error %.3g over all rows compared",
                verify_o_rel(r));
  return status;
}

static void run_case(struct verify_session *s, const struct select_case *test, int variant,
                     struct verify_loaded *codes, int n_codes) {
  struct pisa_module modules[VERIFY_MAX_CODES] = {module_for(test, codes[0].module)};
  struct select_call call = {.device = &s->device,
                             .stream = s->stream,
                             .module = &modules[0],
                             .poison = !s->options.no_poison,
                             .test = test,
                             .brief = variant > 0,
                             .seed = s->report.seed};
  struct attempt attempts[VERIFY_MAX_CODES];
  pisa_error error = {0};
  pisa_status opened = select_call_open(&call, &error);
  for (int i = 0; i < n_codes; i++) {
    double begin = verify_seconds();
    pisa_status status = opened;
    modules[i] = module_for(test, codes[i].module);
    call.module = &modules[i];
    attempts[i].outputs = (struct select_outputs){0};
    verify_result_init(&attempts[i].result);
    verify_report_start(&s->report, &codes[i].facts, test->name, test->n_q, test->n_k, test->batch);
    if (!status && !s->stop)
      status = attempt_code(s, &call, i ? &attempts[0] : NULL, &attempts[i], &error);
    else if (s->stop)
      verify_fail(&attempts[i].result, "not run: the device no longer answers");
    verify_note_status(s, status, &error, &attempts[i].result);
    attempts[i].result.seconds = verify_seconds() - begin;
    select_report_case(&s->report, &call, &attempts[i].result, &codes[i].facts);
  }
  for (int i = 0; i < n_codes; i++) {
    select_outputs_free(&attempts[i].outputs);
    verify_result_free(&attempts[i].result);
  }
  select_call_close(&call);
}

int select_verify(struct verify_session *s, const struct pisa_method *method, int variant,
                  struct verify_loaded *codes, int n_codes) {
  struct select_case test;
  int n = pick_case(&s->options, method, variant, -1, &test);
  select_report_begin(&s->report);
  for (int i = 0; i < n && !s->stop; i++) {
    pick_case(&s->options, method, variant, i, &test);
    run_case(s, &test, variant, codes, n_codes);
  }
  return n;
}
