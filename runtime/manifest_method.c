/* manifest_method.c: the lines of a manifest that say what is computed -> struct pisa_method. In:
   lines at 'shape', or at the first line that a variant repeats. Out: every field read, ranges and
   relations checked. */
#include "runtime/manifest_method.h"

#include <stdio.h>
#include <string.h>

enum {
  MAX_HEADS = 1 << 16,
  MAX_DENOMINATOR = 1000000000,
  MAX_THRESHOLD = 100, /* standard deviations */
  MAX_TOKENS = 1 << 30
};

bool pisa_method_read_shape(struct pisa_lines *lines, struct pisa_method *m) {
  static const char *const types[] = {"bf16", "fp16"};
  static const char *const masks[] = {"none", "causal"};
  int type, mask;
  if (!pisa_lines_expect(lines, "shape") || !pisa_lines_split(lines, 5) ||
      !pisa_lines_int(lines, "heads", 1, MAX_HEADS, &m->heads) ||
      !pisa_lines_int(lines, "kv_heads", 1, MAX_HEADS, &m->kv_heads) ||
      !pisa_lines_int(lines, "head_dim", 1, 256, &m->head_dim) ||
      !pisa_lines_word(lines, "type", types, 2, &type) ||
      !pisa_lines_word(lines, "mask", masks, 2, &mask))
    return false;
  if (m->heads % m->kv_heads)
    return pisa_lines_fail(lines, "heads=%d is not a multiple of kv_heads=%d", m->heads,
                           m->kv_heads);
  if (m->head_dim != 64 && m->head_dim != 96 && m->head_dim != 128 && m->head_dim != 256)
    return pisa_lines_fail(lines, "head_dim is %d, must be 64, 96, 128 or 256", m->head_dim);
  m->type = (pisa_type)type;
  m->mask = (enum pisa_mask)mask;
  pisa_lines_next(lines);
  return true;
}

static bool read_block_size(struct pisa_lines *lines, const char *name, int *out) {
  if (!pisa_lines_int(lines, name, 1, 128, out))
    return false;
  if (*out != 64 && *out != 128)
    return pisa_lines_fail(lines, "%s is %d, must be 64 or 128", name, *out);
  return true;
}

static bool read_blocks(struct pisa_lines *lines, struct pisa_method *m) {
  static const char *const orders[] = {"separate", "union"};
  int order;
  if (!pisa_lines_expect(lines, "blocks") || !pisa_lines_split(lines, 3) ||
      !read_block_size(lines, "query", &m->query) || !read_block_size(lines, "key", &m->key) ||
      !pisa_lines_word(lines, "lists", orders, 2, &order))
    return false;
  m->union_lists = order == 1;
  if (m->query < m->key)
    return pisa_lines_fail(lines, "query is %d, must not be less than key, %d", m->query, m->key);
  if (m->union_lists && m->query != 64)
    return pisa_lines_fail(lines, "lists=union needs query=64, query is %d", m->query);
  pisa_lines_next(lines);
  return true;
}

/* Field "name=num/den", num at most |most| * den; the denominator is a power of ten. */
static bool read_decimal(struct pisa_lines *lines, const char *name, int64_t most, int64_t *num,
                         int64_t *den) {
  char *text = pisa_lines_value(lines, name), what[32];
  if (!text)
    return false;
  char *slash = strchr(text, '/');
  if (!slash)
    return pisa_lines_fail(lines, "%s is '%.40s', must be written num/den", name, text);
  *slash = '\0';
  snprintf(what, sizeof what, "den of %s", name);
  if (!pisa_lines_parse(lines, what, slash + 1, 1, MAX_DENOMINATOR, den))
    return false;
  snprintf(what, sizeof what, "num of %s", name);
  if (!pisa_lines_parse(lines, what, text, 0, most * *den, num))
    return false;
  for (int64_t power = *den; power > 1; power /= 10)
    if (power % 10)
      return pisa_lines_fail(lines, "den of %s must be a power of ten", name);
  return true;
}

/* Of the three budgets the one that is named is positive, the others are 0. */
static bool check_budget(struct pisa_lines *lines, const struct pisa_method *m) {
  const int64_t amount[] = {m->density_num, m->keep, m->threshold_num}; /* as enum pisa_budget */
  for (int i = 0; i < 3; i++)
    if ((amount[i] > 0) != (i == (int)m->budget))
      return pisa_lines_fail(lines, "the budget must be positive and the other ones 0");
  if (m->budget != PISA_BUDGET_THRESHOLD && m->variance != PISA_VARIANCE_DIAGONAL)
    return pisa_lines_fail(lines, "without a threshold variance must be diagonal");
  return true;
}

