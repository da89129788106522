/* tune_work.c: a pack and options in; which variants compute the same, which lengths share a row of
   the table, and at which shapes that row is timed, out. */
#include <stdio.h>
#include <string.h>

#include "runtime/tool/tune.h"

int tune_buckets(const struct tune_options *o, bool selects, struct tune_bucket *out) {
  static const int64_t piecewise[] = {4096, 16384}, selected[] = {4096, 16384, 65536};
  const int64_t *tokens = o->n_tokens ? o->tokens : selects ? selected : piecewise;
  int n_tokens = o->n_tokens ? o->n_tokens : selects ? 3 : 2, n = 0;
  for (int i = 0; i < n_tokens; i++) {
    int64_t bucket = pisa_tune_bucket(tokens[i]);
    int at = 0;
    while (at < n && out[at].tokens != bucket)
      at++;
    if (at == n)
      out[n++] = (struct tune_bucket){.tokens = bucket};
    out[at].lengths[out[at].n++] = tokens[i];
  }
  return n;
}

/* Hundredths of a bucket's tokens and of the heads. A row reaches from 71 to 141 of both, and so
   from half the work to twice as much: these are 0.59, 0.9 and 1.6 of it. */
static const int probes[TUNE_PROBES][2] = {{77, 77}, {90, 100}, {129, 124}};

int tune_shapes(const struct tune_bucket *bucket, int64_t batch, int64_t heads, int64_t group,
                struct tune_shape *out) {
  int n = 0;
  for (; n < bucket->n; n++)
    out[n] = (struct tune_shape){bucket->lengths[n], heads};
  for (int i = 0; i < TUNE_PROBES; i++) {
    int64_t tokens = bucket->tokens * probes[i][0] / 100 | 1; /* odd: the last block is not whole */
    int64_t other = (heads * probes[i][1] / 100 + group / 2) / group * group;
    if (other < 1 || pisa_tune_bucket(batch * other) != pisa_tune_bucket(batch * heads))
      other = heads;
    if (pisa_tune_bucket(tokens) == bucket->tokens)
      out[n++] = (struct tune_shape){tokens, other};
  }
  return n;
}

bool tune_wants(const struct tune_options *o, const pisa_pack *pack, int variant) {
  const struct pisa_variant *v = &pack->manifest.variants[variant];
  return v->method.prefill && pisa_has_settings(v->choices, o->settings, o->n_settings);
}

int tune_group(const struct tune_options *o, const pisa_pack *pack, int variant) {
  const struct pisa_variant *variants = pack->manifest.variants;
  for (int v = 0; v < variant; v++)
    if (tune_wants(o, pack, v) && pisa_same_result(variants[v].choices, variants[variant].choices))
      return v;
  return variant;
}

int tune_group_size(const struct tune_options *o, const pisa_pack *pack, int variant) {
  const struct pisa_variant *variants = pack->manifest.variants;
  int n = 0;
  for (int v = 0; v < pack->manifest.n_variants; v++)
    n += tune_wants(o, pack, v) && pisa_same_result(variants[v].choices, variants[variant].choices);
  return n;
}

void tune_choices(const char *choices, bool schedule, char *out, size_t size) {
  size_t used = 0;
  *out = '\0';
  for (const char *word = choices; *word;) {
    int length = (int)strcspn(word, " ");
    if (pisa_is_schedule_choice(word) == schedule && used + 1 < size) {
      int n = snprintf(out + used, size - used, "%s%.*s", used ? " " : "", length, word);
      used += n > 0 ? (size_t)n : 0;
    }
    word += length;
    word += *word == ' ';
  }
}
