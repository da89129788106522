/* attend_blocks_union.c: in go the lists of a tile's queries; out comes every leaf that is listed,
   once, with the queries that list it. */
#include "compiler/kernels/attend_blocks_tile.h"
#include "compiler/sm90/sync.h"

enum { WORD = 4, WARP = 32, VECTOR = 4, ENTRY = 8 };

struct lists { /* shared memory */
  int entries;
  val ids, masks, count;
};

/* Entry |e| = j T + i of the lists, or -1. */
static val listed_leaf(struct ir *k, const struct query_tile *t, val lists, val width, val e) {
  const int leaf = t->plan->leaf;
  val i = bit_and(k, e, i32(k, t->queries - 1)),
      j = shift_right(k, e, i32(k, log2_from(t->queries)));
  val query = add(k, t->first, i);
  val exists = both(k, is_le(k, query, t->last), is_lt(k, j, width));
  val from = smin(k, query, t->last);
  val row = sequence_list_row(k, &t->sequence, from, t->kv_head);
  val list = at_row(k, lists, row, mul_const(k, width, WORD));
  val id = load_if(k, exists, at(k, list, mul_const(k, widen(k, j), WORD)), i32(k, -1));
  val limit = t->sequence.keys;
  if (t->plan->causal)
    limit = add_const(k, sequence_token(k, &t->sequence, from), 1);
  val end = add_const(k, smax(k, limit, i32(k, 0)), leaf - 1);
  val leaves = shift_right(k, end, i32(k, log2_from(leaf)));
  return choose(k, is_uge(k, id, leaves), i32(k, -1), id); /* unsigned: not of -1 */
}

static void gather_ids(struct ir *k, const struct query_tile *t, const struct lists *l, val lists,
                       val width) {
  FOR_STEP(k, e, thread_index(k), i32(k, l->entries), i32(k, t->threads)) {
    val id = listed_leaf(k, t, lists, width, e);
    store(k, id, at(k, l->ids, mul_const(k, e, WORD)), WORD);
  }
}

/* masks[e]: the queries that list the leaf of entry e, where its query is the first of them; else
 * 0.
 */
static void find_readers(struct ir *k, const struct query_tile *t, const struct lists *l) {
  FOR_STEP(k, e, thread_index(k), i32(k, l->entries), i32(k, t->threads)) {
    val mine = load(k, k->i32, at(k, l->ids, mul_const(k, e, WORD)), WORD);
    struct var hits = var_init(k, i32(k, 0)); /* of four entries, or of all queries if more */
    const int turn = t->queries > VECTOR ? t->queries : VECTOR;
    FOR_STEP(k, base, i32(k, 0), i32(k, l->entries), i32(k, turn)) {
      val found = get(k, hits);
      for (int v = 0; v < turn; v += VECTOR) {
        val from = at_const(k, at(k, l->ids, mul_const(k, base, WORD)), v * WORD);
        val four = load(k, k->i32x4, from, VECTOR * WORD);
        for (int x = 0; x < VECTOR; x++) {
          val bit = i32(k, 1 << ((v + x) % t->queries));
          val is_same = is_eq(k, element(k, four, x, k->i32), mine);
          found = bit_or(k, found, choose(k, is_same, bit, i32(k, 0)));
        }
      }
      set(k, hits, found);
    }
    val i = bit_and(k, e, i32(k, t->queries - 1)), found = get(k, hits);
    val before = bit_and(k, found, add_const(k, shift_left(k, i32(k, 1), i), -1));
    val leads = both(k, is_ge(k, mine, i32(k, 0)), is_eq(k, before, i32(k, 0)));
    val mask = choose(k, leads, found, i32(k, 0));
    store(k, mask, at(k, l->masks, mul_const(k, e, WORD)), WORD);
  }
}

/* Entries with readers one behind another; by one warp. */
static void line_up(struct ir *k, const struct query_tile *t, const struct lists *l, val to) {
  struct var n = var_init(k, i32(k, 0));
  FOR_STEP(k, base, i32(k, 0), i32(k, l->entries), i32(k, WARP)) {
    val e = add(k, base, t->lanes.lane);
    val from = mul_const(k, smin(k, e, i32(k, l->entries - 1)), WORD);
    val mask = load(k, k->i32, at(k, l->masks, from), WORD);
    val leads = both(k, is_lt(k, e, i32(k, l->entries)), is_ne(k, mask, i32(k, 0)));
    val ballot = warp_ballot(k, leads);
    val place = add(k, get(k, n), count_below(k, &t->lanes, ballot));
    IF (k, leads) {
      val id = load(k, k->i32, at(k, l->ids, from), WORD);
      store(k, pack2(k, id, mask), at(k, to, mul_const(k, place, ENTRY)), ENTRY);
    }
    set(k, n, add(k, get(k, n), count_bits(k, ballot)));
  }
  IF (k, is_eq(k, t->lanes.lane, i32(k, 0))) {
    store(k, get(k, n), l->count, WORD);
  }
}

struct leaf_union leaf_union_new(struct ir *k, const struct query_tile *t, val lists, val width) {
  const int stages = blocks_stages(t->plan, t->threads) * blocks_stage_bytes(t->plan);
  const int before = stages + blocks_barrier_bytes();
  struct lists l = {.entries = blocks_entries(t->plan, t->threads)};
  l.ids = at_const(k, k->smem, before);
  l.masks = at_const(k, l.ids, l.entries * WORD);
  l.count = at_const(k, l.masks, l.entries * WORD);
  struct leaf_union u = {.entries = at_const(k, l.count, VECTOR * WORD)};
  gather_ids(k, t, &l, lists, width);
  cta_sync(k);
  find_readers(k, t, &l);
  cta_sync(k);
  IF (k, is_eq(k, t->lanes.warp, i32(k, 0))) {
    line_up(k, t, &l, u.entries);
  }
  cta_sync(k);
  u.n = warp_read(k, load(k, k->i32, l.count, WORD), i32(k, 0));
  return u;
}

void leaf_union_entry(struct ir *k, const struct leaf_union *u, val i, val *id, val *mask) {
  val entry = at(k, u->entries, mul_const(k, i, ENTRY));
  *id = load(k, k->i32, entry, WORD);
  *mask = load(k, k->i32, at_const(k, entry, WORD), WORD);
}
