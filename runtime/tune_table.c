/* tune_table.c: the text of PACK.tune <-> struct pisa_tune. In: bytes, or rows. Out: every field
   read and checked, with errors that name the line; or the file, replaced in one step. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/lines.h"
#include "runtime/tune.h"

enum {
  MAX_TOKENS = 1 << 30,
  MAX_VARIANT = 4095,
  MAX_ROWS = 1 << 14,
  ROW_FIELDS = 10,
  CHOICE_FIELDS = 7
};
static const int64_t max_heads = INT64_C(1) << 40, max_ns = INT64_C(1) << 50;
static const size_t max_bytes = (size_t)1 << 24;

static const char *const phases[] = {"prefill", "decode"};
static const char *const results[] = {"best", "slower", "wrong"};
static const char *const bounds[] = {"max_error", "min_recall"};

/* ---- fields ---- */

bool pisa_tune_same_key(const struct pisa_tune_key *a, const struct pisa_tune_key *b) {
  return !strcmp(a->device, b->device) && a->driver == b->driver && a->phase == b->phase &&
         a->tokens == b->tokens && a->heads == b->heads;
}

int64_t pisa_tune_bucket(int64_t n) {
  int64_t power = 1;
  while (power <= n / 2)
    power *= 2;
  /* nearer to 2 power where n > sqrt(2) power */
  const int64_t parts = 100000000, fraction = 41421356; /* sqrt(2) - 1 */
  int64_t middle = power / parts * fraction + power % parts * fraction / parts;
  return n - power > middle ? 2 * power : power;
}

