/* pyramid.c: in goes a spec that selects blocks; out come the facts and launches of its kernels. */
#include "compiler/plan/blocks.h"
#include "compiler/plan/decode.h"
#include "compiler/plan/plan.h"
#include "compiler/plan/walk.h"
#include "runtime/abi.def"

enum { TILE_ROWS = 64 }; /* of wgmma */

/* Heads of a query are a power of two of a tile's rows; of more than 16, 16 come at a time. */
int plan_query_tile(const struct spec *spec) {
  enum { TILE_HEADS = 16 };
  int heads = 1;
  while (heads < TILE_HEADS && heads < spec->shape.heads / spec->shape.kv_heads)
    heads *= 2;
  return TILE_ROWS / heads;
}

const char *plan_why_not_clustered(const struct spec *spec) {
  int keys = spec->pyramid.leaf * spec->pyramid.group; /* of a parent: one n of wgmma */
  if (spec->route.score != SCORE_LSE)
    return "clusters exist for score lse; other scores are taken in the walk";
  if (spec->shape.mask != MASK_CAUSAL || !(spec->route.always_blocks & ALWAYS_CURRENT))
    return "clusters are scored without a mask: they need mask causal and always current";
  if (keys != 64 && keys != 128)
    return "clusters exist for parents of 64 or 128 keys: leaf times group";
  if (spec->route.start_nodes > spec->route.keep)
    return "clusters exist for walks whose first level is kept whole: start at most keep, or root";
  return NULL;
}

/* Clusters where they can be built; what is written is built, or limits_of refuses it. */
static bool is_clustered(const struct spec *spec) {
  if (spec->route.kind != ROUTE_PYRAMID || !spec->phases.prefill)
    return false;
  return spec->leaf_stage == LEAF_CLUSTERED ||
         (spec->leaf_stage == LEAF_AUTOMATIC && !plan_why_not_clustered(spec));
}

static int decode_start(const struct spec *spec) {
  int nodes = spec->route.decode_start_nodes;
  return nodes == 0 ? spec->route.start_nodes : nodes > 0 ? nodes : 0;
}

/* What the spec says, without launches. */
static struct plan_pyramid facts(const struct spec *spec) {
  struct plan_pyramid p = {
      .type = spec->shape.type,
      .head_dim = spec->shape.head_dim,
      .group = spec->shape.heads / spec->shape.kv_heads,
      .causal = spec->shape.mask == MASK_CAUSAL,
      .leaf = spec->pyramid.leaf,
      .children = spec->pyramid.group,
      .keep = spec->route.keep,
      .flat = spec->route.kind == ROUTE_FLAT,
      .start_nodes = spec->route.start_nodes,
      .decode_start_nodes = decode_start(spec),
      .score = spec->route.score,
      .reduce = spec->route.reduce,
      .previous = spec->route.always_blocks & ALWAYS_PREVIOUS,
      .current = spec->route.always_blocks & (ALWAYS_CURRENT | ALWAYS_DIAGONAL),
      .page = spec->pages.present ? spec->pages.size : 0,
      .clustered = is_clustered(spec),
      .prefill = spec->phases.prefill,
      .decode = spec->phases.decode,
      .attends = true,
      .flat_below = spec->below.kind == BELOW_FLAT,
  };
  p.n_always = plan_always(spec, p.always);
  p.query_tile = plan_query_tile(spec);
  p.span = pisa_span_leaves(p.children);
  return p;
}

/* A thread for every 8 columns of 16 leaves; sums of a span's leaves. */
static struct plan_kernel plan_build(const struct plan_pyramid *p) {
  return (struct plan_kernel){
      .entry = "pisa_pyramid",
      .threads = 16 * p->head_dim / 8,
      .smem_bytes = p->span * p->head_dim * 4,
  };
}

/* Sums of as many spans as go up whole levels and fit. */
static struct plan_kernel plan_top(const struct plan_pyramid *p) {
  const int width = p->children == 8 ? 64 : 256;
  return (struct plan_kernel){
      .entry = "pisa_pyramid_top",
      .threads = 512,
      .smem_bytes = width * p->head_dim * 4,
  };
}

/* The sums that append goes on from, of a sequence and key head. */
static struct plan_kernel plan_append(const struct plan_pyramid *p) {
  return (struct plan_kernel){
      .entry = "pisa_append",
      .threads = 128,
      .smem_bytes = PISA_OPEN_LEVELS * p->head_dim * 4,
  };
}

/* What a scan over keys, or for parts of a softmax, needs between its loops. */
enum { FLAT_SPILLS = 64, DECODE_SPILLS = 96 };

/* A scan of all leaves: every warp keeps the best ones of its own queries. */
static struct plan_kernel plan_flat(const struct plan_pyramid *p) {
  int folded = p->score == SCORE_MEAN && p->reduce == REDUCE_SUM;
  int queries = pisa_flat_queries(p->group, folded) / PISA_FLAT_WARPS;
  return (struct plan_kernel){
      .entry = "pisa_flat",
      .threads = 32 * PISA_FLAT_WARPS,
      .smem_bytes = PISA_FLAT_WARPS * pisa_flat_unit_bytes(queries, p->keep),
      .spill_budget = p->score == SCORE_MEAN && !plan_is_mass(p) ? 0 : FLAT_SPILLS,
  };
}

