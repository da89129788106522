/* tune.h: the parts of `pisa tune`, which finds the fastest schedule of a pack on this GPU.

       tune.c ............. options in, the table PACK.tune out; the loop over what is to be tried
       tune_options.c ..... the command line
       tune_work.c ........ which variants compute the same, which lengths share a row
       tune_load.c ........ one call with its inputs on the device, for any variant of one result
       tune_race.c ........ two modules timed in turns until it is clear which is faster
       tune_judge.c ....... when that is
       tune_check.c ....... --check: the table's choices at shapes that were not tuned
       tune_crossover.c ... from which length on the method beats dense attention
       tune_progress.c .... the line on a terminal; SIGINT

   A group is the variants whose choices agree but for schedule ones (docs/ABI.md section 2); a
   bucket the shapes that share a row of the table. In each group and bucket the best so far meets
   the next variant; a variant that is done is in the file. What is chosen holds for the whole
   bucket, so a race is run at shapes all over it, and the variant as written, which is what calls
   get without a table, must be beaten at each of them. */
#ifndef PISA_TOOL_TUNE_H
#define PISA_TOOL_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/device.h"
#include "runtime/pack.h"
#include "runtime/tool/gpu_options.h"
#include "runtime/tool/verify_select.h"

enum {
  TUNE_LEAST_ROUNDS = 5,
  TUNE_MAX_ROUNDS = 100,
  TUNE_INTERRUPTED = 130,
  TUNE_PROBES = 3,
  TUNE_MAX_LOADS = OPTIONS_MAX_TOKENS + TUNE_PROBES
};

struct tune_options {
  const char *pack, *dense;
  int64_t tokens[OPTIONS_MAX_TOKENS];
  int n_tokens;                        /* 0: the method's own list */
  int64_t batch, heads;                /* heads 0: the spec's */
  const char *settings[ARGS_MAX_LIST]; /* of what is computed: only such variants */
  int n_settings;
  int64_t rounds; /* at most, of a race */
  uint64_t seed;
  bool unverified, again;
  int64_t check; /* shapes to check the table at, in place of tuning; 0: tune */
  bool json;     /* of the check */
};

/* False when the command is over already; |exit_code| says how. */
bool tune_options_read(struct tune_options *options, int argc, char **argv, int *exit_code);

/* ---- what there is to do ---- */

struct tune_bucket {
  int64_t tokens;                      /* a power of two */
  int64_t lengths[OPTIONS_MAX_TOKENS]; /* what is timed for it */
  int n;
};

/* Sorts the options' lengths into |out| [OPTIONS_MAX_TOKENS]; how many buckets there are. */
int tune_buckets(const struct tune_options *options, bool selects, struct tune_bucket *out);
struct tune_shape {
  int64_t tokens, heads;
};
/* Where the bucket is timed, into |out| [TUNE_MAX_LOADS]: its lengths with |heads| heads, then
   TUNE_PROBES shapes towards the ends of the row in length and in |batch| x heads, none of whole
   blocks; fewer where a row is that narrow. Heads are multiples of |group|. */
int tune_shapes(const struct tune_bucket *bucket, int64_t batch, int64_t heads, int64_t group,
                struct tune_shape *out);
/* Whether |variant| is looked at: it has the settings, and serves prefill. */
bool tune_wants(const struct tune_options *options, const pisa_pack *pack, int variant);
/* The first wanted variant that computes what |variant| does. */
int tune_group(const struct tune_options *options, const pisa_pack *pack, int variant);
/* How many wanted ones do. */
int tune_group_size(const struct tune_options *options, const pisa_pack *pack, int variant);
/* The schedule choices of |variant|, or with |schedule| false its others; "" for none. */
void tune_choices(const char *choices, bool schedule, char *out, size_t size);

/* ---- on the device ---- */

struct tune_device {
  struct pisa_device device;
  CUstream stream;
  CUevent begin, end;
};
/* Close also after a failure. */
pisa_status tune_device_open(struct tune_device *out, pisa_error *error);
void tune_device_close(struct tune_device *device);

struct tune_load { /* one call */
  const struct tune_device *on;
  bool selects;
  struct verify_case attend_case;
  struct select_case select_case;
  struct verify_call attend; /* one of the two */
  struct select_call select;
  pisa_attention request;
  void *workspace;
  size_t bytes;
};

/* Nq = Nk = |tokens|, normal inputs, contiguous. Close also after a failure. */
pisa_status tune_load_open(struct tune_load *load, const struct tune_device *on,
                           const pisa_module *module, int64_t batch, int64_t heads, int64_t tokens,
                           uint64_t seed, pisa_error *error);
/* Makes the workspace large enough for |module| too, and launches it once. */
pisa_status tune_load_fit(struct tune_load *load, const pisa_module *module, pisa_error *error);
void tune_load_close(struct tune_load *load);

/* ---- races ---- */

struct tune_racer {
  const pisa_module *module;
  struct tune_load *loads; /* [n] */
};

enum tune_verdict { TUNE_UNDECIDED, TUNE_FASTER, TUNE_NOT_FASTER };
/* Of ratios[i] = ln(challenger / champion) of round i, n of at most |most| rounds. A challenger
   must be 3 % faster. Decided where the median is away from that, or within a hundredth of it, by
   three standard errors; after the last round where it is away by one. A tie is for the champion.
   |ratios| get sorted. */
enum tune_verdict tune_judge(double *ratios, int n, int most);
/* Of a load's ratios [n]: whether the challenger's median is 1 % faster there. |ratios| get
   sorted. */
bool tune_holds(double *ratios, int n);

struct tune_outcome {
  enum tune_verdict verdict;
  double ratio;                /* median of challenger / champion, geometric mean over the loads */
  double champion, challenger; /* median ms of a call, mean over the loads */
  int rounds;
  bool everywhere;  /* tune_holds of each load */
  bool interrupted; /* then nothing else counts */
};
/* |n| loads of either; the champion may be NULL: the challenger runs alone, |least| rounds. */
pisa_status tune_race(const struct tune_device *on, const struct tune_racer *champion,
                      const struct tune_racer *challenger, int n, int64_t rounds,
                      struct tune_outcome *out, pisa_error *error);

/* ---- against dense attention ---- */

/* Prints what the crossover is and the line for the spec, where |variant| has kernels for short
   sequences or --dense names a pack. */
pisa_status tune_crossover(const struct tune_options *options, const pisa_pack *pack, int variant,
                           const struct tune_device *on, int64_t longest, pisa_error *error);

/* ---- what was chosen ---- */

/* |failed|: at how many of options->check shapes, drawn from the table's buckets, the choice takes
   more than 1.05 of the fastest schedule, or more than the variant as written. */
pisa_status tune_check(const struct tune_options *options, const pisa_pack *pack,
                       const struct tune_device *on, int *failed, pisa_error *error);

/* ---- progress ---- */

struct tune_progress {
  int done, todo;
  double begin; /* seconds, monotonic */
};
/* From now on SIGINT and SIGTERM ask to stop; a second one ends the process. */
void tune_catch_interrupts(void);
bool tune_is_interrupted(void);
void tune_progress_show(const struct tune_progress *progress, const char *doing);
void tune_progress_hide(void);

#endif
