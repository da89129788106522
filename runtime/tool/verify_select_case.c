/* verify_select_case.c: the shapes and inputs `pisa verify` tries on packs that select blocks. A
   const table; --tokens replaces the plain ones. Rooms of packs with pages are rounded up to whole
   pages. */
#include <string.h>

#include "runtime/tool/verify_select.h"

#define PLAIN(tokens) .name = "random", .batch = 1, .n_q = (tokens), .n_k = (tokens)
#define SHAPED(title, sequences, queries, keys)                                                    \
  .name = (title), .batch = (sequences), .n_q = (queries), .n_k = (keys)

static const int32_t of_every_kind[] = {0, 1, 63, 700, 1000}, /* of 1000 */
    out_of_range[] = {-5, 2000, 513},                         /* of 640 */
    packed[] = {0, 1, 1, 600, 607, 1120}, /* 1, 0, 599, 7 and 513 tokens, none begins a leaf */
    chunks[] = {0, 1, 1, 31, 38, 100},    /* queries at the ends of those */
    growing[] = {520, 84, 20},            /* of 576: across 512, 64 and from none */
    chunk_growth[] = {271, 130, 65},      /* of 300: by sevens across 256 and 128 */
    long_growth[] = {4098, 2049},         /* of 4200 */
    longest_growth[] = {65537};

const struct select_case select_cases[] = {
    /* lengths: a token, around a leaf, around K leaves, around a level */
    {PLAIN(1), .quick = true},
    {PLAIN(63)},
    {PLAIN(64)},
    {PLAIN(65), .variants = true, .quick = true},
    {PLAIN(511)},
    {PLAIN(512)},
    {PLAIN(513), .kv_heads = 1, .variants = true},
    {PLAIN(575), .kv_heads = 1, .quick = true},
    {PLAIN(4095), .kv_heads = 1},
    {PLAIN(4097), .kv_heads = 1},
    {PLAIN(65536), .kv_heads = 1},
    {SHAPED("below", 1, 400, 400), .below = true, .variants = true, .quick = true},
    {SHAPED("below_lengths", 3, 640, 640), .lengths = out_of_range, .below = true},
    /* sequences: batches, their own lengths, packed ones, queries at the end of many keys */
    {SHAPED("batch", 2, 600, 600), .layout = VERIFY_BNHD, .pyramid = true},
    {SHAPED("gapped", 3, 333, 333), .layout = VERIFY_GAPPED},
    {SHAPED("lengths", 5, 200, 1000), .lengths = of_every_kind},
    {SHAPED("lengths_clamped", 3, 150, 640), .lengths = out_of_range, .variants = true,
     .quick = true},
    {SHAPED("packed", 5, 1120, 1120), .q_starts = packed, .k_starts = packed},
    {SHAPED("packed_chunks", 5, 100, 1120), .q_starts = chunks, .k_starts = packed,
     .layout = VERIFY_BNHD, .pyramid = true, .quick = true},
    {SHAPED("chunk", 2, 130, 2000), .layout = VERIFY_BNHD, .variants = true},
    {SHAPED("more_queries", 2, 300, 130)}, /* the first ones see nothing */
    {SHAPED("one_query", 3, 1, 1500), .pyramid = true},
    {SHAPED("scale", 1, 700, 700), .scale = 0.3F},
    /* inputs */
    {SHAPED("normal", 1, 1024, 1024), .kv_heads = 1, .input = SELECT_NORMAL},
    {SHAPED("large", 1, 900, 900), .kv_heads = 1, .input = SELECT_LARGE},
    {SHAPED("copies", 1, 400, 2048), .kv_heads = 1, .input = SELECT_COPIES, .variants = true},
    {SHAPED("constant", 1, 600, 600), .kv_heads = 1, .input = SELECT_CONSTANT, .quick = true},
    {SHAPED("needle", 1, 300, 8000), .input = SELECT_NEEDLE},
    {SHAPED("nan", 1, 600, 600), .kv_heads = 1, .input = SELECT_NAN},
    /* decode: token by token, several at once, only whole nodes, long ones */
    {SHAPED("decode", 3, 1, 576), .lengths = growing, .steps = 20, .n_new = 1},
    {SHAPED("decode_short", 1, 1, 130), .steps = 3, .n_new = 1, .variants = true, .quick = true},
    {SHAPED("decode_chunk", 3, 3, 300), .lengths = chunk_growth, .steps = 3, .n_new = 7,
     .layout = VERIFY_BNHD},
    {SHAPED("decode_completed", 3, 1, 576), .lengths = growing, .steps = 20, .n_new = 1,
     .completed = true},
    {SHAPED("decode_large", 1, 1, 1500), .steps = 2, .n_new = 2, .input = SELECT_LARGE},
    {SHAPED("decode_copies", 2, 1, 1500), .steps = 2, .n_new = 1, .input = SELECT_COPIES},
    {SHAPED("decode_nan", 1, 3, 700), .steps = 1, .n_new = 1, .input = SELECT_NAN},
    {SHAPED("decode_many", 8, 2, 1100), .steps = 2, .n_new = 2, .layout = VERIFY_GAPPED},
    {SHAPED("decode_long", 2, 1, 4200), .lengths = long_growth, .steps = 3, .n_new = 1,
     .variants = true},
    {SHAPED("decode_longest", 1, 1, 65600), .lengths = longest_growth, .steps = 2, .n_new = 1,
     .kv_heads = 1}};
const int select_n_cases = sizeof select_cases / sizeof *select_cases;

bool select_has_case(const char *name) {
  for (int i = 0; i < select_n_cases; i++)
    if (strcmp(name, select_cases[i].name) == 0)
      return true;
  return false;
}
