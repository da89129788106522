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

   With mass a leaf's scores of all heads go around in place of its key: their softmax over the
   candidates is taken by all warps, all alike.

   A walk that may begin at more leaves than K parents have begins there without one: it *scans*.
   Nobody sends parents then, and few of its many candidates are kept, so attention waits.

       all warps    score the CTA's part of the leaves in turn, and send what they score
       all warps    choose, in all CTAs alike (decode_many.c)
       warps 0-7    attend to the CTA's part of those chosen

   What is sent arrives at one of three mbarriers of the CTA that gets it, so no one waits for more
   than that: the parents, from the first CTA; a score of every slot; sums from every CTA. Each has
   one phase in the life of a CTA: it is initialised, with all the bytes that it will get, before
   the CTA arrives at the cluster's barrier, and peers send once they have passed that. A CTA waits
   for all that is sent to it, so none ends before it has come. */
#include <assert.h>

#include "compiler/kernels/decode.h"
#include "compiler/kernels/decode_attend.h"
#include "compiler/sm90/peers.h"
#include "compiler/sm90/sync.h"

enum { ARRIVED_PARENTS, ARRIVED_SCORES, ARRIVED_SUMS, ARRIVED };
enum { WARP = 32, QUAD = 4, MBARRIER_BYTES = 8, READERS = DECODE_SHARE_READERS };

struct part { /* what a CTA has of leaves dealt to the cluster */
  val of;     /* i32: all of them */
  val leaves; /* i32: of a CTA */
  val fold;   /* i32: log2 of the warps that attend to one leaf */
};

struct share { /* of a CTA */
  struct decode *d;
  const val *args;
  val split, splits;
  struct part part; /* of slots */
  val scans;        /* i1; null: never */
  val seen;         /* i32: slots that are seen */
  val all;          /* i1: no more than are kept */
};

static int candidates(const struct plan_pyramid *plan) {
  return plan->keep * plan->children;
}

val decode_shares_now(struct ir *k, const struct plan_pyramid *plan, val splits) {
  const int n = candidates(plan);
  val many = is_le(k, i32(k, DECODE_SHARE_SPLITS), splits);
  val power = is_eq(k, bit_and(k, splits, add_const(k, splits, -1)), i32(k, 0));
  return both(k, both(k, many, power), is_le(k, i32(k, n), mul_const(k, splits, READERS)));
}

bool decode_may_scan(const struct decode *d) {
  return d->w.room.parents > d->plan.keep;
}

val decode_scans(struct ir *k, const struct decode *d) {
  val many = is_lt(k, i32(k, d->plan.keep), walk_seen_at(k, &d->w, i32(k, 1)));
  return both(k, many, is_lt(k, d->w.last, i32(k, d->plan.start_nodes)));
}

/* ---- parts ---- */

static val fold_of(struct ir *k, const struct plan_pyramid *plan, val leaves) {
  const int units = plan->leaf / BLOCKS_UNIT;
  val fold = i32(k, 0);
  for (int bits = 1; 1 << bits <= READERS && 1 << bits <= units; bits++)
    fold = choose(k, is_le(k, leaves, i32(k, READERS >> bits)), i32(k, bits), fold);
  return fold;
}

static struct part part_of(struct ir *k, const struct plan_pyramid *plan, val splits, val n) {
  struct part part = {.of = n};
  val power = sub(k, i32(k, 31), count_leading_zeros(k, splits)); /* splits = 2^power */
  part.leaves = shift_right(k, add_const(k, add(k, splits, n), -1), power);
  part.fold = fold_of(k, plan, part.leaves);
  return part;
}

/* Slots of candidates: of K parents, or the leaves themselves. */
static val slots_of(struct ir *k, const struct decode *d) {
  val few = i32(k, candidates(&d->plan));
  if (!decode_may_scan(d))
    return few;
  return choose(k, decode_scans(k, d), add_const(k, d->w.last, 1), few);
}

struct leaf {
  val slot;  /* one that is there */
  val taken; /* i1: the slot is this CTA's, and there */
};
static struct leaf leaf_of(struct ir *k, const struct share *x, const struct part *part,
                           val index) {
  val slot = add(k, mul(k, x->split, part->leaves), index);
  struct leaf leaf = {.slot = smin(k, slot, add_const(k, part->of, -1))};
  leaf.taken = both(k, is_lt(k, index, part->leaves), is_lt(k, slot, part->of));
  return leaf;
}

