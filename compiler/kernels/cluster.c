/* cluster: in go the sizes of a segment's clusters; out come where each begins among the segment's
   entries, and the items of leaf_score (cluster.h).

   A CTA has a segment. Its threads take parents, 1024 adjacent ones at once; running sums of
   members and of items say where each thread's clusters and items go. Then they take groups of as
   many adjacent queries as an item has members, and of each group the runs of queries of one
   sequence with one own leaf: what needs no entries. */
#include "compiler/kernels/cluster.h"

#include <assert.h>

#include "compiler/kernels/kernels.h"
#include "compiler/kernels/sequence.h"
#include "compiler/sm90/scan.h"
#include "compiler/sm90/sync.h"

#define ARG(name) (k->arg[PISA_CLUSTER_##name])

static const struct ir_arg cluster_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_CLUSTER_ARGS(X)
#undef X
};

enum {
  WORD = 4,
  PARENTS_PER_THREAD = 2, /* read at once */
  FEW_ROWS = 16384,       /* up to so many rows items have 16 members, so that all SMs have some */
  SOME_ROWS = 65536       /* up to so many 32 */
};

struct cluster {
  const struct plan_pyramid *plan;
  struct lanes lanes;
  val kv_head, first, end; /* of the segment: its query numbers */
  val counts, offsets;     /* its rows */
  val items;
  val members; /* of an item, at most */
  struct var n_entries, n_items;
};

static val min_members(struct ir *k, const struct cluster *a) {
  int tile = 64 / cluster_head_rows(a->plan);
  val rows = mul(k, ARG(kv_heads), ARG(queries));
  val most = choose(k, is_le(k, rows, i32(k, SOME_ROWS)), i32(k, 32), i32(k, ITEM_MAX_MEMBERS));
  val members = choose(k, is_le(k, rows, i32(k, FEW_ROWS)), i32(k, 16), most);
  return smax(k, members, i32(k, tile));
}

static struct cluster cluster_new(struct ir *k, const struct plan_pyramid *plan) {
  struct cluster a = {.plan = plan, .lanes = lanes_new(k)};
  val segment = cta_index(k), group = udiv(k, segment, ARG(kv_heads));
  a.kv_head = sub(k, segment, mul(k, group, ARG(kv_heads)));
  a.first = mul(k, group, ARG(chunk));
  a.end = smin(k, add(k, a.first, ARG(chunk)), ARG(queries));
  val row_bytes = mul_const(k, ARG(parents), WORD);
  a.counts = at_row(k, ARG(counts), segment, row_bytes);
  a.offsets = at_row(k, ARG(offsets), segment, row_bytes);
  a.items = at_row(k, ARG(items), segment, mul_const(k, ARG(item_room), ITEM_BYTES));
  a.members = min_members(k, &a);
  a.n_entries = var_init(k, i32(k, 0));
  a.n_items = var_init(k, i32(k, 0));
  return a;
}

static void item_store(struct ir *k, const struct cluster *a, val index, const val word[4]) {
  store(k, pack4(k, word), at_row(k, a->items, index, i32(k, ITEM_BYTES)), ITEM_BYTES);
}

/* floor(k_begin / tokens) + b, i32. */
static val part_base(struct ir *k, const struct sequence *s, int tokens) {
  return add(k, narrow(k, udiv(k, s->k_begin, i64(k, tokens))), s->index);
}

static val ceil_div(struct ir *k, val x, val y) {
  return udiv(k, add(k, x, add_const(k, y, -1)), y);
}

/* ---- clusters ---- */

/* |n| members, entries from |entry| on, items from |item| on. */
static void cluster_items(struct ir *k, const struct cluster *a, val parent, val n, val entry,
                          val item) {
  const int g = a->plan->children;
  val place;
  struct sequence s = sequence_of_part(k, parent, a->plan->leaf * g, &place);
  val leaf = add(k, part_base(k, &s, a->plan->leaf), mul_const(k, place, g));
  val second = add_const(k, leaf, g / 2);
  struct var next = var_init(k, item);
  FOR_STEP(k, begin, i32(k, 0), n, a->members) {
    val members = smin(k, a->members, sub(k, n, begin));
    val info = bit_or(k, members, i32(k, ITEM_CLUSTER << ITEM_KIND_SHIFT));
    item_store(k, a, get(k, next), (const val[]){leaf, second, add(k, entry, begin), info});
    set(k, next, add_const(k, get(k, next), 1));
  }
}

