/* leaf_score_cursor.c: in goes a warpgroup's items, one after another; out come their words and
   their members' entries, asked for ahead of their use. See leaf_score.h. */
#include "compiler/kernels/leaf_score.h"
#include "compiler/kernels/sequence.h"
#include "compiler/sm90/key_image.h"
#include "compiler/sm90/sync.h"
#include "compiler/sm90/tma.h"

/* ---- items ---- */

static val item_at(struct ir *k, const struct leaf_score *a, val number, val segment) {
  val before = load(k, k->i32, at(k, a->prefix, mul_const(k, segment, WORD)), WORD);
  val items = at_row(k, ARG(items), segment, mul_const(k, ARG(item_room), ITEM_BYTES));
  return at_row(k, items, sub(k, number, before), i32(k, ITEM_BYTES));
}

static void item_open(struct ir *k, struct item *item, val info) {
  item->word[3] = info;
  item->members = item_info(k, item, 0, ITEM_MEMBERS_MASK);
  item->kind = item_info(k, item, ITEM_KIND_SHIFT, ITEM_KIND_MASK);
}

struct item item_load(struct ir *k, const struct leaf_score *a, val number, val segment) {
  struct item item = {.segment = segment};
  val group = udiv(k, segment, ARG(kv_heads));
  item.kv_head = sub(k, segment, mul(k, group, ARG(kv_heads)));
  item.first_query = mul(k, group, ARG(chunk));
  val words = load(k, k->i32x4, item_at(k, a, number, segment), ITEM_BYTES);
  for (int i = 0; i < 4; i++)
    item.word[i] = element(k, words, i, k->i32);
  item_open(k, &item, item.word[3]);
  return item;
}

val item_info(struct ir *k, const struct item *item, int shift, int mask) {
  return bit_and(k, shift_right(k, item->word[3], i32(k, shift)), i32(k, mask));
}

val item_entry(struct ir *k, const struct leaf_score *a, const struct item *item, val member) {
  val index = add(k, item->word[2], member);
  val row_bytes = mul_const(k, ARG(chunk), a->plan->keep * WORD);
  val entries = at_row(k, ARG(entries), item->segment, row_bytes);
  val is_cluster = is_eq(k, item->kind, i32(k, ITEM_CLUSTER));
  return load_if(k, is_cluster, at_row(k, entries, index, i32(k, WORD)), index);
}

val item_query_offset(struct ir *k, const struct leaf_score *a, const struct item *item,
                      val entry) {
  val head = mul(k, widen(k, mul_const(k, item->kv_head, a->plan->group)), ARG(q_head));
  val rows = mul(k, widen(k, item->first_query), ARG(q_token));
  val packed = bit_not(k, is_null_pointer(k, ARG(k_starts)));
  val query = add(k, item->first_query, bit_and(k, entry, i32(k, ENTRY_QUERY_MASK)));
  val batch = choose(k, packed, i32(k, 0), udiv(k, query, ARG(n_q)));
  val between = sub(k, ARG(q_batch), mul(k, widen(k, ARG(n_q)), ARG(q_token)));
  return add(k, add(k, head, rows), mul(k, widen(k, batch), between));
}

val leaf_image(struct ir *k, const struct leaf_score *a, val kv_head, val leaf) {
  val row = add(k, mul(k, widen(k, kv_head), widen(k, ARG(leaves))), widen(k, leaf));
  return at(k, ARG(images), mul_const(k, row, key_image_bytes(a->plan->leaf, a->plan->head_dim)));
}

val tile_member(struct ir *k, const struct leaf_score *a, val tile, int r) {
  val row = add_const(k, shift_right(k, a->lanes.lane, i32(k, 2)), 8 * r);
  val in_warp = udiv(k, row, i32(k, a->head_rows));
  val warps = add(k, mul_const(k, udiv(k, tile, i32(k, a->passes)), WARPGROUP_WARPS), a->warp);
  return add(k, mul_const(k, warps, a->warp_members), in_warp);
}

/* The segment of item |number|, not before |segment|. */
static val segment_of(struct ir *k, const struct leaf_score *a, val segment, val number) {
  struct var s = var_init(k, segment);
  WHILE (k, is_le(k,
                  load(k, k->i32,
                       at(k, a->prefix, add_const(k, mul_const(k, get(k, s), WORD), WORD)), WORD),
                  number)) {
    set(k, s, add_const(k, get(k, s), 1));
  }
  return warp_read(k, get(k, s), i32(k, 0)); /* known to be alike: uniform registers */
}

/* ---- the cursor ---- */

/* The number of all items is read again each time: a register less in the loop. */
val item_cursor_has_next(struct ir *k, const struct leaf_score *a, const struct item_cursor *c) {
  val total = load(k, k->i32, at(k, a->prefix, mul_const(k, ARG(segments), WORD)), WORD);
  return is_lt(k, add(k, get(k, c->number), a->stride), total);
}

/* Entry of the lane's member: lane i has warp member i mod n of tile i / n, up to 16 of an item. */
static val lane_entry(struct ir *k, const struct leaf_score *a, const struct item *item) {
  val n = i32(k, a->warp_members), tile = udiv(k, a->lanes.lane, n);
  val in_warp = sub(k, a->lanes.lane, mul_const(k, tile, a->warp_members));
  val warps = add(k, mul_const(k, tile, WARPGROUP_WARPS), a->warp);
  val member = add(k, mul_const(k, warps, a->warp_members), in_warp);
  return item_entry(k, a, item, smin(k, member, add_const(k, item->members, -1)));
}

