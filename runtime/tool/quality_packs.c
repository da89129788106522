/* quality_packs.c: paths of packs in; the packs, checked to be comparable, out. */
#include <stdio.h>
#include <string.h>

#include "runtime/tool/quality.h"

static pisa_status check_method(const struct pisa_method *m, pisa_error *error) {
  if (m->family == PISA_PYRAMID)
    return PISA_OK;
  if (m->mask != PISA_MASK_NONE)
    return pisa_fail(error, PISA_UNSUPPORTED, "quality has no causal mask yet");
  if (m->query % QUALITY_GRANULE || m->key % QUALITY_GRANULE)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "quality needs blocks of a multiple of %d, not query %d and key %d",
                     QUALITY_GRANULE, m->query, m->key);
  return PISA_OK;
}

/* Errors of packs can be compared when all see the same numbers. */
static pisa_status check_alike(const struct quality_packs *packs, const char *first,
                               const char *path, const struct quality_pack *pack,
                               pisa_error *error) {
  const struct pisa_method *m = &pack->chosen->method;
  int group = pisa_method_group(m);
  if (m->family != packs->items[0].chosen->method.family)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "of %s and %s only one selects blocks: compare packs of one method", first,
                     path);
  if (m->head_dim == packs->head_dim && m->type == packs->type && group == packs->group)
    return PISA_OK;
  return pisa_fail(error, PISA_INVALID_ARGUMENT,
                   "%s is for head_dim %d, %s, %d query heads per key head, but %s for head_dim "
                   "%d, %s, %d: compare packs of one shape",
                   path, m->head_dim, quality_type_name(m->type), group, first, packs->head_dim,
                   quality_type_name(packs->type), packs->group);
}

/* ---- variants and lines ---- */

static const char *const budgets[] = {"density=", "keep=", NULL};
static const char *const sweep[] = {"threshold=", NULL};

static const char *next_word(const char *text) {
  text += strcspn(text, " ");
  return *text ? text + 1 : text;
}

static bool begins(const char *word, const char *const *names) {
  for (; *names; names++)
    if (strncmp(word, *names, strlen(*names)) == 0)
      return true;
  return false;
}

/* What tells no lines apart: hints of schedule, and budgets, which --densities replaces; of packs
   that select blocks the budget is compiled in. */
static bool is_ignored(const struct pisa_method *method, const char *word) {
  return pisa_is_schedule_choice(word) || (method->family != PISA_PYRAMID && begins(word, budgets));
}

/* Whether two variants of one pack make the same choices; |threshold|: but for that one. */
static bool same_choices(const struct pisa_variant *x, const struct pisa_variant *y,
                         bool threshold) {
  const char *a = x->choices, *b = y->choices;
  for (; *a && *b; a = next_word(a), b = next_word(b)) {
    size_t length = strcspn(a, " ");
    bool same = length == strcspn(b, " ") && strncmp(a, b, length) == 0;
    if (!same && !is_ignored(&x->method, a) && !(threshold && begins(a, sweep)))
      return false;
  }
  return true;
}

/* Whether --set leaves variant |v| as it is. */
static bool has_settings(const struct quality_options *o, const pisa_pack *pack, int v) {
  const char *settings[2 * ARGS_MAX_LIST];
  char words[1024];
  int n = o->settings.n, found;
  memcpy(settings, o->settings.items, (size_t)n * sizeof *settings);
  snprintf(words, sizeof words, "%s", pack->manifest.variants[v].choices);
  for (char *word = strtok(words, " "); word && n < 2 * ARGS_MAX_LIST; word = strtok(NULL, " ")) {
    size_t name = strcspn(word, "=") + 1;
    bool set = false;
    for (int i = 0; i < o->settings.n; i++)
      set = set || strncmp(o->settings.items[i], word, name) == 0;
    if (!set)
      settings[n++] = word;
  }
  return !pisa_pack_find_variant(pack, settings, n, &found, NULL) && found == v;
}

/* Whether variant |v| is looked at, |chosen| being the one that --set picks. */
static bool is_wanted(const struct quality_options *o, const pisa_pack *pack, int chosen, int v) {
  const struct pisa_variant *variants = pack->manifest.variants;
  if (v == chosen)
    return true;
  bool swept = variants[v].method.budget == PISA_BUDGET_THRESHOLD && !variants[v].method.dense &&
               same_choices(&variants[v], &variants[chosen], true);
  return (o->all || swept) && has_settings(o, pack, v);
}

static pisa_status too_many(const char *what, int most, pisa_error *error) {
  return pisa_fail(error, PISA_INVALID_ARGUMENT, "more than %d %s: pick some with --set", most,
                   what);
}

/* Variant |v| on a line of its own, or of the variants that differ in their threshold alone; not at
   all where an earlier one differs in what is ignored. */
static pisa_status add_variant(struct quality_packs *out, pisa_pack *pack, int v,
                               pisa_error *error) {
  const struct pisa_variant *variant = &pack->manifest.variants[v];
  int line = -1, points = 0;
  for (int i = 0; i < out->n; i++) {
    const struct quality_pack *other = &out->items[i];
    if (other->pack != pack || !same_choices(other->chosen, variant, true))
      continue;
    if (same_choices(other->chosen, variant, false))
      return PISA_OK;
    line = other->line;
    points++;
  }
  if (out->n == QUALITY_MAX_VARIANTS)
    return too_many("variants", QUALITY_MAX_VARIANTS, error);
  if (points == QUALITY_MAX_THRESHOLDS)
    return too_many("thresholds", QUALITY_MAX_THRESHOLDS, error);
  if (line < 0 && out->n_lines == QUALITY_MAX_LINES)
    return too_many("variants to draw", QUALITY_MAX_LINES, error);
  if (line < 0)
    line = out->n_lines++;
  out->items[out->n++] = (struct quality_pack){
      .label = out->labels[line], .line = line, .pack = pack, .variant = v, .chosen = variant};
  return check_method(&variant->method, error);
}

