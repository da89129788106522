/* append: in go the last keys of each sequence and the sums of nodes that grow; out come the means
   they change, bit for bit what the kernels pyramid and pyramid_top make of all keys.

   A CTA has a sequence and key head, a thread two columns. New keys are at most a leaf's, so at
   most one leaf gets its last token; with it the nodes above may,

       sum = open[0] + keys        of the leaf; open[0] = 0 when it is full
       open[l] += sum              while a node of level l is full; sum = open[l], open[l] = 0 when
                                   that fills the one above

   and where nodes that are not full are stored too, those above the last token are open[l] + what
   the one below has so far. */
#include <assert.h>

#include "compiler/kernels/kernels.h"
#include "compiler/kernels/node_sum.h"
#include "compiler/plan/decode.h"
#include "compiler/sm90/sync.h"
#include "runtime/abi.def"

static const struct ir_arg append_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_APPEND_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_APPEND_##name])

enum { HALF = 2, F32 = 4, COLUMNS = 2, KEYS_IN_FLIGHT = 8, CTAS_PER_SM = 4 };

struct append { /* of this thread */
  const struct plan_pyramid *plan;
  struct nodes nodes;
  val column;               /* the first of COLUMNS */
  struct var sum[COLUMNS];  /* of the node that grows */
  struct var level, offset; /* where that is, off_level */
};

/* ---- open ---- */

/* The rows that this CTA reads, from global to shared memory. */
static void fetch_open(struct ir *k, const struct plan_pyramid *plan, val open, val thread) {
  const int fours = PISA_OPEN_LEVELS * plan->head_dim / 4, threads = plan->append.threads;
  const int each = fours / threads;
  assert(fours % threads == 0);
  val four[PISA_OPEN_LEVELS];
  val mine = mul_const(k, thread, 4 * F32);
  for (int i = 0; i < each; i++)
    four[i] = load(k, k->i32x4, at_const(k, at(k, open, mine), i * threads * 4 * F32), 4 * F32);
  for (int i = 0; i < each; i++)
    store(k, four[i], at_const(k, at(k, k->smem, mine), i * threads * 4 * F32), 4 * F32);
}

static val open_at(struct ir *k, const struct append *a, val rows, val level) {
  val row = mul_const(k, level, a->plan->head_dim * F32);
  return at(k, rows, add(k, row, mul_const(k, a->column, F32)));
}

static void open_read(struct ir *k, const struct append *a, val level, val x[COLUMNS]) {
  val pair = load(k, k->f32x2, open_at(k, a, k->smem, level), COLUMNS * F32);
  for (int c = 0; c < COLUMNS; c++)
    x[c] = element(k, pair, c, k->f32);
}

/* In shared memory too, from where it may be read again. */
static void open_write(struct ir *k, const struct append *a, val level, const val x[COLUMNS]) {
  val pair = pack2(k, x[0], x[1]);
  store(k, pair, open_at(k, a, k->smem, level), COLUMNS * F32);
  store(k, pair, open_at(k, a, a->nodes.open, level), COLUMNS * F32);
}

/* ---- keys ---- */

/* Adds keys [begin, end): several loads in flight, of which those behind the last read it again. */
static void add_keys(struct ir *k, const struct append *a, val begin, val end) {
  FOR_STEP(k, first, begin, end, i32(k, KEYS_IN_FLIGHT)) {
    val pair[KEYS_IN_FLIGHT], token[KEYS_IN_FLIGHT];
    for (int i = 0; i < KEYS_IN_FLIGHT; i++) {
      token[i] = add_const(k, first, i);
      val read = smin(k, token[i], add_const(k, end, -1));
      val key = sequence_key(k, &a->nodes.sequence, &a->nodes.keys, a->plan->page, a->nodes.kv_head,
                             read);
      pair[i] = load(k, k->i32, at(k, key, mul_const(k, a->column, HALF)), COLUMNS * HALF);
    }
    for (int i = 0; i < KEYS_IN_FLIGHT; i++) {
      val x = choose(k, is_lt(k, token[i], end), pair[i], i32(k, 0));
      set(k, a->sum[0], add(k, get(k, a->sum[0]), half_lo(k, x)));
      set(k, a->sum[1], add(k, get(k, a->sum[1]), half_hi(k, x)));
    }
  }
}

/* ---- levels ---- */

static void get_sum(struct ir *k, const struct append *a, val x[COLUMNS]) {
  for (int c = 0; c < COLUMNS; c++)
    x[c] = get(k, a->sum[c]);
}

static void set_sum(struct ir *k, const struct append *a, const val x[COLUMNS]) {
  for (int c = 0; c < COLUMNS; c++)
    set(k, a->sum[c], x[c]);
}

static void start_at_leaves(struct ir *k, const struct append *a) {
  set(k, a->level, i32(k, 1));
  set(k, a->offset, i32(k, 0));
}

static void go_up(struct ir *k, const struct append *a) {
  const struct plan_pyramid *plan = a->plan;
  val level = get(k, a->level);
  val room = level_nodes(k, a->nodes.sequence.room, plan->leaf, plan->children, level);
  val rows = bit_and(k, add_const(k, room, 3), i32(k, -4));
  set(k, a->offset, add(k, get(k, a->offset), rows));
  set(k, a->level, add_const(k, level, 1));
}

