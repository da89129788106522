/* quality.h: the parts of `pisa quality`: what a method loses against dense attention on given
   tensors, at several densities, beside what it costs.

       quality.c ............ options, the order of the work, progress
       quality_options.c .... the command line
       quality_packs.c ...... the packs and what they must have in common
       quality_scene.c ...... tensors of the chosen heads, from files
       quality_synthetic.c .. tensors with a chosen spread of the logits
       quality_truth.c ...... dense attention, the softmax mass of every block, the spreads
       quality_measure.c .... one pack at one density: its output, lists, errors
       quality_cost.c ....... FLOP of a method, as a share of dense attention's
       quality_report.c ..... the table and the JSON lines
       quality_words.c ...... what reports have in common
       quality_page.c ....... the HTML page; quality_chart.c, quality_strip.c: its pictures

   A pack is a black box that maps q, k, v to o and lists: nothing here knows which tails and
   routers exist. A line of the pictures is a variant at several densities or, where a threshold
   decides what is read, variants that differ in their threshold alone. */
#ifndef PISA_TOOL_QUALITY_H
#define PISA_TOOL_QUALITY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/pack.h"
#include "runtime/tool/args.h"

enum {
  QUALITY_MAX_DENSITIES = 16,
  QUALITY_MAX_LINES = 64,
  QUALITY_MAX_VARIANTS = 512, /* of all packs together */
  QUALITY_MAX_THRESHOLDS = 65,
  QUALITY_MAX_SPREADS = 16, /* of one kind */
  QUALITY_MAX_HEADS = 1024,
  QUALITY_GRANULE = 64, /* rows and keys of a cell of softmax mass; block sizes are multiples */
  QUALITY_NAME = 128
};

struct quality_options {
  const char *command; /* "quality" or "sweep" */
  struct args_list packs, settings;
  const char *q, *k, *v; /* NULL: synthetic */
  const char *name;      /* of the tensors, in the results */
  const char *html;      /* NULL: no page */
  bool json, bnhd, synthetic;
  bool all;                                /* variants, not only the chosen ones */
  double densities[QUALITY_MAX_DENSITIES]; /* 0: the spec's own budget */
  int n_densities;
  int64_t heads[QUALITY_MAX_HEADS]; /* ascending */
  int n_heads;                      /* 0: all */
  double spreads[QUALITY_MAX_SPREADS], betweens[QUALITY_MAX_SPREADS];
  int n_spreads, n_betweens;
  int64_t tokens, seed;         /* of synthetic tensors */
  double scale;                 /* 0: 1/sqrt(D) */
  int64_t every;                /* packs that select blocks: one query in so many is looked at */
  int64_t threads;              /* 0: all cores */
  int ordinal;                  /* of the CUDA device; -1: CPU */
  double max_error, min_recall; /* of a sweep, 0: no bound */
};

enum quality_for { QUALITY_COMPARE, QUALITY_SWEEP };

/* False when the command is over already; |exit_code| says how. */
bool quality_options_read(struct quality_options *options, enum quality_for what, int argc,
                          char **argv, int *exit_code);

/* ---- packs ---- */

struct quality_pack { /* one variant */
  const char *label;  /* of its line */
  int line;
  pisa_pack *pack;
  int variant;
  const struct pisa_variant *chosen;
};

struct quality_packs {
  pisa_pack *open[ARGS_MAX_LIST];
  int n_open;
  struct quality_pack items[QUALITY_MAX_VARIANTS];
  int n;
  char labels[QUALITY_MAX_LINES]
             [QUALITY_NAME]; /* spec and choices, as far as they tell lines apart */
  int n_lines;
  int head_dim, group; /* common to all */
  pisa_type type;
};

/* Whether its calls are given densities. */
static inline bool quality_takes_density(const struct quality_pack *pack) {
  return !pack->chosen->method.dense && pack->chosen->method.budget != PISA_BUDGET_THRESHOLD;
}

/* Close also after a failure. */
pisa_status quality_packs_open(const struct quality_options *options, struct quality_packs *out,
                               pisa_error *error);
void quality_packs_close(struct quality_packs *packs);

/* ---- tensors ---- */

struct quality_head { /* where a query head comes from */
  int64_t b, h;
  bool wanted; /* false: it only completes a group that shares keys */
};

/* The chosen heads as one call with batch 1: contiguous, in the packs' type. */
struct quality_scene {
  char name[QUALITY_NAME];
  bool synthetic;
  double spread, between; /* asked for, when synthetic */
  pisa_type type;
  int head_dim;
  int64_t heads, kv_heads, n_q, n_k;
  float scale;                /* multiplies q.k */
  uint16_t *q, *k, *v;        /* [heads, Nq, D], [kv_heads, Nk, D] */
  struct quality_head *where; /* [heads] */
  int64_t n_wanted;
};

/* Free also after a failure. */
pisa_status quality_scene_read(const struct quality_options *options,
                               const struct quality_packs *packs, struct quality_scene *out,
                               pisa_error *error);
/* Logits with standard deviation |spread| inside and |between| between blocks of 64 keys. */
pisa_status quality_scene_make(const struct quality_options *options,
                               const struct quality_packs *packs, double spread, double between,
                               struct quality_scene *out, pisa_error *error);
