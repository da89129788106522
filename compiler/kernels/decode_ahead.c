/* decode_ahead.c: in go a query's place, before the query itself has come, and the peers that only
   attend; out come, in L2, what the one that selects will read: means of the first step, of upper
   levels, and forced leaves. Nothing waits for it. A CTA without peers asks for nothing: calls
   of so many queries fill the chip, and take longer with it.

   A level is worth it while all queries of the call take no more than a megabyte of it, a quarter
   of a microsecond of memory; the walk reads the highest levels first. */
#include "compiler/kernels/decode.h"

enum { WARP = 32, SECTOR = 32, MOST_BYTES = 1 << 20 };

/* Sectors [0, n) of peer |place| of |peers|, one a thread. */
struct dealt {
  val first, step;
};
static struct dealt dealt_of(struct ir *k, const struct decode *d, val place, val peers) {
  const int threads = WARP * d->warps;
  return (struct dealt){add(k, mul_const(k, place, threads), thread_index(k)),
                        mul_const(k, peers, threads)};
}

static void fetch_level(struct ir *k, const struct decode *d, const struct dealt *x, val level,
                        val nodes) {
  const int sectors = d->plan.head_dim * WALK_HALF / SECTOR;
  val rows = walk_level_rows(k, &d->w, level);
  val pairs = shift_right(k, add_const(k, nodes, 1), i32(k, 1)); /* share their bytes */
  FOR_STEP(k, i, x->first, mul_const(k, pairs, 2 * sectors), x->step) {
    prefetch(k, at(k, rows, mul_const(k, i, SECTOR)));
  }
}

/* Below |depth|, where the walk begins, the first level that is read. */
static val first_level(struct ir *k, const struct decode *d, val depth) {
  return add_const(k, depth, node_reads_children(&d->plan) ? -1 : 0);
}

static val start_depth(struct ir *k, const struct decode *d) {
  const int most = walk_starts_dense(&d->plan) ? d->plan.start_nodes : d->plan.keep;
  return walk_start_depth(k, &d->w, most, 0);
}

/* From the first level that is read on down. */
static void fetch_means(struct ir *k, const struct decode *d, const struct dealt *x) {
  val rows = mul(k, SEQUENCE_ARG(queries), SEQUENCE_ARG(kv_heads));
  val most = udiv(k, i32(k, MOST_BYTES / (d->plan.head_dim * WALK_HALF)), rows);
  struct var level = var_init(k, first_level(k, d, start_depth(k, d)));
  WHILE (k, is_lt(k, i32(k, 0), get(k, level))) {
    val nodes = walk_seen_at(k, &d->w, add_const(k, get(k, level), -1));
    IF (k, is_le(k, nodes, most)) {
      fetch_level(k, d, x, get(k, level), nodes);
    }
    set(k, level, add_const(k, get(k, level), -1));
  }
}

/* Keys or values of tokens [first, end). */
static void fetch_rows(struct ir *k, const struct decode *d, const struct dealt *x,
                       const struct sequence_array *array, val first, val end) {
  const int sectors = d->plan.head_dim * WALK_HALF / SECTOR;
  FOR_STEP(k, i, x->first, mul_const(k, sub(k, end, first), sectors), x->step) {
    val row = udiv(k, i, i32(k, sectors)), column = sub(k, i, mul_const(k, row, sectors));
    val place = sequence_key(k, &d->w.s, array, d->plan.page, d->w.kv_head, add(k, first, row));
    prefetch(k, at(k, place, mul_const(k, column, SECTOR)));
  }
}

/* Of the leaves that are kept whatever they score, no more than are kept at all. */
static void fetch_forced(struct ir *k, const struct decode *d, const struct dealt *x,
                         const struct sequence_array *values) {
  const struct walk *w = &d->w;
  val limit = d->plan.causal ? add_const(k, w->t, 1) : w->s.keys;
  for (int i = 0; i < w->ranges; i++) {
    const struct walk_range *r = &w->range[i];
    val first = is_null(r->first) ? i32(k, 0) : smax(k, r->first, i32(k, 0));
    val last = is_null(r->last) ? w->last : smin(k, r->last, w->last);
    first = smin(k, first, add_const(k, w->last, 1)); /* behind it: none */
    last = smin(k, last, add_const(k, first, d->plan.keep - 1));
    val begin = mul_const(k, first, d->plan.leaf);
    val end = smin(k, mul_const(k, add_const(k, last, 1), d->plan.leaf), limit);
    fetch_rows(k, d, x, &w->k, begin, end);
    fetch_rows(k, d, x, values, begin, end);
  }
}

