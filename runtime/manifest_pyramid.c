/* manifest_pyramid.c: the lines of a manifest that say how blocks are selected -> struct
   pisa_method. In: lines at 'shape', or at the first line that a variant repeats. Out: every field
   read, ranges and relations checked. */
#include <string.h>

#include "runtime/budget.h"
#include "runtime/manifest_method.h"
#include "runtime/size.h"

enum { MAX_KEEP = 64, MAX_TILE = 64, MAX_START = 1 << 30, MAX_TOKENS = 1 << 30 };

/* "leaf=64 group=2 page=0" */
static bool read_sizes(struct pisa_lines *lines, struct pisa_method *m) {
  if (!pisa_lines_expect(lines, "pyramid") || !pisa_lines_split(lines, 3) ||
      !pisa_method_read_power(lines, "leaf", 16, 128, &m->key) ||
      !pisa_method_read_power(lines, "group", 2, 8, &m->group) ||
      !pisa_method_read_power(lines, "page", 0, 128, &m->page))
    return false;
  if (m->page > 0 && m->page < 16)
    return pisa_lines_fail(lines, "page is %d, must be 0 or from 16 to 128", m->page);
  pisa_lines_next(lines);
  return true;
}

static bool read_scoring(struct pisa_lines *lines, struct pisa_method *m) {
  static const char *const scores[] = {"mean", "half_variance", "lse"};
  static const char *const reductions[] = {"sum", "max", "lse", "mass", "max_mass"};
  int score, reduce;
  if (!pisa_lines_word(lines, "score", scores, 3, &score) ||
      !pisa_lines_word(lines, "reduce", reductions, 5, &reduce))
    return false;
  m->score = (enum pisa_score)score;
  m->reduce = (enum pisa_reduce)reduce;
  return true;
}

/* "pyramid score=lse reduce=sum keep=8 start=0 leaf_stage=clustered query_tile=4", and where phase
   decode starts elsewhere " decode_start=128" */
static bool read_route(struct pisa_lines *lines, struct pisa_method *m) {
  static const char *const stages[] = {"clustered", "fused"};
  int stage;
  if (!pisa_lines_expect(lines, "route"))
    return false;
  bool starts_twice = strstr(lines->rest, " decode_start=") != NULL;
  if (!pisa_lines_split(lines, starts_twice ? 8 : 7))
    return false;
  m->flat = !strcmp(lines->fields[0], "flat");
  if (!m->flat && strcmp(lines->fields[0], "pyramid"))
    return pisa_lines_fail(lines, "route '%.40s' is not known", lines->fields[0]);
  if (!read_scoring(lines, m) || !pisa_lines_number(lines, "keep", 1, MAX_KEEP, &m->keep) ||
      !pisa_lines_number(lines, "start", 0, MAX_START, &m->start_nodes) ||
      !pisa_lines_word(lines, "leaf_stage", stages, 2, &stage) ||
      !pisa_lines_int(lines, "query_tile", 1, MAX_TILE, &m->query_tile))
    return false;
  m->fused = stage == 1;
  m->decode_start_nodes = m->start_nodes;
  if (starts_twice &&
      !pisa_lines_number(lines, "decode_start", 0, MAX_START, &m->decode_start_nodes))
    return false;
  pisa_lines_next(lines);
  return true;
}

static bool read_attend(struct pisa_lines *lines) {
  if (!pisa_lines_expect(lines, "attend"))
    return false;
  if (strcmp(lines->rest, "selected=exact rest=drop"))
    return pisa_lines_fail(lines, "attend is '%.60s', must be selected=exact rest=drop",
                           lines->rest);
  pisa_lines_next(lines);
  return true;
}

/* "tokens=131072 use=flat" */
static bool read_below(struct pisa_lines *lines, struct pisa_method *m) {
  static const char *const uses[] = {"flat", "dense"};
  int64_t tokens;
  int use;
  if (!pisa_lines_split(lines, 2) || !pisa_lines_number(lines, "tokens", 1, MAX_TOKENS, &tokens) ||
      !pisa_lines_word(lines, "use", uses, 2, &use))
    return false;
  *(use == 0 ? &m->flat_below : &m->dense_below) = tokens;
  pisa_lines_next(lines);
  return true;
}

/* Most leaves that are forced for a query. The last n tokens touch one leaf more than they fill
   where the last leaf has one token. */
static int64_t most_forced(const struct pisa_method *m) {
  struct pisa_range front[PISA_MAX_ALWAYS];
  int64_t back = 0;
  pisa_always_blocks(m, MAX_TOKENS, front);
  for (int i = 0; i < m->n_always; i++) {
    if (m->always[i].kind != PISA_ALWAYS_LAST)
      continue;
    back = pisa_max(back, 1 + pisa_ceil_div(m->always[i].end - 1, m->key));
    front[i] = (struct pisa_range){0, 0};
  }
  return pisa_union_count(front, PISA_MAX_ALWAYS) + back + m->always_previous + m->always_current;
}

static bool check_method(struct pisa_lines *lines, const struct pisa_method *m) {
  int64_t forced = most_forced(m);
  if (m->keep < forced)
    return pisa_lines_fail(lines, "keep=%lld, but %lld leaves may be always read",
                           (long long)m->keep, (long long)forced);
  if (m->flat && m->flat_below)
    return pisa_lines_fail(lines, "'below' with use=flat, but the route is flat anyway");
  if (m->dense_below && m->page && m->prefill)
    return pisa_lines_fail(lines, "'below' with use=dense, but keys lie in pages");
  if (m->flat && m->start_nodes)
    return pisa_lines_fail(lines, "start=%lld, but a flat route has no walk",
                           (long long)m->start_nodes);
  return true;
}

/* What the method is in the words of both families. */
static void settle(struct pisa_method *m) {
  m->query = 1;
  m->budget = PISA_BUDGET_KEEP;
  m->density_den = m->threshold_den = 1;
  m->tail = PISA_TAIL_DROP;
}

bool pisa_pyramid_read(struct pisa_lines *lines, struct pisa_draft *out) {
  struct pisa_method *m = &out->method;
  m->family = PISA_PYRAMID;
  out->routed = true;
  settle(m);
  return pisa_method_read_shape(lines, m) && read_sizes(lines, m) && read_route(lines, m) &&
         pisa_method_read_always(lines, m) && read_attend(lines) &&
         pisa_method_read_phases(lines, m) &&
         (!pisa_lines_at(lines, "below") || read_below(lines, m)) && check_method(lines, m);
}

bool pisa_pyramid_read_changes(struct pisa_lines *lines, struct pisa_draft *draft) {
  struct pisa_method *m = &draft->method;
  return (!pisa_lines_at(lines, "shape") || pisa_method_read_shape(lines, m)) &&
         (!pisa_lines_at(lines, "pyramid") || read_sizes(lines, m)) &&
         (!pisa_lines_at(lines, "route") || read_route(lines, m)) &&
         pisa_method_read_always(lines, m) &&
         (!pisa_lines_at(lines, "attend") || read_attend(lines)) && check_method(lines, m);
}
