/* select_args.h: the parameters of the kernels of block selection, as pyramid.def lists them. */
#ifndef PISA_RUNTIME_SELECT_ARGS_H
#define PISA_RUNTIME_SELECT_ARGS_H

#include "runtime/args.h"

struct pisa_pyramid_args {
  PISA_PYRAMID_ARGS(PISA_FIELD)
};
struct pisa_pyramid_top_args {
  PISA_PYRAMID_TOP_ARGS(PISA_FIELD)
};
struct pisa_walk_args {
  PISA_WALK_ARGS(PISA_FIELD)
};
struct pisa_cluster_args {
  PISA_CLUSTER_ARGS(PISA_FIELD)
};
struct pisa_scatter_args {
  PISA_SCATTER_ARGS(PISA_FIELD)
};
struct pisa_leaf_score_args {
  PISA_LEAF_SCORE_ARGS(PISA_FIELD)
};
struct pisa_pick_args {
  PISA_PICK_ARGS(PISA_FIELD)
};
struct pisa_flat_args {
  PISA_FLAT_ARGS(PISA_FIELD)
};
struct pisa_csr_count_args {
  PISA_CSR_COUNT_ARGS(PISA_FIELD)
};
struct pisa_csr_scan_args {
  PISA_CSR_SCAN_ARGS(PISA_FIELD)
};
struct pisa_csr_fill_args {
  PISA_CSR_FILL_ARGS(PISA_FIELD)
};
struct pisa_attend_blocks_args {
  PISA_ATTEND_BLOCKS_ARGS(PISA_FIELD)
};
struct pisa_append_args {
  PISA_APPEND_ARGS(PISA_FIELD)
};
struct pisa_decode_args {
  PISA_DECODE_ARGS(PISA_FIELD)
};
struct pisa_decode_attend_args {
  PISA_DECODE_ATTEND_ARGS(PISA_FIELD)
};
struct pisa_decode_merge_args {
  PISA_DECODE_MERGE_ARGS(PISA_FIELD)
};

/* What a call does not have is zero. */
void pisa_fill_pyramid(const struct pisa_job *job, struct pisa_pyramid_args *args);
void pisa_fill_pyramid_top(const struct pisa_job *job, struct pisa_pyramid_top_args *args);
void pisa_fill_walk(const struct pisa_job *job, struct pisa_walk_args *args);
void pisa_fill_cluster(const struct pisa_job *job, struct pisa_cluster_args *args);
void pisa_fill_scatter(const struct pisa_job *job, struct pisa_scatter_args *args);
void pisa_fill_leaf_score(const struct pisa_job *job, struct pisa_leaf_score_args *args);
void pisa_fill_pick(const struct pisa_job *job, struct pisa_pick_args *args);
void pisa_fill_flat(const struct pisa_job *job, struct pisa_flat_args *args);
void pisa_fill_csr_count(const struct pisa_job *job, struct pisa_csr_count_args *args);
void pisa_fill_csr_scan(const struct pisa_job *job, struct pisa_csr_scan_args *args);
void pisa_fill_csr_fill(const struct pisa_job *job, struct pisa_csr_fill_args *args);
/* The maps of attend_blocks, if it has any, into |job|: before anything is enqueued, since it can
 * fail. */
pisa_status pisa_select_encode(struct pisa_job *job, pisa_error *error);
void pisa_fill_attend_blocks(const struct pisa_job *job, struct pisa_attend_blocks_args *args);
void pisa_fill_append(const struct pisa_job *job, struct pisa_append_args *args);
void pisa_fill_decode(const struct pisa_job *job, struct pisa_decode_args *args);
void pisa_fill_decode_attend(const struct pisa_job *job, struct pisa_decode_attend_args *args);
void pisa_fill_decode_merge(const struct pisa_job *job, struct pisa_decode_merge_args *args);

#endif
