/* quality_options.c: the command line of `pisa quality` or `pisa sweep` in, checked options out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/quality.h"
#include "runtime/tool/tool.h"

static int wrong(const struct quality_options *o, const char *option, const char *text,
                 const char *expected) {
  return tool_say(o->command, TOOL_WRONG_INPUT, "%s is '%s', expected %s", option, text, expected);
}

/* ---- lists ---- */

/* Numbers above 0, ascending, between commas; |least| for the word "spec". False when |text| is
   something else. */
static bool read_numbers(const char *text, bool spec_allowed, double *out, int *n, int room) {
  for (*n = 0; *n < room; text++) {
    char *end = NULL;
    double value = 0;
    if (spec_allowed && strncmp(text, "spec", 4) == 0)
      end = (char *)(uintptr_t)(text + 4);
    else if ((value = strtod(text, &end)) <= 0 || !isfinite(value) || end == text)
      return false;
    if (*n && value <= out[*n - 1])
      return false;
    out[(*n)++] = value;
    text = end;
    if (*text == '\0')
      return true;
    if (*text != ',')
      return false;
  }
  return false;
}

/* "0,2,5-7", ascending. */
static bool read_heads(const char *text, int64_t *out, int *n) {
  for (*n = 0;; text++) {
    char *end;
    if (*text < '0' || *text > '9')
      return false;
    long long first = strtoll(text, &end, 10), last = first;
    if (*end == '-' && end[1] >= '0' && end[1] <= '9')
      last = strtoll(end + 1, &end, 10);
    if ((*n && first <= out[*n - 1]) || last < first || last - first >= QUALITY_MAX_HEADS - *n)
      return false;
    for (long long h = first; h <= last; h++)
      out[(*n)++] = h;
    text = end;
    if (*text == '\0')
      return true;
    if (*text != ',')
      return false;
  }
}

/* ---- options ---- */

struct texts {
  const char *densities, *heads, *synthetic, *between, *layout, *device;
};

static int check_lists(struct quality_options *o, const struct texts *t) {
  const char *densities = t->densities ? t->densities : "0.05,0.1,0.125,0.15,0.25,0.5";
  if (!read_numbers(densities, true, o->densities, &o->n_densities, QUALITY_MAX_DENSITIES) ||
      o->densities[o->n_densities - 1] > 1)
    return wrong(o, "--densities", densities,
                 "up to 16 rising numbers in (0, 1] with commas between; spec, as the first, is "
                 "the spec's own budget");
  if (t->heads && !read_heads(t->heads, o->heads, &o->n_heads))
    return wrong(o, "--heads", t->heads, "rising numbers and ranges, as 0,2,5-7");
  if (!t->synthetic)
    return TOOL_DONE;
  if (strncmp(t->synthetic, "std=", 4) != 0 ||
      !read_numbers(t->synthetic + 4, false, o->spreads, &o->n_spreads, QUALITY_MAX_SPREADS))
    return wrong(o, "--synthetic", t->synthetic,
                 "std= and up to 16 rising numbers, as std=0.25,0.5,1");
  const char *between = t->between ? t->between : "0.5";
  if (!read_numbers(between, false, o->betweens, &o->n_betweens, QUALITY_MAX_SPREADS))
    return wrong(o, "--between", between, "up to 16 rising numbers, as 0.5,1.5");
  return TOOL_DONE;
}

/* Tensors come from three files, or are made. */
static int check_source(const struct quality_options *o, const struct texts *t) {
  bool any = o->q || o->k || o->v, all = o->q && o->k;
  if (t->synthetic && any)
    return tool_say(o->command, TOOL_WRONG_INPUT,
                    "--synthetic makes the tensors: no --q, --k, --v");
  if (!t->synthetic && !all)
    return tool_say(o->command, TOOL_WRONG_INPUT,
                    "--q and --k FILE are needed, or --synthetic; `pisa %s --help` tells more",
                    o->command);
  if (!t->synthetic && (t->between || o->tokens || o->seed))
    return tool_say(o->command, TOOL_WRONG_INPUT, "%s needs --synthetic",
                    t->between  ? "--between"
                    : o->tokens ? "--tokens"
                                : "--seed");
  if (t->synthetic && (o->name || t->layout))
    return tool_say(o->command, TOOL_WRONG_INPUT, "%s does not go with --synthetic",
                    o->name ? "--name" : "--layout");
  return TOOL_DONE;
}

static int check_rest(struct quality_options *o, const struct texts *t) {
  if (t->layout && strcmp(t->layout, "bhnd") != 0 && strcmp(t->layout, "bnhd") != 0)
    return wrong(o, "--layout", t->layout, "bhnd or bnhd");
  if (!args_device(t->device ? t->device : "cpu", &o->ordinal))
    return wrong(o, "--device", t->device, "cpu or cuda:N");
  if (o->scale > 0 && !(isfinite((float)o->scale) && (float)o->scale > 0))
    return tool_say(o->command, TOOL_WRONG_INPUT, "--scale is %g, which is no float", o->scale);
  if (o->threads > 256)
    return tool_say(o->command, TOOL_WRONG_INPUT, "--threads is %lld, expected at most 256",
                    (long long)o->threads);
  if (o->tokens > 1 << 20)
    return tool_say(o->command, TOOL_WRONG_INPUT, "--tokens is %lld, expected at most %d",
                    (long long)o->tokens, 1 << 20);
  o->bnhd = t->layout && strcmp(t->layout, "bnhd") == 0;
  o->synthetic = t->synthetic != NULL;
  o->every = o->every ? o->every : 1;
  o->tokens = o->tokens ? o->tokens : 4096;
  if (o->synthetic && !o->n_heads)
    o->n_heads = 1; /* head 0 */
  return TOOL_DONE;
}

