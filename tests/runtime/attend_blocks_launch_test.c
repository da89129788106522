/* attend_blocks_launch_test.c: how many CTAs attend to blocks. In: calls on the fake driver. Out: a
   failed check for a grid that was recorded otherwise. */
#include "runtime/launch.h"

#include "tests/runtime/check.h"
#include "tests/runtime/select_calls.h"

#define SIZES "leaf=64 group=2 page=0"

static pisa_error error;

/* Queries that a CTA of attend_blocks takes: 8 warps, in tiles of few heads more than one each. */
static void check_attended(void) {
  static const struct {
    const char *shape, *pyramid;
    int group, queries;
  } cases[] = {
      {"heads=32 kv_heads=2 head_dim=64 type=bf16 mask=causal", SIZES, 16, 8},
      {"heads=8 kv_heads=1 head_dim=64 type=bf16 mask=causal", SIZES, 8, 16},
      {"heads=5 kv_heads=1 head_dim=64 type=bf16 mask=causal", SIZES, 5, 16},
      {"heads=4 kv_heads=1 head_dim=64 type=bf16 mask=causal", SIZES, 4, 32},
      {"heads=1 kv_heads=1 head_dim=64 type=bf16 mask=causal", SIZES, 1, 32},
      {"heads=4 kv_heads=1 head_dim=64 type=bf16 mask=causal", "leaf=32 group=2 page=0", 4, 8}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t bytes = 0;
    pisa_module *module =
        load_module(&(struct sample_spec){.pyramid = cases[i].pyramid, .shape = cases[i].shape});
    pisa_attention call = call_of(1, 1000, 3000);
    call.heads = cases[i].group * KV_HEADS;
    fake->reset();
    CHECK_OK(pisa_workspace_size(module, &call, &bytes, &error), error);
    CHECK_OK(
        pisa_launch_some(module, &call, address(7), bytes, NULL, PISA_LAUNCH_ATTEND_BLOCKS, &error),
        error);
    CHECK_INT(fake->launch(0)->grid[0], KV_HEADS * ceil_div(1000, cases[i].queries));
    pisa_module_unload(module);
  }
}

int main(void) {
  fake = fake_open();
  check_attended();
  return check_result();
}
