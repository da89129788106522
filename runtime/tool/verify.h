/* verify.h: the parts of `pisa verify`, which compares every output of every kernel with the oracle
   of runtime/cpu on fresh random inputs.

       verify.c ........... options, the loop over packs' variants, codes and cases
       verify_report.c .... the table and the JSON lines
       verify_case.c ...... which shapes and inputs are tried
       verify_input.c ..... seeded random q, k, v with the property a case needs
       verify_tensor.c .... [B, H, N, D] arrays in every layout, with guard zones
       verify_call.c ...... one launch on poisoned memory; what came back
       verify_graph.c ..... a launch captured in a graph
       verify_compare.c ... all comparisons of one launch, on all cores:
       verify_statistics.c, verify_lists.c, verify_pairs.c, verify_attention.c

   Sizes as in docs/DESIGN.md. A check that fails adds a sentence to the result; none stops the run.
 */
#ifndef PISA_TOOL_VERIFY_H
#define PISA_TOOL_VERIFY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/cpu/oracle.h"
#include "runtime/device.h"
#include "runtime/module.h"

/* ---- tolerances (docs/DESIGN.md section 9) ---- */

#define VERIFY_MEAN_ULP 1.0  /* of the type, from the double mean or variance */
#define VERIFY_NORM_REL 1e-5 /* ||H_j||_F, tr C_j: exact inputs, products accumulate in float */
#define VERIFY_LSE_ABS 1e-3  /* natural log */
#define VERIFY_WORK 6e9 /* multiplications of the oracle in a case: beyond, seeded samples of */
#define VERIFY_FEWEST 6 /* (head, query block), so many at least */

/* What rounding to the type leaves. One rounding moves an element by up to 2^-9 (bf16) or 2^-12
   (fp16) of it, so fp16 could do with an eighth; a quarter and a fifth leave room for its narrower
   range. */
struct verify_limits {
  double o_rel;     /* o, relative L2: over all rows compared and in each query block */
  double h_sum_rel; /* h_sum, relative L2 of a head: it is stored in the type */
  double ulp;       /* of the type, relative */
};
struct verify_limits verify_limits_of(pisa_type type);

/* ---- cases ---- */

enum verify_layout { VERIFY_BHND, VERIFY_BNHD, VERIFY_GAPPED, VERIFY_FAR, VERIFY_SHARED };
extern const char *const verify_layout_names[]; /* "bhnd", "bnhd", "gapped", "far", "shared" */

enum verify_input {
  VERIFY_NORMAL,      /* standard normal: every block looks alike */
  VERIFY_INCOHERENT,  /* blocks with centres, rows of a query block that disagree: the maximum moves
                       */
  VERIFY_LARGE,       /* |q| times 30: one key takes all the weight */
  VERIFY_CONSTANT_V,  /* every v the same row: so is every o */
  VERIFY_FIRST_ORDER, /* v follows k inside each block: the first-order term dominates */
  VERIFY_GAIN,        /* large q and v, small k: g q overflows fp16 unless h_sum carries a gain */
  VERIFY_SPREAD,      /* keys spread differently in every block and column: variances tell */
  VERIFY_EQUAL_KEYS,  /* all keys of a block are one: variances and H_j vanish */
  VERIFY_SAME_KEYS,   /* all keys are one: scores do not differ, but by their terms */
  VERIFY_FAINT,       /* tiny v: ||H_j|| is about 1, its logarithm about 0 */
  VERIFY_SMOOTH,      /* neighbouring query blocks look alike: so do their lists */
  VERIFY_TIES,        /* the second half of the blocks repeats the first: every score twice */
  VERIFY_NONFINITE    /* one query row holds a NaN, another an infinity */
};

enum verify_given {                 /* lists that the call gives in place of scores */
                    VERIFY_ROUTED,  /* none */
                    VERIFY_MIXED,   /* unsorted, repeated, out of range; of eight rows one is empty,
                                       one is all */
                    VERIFY_NOTHING, /* every list is empty */
                    VERIFY_EVERYTHING /* every list has every block, backwards */
};