static bool read_top_k(struct pisa_lines *lines, struct pisa_method *m) {
  static const char *const scores[] = {"mean"};
  static const char *const terms[] = {"none", "log_covariance", "log_residual", "log_key_variance"};
  static const char *const budgets[] = {"density", "keep", "threshold"};
  static const char *const variances[] = {"diagonal", "full"};
  int score, term, budget, variance;
  if (!pisa_lines_split(lines, 8) || !pisa_lines_word(lines, "score", scores, 1, &score) ||
      !pisa_lines_word(lines, "term", terms, 4, &term) ||
      !pisa_lines_word(lines, "budget", budgets, 3, &budget) ||
      !read_decimal(lines, "density", 1, &m->density_num, &m->density_den) ||
      !pisa_lines_number(lines, "keep", 0, MAX_TOKENS, &m->keep) ||
      !read_decimal(lines, "threshold", MAX_THRESHOLD, &m->threshold_num, &m->threshold_den) ||
      !pisa_lines_word(lines, "variance", variances, 2, &variance))
    return false;
  if (strcmp(lines->fields[0], "top_k"))
    return pisa_lines_fail(lines, "route '%.40s' is not known", lines->fields[0]);
  m->score = (enum pisa_score)score;
  m->term = (enum pisa_term)term;
  m->budget = (enum pisa_budget)budget;
  m->variance = (enum pisa_variance)variance;
  return check_budget(lines, m);
}

static bool read_route(struct pisa_lines *lines, struct pisa_draft *draft) {
  if (!pisa_lines_expect(lines, "route"))
    return false;
  draft->routed = strcmp(lines->rest, "none") != 0;
  if (draft->routed && !read_top_k(lines, &draft->method))
    return false;
  pisa_lines_next(lines);
  return true;
}

static bool read_window(struct pisa_lines *lines, struct pisa_method *m) {
  if (m->has_window)
    return pisa_lines_fail(lines, "'always window' is given twice");
  m->has_window = true;
  return pisa_lines_split(lines, 1) &&
         pisa_lines_number(lines, "window", 0, MAX_TOKENS, &m->window);
}

/* The blocks around a query: 'previous' and 'current' of a pyramid, 'window' of all others. */
static bool read_near(struct pisa_lines *lines, struct pisa_method *m, bool *found) {
  bool *named = !strcmp(lines->rest, "previous")  ? &m->always_previous
                : !strcmp(lines->rest, "current") ? &m->always_current
                                                  : NULL;
  bool is_pyramid = m->family == PISA_PYRAMID;
  *found = is_pyramid ? named != NULL : !strncmp(lines->rest, "window=", 7);
  if (!*found || !is_pyramid)
    return !*found || read_window(lines, m);
  if (*named)
    return pisa_lines_fail(lines, "'always %s' is given twice", lines->rest);
  *named = true;
  return true;
}

static bool read_always_entry(struct pisa_lines *lines, struct pisa_method *m) {
  bool found, ok = read_near(lines, m, &found);
  if (!ok || found)
    return ok;
  if (m->n_always == PISA_MAX_ALWAYS)
    return pisa_lines_fail(lines, "there are more than %d 'always' lines", PISA_MAX_ALWAYS);
  struct pisa_always *always = &m->always[m->n_always++];
  *always = (struct pisa_always){.kind = PISA_ALWAYS_RANGE};
  if (!pisa_lines_split(lines, 1))
    return false;
  char *field = lines->fields[0];
  if (!strncmp(field, "first=", 6) || !strncmp(field, "last=", 5)) {
    always->kind = *field == 'f' ? PISA_ALWAYS_FIRST : PISA_ALWAYS_LAST;
    return pisa_lines_parse(lines, "always", strchr(field, '=') + 1, 1, MAX_TOKENS, &always->end);
  }
  char *dots = strstr(field, "..");
  if (strncmp(field, "range=", 6) || !dots)
    return pisa_lines_fail(lines, "'%.40s' is none of first=n, last=n, range=a..b, %s", field,
                           m->family == PISA_PYRAMID ? "previous, current" : "window=n");
  *dots = '\0';
  return pisa_lines_parse(lines, "begin of always", field + 6, 0, MAX_TOKENS, &always->begin) &&
         pisa_lines_parse(lines, "end of always", dots + 2, always->begin + 1, MAX_TOKENS,
                          &always->end);
}

bool pisa_method_read_always(struct pisa_lines *lines, struct pisa_method *m) {
  if (pisa_lines_at(lines, "always")) {
    m->n_always = 0;
    m->has_window = m->always_previous = m->always_current = false;
    m->window = 0;
  }
  if (pisa_lines_at(lines, "always") && !strcmp(lines->rest, "none")) {
    pisa_lines_next(lines);
    return true;
  }
  while (pisa_lines_at(lines, "always")) {
    if (!read_always_entry(lines, m))
      return false;
    pisa_lines_next(lines);
  }
  return true;
}

/* "selected=exact rest=taylor_0 mass=zeroth_order"; dropped blocks have no mass. */
static bool read_rest(struct pisa_lines *lines, struct pisa_method *m) {
  static const char *const tails[] = {"drop", "taylor_0", "taylor_1", "taylor_hybrid"};
  static const char *const masses[] = {"zeroth_order", "second_order"};
  static const char *const exact[] = {"exact"};
  bool drop = strstr(lines->rest, "rest=drop") != NULL;
  int tail, mass = PISA_MASS_ZEROTH_ORDER, ignored;
  if (!pisa_lines_split(lines, drop ? 2 : 3) ||
      !pisa_lines_word(lines, "selected", exact, 1, &ignored) ||
      !pisa_lines_word(lines, "rest", tails, 4, &tail) ||
      (!drop && !pisa_lines_word(lines, "mass", masses, 2, &mass)))
    return false;
  m->tail = (enum pisa_tail)tail;
  m->mass = (enum pisa_mass)mass;
  return true;
}

