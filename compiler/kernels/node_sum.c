/* node_sum.c: in go keys, or sums of nodes; out come sums and means of the nodes above; see
   node_sum.h. */
#include "compiler/kernels/node_sum.h"

#include <assert.h>

#include "compiler/sm90/sync.h"

enum { HALF = 2, F32 = 4, BATCH = NODE_BATCH };

struct nodes nodes_new(struct ir *k, const struct plan_pyramid *plan, struct sequence sequence,
                       val kv_head, struct sequence_array keys, val means) {
  val first = sequence_node_base(k, &sequence, plan->leaf, kv_head);
  val row = at(k, means, mul_const(k, first, plan->head_dim * HALF));
  return (struct nodes){plan, sequence, kv_head, keys, row, {0}, {0}};
}

int node_children_log2(const struct plan_pyramid *plan) {
  return plan->children == 2 ? 1 : plan->children == 4 ? 2 : 3;
}

val node_shift(struct ir *k, const struct plan_pyramid *plan, val level) {
  return smin(k, level_shift(k, plan->leaf, plan->children, level), i32(k, 31));
}

void node_mean_store(struct ir *k, const struct nodes *nodes, val row, val column, val count, int n,
                     const val *sum) {
  assert(n == 2 || n == NODE_COLUMNS);
  val inverse = reciprocal_approx(k, to_float(k, count)), pair[NODE_COLUMNS / 2];
  for (int i = 0; i < n / 2; i++)
    pair[i] = pack_half(k, mul(k, sum[2 * i], inverse), mul(k, sum[2 * i + 1], inverse));
  val to = at(k, mean_row(k, nodes->plan->head_dim, nodes->means, row), mean_column(k, column));
  store(k, n == 2 ? pair[0] : pack4(k, pair), to, n * HALF);
}

/* ---- leaves ---- */

struct batch { /* keys of a leaf */
  val row;     /* of the first one in the leaf */
  val present; /* 0 .. BATCH, or null val: all are */
  val from;    /* pointer to this lane's chunk of the first one */
};

/* Absent keys are read from where some key is. */
static struct batch batch_at(struct ir *k, const struct nodes *n, val leaf, val chunk, val row,
                             bool whole) {
  const struct plan_pyramid *plan = n->plan;
  val token = add(k, mul_const(k, leaf, plan->leaf), row);
  struct batch b = {.row = row};
  if (!whole) {
    val rest = sub(k, n->sequence.keys, token);
    b.present = smin(k, smax(k, rest, i32(k, 0)), i32(k, BATCH));
    token = choose(k, is_lt(k, i32(k, 0), rest), token, i32(k, 0));
  }
  val first = sequence_key(k, &n->sequence, &n->keys, plan->page, n->kv_head, token);
  b.from = at(k, first, mul_const(k, chunk, NODE_COLUMNS * HALF));
  return b;
}

static void batch_load(struct ir *k, const struct nodes *n, const struct batch *b, val word[][4]) {
  val four[BATCH], is[BATCH];
  for (int i = 0; i < BATCH; i++) {
    val key = i64(k, i);
    if (!is_null(b->present)) {
      is[i] = is_lt(k, i32(k, i), b->present);
      key = choose(k, is[i], key, i64(k, 0));
    }
    val from = at(k, b->from, mul(k, key, n->keys.token_bytes));
    four[i] = load(k, k->i32x4, from, NODE_COLUMNS * HALF);
  }
  for (int i = 0; i < BATCH; i++)
    for (int z = 0; z < 4; z++) {
      val w = element(k, four[i], z, k->i32);
      word[i][z] = is_null(b->present) ? w : choose(k, is[i], w, i32(k, 0));
    }
}

