/* tune_race.c: two modules and calls in; which is faster out. They run in turns, each some launches
   back to back after a pause, until the ranking is clear or the rounds are used up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/tool/bench.h"
#include "runtime/tool/tune.h"

enum { MAX_CALLS = 10, PAUSE_MS = 5, BURST_MS = 200 };

static pisa_status time_load(const struct tune_device *on, const pisa_module *module,
                             const struct tune_load *load, int calls, double *out,
                             pisa_error *error) {
  float ms = 0;
  pisa_status status = pisa_event_record(&on->device, on->begin, on->stream, error);
  for (int i = 0; !status && i < calls; i++)
    status = pisa_launch(module, &load->request, load->workspace, load->bytes, on->stream, error);
  if (!status)
    status = pisa_event_record(&on->device, on->end, on->stream, error);
  if (!status)
    status = pisa_event_elapsed(&on->device, on->begin, on->end, &ms, error);
  *out = (double)ms / calls;
  return status;
}

static void pause_device(void) {
  const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
  nanosleep(&pause, NULL);
}

/* One turn: ln ms of each load, and their mean ms. */
static pisa_status run_turn(const struct tune_device *on, const struct tune_racer *racer, int n,
                            const int *calls, double *log_ms, double *mean, pisa_error *error) {
  pisa_status status = PISA_OK;
  *mean = 0;
  for (int i = 0; !status && i < n; i++) {
    double ms = 0;
    pause_device();
    status = time_load(on, racer->module, &racer->loads[i], calls[i], &ms, error);
    log_ms[i] = log(fmax(ms, 1e-6));
    *mean += ms / n;
  }
  return status;
}

/* Launches of a turn: as many as BURST_MS holds, from one to ten. */
static pisa_status count_calls(const struct tune_device *on, const struct tune_racer *racer, int n,
                               int *calls, pisa_error *error) {
  pisa_status status = PISA_OK;
  for (int i = 0; !status && i < n; i++) {
    double ms = 0;
    status = time_load(on, racer->module, &racer->loads[i], 1, &ms, error);
    calls[i] = (int)fmax(1, fmin(MAX_CALLS, BURST_MS / fmax(ms, 1e-6)));
  }
  return status;
}

struct rounds {
  double each[TUNE_MAX_LOADS][TUNE_MAX_ROUNDS]; /* ratios of a load */
  double ratios[TUNE_MAX_ROUNDS], champion[TUNE_MAX_ROUNDS], challenger[TUNE_MAX_ROUNDS];
};

/* Who begins changes from round to round. */
static pisa_status run_round(const struct tune_device *on, const struct tune_racer *const racers[2],
                             int n, const int *calls, int round, struct rounds *out,
                             pisa_error *error) {
  double log_ms[2][TUNE_MAX_LOADS] = {{0}}, mean[2] = {0, 0};
  pisa_status status = PISA_OK;
  for (int turn = 0; !status && turn < 2; turn++) {
    int who = (turn + round) % 2;
    if (racers[who])
      status = run_turn(on, racers[who], n, calls, log_ms[who], &mean[who], error);
  }
  out->ratios[round] = 0;
  for (int i = 0; i < n; i++) {
    out->each[i][round] = log_ms[1][i] - log_ms[0][i];
    out->ratios[round] += out->each[i][round] / n;
  }
  out->champion[round] = mean[0];
  out->challenger[round] = mean[1];
  return status;
}

pisa_status tune_race(const struct tune_device *on, const struct tune_racer *champion,
                      const struct tune_racer *challenger, int n, int64_t rounds,
                      struct tune_outcome *out, pisa_error *error) {
  const struct tune_racer *const racers[2] = {champion, challenger};
  static struct rounds times;
  int calls[TUNE_MAX_LOADS];
  double sorted[TUNE_MAX_ROUNDS];
  *out = (struct tune_outcome){.verdict = TUNE_UNDECIDED};
  pisa_status status = count_calls(on, challenger, n, calls, error);
  while (!status && out->verdict == TUNE_UNDECIDED) {
    if ((out->interrupted = tune_is_interrupted()))
      return PISA_OK;
    status = run_round(on, racers, n, calls, out->rounds, &times, error);
    out->rounds++;
    memcpy(sorted, times.ratios, (size_t)out->rounds * sizeof *sorted);
    if (champion)
      out->verdict = tune_judge(sorted, out->rounds, (int)rounds);
    else if (out->rounds == TUNE_LEAST_ROUNDS)
      out->verdict = TUNE_FASTER;
  }
  if (status)
    return status;
  out->everywhere = true;
  for (int i = 0; champion && i < n; i++)
    out->everywhere = tune_holds(times.each[i], out->rounds) && out->everywhere;
  out->ratio = exp(bench_median(sorted, out->rounds));
  out->champion = bench_median(times.champion, out->rounds);
  out->challenger = bench_median(times.challenger, out->rounds);
  return PISA_OK;
}
