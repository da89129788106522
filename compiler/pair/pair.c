/* pair.c: a pack, its bytes and a name in; a header and a source out. The text is that of pair.h.in
   and pair.c.in; here are the values of their holes. */
#include "compiler/pair/pair.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "compiler/pair/template.h"
#include "dsl/arena.h"
#include "runtime/pisa.h"

extern const char pair_h_template[], pair_c_template[];

enum { MAX_VALUES = 64 };

struct values {
  struct arena arena;
  struct template_value at[MAX_VALUES + 1];
  int n;
};

static void set(struct values *v, const char *name, const char *text) {
  assert(v->n < MAX_VALUES);
  v->at[v->n++] = (struct template_value){name, text};
}

static void set_number(struct values *v, const char *name, long long number) {
  set(v, name, arena_printf(&v->arena, "%lld", number));
}

static void set_flag(struct values *v, const char *name, bool flag) {
  set(v, name, flag ? "" : NULL);
}

/* Upper case, and '_' for what is no letter or digit. */
static const char *macro_case(struct arena *arena, const char *text, size_t n) {
  char *copy = arena_strndup(arena, text, n);
  for (char *at = copy; *at; at++)
    *at = isalnum((unsigned char)*at) ? (char)toupper((unsigned char)*at) : '_';
  return copy;
}

/* ---- variants ---- */

static size_t word_length(const char *text) {
  return strcspn(text, " ");
}

static const char *next_word(const char *text) {
  text += word_length(text);
  return *text ? text + 1 : text;
}

/* "AS_WRITTEN", or the choices that are not those of |written|: "QUERY_64_DENSITY_0_1". All
   variants have the same choices in the same order. */
static const char *variant_name(struct arena *arena, const char *choices, const char *written) {
  const char *name = "";
  for (; *choices; choices = next_word(choices), written = next_word(written)) {
    const size_t n = word_length(choices);
    if (n != word_length(written) || strncmp(choices, written, n) != 0)
      name = arena_printf(arena, "%s%s%s", name, *name ? "_" : "", macro_case(arena, choices, n));
  }
  return *name ? name : "AS_WRITTEN";
}

static const char *variant_lines(struct arena *arena, const struct variants *variants,
                                 const char *prefix) {
  struct text text;
  text_init(&text);
  for (int i = 0; i < variants->n; i++)
    text_printf(&text, "  %s_%s = %d%s /* %s */\n", prefix,
                variant_name(arena, variants->plans[i]->choices, variants->plans[0]->choices), i,
                i + 1 < variants->n ? "," : "", variants->plans[i]->choices);
  const char *lines = arena_strndup(arena, text.data, text.size);
  text_fini(&text);
  return lines;
}

static void set_variants(struct values *v, const struct variants *variants, const char *symbol,
                         const char *prefix) {
  const bool several = variants->n > 1;
  set_flag(v, "several", several);
  set(v, "variants", variant_lines(&v->arena, variants, prefix));
  set(v, "variant_parameter",
      several ? arena_printf(&v->arena, "%s_variant variant, ", symbol) : "");
  set(v, "variant_argument", several ? "variant, " : "");
  set(v, "variant", several ? "(int)variant" : "0");
  set(v, "first_variant", several ? arena_printf(&v->arena, "%s_AS_WRITTEN, ", prefix) : "");
}

/* ---- the spec ---- */

static const char *spec_text(struct arena *arena, const struct spec *spec) {
  struct text text, indented;
  text_init(&text);
  text_init(&indented);
  spec_print(spec, &text);
  for (const char *line = text.data; *line;) {
    const size_t n = strcspn(line, "\n");
    text_printf(&indented, "       %.*s\n", (int)n, line);
    line += n + (line[n] == '\n');
  }
  const char *copy = arena_strndup(arena, indented.data, indented.size);
  text_fini(&text);
  text_fini(&indented);
  return copy;
}

static void set_shape(struct values *v, const struct spec *spec) {
  const bool half = spec->shape.type == TYPE_FP16;
  set_number(v, "heads", spec->shape.heads);
  set_number(v, "kv_heads", spec->shape.kv_heads);
  set_number(v, "head_dim", spec->shape.head_dim);
  set(v, "type", half ? "PISA_FP16" : "PISA_BF16");
  set(v, "type_words", half ? "IEEE half precision" : "bfloat16");
  set_flag(v, "causal", spec->shape.mask == MASK_CAUSAL);
}