/* Room for q, k, v and |where|; sizes are set. */
pisa_status quality_scene_alloc(struct quality_scene *scene, pisa_error *error);
/* Frees q, k and v: large, and done with once a scene is measured. */
void quality_scene_forget(struct quality_scene *scene);
void quality_scene_free(struct quality_scene *scene);

/* ---- dense attention ---- */

struct quality_spread { /* standard deviations of a query's logits, RMS over queries */
  double inside;        /* about their mean in blocks of 64 keys */
  double between;       /* of those means */
};

struct quality_truth {
  int64_t q_cells, k_cells; /* ceil(Nq/64), ceil(Nk/64) */
  float *o;                 /* [heads, Nq, D], not rounded */
  float *mass; /* [heads, q_cells, k_cells] share of the softmax, summed over the cell's rows */
  struct quality_spread spread, *spreads; /* of all wanted heads; [heads] */
  double rounding;                        /* relative L2 error of o rounded to the type */
};

typedef void (*quality_progress)(void *user, int64_t done, int64_t total);

/* Free also after a failure. Values that are not finite are refused. */
pisa_status quality_truth_make(const struct quality_scene *scene, int threads,
                               quality_progress progress, void *user, struct quality_truth *out,
                               pisa_error *error);
void quality_truth_free(struct quality_truth *truth);

/* ---- one pack at one density ---- */

struct quality_figures {
  double error;     /* ||o - dense|| / ||dense|| */
  double psnr;      /* 20 log10(max |dense| / rmse), dB; infinite without error */
  double recall;    /* share of the k heaviest blocks, by softmax mass, that a list of k has */
  double mass;      /* share of the softmax that falls on listed blocks */
  double best_mass; /* the same for the k heaviest blocks */
};

struct quality_result {
  const struct quality_pack *pack;
  double density;                     /* asked for; 0: the spec's budget */
  double listed;                      /* blocks per list, on average */
  int64_t k_blocks;                   /* NT */
  int64_t q_blocks;                   /* NTq */
  double read;                        /* share of the keys that are read exactly */
  double cost;                        /* FLOP from q, k, v to o, in units of dense attention's */
  struct quality_figures all, *heads; /* of all wanted heads together; [heads of the scene] */
  double *blocks;                     /* [NTq] error of each query block, wanted heads together */
  double *recalls;                    /* [NTq] recall of its lists */
};

struct quality_run { /* how to run packs */
  int ordinal;       /* of the CUDA device; -1: CPU */
  int threads;
  quality_progress progress; /* may be NULL */
  void *user;
};

/* Free also after a failure. */
pisa_status quality_measure(const struct quality_scene *scene, const struct quality_truth *truth,
                            const struct quality_pack *pack, double density,
                            const struct quality_run *run, struct quality_result *out,
                            pisa_error *error);
void quality_result_free(struct quality_result *result);

/* FLOP of everything from q, k, v to o in units of dense attention's 4 Nq Nk D a head. |read|:
   share of the keys that are read exactly. */
double quality_cost(const struct pisa_method *method, int64_t n_q, int64_t n_k, double read);

/* ---- what is printed ---- */

struct quality_set {              /* everything about one scene */
  struct quality_scene scene;     /* without its arrays */
  struct quality_spread spread;   /* measured */
  struct quality_spread *spreads; /* [heads] */
  double rounding;
  struct quality_result *results; /* [n_results] variant by variant, densities ascending */
  int n_results;
  int label_width; /* of the longest label, in the table */
};

void quality_table_head(FILE *out, const struct quality_set *set);
void quality_table_row(FILE *out, const struct quality_result *result,
                       const struct quality_set *set);
/* One line. */
void quality_json(FILE *out, const struct quality_result *result, const struct quality_set *set);

/* Writes one self-contained file. */
pisa_status quality_page_write(const char *path, const struct quality_set *sets, int n,
                               const struct quality_packs *packs, pisa_error *error);

/* ---- pictures: inline SVG ---- */

enum { CHART_MAX_POINTS = QUALITY_MAX_THRESHOLDS };

struct chart_series {
  const char *name;
  int n;
  double x[CHART_MAX_POINTS], y[CHART_MAX_POINTS]; /* above 0; x ascending */
};

struct chart {
  const char *id, *title, *x_label, *y_label;
  bool log_x, linear_y;
  bool fitted_y;  /* a linear y begins near the lowest value, not at 0 */
  bool percent_x; /* y always is */
  int n;          /* series, drawn in the colours of their place */
  const struct chart_series *series;
};

void chart_write(FILE *out, const struct chart *chart);
/* Colour of series |i|, "#rrggbb". */
const char *chart_color(int i);

struct strip_row {
  char name[QUALITY_NAME + 32];
  int color;            /* of the series; -1: none */
  const double *values; /* above 0 or 0 */
  int64_t n;
};

/* One strip of cells per row, on one logarithmic colour scale. */
void strip_write(FILE *out, const char *id, const char *title, const char *x_label,
                 const struct strip_row *rows, int n);

/* ---- words of all reports ---- */

/* "bf16", "fp16". */
const char *quality_type_name(pisa_type type);
/* `"name": "value", ` of a JSON line. */
void quality_json_text(FILE *out, const char *name, const char *value);
/* An array [1, heads, n, d], contiguous. */
pisa_tensor quality_tensor(void *data, int64_t n, int64_t d);
/* The style sheet of pages. */
extern const char *const quality_style;

/* |text| with <, >, & and quotes escaped. */
void page_text(FILE *out, const char *text);

#endif
