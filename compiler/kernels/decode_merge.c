/* decode_merge: in go the partial results of decode_attend's splits; out come o and lse.

   CTA = (query Hk + hk) parts + part, parts = CTAs / (T Hk), so that few queries can have more CTAs
   than T Hk: each has a part of the items of its query, an item being eight columns of a head. An
   item has up to GROUPS threads, which take splits in turn, BATCH of them in flight; then one
   merges what they have, in their order, through shared memory. */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/attend_blocks.h"
#include "compiler/kernels/kernels.h"
#include "compiler/sm90/sync.h"

static const struct ir_arg decode_merge_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_DECODE_MERGE_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_DECODE_MERGE_##name])

enum { WORD = 4, PIECE = 8, BATCH = 8, GROUPS = 8, THREAD_BYTES = 48 };

/* Some splits of an item: o in the unit of 2^top, and the sum of weights. */
struct sums {
  val x[PIECE], top, sum;
};
struct sum_vars {
  struct var x[PIECE], top, sum;
};

struct merge { /* one CTA, one thread */
  const struct plan_pyramid *plan;
  val query, kv_head;
  val first, items;          /* i32: its items of the query */
  val width;                 /* items at a time */
  val group, groups, column; /* i32: this thread's place */
};

static struct sum_vars sum_vars_new(struct ir *k) {
  struct sum_vars a = {.top = var_init(k, f32(k, -1e30)), .sum = var_init(k, f32(k, 0))};
  for (int i = 0; i < PIECE; i++)
    a.x[i] = var_init(k, f32(k, 0));
  return a;
}

/* a += n others. */
static void sums_add(struct ir *k, const struct sum_vars *a, int n, const struct sums *other) {
  val before = get(k, a->top), top = before;
  for (int s = 0; s < n; s++)
    top = maximum(k, top, other[s].top);
  val factor = exp2_approx(k, sub(k, before, top));
  val sum = mul(k, get(k, a->sum), factor), x[PIECE];
  for (int i = 0; i < PIECE; i++)
    x[i] = mul(k, get(k, a->x[i]), factor);
  for (int s = 0; s < n; s++) {
    factor = exp2_approx(k, sub(k, other[s].top, top));
    sum = fused(k, other[s].sum, factor, sum);
    for (int i = 0; i < PIECE; i++)
      x[i] = fused(k, other[s].x[i], factor, x[i]);
  }
  set(k, a->top, top);
  set(k, a->sum, sum);
  for (int i = 0; i < PIECE; i++)
    set(k, a->x[i], x[i]);
}

/* ---- splits ---- */

/* The two f32 at |place|. */
static void load_two(struct ir *k, val place, val x[2]) {
  val two = load(k, k->f32x2, place, 2 * WORD);
  for (int i = 0; i < 2; i++)
    x[i] = element(k, two, i, k->f32);
}

/* Row of split |s| of a head, whose split 0 begins at |row|; behind the last one of no weight. */
static struct sums load_split(struct ir *k, const struct merge *a, val row, val piece, val s) {
  const int step = a->plan->group * partial_row_bytes(a->plan);
  val last = add_const(k, ARG(splits), -1), ends[2];
  val place = at_row(k, row, smin(k, s, last), i32(k, step));
  load_two(k, at_const(k, place, a->plan->head_dim * WORD), ends);
  struct sums x = {.top = choose(k, is_le(k, s, last), ends[0], f32(k, -INFINITY)), .sum = ends[1]};
  val mine = at(k, place, mul_const(k, piece, PIECE * WORD));
  for (int i = 0; i < PIECE; i += 2)
    load_two(k, at_const(k, mine, i * WORD), x.x + i);
  return x;
}

/* This thread's splits of |item| to its place in shared memory. */
static void merge_splits(struct ir *k, const struct merge *a, val head, val piece) {
  val part = mul(k, widen(k, sequence_row(k, a->query, a->kv_head)), widen(k, ARG(splits)));
  val index = add(k, mul_const(k, part, a->plan->group), widen(k, head));
  val row = at(k, ARG(partial), mul_const(k, index, partial_row_bytes(a->plan)));
  struct sum_vars sums = sum_vars_new(k);
  FOR_STEP(k, first, a->group, ARG(splits), mul_const(k, a->groups, BATCH)) {
    struct sums batch[BATCH];
    for (int s = 0; s < BATCH; s++)
      batch[s] = load_split(k, a, row, piece, add(k, first, mul_const(k, a->groups, s)));
    sums_add(k, &sums, BATCH, batch);
  }
  val place = at(k, k->smem, mul_const(k, thread_index(k), THREAD_BYTES));
  for (int i = 0; i < PIECE; i += 2)
    store(k, pack2(k, get(k, sums.x[i]), get(k, sums.x[i + 1])), at_const(k, place, i * WORD),
          2 * WORD);
  val ends = pack2(k, get(k, sums.top), get(k, sums.sum));
  store(k, ends, at_const(k, place, PIECE * WORD), 2 * WORD);
}