struct verify_case {
  const char *name;
  enum verify_input input;
  enum verify_layout layout;
  int64_t batch, kv_heads, n_q, n_k; /* kv_heads 0: the spec's; in groups at most 2 */
  double density;                    /* with keep 0 as well: the spec's budget */
  int64_t keep;
  float scale;     /* 0: 1/sqrt(D) */
  bool permute;    /* a second run with tokens permuted inside their blocks must give the same o */
  bool always;     /* with verify_always in place of the spec's always-set */
  bool everything; /* with all tokens as the always-set: more blocks than any budget */
  bool windowed;   /* with |window| in place of the spec's; makes no sense where that has none */
  int64_t window;  /* forced blocks beside the diagonal ones, -1: not even those */
  const int32_t *lengths;  /* [batch] keys of each sequence, NULL: n_k; what lies behind is huge */
  enum verify_given given; /* makes no sense where everything is exact */
  int64_t n_listed;        /* entries of a given list; 0: NT */
  int64_t threshold_num; /* over threshold_den, in place of the spec's; makes no sense where that */
  int64_t threshold_den; /* has none; 0: the spec's */
  bool routed;           /* makes no sense where everything is exact */
  bool budgeted;         /* makes no sense where a threshold decides how many blocks are read */
  bool halves;           /* about the range of fp16 */
  bool below;  /* short enough to be dense; the other cases never are; makes no sense where the spec
                  says nothing of short sequences */
  bool decode; /* phase decode; makes no sense where the pack has none */
  bool longest; /* minutes of work for the oracle: only when asked for, and for one variant */
  bool quick;   /* small enough for compute-sanitizer */
};

enum { VERIFY_N_ALWAYS = 3 };
extern const struct pisa_always verify_always[VERIFY_N_ALWAYS];
extern const struct verify_case verify_cases[];
extern const int verify_n_cases;

/* ---- arrays ---- */

struct verify_tensor {
  int64_t batch, heads, n, d;
  enum verify_layout layout;
  uint16_t *image;   /* host copy of the device buffer, VERIFY_FAR without its gaps */
  int64_t elements;  /* of the image */
  int64_t first;     /* of element [0, 0, 0, 0]; what lies before is a guard zone */
  int64_t stride[4]; /* in the image */
  int64_t device_stride[4];
  int64_t device_elements;
};

enum { VERIFY_POISON = 0xffff }; /* a NaN no kernel writes: theirs are 0x7fff */

/* All elements poisoned. Free also after a false. */
bool verify_tensor_init(struct verify_tensor *tensor, enum verify_layout layout, int64_t batch,
                        int64_t heads, int64_t n, int64_t d);
void verify_tensor_free(struct verify_tensor *tensor);
uint16_t *verify_row(const struct verify_tensor *tensor, int64_t b, int64_t h, int64_t n);
/* As pisa.h wants it: in the image, and in a device buffer. */
pisa_tensor verify_tensor_host(const struct verify_tensor *tensor);
pisa_tensor verify_tensor_device(const struct verify_tensor *tensor, void *buffer);

/* ---- inputs ---- */

struct verify_inputs {
  struct verify_tensor q, k, v;
  int64_t key;            /* tokens of a key block */
  const int32_t *lengths; /* [B], NULL: none; keys and values behind them are huge, but finite */
};

/* Fills the arrays, the same bits for the same seed on any number of threads. */
void verify_fill(struct verify_inputs *inputs, enum verify_input kind, pisa_type type,
                 uint64_t seed);
/* Reorders the tokens inside every key block, k and v alike. */
void verify_permute(struct verify_inputs *inputs, uint64_t seed);
/* |rows| lists of |n| entries, for a call with |blocks| key blocks. */
void verify_fill_lists(enum verify_given given, int64_t rows, int64_t n, int64_t blocks,
                       uint64_t seed, int32_t *lists);