/* ---- what arrives ---- */

static val arrived_at(struct ir *k, const struct decode *d, int which) {
  return at_const(k, d->arrived, which * MBARRIER_BYTES);
}

static void wait_for(struct ir *k, const struct decode *d, int which) {
  mbarrier_wait(k, arrived_at(k, d, which), i32(k, 0));
}

/* Words that are sent of a slot: scores of heads, or a key. */
static int slot_words(const struct decode *d) {
  return plan_is_mass(&d->plan) ? d->plan.group : 1;
}

void decode_share_begin(struct ir *k, const struct decode *d, const val *args, val split) {
  assert(ARRIVED * MBARRIER_BYTES <= DECODE_SHARE_ARRIVED_BYTES);
  IF (k, is_eq(k, thread_index(k), i32(k, 0))) {
    for (int i = 0; i < ARRIVED; i++)
      mbarrier_init(k, arrived_at(k, d, i), 1);
    mbarrier_init_done(k);
    val scores = mul_const(k, slots_of(k, d), slot_words(d) * WALK_WORD);
    val sums = decode_attend_sent(k, &d->plan, split, args[PISA_DECODE_splits]);
    mbarrier_expect(k, arrived_at(k, d, ARRIVED_PARENTS), i32(k, d->room.kept * WALK_WORD));
    mbarrier_expect(k, arrived_at(k, d, ARRIVED_SCORES), scores);
    mbarrier_expect(k, arrived_at(k, d, ARRIVED_SUMS), sums);
  }
  peers_arrive_relaxed(k);
}

void decode_share_fetch(struct ir *k, const struct decode *d, const struct sequence_array *values,
                        const val *args, val split) {
  const struct part part = part_of(k, &d->plan, args[PISA_DECODE_splits], slots_of(k, d));
  val first = smin(k, mul(k, split, part.leaves), part.of);
  decode_fetch_leaves(k, d, values, first, smin(k, add(k, first, part.leaves), part.of));
}

/* ---- parents ---- */

/* A thread a peer and four words. */
static void send_parents(struct ir *k, const struct share *x) {
  const int quads = x->d->room.kept / QUAD;
  val items = mul_const(k, x->splits, quads), threads = i32(k, WARP * x->d->warps);
  FOR_STEP(k, item, thread_index(k), items, threads) {
    val peer = udiv(k, item, i32(k, quads)), word[QUAD];
    val quad = sub(k, item, mul_const(k, peer, quads));
    val place = at(k, x->d->w.kept, mul_const(k, quad, QUAD * WALK_WORD));
    val four = load(k, k->i32x4, place, QUAD * WALK_WORD);
    for (int i = 0; i < QUAD; i++)
      word[i] = element(k, four, i, k->i32);
    val arrived = peers_address(k, arrived_at(k, x->d, ARRIVED_PARENTS), peer);
    peers_send(k, QUAD, word, peers_address(k, place, peer), 0, arrived);
  }
}

static void share_parents(struct ir *k, const struct share *x) {
  IF (k, is_eq(k, x->split, i32(k, 0))) {
    send_parents(k, x);
  }
  wait_for(k, x->d, ARRIVED_PARENTS);
}

/* Those of all leaves. */
static void begin_scan(struct ir *k, const struct share *x) {
  struct walk *w = &x->d->w;
  IF (k, x->d->one) {
    walk_begin(k, w, walk_seen_at(k, w, i32(k, 1)));
  }
  cta_sync(k);
}

/* Of the walk that another CTA has gone: how many parents, and how many of their leaves count. */
static void count_leaves(struct ir *k, struct share *x) {
  struct decode *d = x->d;
  const int keep = d->plan.keep, most = walk_starts_dense(&d->plan) ? d->plan.start_nodes : keep;
  val depth = walk_start_depth(k, &d->w, most, 0), all = walk_seen_at(k, &d->w, i32(k, 1));
  val whole = is_le(k, depth, i32(k, 1)), parents = smin(k, all, i32(k, keep));
  if (!is_null(x->scans))
    parents = choose(k, x->scans, all, parents);
  set(k, d->w.parents, choose(k, whole, parents, i32(k, keep)));
  x->seen = decode_seen_leaves(k, d);
  x->all = is_le(k, x->seen, i32(k, keep));
}