/* ---- groups ---- */

static void merge_groups(struct ir *k, const struct merge *a, const struct outputs *out, val head,
                         val piece) {
  struct sum_vars sums = sum_vars_new(k);
  FOR (k, g, i32(k, 0), a->groups) {
    val thread = add(k, mul(k, g, a->width), a->column);
    val place = at(k, k->smem, mul_const(k, thread, THREAD_BYTES)), ends[2];
    struct sums x;
    for (int i = 0; i < PIECE; i += 2)
      load_two(k, at_const(k, place, i * WORD), x.x + i);
    load_two(k, at_const(k, place, PIECE * WORD), ends);
    x.top = ends[0];
    x.sum = ends[1];
    sums_add(k, &sums, 1, &x);
  }
  val x[PIECE], sum = get(k, sums.sum);
  for (int i = 0; i < PIECE; i++)
    x[i] = get(k, sums.x[i]);
  outputs_store(k, out, head, mul_const(k, piece, PIECE), x, sum);
  outputs_store_lse(k, out, is_eq(k, piece, i32(k, 0)), head, get(k, sums.top), sum);
}

/* ---- the kernel ---- */

static struct merge merge_of(struct ir *k, const struct plan_pyramid *plan) {
  const int items = plan->group * plan->head_dim / PIECE, threads = plan->decode_merge.threads;
  struct merge a = {.plan = plan};
  val rows = mul(k, SEQUENCE_ARG(queries), SEQUENCE_ARG(kv_heads));
  val parts = udiv(k, cta_count(k), rows), row = udiv(k, cta_index(k), parts);
  val part = sub(k, cta_index(k), mul(k, row, parts));
  a.query = udiv(k, row, SEQUENCE_ARG(kv_heads));
  a.kv_head = sub(k, row, mul(k, a.query, SEQUENCE_ARG(kv_heads)));
  val each = udiv(k, add_const(k, parts, items - 1), parts); /* at least 1 */
  a.first = mul(k, part, each);
  a.items = smin(k, each, sub(k, i32(k, items), a.first)); /* maybe none */
  a.width = smax(k, smin(k, a.items, i32(k, threads)), i32(k, 1));
  a.groups = umin(k, udiv(k, i32(k, threads), a.width), i32(k, GROUPS));
  a.group = udiv(k, thread_index(k), a.width);
  a.column = sub(k, thread_index(k), mul(k, a.group, a.width));
  return a;
}

void kernel_decode_merge(struct ir *k, const struct plan_pyramid *plan) {
  const int pieces = plan->head_dim / PIECE, threads = plan->decode_merge.threads;
  assert(threads * THREAD_BYTES == plan->decode_merge.smem_bytes);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_DECODE_MERGE_N_ARGS, decode_merge_args);
  launch_handover(k);
  struct merge a = merge_of(k, plan);
  struct blocks_query query = {.query = a.query, .kv_head = a.kv_head};
  query.sequence = sequence_of_query(k, a.query);
  struct outputs out =
      outputs_of(k, &query, ARG(o), ARG(o_batch), ARG(o_head), ARG(o_token), ARG(lse), plan->group);
  FOR_STEP(k, base, i32(k, 0), a.items, i32(k, threads)) {
    val place = add(k, base, a.column), item = add(k, a.first, place);
    val head = udiv(k, item, i32(k, pieces)), piece = sub(k, item, mul_const(k, head, pieces));
    val used = both(k, is_lt(k, place, a.items), is_lt(k, a.group, a.groups));
    IF (k, used) {
      merge_splits(k, &a, head, piece);
    }
    cta_sync(k);
    IF (k, both(k, used, is_eq(k, a.group, i32(k, 0)))) {
      merge_groups(k, &a, &out, head, piece);
    }
    cta_sync(k);
  }
  kernel_end(k, plan->decode_merge.entry, threads, 1);
}