static bool read_attend(struct pisa_lines *lines, struct pisa_method *m) {
  if (!pisa_lines_expect(lines, "attend"))
    return false;
  m->dense = !strcmp(lines->rest, "all=exact");
  m->tail = PISA_TAIL_DROP;
  m->mass = PISA_MASS_ZEROTH_ORDER;
  if (!m->dense && !read_rest(lines, m))
    return false;
  pisa_lines_next(lines);
  return true;
}

bool pisa_method_read_phases(struct pisa_lines *lines, struct pisa_method *m) {
  if (!pisa_lines_expect(lines, "phases"))
    return false;
  m->prefill = !strncmp(lines->rest, "prefill", 7);
  const char *rest = lines->rest + (m->prefill ? strlen("prefill") : 0);
  m->decode = !strcmp(rest, m->prefill ? " decode" : "decode");
  if (*rest ? !m->decode : !m->prefill)
    return pisa_lines_fail(lines, "phases is '%.40s', must be prefill, decode or both",
                           lines->rest);
  pisa_lines_next(lines);
  return true;
}

bool pisa_method_read_power(struct pisa_lines *lines, const char *name, int low, int high,
                            int *out) {
  if (!pisa_lines_int(lines, name, low, high, out))
    return false;
  if (*out & (*out - 1))
    return pisa_lines_fail(lines, "%s is %d, must be a power of two", name, *out);
  return true;
}

/* "size=64" */
static bool read_pages(struct pisa_lines *lines, struct pisa_method *m) {
  if (!pisa_lines_split(lines, 1) || !pisa_method_read_power(lines, "size", 16, 128, &m->page))
    return false;
  pisa_lines_next(lines);
  return true;
}

/* Both lines stand where phase decode is. */
static bool read_decode(struct pisa_lines *lines, struct pisa_method *m) {
  return (!pisa_lines_at(lines, "phases") || pisa_method_read_phases(lines, m)) &&
         (!pisa_lines_at(lines, "pages") || read_pages(lines, m));
}

/* "tokens=2048 use=dense" */
static bool read_below(struct pisa_lines *lines, struct pisa_method *m) {
  static const char *const uses[] = {"dense"};
  int ignored;
  if (!pisa_lines_split(lines, 2) ||
      !pisa_lines_number(lines, "tokens", 1, MAX_TOKENS, &m->dense_below) ||
      !pisa_lines_word(lines, "use", uses, 1, &ignored))
    return false;
  pisa_lines_next(lines);
  return true;
}

static bool check_method(struct pisa_lines *lines, const struct pisa_draft *draft) {
  const struct pisa_method *m = &draft->method;
  if (draft->routed == m->dense)
    return pisa_lines_fail(lines, "'route none' and 'attend all=exact' belong together");
  if (!m->dense && m->mask == PISA_MASK_CAUSAL)
    return pisa_lines_fail(lines, "'route top_k' has no mask=causal");
  if (m->dense && (m->n_always || m->has_window))
    return pisa_lines_fail(lines, "'always' without a route");
  if (m->dense && m->dense_below)
    return pisa_lines_fail(lines, "'below' without a route");
  if (m->dense && m->union_lists)
    return pisa_lines_fail(lines, "lists=union without a route");
  if (m->decode && (!m->dense || m->mask != PISA_MASK_CAUSAL))
    return pisa_lines_fail(lines, "phase decode needs attend all=exact and mask=causal");
  if (m->page && m->prefill)
    return pisa_lines_fail(lines, "'pages' with phase prefill, which finds keys in one piece");
  return true;
}

bool pisa_method_read(struct pisa_lines *lines, struct pisa_draft *out) {
  struct pisa_method *m = &out->method;
  m->family = PISA_PIECEWISE;
  m->prefill = true;
  return pisa_method_read_shape(lines, m) && read_blocks(lines, m) && read_route(lines, out) &&
         pisa_method_read_always(lines, m) && read_attend(lines, m) && read_decode(lines, m) &&
         (!pisa_lines_at(lines, "below") || read_below(lines, m)) && check_method(lines, out);
}

bool pisa_method_read_changes(struct pisa_lines *lines, struct pisa_draft *draft) {
  struct pisa_method *m = &draft->method;
  return (!pisa_lines_at(lines, "shape") || pisa_method_read_shape(lines, m)) &&
         (!pisa_lines_at(lines, "blocks") || read_blocks(lines, m)) &&
         (!pisa_lines_at(lines, "route") || read_route(lines, draft)) &&
         pisa_method_read_always(lines, m) &&
         (!pisa_lines_at(lines, "attend") || read_attend(lines, m)) && check_method(lines, draft);
}
