/* tune_progress.c: what is done and what is left in; a line on the terminal out. Also: whether the
   user asked to stop. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/tool/tune.h"

enum { BAR = 20 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
  interrupted = 1;
  signal(number, SIG_DFL);
}

void tune_catch_interrupts(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART; /* writes are not cut */
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

bool tune_is_interrupted(void) {
  return interrupted != 0;
}

/* Time left as those behind us went. */
static void show_left(const struct tune_progress *p) {
  if (p->done == 0)
    return;
  double left = (verify_seconds() - p->begin) / p->done * (p->todo - p->done);
  fprintf(stderr, ", %d:%02d left", (int)left / 60, (int)left % 60);
}

void tune_progress_show(const struct tune_progress *p, const char *doing) {
  static const char full[] = "####################", empty[] = "--------------------";
  if (p->todo == 0)
    return;
  if (!isatty(STDERR_FILENO)) {
    fprintf(stderr, "%d of %d", p->done, p->todo);
    show_left(p);
    fprintf(stderr, "  %.100s\n", doing);
    return;
  }
  int filled = BAR * p->done / p->todo;
  fprintf(stderr, "\r\033[K[%.*s%.*s] %d of %d", filled, full, BAR - filled, empty, p->done,
          p->todo);
  show_left(p);
  fprintf(stderr, "  %.100s", doing);
}

void tune_progress_hide(void) {
  if (isatty(STDERR_FILENO))
    fprintf(stderr, "\r\033[K");
}
