/* csr_count: in go lists of leaves; out comes how many queries of each segment list each leaf, for
   all leaves that have a number (csr.h). */
#include "compiler/kernels/csr.h"
#include "compiler/kernels/kernels.h"
#include "compiler/kernels/sequence.h"
#include "compiler/sm90/sync.h"

#define ARG(name) (k->arg[PISA_CSR_COUNT_##name])

static const struct ir_arg csr_count_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_CSR_COUNT_ARGS(X)
#undef X
};

enum {
  WORD = 4,
  LOADS = 4 /* under way at once */
};

static val counter(struct ir *k, val place) {
  return at(k, k->smem, mul_const(k, place, WORD));
}

/* The pairs of the segment whose leaf is in the window. */
static void count_pairs(struct ir *k, const struct csr_segment *a, val begin, val n) {
  const int threads = a->plan->csr_count.threads, keep = a->plan->keep;
  val end = mul_const(k, sub(k, a->end, a->first), keep);
  FOR_STEP(k, pass, thread_index(k), end, i32(k, LOADS * threads)) {
    struct csr_pair pair[LOADS];
    for (int i = 0; i < LOADS; i++) {
      val index = add_const(k, pass, (int64_t)i * threads);
      val row = udiv(k, index, i32(k, keep)), slot = sub(k, index, mul_const(k, row, keep));
      pair[i] = csr_pair_at(k, a, add(k, a->first, row), slot);
    }
    for (int i = 0; i < LOADS; i++) {
      val place = csr_place(k, &pair[i], begin, n);
      IF (k, is_ge(k, place, i32(k, 0))) {
        shared_add(k, counter(k, place), i32(k, 1));
      }
    }
  }
}

void kernel_csr_count(struct ir *k, const struct plan_pyramid *plan) {
  const int threads = plan->csr_count.threads, window = plan->csr_count.smem_bytes / WORD;
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_CSR_COUNT_N_ARGS, csr_count_args);
  launch_handover(k);
  struct csr_segment a = csr_segment_new(k, plan, ARG(ids), ARG(chunk));
  val row = at_row(k, ARG(counts), a.number, mul_const(k, ARG(leaves), WORD));
  FOR_STEP(k, begin, i32(k, 0), ARG(leaves), i32(k, window)) {
    val n = smin(k, sub(k, ARG(leaves), begin), i32(k, window));
    FOR_STEP(k, i, thread_index(k), n, i32(k, threads)) {
      store(k, i32(k, 0), counter(k, i), WORD);
    }
    cta_sync(k);
    IF (k, csr_may_list(k, &a, begin, n)) {
      count_pairs(k, &a, begin, n);
    }
    cta_sync(k);
    FOR_STEP(k, i, thread_index(k), n, i32(k, threads)) {
      val count = load(k, k->i32, counter(k, i), WORD);
      store(k, count, at_row(k, row, add(k, begin, i), i32(k, WORD)), WORD);
    }
  }
  kernel_end(k, plan->csr_count.entry, threads, 1);
}
