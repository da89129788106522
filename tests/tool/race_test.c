/* race_test.c: when a race between two schedules is decided, and for whom; and at which shapes of
   a row of the table it is run. */
#include "runtime/tool/tune.h"
#include "runtime/tune.h"
#include "tests/runtime/check.h"

static enum tune_verdict judge(const double *ratios, int n, int most) {
  double copy[TUNE_MAX_ROUNDS];
  for (int i = 0; i < n; i++)
    copy[i] = ratios[i];
  return tune_judge(copy, n, most);
}

static bool holds(const double *ratios, int n) {
  double copy[TUNE_MAX_ROUNDS];
  for (int i = 0; i < n; i++)
    copy[i] = ratios[i];
  return tune_holds(copy, n);
}

/* Measured on an H200 of half_tile=on in the row of 2048 tokens and 32 heads: 3 % faster where it
   was tuned, as fast as written or slower at others. A gain on the whole hides that. */
static void test_everywhere(void) {
  static const double tuned[] = {-0.034, -0.033, -0.036, -0.035, -0.034},
                      at_1498[] = {0.0027, 0.003, 0.002, 0.0025, 0.0027},
                      at_2556[] = {0.0119, 0.012, 0.011, 0.012, 0.0118},
                      hardly[] = {-0.009, -0.008, -0.009, -0.007, -0.009},
                      once[] = {-0.02, -0.021, 0.5, -0.019, -0.02};
  CHECK_INT(holds(tuned, 5), true);
  CHECK_INT(holds(at_1498, 5), false);
  CHECK_INT(holds(at_2556, 5), false);
  CHECK_INT(holds(hardly, 5), false); /* a little further on it may be a loss */
  CHECK_INT(holds(once, 5), true);    /* one round counts for nothing */
}

/* The shapes of a bucket are all of one row, ragged, and far apart in length and in work. */
static void test_shapes(int64_t bucket, int64_t batch, int64_t heads, int64_t group) {
  const struct tune_bucket b = {.tokens = bucket, .lengths = {bucket}, .n = 1};
  struct tune_shape shapes[TUNE_MAX_LOADS];
  int n = tune_shapes(&b, batch, heads, group, shapes);
  int64_t least = bucket * heads, most = least, shortest = bucket, longest = bucket;
  CHECK_INT(shapes[0].tokens, bucket);
  CHECK_INT(shapes[0].heads, heads);
  for (int i = 0; i < n; i++) {
    int64_t tokens = shapes[i].tokens, work = tokens * shapes[i].heads;
    CHECK_INT(pisa_tune_bucket(tokens), bucket);
    CHECK_INT(pisa_tune_bucket(batch * shapes[i].heads), pisa_tune_bucket(batch * heads));
    CHECK_INT(shapes[i].heads % group, 0);
    CHECK_INT(shapes[i].heads > 0, true);
    CHECK_INT(i == 0 || tokens % 2 == 1, true);
    least = work < least ? work : least;
    most = work > most ? work : most;
    shortest = tokens < shortest ? tokens : shortest;
    longest = tokens > longest ? tokens : longest;
  }
  if (bucket < 128)
    return;
  CHECK_INT(n, 1 + TUNE_PROBES);
  CHECK_INT(10 * longest >= 16 * shortest, true);
  if (heads == 32 && group == 1)
    CHECK_INT(10 * most >= 25 * least, true);
}

int main(void) {
  static const double faster[] = {-0.1, -0.11, -0.09, -0.1, -0.1, -0.12, -0.08},
                      slower[] = {0.1, 0.11, 0.09, 0.1, 0.1},
                      tie[] = {0.001, -0.001, 0.0005, -0.0005, 0.001},
                      noisy[] = {-0.3, 0.2, -0.1, 0.3, -0.2, 0.1},
                      leaning[] = {-0.09, -0.04, -0.12, 0, -0.08, -0.05},
                      little[] = {-0.02, -0.021, -0.019, -0.02, -0.02},
                      outlier[] = {-0.1, -0.1, 5, -0.11, -0.1, -0.1}, same[] = {0, 0, 0, 0, 0};
  CHECK_INT(judge(faster, 4, 25), TUNE_UNDECIDED); /* too few */
  CHECK_INT(judge(faster, 5, 25), TUNE_FASTER);
  CHECK_INT(judge(slower, 5, 25), TUNE_NOT_FASTER);
  CHECK_INT(judge(tie, 5, 25), TUNE_NOT_FASTER);    /* nobody would see it */
  CHECK_INT(judge(little, 5, 25), TUNE_NOT_FASTER); /* at other lengths it may be slower */
  CHECK_INT(judge(same, 5, 25), TUNE_NOT_FASTER);
  CHECK_INT(judge(noisy, 6, 25), TUNE_UNDECIDED);
  CHECK_INT(judge(noisy, 6, 6), TUNE_NOT_FASTER); /* the rounds are over: no proof */
  CHECK_INT(judge(leaning, 6, 25), TUNE_UNDECIDED);
  CHECK_INT(judge(leaning, 6, 6), TUNE_FASTER); /* away by one standard error */
  CHECK_INT(judge(outlier, 6, 25), TUNE_FASTER);
  test_everywhere();
  for (int64_t bucket = 1; bucket <= 1 << 17; bucket *= 2)
    for (int64_t heads = 4; heads <= 64; heads += 4) {
      test_shapes(bucket, 1, heads, 1);
      test_shapes(bucket, 3, heads, 4);
    }
  return check_result();
}
