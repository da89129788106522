/* budget_test.c: blocks kept and blocks forced: decimals are exact, the always-set counts inside.
 */
#include "runtime/budget.h"
#include "tests/runtime/check.h"

static const struct pisa_method base = {.heads = 1,
                                        .kv_heads = 1,
                                        .head_dim = 128,
                                        .query = 128,
                                        .key = 64,
                                        .density_num = 15,
                                        .density_den = 100};

/* Capacity of the lists of |n_q| rows over |n_k| keys. */
static int64_t kept_of(const struct pisa_method *m, int64_t n_q, int64_t n_k, double density,
                       int64_t keep) {
  struct pisa_quota quota = pisa_quota(m, density, keep);
  return pisa_kept(m, &quota, n_q, n_k, false);
}

static int64_t kept(int64_t blocks, double density) {
  return kept_of(&base, 1, blocks * 64, density, 0);
}

/* density = i / 10^places must give floor(i * blocks / 10^places), although no double is that
 * fraction. */
static void check_decimals(void) {
  for (int64_t i = 1; i <= 1000; i++)
    for (int64_t blocks = 1; blocks <= 1000; blocks += 37) {
      int64_t exact = i * blocks / 1000;
      if (kept(blocks, (double)i / 1000) != (exact ? exact : 1))
        CHECK_INT(kept(blocks, (double)i / 1000), exact ? exact : 1);
    }
  CHECK_INT(kept(100, 0.29), 29); /* 0.29 * 100 is 28.999... in doubles */
  CHECK_INT(kept(100, 0.57), 57);
  CHECK_INT(kept(1000000000 / 64, 0.000000001), 1);
  CHECK_INT(kept(16777216, 1.0), 16777216);
  CHECK_INT(kept(3, 1e-12), 1);
  CHECK_INT(kept(8, 0.999999999), 7);
}

static void check_spec_budget(void) {
  struct pisa_method m = base;
  CHECK_INT(kept_of(&m, 1, 64 * 100, 0, 0), 15);
  CHECK_INT(kept_of(&m, 1, 64 * 6, 0, 0), 1);
  CHECK_INT(kept_of(&m, 1, 64 * 100, 0.5, 0), 50);
  CHECK_INT(kept_of(&m, 1, 64 * 100, 0, 7), 7);
  CHECK_INT(kept_of(&m, 1, 64 * 100 + 1, 0, 1000), 101); /* capped at NT */
  m.budget = PISA_BUDGET_KEEP;
  m.keep = 9;
  CHECK_INT(kept_of(&m, 1, 64 * 100, 0, 0), 9);
  CHECK_INT(kept_of(&m, 1, 64 * 4, 0, 0), 4);
  CHECK_INT(kept_of(&m, 1, 64 * 100, 0.5, 0), 50);
  m.dense = true;
  CHECK_INT(kept_of(&m, 1, 64 * 100 + 1, 0, 0), 101);
}

static void check_range(const struct pisa_method *m, int64_t n_k, int64_t begin, int64_t end) {
  struct pisa_range out[PISA_MAX_ALWAYS];
  pisa_always_blocks(m, n_k, out);
  CHECK_INT(out[0].begin, begin);
  CHECK_INT(out[0].end, end);
}

static void check_always(void) {
  struct pisa_method m = base;
  m.n_always = 1;
  m.always[0] = (struct pisa_always){PISA_ALWAYS_FIRST, 0, 256};
  check_range(&m, 4096, 0, 4);
  check_range(&m, 100, 0, 2); /* fewer tokens than asked for */
  m.always[0] = (struct pisa_always){PISA_ALWAYS_LAST, 0, 256};
  check_range(&m, 4096, 60, 64);
  check_range(&m, 4097, 60, 65); /* touches five blocks */
  check_range(&m, 10, 0, 1);
  m.always[0] = (struct pisa_always){PISA_ALWAYS_RANGE, 100, 129};
  check_range(&m, 4096, 1, 3);
  check_range(&m, 110, 1, 2);
  check_range(&m, 100, 0, 0); /* beyond the end: empty */
  m.always[0] = (struct pisa_always){PISA_ALWAYS_RANGE, 64, 128};
  check_range(&m, 4096, 1, 2);
}

static void check_union(void) {
  const struct pisa_range apart[4] = {{10, 12}, {0, 4}, {0, 0}, {5, 6}};
  const struct pisa_range nested[4] = {{0, 10}, {2, 4}, {9, 12}, {12, 13}};
  const struct pisa_range same[4] = {{3, 5}, {3, 5}, {3, 5}, {4, 5}};
  const struct pisa_range none[4] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
  CHECK_INT(pisa_union_count(apart, 4), 7);
  CHECK_INT(pisa_union_count(nested, 4), 13);
  CHECK_INT(pisa_union_count(same, 4), 2);
  CHECK_INT(pisa_union_count(none, 4), 0);
}

