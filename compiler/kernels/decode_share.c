/* decode_share.c: in go the parents that the CTA which selects has kept; out come the list of
   leaves and attention to it, by all CTAs of the cluster at once.

   Scores of leaves and attention to them read the same keys, and waiting for memory is what takes
   long. So nobody waits for the choice: a CTA takes its part of the candidate leaves, |leaves|
   adjacent slots, scores them by some warps, and has others attend to each of them by itself.

       first CTA    sends the parents to all
       warps 0-7    attend to the CTA's candidates, a part of one leaf each
       others       score one of them each, as a walk does, and send its key to all
       all warps    choose, all alike: what a leaf not chosen gave is dropped
       cluster      joins the others (decode_attend_join.c)

   What is sent arrives at one of three mbarriers of the CTA that gets it, so no one waits for more
   than that: the parents, from the first CTA; a key of every slot; sums from every CTA. Each has
   one phase in the life of a CTA: it is initialised, with all the bytes that it will get, before
   the CTA arrives at the cluster's barrier, and peers send once they have passed that. A CTA waits
   for all three, so none ends before all that is sent to it has come. */
#include <assert.h>

#include "compiler/kernels/decode.h"
#include "compiler/kernels/decode_attend.h"
#include "compiler/sm90/peers.h"
#include "compiler/sm90/sync.h"

enum { ARRIVED_PARENTS, ARRIVED_KEYS, ARRIVED_SUMS, ARRIVED };
enum { WARP = 32, QUAD = 4, MBARRIER_BYTES = 8, READERS = DECODE_SHARE_READERS };

struct share { /* a CTA's part */
  struct decode *d;
  const val *args;
  val split, splits;
  val leaves; /* i32: slots of a CTA */
  val fold;   /* i32: log2 of the warps that attend to one leaf */
  val seen;   /* i32: slots that are seen */
  val all;    /* i1: no more than are kept */
};

static int candidates(const struct decode *d) {
  return d->plan.keep * d->plan.children;
}

val decode_shares_now(struct ir *k, const struct plan_pyramid *plan, val splits) {
  const int n = plan->keep * plan->children;
  val many = is_le(k, i32(k, DECODE_SHARE_SPLITS), splits);
  val power = is_eq(k, bit_and(k, splits, add_const(k, splits, -1)), i32(k, 0));
  return both(k, both(k, many, power), is_le(k, i32(k, n), mul_const(k, splits, READERS)));
}

/* ---- what arrives ---- */

static val arrived_at(struct ir *k, const struct decode *d, int which) {
  return at_const(k, d->arrived, which * MBARRIER_BYTES);
}

static void wait_for(struct ir *k, const struct decode *d, int which) {
  mbarrier_wait(k, arrived_at(k, d, which), i32(k, 0));
}

void decode_share_begin(struct ir *k, const struct decode *d, const val *args, val split) {
  assert(ARRIVED * MBARRIER_BYTES <= DECODE_SHARE_ARRIVED_BYTES);
  IF (k, is_eq(k, thread_index(k), i32(k, 0))) {
    for (int i = 0; i < ARRIVED; i++)
      mbarrier_init(k, arrived_at(k, d, i), 1);
    mbarrier_init_done(k);
    val sums = decode_attend_sent(k, &d->plan, split, args[PISA_DECODE_splits]);
    mbarrier_expect(k, arrived_at(k, d, ARRIVED_PARENTS), i32(k, d->room.kept * WALK_WORD));
    mbarrier_expect(k, arrived_at(k, d, ARRIVED_KEYS), i32(k, candidates(d) * WALK_WORD));
    mbarrier_expect(k, arrived_at(k, d, ARRIVED_SUMS), sums);
  }
  peers_arrive_relaxed(k);
}

/* ---- parents ---- */

/* A thread a peer and four words. */
static void send_parents(struct ir *k, const struct share *x) {
  const int quads = x->d->room.kept / QUAD;
  val thread = thread_index(k), peer = udiv(k, thread, i32(k, quads));
  IF (k, is_lt(k, peer, x->splits)) {
    val quad = sub(k, thread, mul_const(k, peer, quads)), word[QUAD];
    val place = at(k, x->d->w.kept, mul_const(k, quad, QUAD * WALK_WORD));
    val four = load(k, k->i32x4, place, QUAD * WALK_WORD);
    for (int i = 0; i < QUAD; i++)
      word[i] = element(k, four, i, k->i32);
    val arrived = peers_address(k, arrived_at(k, x->d, ARRIVED_PARENTS), peer);
    peers_send(k, QUAD, word, peers_address(k, place, peer), 0, arrived);
  }
}

/* Of the walk that another CTA has gone: how many parents, and how many of their leaves count. */
static void count_leaves(struct ir *k, struct share *x) {
  struct decode *d = x->d;
  const int keep = d->plan.keep;
  val depth = walk_start_depth(k, &d->w, keep, 0), all = is_le(k, depth, i32(k, 1));
  set(k, d->w.parents, choose(k, all, walk_seen_at(k, &d->w, i32(k, 1)), i32(k, keep)));
  x->seen = decode_seen_leaves(k, d);
  x->all = is_le(k, x->seen, i32(k, keep));
}

/* ---- a warp's leaf ---- */

struct leaf {
  val slot;  /* one that is there */
  val taken; /* i1: the slot is this CTA's, and there */
};
static struct leaf leaf_of(struct ir *k, const struct share *x, val index) {
  const int n = candidates(x->d);
  val slot = add(k, mul(k, x->split, x->leaves), index);
  struct leaf leaf = {.slot = smin(k, slot, i32(k, n - 1))};
  leaf.taken = both(k, is_lt(k, index, x->leaves), is_lt(k, slot, i32(k, n)));
  return leaf;
}