/* What is needed after the walk over keys, but not in its loop, which has all other registers. */
enum { ATTEND_SPILLS = 64 };

static struct plan_kernel plan_attend_blocks(const struct plan_pyramid *p) {
  enum { TILE_THREADS = 128 };
  const bool tiles = blocks_in_tiles(p);
  return (struct plan_kernel){
      .entry = "pisa_attend_blocks",
      .threads = tiles ? TILE_THREADS : 256,
      .smem_bytes = tiles ? blocks_tile_bytes(p, TILE_THREADS) : 0,
      .spill_budget = ATTEND_SPILLS,
  };
}

/* Warps of two CTAs an SM, or with D 128 of one, by their registers. */
static struct plan_kernel plan_decode_attend(const struct plan_pyramid *p) {
  enum { WARPS = 8 };
  return (struct plan_kernel){
      .entry = "pisa_decode_attend",
      .threads = 32 * WARPS,
      .smem_bytes = decode_attend_bytes(p, WARPS),
      .spill_budget = ATTEND_SPILLS,
  };
}

/* A row of running sums. */
static struct plan_kernel plan_cluster(void) {
  return (struct plan_kernel){.entry = "pisa_cluster", .threads = 1024, .smem_bytes = 256};
}

/* Warpgroups with two stages of key tiles each, as many as their registers allow: two accumulators
   of half a tile, the queries and the next ones. Beside the stages barriers, a row of running sums
   and items of all segments, 4096 of them. What is spilled is needed once an item, or by rows that
   are done again. */
static struct plan_kernel plan_leaf_score(const struct plan_pyramid *p) {
  const int groups = p->head_dim <= 64 ? 4 : 3;
  const int stages = groups * 2 * p->leaf * p->children * p->head_dim * 2;
  return (struct plan_kernel){
      .entry = "pisa_leaf_score",
      .threads = 128 * groups,
      .smem_bytes = stages + groups * 2 * 8 + 128 + 4097 * 4,
      .spill_budget = p->head_dim <= 64 ? 96 : 256,
  };
}

/* Once a row, with parts of a softmax. */
enum { WALK_SPILLS = 16 };

/* Warps that take rows by themselves: as many as registers and shared memory have room for, 20 at
   most (of 16, 20 and 24 the fastest at 256K tokens, G 16, D 64, K 8). */
static struct plan_kernel plan_walk(const struct plan_pyramid *p, const struct target *target) {
  const int query = (p->group + 15) / 16 * p->head_dim / 4; /* registers of its A operands */
  const bool small = query <= 16 && walk_has_few(p);
  int warps = small && !walk_reads_keys(p) ? 20 : small ? 16 : query <= 32 ? 12 : 8;
  const int bytes = walk_room_of(p).bytes, room = target->smem_bytes / bytes;
  warps = room < warps ? room : warps;
  return (struct plan_kernel){
      .entry = "pisa_walk",
      .threads = 32 * warps,
      .smem_bytes = warps * bytes,
      .spill_budget = plan_is_mass(p) ? WALK_SPILLS : 0,
  };
}

/* A thread ranks candidates of its row and keeps its list, rows of 16 bytes and 16 between them; or
   a warp has the keys of all candidates. */
static struct plan_kernel plan_pick(const struct plan_pyramid *p) {
  enum { THREADS = 128, WARPS = 8 };
  const int candidates = p->keep * p->children, list = (p->keep + 3) / 4 * 4;
  struct plan_kernel kernel = {.entry = "pisa_pick"};
  if (pisa_pick_by_thread(p->keep, p->children, plan_is_mass(p))) {
    kernel.threads = THREADS;
    kernel.smem_bytes = THREADS * 4 * (2 * list + 4);
  } else {
    kernel.threads = 32 * WARPS;
    kernel.smem_bytes = WARPS * 4 * ((candidates + 31) / 32 * 32);
  }
  return kernel;
}

/* Counters of a window of leaves, those of 1M tokens with 64 a leaf: one word each, or two. */
enum { CSR_LEAVES = 16384, CSR_COUNT_WORDS = 1, CSR_FILL_WORDS = 2 };

static struct plan_kernel plan_csr_count(void) {
  return (struct plan_kernel){
      .entry = "pisa_csr_count", .threads = 1024, .smem_bytes = 4 * CSR_LEAVES * CSR_COUNT_WORDS};
}

/* A row of running sums. */
static struct plan_kernel plan_csr_scan(void) {
  return (struct plan_kernel){.entry = "pisa_csr_scan", .threads = 1024, .smem_bytes = 128};
}

/* Up to four slots of 32 queries a thread. */
static struct plan_kernel plan_csr_fill(const struct plan_pyramid *p) {
  return (struct plan_kernel){.entry = "pisa_csr_fill",
                              .threads = p->keep <= 16 ? 256 : 512,
                              .smem_bytes = 4 * CSR_LEAVES * CSR_FILL_WORDS};
}

