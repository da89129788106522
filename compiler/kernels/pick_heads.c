/* pick_heads.c: with mass, rows by a warp, the scores of all their heads in registers; see pick.h.

   A warp has one row at once, or as many, R, as have a lane for each candidate. With H heads, up to
   a power of two, P = 32 / (H R) lanes have one head of a row:

       lane                            has, in word w
       P R head + P row + place        candidate P w + place of that head

   a row's a load of adjacent numbers. Where near leaves have no slots apart (cluster.h) every
   visible candidate's slot has its score, but leaf 0's, which all rows have first: what |forced|
   says takes its place. Else that and near scores are words of their own. Lanes of one head share
   its maximum and its sum. Parts of the softmax are then joined over heads as a matrix is turned:
   the lane bits of the head, the highest first, take the |bits| low bits of the word, so that in
   round r

       lane L                          speaks for candidate 32 r + P (L >> (5 - bits)) + L mod P

   of its row, where bits of the head that are left over say the same twice. */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/best.h"
#include "compiler/kernels/cluster.h"
#include "compiler/kernels/pick.h"

enum {
  WARP_BITS = 5,
  MAX_WORDS = PICK_MAX_WORDS,
  MAX_OTHERS = PICK_MAX_OTHERS,
  MAX_ROWS = 4,
  QUAD = 4
};

struct layout {
  int heads, rows, places; /* H, R, P */
  int words;               /* that have candidates */
  int bits;
  int rounds; /* candidates a lane speaks for */
};

static struct layout layout_of(const struct plan_pyramid *plan) {
  const int n = plan->keep * plan->children;
  struct layout l = {.heads = power_of_two_from(plan->group), .rows = 1};
  while (l.rows < MAX_ROWS && 2 * l.rows * n <= WARP && 2 * l.rows * l.heads <= WARP)
    l.rows *= 2;
  l.places = WARP / (l.heads * l.rows);
  l.words = (n + l.places - 1) / l.places;
  while (1 << l.bits < l.words && 1 << l.bits < l.heads)
    l.bits++;
  l.rounds = (l.words + (1 << l.bits) - 1) >> l.bits;
  return l;
}

bool pick_fits_heads(const struct plan_pyramid *plan) {
  return plan_is_mass(plan) && layout_of(plan).words <= MAX_WORDS;
}

int pick_heads_words(const struct plan_pyramid *plan) {
  return layout_of(plan).words;
}

struct picker {
  const struct pick *a;
  struct layout of;
  val place, row;      /* of the lane */
  val is_first;        /* place 0 */
  val within, members; /* which lane of its row it is; bits of all of them */
  val is_head;         /* the lane's head is one */
  val candidate;       /* it speaks for in round 0 */
  val scores, sinks;   /* of row 0: word 0; of other forced leaves */
  val last_scores;     /* the last word, whose candidates may not be P */
  val near;            /* previous leaf, place 0, or own one, place 1 */
  val kept, last_kept; /* parents in the first and the last round */
  val keys;            /* of the lane's row; shared */
};

static int row_bytes(const struct pick *a) {
  return a->slots * a->plan->group * WORD;
}

static int word_bytes(const struct picker *h) {
  return h->of.places * h->a->plan->group * WORD;
}

/* Scores of forced leaves are candidates' words. */
static bool is_in_place(const struct pick *a) {
  return cluster_has_singles(a->plan);
}

static bool has_sink(const struct pick *a) {
  return a->plan->n_always > 0;
}

/* Of row 0, at the lane's head. */
static val score_place(struct ir *k, const struct picker *h, val head_bytes, val slot) {
  val offset = add(k, mul_const(k, slot, h->a->plan->group * WORD), head_bytes);
  return at(k, ARG(scores), offset);
}

static val kept_place(struct ir *k, const struct picker *h, int round) {
  val last = i32(k, h->a->candidates - 1);
  val candidate = smin(k, add_const(k, h->candidate, WARP * round), last);
  val slot = udiv(k, candidate, i32(k, h->a->plan->children));
  return at(k, ARG(kept), mul_const(k, slot, WORD));
}

/* Lanes of row 0, as bits. */
static int32_t row_members(const struct layout *l) {
  uint32_t members = 0;
  for (int lane = 0; lane < WARP; lane++)
    if (lane / l->places % l->rows == 0)
      members |= UINT32_C(1) << lane;
  return (int32_t)members;
}

