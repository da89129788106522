/* pyramid, pyramid_top: in go the keys; out come the mean of every node, the keys' images for
   leaf_score, and the sums that append goes on from.

       level 1 .. S     pyramid       a CTA has a span, one node of level S: threads sum chunks of
   its leaves, key by key, then the levels above in shared memory level S + 1 ..   pyramid_top   a
   CTA has a sequence and key head: WIDTH sums of spans at a time, then of groups of WIDTH spans in
   their place, ...

   The additions and their order are node_sum.h's. */
#include <assert.h>

#include "compiler/kernels/kernels.h"
#include "compiler/kernels/node_sum.h"
#include "compiler/sm90/key_image.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/sync.h"
#include "runtime/abi.def"

static const struct ir_arg pyramid_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_PYRAMID_ARGS(X)
#undef X
};
static const struct ir_arg top_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_PYRAMID_TOP_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_PYRAMID_##name])
#define TOP_ARG(name) (k->arg[PISA_PYRAMID_TOP_##name])

enum { WORD = 4, HALF = 2, FOUR_WORDS = 16, TOP_CTAS_PER_SM = 1, ROWS_IN_FLIGHT = 4 };

/* log2(width) / log2(children) */
static int steps_of(const struct plan_pyramid *plan, int width) {
  int steps = 0;
  while (width > 1 << node_children_log2(plan) * steps)
    steps++;
  assert(width == 1 << node_children_log2(plan) * steps);
  return steps;
}

/* Of a span, as a node. */
static int span_level(const struct plan_pyramid *plan) {
  return 1 + steps_of(plan, plan->span);
}

/* The rows of |open| of a sequence and key head. */
static val open_rows(struct ir *k, const struct plan_pyramid *plan, val open, val b, val kv_head) {
  val row = add(k, mul(k, b, SEQUENCE_ARG(kv_heads)), kv_head);
  return at_row(k, open, row, i32(k, PISA_OPEN_LEVELS * plan->head_dim * WORD));
}

/* ---- pyramid ---- */

struct cta_span { /* of this CTA */
  const struct plan_pyramid *plan;
  struct lanes lanes;
  struct nodes nodes;
  val thread, place; /* of the span in its sequence */
};

static void zero_words(struct ir *k, const struct plan_pyramid *plan, val thread) {
  const int threads = plan->build.threads;
  IF (k, bit_not(k, is_null_pointer(k, ARG(zeros)))) {
    val first = add(k, mul_const(k, cta_index(k), threads), thread);
    val step = mul_const(k, cta_count(k), threads), n = ARG(n_zeros);
    val fours = shift_right(k, n, i32(k, 2)), zero = i32(k, 0);
    FOR_STEP(k, i, first, fours, step) {
      val to = at_row(k, ARG(zeros), i, i32(k, FOUR_WORDS));
      store(k, pack4(k, (const val[4]){zero, zero, zero, zero}), to, FOUR_WORDS);
    }
    FOR_STEP(k, i, add(k, shift_left(k, fours, i32(k, 2)), first), n, step) {
      store(k, zero, at_row(k, ARG(zeros), i, i32(k, WORD)), WORD);
    }
  }
}

struct image { /* of a leaf */
  const struct cta_span *span;
  val rows, chunk;
};

static struct image image_of(struct ir *k, const struct cta_span *s, val leaf, val chunk) {
  const struct plan_pyramid *plan = s->plan;
  const struct sequence *q = &s->nodes.sequence;
  val first = narrow(k, udiv(k, q->k_begin, i64(k, plan->leaf)));
  val number = add(k, add(k, first, q->index), leaf);
  val row = add(k, mul(k, s->nodes.kv_head, ARG(leaves)), number);
  val bytes = i32(k, key_image_bytes(plan->leaf, plan->head_dim));
  return (struct image){s, at_row(k, ARG(images), row, bytes), chunk};
}