void pisa_tune_device_word(const char *name, char out[PISA_TUNE_DEVICE]) {
  static const char kept[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.";
  size_t n = 0;
  for (; name[n] && n + 1 < PISA_TUNE_DEVICE; n++)
    out[n] = strchr(kept, name[n]) ? name[n] : '_';
  if (n == 0)
    out[n++] = '_';
  out[n] = '\0';
}

static bool read_digest(struct pisa_lines *lines, char *out) {
  const char *text = pisa_lines_value(lines, "ptx");
  if (!text || !pisa_lines_digest(lines, text))
    return false;
  memcpy(out, text, PISA_SHA256_HEX + 1);
  return true;
}

static bool read_power(struct pisa_lines *lines, const char *name, int64_t high, int64_t *out) {
  if (!pisa_lines_number(lines, name, 1, high, out))
    return false;
  return !(*out & (*out - 1)) || pisa_lines_fail(lines, "%s is no power of two", name);
}

/* A decimal of at most nine places, 0 to 1, in 10^-9. */
static bool read_share(struct pisa_lines *lines, const char *name, int64_t *out) {
  const char *text = pisa_lines_value(lines, name);
  if (!text)
    return false;
  int64_t value = text[0] - '0', place = PISA_TUNE_BILLION;
  const char *at = text + 1;
  bool ok = value == 0 || value == 1;
  value *= PISA_TUNE_BILLION;
  if (ok && *at == '.')
    for (at++; *at >= '0' && *at <= '9' && place > 1; at++)
      value += (*at - '0') * (place /= 10);
  if (!ok || *at || at[-1] == '.')
    return pisa_lines_fail(lines, "%s is '%.40s', must be a decimal of at most nine places", name,
                           text);
  *out = value;
  return true;
}

/* ---- lines ---- */

static bool read_device(struct pisa_lines *lines, char *out) {
  const char *text = pisa_lines_value(lines, "device");
  if (!text)
    return false;
  char word[PISA_TUNE_DEVICE];
  pisa_tune_device_word(text, word);
  if (strcmp(word, text))
    return pisa_lines_fail(lines, "device '%.80s' is no word of letters, digits, '_', '-', '.'",
                           text);
  memcpy(out, word, sizeof word);
  return true;
}

static bool read_row(struct pisa_lines *lines, struct pisa_tune_row *row) {
  int result;
  if (!pisa_lines_split(lines, ROW_FIELDS) || !read_device(lines, row->key.device) ||
      !pisa_lines_int(lines, "driver", 0, INT32_MAX, &row->key.driver) ||
      !read_digest(lines, row->ptx) ||
      !pisa_lines_word(lines, "phase", phases, 2, &row->key.phase) ||
      !read_power(lines, "tokens", MAX_TOKENS, &row->key.tokens) ||
      !read_power(lines, "heads", max_heads, &row->key.heads) ||
      !pisa_lines_int(lines, "variant", 0, MAX_VARIANT, &row->variant) ||
      !pisa_lines_number(lines, "ns", 0, max_ns, &row->ns) ||
      !pisa_lines_int(lines, "rounds", 0, INT32_MAX, &row->rounds) ||
      !pisa_lines_word(lines, "result", results, 3, &result))
    return false;
  row->result = (enum pisa_tune_result)result;
  pisa_lines_next(lines);
  return true;
}

static bool read_choice(struct pisa_lines *lines, struct pisa_tune_choice *choice) {
  int bound;
  if (!pisa_lines_split(lines, CHOICE_FIELDS) || !read_digest(lines, choice->ptx) ||
      !pisa_lines_int(lines, "variant", 0, MAX_VARIANT, &choice->variant) ||
      !read_share(lines, "density", &choice->density) ||
      !pisa_lines_number(lines, "keep", 0, MAX_TOKENS, &choice->keep) ||
      !pisa_lines_word(lines, "bound", bounds, 2, &bound) ||
      !read_share(lines, "limit", &choice->limit) ||
      !read_share(lines, "reached", &choice->reached))
    return false;
  if (choice->density && choice->keep)
    return pisa_lines_fail(lines, "density and keep exclude each other");
  choice->bound = (enum pisa_tune_bound)bound;
  choice->present = true;
  pisa_lines_next(lines);
  return true;
}

static bool read_head(struct pisa_lines *lines) {
  int64_t version;
  if (!pisa_lines_expect(lines, "pisa-tune") ||
      !pisa_lines_parse(lines, "version", lines->rest, 1, INT32_MAX, &version))
    return false;
  if (version != PISA_TUNE_VERSION)
    return pisa_lines_fail(lines,
                           "the table has version %" PRId64 ", this library (%s) reads %d: update "
                           "libpisa, or delete the table and run `pisa tune` again",
                           version, PISA_VERSION, PISA_TUNE_VERSION);
  pisa_lines_next(lines);
  return true;
}

static bool read_table(struct pisa_lines *lines, struct pisa_tune *out) {
  if (!read_head(lines))
    return false;
  while (pisa_lines_at(lines, "row")) {
    if (out->n == MAX_ROWS)
      return pisa_lines_fail(lines, "the table has more than %d rows", MAX_ROWS);
    struct pisa_tune_row row = {.rounds = 0};
    if (!read_row(lines, &row) || pisa_tune_put(out, &row, lines->error))
      return false;
  }
  if (pisa_lines_at(lines, "choice") && !read_choice(lines, &out->choice))
    return false;
  return !lines->key ||
         pisa_lines_fail(lines, "found '%.40s', which has no place here", lines->key);
}

pisa_status pisa_tune_parse(const char *text, size_t size, struct pisa_tune *out,
                            pisa_error *error) {
  pisa_error local = {PISA_OK, ""}; /* |error| may be NULL; its status is needed here */
  struct pisa_lines lines;
  *out = (struct pisa_tune){.n = 0};
  char *words = malloc(size ? size : 1);
  if (!words)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for a table of %zu bytes", size);
  memcpy(words, text, size);
  bool ok = pisa_lines_open_as(&lines, "table", words, size, &local) && read_table(&lines, out);
  free(words);
  if (ok)
    return PISA_OK;
  pisa_tune_clear(out);
  return pisa_fail(error, local.status, "%s", local.message);
}

void pisa_tune_clear(struct pisa_tune *table) {
  free(table->rows);
  *table = (struct pisa_tune){.n = 0};
}

pisa_status pisa_tune_put(struct pisa_tune *table, const struct pisa_tune_row *row,
                          pisa_error *error) {
  for (int i = 0; i < table->n; i++) {
    struct pisa_tune_row *old = &table->rows[i];
    if (old->variant == row->variant && !strcmp(old->ptx, row->ptx) &&
        pisa_tune_same_key(&old->key, &row->key)) {
      *old = *row;
      return PISA_OK;
    }
  }
  struct pisa_tune_row *rows = realloc(table->rows, (size_t)(table->n + 1) * sizeof *rows);
  if (!rows)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for %d rows of a table", table->n + 1);
  table->rows = rows;
  rows[table->n++] = *row;
  return PISA_OK;
}

/* ---- the file ---- */

pisa_status pisa_tune_load(const char *path, struct pisa_tune *out, pisa_error *error) {
  *out = (struct pisa_tune){.n = 0};
  FILE *file = fopen(path, "rb");
  if (!file && errno == ENOENT)
    return PISA_OK;
  if (!file)
    return pisa_fail(error, PISA_IO, "%s: cannot open: %s", path, strerror(errno));
  size_t size = 0, room = 1 << 14;
  char *text = malloc(room);
  while (text && (size += fread(text + size, 1, room - size, file)) == room && room < max_bytes) {
    char *larger = realloc(text, room *= 2);
    if (!larger)
      free(text);
    text = larger;
  }
  pisa_status status = PISA_OK;
  if (!text)
    status = pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for %zu bytes", room);
  else if (ferror(file))
    status = pisa_fail(error, PISA_IO, "cannot read: %s", strerror(errno));
  else if (size == max_bytes)
    status = pisa_fail(error, PISA_CORRUPT, "the table has more than %zu bytes", max_bytes);
  else
    status = pisa_tune_parse(text, size, out, error);
  free(text);
  fclose(file);
  return status ? pisa_add_context(error, status, "%s", path) : PISA_OK;
}

static void write_share(FILE *file, const char *name, int64_t value) {
  char digits[16];
  snprintf(digits, sizeof digits, "%09" PRId64, value % PISA_TUNE_BILLION);
  size_t n = 9;
  while (n > 1 && digits[n - 1] == '0')
    n--;
  fprintf(file, " %s=%" PRId64 ".%.*s", name, value / PISA_TUNE_BILLION, (int)n, digits);
}

static void write_choice(FILE *file, const struct pisa_tune_choice *choice) {
  fprintf(file, "choice variant=%d ptx=%s", choice->variant, choice->ptx);
  write_share(file, "density", choice->density);
  fprintf(file, " keep=%" PRId64 " bound=%s", choice->keep, bounds[choice->bound]);
  write_share(file, "limit", choice->limit);
  write_share(file, "reached", choice->reached);
  fputc('\n', file);
}

static void write_table(FILE *file, const struct pisa_tune *table) {
  fprintf(file, "pisa-tune %d\n", PISA_TUNE_VERSION);
  for (int i = 0; i < table->n; i++) {
    const struct pisa_tune_row *r = &table->rows[i];
    fprintf(file,
            "row device=%s driver=%d ptx=%s phase=%s tokens=%" PRId64 " heads=%" PRId64
            " variant=%d ns=%" PRId64 " rounds=%d result=%s\n",
            r->key.device, r->key.driver, r->ptx, phases[r->key.phase], r->key.tokens, r->key.heads,
            r->variant, r->ns, r->rounds, results[r->result]);
  }
  if (table->choice.present)
    write_choice(file, &table->choice);
}

pisa_status pisa_tune_save(const char *path, const struct pisa_tune *table, pisa_error *error) {
  char aside[4096];
  if ((size_t)snprintf(aside, sizeof aside, "%s.new", path) >= sizeof aside)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%.80s...: the path is too long", path);
  FILE *file = fopen(aside, "wb");
  if (!file)
    return pisa_fail(error, PISA_IO, "%s: cannot write: %s", aside, strerror(errno));
  write_table(file, table);
  bool failed = ferror(file) != 0;
  failed = fclose(file) != 0 || failed;
  if (failed || rename(aside, path)) {
    pisa_status status = pisa_fail(error, PISA_IO, "%s: cannot write: %s", path, strerror(errno));
    remove(aside);
    return status;
  }
  return PISA_OK;
}