static struct picker picker_new(struct ir *k, const struct pick *a) {
  struct picker h = {.a = a, .of = layout_of(a->plan)};
  const int n = a->candidates, P = h.of.places, row_lanes = WARP / h.of.rows;
  val lane = a->lanes.lane, head = udiv(k, lane, i32(k, P * h.of.rows));
  val head_bytes = mul_const(k, smin(k, head, i32(k, a->plan->group - 1)), WORD);
  h.is_head = is_lt(k, head, i32(k, a->plan->group));
  h.place = bit_and(k, lane, i32(k, P - 1));
  h.is_first = is_eq(k, h.place, i32(k, 0));
  h.row = bit_and(k, udiv(k, lane, i32(k, P)), i32(k, h.of.rows - 1));
  h.within = add(k, mul_const(k, head, P), h.place);
  h.members = shift_left(k, i32(k, row_members(&h.of)), mul_const(k, h.row, P));
  val word = shift_right(k, lane, i32(k, WARP_BITS - h.of.bits));
  h.candidate = h.of.bits == 0 ? h.place : add(k, mul_const(k, word, P), h.place);
  val last = smin(k, add_const(k, h.place, P * (h.of.words - 1)), i32(k, n - 1));
  val near = add_const(k, smin(k, h.place, i32(k, 1)), n);
  h.scores = score_place(k, &h, head_bytes, h.place);
  h.last_scores = score_place(k, &h, head_bytes, last);
  h.near = score_place(k, &h, head_bytes, near);
  h.sinks = at(k, ARG(forced), head_bytes);
  h.kept = kept_place(k, &h, 0);
  h.last_kept = kept_place(k, &h, h.of.rounds - 1);
  val keys = at(k, k->smem, mul_const(k, a->lanes.warp, pick_warp_bytes(a->plan)));
  h.keys = at(k, keys, mul_const(k, h.row, row_lanes * WORD));
  return h;
}

/* ---- what a row has in memory ---- */

struct row_vars { /* may be loaded ahead of their use */
  struct var kept[MAX_WORDS], score[MAX_WORDS];
  struct var other[MAX_OTHERS]; /* previous and own leaf (P > 1: in one word), other forced ones */
};
struct row_words { /* the same */
  val kept[MAX_WORDS], score[MAX_WORDS], other[MAX_OTHERS];
};

static int others_of(const struct picker *h) {
  if (is_in_place(h->a))
    return 0;
  return (h->of.places == 1 ? 2 : 1) + has_sink(h->a);
}

static struct row_vars row_vars_new(struct ir *k, const struct picker *h) {
  struct row_vars v;
  for (int r = 0; r < h->of.rounds; r++)
    v.kept[r] = var_new(k, k->i32);
  for (int i = 0; i < h->of.words; i++)
    v.score[i] = var_new(k, k->f32);
  for (int i = 0; i < others_of(h); i++)
    v.other[i] = var_new(k, k->f32);
  return v;
}

static struct row_words row_words_get(struct ir *k, const struct picker *h,
                                      const struct row_vars *v) {
  struct row_words w;
  for (int r = 0; r < h->of.rounds; r++)
    w.kept[r] = get(k, v->kept[r]);
  for (int i = 0; i < h->of.words; i++)
    w.score[i] = get(k, v->score[i]);
  for (int i = 0; i < others_of(h); i++)
    w.other[i] = get(k, v->other[i]);
  return w;
}

static val sink_of(struct ir *k, const struct picker *h, val row) {
  return at_row(k, h->sinks, row, i32(k, h->a->plan->group * WORD));
}

static void request_others(struct ir *k, const struct picker *h, const struct row_vars *v,
                           val row) {
  val near = at_row(k, h->near, row, i32(k, row_bytes(h->a)));
  set(k, v->other[0], load(k, k->f32, near, WORD));
  if (h->of.places == 1)
    set(k, v->other[1], load(k, k->f32, at_const(k, near, word_bytes(h)), WORD));
  if (has_sink(h->a))
    set(k, v->other[others_of(h) - 1], load(k, k->f32, sink_of(k, h, row), WORD));
}