static void attend_leaf(struct ir *k, const struct share *x, const struct decode_attend *a) {
  const struct blocks b = decode_attend_blocks(k, a);
  const int units = a->plan->leaf / BLOCKS_UNIT;
  val warp = a->lanes.warp, index = shift_right(k, warp, x->fold);
  val part = sub(k, warp, shift_left(k, index, x->fold));
  const struct leaf leaf = leaf_of(k, x, index);
  val number = walk_node(k, &x->d->w, leaf.slot), each = shift_right(k, i32(k, units), x->fold);
  val token =
      add(k, mul_const(k, number, a->plan->leaf), mul(k, part, mul_const(k, each, BLOCKS_UNIT)));
  token = warp_read(k, token, i32(k, 0));
  blocks_read_run(k, &b, token, choose(k, leaf.taken, each, i32(k, 0)));
  blocks_end(k, &b);
  decode_attend_put(k, a, &b);
}

/* A leaf without a score, forced or not seen, sends a word that no one looks at. */
static void score_leaf(struct ir *k, const struct share *x) {
  const struct walk *w = &x->d->w;
  const struct leaf leaf = leaf_of(k, x, add_const(k, w->lanes.warp, -READERS));
  IF (k, leaf.taken) {
    val end = smin(k, x->seen, add_const(k, leaf.slot, 1));
    end = choose(k, x->all, i32(k, 0), end); /* as good as forced: no score */
    walk_score_leaves(k, w, end, leaf.slot, candidates(x->d));
    warp_sync(k);
    IF (k, is_lt(k, w->lanes.lane, x->splits)) {
      val place = at(k, w->keys, mul_const(k, leaf.slot, WALK_WORD));
      val key = load(k, k->i32, place, WALK_WORD);
      val arrived = peers_address(k, arrived_at(k, x->d, ARRIVED_KEYS), w->lanes.lane);
      peers_send(k, 1, &key, peers_address(k, place, w->lanes.lane), 0, arrived);
    }
  }
}

/* ---- the choice ---- */

/* Of every warp, in words of its own; the last one of the first CTA writes it. Returns a bit for
   each part of the sums that counts. */
static val choose_leaves(struct ir *k, const struct share *x) {
  struct decode d = *x->d;
  const struct decode_lanes lanes = decode_lanes_of(k, &d);
  val slot = smin(k, lanes.candidate, i32(k, lanes.n - 1)), warp = d.w.lanes.warp, number, key;
  d.lanes = at(k, d.warp_lanes, mul_const(k, warp, DECODE_SHARE_WARP_BYTES));
  decode_name_walk(k, x->args);
  struct best best = decode_best(k, &d, &d.w, &lanes, slot, i32(k, 0), x->all, &number, &key);
  val last = is_eq(k, warp, i32(k, d.warps - 1));
  IF (k, both(k, last, is_eq(k, x->split, i32(k, 0)))) {
    IF (k, best.kept) {
      walk_write_leaf(k, &d.w, number, key, best.place);
    }
    walk_write_rest(k, &d.w, best.count);
  }
  val chosen = warp_ballot(k, best.kept);
  const struct leaf leaf = leaf_of(k, x, shift_right(k, d.w.lanes.lane, x->fold));
  val bit = bit_and(k, shift_right(k, chosen, leaf.slot), i32(k, 1));
  return warp_ballot(k, both(k, leaf.taken, is_ne(k, bit, i32(k, 0))));
}

/* ---- all ---- */

static val fold_of(struct ir *k, const struct plan_pyramid *plan, val leaves) {
  const int units = plan->leaf / BLOCKS_UNIT;
  val fold = i32(k, 0);
  for (int bits = 1; 1 << bits <= READERS && 1 << bits <= units; bits++)
    fold = choose(k, is_le(k, leaves, i32(k, READERS >> bits)), i32(k, bits), fold);
  return fold;
}

void decode_share(struct ir *k, struct decode *d, const struct plan_pyramid *plan, const val *args,
                  val split) {
  struct share x = {.d = d, .args = args, .split = split, .splits = args[PISA_DECODE_splits]};
  assert(d->room.kept / QUAD * DECODE_ATTEND_MAX_SPLITS <= WARP * d->warps);
  val power = sub(k, i32(k, 31), count_leading_zeros(k, x.splits)); /* splits = 2^power */
  x.leaves = shift_right(k, add_const(k, x.splits, candidates(d) - 1), power);
  x.fold = fold_of(k, plan, x.leaves);
  decode_name_attend(k, args, plan->keep);
  const struct blocks_query query = decode_query(k, &d->w);
  struct decode_attend a = decode_attend_of(k, plan, WARP * d->warps, &query, split);
  a.joined = arrived_at(k, d, ARRIVED_SUMS);
  IF (k, is_eq(k, split, i32(k, 0))) {
    send_parents(k, &x);
  }
  wait_for(k, d, ARRIVED_PARENTS);
  count_leaves(k, &x);
  IF (k, is_lt(k, d->w.lanes.warp, i32(k, READERS))) {
    attend_leaf(k, &x, &a);
  }
  ELSE (k) {
    decode_name_walk(k, args);
    score_leaf(k, &x);
  }
  cta_sync(k);
  wait_for(k, d, ARRIVED_KEYS);
  val counts = choose_leaves(k, &x);
  decode_name_attend(k, args, plan->keep);
  decode_attend_merge(k, &a, READERS, counts);
}