static void store_image(struct ir *k, const void *context, val row, val word[][4]) {
  const struct image *image = context;
  const struct cta_span *s = image->span;
  IF (k, bit_not(k, is_null_pointer(k, ARG(images)))) {
    for (int i = 0; i < NODE_BATCH; i++)
      key_image_store(k, image->rows, add_const(k, row, i), image->chunk, word[i],
                      s->plan->head_dim, &s->lanes);
  }
}

/* A leaf behind the last one is that one again: its lanes take part in what warps do. */
static void sum_leaf(struct ir *k, const struct cta_span *s, val place, val chunk, bool whole) {
  const struct plan_pyramid *plan = s->plan;
  val keys = s->nodes.sequence.keys;
  val leaf = add(k, mul_const(k, s->place, plan->span), place);
  if (!whole)
    leaf = smin(k, leaf, udiv(k, add_const(k, keys, -1), i32(k, plan->leaf)));
  struct image image = {0};
  if (plan->clustered)
    image = image_of(k, s, leaf, chunk);
  struct leaf_sum sum =
      leaf_sum_of(k, &s->nodes, leaf, chunk, whole, plan->clustered ? store_image : NULL, &image);
  val x[NODE_COLUMNS], column = mul_const(k, chunk, NODE_COLUMNS);
  for (int c = 0; c < NODE_COLUMNS; c++)
    x[c] = get(k, sum.x[c]);
  val rest = sub(k, keys, mul_const(k, leaf, plan->leaf));
  val count = whole ? i32(k, plan->leaf) : smin(k, rest, i32(k, plan->leaf));
  node_mean_store(k, &s->nodes, leaf, column, count, NODE_COLUMNS, x);
  sum_row_store(k, plan, k->smem, place, chunk, x);
  if (!whole)
    IF (k, both(k, s->nodes.opens, is_lt(k, count, i32(k, plan->leaf)))) {
      sum_row_store(k, plan, s->nodes.open, i32(k, 0), chunk, x);
    }
}

static void sum_leaves(struct ir *k, const struct cta_span *s, bool whole) {
  const struct plan_pyramid *plan = s->plan;
  const int chunks = node_chunks(plan), threads = plan->build.threads;
  assert(plan->span * chunks % threads == 0 && chunks % 4 == 0);
  FOR_STEP(k, task, s->thread, i32(k, plan->span * chunks), i32(k, threads)) {
    val place = udiv(k, task, i32(k, chunks));
    sum_leaf(k, s, place, sub(k, task, mul_const(k, place, chunks)), whole);
  }
}

/* Row 0 is that of the leaf that grows, if one does. */
static void clear_rows(struct ir *k, const struct cta_span *s) {
  const struct plan_pyramid *plan = s->plan;
  IF (k, s->nodes.opens) {
    val part = bit_and(k, s->nodes.sequence.keys, i32(k, plan->leaf - 1));
    val first = widen_bool(k, is_ne(k, part, i32(k, 0)));
    open_clear(k, &s->nodes, first, i32(k, span_level(plan)), s->thread, plan->build.threads);
  }
}

static void sum_span(struct ir *k, struct cta_span *s) {
  const struct plan_pyramid *plan = s->plan;
  val end = mul_const(k, add_const(k, s->place, 1), plan->span * plan->leaf);
  val is_whole = is_le(k, end, s->nodes.sequence.keys);
  s->nodes.opens = both(k, bit_not(k, is_null_pointer(k, ARG(open))), bit_not(k, is_whole));
  clear_rows(k, s);
  IF (k, is_whole) {
    sum_leaves(k, s, true);
  }
  ELSE (k) {
    sum_leaves(k, s, false);
  }
  struct subtree t = {.sums = k->smem, .steps = steps_of(plan, plan->span), .stores = true};
  t.level = i32(k, 1);
  t.offset = i32(k, 0);
  t.first = mul_const(k, s->place, plan->span);
  subtree_sum(k, &s->nodes, &t, s->thread, plan->build.threads);
}