/* Pointers are those of row 0 and this lane: one multiplication each for a row. */
static void request(struct ir *k, const struct picker *h, const struct row_vars *v, val row) {
  const int rounds = h->of.rounds, words = h->of.words;
  val bytes = i32(k, row_bytes(h->a)), scores = at_row(k, h->scores, row, bytes);
  for (int i = 0; i < words; i++) {
    bool clamps = i + 1 == words && h->a->candidates % h->of.places != 0;
    val from =
        clamps ? at_row(k, h->last_scores, row, bytes) : at_const(k, scores, i * word_bytes(h));
    if (i == 0 && is_in_place(h->a))
      from = choose(k, h->is_first, sink_of(k, h, row), from);
    set(k, v->score[i], load(k, k->f32, from, WORD));
  }
  if (others_of(h) > 0)
    request_others(k, h, v, row);
  bytes = i32(k, h->a->plan->keep * WORD);
  val kept = at_row(k, h->kept, row, bytes);
  for (int r = 0; r < rounds; r++) {
    val from = r + 1 == rounds ? at_row(k, h->last_kept, row, bytes)
                               : at_const(k, kept, r * (WARP / h->a->plan->children) * WORD);
    set(k, v->kept[r], load(k, k->i32, from, WORD));
  }
}

/* ---- parts of a softmax ---- */

struct candidates { /* of this lane, one a round */
  val leaf[MAX_WORDS], visible[MAX_WORDS], forced[MAX_WORDS];
  val scored[MAX_WORDS]; /* bit L: lane L's is visible, and not forced unless that has a word */
};

static void look_up(struct ir *k, const struct picker *h, const struct pick_row *row,
                    const struct row_words *w, struct candidates *c) {
  const int g = h->a->plan->children, n = h->a->candidates;
  val child = bit_and(k, h->candidate, i32(k, g - 1));
  for (int r = 0; r < h->of.rounds; r++) {
    c->leaf[r] = add(k, mul_const(k, w->kept[r], g), child);
    c->visible[r] = is_ugt(k, row->visible, c->leaf[r]);
    if (n < WARP * (r + 1))
      c->visible[r] = both(k, c->visible[r], is_lt(k, h->candidate, i32(k, n - WARP * r)));
    c->forced[r] = pick_is_forced(k, h->a, row, c->leaf[r]);
    val apart = both(k, c->visible[r], bit_not(k, c->forced[r]));
    c->scored[r] = warp_ballot(k, is_in_place(h->a) ? c->visible[r] : apart);
  }
}

static val counted(struct ir *k, const struct picker *h, val condition, val x) {
  val counts = h->of.heads == h->a->plan->group ? condition : both(k, condition, h->is_head);
  return choose(k, counts, x, f32(k, -INFINITY));
}

/* The words of this lane's head, candidates first: -inf what has no score. */
static void candidate_scores(struct ir *k, const struct picker *h, const struct candidates *c,
                             const struct row_words *w, val *x) {
  const int low = (1 << h->of.bits) - 1;
  val mask[MAX_WORDS];
  for (int r = 0; r < h->of.rounds; r++)
    mask[r] = shift_right(k, c->scored[r], add(k, h->place, mul_const(k, h->row, h->of.places)));
  for (int i = 0; i < h->of.words; i++) {
    const int64_t bit = (int64_t)1 << ((i & low) << (WARP_BITS - h->of.bits));
    val scored = is_ne(k, bit_and(k, mask[i >> h->of.bits], i32(k, (int32_t)bit)), i32(k, 0));
    x[i] = counted(k, h, scored, w->score[i]);
  }
}

static void other_scores(struct ir *k, const struct picker *h, const struct pick_row *row,
                         const struct row_words *w, val *x) {
  val previous = h->is_first;
  if (!h->a->plan->previous)
    previous = both(k, previous, pick_is_forced(k, h->a, row, add_const(k, row->own, -1)));
  if (h->of.places == 1) {
    x[0] = counted(k, h, previous, w->other[0]);
    x[1] = counted(k, h, h->is_first, w->other[1]);
  } else {
    val near = either(k, previous, is_eq(k, h->place, i32(k, 1)));
    x[0] = counted(k, h, near, w->other[0]);
  }
  if (has_sink(h->a))
    x[others_of(h) - 1] = counted(k, h, h->is_first, w->other[others_of(h) - 1]);
}

