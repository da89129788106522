/* call_test.c: what lengths, given lists, budgets, terms, tails, unions and short sequences change
   in a launch: kernels, grids, workspace and every parameter. */
#include <stdio.h>
#include <string.h>

#include "runtime/launch.h"
#include "tests/runtime/calls.h"
#include "tests/runtime/check.h"

#define TOP_K(term, budget) "top_k score=mean term=" term " budget=" budget
#define DENSITY "density density=125/1000 keep=0 threshold=0/1 variance=diagonal"
#define THRESHOLD "threshold density=0/1 keep=0 threshold=25/10 variance=full"
#define SEPARATE "query=64 key=64 lists=separate"
#define UNION "query=64 key=64 lists=union"

static pisa_attention call_of(int64_t n_q, int64_t n_k) {
  return make_call(2, 3, n_q, n_k, false);
}

/* With lengths: counts differ, so the edge kernel, and |kept| is a bound for every length. */
static void check_lengths(void) {
  static const struct {
    int64_t n_q, n_k, kept;
  } cases[] = {
      {4096, 4096, 8},   /* the density gives more than can be forced */
      {1024, 1024, 7},   /* 4 blocks of the first 256 tokens, 2 and 1 of the last 100 */
      {1000, 200, 4},    /* no more than there are */
      {128, 64 * 64, 8}, /* whole blocks all the same */
  };
  pisa_module *module =
      load_module(&(struct sample_spec){.always = "always first=256\nalways last=100\n"});
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pisa_attention call = call_of(cases[i].n_q, cases[i].n_k);
    call.k_lengths = address(8);
    struct expect expect = expect_default(&call, cases[i].kept);
    expect.uneven = true;
    expect.always[1] = 256;
    expect.always[2] = -100;
    check_call(module, &expect);
  }
  pisa_module_unload(module);
}

/* The caller's lists are all that counts. */
static void check_lists(void) {
  pisa_module *module =
      load_module(&(struct sample_spec){.always = "always first=256\nalways window=2\n"});
  for (int64_t n_listed = 1; n_listed <= 16; n_listed += 5) {
    pisa_attention call = call_of(700, 1024);
    call.lists = address(10);
    call.n_listed = n_listed;
    call.k_lengths = n_listed > 8 ? address(8) : NULL;
    struct expect expect = expect_default(&call, n_listed);
    expect.uneven = true;
    expect.num = 0;
    expect.den = 1;
    check_call(module, &expect);
  }
  pisa_module_unload(module);
}

static void check_threshold(void) {
  pisa_error error;
  pisa_module *module = load_module(&(struct sample_spec){
      .route = TOP_K("log_covariance", THRESHOLD), .always = "always range=64..128\n"});
  pisa_attention call = call_of(1024, 1024);
  for (int i = 0; i < 3; i++) {
    struct expect expect = expect_default(&call, i < 2 ? 16 : 3);
    expect.uneven = true;
    expect.num = 0;
    expect.den = 1;
    expect.threshold = i < 2 ? 2.5 : 0;
    expect.always[0] = i < 2 ? 64 : 0;
    expect.always[1] = i < 2 ? 128 : 0;
    check_call(module, &expect);
    call.k_lengths = address(8); /* then with lengths, then with lists too */
    if (i == 1) {
      call.lists = address(10);
      call.n_listed = 3;
    }
  }
  call = call_of(1024, 1024);
  call.density = 0.5;
  CHECK_FAILS(launch(module, &call, &error), PISA_INVALID_ARGUMENT, error,
              "density is set, but the pack's budget is a threshold");
  call.density = 0;
  call.keep = 2;
  CHECK_FAILS(launch(module, &call, &error), PISA_INVALID_ARGUMENT, error,
              "keep is set, but the pack's budget is a threshold");
  pisa_module_unload(module);
}