/* Parents |base| + thread + i threads of the segment, below |end|. */
static void cluster_pass(struct ir *k, const struct cluster *a, val base, val end) {
  const int threads = a->plan->cluster.threads;
  val n[PARENTS_PER_THREAD], items[PARENTS_PER_THREAD], sum[2], before[2], total[2];
  val mine = add(k, base, thread_index(k));
  sum[0] = sum[1] = i32(k, 0);
  for (int i = 0; i < PARENTS_PER_THREAD; i++) {
    val parent = add_const(k, mine, i * threads);
    n[i] = load_if(k, is_lt(k, parent, end), at_row(k, a->counts, parent, i32(k, WORD)), i32(k, 0));
    items[i] = ceil_div(k, n[i], a->members);
    sum[0] = add(k, sum[0], n[i]);
    sum[1] = add(k, sum[1], items[i]);
  }
  cta_scan(k, 2, sum, before, total, k->smem, threads / 32, &a->lanes);
  val entry = add(k, get(k, a->n_entries), before[0]), item = add(k, get(k, a->n_items), before[1]);
  for (int i = 0; i < PARENTS_PER_THREAD; i++) {
    val parent = add_const(k, mine, i * threads);
    IF (k, is_lt(k, i32(k, 0), n[i])) {
      store(k, entry, at_row(k, a->offsets, parent, i32(k, WORD)), WORD);
      cluster_items(k, a, parent, n[i], entry, item);
    }
    entry = add(k, entry, n[i]);
    item = add(k, item, items[i]);
  }
  set(k, a->n_entries, add(k, get(k, a->n_entries), total[0]));
  set(k, a->n_items, add(k, get(k, a->n_items), total[1]));
}

/* Parents of the sequences that the segment's queries are of. */
static void clusters(struct ir *k, const struct cluster *a) {
  const int size = a->plan->leaf * a->plan->children;
  struct sequence s = sequence_of_query(k, a->first);
  struct sequence last = sequence_of_query(k, add_const(k, a->end, -1));
  val begin = part_base(k, &s, size);
  val end = add(k, part_base(k, &last, size), ceil_div(k, last.keys, i32(k, size)));
  FOR_STEP(k, base, begin, end, i32(k, PARENTS_PER_THREAD * a->plan->cluster.threads)) {
    cluster_pass(k, a, base, end);
  }
}

/* ---- runs ---- */

static int items_per_run(const struct plan_pyramid *plan) {
  return cluster_has_singles(plan) + plan_is_mass(plan);
}

struct run { /* adjacent queries of one sequence with one own leaf, to be scored */
  const struct sequence *sequence;
  val begin, members; /* query number */
  val token;          /* of the first */
  val own;
  struct var item; /* where its next item goes */
};

static void run_store(struct ir *k, const struct cluster *a, const struct run *run, val first,
                      val second, val info) {
  val start = sub(k, run->begin, a->first), members = run->members;
  item_store(k, a, get(k, run->item),
             (const val[]){first, second, start, bit_or(k, members, info)});
  set(k, run->item, add_const(k, get(k, run->item), 1));
}

/* Leaf 1, and where the own leaf is even the one two before it: its parent, the last kept but one,
   has the previous leaf too. */
static void run_single(struct ir *k, const struct cluster *a, const struct run *run) {
  val leaves = part_base(k, run->sequence, a->plan->leaf), one = add_const(k, leaves, 1);
  val is_odd = is_ne(k, bit_and(k, run->own, i32(k, 1)), i32(k, 0));
  val parents = add_const(k, shift_right(k, run->own, i32(k, 1)), 1);
  val kept = smin(k, parents, i32(k, a->plan->keep));
  val slot = choose(k, is_odd, i32(k, ITEM_NO_SLOT), mul_const(k, add_const(k, kept, -2), 2));
  val second = choose(k, is_odd, one, add(k, leaves, add_const(k, run->own, -2)));
  val kind = i32(k, ITEM_SINGLE << ITEM_KIND_SHIFT);
  run_store(k, a, run, one, second, bit_or(k, kind, shift_left(k, slot, i32(k, ITEM_SLOT_SHIFT))));
}

/* The own leaf's parent is the last one kept; where that has both, the slots are adjacent, and so
   they are where the previous leaf is the last of the parent before. */
