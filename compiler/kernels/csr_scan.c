/* csr_scan: in goes how many queries of each segment list each leaf; out come the first place of
   each leaf and, among its members, of each segment (csr.h). A CTA has a key head, a thread a
   leaf. */
#include <assert.h>

#include "compiler/kernels/kernels.h"
#include "compiler/kernels/sequence.h"
#include "compiler/sm90/scan.h"
#include "compiler/sm90/sync.h"

#define ARG(name) (k->arg[PISA_CSR_SCAN_##name])

static const struct ir_arg csr_scan_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_CSR_SCAN_ARGS(X)
#undef X
};

enum {
  WORD = 4,
  LOADS = 16 /* under way at once */
};

/* Of a leaf and a segment of this CTA's key head, in |array|. */
static val entry_at(struct ir *k, val array, val segment, val leaf) {
  val row = add(k, mul(k, segment, ARG(kv_heads)), cta_index(k));
  return at_row(k, at_row(k, array, row, mul_const(k, ARG(leaves), WORD)), leaf, i32(k, WORD));
}

/* Counts of segments [segment, segment + LOADS), as far as there are any; where |is_leaf|. */
static void load_counts(struct ir *k, val segment, val leaf, val is_leaf, val is_there[LOADS],
                        val count[LOADS]) {
  for (int i = 0; i < LOADS; i++) {
    val number = add_const(k, segment, i);
    is_there[i] = both(k, is_leaf, is_lt(k, number, ARG(segments)));
    count[i] = load_if(k, is_there[i], entry_at(k, ARG(counts), number, leaf), i32(k, 0));
  }
}

static val sum_of_leaf(struct ir *k, val leaf, val is_leaf) {
  struct var sum = var_init(k, i32(k, 0));
  FOR_STEP(k, segment, i32(k, 0), ARG(segments), i32(k, LOADS)) {
    val is_there[LOADS], count[LOADS];
    load_counts(k, segment, leaf, is_leaf, is_there, count);
    for (int i = 0; i < LOADS; i++)
      set(k, sum, add(k, get(k, sum), count[i]));
  }
  return get(k, sum);
}

static void begins_of_leaf(struct ir *k, val leaf, val is_leaf, val begin) {
  struct var next = var_init(k, begin);
  FOR_STEP(k, segment, i32(k, 0), ARG(segments), i32(k, LOADS)) {
    val is_there[LOADS], count[LOADS];
    load_counts(k, segment, leaf, is_leaf, is_there, count);
    for (int i = 0; i < LOADS; i++) {
      IF (k, is_there[i]) {
        val to = entry_at(k, ARG(begins), add_const(k, segment, i), leaf);
        store(k, get(k, next), to, WORD);
      }
      set(k, next, add(k, get(k, next), count[i]));
    }
  }
}

void kernel_csr_scan(struct ir *k, const struct plan_pyramid *plan) {
  const int threads = plan->csr_scan.threads;
  assert(plan->csr_scan.smem_bytes >= scan_bytes(1));
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_CSR_SCAN_N_ARGS, csr_scan_args);
  launch_handover(k);
  struct lanes lanes = lanes_new(k);
  val row_bytes = mul_const(k, add_const(k, ARG(leaves), 1), WORD);
  val offsets = at_row(k, ARG(offsets), cta_index(k), row_bytes);
  struct var end = var_init(k, i32(k, 0));
  FOR_STEP(k, first, i32(k, 0), ARG(leaves), i32(k, threads)) {
    val leaf = add(k, first, thread_index(k)), is_leaf = is_lt(k, leaf, ARG(leaves));
    val sum = sum_of_leaf(k, leaf, is_leaf), before, total;
    cta_scan(k, 1, &sum, &before, &total, k->smem, threads / 32, &lanes);
    val begin = add(k, get(k, end), before);
    IF (k, is_leaf) {
      store(k, begin, at_row(k, offsets, leaf, i32(k, WORD)), WORD);
    }
    begins_of_leaf(k, leaf, is_leaf, begin);
    set(k, end, add(k, get(k, end), total));
  }
  IF (k, is_eq(k, thread_index(k), i32(k, 0))) {
    store(k, get(k, end), at_row(k, offsets, ARG(leaves), i32(k, WORD)), WORD);
  }
  kernel_end(k, plan->csr_scan.entry, threads, 1);
}
