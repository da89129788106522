/* csr_fill: in go lists of leaves, and where the queries of a segment go among those of a leaf; out
   come the query numbers that list each leaf, ascending (csr.h).

   The CTA takes its queries in tiles of 32. Each pair sets its query's bit in the leaf's word; the
   bits below say how many queries of the tile come before. The lowest one moves the leaf's next
   place on and clears the word. */
#include <assert.h>

#include "compiler/kernels/csr.h"
#include "compiler/kernels/kernels.h"
#include "compiler/kernels/sequence.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/sync.h"

#define ARG(name) (k->arg[PISA_CSR_FILL_##name])

static const struct ir_arg csr_fill_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_CSR_FILL_ARGS(X)
#undef X
};

enum { WORD = 4, TILE = PISA_CSR_TILE, MAX_PAIRS = 8 };

/* The pairs of a tile that this thread has: query by query, slot by slot over the threads. */
struct share {
  int n;
  val row[MAX_PAIRS], slot[MAX_PAIRS]; /* row 0 .. 31; behind the tile: none */
  struct var leaf[MAX_PAIRS], base[MAX_PAIRS];
};

struct fill {
  struct csr_segment segment;
  val words, nexts; /* of the window's leaves, shared */
  val begin, n;     /* of the window */
  val members;      /* of the key head */
};

static val of_leaf(struct ir *k, val array, val place) {
  return at(k, array, mul_const(k, place, WORD));
}

static struct share share_new(struct ir *k, const struct plan_pyramid *plan) {
  const int threads = plan->csr_fill.threads, pairs = TILE * plan->keep;
  struct share share = {.n = (pairs + threads - 1) / threads};
  assert(share.n <= MAX_PAIRS);
  for (int i = 0; i < share.n; i++) {
    val index = add_const(k, thread_index(k), (int64_t)i * threads);
    share.row[i] = udiv(k, index, i32(k, plan->keep));
    share.slot[i] = sub(k, index, mul_const(k, share.row[i], plan->keep));
    share.leaf[i] = var_new(k, k->i32);
    share.base[i] = var_new(k, k->i32);
  }
  return share;
}

/* Loads the pairs of the tile from query |tile| on. */
static void share_load(struct ir *k, const struct fill *a, const struct share *share, val tile) {
  val end = i32(k, INT32_MAX);
  for (int i = 0; i < share->n; i++) {
    val is_row = is_lt(k, share->row[i], i32(k, TILE));
    val query = choose(k, is_row, add(k, tile, share->row[i]), end);
    struct csr_pair pair = csr_pair_at(k, &a->segment, query, share->slot[i]);
    set(k, share->leaf[i], pair.leaf);
    set(k, share->base[i], pair.base);
  }
}

/* Places of the share's pairs in the window. */
static void share_places(struct ir *k, const struct fill *a, const struct share *share,
                         val place[MAX_PAIRS]) {
  for (int i = 0; i < share->n; i++) {
    struct csr_pair pair = {get(k, share->leaf[i]), get(k, share->base[i])};
    place[i] = csr_place(k, &pair, a->begin, a->n);
  }
}

static void fill_tile(struct ir *k, const struct fill *a, const struct share *share, val tile,
                      val next_tile) {
  val place[MAX_PAIRS], bit[MAX_PAIRS], none = i32(k, 0);
  struct var word[MAX_PAIRS], next[MAX_PAIRS];
  share_places(k, a, share, place);
  share_load(k, a, share, next_tile);
  for (int i = 0; i < share->n; i++) {
    bit[i] = shift_left(k, i32(k, 1), bit_and(k, share->row[i], i32(k, TILE - 1)));
    IF (k, is_ge(k, place[i], none)) {
      shared_or(k, of_leaf(k, a->words, place[i]), bit[i]);
    }
  }
  cta_sync(k);
  for (int i = 0; i < share->n; i++) {
    word[i] = var_init(k, none);
    next[i] = var_init(k, none);
    IF (k, is_ge(k, place[i], none)) {
      set(k, word[i], load(k, k->i32, of_leaf(k, a->words, place[i]), WORD));
      set(k, next[i], load(k, k->i32, of_leaf(k, a->nexts, place[i]), WORD));
      val before = count_bits(k, bit_and(k, get(k, word[i]), add_const(k, bit[i], -1)));
      val to = at_row(k, a->members, add(k, get(k, next[i]), before), i32(k, WORD));
      store(k, add(k, tile, share->row[i]), to, WORD);
    }
  }
  cta_sync(k);
  for (int i = 0; i < share->n; i++) {
    val below = bit_and(k, get(k, word[i]), add_const(k, bit[i], -1));
    IF (k, both(k, is_ge(k, place[i], none), is_eq(k, below, none))) {
      val moved = add(k, get(k, next[i]), count_bits(k, get(k, word[i])));
      store(k, moved, of_leaf(k, a->nexts, place[i]), WORD);
      store(k, none, of_leaf(k, a->words, place[i]), WORD);
    }
  }
  cta_sync(k);
}

/* All tiles of the segment, for the window. */
static void fill_window(struct ir *k, const struct fill *a, const struct share *share, val begins) {
  const struct csr_segment *s = &a->segment;
  FOR_STEP(k, i, thread_index(k), a->n, i32(k, s->plan->csr_fill.threads)) {
    val from = at_row(k, begins, add(k, a->begin, i), i32(k, WORD));
    store(k, load(k, k->i32, from, WORD), of_leaf(k, a->nexts, i), WORD);
    store(k, i32(k, 0), of_leaf(k, a->words, i), WORD);
  }
  cta_sync(k);
  share_load(k, a, share, s->first);
  FOR_STEP(k, tile, s->first, s->end, i32(k, TILE)) {
    fill_tile(k, a, share, tile, add_const(k, tile, TILE));
  }
}

void kernel_csr_fill(struct ir *k, const struct plan_pyramid *plan) {
  const int window = plan->csr_fill.smem_bytes / (2 * WORD);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_CSR_FILL_N_ARGS, csr_fill_args);
  launch_handover(k);
  struct fill a = {.segment = csr_segment_new(k, plan, ARG(ids), ARG(chunk))};
  struct share share = share_new(k, plan);
  a.words = k->smem;
  a.nexts = at_const(k, k->smem, (int64_t)window * WORD);
  val entries = mul_const(k, mul(k, widen(k, a.segment.kv_head), widen(k, ARG(queries))),
                          (int64_t)plan->keep * WORD);
  a.members = at(k, ARG(members), entries);
  val begins = at_row(k, ARG(begins), a.segment.number, mul_const(k, ARG(leaves), WORD));
  FOR_STEP(k, begin, i32(k, 0), ARG(leaves), i32(k, window)) {
    a.begin = begin;
    a.n = smin(k, sub(k, ARG(leaves), begin), i32(k, window));
    IF (k, csr_may_list(k, &a.segment, a.begin, a.n)) {
      fill_window(k, &a, &share, begins);
    }
  }
  kernel_end(k, plan->csr_fill.entry, plan->csr_fill.threads, 1);
}