/* The words of item |number| on their way; nobody waits for them here. */
void item_cursor_request(struct ir *k, const struct leaf_score *a, const struct item_cursor *c,
                         val number) {
  val segment = segment_of(k, a, get(k, c->next_segment), number);
  val word = mul_const(k, bit_and(k, a->lanes.lane, i32(k, 3)), WORD);
  set(k, c->next_segment, segment);
  set(k, c->next_words, load(k, k->i32, at(k, item_at(k, a, number, segment), word), WORD));
  set(k, c->is_pending, i32(k, 1));
}

/* A word of the item behind, once it is there. */
static val next_word(struct ir *k, const struct item_cursor *c, int i) {
  return warp_read(k, get(k, c->next_words), i32(k, i));
}

/* One tile later: its entries on their way. */
void item_cursor_request_entries(struct ir *k, const struct leaf_score *a,
                                 const struct item_cursor *c) {
  struct item item = {.segment = get(k, c->next_segment)};
  item.word[2] = next_word(k, c, 2);
  item_open(k, &item, next_word(k, c, 3));
  set(k, c->next_entry, lane_entry(k, a, &item));
  set(k, c->is_pending, i32(k, 0));
}

void item_cursor_request_pending(struct ir *k, const struct leaf_score *a,
                                 const struct item_cursor *c) {
  IF (k, is_ne(k, get(k, c->is_pending), i32(k, 0))) {
    item_cursor_request_entries(k, a, c);
  }
}

/* What was prefetched becomes the item of the next tile; then the one behind it is. */
void item_cursor_enter(struct ir *k, const struct leaf_score *a, const struct item_cursor *c,
                       val number) {
  val group = udiv(k, get(k, c->next_segment), ARG(kv_heads));
  struct item item = {.kv_head = sub(k, get(k, c->next_segment), mul(k, group, ARG(kv_heads)))};
  item.first_query = mul(k, group, ARG(chunk));
  item_open(k, &item, next_word(k, c, 3));
  val tile_members = i32(k, WARPGROUP_WARPS * a->warp_members);
  val up = add_const(k, item.members, WARPGROUP_WARPS * a->warp_members - 1);
  set(k, c->number, number);
  set(k, c->tile, i32(k, 0));
  set(k, c->tiles, mul_const(k, udiv(k, up, tile_members), a->passes));
  set(k, c->info, item.word[3]);
  set(k, c->entry, get(k, c->next_entry));
  set(k, c->row, add(k, mul(k, item.kv_head, ARG(queries)), item.first_query));
  val offset = item_query_offset(k, a, &item, get(k, c->next_entry));
  set(k, c->offset_lo, narrow(k, offset));
  set(k, c->offset_hi, narrow(k, shift_right(k, offset, i64(k, 32))));
  IF (k, item_cursor_has_next(k, a, c)) {
    item_cursor_request(k, a, c, add(k, number, a->stride));
  }
}

struct item_cursor item_cursor_new(struct ir *k) {
  struct item_cursor c;
  struct var *all[] = {&c.number,     &c.tile,         &c.tiles,     &c.live, &c.info,
                       &c.entry,      &c.offset_lo,    &c.offset_hi, &c.row,  &c.next_words,
                       &c.next_entry, &c.next_segment, &c.is_pending};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
    *all[i] = var_init(k, i32(k, 0));
  set(k, c.live, i32(k, 1));
  return c;
}

val item_cursor_offset(struct ir *k, const struct item_cursor *c) {
  val pair = pack2(k, get(k, c->offset_lo), get(k, c->offset_hi));
  return OP(k, "llvm.bitcast", k->i64, "", pair);
}

/* ---- keys ---- */

/* Bytes of a half that there are: the last images of all may end within it. */
static val half_bytes(struct ir *k, const struct leaf_score *a, const struct item *item, int half) {
  const int leaf_bytes = key_image_bytes(a->plan->leaf, a->plan->head_dim);
  const int bytes = a->plan->children / 2 * leaf_bytes;
  if (a->plan->children == 2)
    return i32(k, bytes);
  val heads = sub(k, ARG(kv_heads), item->kv_head);
  val left = sub(k, mul(k, heads, ARG(leaves)), item->word[half]);
  return mul_const(k, smin(k, left, i32(k, a->plan->children / 2)), leaf_bytes);
}

/* By the leader: both halves of the cursor's next item on their way to |stage|. */
void item_cursor_load_keys(struct ir *k, const struct leaf_score *a, const struct item_cursor *c,
                           val stage) {
  struct item item = {.word = {next_word(k, c, 0), next_word(k, c, 1)}};
  val segment = get(k, c->next_segment);
  IF (k, a->leader) {
    val group = udiv(k, segment, ARG(kv_heads));
    item.kv_head = sub(k, segment, mul(k, group, ARG(kv_heads)));
    val full = at(k, a->barriers, mul_const(k, stage, BARRIER_BYTES));
    val to = add(k, a->keys, mul_const(k, stage, a->stage_bytes)), bytes[2];
    for (int half = 0; half < 2; half++)
      bytes[half] = half_bytes(k, a, &item, half);
    mbarrier_expect(k, full, add(k, bytes[0], bytes[1]));
    for (int half = 0; half < 2; half++) {
      val there = shared_pointer(k, add_const(k, to, half * a->stage_bytes / 2));
      tma_load_bytes(k, there, leaf_image(k, a, item.kv_head, item.word[half]), bytes[half], full);
    }
  }
}
