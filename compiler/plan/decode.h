/* decode.h: how the kernel decode takes a query: its warps share the levels of a walk and score its
   leaves, or without a walk the leaves. In go the facts of a selection; plan and kernel both ask
   here.

   A step of the walk reads several depths at once: the candidates, their children, and theirs, so
   that one wait for memory is enough for all. Depth i of a step has up to K g^(i+1) nodes, in slots
   of their own; a warp takes |tiles| products of eight rows of them. */
#ifndef PISA_PLAN_DECODE_H
#define PISA_PLAN_DECODE_H

#include "compiler/plan/walk.h"
#include "runtime/abi.def"

enum {
  DECODE_MAX_DEPTHS =
      3, /* of a step: one more reads twice as much as all before; at batch 64 slower */
  DECODE_QUICK_TILES = 4,          /* of a warp: more take longer than they wait for memory */
  DECODE_LANES = 32,               /* candidates that one warp chooses from, one a lane */
  DECODE_TOTAL_BYTES = 256,        /* of a warp without a walk: 32 rows, two numbers each */
  DECODE_PAD = 4,                  /* keys behind the last candidate: absent */
  DECODE_SHARE_READERS = 8,        /* warps of a CTA that attend to leaves before they are chosen */
  DECODE_SHARE_ARRIVED_BYTES = 32, /* three mbarriers, and padding */
  DECODE_SHARE_SPLITS = 2          /* CTAs of a cluster that shares leaves, at least */
};

static inline struct plan_pyramid decode_walk(const struct plan_pyramid *p) {
  struct plan_pyramid walk = *p;
  walk.start_nodes = p->decode_start_nodes;
  walk.clustered = false;
  return walk;
}

/* 16, or as many as have registers for the operands of a query. With 8 a step of batch 1 is 2 %
   faster at 32768 tokens, but a selection of batch 64 takes 4 % longer (H200). */
static inline int decode_warps(const struct plan_pyramid *p) {
  const int query = (p->group + 15) / 16 * p->head_dim / 4;
  return query <= 16 ? 16 : 8;
}

/* Whether decode begins while the append of the same call runs: a walk, which has its query to find
   and means to ask for before it reads those that append writes. */
static inline bool decode_begins_early(const struct plan_pyramid *p) {
  return !p->flat;
}

/* Whether all that append writes is of forced nodes and reads of leaves by their keys need none of
   it. The new tokens, a leaf's at most, are in the last two leaves. A node of theirs that a query
   sees has its own leaf or the previous one. */
static inline bool decode_forces_new(const struct plan_pyramid *p) {
  return !p->flat && p->causal && p->current && p->previous;
}

/* Whether decode need not wait for that append before its end: nothing that it ranks or attends to
   depends on what that writes. Keys of forced nodes do not count, and without mass no other's
   depends on them. */
static inline bool decode_overlaps(const struct plan_pyramid *p) {
  return decode_forces_new(p) && !plan_is_mass(p);
}

/* Whether one warp chooses from the candidates of K nodes. */
static inline bool decode_has_few(const struct plan_pyramid *p) {
  return p->keep * p->children <= DECODE_LANES;
}

/* How warps share a step. */
struct decode_tiling {
  int tiles;                    /* of a product of eight rows each, of a warp */
  int parts[DECODE_MAX_DEPTHS]; /* so many products of each depth */
};

struct decode_room {
  int depths;                   /* of a step, at most */
  struct decode_tiling deep;    /* of a step of as many */
  struct decode_tiling shallow; /* of a step of fewer */
  int slots[DECODE_MAX_DEPTHS]; /* the first of each depth */
  int first_tiles;              /* of a warp, where the first level is scored */
  int kept, places;             /* words: of nodes; of those kept of a depth, two each at most */
  int candidates, scores;       /* words: as walk_room's */
  int rank_parts;               /* of the candidates a rank of many counts, by a warp each */
  int ranks;                    /* words: of many candidates */
  int bytes;
};

/* Steps of |tiles| products that |depths| depths are. */
static inline int decode_parts(const struct plan_pyramid *p, int depths, int tiles) {
  int parts = 0, rows = p->keep * walk_parent_rows(p);
  for (int i = 0; i < depths; i++, rows *= p->children)
    parts += (rows + 8 * tiles - 1) / (8 * tiles);
  return parts;
}

/* As registers hold logits. */
static inline int decode_max_tiles(const struct plan_pyramid *p) {
  return p->score == SCORE_MEAN ? 4 : 8;
}

static inline int decode_depths(const struct plan_pyramid *p) {
  const int warps = decode_warps(p), chosen = p->decode_depths;
  const int most = chosen > 0 && chosen < DECODE_MAX_DEPTHS ? chosen : DECODE_MAX_DEPTHS;
  int depths = 1;
  while (decode_has_few(p) && depths < most &&
         decode_parts(p, depths + 1, decode_max_tiles(p)) <= warps)
    depths++;
  return depths;
}

/* Of |depths| depths: as few tiles as keep all parts at once, but |least|. */
static inline struct decode_tiling decode_tiling_of(const struct plan_pyramid *p, int depths,
                                                    int least) {
  struct decode_tiling t = {.tiles = least};
  while (decode_parts(p, depths, t.tiles) > decode_warps(p) && t.tiles < decode_max_tiles(p))
    t.tiles *= 2;
  for (int i = 0; i < depths; i++)
    t.parts[i] = decode_parts(p, i + 1, t.tiles) - (i > 0 ? decode_parts(p, i, t.tiles) : 0);
  return t;
}

