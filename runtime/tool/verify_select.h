/* verify_select.h: the parts of `pisa verify` for packs that select blocks (method pyramid).

       verify_select.c ........... the loop over cases and codes; bits that may not change
       verify_select_case.c ...... which shapes and inputs are tried
       verify_select_input.c ..... seeded random q, k, v with the property a case needs
       verify_select_call.c ...... one call on poisoned memory
       verify_select_fetch.c ..... what came back
       verify_select_memory.c .... device memory between guard zones
       verify_select_compare.c ... a call against the oracle, on all cores:
       verify_select_means.c, verify_select_list.c, verify_select_attention.c
       verify_select_csr.c ....... the queries of each leaf, against the lists
       verify_select_walk.c ...... one list against the oracle's walk, which may lose near ties
       verify_select_decode.c .... sequences that grow token by token
       verify_select_report.c .... rows of the table, JSON lines

   A list is compared with the oracle's on the means that the device stored. Two nodes may be
   exchanged, on any level, where their scores differ by less than

       sum         2 G e          max, lse        2 e        mass, max_mass    4 e of the larger

   and at all: equal scores go to the smaller number. e = 1e-4 + 2e-6 B bounds the error of a score
   in natural-log units: a polynomial 2^x is good to 7.5e-5, a product summed in float to 2e-6 of
   what its terms can be, B = scale max |q| max |k|. half_variance squares logits: 5e-7 B^2 more. */
#ifndef PISA_TOOL_VERIFY_SELECT_H
#define PISA_TOOL_VERIFY_SELECT_H

#include "runtime/cpu/attend_blocks.h"
#include "runtime/cpu/select.h"
#include "runtime/tool/verify.h"
#include "runtime/tool/verify_session.h"

#define SELECT_WORK 2e10 /* multiplications of the oracle in a case: beyond, a seeded sample */
enum {
  SELECT_MAX_BATCH = 256,
  SELECT_FEWEST = 200, /* rows of a sample; and all rows are compared only up to */
  SELECT_WHOLE = 4608, /* so many tokens */
  SELECT_NO_ID = 0xfe  /* bytes of blocks before a launch */
};

/* ---- cases ---- */

enum select_input {
  SELECT_INCOHERENT, /* keys with centres on every level, queries that disagree */
  SELECT_NORMAL,     /* standard normal: high means vanish, scores come near each other */
  SELECT_LARGE,      /* logits of 200 and more */
  SELECT_COPIES,     /* four different leaves, repeated: exact ties on every level */
  SELECT_CONSTANT,   /* all keys are one */
  SELECT_NEEDLE,     /* one key that all queries look for */
  SELECT_NAN         /* a head of one query is NaN */
};

struct select_case {
  const char *name;
  enum select_input input;
  enum verify_layout layout;
  int64_t batch, kv_heads; /* kv_heads 0: the spec's, at most 2 */
  int64_t n_q, n_k;        /* of each sequence; with |starts| of all */
  const int32_t *lengths;  /* [batch], NULL: n_k */
  const int32_t *q_starts; /* [batch + 1], NULL: not packed */
  const int32_t *k_starts;
  float scale;   /* 0: 1/sqrt(D) */
  bool pyramid;  /* means in memory of the caller's */
  int64_t steps; /* decode: the last |steps| n_new keys come one call after the other; 0: prefill */
  int64_t n_new; /* decode: keys a call */
  bool completed; /* decode: nodes are stored with their last token */
  bool below;     /* short enough for `below N tokens use flat | dense`; the others never are */
  bool variants;  /* for all variants of a pack; the others are for the first one */
  bool quick;     /* small enough for compute-sanitizer */
};

extern const struct select_case select_cases[];
extern const int select_n_cases;

/* ---- arrays ---- */

struct verify_sequence {
  int64_t first, n_q;       /* its queries: row |first| of packed arrays, 0 of the others */
  int64_t k_first, k_begin; /* its keys: the same; where they are counted from (pyramid.def) */
  int64_t room, keys;
};

struct select_buffer { /* device memory between guard zones; size 0: none */
  void *memory;
  size_t bytes;
};

struct select_arrays {
  bool packed;
  int64_t page; /* 0: no pages */
  struct verify_tensor q, k, v;
  int64_t batch;
  struct verify_sequence sequence[SELECT_MAX_BATCH];
  int32_t *pages; /* [batch, page_columns] */
  int64_t page_columns;
};

/* Row |n| of sequence |b| of q; of k or v. */
uint16_t *select_query(const struct select_arrays *arrays, int64_t b, int64_t h, int64_t n);
uint16_t *select_key(const struct select_arrays *arrays, const struct verify_tensor *tensor,
                     int64_t b, int64_t h, int64_t n);
