/* options.c: in go argc and argv; out comes a struct options, or a sentence on stderr. The tables
   below are the command line: which command takes which option, and what --help says. */
#include "compiler/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/pair/symbol.h"
#include "dsl/arena.h"
#include "dsl/suggest.h"

enum {
  JSON = 1,
  OUTPUT = 2,
  SET = 4,
  TOKENS = 8,
  STAGE = 16,
  NO_PTXAS = 32,
  FORMAT = 64,
  NAME = 128
};

static const struct {
  const char *name;
  int takes;
  const char *summary, *help;
} COMMANDS[N_COMMANDS] = {
    [COMMAND_CHECK] = {"check", JSON | SET, "report every error of a spec",
                       "Reads the spec and reports every error with its place.\n"},
    [COMMAND_FMT] = {"fmt", OUTPUT, "print a spec in the canonical layout",
                     "Prints the spec in the canonical layout; comments are kept.\n"},
    [COMMAND_EXPLAIN] = {"explain", SET | TOKENS | OUTPUT, "say what a spec does and what it costs",
                         "Prints the method, its kernels and their cost at a number of tokens,\n"
                         "the variants, and what was not built and why.\n"},
    [COMMAND_EMIT] = {"emit", SET | STAGE | OUTPUT, "print one stage of the compilation",
                      "Prints the first variant at one stage:\n"
                      "  tokens  words of the text\n"
                      "  ast     the syntax tree\n"
                      "  spec    the checked spec, canonical\n"
                      "  pisa    the method as operations of the pisa dialect\n"
                      "  plan    tiles, stages, registers and shared memory of every kernel\n"
                      "  mlir    the kernels in the llvm, nvvm, arith and scf dialects\n"
                      "  llvm    LLVM IR, as the backend sees it\n"
                      "  ptx     PTX\n"},
    [COMMAND_BUILD] = {"build", SET | FORMAT | NAME | OUTPUT | NO_PTXAS, "compile a spec to a pack",
                       "Compiles every variant and writes NAME.pack: PTX, and a cubin when\n"
                       "ptxas is found (PISA_PTXAS, CUDA_HOME, CUDA_PATH, PATH).\n"
                       "--format c writes NAME.c and NAME.h instead: the pack inside, and calls\n"
                       "with the parameters that the spec needs.\n"},
};

static const struct {
  const char *name;
  int option;
  const char *argument, *summary; /* argument NULL: a switch */
} OPTIONS[] = {
    {"--stage", STAGE, "STAGE", "which stage"},
    {"--set", SET, "NAME=VALUE", "pick a value of tune or vary; may be given again"},
    {"--tokens", TOKENS, "N", "number of tokens (default 8192)"},
    {"--format", FORMAT, "FORMAT", "pack (default), or c: one .c/.h pair"},
    {"--name", NAME, "NAME", "what names of the pair begin with (default: the spec's name)"},
    {"-o", OUTPUT, "FILE", "write there instead of to standard output (build: NAME.pack)"},
    {"--json", JSON, NULL, "print the messages as JSON to standard output"},
    {"--no-ptxas", NO_PTXAS, NULL, "leave the cubin out; the driver compiles the PTX"},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof *OPTIONS };

/* ---- complaints ---- */

static bool complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool complain(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("pisac: ", stderr);
  vfprintf(stderr, format, args);
  fputs("; see pisac --help\n", stderr);
  va_end(args);
  return false;
}

static bool unknown(const char *kind, const char *word, const char *const *words) {
  const char *near = suggest(word, words);
  if (near)
    return complain("unknown %s '%s'; did you mean '%s'?", kind, word, near);
  return complain("unknown %s '%s'", kind, word);
}

static bool unknown_command(const char *word) {
  const char *words[N_COMMANDS + 1] = {NULL};
  for (int i = 0; i < N_COMMANDS; i++)
    words[i] = COMMANDS[i].name;
  return unknown("command", word, words);
}

static bool unknown_option(int takes, const char *word) {
  const char *words[N_OPTIONS + 2] = {NULL};
  int n = 0;
  for (int i = 0; i < N_OPTIONS; i++)
    if (takes & OPTIONS[i].option)
      words[n++] = OPTIONS[i].name;
  words[n] = "--help";
  return unknown("option", word, words);
}

/* ---- values ---- */

static bool read_setting(struct arena *arena, const char *value, struct options *out) {
  const char *equals = strchr(value, '=');
  if (!equals || equals == value || !equals[1])
    return complain("--set takes NAME=VALUE, found '%s'", value);
  if (out->n_settings == MAX_SETTINGS)
    return complain("more than %d --set", MAX_SETTINGS);
  const char *name = arena_strndup(arena, value, (size_t)(equals - value));
  out->settings[out->n_settings++] = (struct setting){name, equals + 1};
  return true;
}

static bool read_tokens(const char *value, struct options *out) {
  char *end;
  long long n = strtoll(value, &end, 10);
  if (*value < '0' || *value > '9' || *end || n < 1 || n > (1LL << 30))
    return complain("--tokens takes a whole number from 1 to %lld, found '%s'", 1LL << 30, value);
  out->tokens = n;
  return true;
}

