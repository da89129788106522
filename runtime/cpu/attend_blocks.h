/* attend_blocks.h: exact attention over the leaves a query reads, naively, in double.

   One head. The key and value head's k and v are [N, D]; query row r of Nq stands at token
   t = N - Nq + r (select.h). With |causal| it reads tokens up to t of the leaves on its list. The
   output is not rounded. A query that reads no token has o = 0 and lse = -inf; one whose scores
   hold a NaN has NaN for both. */
#ifndef PISA_CPU_ATTEND_BLOCKS_H
#define PISA_CPU_ATTEND_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct blocks_head {
  const double *k, *v; /* [N, D] */
  int64_t n;           /* N */
  int head_dim;        /* D */
  int leaf;            /* tokens of a block */
  bool causal;
  double scale; /* multiplies q.k */
};

/* o [D] and lse of q [D] at token |t|; list [n_list] in any order, each id once, those outside the
   sequence skipped, or NULL: every block. */
void attend_blocks(const struct blocks_head *head, const double *q, int64_t t, const int32_t *list,
                   int64_t n_list, double *o, double *lse);
/* o [Nq, D] and lse [Nq] of q [Nq, D]; list [Nq, room], or NULL: every block. */
void attend_blocks_sequence(const struct blocks_head *head, const double *q, int64_t n_q,
                            const int32_t *list, int64_t room, double *o, double *lse);

#endif