/* Row 0 is the whole span's. */
static void store_span(struct ir *k, const struct cta_span *s, val number) {
  const struct plan_pyramid *plan = s->plan;
  IF (k, is_lt(k, s->thread, i32(k, node_chunks(plan)))) {
    val row = add(k, mul(k, s->nodes.kv_head, ARG(spans)), number), x[NODE_COLUMNS];
    val to = at_row(k, ARG(span_sums), row, i32(k, plan->head_dim * WORD));
    sum_row_load(k, plan, k->smem, i32(k, 0), s->thread, x);
    sum_row_store(k, plan, to, i32(k, 0), s->thread, x);
  }
}

void kernel_pyramid(struct ir *k, const struct plan_pyramid *plan) {
  assert(plan->build.smem_bytes >= plan->span * plan->head_dim * WORD);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_PYRAMID_N_ARGS, pyramid_args);
  struct cta_span s = {.plan = plan, .lanes = lanes_new(k), .thread = thread_index(k)};
  launch_handover(k);
  zero_words(k, plan, s.thread);
  val number = udiv(k, cta_index(k), ARG(kv_heads));
  val kv_head = sub(k, cta_index(k), mul(k, number, ARG(kv_heads)));
  struct sequence sequence =
      sequence_of_part(k, number, (int64_t)plan->leaf * plan->span, &s.place);
  val first = mul(k, widen(k, s.place), i64(k, plan->span * plan->leaf));
  struct sequence_array keys = {ARG(k), ARG(k_batch), ARG(k_head), ARG(k_token)};
  IF (k, is_lt(k, first, widen(k, sequence.keys))) {
    s.nodes = nodes_new(k, plan, sequence, kv_head, keys, ARG(means));
    s.nodes.open = open_rows(k, plan, ARG(open), sequence.index, kv_head);
    sum_span(k, &s);
    store_span(k, &s, number);
  }
  kernel_end(k, plan->build.entry, plan->build.threads, plan->head_dim > 64 ? 2 : 4);
}

/* ---- pyramid_top ---- */

struct top { /* of this CTA */
  const struct plan_pyramid *plan;
  struct nodes nodes;
  val thread;
  val spans; /* pointer to the sums of its first span */
};

static int top_width(const struct plan_pyramid *plan) {
  return plan->top.smem_bytes / (plan->head_dim * WORD);
}

/* Sums |n| (i32) rows, |stride| (i32) apart from row |first| on, into shared memory: several loads
   in flight, of which those behind the last are it again. */
static void load_sums(struct ir *k, const struct top *a, val first, val stride, val n) {
  const int chunks = node_chunks(a->plan), threads = a->plan->top.threads;
  val tasks = mul_const(k, n, chunks), last = add_const(k, tasks, -1);
  FOR_STEP(k, task, a->thread, tasks, i32(k, ROWS_IN_FLIGHT * threads)) {
    val x[ROWS_IN_FLIGHT][NODE_COLUMNS], row[ROWS_IN_FLIGHT], chunk[ROWS_IN_FLIGHT];
    for (int i = 0; i < ROWS_IN_FLIGHT; i++) {
      val mine = smin(k, add_const(k, task, i * threads), last);
      row[i] = udiv(k, mine, i32(k, chunks));
      chunk[i] = sub(k, mine, mul_const(k, row[i], chunks));
      val from = add(k, first, mul(k, row[i], stride));
      val sums = at_row(k, a->spans, from, i32(k, a->plan->head_dim * WORD));
      sum_row_load(k, a->plan, sums, i32(k, 0), chunk[i], x[i]);
    }
    for (int i = 0; i < ROWS_IN_FLIGHT; i++)
      sum_row_store(k, a->plan, k->smem, row[i], chunk[i], x[i]);
  }
}

