/* calls.h: what the tests of launches share: calls at made-up addresses, modules on the fake
   driver, and one whole launch compared with expect.h. */
#ifndef PISA_TESTS_RUNTIME_CALLS_H
#define PISA_TESTS_RUNTIME_CALLS_H

#include "tests/runtime/expect.h"
#include "tests/runtime/sample_pack.h"

enum { D = 128 };
extern const struct fake_cuda *fake; /* fake_open of the test's main */

/* Addresses far apart: no array of these tests is longer than 64 GiB. */
void *address(int i);

/* Tensors 1 to 4 are q, k, v, o, 5 is lse, 6 blocks; 7 is the workspace, 8 lengths, 9 the stream,
   10 lists. */
pisa_attention make_call(int64_t batch, int64_t heads, int64_t n_q, int64_t n_k, bool is_bnhd);

/* Variant 0 of a sample pack. */
pisa_module *load_module(const struct sample_spec *spec);

/* pisa_launch with the workspace it asks for. */
pisa_status launch(const pisa_module *module, const pisa_attention *call, pisa_error *error);

/* The default sample_spec: 128 by 64 blocks, density 0.125, log_covariance, taylor_hybrid. */
struct expect expect_default(const pisa_attention *call, int64_t kept);

/* Sizes, launches and parameters are those of |expect|; nothing is allocated or waited for. */
void check_call(const pisa_module *module, const struct expect *expect);

#endif
