/* front_test.c: which points of a sweep no other beats, and which one a bound picks. */
#include <math.h>

#include "runtime/tool/sweep.h"
#include "tests/runtime/check.h"

static struct sweep_point points[] = {
    {.error = 0.10, .recall = 0.5, .cost = 0.1, .ms = 1},
    {.error = 0.05, .recall = 0.8, .cost = 0.2, .ms = 2},
    {.error = 0.06, .recall = 0.9, .cost = 0.2, .ms = 3}, /* slower and worse than the second */
    {.error = 0.05, .recall = 0.8, .cost = 0.3, .ms = 2}, /* the second again */
    {.error = 0.01, .recall = 0.95, .cost = 0.9, .ms = 9},
    {.error = 0.01, .recall = 0.96, .cost = 0.8, .ms = 9.5},
    {.error = NAN, .recall = NAN, .cost = 0.01, .ms = 0.1}, /* is no answer */
};
enum { N = sizeof points / sizeof *points };

static struct sweep sweep = {.points = points, .n = N};

static int fronts(void) {
  int bits = 0;
  sweep_find_front(&sweep);
  for (int i = 0; i < N - 1; i++)
    bits |= points[i].front << i;
  return bits;
}

static int pick(double max_error, double min_recall) {
  sweep.options.max_error = max_error;
  sweep.options.min_recall = min_recall;
  return sweep_pick(&sweep);
}

int main(void) {
  sweep.timed = true;
  CHECK_INT(fronts(), 1 | 2 | 8 | 16);
  CHECK(!points[N - 1].front);
  CHECK_INT(pick(0, 0), -1);
  CHECK_INT(pick(0.2, 0), 0);
  CHECK_INT(pick(0.05, 0), 1);
  CHECK_INT(pick(0.049, 0), 4);
  CHECK_INT(pick(0.001, 0), -1);
  CHECK_INT(pick(0, 0.9), 2);
  CHECK_INT(pick(0, 0.96), 5);
  CHECK_INT(pick(0, 0.97), -1);
  sweep.timed = false; /* by cost */
  CHECK_INT(fronts(), 1 | 2 | 32);
  CHECK_INT(pick(0.049, 0), 5);
  sweep.timed = sweep.selects = true; /* by recall */
  CHECK_INT(fronts(), 1 | 2 | 4 | 8 | 16 | 32);
  return check_result();
}