/* What a sweep wants beside. */
static int check_sweep(const struct quality_options *o) {
  if (o->packs.n > 1)
    return tool_say(o->command, TOOL_WRONG_INPUT, "'%s' is one argument too many",
                    o->packs.items[1]);
  if (o->n_spreads > 1 || o->n_betweens > 1)
    return tool_say(o->command, TOOL_WRONG_INPUT, "a sweep looks at one spread of the logits");
  if (o->max_error > 0 && o->min_recall > 0)
    return tool_say(o->command, TOOL_WRONG_INPUT,
                    "--max-error and --min-recall exclude each other");
  if (o->max_error > 1 || o->min_recall > 1)
    return tool_say(o->command, TOOL_WRONG_INPUT, "--max-error and --min-recall are at most 1");
  return TOOL_DONE;
}

bool quality_options_read(struct quality_options *o, enum quality_for what, int argc, char **argv,
                          int *code) {
  struct texts t = {0};
  const struct args_option options[] = {
      {"--all", NULL, "look at every variant with these choices, not only the first", ARGS_FLAG,
       &o->all, 0},
      {"--q", "FILE", "queries [B, H, Nq, D]: .npy or file.safetensors:name", ARGS_TEXT, &o->q, 0},
      {"--k", "FILE", "keys [B, Hk, Nk, D]", ARGS_TEXT, &o->k, 0},
      {"--v", "FILE", "values [B, Hk, Nk, D]; packs that select blocks need none", ARGS_TEXT, &o->v,
       0},
      {"--every", "N", "packs that select blocks: look at one query in N; else at all", ARGS_INT,
       &o->every, 1},
      {"--name", "TEXT", "what the results call the tensors; else q's file", ARGS_TEXT, &o->name,
       0},
      {"--synthetic", "std=LIST", "instead of files: logits that spread so inside key blocks",
       ARGS_TEXT, &t.synthetic, 0},
      {"--between", "LIST", "and so between key blocks; else 0.5", ARGS_TEXT, &t.between, 0},
      {"--tokens", "N", "of synthetic tensors; else 4096", ARGS_INT, &o->tokens, 1},
      {"--seed", "S", "of synthetic tensors; else 0", ARGS_INT, &o->seed, 0},
      {"--densities", "LIST",
       "shares of key blocks read exactly; else 0.05,0.1,0.125,0.15,0.25,0.5", ARGS_TEXT,
       &t.densities, 0},
      {"--heads", "LIST", "look at these heads only, as 0,2,5-7; else all (synthetic: 0)",
       ARGS_TEXT, &t.heads, 0},
      {"--scale", "S", "multiplies q.k; else 1/sqrt(D)", ARGS_NUMBER, &o->scale, 0},
      {"--set", "NAME=VALUE", "pick every pack's variant with this choice; may be repeated",
       ARGS_MANY, &o->settings, 0},
      {"--layout", "bhnd|bnhd", "order of the dimensions in the files; else bhnd", ARGS_TEXT,
       &t.layout, 0},
      {"--device", "cpu|cuda:N", "where the packs run; else cpu", ARGS_TEXT, &t.device, 0},
      {"--threads", "N", "on the CPU: threads, 0 for all cores", ARGS_INT, &o->threads, 0},
      {"--json", NULL, "JSON lines on stdout, the table on stderr", ARGS_FLAG, &o->json, 0},
      {"--html", "FILE", "also write a page with pictures", ARGS_TEXT, &o->html, 0},
      {"--max-error", "E", "record the fastest whose error is at most E", ARGS_NUMBER,
       &o->max_error, 0},
      {"--min-recall", "R", "record the fastest whose recall is at least R", ARGS_NUMBER,
       &o->min_recall, 0},
  };
  enum { N_ALL = sizeof options / sizeof *options, N_BOUNDS = 2 };
  struct args_command command = {
      "quality", "PACK...",
      "Compares packs with dense attention on the same tensors: relative L2 error, PSNR,\n"
      "how many of the heaviest key blocks the lists have, and the cost in FLOP. Packs with a\n"
      "threshold are looked at with each threshold they have, in place of densities.\n"
      "Of packs that select blocks: recall of the leaves with the largest softmax mass, the mass\n"
      "that the lists capture, and its ratio to the best lists'.",
      options, N_ALL - N_BOUNDS};
  if (what == QUALITY_SWEEP)
    command = (struct args_command){
        "sweep", "PACK",
        "Runs every choice of a pack that changes results on the same tensors, at every density:\n"
        "error and recall against dense attention, and time on the GPU or cost in FLOP; which of\n"
        "them no other beats in both. With a bound the fastest that holds it is recorded in\n"
        "PACK.tune, for pisa_pack_choice.",
        options + 1, N_ALL - 1};
  o->command = command.name;
  if (!args_parse_many(&command, argc, argv, &o->packs, code))
    return false;
  *code = check_source(o, &t);
  if (!*code)
    *code = check_lists(o, &t);
  if (!*code)
    *code = check_rest(o, &t);
  if (!*code && what == QUALITY_SWEEP)
    *code = check_sweep(o);
  return *code == TOOL_DONE;
}