/* ---- what a launch left behind ---- */

struct verify_outputs {
  struct pisa_workspace layout;
  uint16_t *o;        /* [BH, Nq, D] */
  float *lse;         /* [BH, Nq] */
  int32_t *blocks;    /* [BH, NTq, kept]; nothing in it when dense */
  uint8_t *workspace; /* layout.bytes of them; h_part is left out: 0 */
};

/* A part of the workspace; NULL where the method has none. */
const void *verify_part(const struct verify_outputs *outputs, enum pisa_workspace_id id);
void verify_outputs_free(struct verify_outputs *outputs);

/* ---- one call on the device ---- */

struct verify_call {
  const struct pisa_device *device;
  CUstream stream;
  const pisa_module *module;
  bool poison; /* the workspace too, not only the outputs, before every launch */
  struct pisa_shape shape;
  struct pisa_workspace layout;
  pisa_attention request; /* device pointers */
  struct verify_inputs inputs;
  int32_t *given;         /* host copy of the lists, [BH, NTq, n_listed]; NULL: none */
  struct verify_tensor o; /* image: what came back */
  void *q, *k, *v, *o_memory, *lse, *blocks, *workspace; /* device memory, guard zones included */
  void *lengths, *lists, *pages;                         /* on the device, NULL: none */
};

enum verify_mode {
  VERIFY_DIRECT, /* on the stream */
  VERIFY_GRAPH,  /* captured into a graph, which then runs twice */
  VERIFY_BARE    /* without the optional outputs lse and blocks */
};

struct verify_result;

/* Host arrays for |test| with |seed|, device memory and the inputs on the device. Close also after
   a failure. */
pisa_status verify_call_open(struct verify_call *call, const struct verify_case *test,
                             const struct pisa_method *method, uint64_t seed, pisa_error *error);
void verify_call_close(struct verify_call *call);
/* Sets the pointers of call->request; |optional|: lse and blocks too. */
void verify_call_bind(struct verify_call *call, bool optional);
/* What pisa_launch wants as its workspace of call->layout.bytes. */
void *verify_call_workspace(const struct verify_call *call);
/* Copies the inputs to the device again. */
pisa_status verify_call_upload(const struct verify_call *call, pisa_error *error);
/* Launches, waits, and copies everything back into |outputs| (to be freed, also after a failure).
   Writes outside the outputs and elements never written are failures of |result|. */
pisa_status verify_call_run(struct verify_call *call, enum verify_mode mode,
                            struct verify_outputs *outputs, struct verify_result *result,
                            pisa_error *error);
/* NULL, or the name of the first output in which two runs differ; |optional|: lse and blocks count.
 */
const char *verify_difference(const struct verify_call *call, const struct verify_outputs *a,
                              const struct verify_outputs *b, bool optional);

/* ---- results ---- */

enum { VERIFY_MAX_FAILURES = 12, VERIFY_FAILURE_LENGTH = 200 };

struct verify_result {
  pthread_mutex_t lock; /* of everything below */
  int n_failures;       /* all of them; the first ones are kept */
  char failures[VERIFY_MAX_FAILURES][VERIFY_FAILURE_LENGTH];
  double mean_ulp, norm_rel, h_sum_rel; /* largest errors seen; mean_ulp: of variances too */
  double o_square_error, o_square;      /* sums over all rows compared */
  double block_rel, lse_abs;            /* largest errors seen */
  double score_gap;                     /* largest gap over which two blocks were exchanged */
  int64_t swaps;                        /* blocks that double precision would not have listed */
  int64_t blocks_compared, blocks;      /* query blocks */
  bool inherited; /* the bits were those of the pack's other code, whose errors these are */
  double seconds;
};