static void check_forced_budget(void) {
  struct pisa_method m = base;
  m.n_always = 2;
  m.always[0] = (struct pisa_always){PISA_ALWAYS_FIRST, 0, 512};
  m.always[1] = (struct pisa_always){PISA_ALWAYS_LAST, 0, 64};
  CHECK_INT(kept_of(&m, 1, 64 * 100, 0, 0), 15);  /* they count inside the budget */
  CHECK_INT(kept_of(&m, 1, 64 * 20, 0, 0), 9);    /* 3 blocks would be fewer than forced */
  CHECK_INT(kept_of(&m, 1, 64 * 100, 0, 2), 9);   /* the same for a call's keep */
  CHECK_INT(kept_of(&m, 1, 64 * 4, 0.001, 0), 4); /* never more than there are */
}

static void check_window_range(const struct pisa_method *m, int64_t n_k, int64_t i, int64_t begin,
                               int64_t end) {
  struct pisa_range window = pisa_window_blocks(m, n_k, i);
  CHECK_INT(window.begin, begin);
  CHECK_INT(window.end, end);
}

static void check_windows(void) {
  struct pisa_method m = base;
  check_window_range(&m, 6400, 3, 0, 0); /* no window */
  m.has_window = true;
  check_window_range(&m, 6400, 0, 0, 2); /* 128 rows touch two blocks of 64 keys */
  check_window_range(&m, 6400, 3, 6, 8);
  m.window = 3;
  check_window_range(&m, 6400, 0, 0, 5);
  check_window_range(&m, 6400, 3, 3, 11);
  check_window_range(&m, 6400, 49, 95, 100);
  check_window_range(&m, 6401, 49, 95, 101);
  check_window_range(&m, 6400, 51, 99, 100); /* rows behind the last key: what the window reaches */
  check_window_range(&m, 6400, 52, 0, 0);
  m.query = 64;
  check_window_range(&m, 6400, 3, 0, 7);
  m.query = m.key = 128;
  check_window_range(&m, 6400, 10, 7, 14);
}

/* Every query block counted by itself. */
static int64_t most_forced(const struct pisa_method *m, int64_t n_q, int64_t n_k) {
  int64_t most = 0;
  for (int64_t i = 0; i * m->query < n_q; i++) {
    struct pisa_range ranges[PISA_MAX_ALWAYS + 1];
    pisa_always_blocks(m, n_k, ranges);
    ranges[PISA_MAX_ALWAYS] = pisa_window_blocks(m, n_k, i);
    int64_t count = pisa_union_count(ranges, PISA_MAX_ALWAYS + 1);
    most = count > most ? count : most;
  }
  return most;
}

/* The longest list is the largest forced set of any query block, wherever on the diagonal it is. */
static void check_window_budget(void) {
  static const int sizes[][2] = {{128, 64}, {64, 64}, {128, 128}};
  uint64_t seed = 1;
  for (int trial = 0; trial < 20000; trial++) {
    struct pisa_method m = base;
    int64_t number[12];
    for (int n = 0; n < 12; n++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      number[n] = (int64_t)(seed >> 33);
    }
    m.query = sizes[trial % 3][0];
    m.key = sizes[trial % 3][1];
    m.has_window = true;
    m.window = number[0] % (trial % 5 ? 6 : 60);
    m.n_always = (int)(number[1] % 5);
    int64_t n_q = 1 + number[2] % 4000, n_k = 1 + number[3] % 4000;
    for (int a = 0; a < m.n_always; a++) {
      int64_t begin = number[4 + a] % 4000;
      m.always[a] = (struct pisa_always){PISA_ALWAYS_RANGE, begin, begin + 1 + number[8 + a] % 900};
    }
    int64_t most = most_forced(&m, n_q, n_k), blocks = (n_k + m.key - 1) / m.key;
    CHECK_INT(kept_of(&m, n_q, n_k, 0, 1), most ? most : 1);
    CHECK_INT(kept_of(&m, n_q, n_k, 0, most + 3), most + 3 < blocks ? most + 3 : blocks);
  }
}

static struct pisa_always some_always(uint64_t kind, int64_t begin, int64_t length) {
  if (kind % 3 == 2)
    return (struct pisa_always){PISA_ALWAYS_RANGE, begin, begin + length};
  return (struct pisa_always){kind % 3 ? PISA_ALWAYS_LAST : PISA_ALWAYS_FIRST, 0, length};
}