/* A query a CTA: its walk, shared by the warps; then attention, by a cluster. */
static struct plan_kernel plan_decode(const struct plan_pyramid *p) {
  return (struct plan_kernel){
      .entry = "pisa_decode",
      .threads = 32 * decode_warps(p),
      .smem_bytes = decode_bytes(p),
      .spill_budget = p->group > 16 ? DECODE_SPILLS : ATTEND_SPILLS,
  };
}

/* What kernels are written for: head dimension 64, pairs of leaves of 64 keys, log-sum-exps, more
   than 8 heads (the walk for fewer spills some 60 bytes). */
static bool is_usual(const struct plan_pyramid *p) {
  return p->head_dim == 64 && p->group > 8 && p->group <= 16 && p->leaf == 64 && p->children == 2 &&
         p->keep <= 32 && p->score == SCORE_LSE && p->page == 0 && (p->flat || p->clustered);
}

/* Every other selection that can be asked for compiles too, where more numbers live at once than a
   thread has registers: these bytes of spills, at most, in a sweep over all of them. */
static void allow_spills(struct plan_pyramid *p) {
  if (is_usual(p))
    return;
  enum {
    BUILD = 64,
    WALK = 768,
    LEAF_SCORE = 512,
    FLAT = 512,
    DECODE = 768,
    ATTEND = 192,
    PICK = 768
  };
  const struct {
    struct plan_kernel *kernel;
    int bytes;
  } budgets[] = {
      {&p->build, BUILD},           {&p->walk, WALK},
      {&p->leaf_score, LEAF_SCORE}, {&p->flat_scan, FLAT},
      {&p->decode_select, DECODE},  {&p->decode_attend, ATTEND},
      {&p->attend_blocks, ATTEND},  {&p->pick, PICK},
  };
  for (unsigned i = 0; i < sizeof budgets / sizeof *budgets; i++)
    if (budgets[i].kernel->spill_budget < budgets[i].bytes)
      budgets[i].kernel->spill_budget = budgets[i].bytes;
}

/* A thread leaves eight columns, their maximum and their sum to another. */
static struct plan_kernel plan_decode_merge(void) {
  enum { THREADS = 512, THREAD_BYTES = 48 };
  return (struct plan_kernel){
      .entry = "pisa_decode_merge", .threads = THREADS, .smem_bytes = THREADS * THREAD_BYTES};
}

struct plan_pyramid plan_pyramid_choose(const struct spec *spec, const struct target *target) {
  struct plan_pyramid p = facts(spec);
  p.build = plan_build(&p);
  p.top = plan_top(&p);
  p.walk = plan_walk(&p, target);
  p.cluster = plan_cluster();
  p.scatter = (struct plan_kernel){.entry = "pisa_scatter", .threads = 256};
  p.leaf_score = plan_leaf_score(&p);
  p.pick = plan_pick(&p);
  p.flat_scan = plan_flat(&p);
  p.csr_count = plan_csr_count();
  p.csr_scan = plan_csr_scan();
  p.csr_fill = plan_csr_fill(&p);
  p.attend_blocks = plan_attend_blocks(&p);
  p.append = plan_append(&p);
  p.decode_select = plan_decode(&p);
  allow_spills(&p);
  return p;
}

struct plan_pyramid plan_decode_dense(const struct spec *spec) {
  struct plan_pyramid p = {
      .type = spec->shape.type,
      .head_dim = spec->shape.head_dim,
      .group = spec->shape.heads / spec->shape.kv_heads,
      .causal = true,
      .leaf = spec->blocks.key,
      .page = spec->pages.present ? spec->pages.size : 0,
      .decode = true,
      .attends = true,
      .dense = true,
  };
  p.decode_attend = plan_decode_attend(&p);
  p.decode_merge = plan_decode_merge();
  allow_spills(&p);
  return p;
}

int plan_pyramid_kernels(const struct plan_pyramid *p,
                         const struct plan_kernel *out[PLAN_PYRAMID_KERNELS]) {
  const struct {
    bool present;
    const struct plan_kernel *kernel;
  } kernels[] = {
      {p->prefill, &p->build},
      {p->prefill, &p->top},
      {p->prefill && !p->flat, &p->walk},
      {p->prefill && p->clustered, &p->cluster},
      {p->prefill && p->clustered, &p->scatter},
      {p->prefill && p->clustered, &p->leaf_score},
      {p->prefill && p->clustered, &p->pick},
      {p->prefill && (p->flat || p->flat_below), &p->flat_scan},
      {p->prefill, &p->csr_count},
      {p->prefill, &p->csr_scan},
      {p->prefill, &p->csr_fill},
      {p->prefill && p->attends, &p->attend_blocks},
      {p->decode && !p->dense, &p->append},
      {p->decode && !p->dense, &p->decode_select},
      {p->decode && p->dense, &p->decode_attend},
      {p->decode && p->dense, &p->decode_merge},
  };
  int n = 0;
  for (unsigned i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (kernels[i].present)
      out[n++] = kernels[i].kernel;
  return n;
}