/* Every term with every tail: parts of the workspace, the residual kernel, maps of attend. */
static void check_methods(void) {
  static const char *const terms[] = {"none", "log_covariance", "log_residual", "log_key_variance"};
  static const char *const tails[] = {"taylor_0", "taylor_1", "taylor_hybrid"};
  static const enum pisa_tail wanted[] = {PISA_TAIL_TAYLOR_0, PISA_TAIL_TAYLOR_1,
                                          PISA_TAIL_TAYLOR_HYBRID};
  for (int i = 0; i < 24; i++) {
    char route[160], attend[96];
    int term = i / 6, tail = i / 2 % 3;
    snprintf(route, sizeof route, "top_k score=mean term=%s budget=" DENSITY, terms[term]);
    snprintf(attend, sizeof attend, "selected=exact rest=%s mass=%s", tails[tail],
             i % 2 ? "second_order" : "zeroth_order");
    pisa_module *module = load_module(&(struct sample_spec){.route = route, .attend = attend});
    pisa_attention call = call_of(1000, i % 4 ? 4096 : 4000);
    call.k_lengths = i % 3 ? NULL : address(8);
    struct expect expect = expect_default(&call, call.n_k == 4096 ? 8 : 7);
    expect.uneven = call.k_lengths != NULL;
    expect.term = (enum pisa_term)term;
    expect.tail = wanted[tail];
    expect.second_order = i % 2;
    check_call(module, &expect);
    pisa_module_unload(module);
  }
}

/* The residual kernel has its own bit, and fewer CTAs than the device has SMs when blocks are few.
 */
static void check_residual(void) {
  pisa_error error;
  size_t bytes = 0;
  pisa_module *module = load_module(&(struct sample_spec){.route = TOP_K("log_residual", DENSITY),
                                                          .attend = "selected=exact rest=drop"});
  const pisa_attention call = call_of(5000, 640);
  struct expect expect = expect_default(&call, 1);
  expect.term = PISA_TERM_LOG_RESIDUAL;
  expect.tail = PISA_TAIL_DROP;
  check_call(module, &expect);
  CHECK_INT(fake->launch(0)->grid[0], 132);
  CHECK_INT(fake->launch(1)->grid[0], 60);
  CHECK_OK(pisa_workspace_size(module, &call, &bytes, &error), error);
  fake->reset();
  CHECK_OK(pisa_launch_some(module, &call, address(7), bytes, NULL, PISA_LAUNCH_RESIDUAL, &error),
           error);
  CHECK_INT(fake->n_launches(), 1);
  CHECK(!strcmp(fake->launch(0)->entry, "pisa_residual"));
  pisa_module_unload(module);
}

/* Pairs of query blocks: attend walks ceil(n_q / 128) of them, attend_edge the blocks one by one.
 */
static void check_union(void) {
  static const struct {
    int64_t n_q, n_k, kept;
    bool uneven;
  } cases[] = {{640, 4096, 8, false}, {1300, 4096, 8, false}, {64, 4096, 8, false},
               {65, 4095, 8, false},  {700, 4096, 8, true},   {1, 64, 1, false}};
  pisa_module *module = load_module(&(struct sample_spec){.blocks = UNION});
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pisa_attention call = call_of(cases[i].n_q, cases[i].n_k);
    call.k_lengths = cases[i].uneven ? address(8) : NULL;
    struct expect expect = expect_default(&call, cases[i].kept);
    expect.query = 64;
    expect.is_union = true;
    expect.uneven = cases[i].uneven;
    check_call(module, &expect);
  }
  pisa_module_unload(module);
}

