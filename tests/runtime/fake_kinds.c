/* fake_kinds.c: a kernel's entry in; the kinds of its parameters, as abi.def lists them, out. */
#include "tests/runtime/fake_kinds.h"

#include <stddef.h>
#include <string.h>

#include "runtime/abi.def"

#define X(kind, name, meaning) KIND_##kind,
static const enum fake_kind statistics_kinds[] = {PISA_STATISTICS_ARGS(X)};
static const enum fake_kind residual_kinds[] = {PISA_RESIDUAL_ARGS(X)};
static const enum fake_kind route_kinds[] = {PISA_ROUTE_ARGS(X)};
static const enum fake_kind attend_kinds[] = {PISA_ATTEND_ARGS(X)};
static const enum fake_kind pyramid_kinds[] = {PISA_PYRAMID_ARGS(X)};
static const enum fake_kind pyramid_top_kinds[] = {PISA_PYRAMID_TOP_ARGS(X)};
static const enum fake_kind walk_kinds[] = {PISA_WALK_ARGS(X)};
static const enum fake_kind cluster_kinds[] = {PISA_CLUSTER_ARGS(X)};
static const enum fake_kind scatter_kinds[] = {PISA_SCATTER_ARGS(X)};
static const enum fake_kind leaf_score_kinds[] = {PISA_LEAF_SCORE_ARGS(X)};
static const enum fake_kind pick_kinds[] = {PISA_PICK_ARGS(X)};
static const enum fake_kind flat_kinds[] = {PISA_FLAT_ARGS(X)};
static const enum fake_kind csr_count_kinds[] = {PISA_CSR_COUNT_ARGS(X)};
static const enum fake_kind csr_scan_kinds[] = {PISA_CSR_SCAN_ARGS(X)};
static const enum fake_kind csr_fill_kinds[] = {PISA_CSR_FILL_ARGS(X)};
static const enum fake_kind attend_blocks_kinds[] = {PISA_ATTEND_BLOCKS_ARGS(X)};
static const enum fake_kind append_kinds[] = {PISA_APPEND_ARGS(X)};
static const enum fake_kind decode_kinds[] = {PISA_DECODE_ARGS(X)};
static const enum fake_kind decode_attend_kinds[] = {PISA_DECODE_ATTEND_ARGS(X)};
static const enum fake_kind decode_merge_kinds[] = {PISA_DECODE_MERGE_ARGS(X)};
#undef X
#define KERNEL(NAME, name)                                                                         \
  { "pisa_" #name, PISA_##NAME##_N_ARGS, name##_kinds }
static const struct {
  const char *entry;
  int n;
  const enum fake_kind *kinds;
} kernels[] = {
    KERNEL(STATISTICS, statistics),
    KERNEL(RESIDUAL, residual),
    KERNEL(ROUTE, route),
    KERNEL(PYRAMID, pyramid),
    KERNEL(PYRAMID_TOP, pyramid_top),
    KERNEL(WALK, walk),
    KERNEL(CLUSTER, cluster),
    KERNEL(SCATTER, scatter),
    KERNEL(LEAF_SCORE, leaf_score),
    KERNEL(PICK, pick),
    KERNEL(FLAT, flat),
    KERNEL(CSR_COUNT, csr_count),
    KERNEL(CSR_SCAN, csr_scan),
    KERNEL(CSR_FILL, csr_fill),
    KERNEL(ATTEND_BLOCKS, attend_blocks),
    KERNEL(APPEND, append),
    KERNEL(DECODE, decode),
    KERNEL(DECODE_ATTEND, decode_attend),
    KERNEL(DECODE_MERGE, decode_merge),
};

/* The others have the parameters of attend. */
const enum fake_kind *fake_kinds_of(const char *entry, int *n) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (!strcmp(entry, kernels[i].entry)) {
      *n = kernels[i].n;
      return kernels[i].kinds;
    }
  *n = PISA_ATTEND_N_ARGS;
  return attend_kinds;
}
