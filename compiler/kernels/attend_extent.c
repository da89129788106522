/* Which rows and lists an item is, how many keys it has, how many blocks it lists, and the tiles
   that makes. */
#include "compiler/kernels/attend.h"

#define ARG ATTEND_ARG

struct attend attend_stream(struct ir *k, const struct attend *a, val stream) {
  struct attend mine = *a;
  mine.first = cta_index(k);
  mine.step = cta_count(k);
  if (a->plan->streams > 1) {
    mine.queries.instance = mine.keys.instance = mine.values.instance = stream;
    mine.first = add(k, mul_const(k, mine.first, a->plan->streams), stream);
    mine.step = mul_const(k, mine.step, a->plan->streams);
  }
  return mine;
}

struct item attend_item(struct ir *k, const struct attend *a, val index) {
  val bh = udiv(k, index, ARG(q_blocks));
  val block = sub(k, index, mul(k, bh, ARG(q_blocks)));
  val batch = udiv(k, bh, ARG(heads));
  if (a->plan->causal) {
    block = sub(k, add_const(k, ARG(q_blocks), -1), block);
  }
  val row = mul_const(k, block, a->plan->tile_q), head = sub(k, bh, mul(k, batch, ARG(heads)));
  val kv_head = a->plan->group == 1 ? head : udiv(k, head, i32(k, a->plan->group));
  return (struct item){index, row, {row, head, batch}, {row, kv_head, batch}};
}

val attend_list_row(struct ir *k, const struct attend *a, val index, val group) {
  if (!a->plan->pairs) {
    return index;
  }
  val bh = udiv(k, index, ARG(q_blocks)), pair = sub(k, index, mul(k, bh, ARG(q_blocks)));
  val block_rows = i32(k, ATTEND_GROUP_ROWS);
  val blocks = udiv(k, add_const(k, ARG(n_q), ATTEND_GROUP_ROWS - 1), block_rows);
  val mine = smin(k, add(k, mul_const(k, pair, 2), group), add_const(k, blocks, -1));
  return add(k, mul(k, bh, blocks), mine);
}

val attend_list(struct ir *k, val row) {
  val entries = mul(k, widen(k, row), widen(k, ARG(list_stride)));
  return at(k, ARG(lists), mul_const(k, entries, 4));
}

val attend_next_item(struct ir *k, const struct attend *a, val index) {
  val after = add(k, index, a->step), last = add_const(k, ARG(items), -1);
  return smin(k, after, last);
}

static val ceil_div(struct ir *k, val n, int by) {
  return udiv(k, add_const(k, n, by - 1), i32(k, by));
}

/* Element |index| of |array|, |otherwise| where that is null. */
static val load_or(struct ir *k, val array, val index, val otherwise) {
  val address = at(k, array, mul_const(k, widen(k, index), 4));
  return load_if(k, bit_not(k, is_null_pointer(k, array)), address, otherwise);
}

struct extent attend_extent(struct ir *k, const struct attend *a, val item) {
  if (a->plan->pairs) {
    val address = at(k, ARG(shared), mul_const(k, widen(k, item), 4));
    return (struct extent){.shared = load(k, k->i32, address, 4)};
  }
  if (!a->plan->edge) {
    return (struct extent){0};
  }
  val batch = udiv(k, item, mul(k, ARG(q_blocks), ARG(heads)));
  val length = load_or(k, ARG(lengths), batch, ARG(n_k));
  struct extent extent = {.length = smin(k, smax(k, length, i32(k, 0)), ARG(n_k))};
  if (!a->plan->dense) {
    extent.count = load_or(k, ARG(counts), item, ARG(keep));
  }
  if (a->plan->causal) { /* the last query stands at the last key */
    val row = attend_item(k, a, item).q_row;
    extent.diagonal = add_const(k, sub(k, add(k, extent.length, row), ARG(n_q)), 1);
  }
  return extent;
}

/* Everything that follows from length and count. Only the last entry of a list can be the short
   block. */
static void size(struct ir *k, struct attend *a) {
  const struct plan_attend *plan = a->plan;
  a->k_blocks = ceil_div(k, a->length, plan->block);
  a->last_length = sub(k, a->length, mul_const(k, add_const(k, a->k_blocks, -1), plan->block));
  if (plan->causal) {
    a->exact_tiles = ceil_div(k, a->length, plan->tile_k);
    a->full_tiles = udiv(k, smax(k, a->diagonal, i32(k, 0)), i32(k, plan->tile_k));
  } else if (plan->dense) {
    a->exact_tiles = ceil_div(k, a->length, plan->tile_k);
    a->full_tiles = udiv(k, a->length, i32(k, plan->tile_k));
  } else {
    const int entries = plan->tile_k / plan->block;
    a->exact_tiles = ceil_div(k, a->count, entries);
    val ragged = widen_bool(k, is_ne(k, a->last_length, i32(k, plan->block)));
    val whole = sub(k, a->count, ragged);
    a->full_tiles = udiv(k, plan->edge ? smax(k, whole, i32(k, 0)) : whole, i32(k, entries));
  }
  if (plan->edge) {
    a->exact_tiles = smax(k, a->exact_tiles, i32(k, 1));
  }
  if (plan->half_tile) {
    a->units = a->count;
    if (plan->means) {
      a->units = add(k, a->units, ceil_div(k, a->k_blocks, ATTEND_UNIT));
    }
    a->tiles = ceil_div(k, a->units, 2);
    return;
  }
  a->tiles = a->exact_tiles;
  if (plan->linear) {
    val rest = sub(k, a->k_blocks, a->count);
    a->tiles = add(k, a->tiles, ceil_div(k, rest, plan->tile_k / plan->block));
  }
  if (plan->means) {
    a->tiles = add(k, a->tiles, ceil_div(k, a->k_blocks, plan->tile_k));
  }
}

struct attend attend_sized(struct ir *k, const struct attend *a, struct extent extent) {
  struct attend sized = *a;
  if (a->plan->edge) {
    sized.length = extent.length;
    sized.count = extent.count;
    if (a->plan->causal) {
      sized.diagonal = extent.diagonal;
      val seen = add_const(k, extent.diagonal, a->plan->tile_q - 1);
      sized.length = smin(k, smax(k, seen, i32(k, 0)), extent.length);
    }
    size(k, &sized);
  }
  if (a->plan->pairs) {
    sized.shared_tiles = udiv(k, extent.shared, i32(k, a->plan->tile_k / a->plan->block));
    sized.own_tiles = sub(k, sized.exact_tiles, sized.shared_tiles);
  }
  return sized;
}

val attend_is_own(struct ir *k, const struct attend *a, val tile) {
  if (!a->plan->pairs) {
    return (val){0};
  }
  return widen_bool(k, is_ugt(k, a->own_tiles, sub(k, tile, a->shared_tiles)));
}

struct attend attend_in_rings(struct ir *k, const struct attend *sized) {
  struct attend rings = *sized;
  if (sized->plan->pairs) {
    rings.exact_tiles = add(k, sized->exact_tiles, sized->own_tiles);
    rings.tiles = add(k, sized->tiles, sized->own_tiles);
  }
  return rings;
}

void attend_size_all(struct ir *k, struct attend *a) {
  if (!a->plan->edge) {
    a->length = ARG(n_k);
    a->count = ARG(keep);
    size(k, a);
  }
}