/* The levels above |n| rows, from row |first| on, of which the first then holds the sum of all. */
static void sum_group(struct ir *k, const struct top *a, struct subtree t, val first, val stride,
                      val n) {
  cta_sync(k);
  load_sums(k, a, first, stride, n);
  subtree_sum(k, &a->nodes, &t, a->thread, a->plan->top.threads);
  IF (k, is_lt(k, a->thread, i32(k, node_chunks(a->plan)))) {
    val x[NODE_COLUMNS];
    val to = at_row(k, a->spans, first, i32(k, a->plan->head_dim * WORD));
    sum_row_load(k, a->plan, k->smem, i32(k, 0), a->thread, x);
    sum_row_store(k, a->plan, to, i32(k, 0), a->thread, x);
  }
}

/* Rounds of groups, until there was one group. Of a full last group open is its parent's. */
static void sum_spans(struct ir *k, const struct top *a) {
  const struct plan_pyramid *plan = a->plan;
  const int width = top_width(plan), steps = steps_of(plan, width);
  const int tokens = plan->span * plan->leaf;
  const struct sequence *s = &a->nodes.sequence;
  val spans = udiv(k, add_const(k, s->keys, tokens - 1), i32(k, tokens));
  struct var n = var_init(k, spans), stride = var_init(k, i32(k, 1));
  struct var level = var_init(k, i32(k, span_level(plan))), more = var_init(k, spans);
  WHILE (k, is_lt(k, i32(k, 0), get(k, more))) {
    struct subtree t = {.sums = k->smem, .steps = steps, .level = get(k, level), .stores = true};
    t.offset = level_offset(k, s->room, plan->leaf, plan->children, t.level);
    FOR_STEP(k, first, i32(k, 0), get(k, n), i32(k, width)) {
      t.first = first;
      val rest = smin(k, sub(k, get(k, n), first), i32(k, width));
      sum_group(k, a, t, mul(k, first, get(k, stride)), get(k, stride), rest);
    }
    set(k, more, widen_bool(k, is_ge(k, get(k, n), i32(k, width))));
    set(k, n, udiv(k, add_const(k, get(k, n), width - 1), i32(k, width)));
    set(k, stride, mul_const(k, get(k, stride), width));
    set(k, level, add_const(k, get(k, level), steps));
    cta_sync(k);
  }
}

/* Rows of levels below spans are the kernel pyramid's, where the last span grows. */
static void clear_open(struct ir *k, const struct top *a) {
  const struct plan_pyramid *plan = a->plan;
  IF (k, a->nodes.opens) {
    val part = bit_and(k, a->nodes.sequence.keys, i32(k, plan->span * plan->leaf - 1));
    val first = choose(k, is_eq(k, part, i32(k, 0)), i32(k, 0), i32(k, span_level(plan)));
    open_clear(k, &a->nodes, first, i32(k, PISA_OPEN_LEVELS), a->thread, plan->top.threads);
  }
}

void kernel_pyramid_top(struct ir *k, const struct plan_pyramid *plan) {
  assert(top_width(plan) >= plan->span);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_PYRAMID_TOP_N_ARGS, top_args);
  launch_handover(k);
  val b = udiv(k, cta_index(k), TOP_ARG(kv_heads));
  val kv_head = sub(k, cta_index(k), mul(k, b, TOP_ARG(kv_heads)));
  struct sequence s = sequence_at(k, b);
  struct top a = {.plan = plan, .thread = thread_index(k)};
  const struct sequence_array none = {0};
  a.nodes = nodes_new(k, plan, s, kv_head, none, TOP_ARG(means));
  a.nodes.open = open_rows(k, plan, TOP_ARG(open), b, kv_head);
  a.nodes.opens = bit_not(k, is_null_pointer(k, TOP_ARG(open)));
  val number = udiv(k, s.k_begin, i64(k, plan->span * plan->leaf));
  val row = add(k, mul(k, kv_head, TOP_ARG(spans)), add(k, narrow(k, number), b));
  a.spans = at_row(k, TOP_ARG(span_sums), row, i32(k, plan->head_dim * WORD));
  clear_open(k, &a);
  sum_spans(k, &a);
  kernel_end(k, plan->top.entry, plan->top.threads, TOP_CTAS_PER_SM);
}