/* What the plain kernel needs, one condition after the other. */
static void check_choice(void) {
  static const struct {
    int64_t n_k, keep;
    bool lengths, lists;
    const char *always, *entry;
  } cases[] = {
      {1024, 2, false, false, NULL, "pisa_attend"},
      {1024, 1, false, false, NULL, "pisa_attend_edge"},
      {1023, 2, false, false, NULL, "pisa_attend_edge"},
      {1024, 2, true, false, NULL, "pisa_attend_edge"},
      {1024, 0, false, true, NULL, "pisa_attend_edge"},
      {1024, 2, false, false, "always first=128\n", "pisa_attend"},
      {1024, 2, false, false, "always first=129\n", "pisa_attend_edge"},
      {1024, 3, false, false, "always window=1\n", "pisa_attend"}, /* 64-row blocks: 3 at most */
      {1024, 2, false, false, "always window=1\n", "pisa_attend_edge"},
      {128, 99, false, false, "always first=4096\n", "pisa_attend"}, /* all there are */
  };
  pisa_error error;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pisa_module *module =
        load_module(&(struct sample_spec){.blocks = SEPARATE, .always = cases[i].always});
    pisa_attention call = call_of(1000, cases[i].n_k);
    call.keep = cases[i].keep;
    call.k_lengths = cases[i].lengths ? address(8) : NULL;
    call.lists = cases[i].lists ? address(10) : NULL;
    call.n_listed = cases[i].lists ? 4 : 0;
    fake->reset();
    CHECK_OK(launch(module, &call, &error), error);
    CHECK_INT(fake->n_launches(), 3);
    CHECK(!strcmp(fake->launch(2)->entry, cases[i].entry));
    pisa_module_unload(module);
  }
}

/* What a call says of the budget reaches route in whole numbers. */
static void check_budgets(void) {
  static const struct {
    double density;
    int64_t keep, num, den, budget, kept;
  } cases[] = {{0, 0, 125, 1000, 0, 2},
               {0.29, 0, 290000000, 1000000000, 0, 4},
               {1, 0, 1000000000, 1000000000, 0, 16},
               {1e-12, 0, 0, 1, 1, 1}, /* less than the last decimal: one block */
               {0, 5, 0, 1, 5, 5},
               {0, INT64_MAX, 0, 1, 16, 16}};
  pisa_module *module = load_module(&(struct sample_spec){.no_cubin = false});
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pisa_attention call = call_of(1024, 1024);
    call.density = cases[i].density;
    call.keep = cases[i].keep;
    struct expect expect = expect_default(&call, cases[i].kept);
    expect.num = cases[i].num;
    expect.den = cases[i].den;
    expect.budget = cases[i].budget;
    check_call(module, &expect);
  }
  pisa_module_unload(module);
}

static void check_dense_launch(const pisa_module *module, const pisa_attention *call,
                               const char *entry) {
  pisa_error error;
  size_t bytes = 1;
  CHECK_OK(pisa_workspace_size(module, call, &bytes, &error), error);
  CHECK_INT((long long)bytes, 0);
  fake->reset();
  CHECK_OK(pisa_launch(module, call, NULL, 0, address(9), &error), error);
  CHECK_INT(fake->n_launches(), 1);
  const struct fake_launch *l = fake->launch(0);
  int64_t q_blocks = ceil_div(call->n_q, 128), items = call->batch * call->heads * q_blocks;
  CHECK(!strcmp(l->entry, entry));
  CHECK(l->shared_bytes == 196672 && l->block[0] == 384 && l->overlaps);
  CHECK_INT(l->grid[0], items < EXPECT_SMS ? items : EXPECT_SMS);
  CHECK_INT(whole(l, PISA_ATTEND_items), items);
  CHECK_INT(whole(l, PISA_ATTEND_q_blocks), q_blocks);
  CHECK_INT(whole(l, PISA_ATTEND_keep), ceil_div(call->n_k, 64));
  CHECK_INT(whole(l, PISA_ATTEND_n_k), call->n_k);
  CHECK_INT(whole(l, PISA_ATTEND_lengths), (int64_t)(uintptr_t)call->k_lengths);
  CHECK(!whole(l, PISA_ATTEND_lists) && !whole(l, PISA_ATTEND_masks));
  CHECK(!whole(l, PISA_ATTEND_counts) && !whole(l, PISA_ATTEND_shared));
  CHECK(is_zero(&l->params[PISA_ATTEND_k_mean].map) && is_zero(&l->params[PISA_ATTEND_h_sum].map));
  CHECK(l->params[PISA_ATTEND_q].map.address == (uintptr_t)call->q.data);
}