/* ---- scores ---- */

/* Words of slot |slot|, a lane a peer and word. */
static void send_slot(struct ir *k, const struct share *x, val slot) {
  const struct decode *d = x->d;
  const int n = slot_words(d), bytes = node_scores_bytes(&d->plan);
  val first = plan_is_mass(&d->plan) ? at(k, d->w.scores, mul_const(k, slot, bytes))
                                     : at(k, d->w.keys, mul_const(k, slot, WALK_WORD));
  FOR_STEP(k, item, d->w.lanes.lane, mul_const(k, x->splits, n), i32(k, WARP)) {
    val peer = udiv(k, item, i32(k, n)), word = sub(k, item, mul_const(k, peer, n));
    val place = at(k, first, mul_const(k, word, WALK_WORD));
    val score = load(k, k->i32, place, WALK_WORD);
    val arrived = peers_address(k, arrived_at(k, d, ARRIVED_SCORES), peer);
    peers_send(k, 1, &score, peers_address(k, place, peer), 0, arrived);
  }
}

/* Of the CTA's slots warp |first| of |step| takes every |step|th. A leaf without a score, forced or
   not seen, sends words that no one looks at. */
static void score_leaves(struct ir *k, const struct share *x, val first, val step) {
  const struct walk *w = &x->d->w;
  const struct part *part = &x->part;
  val begin = mul(k, x->split, part->leaves), end = smin(k, add(k, begin, part->leaves), part->of);
  FOR_STEP(k, slot, add(k, begin, first), end, step) {
    val scored = smin(k, x->seen, add_const(k, slot, 1));
    scored = choose(k, x->all, i32(k, 0), scored); /* as good as forced: no score */
    walk_score_leaves(k, w, scored, slot, w->room.candidates);
    warp_sync(k);
    send_slot(k, x, slot);
  }
}

/* ---- attention ---- */

/* This warp's part of leaf |number|, the |index|-th of the CTA's; none where it is not |taken|. */
static void attend_leaf(struct ir *k, const struct decode_attend *a, const struct part *part,
                        val index, val number, val taken) {
  const struct blocks b = decode_attend_blocks(k, a);
  const int units = a->plan->leaf / BLOCKS_UNIT;
  val piece = sub(k, a->lanes.warp, shift_left(k, index, part->fold));
  val each = shift_right(k, i32(k, units), part->fold);
  val token =
      add(k, mul_const(k, number, a->plan->leaf), mul(k, piece, mul_const(k, each, BLOCKS_UNIT)));
  token = warp_read(k, token, i32(k, 0));
  blocks_read_run(k, &b, token, choose(k, taken, each, i32(k, 0)));
  blocks_end(k, &b);
  decode_attend_put(k, a, &b);
}

static void attend_candidate(struct ir *k, const struct share *x, const struct decode_attend *a) {
  val index = shift_right(k, a->lanes.warp, x->part.fold);
  const struct leaf leaf = leaf_of(k, x, &x->part, index);
  attend_leaf(k, a, &x->part, index, walk_node(k, &x->d->w, leaf.slot), leaf.taken);
}

/* One of those chosen, K of them. */
static void attend_chosen(struct ir *k, const struct share *x, const struct decode_attend *a) {
  const struct part part = part_of(k, a->plan, x->splits, i32(k, a->plan->keep));
  val index = shift_right(k, a->lanes.warp, part.fold);
  const struct leaf leaf = leaf_of(k, x, &part, index);
  val place = at(k, x->d->places, mul_const(k, leaf.slot, WALK_WORD));
  attend_leaf(k, a, &part, index, load(k, k->i32, place, WALK_WORD), leaf.taken);
}

/* ---- the choice ---- */

/* Of every warp, in words of its own; the last one of the first CTA writes it. Returns a bit for
   each part of the sums that counts. */