static const char *decimal_text(struct arena *arena, struct decimal d) {
  int digits = 0;
  for (int64_t den = d.den; den > 1; den /= 10)
    digits++;
  return arena_printf(arena, "%lld.%0*lld", (long long)(d.num / d.den), digits > 0 ? digits : 1,
                      (long long)(d.num % d.den));
}

static void set_method(struct values *v, const struct spec *spec, const struct plan *plan) {
  const bool routed = spec->route.kind == ROUTE_TOP_K;
  set_flag(v, "blocks", routed);
  set_number(v, "query", spec->blocks.query);
  set_number(v, "key", spec->blocks.key);
  set_flag(v, "selects", plan->selects);
  set_number(v, "leaf", spec->pyramid.leaf);
  const bool keeps = plan->selects || (routed && spec->route.budget == BUDGET_KEEP);
  set(v, "keep", keeps ? arena_printf(&v->arena, "%d", spec->route.keep) : NULL);
  set(v, "density",
      routed && spec->route.budget == BUDGET_DENSITY ? decimal_text(&v->arena, spec->route.density)
                                                     : NULL);
  set_flag(v, "below_dense", spec->below.kind == BELOW_DENSE);
  set(v, "below",
      spec->below.kind == BELOW_NEVER
          ? NULL
          : arena_printf(&v->arena, "%lld", (long long)spec->below.tokens));
  set(v, "below_words",
      spec->below.kind == BELOW_DENSE ? "are all read exactly" : "are selected by a flat scan");
}

/* Which calls there are, and how their sizes are passed on. */
static void set_calls(struct values *v, const struct spec *spec, bool selects) {
  const bool prefill = spec->phases.prefill, decode = spec->phases.decode;
  const bool paged = spec->pages.present;
  set_flag(v, "prefill", prefill);
  set_flag(v, "decode", decode);
  set_flag(v, "grown", selects && decode);
  set_flag(v, "paged", paged);
  set_number(v, "page", spec->pages.size);
  set(v, "room", paged ? "page_columns" : "n_k");
  set(v, "shape", paged ? "batch, n_q, page_columns" : "batch, n_q, n_k");
  set(v, "sizes", paged ? "batch, n_q, page_columns, pages" : "batch, n_q, n_k");
  const char *shape = paged ? "int64_t batch, int64_t n_q, int64_t page_columns"
                            : "int64_t batch, int64_t n_q, int64_t n_k";
  set(v, "shape_parameters", shape);
  set(v, "size_parameters",
      paged ? arena_printf(&v->arena, "%s, const int32_t *pages", shape) : shape);
  set(v, "lengths", !decode ? "" : !prefill && selects ? "k_lengths, n_new, " : "k_lengths, ");
  set(v, "pyramid", selects && decode ? "pyramid, " : "");
}

/* ---- the pack ---- */

/* Words rather than bytes: a compiler reads them four times as fast. */
static void write_words(const struct text *bytes, struct text *out) {
  enum { COLUMNS = 5 };
  for (size_t i = 0; i < bytes->size; i += 8) {
    uint64_t word = 0;
    for (size_t j = 0; j < 8 && i + j < bytes->size; j++)
      word |= (uint64_t)(unsigned char)bytes->data[i + j] << (8 * j);
    const bool last = i / 8 % COLUMNS == COLUMNS - 1 || i + 8 >= bytes->size;
    text_printf(out, "0x%llx,%s", (unsigned long long)word, last ? "\n" : "");
  }
}

static void set_pack(struct values *v, const struct text *bytes) {
  struct text words;
  text_init(&words);
  write_words(bytes, &words);
  set_number(v, "pack_bytes", (long long)bytes->size);
  set(v, "words", arena_strndup(&v->arena, words.data, words.size));
  text_fini(&words);
}

void pair_write(const struct pack *pack, const struct text *bytes, const struct pair_names *names,
                struct text *header, struct text *source) {
  struct values v = {.n = 0};
  arena_init(&v.arena);
  const char *prefix = macro_case(&v.arena, names->symbol, strlen(names->symbol));
  set(&v, "name", names->symbol);
  set(&v, "NAME", prefix);
  set(&v, "base", names->base);
  set(&v, "version", PISA_VERSION);
  set(&v, "spec", pack->spec->name);
  set(&v, "text", spec_text(&v.arena, pack->spec));
  set_variants(&v, pack->variants, names->symbol, prefix);
  set_shape(&v, pack->spec);
  set_method(&v, pack->spec, pack->variants->plans[0]);
  set_calls(&v, pack->spec, pack->variants->plans[0]->selects);
  set_pack(&v, bytes);
  template_fill(pair_h_template, v.at, header);
  template_fill(pair_c_template, v.at, source);
  arena_fini(&v.arena);
}
