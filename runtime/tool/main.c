/* main.c: the `pisa` executable: argv in, one command run, its exit code out. */
#include <stdio.h>
#include <string.h>

#include "runtime/tool/tool.h"

static const struct {
  const char *name, *summary;
  int (*run)(int argc, char **argv);
} commands[] = {
    {"info", "what a pack holds: method, variants, kernels, validation", tool_info},
    {"run", "attention of arrays in .npy or .safetensors files", tool_run},
    {"quality", "error, routing recall and cost of packs against dense attention", tool_quality},
    {"verify", "compare every kernel of a pack with the reference, on this GPU", tool_verify},
    {"bench", "time a pack on this GPU", tool_bench},
    {"tune", "find a pack's fastest schedules on this GPU, for libpisa to take", tool_tune},
    {"sweep", "what a pack may vary, on your tensors: error against time", tool_sweep},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int help(FILE *out) {
  fprintf(out, "usage: pisa COMMAND PACK [options]\n\ncommands:\n");
  for (int i = 0; i < N_COMMANDS; i++)
    fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
  fprintf(
      out,
      "\n`pisa COMMAND --help` lists a command's options; `pisa --version` prints the version.\n"
      "Packs are made from specs by `pisac build`.\n\n"
      "exit: 0 done, 1 wrong input, 2 a file, the driver or the device failed, 3 verification "
      "failed\n");
  return out == stdout ? TOOL_DONE : TOOL_WRONG_INPUT;
}

int main(int argc, char **argv) {
  if (argc < 2)
    return help(stderr);
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
    return help(stdout);
  if (strcmp(argv[1], "--version") == 0) {
    printf("pisa %s\n", pisa_version());
    return TOOL_DONE;
  }
  for (int i = 0; i < N_COMMANDS; i++)
    if (strcmp(argv[1], commands[i].name) == 0)
      return commands[i].run(argc - 1, argv + 1);
  fprintf(stderr, "pisa: no command '%s'\n\n", argv[1]);
  return help(stderr);
}