void decode_fetch(struct ir *k, const struct decode *d, const struct sequence_array *values,
                  val place, val peers) {
  const struct dealt x = dealt_of(k, d, place, peers);
  IF (k, is_le(k, i32(k, d->plan.keep), d->w.last)) {
    fetch_means(k, d, &x);
    fetch_forced(k, d, &x, values);
  }
}

void decode_fetch_leaves(struct ir *k, const struct decode *d, const struct sequence_array *values,
                         val first, val end) {
  const struct dealt x = dealt_of(k, d, i32(k, 0), i32(k, 1));
  const int row = d->plan.head_dim * WALK_HALF;
  val limit = d->plan.causal ? add_const(k, d->w.t, 1) : d->w.s.keys;
  val rows = mul(k, SEQUENCE_ARG(queries), SEQUENCE_ARG(kv_heads));
  val few = is_le(k, limit, udiv(k, i32(k, MOST_BYTES / row), rows));
  first = mul_const(k, first, d->plan.leaf);
  end = smin(k, mul_const(k, end, d->plan.leaf), limit);
  fetch_rows(k, d, &x, &d->w.k, first, end);
  fetch_rows(k, d, &x, values, first, choose(k, few, end, first));
}

/* Pieces of a kilobyte, a warp each: begin[i] is the first of the step's depth i. */
static void first_pieces(const struct decode *d, int *begin) {
  int bytes = d->plan.keep * walk_parent_rows(&d->plan) * d->plan.head_dim * WALK_HALF;
  begin[0] = 0;
  for (int i = 0; i < d->room.depths; i++, bytes *= d->plan.children)
    begin[i + 1] = begin[i] + (bytes + WARP * SECTOR - 1) / (WARP * SECTOR);
}

static void fetch_piece(struct ir *k, const struct decode *d, const int *begin, val first,
                        val piece) {
  const int sectors = d->plan.head_dim * WALK_HALF / SECTOR;
  val level = first, start = i32(k, 0);
  for (int i = 1; i < d->room.depths; i++) {
    val below = is_le(k, i32(k, begin[i]), piece);
    level = choose(k, below, add_const(k, first, -i), level);
    start = choose(k, below, i32(k, begin[i]), start);
  }
  val nodes = walk_seen_at(k, &d->w, add_const(k, level, -1));
  val pairs = shift_right(k, add_const(k, nodes, 1), i32(k, 1));
  val sector = add(k, mul_const(k, sub(k, piece, start), WARP), d->w.lanes.lane);
  val rows = walk_level_rows(k, &d->w, level);
  IF (k, is_lt(k, sector, mul_const(k, pairs, 2 * sectors))) {
    prefetch(k, at(k, rows, mul_const(k, sector, SECTOR)));
  }
}

void decode_fetch_first(struct ir *k, const struct decode *d) {
  int begin[DECODE_MAX_DEPTHS + 1];
  first_pieces(d, begin);
  if (walk_starts_dense(&d->plan)) /* warps have the whole first level to read */
    return;
  IF (k, is_le(k, i32(k, d->plan.keep), d->w.last)) {
    val depth = start_depth(k, d), first = first_level(k, d, depth);
    val left = add_const(k, depth, -walk_last_depth(&d->plan));
    val depths = decode_step_depths(k, d, left), end = i32(k, 0);
    for (int i = 1; i <= d->room.depths; i++)
      end = choose(k, is_le(k, i32(k, i), depths), i32(k, begin[i]), end);
    FOR_STEP(k, piece, d->w.lanes.warp, end, i32(k, d->warps)) {
      fetch_piece(k, d, begin, first, piece);
    }
  }
}