static bool read_format(const char *value, struct options *out) {
  static const char *const formats[] = {[FORMAT_PACK] = "pack", [FORMAT_C] = "c", NULL};
  for (int i = 0; formats[i]; i++)
    if (strcmp(value, formats[i]) == 0) {
      out->format = (enum format)i;
      return true;
    }
  return complain("unknown format '%s'; there are pack and c", value);
}

static bool read_name(const char *value, struct options *out) {
  const char *why_not = symbol_refused(value);
  if (why_not)
    return complain("--name: '%s' %s", value, why_not);
  out->name = value;
  return true;
}

static bool read_value(struct arena *arena, int option, const char *value, struct options *out) {
  switch (option) {
  case STAGE:
    out->stage = value;
    return true;
  case OUTPUT:
    out->output = value;
    return true;
  case TOKENS:
    return read_tokens(value, out);
  case FORMAT:
    return read_format(value, out);
  case NAME:
    return read_name(value, out);
  default:
    return read_setting(arena, value, out);
  }
}

/* ---- the line ---- */

/* Option |argv[*at]|, with its value in the same word ("--set=a=b") or in the next. */
static bool read_option(struct arena *arena, int argc, char **argv, int *at, struct options *out) {
  const char *word = argv[*at];
  for (int i = 0; i < N_OPTIONS; i++) {
    size_t length = strlen(OPTIONS[i].name);
    if (strncmp(word, OPTIONS[i].name, length) != 0 || (word[length] && word[length] != '='))
      continue;
    if (!(COMMANDS[out->command].takes & OPTIONS[i].option))
      break;
    if (!OPTIONS[i].argument && !word[length]) {
      out->json |= OPTIONS[i].option == JSON;
      out->no_ptxas |= OPTIONS[i].option == NO_PTXAS;
      return true;
    }
    if (!OPTIONS[i].argument)
      return complain("%s takes no value", OPTIONS[i].name);
    if (!word[length] && *at + 1 >= argc)
      return complain("%s takes %s", word, OPTIONS[i].argument);
    const char *value = word[length] ? word + length + 1 : argv[++*at];
    return read_value(arena, OPTIONS[i].option, value, out);
  }
  return unknown_option(COMMANDS[out->command].takes, word);
}

static bool read_command(const char *word, struct options *out) {
  for (int i = 0; i < N_COMMANDS; i++)
    if (strcmp(word, COMMANDS[i].name) == 0) {
      out->command = (enum command)i;
      return true;
    }
  return unknown_command(word);
}

static bool read_rest(struct arena *arena, int argc, char **argv, struct options *out) {
  for (int i = 2; i < argc; i++) {
    bool is_option = argv[i][0] == '-' && argv[i][1];
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
      return out->help = true;
    if (is_option && !read_option(arena, argc, argv, &i, out))
      return false;
    if (!is_option && out->spec)
      return complain("one spec at a time: '%s' and '%s'", out->spec, argv[i]);
    if (!is_option)
      out->spec = argv[i];
  }
  if (!out->spec)
    return complain("%s takes a spec file", COMMANDS[out->command].name);
  if (out->command == COMMAND_EMIT && !out->stage)
    return complain("emit takes --stage STAGE");
  if (out->name && out->format != FORMAT_C)
    return complain("--name goes with --format c");
  if (out->format == FORMAT_C && out->output && strpbrk(out->output, "\"\\*\n"))
    return complain("-o: '%s' cannot be included", out->output);
  return true;
}

bool options_read(struct arena *arena, int argc, char **argv, struct options *out) {
  *out = (struct options){.command = N_COMMANDS};
  if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
      strcmp(argv[1], "help") == 0) {
    out->help = argc >= 2;
    return argc >= 2 || complain("no command");
  }
  if (strcmp(argv[1], "--version") == 0)
    return out->version = true;
  if (argv[1][0] == '-')
    return unknown("option", argv[1], (const char *const[]){"--help", "--version", NULL});
  return read_command(argv[1], out) && read_rest(arena, argc, argv, out);
}

/* ---- help ---- */

static void help_command(enum command command) {
  printf("usage: pisac %s [options] SPEC\n\n%s\n", COMMANDS[command].name, COMMANDS[command].help);
  for (int i = 0; i < N_OPTIONS; i++)
    if (COMMANDS[command].takes & OPTIONS[i].option) {
      char left[32];
      snprintf(left, sizeof left, "%s %s", OPTIONS[i].name,
               OPTIONS[i].argument ? OPTIONS[i].argument : "");
      printf("  %-18s %s\n", left, OPTIONS[i].summary);
    }
}

void options_help(const struct options *options) {
  if (options->command != N_COMMANDS) {
    help_command(options->command);
    return;
  }
  puts("usage: pisac COMMAND [options] SPEC\n\n"
       "Compiles an attention spec (a .pisa file) to a pack of Hopper kernels.\n");
  for (int i = 0; i < N_COMMANDS; i++)
    printf("  %-8s %s\n", COMMANDS[i].name, COMMANDS[i].summary);
  puts("\n  pisac COMMAND --help   options of a command\n"
       "  pisac --version        versions, supported chips and drivers\n\n"
       "Exit status: 0 done, 1 the spec or the command line is wrong, 2 a file or a tool failed.");
}
