/* race_test.c: when a race between two schedules is decided, and for whom. */
#include "runtime/tool/tune.h"
#include "tests/runtime/check.h"

static enum tune_verdict judge(const double *ratios, int n, int most) {
  double copy[TUNE_MAX_ROUNDS];
  for (int i = 0; i < n; i++)
    copy[i] = ratios[i];
  return tune_judge(copy, n, most);
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
  return check_result();
}
