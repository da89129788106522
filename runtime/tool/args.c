/* args.c: argv and a table of options in; their values, or a message and an exit code, out. */
#include "runtime/tool/args.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/tool.h"

enum { MAX_OPTIONS = 32 }; /* of a command */

static void print_help(const struct args_command *command) {
  printf("usage: pisa %s %s [options]\n\n%s\n\noptions:\n", command->name, command->positional,
         command->about);
  for (int i = 0; i < command->n_options; i++) {
    const struct args_option *option = &command->options[i];
    char left[64];
    snprintf(left, sizeof left, "%s %s", option->name, option->value ? option->value : "");
    printf("  %-22s %s\n", left, option->help);
  }
}

/* The option that |word| names, "--name" or "--name=value"; -1 when there is none. */
static int find(const struct args_command *command, const char *word) {
  size_t length = strcspn(word, "=");
  for (int i = 0; i < command->n_options; i++)
    if (strlen(command->options[i].name) == length &&
        strncmp(command->options[i].name, word, length) == 0)
      return i;
  return -1;
}

static bool store_int(const struct args_command *command, const struct args_option *option,
                      const char *text) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (end == text || *end || errno || value < option->least) {
    tool_say(command->name, 0, "%s is '%s', expected a whole number of at least %lld", option->name,
             text, (long long)option->least);
    return false;
  }
  *(int64_t *)option->out = value;
  return true;
}

static bool store_number(const struct args_command *command, const struct args_option *option,
                         const char *text) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end || !isfinite(value) || value <= 0) {
    tool_say(command->name, 0, "%s is '%s', expected a number above 0", option->name, text);
    return false;
  }
  *(double *)option->out = value;
  return true;
}

static bool store_many(const struct args_command *command, const struct args_option *option,
                       const char *text) {
  struct args_list *list = option->out;
  if (list->n == ARGS_MAX_LIST) {
    tool_say(command->name, 0, "%s is given more than %d times", option->name, ARGS_MAX_LIST);
    return false;
  }
  list->items[list->n++] = text;
  return true;
}

static bool store(const struct args_command *command, const struct args_option *option,
                  const char *text) {
  switch (option->kind) {
  case ARGS_FLAG:
    *(bool *)option->out = true;
    return true;
  case ARGS_TEXT:
    *(const char **)option->out = text;
    return true;
  case ARGS_INT:
    return store_int(command, option, text);
  case ARGS_NUMBER:
    return store_number(command, option, text);
  case ARGS_MANY:
    break;
  }
  return store_many(command, option, text);
}

/* Reads the option at argv[*at]; *at moves over a value in the next word. */
static bool take(const struct args_command *command, int argc, char **argv, int *at, bool *seen) {
  const char *word = argv[*at], *equals = strchr(word, '=');
  int index = find(command, word);
  if (index < 0) {
    tool_say(command->name, 0, "no option '%.*s'; `pisa %s --help` lists them",
             (int)strcspn(word, "="), word, command->name);
    return false;
  }
  const struct args_option *option = &command->options[index];
  if (seen[index] && option->kind != ARGS_MANY) {
    tool_say(command->name, 0, "%s is given twice", option->name);
    return false;
  }
  seen[index] = true;
  if (option->kind == ARGS_FLAG && equals) {
    tool_say(command->name, 0, "%s takes no value", option->name);
    return false;
  }
  if (option->kind == ARGS_FLAG || equals)
    return store(command, option, equals ? equals + 1 : NULL);
  if (*at + 1 == argc) {
    tool_say(command->name, 0, "%s needs a value: %s", option->name, option->value);
    return false;
  }
  return store(command, option, argv[++*at]);
}

/* Positional arguments go to |list|, at most |room| of them. */
static bool parse(const struct args_command *command, int argc, char **argv, int room,
                  struct args_list *list, int *exit_code) {
  bool seen[MAX_OPTIONS] = {false};
  assert(command->n_options <= MAX_OPTIONS);
  list->n = 0;
  *exit_code = TOOL_WRONG_INPUT;
  for (int at = 1; at < argc; at++) {
    if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
      print_help(command);
      *exit_code = TOOL_DONE;
      return false;
    }
    if (argv[at][0] == '-') {
      if (!take(command, argc, argv, &at, seen))
        return false;
    } else if (list->n == room) {
      tool_say(command->name, 0, "'%s' is one argument too many", argv[at]);
      return false;
    } else {
      list->items[list->n++] = argv[at];
    }
  }
  if (!list->n)
    tool_say(command->name, 0, "no %s is given; `pisa %s --help` tells more", command->positional,
             command->name);
  return list->n > 0;
}

bool args_parse(const struct args_command *command, int argc, char **argv, const char **positional,
                int *exit_code) {
  struct args_list list;
  bool ok = parse(command, argc, argv, 1, &list, exit_code);
  *positional = list.n ? list.items[0] : NULL;
  return ok;
}

bool args_parse_many(const struct args_command *command, int argc, char **argv,
                     struct args_list *positionals, int *exit_code) {
  return parse(command, argc, argv, ARGS_MAX_LIST, positionals, exit_code);
}

bool args_device(const char *text, int *ordinal) {
  char *end;
  *ordinal = -1;
  if (strcmp(text, "cpu") == 0)
    return true;
  if (strncmp(text, "cuda:", 5) != 0 || text[5] < '0' || text[5] > '9')
    return false;
  long number = strtol(text + 5, &end, 10);
  *ordinal = number < 1024 ? (int)number : 1024;
  return *end == '\0';
}