val cluster_near_slot(struct ir *k, const struct plan_pyramid *plan, val own) {
  if (!cluster_has_singles(plan))
    return i32(k, plan->keep * plan->children);
  val last = smin(k, shift_right(k, own, i32(k, 1)), i32(k, plan->keep - 1));
  val slot = add(k, mul_const(k, last, 2), bit_and(k, own, i32(k, 1)));
  return add_const(k, slot, -1);
}

static void run_near(struct ir *k, const struct cluster *a, const struct run *run) {
  val own = add(k, part_base(k, run->sequence, a->plan->leaf), run->own);
  val past = sub(k, run->token, mul_const(k, run->own, a->plan->leaf));
  val slot = cluster_near_slot(k, a->plan, run->own);
  val info = bit_or(k, shift_left(k, past, i32(k, ITEM_PAST_SHIFT)),
                    shift_left(k, slot, i32(k, ITEM_SLOT_SHIFT)));
  run_store(k, a, run, add_const(k, own, -1), own,
            bit_or(k, info, i32(k, ITEM_NEAR << ITEM_KIND_SHIFT)));
}

/* What is to be done with each run of queries [begin, end), in which more leaves are seen than
   kept. */
typedef void run_body(struct ir *k, const struct cluster *a, struct run *run);
static void runs(struct ir *k, const struct cluster *a, val begin, val end, struct var item,
                 run_body *body) {
  val leaf = i32(k, a->plan->leaf);
  struct var query = var_init(k, begin);
  WHILE (k, is_lt(k, get(k, query), end)) {
    val first = get(k, query);
    struct sequence s = sequence_of_query(k, first);
    val token = sequence_token(k, &s, first), sees = is_ge(k, token, i32(k, 0));
    val own = udiv(k, smax(k, token, i32(k, 0)), leaf);
    val next_leaf = mul(k, add_const(k, own, 1), leaf);
    val own_end = add(k, first, sub(k, choose(k, sees, next_leaf, i32(k, 0)), token));
    val run_end = smin(k, smin(k, end, own_end), add(k, s.q_begin, s.queries));
    IF (k, both(k, sees, is_ge(k, own, i32(k, a->plan->keep)))) {
      struct run run = {&s, first, sub(k, run_end, first), token, own, item};
      body(k, a, &run);
    }
    set(k, query, run_end);
  }
}

static void run_count(struct ir *k, const struct cluster *a, struct run *run) {
  set(k, run->item, add_const(k, get(k, run->item), items_per_run(a->plan)));
}

static void run_write(struct ir *k, const struct cluster *a, struct run *run) {
  if (cluster_has_singles(a->plan))
    run_single(k, a, run);
  if (plan_is_mass(a->plan))
    run_near(k, a, run);
}

static void all_runs(struct ir *k, const struct cluster *a) {
  const int threads = a->plan->cluster.threads;
  val step = mul_const(k, a->members, threads);
  FOR_STEP(k, base, a->first, a->end, step) {
    val begin = smin(k, add(k, base, mul(k, thread_index(k), a->members)), a->end);
    val end = smin(k, add(k, begin, a->members), a->end);
    struct var n = var_init(k, i32(k, 0));
    runs(k, a, begin, end, n, run_count);
    val sum = get(k, n), before, total;
    cta_scan(k, 1, &sum, &before, &total, k->smem, threads / 32, &a->lanes);
    struct var item = var_init(k, add(k, get(k, a->n_items), before));
    runs(k, a, begin, end, item, run_write);
    set(k, a->n_items, add(k, get(k, a->n_items), total));
  }
}

void kernel_cluster(struct ir *k, const struct plan_pyramid *plan) {
  assert(cluster_can(plan) && plan->cluster.smem_bytes >= scan_bytes(2));
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_CLUSTER_N_ARGS, cluster_args);
  launch_handover(k);
  struct cluster a = cluster_new(k, plan);
  clusters(k, &a);
  if (items_per_run(plan) > 0)
    all_runs(k, &a);
  IF (k, is_eq(k, thread_index(k), i32(k, 0))) {
    store(k, get(k, a.n_items), at_row(k, ARG(n_items), cta_index(k), i32(k, WORD)), WORD);
  }
  kernel_end(k, plan->cluster.entry, plan->cluster.threads, 1);
}