/* Calls shorter than N run dense or dense_edge alone; from N on, the pack's method. */
static void check_below(const char *blocks, int64_t query) {
  pisa_error error;
  pisa_module *module = load_module(
      &(struct sample_spec){.blocks = blocks, .below = "below tokens=2048 use=dense\n"});
  pisa_attention call = call_of(1000, 1984);
  CHECK_FAILS(launch(module, &call, &error), PISA_INVALID_ARGUMENT, error,
              "blocks must be NULL: below 2048 tokens this pack makes no block lists, n_k is 1984");
  call.blocks = NULL;
  check_dense_launch(module, &call, "pisa_dense");
  call.density = 0.5; /* accepted, without effect */
  check_dense_launch(module, &call, "pisa_dense");
  call.k_lengths = address(8);
  check_dense_launch(module, &call, "pisa_dense_edge");
  call = call_of(65, 2047);
  call.blocks = NULL;
  check_dense_launch(module, &call, "pisa_dense_edge");
  call.n_k = 64; /* half of the first tile */
  check_dense_launch(module, &call, "pisa_dense_edge");
  call.lists = address(10);
  call.n_listed = 1;
  CHECK_FAILS(
      launch(module, &call, &error), PISA_INVALID_ARGUMENT, error,
      "lists must be NULL: below 2048 tokens this pack reads every block exactly, n_k is 64");
  call = call_of(1000, 2048);
  struct expect expect = expect_default(&call, 4);
  expect.query = query;
  expect.is_union = query == 64;
  check_call(module, &expect);
  pisa_module_unload(module);
}

/* A caller built before k_lengths existed: whatever lies behind its struct is not read. */
static void check_older_caller(void) {
  pisa_error error;
  size_t bytes = 0;
  pisa_module *module = load_module(&(struct sample_spec){.no_cubin = false});
  const pisa_attention plain = call_of(1024, 1024);
  pisa_attention older = plain;
  older.struct_size = offsetof(pisa_attention, k_lengths);
  older.k_lengths = address(11);
  older.lists = address(12);
  older.n_listed = -5;
  CHECK_OK(pisa_workspace_size(module, &older, &bytes, &error), error);
  const struct expect expect = expect_default(&plain, 2);
  CHECK_INT((long long)bytes, (long long)expect_bytes(&expect));
  fake->reset();
  CHECK_OK(pisa_launch(module, &older, address(7), bytes, address(9), &error), error);
  expect_launches(&expect, fake);
  pisa_module_unload(module);
}

/* A million tokens: offsets far beyond 32 bits, dense, since route's rows end at 229376. */
static void check_million(void) {
  enum { N = 1 << 20 };
  pisa_error error;
  pisa_module *module = load_module(&(struct sample_spec){.dense = true});
  pisa_attention call = make_call(2, 100, N, N, true);
  call.blocks = NULL;
  fake->reset();
  CHECK_OK(pisa_launch(module, &call, NULL, 0, address(9), &error), error);
  const struct fake_launch *l = fake->launch(0);
  const struct fake_map *q = &l->params[PISA_ATTEND_q].map;
  CHECK_INT((int64_t)q->strides[0], 2 * 100 * D);
  CHECK_INT((int64_t)q->strides[2], INT64_C(2) * N * 100 * D);
  CHECK_INT(whole(l, PISA_ATTEND_items), 2 * 100 * (N / 128));
  CHECK_INT(whole(l, PISA_ATTEND_keep), N / 64);
  pisa_module_unload(module);
  module = load_module(&(struct sample_spec){.no_cubin = false});
  call.k_lengths = address(8);
  CHECK_FAILS(launch(module, &call, &error), PISA_UNSUPPORTED, error, "at most 229376 tokens");
  pisa_module_unload(module);
}

int main(void) {
  fake = fake_open();
  check_lengths();
  check_lists();
  check_threshold();
  check_methods();
  check_residual();
  check_union();
  check_choice();
  check_budgets();
  check_below(UNION, 64);
  check_below("query=128 key=64 lists=separate", 128);
  check_older_caller();
  check_million();
  return check_result();
}