/* Of a call with lengths |kept| bounds the lists of every sequence of 0 to n_k keys. */
static void check_any_length(void) {
  uint64_t seed = 7;
  for (int trial = 0; trial < 300; trial++) {
    struct pisa_method m = base;
    int64_t number[12];
    for (int n = 0; n < 12; n++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      number[n] = (int64_t)(seed >> 33);
    }
    m.query = trial % 2 ? 128 : 64;
    m.has_window = number[0] % 2;
    m.window = m.has_window ? number[1] % 4 : 0;
    m.n_always = (int)(number[2] % 5);
    for (int a = 0; a < m.n_always; a++)
      m.always[a] =
          some_always((uint64_t)(trial + a), number[4 + a] % 1500, 1 + number[8 + a] % 300);
    int64_t n_q = 1 + number[3] % 2000, n_k = 1 + number[11] % 2000;
    struct pisa_quota quota = pisa_quota(&m, 0, trial % 3 ? 0 : 2);
    int64_t bound = pisa_kept(&m, &quota, n_q, n_k, true);
    CHECK(bound <= (n_k + 63) / 64);
    for (int64_t length = 0; length <= n_k; length += 1 + length % 13)
      for (int64_t i = 0; i * m.query < n_q; i++)
        CHECK(pisa_list_count(&m, &quota, length, i) <= bound);
  }
}

/* The bound itself: each range's most blocks, one more for the last tokens, and the widest window.
 */
static void check_bound(void) {
  struct pisa_method m = base;
  struct pisa_quota quota = pisa_quota(&m, 0, 1);
  CHECK_INT(pisa_kept(&m, &quota, 1, 64 * 100, true), 1);
  m.n_always = 3;
  m.always[0] = (struct pisa_always){PISA_ALWAYS_FIRST, 0, 65};
  m.always[1] = (struct pisa_always){PISA_ALWAYS_LAST, 0, 64};
  m.always[2] = (struct pisa_always){PISA_ALWAYS_RANGE, 63, 65};
  CHECK_INT(pisa_kept(&m, &quota, 1, 64 * 100, true), 2 + 2 + 2);
  m.has_window = true;
  m.window = 3;
  CHECK_INT(pisa_kept(&m, &quota, 1, 64 * 100, true), 2 + 2 + 2 + 8);
  CHECK_INT(pisa_kept(&m, &quota, 1, 64 * 10, true), 10);
  quota = pisa_quota(&m, 0, 50);
  CHECK_INT(pisa_kept(&m, &quota, 1, 64 * 100, true), 50);
  m.budget = PISA_BUDGET_THRESHOLD;
  quota = pisa_quota(&m, 0, 0);
  CHECK_INT(pisa_kept(&m, &quota, 1, 64 * 100, true), 100);
  CHECK_INT(pisa_kept(&m, &quota, 1, 64 * 100, false), 100);
}

/* A query block reads k blocks, or what is forced for it alone where that is more. */
static void check_counts(void) {
  struct pisa_method m = base;
  m.has_window = true;
  m.window = 1;
  struct pisa_quota quota = pisa_quota(&m, 0, 3);
  CHECK_INT(pisa_forced_blocks(&m, 6400, 0), 3); /* two of its own and one behind them */
  CHECK_INT(pisa_forced_blocks(&m, 6400, 1), 4);
  CHECK_INT(pisa_list_count(&m, &quota, 6400, 0), 3);
  CHECK_INT(pisa_list_count(&m, &quota, 6400, 1), 4);
  CHECK_INT(pisa_list_count(&m, &quota, 128, 0), 2); /* no more than there are */
  CHECK_INT(pisa_list_count(&m, &quota, 0, 0), 0);
  CHECK_INT(pisa_most_forced(&m, 6400, 6400), 4);
  CHECK_INT(pisa_most_forced(&m, 128, 6400), 3);
}

/* k of a sequence's own length. */
static void check_quota(void) {
  struct pisa_quota tenth = pisa_quota(&base, 0.1, 0), five = pisa_quota(&base, 0, 5);
  CHECK_INT(pisa_quota_blocks(&tenth, 100), 10);
  CHECK_INT(pisa_quota_blocks(&tenth, 29), 2);
  CHECK_INT(pisa_quota_blocks(&tenth, 3), 1);
  CHECK_INT(pisa_quota_blocks(&tenth, 0), 0);
  CHECK_INT(pisa_quota_blocks(&five, 100), 5);
  CHECK_INT(pisa_quota_blocks(&five, 3), 3);
  struct pisa_quota spec = pisa_quota(&base, 0, 0), tiny = pisa_quota(&base, 1e-12, 0);
  CHECK(spec.num == 15 && spec.den == 100 && spec.keep == 0);
  CHECK(tenth.num == 100000000 && tenth.den == 1000000000);
  CHECK(tiny.num == 0 && tiny.keep == 1);
}

int main(void) {
  check_decimals();
  check_spec_budget();
  check_always();
  check_union();
  check_forced_budget();
  check_windows();
  check_window_budget();
  check_any_length();
  check_bound();
  check_counts();
  check_quota();
  return check_result();
}