static inline int decode_groups(int candidates) { /* of 32 */
  return (candidates + 31) / 32;
}

/* Of a walk: see decode_walk. */
static inline struct decode_room decode_room_of(const struct plan_pyramid *walk) {
  const int warps = decode_warps(walk), rows = walk_parent_rows(walk);
  const struct walk_room w = walk_room_of(walk);
  struct decode_room r = {.depths = decode_depths(walk)};
  r.deep = r.shallow = decode_tiling_of(walk, r.depths, 1);
  if (r.depths > 1 && r.deep.tiles > DECODE_QUICK_TILES)
    r.shallow = decode_tiling_of(walk, r.depths - 1, 1);
  int slots = 0;
  for (int i = 0; i < r.depths; i++) {
    r.slots[i] = slots;
    slots += r.deep.parts[i] * r.deep.tiles * 8 * walk->children / rows;
  }
  const int most = 8 / (walk->score == SCORE_MEAN ? 2 : 1);
  r.first_tiles = 1;
  while (2 * r.first_tiles <= most && w.parents * rows > 8 * r.first_tiles * warps)
    r.first_tiles *= 2;
  r.kept = w.kept;
  r.places = 2 * walk_round_up(walk->keep, DECODE_LANES);
  r.candidates = walk_round_up(w.candidates > slots ? w.candidates : slots, 4) + DECODE_PAD;
  r.scores = plan_is_mass(walk) ? walk_round_up(r.candidates * (walk->group | 1), 4) : 0;
  const int groups = decode_groups(w.candidates);
  r.rank_parts = 1;
  while (2 * r.rank_parts * groups <= warps && 2 * r.rank_parts <= 8 * groups) /* of whole quads */
    r.rank_parts *= 2;
  const bool many = !decode_has_few(walk) || walk_starts_dense(walk);
  r.ranks = many ? groups * 32 * r.rank_parts : 0;
  r.bytes = 4 * (r.kept + r.places + 2 * DECODE_LANES + r.candidates + r.scores + r.ranks);
  return r;
}

static inline int decode_select_bytes(const struct plan_pyramid *p) {
  const struct plan_pyramid walk = decode_walk(p);
  const int folded = p->score == SCORE_MEAN && p->reduce == REDUCE_SUM;
  const int queries = pisa_flat_queries(p->group, folded) / PISA_FLAT_WARPS;
  if (p->flat)
    return decode_warps(p) * (pisa_flat_unit_bytes(queries, p->keep) + DECODE_TOTAL_BYTES);
  return decode_room_of(&walk).bytes;
}

/* ---- decode_attend ---- */

enum {
  DECODE_ATTEND_MAX_SPLITS = PISA_DECODE_MAX_SPLITS, /* of a list */
  DECODE_ATTEND_SLOT_BYTES = 32 * (8 + 2) * 4        /* eight columns, top and sum of each lane */
};

/* Pieces of 8 rows and 32 columns that a query's o is. */
static inline int decode_attend_numbers(const struct plan_pyramid *p) {
  const int shares = (p->group + 15) / 16, rows = p->group <= 8 ? 1 : 2;
  return shares * rows * p->head_dim / 32;
}

/* Of a warp: 8 or 16 rows of o, their maxima and sums, padded to 16 bytes. */
static inline int decode_attend_part_bytes(const struct plan_pyramid *p) {
  const int rows = p->group <= 8 ? 8 : 16, padded_ends = 4;
  return rows * 4 * (p->head_dim + padded_ends);
}

/* Parts of all warps; behind them what the splits of a list send. */
static inline int decode_attend_bytes(const struct plan_pyramid *p, int warps) {
  const int slots = p->dense ? 0 : decode_attend_numbers(p) + DECODE_ATTEND_MAX_SPLITS - 1;
  return warps * decode_attend_part_bytes(p) + slots * DECODE_ATTEND_SLOT_BYTES;
}

/* Whether the CTAs of a cluster share leaves (decode_share.c): their keys are what is read, one
   warp chooses from those of K parents, and half of the warps score them, half attend. */
static inline bool decode_shares(const struct plan_pyramid *p) {
  const struct plan_pyramid walk = decode_walk(p);
  return p->attends && !p->flat && walk_reads_keys(&walk) && decode_has_few(p) && p->group <= 16 &&
         decode_warps(p) == 2 * DECODE_SHARE_READERS;
}

/* Of a warp that chooses: keys of lanes, with mass worths too. */
static inline int decode_share_warp_bytes(const struct plan_pyramid *p) {
  return 4 * DECODE_LANES * (plan_is_mass(p) ? 2 : 1);
}

/* Of the kernel decode, whose selection and attention take turns, or where leaves are shared lie
   side by side. */
static inline int decode_bytes(const struct plan_pyramid *p) {
  const int select = decode_select_bytes(p);
  const int attend = p->attends ? decode_attend_bytes(p, decode_warps(p)) : 0;
  if (decode_shares(p))
    return attend + DECODE_SHARE_ARRIVED_BYTES + decode_warps(p) * decode_share_warp_bytes(p) +
           select;
  return select > attend ? select : attend;
}

#endif
