/* pick_thread.c: one row in the registers of one thread; see pick.h. Every pair of candidates is
   compared once: the rank of each is how many are before it. The list is put together in shared
   memory, at places that are known at run time, and leaves from there 16 bytes at a time. */
#include <math.h>

#include "compiler/kernels/best.h"
#include "compiler/kernels/pick.h"

enum { VECTOR = 4 };

/* Words of a row in shared memory: ids and worth, and four against bank conflicts. */
static int row_words(const struct plan_pyramid *plan) {
  return 2 * ((plan->keep + VECTOR - 1) / VECTOR * VECTOR) + VECTOR;
}

int pick_thread_bytes(const struct plan_pyramid *plan) {
  return plan->pick.threads * row_words(plan) * WORD;
}

/* |n| words of a row, 16 bytes at a time where rows are multiples of that. */
static void read_words(struct ir *k, val from, int n, val *word) {
  for (int i = 0; i < n; i += n % VECTOR ? 1 : VECTOR) {
    val there = at_const(k, from, i * WORD);
    if (n % VECTOR) {
      word[i] = load(k, k->i32, there, WORD);
      continue;
    }
    val four = load(k, k->i32x4, there, VECTOR * WORD);
    for (int z = 0; z < VECTOR; z++)
      word[i + z] = element(k, four, z, k->i32);
  }
}

static void write_words(struct ir *k, val to, int n, const val *word) {
  for (int i = 0; i < n; i += n % VECTOR ? 1 : VECTOR) {
    if (n % VECTOR)
      store(k, word[i], at_const(k, to, i * WORD), WORD);
    else
      store(k, pack4(k, word + i), at_const(k, to, i * WORD), VECTOR * WORD);
  }
}

static void write_list(struct ir *k, const struct pick *a, const struct pick_row *row,
                       const val *ids, const val *worth) {
  write_words(k, row->ids, a->plan->keep, ids);
  IF (k, bit_not(k, is_null_pointer(k, ARG(worth)))) {
    write_words(k, row->worth, a->plan->keep, worth);
  }
}

static void write_all(struct ir *k, const struct pick *a, const struct pick_row *row) {
  val ids[PISA_PICK_THREAD_CANDIDATES], worth[PISA_PICK_THREAD_CANDIDATES];
  for (int i = 0; i < a->plan->keep; i++) {
    val is_there = is_lt(k, i32(k, i), row->visible);
    ids[i] = choose(k, is_there, i32(k, i), i32(k, -1));
    worth[i] = bits_of(k, choose(k, is_there, f32(k, INFINITY), f32(k, -INFINITY)));
  }
  write_list(k, a, row, ids, worth);
}

/* Leaves and keys of all candidates. */
static void read_candidates(struct ir *k, const struct pick *a, const struct pick_row *row,
                            val *leaf, val *key) {
  const int g = a->plan->children, n = a->candidates;
  val parent[PISA_PICK_THREAD_CANDIDATES], score[PISA_PICK_THREAD_CANDIDATES];
  read_words(k, row->kept, a->plan->keep, parent);
  read_words(k, at_row(k, ARG(scores), row->row, i32(k, a->slots * WORD)), n, score);
  for (int i = 0; i < n; i++) {
    leaf[i] = add_const(k, mul_const(k, parent[i / g], g), i % g);
    val forced = pick_is_forced(k, a, row, leaf[i]);
    val ranked = choose(k, forced, i32(k, BEST_FORCED), best_key(k, float_of(k, score[i])));
    key[i] = choose(k, is_ugt(k, row->visible, leaf[i]), ranked, i32(k, BEST_ABSENT));
  }
}

static void rank_all(struct ir *k, int n, const val *key, val *rank) {
  for (int i = 0; i < n; i++)
    rank[i] = i32(k, n - 1 - i); /* all behind it, less those it is before */
  for (int i = 0; i < n; i++)
    for (int j = i + 1; j < n; j++) {
      val before = widen_bool(k, is_uge(k, key[i], key[j]));
      rank[j] = add(k, rank[j], before);
      rank[i] = sub(k, rank[i], before);
    }
}

static void choose_best(struct ir *k, const struct pick *a, const struct pick_row *row) {
  const int n = a->candidates, keep = a->plan->keep;
  val leaf[PISA_PICK_THREAD_CANDIDATES], key[PISA_PICK_THREAD_CANDIDATES],
      rank[PISA_PICK_THREAD_CANDIDATES];
  read_candidates(k, a, row, leaf, key);
  rank_all(k, n, key, rank);
  val mine = at(k, k->smem, mul_const(k, thread_index(k), row_words(a->plan) * WORD));
  const int worth_offset = (row_words(a->plan) - VECTOR) / 2 * WORD;
  struct var count = var_init(k, i32(k, 0));
  for (int i = 0; i < n; i++) {
    val is_there = is_ne(k, key[i], i32(k, BEST_ABSENT));
    IF (k, both(k, is_there, is_lt(k, rank[i], i32(k, keep)))) {
      val to = at(k, mine, mul_const(k, get(k, count), WORD));
      store(k, leaf[i], to, WORD);
      store(k, bits_of(k, pick_worth(k, a, key[i])), at_const(k, to, worth_offset), WORD);
      set(k, count, add_const(k, get(k, count), 1));
    }
  }
  val ids[PISA_PICK_THREAD_CANDIDATES], worth[PISA_PICK_THREAD_CANDIDATES];
  read_words(k, mine, keep, ids);
  read_words(k, at_const(k, mine, worth_offset), keep, worth);
  for (int i = 0; i < keep; i++) {
    val is_there = is_lt(k, i32(k, i), get(k, count));
    ids[i] = choose(k, is_there, ids[i], i32(k, -1));
    worth[i] = choose(k, is_there, worth[i], bits_of(k, f32(k, -INFINITY)));
  }
  write_list(k, a, row, ids, worth);
}

void pick_by_thread(struct ir *k, const struct pick *a, val query) {
  struct pick_row row = pick_row_of(k, a, query);
  IF (k, is_le(k, row.visible, i32(k, a->plan->keep))) {
    write_all(k, a, &row);
  }
  ELSE (k) {
    choose_best(k, a, &row);
  }
}
