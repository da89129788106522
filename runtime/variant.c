/* variant.c: picks a variant by its choices. In: settings like "density=0.25". Out: the index of
   the variant that has them and agrees with variant 0 in every other choice. */
#include <stdio.h>
#include <string.h>

#include "runtime/pack.h"

/* One "name=value" inside a longer text. */
struct choice {
  const char *name, *value;
  size_t name_length, value_length;
};

/* Reads the choice at |text|, up to a space or the end; false when there is no '=' or no name. */
static bool read_choice(const char *text, struct choice *out) {
  size_t length = strcspn(text, " ");
  const char *equals = memchr(text, '=', length);
  if (!equals || equals == text)
    return false;
  *out = (struct choice){text, equals + 1, (size_t)(equals - text),
                         length - (size_t)(equals + 1 - text)};
  return true;
}

static const char *next_word(const char *text) {
  text += strcspn(text, " ");
  return *text ? text + 1 : text;
}

static bool same(const char *a, size_t a_length, const char *b, size_t b_length) {
  return a_length == b_length && !memcmp(a, b, a_length);
}

/* What a plain decimal says: its digits without the zeros that say nothing. */
struct decimal {
  const char *whole, *fraction;
  size_t whole_length, fraction_length;
};

static bool read_decimal(const char *text, size_t length, struct decimal *out) {
  static const char digits[] = "0123456789";
  size_t whole = strspn(text, digits), zeros = strspn(text, "0");
  size_t fraction = whole < length && text[whole] == '.' ? strspn(text + whole + 1, digits) : 0;
  if (whole == 0 || length != (fraction ? whole + 1 + fraction : whole))
    return false;
  *out = (struct decimal){text + zeros, text + whole + 1, whole - zeros, fraction};
  while (out->fraction_length && out->fraction[out->fraction_length - 1] == '0')
    out->fraction_length--;
  return true;
}

/* The same word, or the same number: 0.10 is 0.1. */
static bool same_value(const struct choice *a, const struct choice *b) {
  struct decimal x, y;
  if (read_decimal(a->value, a->value_length, &x) && read_decimal(b->value, b->value_length, &y))
    return same(x.whole, x.whole_length, y.whole, y.whole_length) &&
           same(x.fraction, x.fraction_length, y.fraction, y.fraction_length);
  return same(a->value, a->value_length, b->value, b->value_length);
}

static bool find_choice(const char *choices, const struct choice *name, struct choice *out) {
  for (const char *word = choices; *word; word = next_word(word))
    if (read_choice(word, out) && same(out->name, out->name_length, name->name, name->name_length))
      return true;
  return false;
}

static bool has_setting(const char *choices, const struct choice *setting) {
  struct choice found;
  return find_choice(choices, setting, &found) && same_value(&found, setting);
}

bool pisa_has_settings(const char *choices, const char *const *settings, int n) {
  struct choice choice;
  for (int i = 0; i < n; i++)
    if (!read_choice(settings[i], &choice) || !has_setting(choices, &choice))
      return false;
  return true;
}

static bool is_set(const struct choice *name, const char *const *settings, int n) {
  struct choice setting;
  for (int i = 0; i < n; i++)
    if (read_choice(settings[i], &setting) &&
        same(setting.name, setting.name_length, name->name, name->name_length))
      return true;
  return false;
}

static bool matches(const char *choices, const char *base, const char *const *settings, int n) {
  struct choice choice;
  if (!pisa_has_settings(choices, settings, n))
    return false;
  for (const char *word = choices; *word; word = next_word(word))
    if (read_choice(word, &choice) && !is_set(&choice, settings, n) && !has_setting(base, &choice))
      return false;
  return true;
}

/* The candidates of `tune` (docs/LANGUAGE.md 9.2). */
static bool is_schedule(const struct choice *choice) {
  static const char *const names[] = {"query_tile", "half_tile", "lists", "leaf_stage"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (same(choice->name, choice->name_length, names[i], strlen(names[i])))
      return true;
  return false;
}

bool pisa_is_schedule_choice(const char *choice) {
  struct choice read;
  return read_choice(choice, &read) && is_schedule(&read);
}

bool pisa_same_result(const char *choices, const char *others) {
  struct choice choice;
  for (const char *word = choices; *word; word = next_word(word))
    if (read_choice(word, &choice) && !is_schedule(&choice) && !has_setting(others, &choice))
      return false;
  for (const char *word = others; *word; word = next_word(word))
    if (read_choice(word, &choice) && !is_schedule(&choice) && !has_setting(choices, &choice))
      return false;
  return true;
}

static pisa_status fail_with_choices(const struct pisa_manifest *manifest, pisa_error *error) {
  char list[640] = "";
  size_t used = 0;
  if (manifest->n_variants == 1 && !*manifest->variants[0].choices)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "no variant has these settings: the pack has one variant, without choices");
  for (int i = 0; i < manifest->n_variants && used < sizeof list; i++) {
    int n = snprintf(list + used, sizeof list - used, "%s'%s'", i ? ", " : "",
                     manifest->variants[i].choices);
    used += n > 0 ? (size_t)n : 0;
  }
  return pisa_fail(error, PISA_UNSUPPORTED, "no variant has these settings; there are: %s%s", list,
                   used >= sizeof list ? "..." : "");
}

pisa_status pisa_pack_find_variant(const pisa_pack *pack, const char *const *settings, int n,
                                   int *out, pisa_error *error) {
  pisa_clear(error);
  if (!pack)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "pack is NULL");
  if (n < 0)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "n is %d, must be at least 0", n);
  if (n > 0 && !settings)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "settings is NULL and n is %d", n);
  if (!out)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "out is NULL");
  struct choice choice;
  for (int i = 0; i < n; i++)
    if (!settings[i] || !read_choice(settings[i], &choice) || strchr(settings[i], ' '))
      return pisa_fail(error, PISA_INVALID_ARGUMENT, "setting %d is '%.80s', must be name=value", i,
                       settings[i] ? settings[i] : "NULL");
  const struct pisa_manifest *manifest = &pack->manifest;
  for (int i = 0; i < manifest->n_variants; i++) {
    if (!matches(manifest->variants[i].choices, manifest->variants[0].choices, settings, n))
      continue;
    *out = i;
    return PISA_OK;
  }
  return fail_with_choices(manifest, error);
}