struct leaf_sum leaf_sum_of(struct ir *k, const struct nodes *n, val leaf, val chunk, bool whole,
                            leaf_body *body, const void *context) {
  struct leaf_sum sum;
  for (int c = 0; c < NODE_COLUMNS; c++)
    sum.x[c] = var_init(k, f32(k, 0));
  FOR_STEP(k, row, i32(k, 0), i32(k, n->plan->leaf), i32(k, BATCH)) {
    struct batch b = batch_at(k, n, leaf, chunk, row, whole);
    val word[BATCH][4];
    batch_load(k, n, &b, word);
    if (body)
      body(k, context, row, word);
    for (int i = 0; i < BATCH; i++)
      for (int z = 0; z < 4; z++) {
        struct var lo = sum.x[2 * z], hi = sum.x[2 * z + 1];
        set(k, lo, add(k, get(k, lo), half_lo(k, word[i][z])));
        set(k, hi, add(k, get(k, hi), half_hi(k, word[i][z])));
      }
  }
  return sum;
}

/* ---- rows of sums ---- */

static val sum_row(struct ir *k, const struct plan_pyramid *plan, val rows, val row, val chunk) {
  val at_chunk = mul_const(k, chunk, NODE_COLUMNS * F32);
  return at(k, rows, add(k, mul_const(k, row, plan->head_dim * F32), at_chunk));
}

void sum_row_store(struct ir *k, const struct plan_pyramid *plan, val rows, val row, val chunk,
                   const val x[NODE_COLUMNS]) {
  val to = sum_row(k, plan, rows, row, chunk);
  for (int i = 0; i < NODE_COLUMNS; i += 4) {
    const val four[4] = {bits_of(k, x[i]), bits_of(k, x[i + 1]), bits_of(k, x[i + 2]),
                         bits_of(k, x[i + 3])};
    store(k, pack4(k, four), at_const(k, to, i * F32), 4 * F32);
  }
}

void sum_row_load(struct ir *k, const struct plan_pyramid *plan, val rows, val row, val chunk,
                  val x[NODE_COLUMNS]) {
  val from = sum_row(k, plan, rows, row, chunk);
  for (int i = 0; i < NODE_COLUMNS; i += 4) {
    val four = load(k, k->i32x4, at_const(k, from, i * F32), 4 * F32);
    for (int z = 0; z < 4; z++)
      x[i + z] = float_of(k, element(k, four, z, k->i32));
  }
}

void open_clear(struct ir *k, const struct nodes *n, val first, val end, val thread, int threads) {
  const int chunks = node_chunks(n->plan);
  val zero[NODE_COLUMNS];
  for (int c = 0; c < NODE_COLUMNS; c++)
    zero[c] = f32(k, 0);
  val begin = add(k, mul_const(k, first, chunks), thread);
  FOR_STEP(k, task, begin, mul_const(k, end, chunks), i32(k, threads)) {
    sum_row_store(k, n->plan, n->open, i32(k, 0), task, zero);
  }
}

/* ---- levels ---- */

struct step {          /* from the nodes of one level to those above, in place */
  val level, offset;   /* above */
  val shift;           /* log2 of tokens of a node above */
  val stride;          /* log2 of the rows from child to child */
  val first;           /* place of the first node above */
  val children, whole; /* of the sequence: how many there are, how many are full */
};

static struct step step_of(struct ir *k, const struct nodes *n, const struct subtree *t, val j,
                           val offset) {
  const struct plan_pyramid *plan = n->plan;
  const int bits = node_children_log2(plan);
  val keys = n->sequence.keys, below = add(k, t->level, j);
  struct step s = {.level = add_const(k, below, 1), .offset = offset};
  s.shift = node_shift(k, plan, s.level);
  s.stride = mul_const(k, j, bits);
  s.first = shift_right(k, t->first, add_const(k, s.stride, bits));
  val child = node_shift(k, plan, below);
  s.children = add_const(k, shift_right_signed(k, add_const(k, keys, -1), child), 1);
  s.whole = shift_right_signed(k, keys, child);
  return s;
}

struct family { /* a node and its children */
  val node;     /* of the level above */
  val sum[NODE_COLUMNS];
  val closed[NODE_COLUMNS]; /* of the full children */
};