/* Parts [words] of the lane's head -> of all heads, [rounds]. The same tree for each candidate. */
static void over_heads(struct ir *k, const struct picker *h, val *x) {
  bool sums = h->a->plan->reduce == REDUCE_MASS;
  const int words = h->of.rounds << h->of.bits;
  for (int i = h->of.words; i < words; i++)
    x[i] = f32(k, 0);
  for (int lanes = WARP / 2, step = (1 << h->of.bits) / 2; lanes >= h->of.places * h->of.rows;
       lanes /= 2, step /= 2) {
    val upper = is_ne(k, bit_and(k, h->a->lanes.lane, i32(k, lanes)), i32(k, 0));
    for (int i = 0; i < words; i += 1 << h->of.bits)
      for (int j = i; j < i + (step > 0 ? step : 1); j++) {
        val mine = step > 0 ? choose(k, upper, x[j + step], x[j]) : x[j];
        val other = warp_across(k, step > 0 ? choose(k, upper, x[j], x[j + step]) : x[j], lanes);
        x[j] = sums ? add(k, mine, other) : maximum(k, mine, other);
      }
  }
  for (int r = 0; r < h->of.rounds; r++)
    x[r] = x[r << h->of.bits];
}

/* ---- lists ---- */

static void put_rest(struct ir *k, const struct picker *h, const struct pick_row *row, val count,
                     val visible) {
  pick_put_rest(k, h->a, row, count, visible, h->within, WARP / h->of.rows);
}

/* How many keys of the row are greater than |key|; |ties|: or equal, of a candidate before. */
static val rank_of(struct ir *k, const struct picker *h, val key, bool ties) {
  val count[2] = {i32(k, 0), i32(k, 0)}, greater = add_const(k, key, 1);
  for (int j = 0; j < h->a->candidates; j += QUAD) {
    val four = load(k, k->i32x4, at_const(k, h->keys, j * WORD), QUAD * WORD);
    for (int i = j; i < j + QUAD && i < h->a->candidates; i++) {
      val least = ties ? choose(k, is_lt(k, i32(k, i), h->candidate), key, greater) : greater;
      count[i % 2] = add_if_uge(k, count[i % 2], element(k, four, i - j, k->i32), least);
    }
  }
  return add(k, count[0], count[1]);
}

/* Lanes of the row that are among the best, as bits. */
static val best_lanes(struct ir *k, const struct picker *h, val key, val is_one) {
  val keep = i32(k, h->a->plan->keep);
  val present = both(k, is_one, is_ne(k, key, i32(k, BEST_ABSENT)));
  val best = both(k, present, is_lt(k, rank_of(k, h, key, false), keep));
  struct var mask = var_init(k, bit_and(k, warp_ballot(k, best), h->members));
  val too_many = is_lt(k, keep, count_bits(k, get(k, mask)));
  IF (k, is_ne(k, warp_ballot(k, too_many), i32(k, 0))) {
    best = both(k, present, is_lt(k, rank_of(k, h, key, true), keep));
    set(k, mask, bit_and(k, warp_ballot(k, best), h->members));
  }
  return get(k, mask);
}

/* One round: all candidates of the rows in lanes. */
static void put_lanes(struct ir *k, const struct picker *h, const struct pick_row *row,
                      const struct candidates *c, val is_scored, val key, val part) {
  const int copies = (h->of.heads >> h->of.bits) - 1, distance = h->of.places * h->of.rows;
  val repeats = bit_and(k, h->a->lanes.lane, i32(k, copies * distance));
  val is_one =
      both(k, is_eq(k, repeats, i32(k, 0)), is_lt(k, h->candidate, i32(k, h->a->candidates)));
  IF (k, is_one) {
    store(k, key, at(k, h->keys, mul_const(k, h->candidate, WORD)), WORD);
  }
  warp_sync(k);
  val mask = best_lanes(k, h, key, is_one);
  val bit = bit_and(k, shift_right(k, mask, h->a->lanes.lane), i32(k, 1));
  IF (k, both(k, is_scored, is_ne(k, bit, i32(k, 0)))) {
    val worth = choose(k, c->forced[0], f32(k, INFINITY), part);
    pick_put(k, row, count_below(k, &h->a->lanes, mask), c->leaf[0], worth);
  }
  val count = choose(k, is_scored, count_bits(k, mask), i32(k, h->a->plan->keep));
  put_rest(k, h, row, count, i32(k, 0));
}

