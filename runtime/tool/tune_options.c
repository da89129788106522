/* tune_options.c: arguments in, struct tune_options or a message out. */
#include <string.h>

#include "runtime/tool/random.h"
#include "runtime/tool/tool.h"
#include "runtime/tool/tune.h"

/* A length is timed once. */
static int drop_repeated(int64_t *tokens, int n) {
  int kept = 0;
  for (int i = 0; i < n; i++) {
    bool seen = false;
    for (int j = 0; j < kept; j++)
      seen = seen || tokens[j] == tokens[i];
    if (!seen)
      tokens[kept++] = tokens[i];
  }
  return kept;
}

static bool finish(struct tune_options *o, const char *tokens, const struct args_list *settings) {
  memcpy(o->settings, settings->items, sizeof o->settings);
  o->n_settings = settings->n;
  for (int i = 0; i < o->n_settings; i++)
    if (pisa_is_schedule_choice(o->settings[i])) {
      tool_say("tune", 0, "--set %s: this is what is tuned; --set picks what is computed",
               o->settings[i]);
      return false;
    }
  if (o->rounds > TUNE_MAX_ROUNDS) {
    tool_say("tune", 0, "--rounds is above %d", TUNE_MAX_ROUNDS);
    return false;
  }
  if (!gpu_options_tokens("tune", tokens, o->tokens, &o->n_tokens))
    return false;
  o->n_tokens = drop_repeated(o->tokens, o->n_tokens);
  return true;
}

bool tune_options_read(struct tune_options *o, int argc, char **argv, int *exit_code) {
  const char *tokens = NULL;
  struct args_list settings = {.n = 0};
  int64_t seed = (int64_t)(random_fresh_seed() >> 33);
  *o = (struct tune_options){.batch = 1, .rounds = 25};
  const struct args_option table[] = {
      {"--tokens", "N,...", "sequence lengths, Nq = Nk; else some of 4096 and more", ARGS_TEXT,
       &tokens, 0},
      {"--batch", "B", "batch; else 1", ARGS_INT, &o->batch, 1},
      {"--heads", "H", "query heads; else the spec's", ARGS_INT, &o->heads, 1},
      {"--set", "NAME=VALUE", "only variants with this choice; may be repeated", ARGS_MANY,
       &settings, 0},
      {"--dense", "PACK", "also find from which length on the method beats this dense pack",
       ARGS_TEXT, &o->dense, 0},
      {"--rounds", "R", "at most so many rounds of a race; else 25", ARGS_INT, &o->rounds,
       TUNE_LEAST_ROUNDS},
      {"--again", NULL, "forget what the table says of this device", ARGS_FLAG, &o->again, 0},
      {"--check", "N",
       "tune nothing; compare the table's choice with all others at N shapes of its buckets",
       ARGS_INT, &o->check, 1},
      {"--seed", "S", "of --check: which shapes; else one that is printed", ARGS_INT, &seed, 0},
      {"--json", NULL, "of --check: one line a shape on stdout", ARGS_FLAG, &o->json, 0},
      {"--no-verify", NULL, "time variants that nobody compared with the oracle", ARGS_FLAG,
       &o->unverified, 0},
  };
  const struct args_command command = {
      "tune", "PACK",
      "Verifies and times every variant whose choices are schedule alone, on the GPU, and writes\n"
      "the fastest for each length into PACK.tune, which libpisa reads. What is done is kept when\n"
      "it is interrupted: the same command goes on.",
      table, sizeof table / sizeof *table};
  if (!args_parse(&command, argc, argv, &o->pack, exit_code))
    return false;
  *exit_code = TOOL_WRONG_INPUT;
  o->seed = (uint64_t)seed;
  return finish(o, tokens, &settings);
}
