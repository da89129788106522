/* sample.h: small attention problems for the tests of runtime/cpu, with their arrays, and how to
 * run them. */
#ifndef PISA_TESTS_CPU_SAMPLE_H
#define PISA_TESTS_CPU_SAMPLE_H

#include "runtime/cpu/problem.h"

/* Fails the test case with file and line unless |condition| holds. */
#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)
void check(bool condition, const char *text, const char *file, int line);
/* |got| <= |limit|, and not NaN; prints both otherwise. */
#define CHECK_AT_MOST(got, limit) check_at_most((got), (limit), #got, __FILE__, __LINE__)
void check_at_most(double got, double limit, const char *text, const char *file, int line);

enum tail { DROP, TAYLOR_0, HYBRID, TAYLOR_1, DENSE, N_TAILS };

struct shape {
  enum tail tail;
  pisa_type type;
  int head_dim, query, key;
  int64_t batch, heads, kv_heads, n_q, n_k, kept;
  bool log_covariance, key_variance, log_residual; /* at most one of them */
  bool second_order;                               /* where the tail approximates */
  bool threshold, full_variance;                   /* |kept| is a list's room then */
  double tau;
  bool windowed, bnhd;
  int64_t window;         /* counts if windowed */
  const int32_t *lengths; /* [B] or NULL */
};

struct sample {
  struct cpu_problem problem;
  uint16_t *q, *k, *v, *o; /* as the problem's tensors */
  int64_t q_size, k_size;  /* elements of q and o, of k and v */
};

/* bf16, D 64, 128 x 64 blocks, one head, Nq = Nk = n, the hybrid tail with log covariance, |kept|
 * blocks. */
struct shape shape_of(int64_t n, int64_t kept);
/* Arrays filled with seeded normal numbers: q of deviation |spread|, k and v of 1. */
struct sample sample_new(struct shape shape, double spread);
void sample_free(struct sample *sample);

double normal(uint64_t *seed);
void fill_normal(const struct sample *sample, uint16_t *data, int64_t n, double deviation,
                 uint64_t seed);
/* Element d of row n of head (b, h). */
uint16_t *element(const pisa_tensor *tensor, int64_t b, int64_t h, int64_t n, int64_t d);
void set(const struct sample *sample, const pisa_tensor *tensor, int64_t b, int64_t h, int64_t n,
         int64_t d, double value);
double get(const struct sample *sample, const pisa_tensor *tensor, int64_t b, int64_t h, int64_t n,
           int64_t d);

enum executor { ORACLE, FAST };
struct output {   /* of head (b, h), before rounding to the type */
  double *o;      /* [Nq, D] */
  double *lse;    /* [Nq] */
  int32_t *lists; /* [NTq, kept], ascending, then -1 */
};
/* Stage by stage; |lists| [NTq, kept] replaces the routing unless NULL. A shorter sequence's arrays
   are those of the call. */
struct output run_head(const struct sample *sample, enum executor executor, int64_t b, int64_t h,
                       const int32_t *lists);
void output_free(struct output *output);

/* ||x - y|| / ||y|| over n elements; 0 when both are 0. */
double relative_error(const double *x, const double *y, int64_t n);
double largest_difference(const double *x, const double *y, int64_t n);

#endif
