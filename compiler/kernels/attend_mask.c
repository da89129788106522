/* Which columns of a tile count, and as how much: absent keys and listed blocks do not, a mean
   counts as the tokens it stands for. */
#include <assert.h>

#include "compiler/kernels/attend.h"

#define ARG ATTEND_ARG

static int words_of(const struct attend *a) {
  return a->plan->tile_k / 32;
}

/* Bits of the columns at or past |valid|. */
static void prefix_words(struct ir *k, const struct attend *a, val valid, val *words) {
  for (int w = 0; w < words_of(a); w++) {
    val rest = smax(k, add_const(k, valid, -32 * w), i32(k, 0));
    val bits = shift_left(k, i32(k, -1), bit_and(k, rest, i32(k, 31)));
    words[w] = choose(k, is_ge(k, rest, i32(k, 32)), i32(k, 0), bits);
  }
}

/* Valid columns of exact tile |tile| of |item|: all, but in the last one. Only the last entry
   of a list can be the short block. */
static val valid_columns(struct ir *k, const struct attend *a, val row, val tile) {
  val before = mul_const(k, tile, a->plan->tile_k);
  if (a->plan->dense) {
    return sub(k, a->length, before);
  }
  val listed = mul_const(k, a->count, a->plan->block);
  if (!a->plan->edge) { /* no block is short */
    return sub(k, listed, before);
  }
  val last = smax(k, add_const(k, a->count, -1), i32(k, 0));
  val last_entry = at(k, attend_list(k, row), mul_const(k, last, 4));
  val is_short = is_eq(k, load(k, k->i32, last_entry, 4), add_const(k, a->k_blocks, -1));
  val missing = choose(k, is_short, sub(k, i32(k, a->plan->block), a->last_length), i32(k, 0));
  return sub(k, sub(k, listed, missing), before);
}

/* log2(len) / c: a mean counts as len tokens. */
static val length_bias(struct ir *k, val log2_length) {
  return mul(k, log2_length, reciprocal_approx(k, ARG(scale_log2)));
}

/* The short last block's own length, in edge kernels. */
static void short_mean(struct ir *k, const struct attend *a, struct tile_mask *mask,
                       val mean_tile) {
  val column = sub(k, add_const(k, a->k_blocks, -1), mul_const(k, mean_tile, a->plan->tile_k));
  column = choose(k, mask->is_mean, column, i32(k, -1));
  mask->bias.short_column = sub(k, column, frag_lane_column(k, &a->lanes));
  mask->bias.short_bias = length_bias(k, log2_approx(k, to_float(k, a->last_length)));
}

/* |n| words of a mask row, from word |first| on, a multiple of n. */
static void mask_words(struct ir *k, val mask, val first, int n, val *words) {
  val address = at(k, mask, mul_const(k, first, 4));
  if (n == 4) {
    val four = load(k, k->i32x4, address, 16);
    for (int w = 0; w < 4; w++) {
      words[w] = element(k, four, w, k->i32);
    }
    return;
  }
  for (int w = 0; w < n; w++) {
    words[w] = load(k, k->i32, at_const(k, address, 4 * w), 4);
  }
}

/* Row r of the item sees |diagonal| + r keys. */
static struct rowval behind_diagonal(struct ir *k, const struct attend *a, val offset, val tile) {
  val row = add(k, offset, frag_lane_row(k, &a->lanes)), seen = add(k, a->diagonal, row);
  val before = add(k, mul_const(k, tile, a->plan->tile_k), frag_lane_column(k, &a->lanes));
  val first = sub(k, seen, before);
  return (struct rowval){{first, add_const(k, first, 8)}};
}

static struct tile_mask mask_of_exact(struct ir *k, const struct attend *a, struct listed listed,
                                      val tile) {
  struct tile_mask mask = {.bias = {.bias = f32(k, 0)}};
  if (a->plan->causal) {
    mask.behind = behind_diagonal(k, a, listed.offset, tile);
  } else {
    prefix_words(k, a, valid_columns(k, a, listed.row, tile), mask.words);
  }
  return mask;
}

static struct tile_mask mask_of_means(struct ir *k, const struct attend *a, val mask_row,
                                      val mean_tile, val is_mean) {
  struct tile_mask mask = {.counts_as_tail = true, .is_mean = is_mean};
  val first = mul_const(k, smax(k, mean_tile, i32(k, 0)), words_of(a));
  mask_words(k, mask_row, first, words_of(a), mask.words);
  mask.bias.bias = ARG(mean_bias);
  if (a->plan->edge) {
    short_mean(k, a, &mask, mean_tile);
  }
  return mask;
}

struct tile_mask attend_mask(struct ir *k, const struct attend *a, enum tile_kind kind,
                             struct listed listed, val tile) {
  assert(kind != TILE_FULL);
  if (kind == TILE_EXACT || !a->plan->means) {
    return mask_of_exact(k, a, listed, tile);
  }
  val is_mean = is_ge(k, tile, a->exact_tiles), mean_tile = sub(k, tile, a->exact_tiles);
  struct tile_mask means = mask_of_means(k, a, listed.mask, mean_tile, is_mean);
  if (kind == TILE_MEANS) {
    return means;
  }
  struct tile_mask exact = mask_of_exact(k, a, listed, tile);
  for (int w = 0; w < words_of(a); w++) {
    means.words[w] = choose(k, is_mean, means.words[w], exact.words[w]);
  }
  means.bias.bias = choose(k, is_mean, means.bias.bias, exact.bias.bias);
  return means;
}

struct tile_mask attend_unit_mask(struct ir *k, const struct attend *a, struct listed listed,
                                  val unit, bool may_be_exact) {
  const int words = ATTEND_UNIT / 32;
  struct tile_mask mask = {.counts_as_tail = true};
  mask.bias.bias = ARG(mean_bias);
  val mean = sub(k, unit, a->count), first = mul_const(k, mean, words);
  if (may_be_exact) {
    first = smax(k, first, i32(k, 0));
  }
  mask_words(k, listed.mask, first, words, mask.words);
  if (may_be_exact) {
    mask.is_mean = is_ge(k, mean, i32(k, 0));
    mask.bias.bias = choose(k, mask.is_mean, mask.bias.bias, f32(k, 0));
    for (int w = 0; w < words; w++) {
      mask.words[w] = choose(k, mask.is_mean, mask.words[w], i32(k, 0));
    }
  }
  return mask;
}

void attend_apply_mask(struct ir *k, const struct attend *a, const struct frag *s,
                       const struct tile_mask *mask) {
  if (a->plan->causal) {
    frag_mask_behind(k, s, mask->behind);
    return;
  }
  struct column_mask columns = column_mask_new(k, s->columns / 32, mask->words, &a->lanes);
  frag_mask_columns(k, s, &columns, &mask->bias);
}