static val choose_few(struct ir *k, const struct share *x) {
  struct decode d = *x->d;
  const struct decode_lanes lanes = decode_lanes_of(k, &d);
  val slot = smin(k, lanes.candidate, i32(k, lanes.n - 1)), warp = d.w.lanes.warp, number, key;
  d.lanes = at(k, d.warp_lanes, mul_const(k, warp, decode_share_warp_bytes(&d.plan)));
  d.worths = at_const(k, d.lanes, DECODE_LANES * WALK_WORD);
  decode_name_walk(k, x->args);
  struct best best = decode_best_leaves(k, &d, &lanes, slot, x->all, &number, &key);
  val last = is_eq(k, warp, i32(k, d.warps - 1));
  IF (k, both(k, last, is_eq(k, x->split, i32(k, 0)))) {
    IF (k, best.kept) {
      walk_write_leaf(k, &d.w, number, key, best.place);
    }
    walk_write_rest(k, &d.w, best.count);
  }
  val chosen = warp_ballot(k, best.kept);
  const struct leaf leaf = leaf_of(k, x, &x->part, shift_right(k, d.w.lanes.lane, x->part.fold));
  val bit = bit_and(k, shift_right(k, chosen, leaf.slot), i32(k, 1));
  return warp_ballot(k, both(k, leaf.taken, is_ne(k, bit, i32(k, 0))));
}

/* A body for decode_keep_many: the list of this CTA; the first one writes it too. */
static void put_chosen(struct ir *k, void *context, val number, val key, val place) {
  const struct share *x = context;
  store(k, number, at(k, x->d->places, mul_const(k, place, WALK_WORD)), WALK_WORD);
  IF (k, is_eq(k, x->split, i32(k, 0))) {
    walk_write_leaf(k, &x->d->w, number, key, place);
  }
}

/* Of a scan, whose leaves are more than are kept: the list is full. */
static void choose_many(struct ir *k, struct share *x) {
  decode_name_walk(k, x->args);
  decode_keep_many(k, x->d, i32(k, 0), x->seen, x->all, put_chosen, x);
  cta_sync(k);
}

/* ---- all ---- */

/* Candidates of K parents. Returns which parts of the sums count. */
static val share_few(struct ir *k, struct share *x, const struct decode_attend *a) {
  const struct lanes *lanes = &x->d->w.lanes;
  share_parents(k, x);
  count_leaves(k, x);
  IF (k, is_lt(k, lanes->warp, i32(k, READERS))) {
    decode_name_attend(k, x->args, a->plan->keep);
    attend_candidate(k, x, a);
  }
  ELSE (k) {
    decode_name_walk(k, x->args);
    score_leaves(k, x, add_const(k, lanes->warp, -READERS), i32(k, READERS));
  }
  cta_sync(k);
  wait_for(k, x->d, ARRIVED_SCORES);
  return choose_few(k, x);
}

static void share_scan(struct ir *k, struct share *x, const struct decode_attend *a) {
  const struct lanes *lanes = &x->d->w.lanes;
  decode_name_walk(k, x->args);
  begin_scan(k, x);
  count_leaves(k, x);
  score_leaves(k, x, lanes->warp, i32(k, x->d->warps));
  wait_for(k, x->d, ARRIVED_SCORES);
  choose_many(k, x);
  decode_name_attend(k, x->args, a->plan->keep);
  IF (k, is_lt(k, lanes->warp, i32(k, READERS))) {
    attend_chosen(k, x, a);
  }
  cta_sync(k);
}

void decode_share(struct ir *k, struct decode *d, const struct plan_pyramid *plan, const val *args,
                  val split, val scans) {
  struct share x = {.d = d, .args = args, .split = split, .splits = args[PISA_DECODE_splits]};
  x.scans = scans;
  x.part = part_of(k, plan, x.splits, slots_of(k, d));
  decode_name_attend(k, args, plan->keep);
  const struct blocks_query query = decode_query(k, &d->w);
  struct decode_attend a = decode_attend_of(k, plan, WARP * d->warps, &query, split);
  a.joined = arrived_at(k, d, ARRIVED_SUMS);
  struct var counts = var_init(k, i32(k, -1));
  if (is_null(scans)) {
    set(k, counts, share_few(k, &x, &a));
  } else {
    IF (k, scans) {
      share_scan(k, &x, &a);
    }
    ELSE (k) {
      set(k, counts, share_few(k, &x, &a));
    }
  }
  decode_name_attend(k, args, plan->keep);
  decode_attend_merge(k, &a, READERS, get(k, counts));
}