static void store_mean(struct ir *k, const struct append *a, val node, val count) {
  val x[COLUMNS];
  get_sum(k, a, x);
  node_mean_store(k, &a->nodes, add(k, get(k, a->offset), node), a->column, count, COLUMNS, x);
}

/* Leaf |leaf| has its last key, and with it every node of which it is the last leaf. */
static void close_nodes(struct ir *k, const struct append *a, val leaf) {
  const struct plan_pyramid *plan = a->plan;
  const int bits = node_children_log2(plan);
  struct var node = var_init(k, leaf), closes = var_init(k, i32(k, 1));
  start_at_leaves(k, a);
  WHILE (k, is_ne(k, get(k, closes), i32(k, 0))) {
    val level = get(k, a->level), number = get(k, node);
    store_mean(k, a, number, shift_left(k, i32(k, 1), node_shift(k, plan, level)));
    val x[COLUMNS], above[COLUMNS], rest[COLUMNS], zero = f32(k, 0);
    get_sum(k, a, x);
    open_read(k, a, level, above);
    val last = bit_and(k, number, i32(k, plan->children - 1));
    val fills = is_eq(k, last, i32(k, plan->children - 1));
    for (int c = 0; c < COLUMNS; c++) {
      above[c] = add(k, above[c], x[c]);
      rest[c] = choose(k, fills, zero, above[c]);
    }
    open_write(k, a, level, rest);
    set_sum(k, a, above);
    go_up(k, a);
    set(k, node, shift_right(k, number, i32(k, bits)));
    set(k, closes, widen_bool(k, fills));
  }
}

/* The nodes above the last key that are not full, up to the root; the leaf's sum is there. */
static void store_growing(struct ir *k, const struct append *a) {
  const struct plan_pyramid *plan = a->plan;
  val keys = a->nodes.sequence.keys;
  struct var more = var_init(k, i32(k, 1));
  start_at_leaves(k, a);
  WHILE (k, is_ne(k, get(k, more), i32(k, 0))) {
    val level = get(k, a->level), shift = node_shift(k, plan, level);
    val node = shift_right(k, keys, shift), count = sub(k, keys, shift_left(k, node, shift));
    IF (k, is_lt(k, i32(k, 0), count)) {
      store_mean(k, a, node, count);
    }
    val x[COLUMNS], above[COLUMNS];
    get_sum(k, a, x);
    open_read(k, a, level, above);
    for (int c = 0; c < COLUMNS; c++)
      above[c] = add(k, above[c], x[c]);
    set_sum(k, a, above);
    val nodes = level_nodes(k, keys, plan->leaf, plan->children, level);
    set(k, more, widen_bool(k, is_lt(k, i32(k, 1), nodes)));
    go_up(k, a);
  }
}

/* ---- the kernel ---- */

static void append_columns(struct ir *k, const struct append *a) {
  const struct plan_pyramid *plan = a->plan;
  val keys = a->nodes.sequence.keys, x[COLUMNS];
  val n = smin(k, ARG(n_new), keys), old = sub(k, keys, n), leaf = i32(k, plan->leaf);
  val number = udiv(k, old, leaf), end = mul(k, add_const(k, number, 1), leaf);
  open_read(k, a, i32(k, 0), x);
  set_sum(k, a, x);
  add_keys(k, a, old, smin(k, end, keys));
  IF (k, is_le(k, end, keys)) {
    close_nodes(k, a, number);
    const val zero[COLUMNS] = {f32(k, 0), f32(k, 0)};
    set_sum(k, a, zero);
    add_keys(k, a, end, keys);
  }
  get_sum(k, a, x);
  open_write(k, a, i32(k, 0), x);
  IF (k, both(k, is_eq(k, ARG(completed), i32(k, 0)), is_lt(k, i32(k, 0), n))) {
    store_growing(k, a);
  }
}

void kernel_append(struct ir *k, const struct plan_pyramid *plan) {
  const int row_bytes = plan->head_dim * F32, threads = plan->head_dim / COLUMNS;
  assert(plan->append.smem_bytes >= PISA_OPEN_LEVELS * row_bytes);
  assert(plan->append.threads >= threads);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_APPEND_N_ARGS, append_args);
  val thread = thread_index(k);
  if (decode_begins_early(plan)) {
    launch_wait(k);
    launch_next(k);
  } else {
    launch_handover(k);
  }
  val b = udiv(k, cta_index(k), ARG(kv_heads));
  val kv_head = sub(k, cta_index(k), mul(k, b, ARG(kv_heads)));
  val open = at_row(k, ARG(open), cta_index(k), i32(k, PISA_OPEN_LEVELS * row_bytes));
  fetch_open(k, plan, open, thread);
  cta_sync(k);
  IF (k, is_lt(k, thread, i32(k, threads))) {
    struct sequence_array keys = {ARG(k), ARG(k_batch), ARG(k_head), ARG(k_token)};
    struct append a = {.plan = plan, .column = mul_const(k, thread, COLUMNS)};
    a.nodes = nodes_new(k, plan, sequence_at(k, b), kv_head, keys, ARG(means));
    a.nodes.open = open;
    for (int c = 0; c < COLUMNS; c++)
      a.sum[c] = var_init(k, f32(k, 0));
    a.level = var_init(k, i32(k, 1));
    a.offset = var_init(k, i32(k, 0));
    append_columns(k, &a);
  }
  kernel_end(k, plan->append.entry, plan->append.threads, CTAS_PER_SM);
}
