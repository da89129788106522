/* attend_blocks_cursor.c: in goes a list of leaves, or none; out come one by one the units of 16
   keys that a warp reads. */
#include <assert.h>

#include "compiler/kernels/attend_blocks.h"

enum { WORD = 4, WARP = 32 };

static int log2_of(int x) {
  int bits = 0;
  while (1 << bits < x)
    bits++;
  assert(1 << bits == x);
  return bits;
}

/* First token of candidate |p| of a list, -1 where there is none to be read. */
static val listed_token(struct ir *k, const struct plan_pyramid *plan,
                        const struct blocks_query *query, const struct cursor *c, val p) {
  const int units = log2_of(plan->leaf / BLOCKS_UNIT), leaf = log2_of(plan->leaf);
  val turn = shift_right(k, p, i32(k, units));
  val entry = choose(k, is_eq(k, turn, i32(k, 0)), turn, sub(k, BLOCKS_ARG(width), turn));
  val place = at(k, c->share.list, mul_const(k, widen(k, entry), WORD));
  val id = load_if(k, is_lt(k, p, c->share.end), place, i32(k, -1));
  val leaves = shift_right(k, add_const(k, query->limit, plan->leaf - 1), i32(k, leaf));
  val within = mul_const(k, bit_and(k, p, i32(k, (1 << units) - 1)), BLOCKS_UNIT);
  val token = add(k, shift_left(k, id, i32(k, leaf)), within);
  val seen = bit_not(k, is_uge(k, id, leaves)); /* unsigned: not of -1 */
  return choose(k, both(k, seen, is_lt(k, token, query->limit)), token, i32(k, -1));
}

/* The same of all that is seen. */
static val any_token(struct ir *k, const struct cursor *c, val p) {
  return choose(k, is_lt(k, p, c->share.end), mul_const(k, p, BLOCKS_UNIT), i32(k, -1));
}

static val candidate_token(struct ir *k, const struct plan_pyramid *plan,
                           const struct blocks_query *query, const struct cursor *c, val p) {
  if (is_null(c->share.is_list))
    return listed_token(k, plan, query, c, p);
  struct var token = var_new(k, k->i32);
  IF (k, c->share.is_list) {
    set(k, token, listed_token(k, plan, query, c, p));
  }
  ELSE (k) {
    set(k, token, any_token(k, c, p));
  }
  return get(k, token);
}

static val page_of(struct ir *k, const struct plan_pyramid *plan, const struct blocks_query *query,
                   val token) {
  val column = shift_right(k, token, i32(k, log2_of(plan->page)));
  val row = mul(k, widen(k, query->sequence.index), widen(k, SEQUENCE_ARG(page_columns)));
  val place = mul_const(k, add(k, row, widen(k, column)), WORD);
  return load(k, k->i32, at(k, SEQUENCE_ARG(pages), place), WORD);
}

/* The next 32 candidates; lanes without one stand at token 0, which is seen. */
static void look(struct ir *k, const struct plan_pyramid *plan, const struct blocks_query *query,
                 const struct cursor *c) {
  val lane = bit_and(k, thread_index(k), i32(k, WARP - 1));
  val turn = sub(k, i32(k, WARP - 1), lane), base = get(k, c->base);
  val p = add(k, base, mul(k, turn, c->share.stride));
  val token = candidate_token(k, plan, query, c, p);
  set(k, c->left, warp_ballot(k, is_ge(k, token, i32(k, 0))));
  token = smax(k, token, i32(k, 0));
  set(k, c->tokens, token);
  if (plan->page > 0)
    set(k, c->pages, page_of(k, plan, query, token));
  set(k, c->base, add(k, base, mul_const(k, c->share.stride, WARP)));
}

static void look_on(struct ir *k, const struct plan_pyramid *plan, const struct blocks_query *query,
                    const struct cursor *c) {
  WHILE (k,
         both(k, is_eq(k, get(k, c->left), i32(k, 0)), is_lt(k, get(k, c->base), c->share.end))) {
    look(k, plan, query, c);
  }
}

void cursor_advance(struct ir *k, const struct plan_pyramid *plan, const struct blocks_query *query,
                    const struct cursor *c) {
  if (!is_null(c->share.stride)) /* of a run all are looked at */
    look_on(k, plan, query, c);
  val left = get(k, c->left);
  val lane = sub(k, i32(k, WARP - 1), count_leading_zeros(k, left)); /* -1, read as 31: none */
  val token = warp_read(k, get(k, c->tokens), lane);
  set(k, c->token, choose(k, is_ne(k, left, i32(k, 0)), token, i32(k, -1)));
  if (plan->page > 0)
    set(k, c->page, warp_read(k, get(k, c->pages), lane));
  val mask = shift_left(k, i32(k, 1), bit_and(k, lane, i32(k, WARP - 1)));
  set(k, c->left, bit_and(k, left, bit_not(k, mask)));
}

static struct cursor cursor_empty(struct ir *k, const struct blocks_share *share) {
  struct cursor c = {.share = *share};
  c.base = var_init(k, share->first);
  c.left = var_init(k, i32(k, 0));
  c.tokens = var_init(k, i32(k, 0));
  c.pages = var_init(k, i32(k, 0));
  c.token = var_init(k, i32(k, 0));
  c.page = var_init(k, i32(k, 0));
  return c;
}

struct cursor cursor_of_run(struct ir *k, const struct plan_pyramid *plan,
                            const struct blocks_query *query, val token, val units) {
  const struct blocks_share none = {.first = i32(k, 0)};
  struct cursor c = cursor_empty(k, &none);
  val lane = bit_and(k, thread_index(k), i32(k, WARP - 1)), turn = sub(k, i32(k, WARP - 1), lane);
  val mine = add(k, token, mul_const(k, turn, BLOCKS_UNIT));
  val counts = both(k, is_lt(k, turn, units), is_lt(k, mine, query->limit));
  set(k, c.left, warp_ballot(k, counts));
  mine = choose(k, counts, mine, i32(k, 0));
  set(k, c.tokens, mine);
  if (plan->page > 0)
    set(k, c.pages, page_of(k, plan, query, mine));
  cursor_advance(k, plan, query, &c);
  return c;
}

struct cursor cursor_new(struct ir *k, const struct plan_pyramid *plan,
                         const struct blocks_query *query, const struct blocks_share *share) {
  struct cursor c = cursor_empty(k, share);
  cursor_advance(k, plan, query, &c);
  return c;
}