/* Fills q, k and v; keys behind the last one of a sequence are huge, but finite. */
void select_fill(struct select_arrays *arrays, enum select_input kind, pisa_type type,
                 uint64_t seed);
/* q alone, for |step| of a sequence that grows. */
void select_fill_queries(struct select_arrays *arrays, enum select_input kind, pisa_type type,
                         uint64_t seed, int64_t step);

/* ---- one call on the device ---- */

struct select_call {
  const struct pisa_device *device;
  CUstream stream;
  const pisa_module *module;
  bool poison; /* the workspace too, not only the outputs, before every launch */
  const struct select_case *test;
  bool brief; /* a tenth of the oracle's work: one of many variants */
  uint64_t seed;
  pisa_attention request; /* sizes, then device pointers */
  struct pisa_shape shape;
  struct pisa_workspace layout;
  struct select_arrays arrays;
  struct verify_tensor o; /* image: what came back */
  int64_t node_rows;      /* P */
  void *q, *k, *v, *o_memory;
  struct select_buffer lse, blocks, worth, workspace, pyramid;
  void *lengths, *q_starts, *k_starts, *pages;
};

struct select_outputs { /* rows [B, Hk, Nq] or [Hk, T], as the caller gets them */
  uint16_t *o;          /* [rows of q, D] */
  float *lse;
  int32_t *blocks;
  float *worth;
  uint16_t *means; /* [Hk, P, D] */
};
void select_outputs_free(struct select_outputs *outputs);

enum select_mode {
  SELECT_DIRECT,
  SELECT_GRAPH, /* captured into a graph, which then runs twice */
  SELECT_BARE,  /* attention without the optional outputs */
  SELECT_ALONE  /* selection without attention */
};

/* Sizes, host arrays, device memory and inputs there. Close also after a failure. */
pisa_status select_call_open(struct select_call *call, pisa_error *error);
void select_call_close(struct select_call *call);
/* Sets the pointers of call->request, and plans it. The workspace ends where its guard begins. */
pisa_status select_call_bind(struct select_call *call, enum select_mode mode, pisa_error *error);
pisa_status select_call_upload_queries(const struct select_call *call, pisa_error *error);
/* Sets the keys of every sequence, here and on the device. */
pisa_status select_call_set_lengths(struct select_call *call, const int64_t *keys,
                                    pisa_error *error);
/* Before a launch: outputs poisoned, workspace and, unless it is to be kept, pyramid too. */
pisa_status select_call_poison(struct select_call *call, bool pyramid, pisa_error *error);
/* c->layout.bytes of them. */
void *select_call_workspace(const struct select_call *call);
pisa_status select_call_enqueue(const struct select_call *call, pisa_error *error);
/* Waits, and copies everything back (to be freed, also after a failure). Writes outside the outputs
   and elements never written are failures of |result|. */
pisa_status select_call_fetch(struct select_call *call, struct select_outputs *outputs,
                              struct verify_result *result, pisa_error *error);
/* Binds, poisons, launches in |mode|, fetches. */
pisa_status select_call_run(struct select_call *call, enum select_mode mode,
                            struct select_outputs *outputs, struct verify_result *result,
                            pisa_error *error);
bool select_call_attends(const struct select_call *call);
int64_t select_rows(const struct select_call *call); /* of blocks and worth */
int64_t select_row(const struct select_call *call, int64_t b, int64_t hk, int64_t n);
int64_t select_o_row(const struct select_call *call, int64_t b, int64_t h, int64_t n);
/* Element 0 of a node's mean in outputs->means. */
int64_t select_node(const struct select_call *call, int64_t b, int64_t hk, int level, int64_t node);
/* NULL, or the name of the first output in which two runs differ; those that |mode| does not write
   and means of nodes that nobody has do not count. */
const char *select_difference(const struct select_call *call, const struct select_outputs *a,
                              const struct select_outputs *b, enum select_mode mode);
/* Nodes of sequence |b| whose means differ; |completed|: full ones alone. */
int64_t select_means_differ(const struct select_call *call, const struct select_outputs *a,
                            const struct select_outputs *b, bool completed);

/* ---- device memory ---- */

pisa_status select_buffer_open(const struct pisa_device *device, size_t bytes,
                               struct select_buffer *out, pisa_error *error);
void select_buffer_close(const struct pisa_device *device, struct select_buffer *buffer);
void *select_buffer_inside(const struct select_buffer *buffer); /* NULL: none */
/* Guards, and with |whole| what lies between them. */
pisa_status select_buffer_poison(const struct pisa_device *device,
                                 const struct select_buffer *buffer, bool whole, pisa_error *error);