void verify_result_init(struct verify_result *result);
void verify_result_free(struct verify_result *result);
/* Takes over the errors, not the failures, of a result for the same bits. */
void verify_inherit(struct verify_result *result, const struct verify_result *other);
/* A failed check. */
void verify_fail(struct verify_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* *largest = max(*largest, value), under the lock; nan stays. */
void verify_note(struct verify_result *result, double *largest, double value);
double verify_o_rel(const struct verify_result *result);

/* A launch of |call| captured in a graph that runs twice: the second run starts on what the first
   one left. */
pisa_status verify_graph_run(const struct pisa_device *device, CUstream stream,
                             pisa_status (*enqueue)(const void *call, pisa_error *error),
                             const void *call, pisa_error *error);

/* ---- comparisons ---- */

/* Everything in |outputs|, the first launch of |call|, against the oracle. False when memory ran
 * out. */
bool verify_compare(const struct verify_call *call, const struct verify_outputs *outputs,
                    uint64_t seed, struct verify_result *result);
/* o of a launch whose tokens were permuted inside their blocks against o of |outputs|. */
void verify_unchanged(const struct verify_call *call, const struct verify_outputs *outputs,
                      const struct verify_outputs *permuted, struct verify_result *result);

/* One (batch, head); thread-safe. */

struct verify_head {
  const struct cpu_problem *problem; /* of its sequence: n_k and k_blocks are the sequence's own */
  const struct verify_call *call;
  int64_t key_blocks; /* NT of the call: what arrays of block means, norms and variances hold */
  const struct verify_outputs *outputs;
  struct verify_result *result;
  int64_t b, h;
  struct oracle_head inputs;      /* widened */
  struct oracle_summary expected; /* from the inputs, in double */
  struct oracle_summary stored;   /* what the device wrote, widened */
  bool ready;                     /* all three are there */
};

/* The first of the query heads that share a key/value head: what is theirs together is compared
   with it. */
bool verify_leads_group(const struct verify_head *head);
/* expected against stored; fills |stored| first. |expected| counts where the head leads its group.
 */
void verify_statistics(struct verify_head *head);
/* counts, lists, shared, masks and ids against scores of the stored summaries. */
void verify_lists(const struct verify_head *head);
/* shared, and the order of the lists it is about. */
void verify_pairs(const struct verify_head *head);
/* The list of query block |i|, and how many of its entries are read exactly. */
const int32_t *verify_list(const struct verify_head *head, int64_t i, int64_t *count);
/* Query block |i|: o and lse with the device's own list and summaries. False when memory ran out.
 */
bool verify_attention(const struct verify_head *head, int64_t i);

/* ---- the report ---- */

struct verify_code {   /* one range of bytes that is verified */
  const char *spec;    /* the pack's name */
  const char *choices; /* of the first variant that has this code */
  const char *kind;    /* "cubin", "ptx" */
  const char *sha256;
  bool has_cubin;
  const struct pisa_device *device;
  bool complete;    /* every case at its own shape; only then does passing count */
  unsigned reached; /* bit id: a case launched this kernel */
  int cases, failed;
  double o_rel, block_rel, lse_abs; /* largest of the cases */
};

struct verify_report {
  FILE *table;
  FILE *json; /* NULL: none */
  uint64_t seed;
};

void verify_report_begin(const struct verify_report *report);
/* Before a case runs: what hangs is then on the screen. */
void verify_report_start(const struct verify_report *report, const struct verify_code *code,
                         const char *name, int64_t n_q, int64_t n_k, int64_t batch);
/* One more case of |code|, which launched the kernels |reached|. */
void verify_code_count(struct verify_code *code, const struct verify_result *result,
                       unsigned reached);
/* Adds the result to |code|. */
void verify_report_case(const struct verify_report *report, const struct verify_case *test,
                        const struct verify_call *call, const struct verify_result *result,
                        struct verify_code *code);
void verify_report_end(const struct verify_report *report, const struct verify_code *code);
/* Parts of a JSON line: `"name": value, ` with null for what is not finite; a string; what a code
   is. */
void verify_json_number(FILE *out, const char *name, double value);
void verify_json_string(FILE *out, const char *text);
void verify_json_code(FILE *out, const struct verify_code *code);

#endif
