/* tune_judge.c: the ratios of some rounds in; whether the race is decided, and for whom, out; and
   whether a challenger wins at one shape. */
#include <math.h>

#include "runtime/tool/bench.h"
#include "runtime/tool/tune.h"

#define GAIN 0.03      /* of a ratio, asked of a challenger: less may be a loss at other shapes */
#define GAIN_EACH 0.01 /* the same at each shape: between two of them less may be left */
#define TIE 0.01       /* of a ratio: nobody would see it */
#define CLEARLY 3.0    /* standard errors */
#define NORMAL_MAD 1.4826 /* standard deviation over median absolute deviation */
#define MEDIAN_SE 1.2533  /* standard error of a median over that of a mean */

enum tune_verdict tune_judge(double *ratios, int n, int most) {
  double away[TUNE_MAX_ROUNDS];
  if (n < TUNE_LEAST_ROUNDS)
    return TUNE_UNDECIDED;
  double median = bench_median(ratios, n);
  for (int i = 0; i < n; i++)
    away[i] = fabs(ratios[i] - median);
  double lead = median + GAIN; /* below 0: enough */
  double noise = MEDIAN_SE * NORMAL_MAD * bench_median(away, n) / sqrt(n);
  bool clear = fabs(lead) > CLEARLY * noise, tie = fabs(lead) + CLEARLY * noise < TIE;
  if (!clear && !tie && n < most)
    return TUNE_UNDECIDED;
  return lead < 0 && (clear || (!tie && -lead > noise)) ? TUNE_FASTER : TUNE_NOT_FASTER;
}

bool tune_holds(double *ratios, int n) {
  return bench_median(ratios, n) < -GAIN_EACH;
}