/* |bytes| from |offset| on into fresh memory; a damaged guard is a failure of |result|. */
pisa_status select_buffer_fetch(const struct pisa_device *device,
                                const struct select_buffer *buffer, const char *name, size_t offset,
                                size_t bytes, void **out, struct verify_result *result,
                                pisa_error *error);
bool select_all_poison(const void *bytes, size_t n);

/* ---- comparisons ---- */

/* Everything in |outputs| against the oracle. False when memory ran out. */
bool select_compare(const struct select_call *call, const struct select_outputs *outputs,
                    struct verify_result *result);
/* Memory for the queries of each leaf; |call| asks for them, until it is bound anew. */
pisa_status select_csr_open(const struct select_call *call, struct select_buffer *offsets,
                            struct select_buffer *queries, pisa_error *error);
pisa_status select_csr_bind(struct select_call *call, const struct select_buffer *offsets,
                            const struct select_buffer *queries, pisa_error *error);
/* Two launches more, which ask for the queries of each leaf; |lists| are those of the call, sound.
 */
pisa_status select_compare_csr(const struct select_call *call, const int32_t *lists,
                               struct verify_result *result, pisa_error *error);

struct select_head { /* a key head of a sequence */
  int64_t b, hk;
  struct pyramid pyramid; /* with the device's means once compared */
  double *v;              /* [keys, D] */
  double longest;         /* max |k| */
  bool ready;
};

struct select_row { /* a query and what the device made of it */
  const struct select_head *head;
  int64_t n, t;
  double *q; /* [G, D] */
  const int32_t *list;
  const float *worth;
  int64_t listed; /* entries of the list that are leaves */
};

struct select_squares { /* of o of one query and the heads that share its list */
  double error, size;
};

struct select_comparison {
  const struct select_call *call;
  const struct select_outputs *outputs;
  struct selection selection;
  struct verify_result *result;
};

/* Builds the pyramid of head->b, head->hk in double. False: no memory. */
bool select_read_head(const struct select_comparison *c, struct select_head *head);
/* Compares every mean with the device's, which then takes its place. */
void select_compare_means(const struct select_comparison *c, struct select_head *head);
/* Ascending visible leaves, then -1; sets row->listed. */
bool select_list_is_sound(const struct select_comparison *c, struct select_row *row);
/* A sound list and its worth against the walk. False: no memory. */
bool select_compare_list(const struct select_comparison *c, const struct select_row *row);
/* lse of every query head, and the squares of o; o [D] is scratch. */
void select_compare_attention(const struct select_comparison *c, const struct select_row *row,
                              double *o, struct select_squares *squares);
/* Judges o of the rows [n] in turn, together as many as have UNIT elements: relative errors of
   fewer vary. */
void select_judge_attention(const struct select_comparison *c, const struct select_squares *squares,
                            int64_t n);

/* One list against the walk. */
struct select_walk {
  const struct selection *selection;
  const struct pyramid *pyramid; /* with the device's means */
  const double *q;               /* [G, D] */
  int64_t t;
  double error; /* e above, once for each head of a sum */
  bool relative;
  const int32_t *list; /* [n], ascending: what the device chose */
  int64_t n;
  const float *worth; /* [n], NULL: not compared */
  /* out */
  bool memory;         /* ran out */
  int64_t swaps;       /* leaves, or nodes above, that double precision would not have kept */
  double gap;          /* the largest over which two were exchanged */
  int level;           /* where the device went wrong: a node of this level, which is kept, */
  int64_t node, other; /* and another that should be; -1: not among the candidates */
  double lost;         /* the difference of their scores */
  double worth_error;  /* largest, in units of what is granted */
  bool unsure;   /* a near tie above the leaves: parts of a softmax may be parts of another whole */
  int64_t steps; /* of the search, bounded */
};
/* Whether the oracle may come to this list. */
bool select_walk_explains(struct select_walk *walk);

/* ---- sequences that grow ---- */

/* All of a decode case; the errors go to |result|. */
pisa_status select_decode(const struct verify_session *session, struct select_call *call,
                          struct verify_result *result, pisa_error *error);

/* ---- the loop and the report ---- */

void select_report_begin(const struct verify_report *report);
void select_report_case(const struct verify_report *report, const struct select_call *call,
                        const struct verify_result *result, struct verify_code *code);

/* All cases of a variant on its codes; how many cases there were. Variant 0 has all of them. */
int select_verify(struct verify_session *session, const struct pisa_method *method, int variant,
                  struct verify_loaded *codes, int n_codes);
bool select_has_case(const char *name);

#endif
