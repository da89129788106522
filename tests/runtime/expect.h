/* expect.h: what docs/ABI.md says a routed call launches, computed anew from the call and compared
   with what the fake driver recorded. */
#ifndef PISA_TESTS_RUNTIME_EXPECT_H
#define PISA_TESTS_RUNTIME_EXPECT_H

#include "runtime/method.h"
#include "tests/runtime/fake_cuda.h"

enum { EXPECT_SMS = 132 };

struct expect {
  pisa_attention call;
  int64_t d; /* head_dim */
  int type;  /* CU_TENSOR_MAP_BFLOAT16 or _FLOAT16 */
  int64_t query, key;
  enum pisa_tail tail;
  enum pisa_term term;
  bool second_order, is_union;
  int64_t kept;             /* most blocks of a list */
  bool uneven;              /* lists may differ in length: never the plain attend kernel */
  int64_t always[8];        /* begin and end of the forced ranges of tokens */
  int64_t window;           /* -1: none */
  int64_t num, den, budget; /* as route gets them */
  double threshold;
  void *workspace, *stream;
};

/* Bytes of workspace the call needs. */
size_t expect_bytes(const struct expect *expect);
/* Checks all launches: statistics, residual for that term, route, attend. */
void expect_launches(const struct expect *expect, const struct fake_cuda *fake);

int64_t ceil_div(int64_t a, int64_t b);
/* A recorded pointer or int32 parameter. */
int64_t whole(const struct fake_launch *launch, int parameter);
bool is_zero(const struct fake_map *map);

#endif