static void put_rounds(struct ir *k, const struct picker *h, const struct pick_row *row,
                       const val *key) {
  for (int r = 0; r < h->of.rounds; r++) {
    val candidate = add_const(k, h->candidate, WARP * r);
    IF (k, is_lt(k, candidate, i32(k, h->a->candidates))) {
      store(k, key[r], at(k, h->keys, mul_const(k, candidate, WORD)), WORD);
    }
  }
  pick_put_keys(k, h->a, row, h->keys);
}

static void choose_best(struct ir *k, const struct picker *h, const struct pick_row *row,
                        const struct row_words *w, val is_scored) {
  struct candidates c;
  val x[MAX_WORDS + MAX_OTHERS], key[MAX_WORDS];
  look_up(k, h, row, w, &c);
  candidate_scores(k, h, &c, w, x);
  if (others_of(h) > 0)
    other_scores(k, h, row, w, x + h->of.words);
  const struct pick_head head = {
      .words = h->of.words,
      .others = others_of(h),
      .places = h->of.places,
      .is_head = h->of.heads == h->a->plan->group ? (val){0} : h->is_head,
      .members = h->members,
  };
  pick_parts(k, &head, x);
  over_heads(k, h, x);
  for (int r = 0; r < h->of.rounds; r++) {
    val key_of_part = bit_or(k, bits_of(k, x[r]), i32(k, INT32_MIN)); /* best_key of x >= 0 */
    key[r] = choose(k, c.forced[r], i32(k, BEST_FORCED), key_of_part);
    key[r] = choose(k, c.visible[r], key[r], i32(k, BEST_ABSENT));
  }
  warp_sync(k); /* keys of the row before have been read */
  if (h->of.rounds == 1)
    put_lanes(k, h, row, &c, is_scored, key[0], x[0]);
  else
    put_rounds(k, h, row, key);
}

/* The row of |query|, of which lane |lane| found out what is not alike for all. */
static struct pick_row row_of_lane(struct ir *k, const struct pick *a, const struct pick_row *mine,
                                   val query, val lane) {
  struct pick_row row = {.row = sequence_row(k, query, a->kv_head)};
  row.own = warp_read(k, mine->own, lane);
  row.visible = add_const(k, row.own, 1);
  row.keys = a->plan->n_always > 0 ? warp_read(k, mine->keys, lane) : (val){0};
  row.kept = at_row(k, ARG(kept), row.row, i32(k, a->plan->keep * WORD));
  pick_row_lists(k, a, &row, warp_read(k, mine->list, lane));
  return row;
}

void pick_by_heads(struct ir *k, const struct pick *a, int rows) {
  struct picker h = picker_new(k, a);
  assert(rows <= WARP && rows % h.of.rows == 0);
  val first = add(k, a->first, mul_const(k, a->lanes.warp, rows));
  val end = smin(k, add_const(k, first, rows), a->end);
  IF (k, is_lt(k, first, end)) {
    val last = add_const(k, end, -1), mine = add(k, first, h.row);
    struct row_vars next = row_vars_new(k, &h);
    request(k, &h, &next, sequence_row(k, smin(k, mine, last), a->kv_head));
    val asks = smin(k, add(k, first, a->lanes.lane), last);
    struct pick_row known = pick_row_of(k, a, asks);
    FOR_STEP(k, base, first, end, i32(k, h.of.rows)) {
      struct row_words w = row_words_get(k, &h, &next);
      val query = add(k, base, h.row), behind = add_const(k, query, h.of.rows);
      request(k, &h, &next, sequence_row(k, smin(k, behind, last), a->kv_head));
      query = smin(k, query, last);
      struct pick_row row = row_of_lane(k, a, &known, query, sub(k, query, first));
      val is_scored = is_lt(k, i32(k, a->plan->keep), row.visible);
      IF (k, is_ne(k, warp_ballot(k, is_scored), i32(k, 0))) {
        choose_best(k, &h, &row, &w, is_scored);
      }
      IF (k, bit_not(k, is_scored)) {
        put_rest(k, &h, &row, i32(k, 0), row.visible);
      }
    }
  }
}