static pisa_status add_variants(const struct quality_options *o, struct quality_packs *out,
                                pisa_pack *pack, pisa_error *error) {
  int chosen;
  pisa_status status =
      pisa_pack_find_variant(pack, o->settings.items, o->settings.n, &chosen, error);
  if (!status)
    status = add_variant(out, pack, chosen, error);
  for (int v = 0; !status && v < pack->manifest.n_variants; v++)
    if (is_wanted(o, pack, chosen, v))
      status = add_variant(out, pack, v, error);
  return status;
}

/* ---- labels ---- */

static const char *name_of(const struct quality_pack *pack) {
  return pack->pack->manifest.name;
}

/* The place of |line|'s first variant. */
static const struct quality_pack *first_of(const struct quality_packs *packs, int line) {
  const struct quality_pack *item = packs->items;
  while (item->line != line)
    item++;
  return item;
}

/* Whether lines of |pack|'s file make different choices at |word|, one of |pack|'s. */
static bool tells_apart(const struct quality_packs *packs, const struct quality_pack *pack,
                        const char *word) {
  for (int i = 0; i < packs->n; i++) {
    const struct quality_pack *other = &packs->items[i];
    const char *a = pack->chosen->choices, *b = other->chosen->choices;
    if (other->pack != pack->pack || other->line == pack->line)
      continue;
    for (; *a && *b && a != word; b = next_word(b))
      a = next_word(a);
    if (strcspn(a, " ") != strcspn(b, " ") || strncmp(a, b, strcspn(a, " ")) != 0)
      return true;
  }
  return false;
}

/* Appends the values of the choices that tell the lines of a file apart. */
static void add_values(const struct quality_packs *packs, const struct quality_pack *pack,
                       char *label) {
  for (const char *word = pack->chosen->choices; *word; word = next_word(word)) {
    size_t used = strlen(label), name = strcspn(word, "=") + 1;
    if (!is_ignored(&pack->chosen->method, word) && !begins(word, sweep) &&
        tells_apart(packs, pack, word))
      snprintf(label + used, QUALITY_NAME - used, "%s%.*s", used ? " " : "",
               (int)(strcspn(word, " ") - name), word + name);
  }
}

/* Whether other lines are of a spec of the same name. */
static bool shares_name(const struct quality_packs *packs, const struct quality_pack *pack) {
  for (int i = 0; i < packs->n; i++)
    if (packs->items[i].line != pack->line && strcmp(name_of(pack), name_of(&packs->items[i])) == 0)
      return true;
  return false;
}

/* The spec's name where it is the line's own, else the choices that differ, with |names| behind it.
   False when that leaves a line without a label, or two with one. */
static bool set_labels(struct quality_packs *packs, bool names) {
  bool distinct = true;
  for (int line = 0; line < packs->n_lines; line++) {
    const struct quality_pack *pack = first_of(packs, line);
    char *label = packs->labels[line];
    bool shared = shares_name(packs, pack);
    snprintf(label, QUALITY_NAME, "%s", names || !shared ? name_of(pack) : "");
    if (shared)
      add_values(packs, pack, label);
    for (int other = 0; other < line; other++)
      distinct = distinct && strcmp(label, packs->labels[other]) != 0;
    distinct = distinct && *label;
  }
  return distinct;
}

/* Two files of one spec may make the same choices in all that counts: then all they make. */
static void add_labels(struct quality_packs *packs) {
  if (set_labels(packs, false) || set_labels(packs, true))
    return;
  for (int line = 0; line < packs->n_lines; line++) {
    const struct quality_pack *pack = first_of(packs, line);
    const char *choices = shares_name(packs, pack) ? pack->chosen->choices : "";
    snprintf(packs->labels[line], QUALITY_NAME, "%s%s%s", name_of(pack), *choices ? " " : "",
             choices);
  }
}

/* ---- all of them ---- */

pisa_status quality_packs_open(const struct quality_options *o, struct quality_packs *out,
                               pisa_error *error) {
  for (int i = 0; i < o->packs.n; i++) {
    const char *path = o->packs.items[i];
    int first = out->n;
    pisa_status status = pisa_pack_open(path, &out->open[i], error);
    if (status)
      return status; /* the message names the path */
    out->n_open++;
    status = add_variants(o, out, out->open[i], error);
    if (status)
      return pisa_add_context(error, status, "%s", path);
    const struct pisa_method *m = &out->items[first].chosen->method;
    if (i == 0) {
      out->head_dim = m->head_dim;
      out->type = m->type;
      out->group = pisa_method_group(m);
    }
    for (int p = first; !status && p < out->n; p++)
      status = check_alike(out, o->packs.items[0], path, &out->items[p], error);
    if (status)
      return status;
  }
  add_labels(out);
  return PISA_OK;
}

void quality_packs_close(struct quality_packs *packs) {
  for (int i = 0; i < packs->n_open; i++)
    pisa_pack_close(packs->open[i]);
}