static struct family family_sum(struct ir *k, const struct nodes *n, const struct subtree *t,
                                const struct step *s, val place, val chunk) {
  const struct plan_pyramid *plan = n->plan;
  const int bits = node_children_log2(plan);
  struct family f = {.node = add(k, s->first, place)};
  for (int c = 0; c < NODE_COLUMNS; c++)
    f.sum[c] = f.closed[c] = f32(k, 0);
  val first = shift_left(k, place, i32(k, bits)), number = shift_left(k, f.node, i32(k, bits));
  for (int child = 0; child < plan->children; child++) {
    val x[NODE_COLUMNS], at_child = add_const(k, number, child);
    val there = is_lt(k, at_child, s->children), whole = is_lt(k, at_child, s->whole);
    sum_row_load(k, plan, t->sums, shift_left(k, add_const(k, first, child), s->stride), chunk, x);
    for (int c = 0; c < NODE_COLUMNS; c++) {
      val more = add(k, f.sum[c], x[c]);
      f.sum[c] = choose(k, there, more, f.sum[c]);
      f.closed[c] = choose(k, whole, f.sum[c], f.closed[c]);
    }
  }
  val row = shift_left(k, first, s->stride);
  sum_row_store(k, plan, t->sums, row, chunk, f.sum);
  return f;
}

/* The root is the first level with one node: none of a level above it is stored. */
static void family_store(struct ir *k, const struct nodes *n, const struct step *s,
                         const struct family *f, val chunk) {
  val begin = shift_left(k, f->node, s->shift), size = shift_left(k, i32(k, 1), s->shift);
  val rest = sub(k, n->sequence.keys, begin);
  val count = choose(k, is_eq(k, s->shift, i32(k, 31)), rest, smin(k, size, rest));
  IF (k, is_lt(k, i32(k, 1), s->children)) {
    node_mean_store(k, n, add(k, s->offset, f->node), mul_const(k, chunk, NODE_COLUMNS), count,
                    NODE_COLUMNS, f->sum);
  }
}

static void family_open(struct ir *k, const struct nodes *n, const struct step *s,
                        const struct family *f, val chunk) {
  val growing = shift_right_signed(k, n->sequence.keys, s->shift);
  IF (k, both(k, n->opens, is_eq(k, f->node, growing))) {
    sum_row_store(k, n->plan, n->open, add_const(k, s->level, -1), chunk, f->closed);
  }
}

static void step_sum(struct ir *k, const struct nodes *n, const struct subtree *t,
                     const struct step *s, val thread, int threads) {
  const int bits = node_children_log2(n->plan), chunks = node_chunks(n->plan);
  val nodes = shift_right(k, i32(k, 1 << bits * (t->steps - 1)), s->stride);
  FOR_STEP(k, task, thread, mul_const(k, nodes, chunks), i32(k, threads)) {
    val place = udiv(k, task, i32(k, chunks));
    val chunk = sub(k, task, mul_const(k, place, chunks));
    val number = shift_left(k, add(k, s->first, place), i32(k, bits));
    IF (k, is_lt(k, number, s->children)) {
      struct family f = family_sum(k, n, t, s, place, chunk);
      if (t->stores)
        family_store(k, n, s, &f, chunk);
      if (!is_null(n->opens))
        family_open(k, n, s, &f, chunk);
    }
  }
}

void subtree_sum(struct ir *k, const struct nodes *n, const struct subtree *t, val thread,
                 int threads) {
  const struct plan_pyramid *plan = n->plan;
  struct var j = var_init(k, i32(k, 0)), more = var_init(k, i32(k, 1));
  struct var offset = var_init(k, t->offset);
  cta_sync(k);
  WHILE (k, both(k, is_lt(k, get(k, j), i32(k, t->steps)), is_ne(k, get(k, more), i32(k, 0)))) {
    val below = add(k, t->level, get(k, j));
    val room = level_nodes(k, n->sequence.room, plan->leaf, plan->children, below);
    set(k, offset, add(k, get(k, offset), bit_and(k, add_const(k, room, 3), i32(k, -4))));
    struct step s = step_of(k, n, t, get(k, j), get(k, offset));
    step_sum(k, n, t, &s, thread, threads);
    cta_sync(k);
    set(k, more, widen_bool(k, is_lt(k, i32(k, 1), s.children)));
    set(k, j, add_const(k, get(k, j), 1));
  }
}
