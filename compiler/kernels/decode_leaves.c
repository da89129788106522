/* decode_leaves.c: in go kept parents, which all warps see; out comes the list of their best
   leaves, each scored by a warp as in walk_leaves.c. */
#include "compiler/kernels/decode.h"
#include "compiler/sm90/sync.h"

/* Of one warp's candidates, a lane each. */
static void keep_few_leaves(struct ir *k, struct decode *d, val all) {
  const struct decode_lanes x = decode_lanes_of(k, d);
  val slot = smin(k, x.candidate, i32(k, x.n - 1)), leaf, key;
  cta_sync(k);
  IF (k, d->one) {
    struct best best = decode_best_leaves(k, d, &x, slot, all, &leaf, &key);
    IF (k, best.kept) {
      walk_write_leaf(k, &d->w, leaf, key, best.place);
    }
    walk_write_rest(k, &d->w, best.count);
  }
}

static void keep_leaves(struct ir *k, struct decode *d, val seen, val all) {
  const bool more = d->w.room.parents > d->plan.keep;
  if (decode_has_few(&d->plan) && !more) {
    keep_few_leaves(k, d, all);
    return;
  }
  if (!decode_has_few(&d->plan)) {
    decode_keep_many(k, d, i32(k, 0), seen, all, walk_write_leaf, &d->w);
    return;
  }
  IF (k, is_le(k, get(k, d->w.parents), i32(k, d->plan.keep))) {
    keep_few_leaves(k, d, all);
  }
  ELSE (k) {
    decode_keep_many(k, d, i32(k, 0), seen, all, walk_write_leaf, &d->w);
  }
}

val decode_seen_leaves(struct ir *k, const struct decode *d) {
  val last = add_const(k, get(k, d->w.parents), -1);
  val node = load(k, k->i32, walk_kept_at(k, &d->w, last), WALK_WORD);
  val behind = add_const(k, sub(k, d->w.last, mul_const(k, node, d->plan.children)), 1);
  behind = smin(k, behind, i32(k, d->plan.children)); /* leaves of the last parent */
  return add(k, mul_const(k, last, d->plan.children), behind);
}

void decode_leaves(struct ir *k, struct decode *d) {
  val seen = decode_seen_leaves(k, d), all = is_le(k, seen, i32(k, d->plan.keep));
  IF (k, bit_not(k, all)) {
    walk_score_leaves(k, &d->w, seen, d->w.lanes.warp, d->warps);
  }
  keep_leaves(k, d, seen, all);
}
