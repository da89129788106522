/* gpu_options.c: arguments in, struct gpu_options or a message out. */
#include "runtime/tool/gpu_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/args.h"
#include "runtime/tool/random.h"
#include "runtime/tool/tool.h"
#include "runtime/tool/verify_select.h"

enum { LONGEST = 1 << 24 }; /* tokens; inputs are made on the host */

struct words { /* what needs more than args.h knows */
  const char *tokens, *layout, *seed;
  struct args_list settings;
};

static bool next_number(const char **text, int64_t *out) {
  char *end;
  errno = 0;
  long long value = strtoll(*text, &end, 10);
  if (end == *text || errno || value < 1 || value > LONGEST || (*end && *end != ','))
    return false;
  *out = value;
  *text = *end ? end + 1 : end;
  return true;
}

bool gpu_options_tokens(const char *command, const char *text, int64_t *tokens, int *n) {
  for (const char *at = text; at && *at;)
    if (*n == OPTIONS_MAX_TOKENS || !next_number(&at, &tokens[(*n)++])) {
      tool_say(command, 0, "--tokens is '%s', expected at most %d lengths of 1 to %d: 4096,4608",
               text, OPTIONS_MAX_TOKENS, LONGEST);
      return false;
    }
  return true;
}

static bool read_layout(struct gpu_options *o, const char *command, const char *text) {
  for (int i = VERIFY_BHND; text && i <= VERIFY_SHARED; i++)
    if (strcmp(text, verify_layout_names[i]) == 0)
      o->layout = i;
  if (text && o->layout < 0)
    tool_say(command, 0, "--layout is '%s', expected bhnd, bnhd, gapped, far or shared", text);
  return !text || o->layout >= 0;
}

static bool read_seed(struct gpu_options *o, const char *command, const char *text) {
  char *end;
  o->seed = random_fresh_seed();
  if (!text)
    return true;
  errno = 0;
  o->seed = strtoull(text, &end, 10);
  if (end != text && !*end && !errno && *text != '-')
    return true;
  tool_say(command, 0, "--seed is '%s', expected a whole number", text);
  return false;
}

static bool check(const struct gpu_options *o, const char *command) {
  const char *wrong = NULL;
  if (o->density > 1)
    wrong = "--density is above 1";
  if (o->density > 0 && o->keep > 0)
    wrong = "--density and --keep exclude each other";
  if (o->prefill && o->decode)
    wrong = "--prefill and --decode exclude each other";
  if (o->ptx && o->both)
    wrong = "--ptx and --both exclude each other";
  if (wrong)
    tool_say(command, 0, "%s", wrong);
  return !wrong;
}

static bool check_case(const struct gpu_options *o, const char *command) {
  for (int i = 0; i < verify_n_cases; i++)
    if (!o->only || strcmp(o->only, verify_cases[i].name) == 0)
      return true;
  if (select_has_case(o->only))
    return true;
  tool_say(command, 0, "no case '%s'; verify_case.c and verify_select_case.c list them", o->only);
  return false;
}

static bool finish(struct gpu_options *o, const char *command, const struct words *words) {
  memcpy(o->settings, words->settings.items, sizeof o->settings);
  o->n_settings = words->settings.n;
  return gpu_options_tokens(command, words->tokens, o->tokens, &o->n_tokens) &&
         read_layout(o, command, words->layout) && read_seed(o, command, words->seed) &&
         check(o, command) && check_case(o, command);
}

bool gpu_options_read(struct gpu_options *o, enum options_for what, int argc, char **argv,
                      int *exit_code) {
  *o = (struct gpu_options){.layout = -1, .rounds = 5};
  struct words words = {0};
  const struct args_option table[] = {
      {"--tokens", "N,...", "sequence lengths, Nq = Nk", ARGS_TEXT, &words.tokens, 0},
      {"--batch", "B", "batch", ARGS_INT, &o->batch, 1},
      {"--heads", "H", "query heads", ARGS_INT, &o->heads, 1},
      {"--layout", "NAME",
       "bhnd, bnhd, gapped (rows apart), far (heads apart) or shared (one array)", ARGS_TEXT,
       &words.layout, 0},
      {"--density", "D", "share of the key blocks read exactly, in (0, 1]", ARGS_NUMBER,
       &o->density, 0},
      {"--keep", "K", "number of key blocks read exactly", ARGS_INT, &o->keep, 1},
      {"--set", "NAME=VALUE", "picks a variant; may be repeated", ARGS_MANY, &words.settings, 0},
      {"--json", NULL, "JSON lines on stdout, the table on stderr", ARGS_FLAG, &o->json, 0},
      {"--seed", "S", "of the inputs; otherwise a fresh one", ARGS_TEXT, &words.seed, 0},
      {"--rounds", "R", "rounds of each measurement", ARGS_INT, &o->rounds, 5},
      {"--prefill", NULL, "packs that select blocks: prefill alone", ARGS_FLAG, &o->prefill, 0},
      {"--decode", NULL, "packs that select blocks: decode alone", ARGS_FLAG, &o->decode, 0},
      {"--case", "NAME", "this case alone", ARGS_TEXT, &o->only, 0},
      {"--ptx", NULL, "the PTX, compiled by the driver, in place of the cubin", ARGS_FLAG, &o->ptx,
       0},
      {"--both", NULL, "the cubin, then the PTX", ARGS_FLAG, &o->both, 0},
      {"--quick", NULL, "the small cases alone, for compute-sanitizer", ARGS_FLAG, &o->quick, 0},
      {"--longest", NULL, "the longest sequences too, with the first variant", ARGS_FLAG,
       &o->longest, 0},
      {"--no-poison", NULL, "outputs and workspace as allocated, for its initcheck", ARGS_FLAG,
       &o->no_poison, 0},
  };
  enum { N_SHARED = 9, N_BENCH = 12, N_ALL = sizeof table / sizeof table[0] };
  struct args_command command = {
      "verify", "PACK", "Compares every output of every kernel with the oracle, on the GPU.", table,
      N_ALL};
  if (what == OPTIONS_BENCH) {
    command.name = "bench";
    command.about = "Times the whole method and each of its kernels, on the GPU.";
    command.n_options = N_BENCH;
  }
  if (!args_parse(&command, argc, argv, &o->pack, exit_code))
    return false;
  *exit_code = TOOL_WRONG_INPUT;
  return finish(o, command.name, &words);
}
