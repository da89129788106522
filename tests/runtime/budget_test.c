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

static int64_t kept(int64_t blocks, double density) {
  return pisa_kept(&base, 1, blocks * 64, density, 0);
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
  CHECK_INT(pisa_kept(&m, 1, 64 * 100, 0, 0), 15);
  CHECK_INT(pisa_kept(&m, 1, 64 * 6, 0, 0), 1);
  CHECK_INT(pisa_kept(&m, 1, 64 * 100, 0.5, 0), 50);
  CHECK_INT(pisa_kept(&m, 1, 64 * 100, 0, 7), 7);
  CHECK_INT(pisa_kept(&m, 1, 64 * 100 + 1, 0, 1000), 101); /* capped at NT */
  m.budget = PISA_BUDGET_KEEP;
  m.keep = 9;
  CHECK_INT(pisa_kept(&m, 1, 64 * 100, 0, 0), 9);
  CHECK_INT(pisa_kept(&m, 1, 64 * 4, 0, 0), 4);
  CHECK_INT(pisa_kept(&m, 1, 64 * 100, 0.5, 0), 50);
  m.dense = true;
  CHECK_INT(pisa_kept(&m, 1, 64 * 100 + 1, 0, 0), 101);
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
  CHECK_INT(pisa_kept(&m, 1, 64 * 100, 0, 0), 15);  /* they count inside the budget */
  CHECK_INT(pisa_kept(&m, 1, 64 * 20, 0, 0), 9);    /* 3 blocks would be fewer than forced */
  CHECK_INT(pisa_kept(&m, 1, 64 * 100, 0, 2), 9);   /* the same for a call's keep */
  CHECK_INT(pisa_kept(&m, 1, 64 * 4, 0.001, 0), 4); /* never more than there are */
}

int main(void) {
  check_decimals();
  check_spec_budget();
  check_always();
  check_union();
  check_forced_budget();
  return check_result();
}
