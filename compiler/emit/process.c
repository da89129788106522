/* process.c: in goes a command line or a file name; out comes text, or a reason why not. Plain
 * POSIX. */
#include "compiler/emit/process.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Starts the child without address-space randomisation, which it inherits from us: ptxas orders its
   work by pointers, and 2 of 6 runs on the same PTX gave another cubin. Where the kernel refuses,
   all else works the same. */
static int spawn_unrandomised(pid_t *child, const char *path,
                              const posix_spawn_file_actions_t *actions, char *const *arguments) {
  int before = personality(0xffffffff); /* asks */
  if (before >= 0)
    personality((unsigned long)before | ADDR_NO_RANDOMIZE);
  int failed = posix_spawn(child, path, actions, NULL, arguments, environ);
  if (before >= 0)
    personality((unsigned long)before);
  return failed;
}

static int spawn(const char *const *argv, int output, pid_t *child) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  char **arguments; /* posix_spawn takes them without const and does not change them */
  memcpy(&arguments, &argv, sizeof arguments);
  int failed = spawn_unrandomised(child, argv[0], &actions, arguments);
  posix_spawn_file_actions_destroy(&actions);
  return failed;
}

static void drain(int input, struct text *heard) {
  char part[4096];
  for (;;) {
    ssize_t n = read(input, part, sizeof part);
    if (n > 0)
      text_append(heard, part, (size_t)n);
    else if (n == 0 || errno != EINTR)
      return;
  }
}

int process_run(const char *const *argv, struct text *heard) {
  int ends[2];
  pid_t child;
  if (pipe(ends) != 0) {
    text_printf(heard, "pipe: %s", strerror(errno));
    return -1;
  }
  int failed = spawn(argv, ends[1], &child);
  close(ends[1]);
  if (!failed)
    drain(ends[0], heard);
  close(ends[0]);
  if (failed) {
    text_printf(heard, "%s: %s", argv[0], strerror(failed));
    return -1;
  }
  int status;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return -1;
  if (WIFEXITED(status))
    return WEXITSTATUS(status);
  text_printf(heard, "%s: killed by signal %d", argv[0], WTERMSIG(status));
  return -1;
}

static bool complain(struct text *why, const char *path) {
  text_printf(why, "%s: %s", path, strerror(errno));
  return false;
}

bool file_read(const char *path, struct text *out, struct text *why) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return complain(why, path);
  char part[1 << 14];
  size_t n;
  while ((n = fread(part, 1, sizeof part, file)) > 0)
    text_append(out, part, n);
  bool failed = ferror(file);
  if (failed)
    complain(why, path);
  fclose(file);
  return !failed;
}

bool file_write(const char *path, const char *bytes, size_t size, struct text *why) {
  FILE *file = fopen(path, "wb");
  if (!file)
    return complain(why, path);
  bool written = fwrite(bytes, 1, size, file) == size;
  written = fclose(file) == 0 && written;
  return written || complain(why, path);
}

bool folder_temporary(char *path, size_t capacity, struct text *why) {
  const char *parent = getenv("TMPDIR");
  if (!parent || !*parent)
    parent = "/tmp";
  if (snprintf(path, capacity, "%s/pisac-XXXXXX", parent) >= (int)capacity)
    return text_printf(why, "TMPDIR: the path is too long"), false;
  return mkdtemp(path) || complain(why, path);
}
