/* exp2: prints the PTX of one kernel, frag_exp2 on 64 x 128 numbers, with `exp2 N` polynomials of
   every 8. */
#include <stdio.h>
#include <stdlib.h>

#include "compiler/emit/context.h"
#include "compiler/emit/nvptx.h"
#include "compiler/emit/passes.h"
#include "compiler/plan/plan.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/lanes.h"

enum { IN, OUT, SUMS, FACTOR, OFFSET, N_ARGS, COLUMNS = 128, THREADS = 128 };

static const struct ir_arg args[N_ARGS] = {
    {IR_ARG_PTR, "in: f32 [128][64], every register of a thread one behind the other"},
    {IR_ARG_PTR, "out: the same"},
    {IR_ARG_PTR, "sums: f32 [128][2], of a thread's registers"},
    {IR_ARG_F32, "factor"},
    {IR_ARG_F32, "offset"},
};

static void kernel_exp2(struct ir *k, int polynomials) {
  const int registers = COLUMNS / 2;
  kernel_begin(k, N_ARGS, args);
  struct frag f = frag_new(k, COLUMNS);
  val thread = thread_index(k), mine = mul_const(k, thread, 4 * registers);
  for (int i = 0; i < registers; i++) {
    set(k, f.r[i], load(k, k->f32, at_const(k, at(k, k->arg[IN], mine), 4 * i), 4));
  }
  struct rowval offset = {{k->arg[OFFSET], k->arg[OFFSET]}};
  struct rowval sums = frag_exp2(k, &f, k->arg[FACTOR], offset, polynomials);
  for (int i = 0; i < registers; i++) {
    store(k, get(k, f.r[i]), at_const(k, at(k, k->arg[OUT], mine), 4 * i), 4);
  }
  for (int r = 0; r < FRAG_ROWS; r++) {
    val place = at(k, k->arg[SUMS], mul_const(k, thread, 4 * FRAG_ROWS));
    store(k, sums.r[r], at_const(k, place, 4 * r), 4);
  }
  kernel_end(k, "exp2", THREADS, 1);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: exp2 N\n");
    return 1;
  }
  struct context context;
  context_init(&context);
  MlirModule module = mlirModuleCreateEmpty(mlirLocationUnknownGet(context.mlir));
  struct ir k;
  ir_init(&k, context.mlir, module);
  kernel_exp2(&k, atoi(argv[1]));
  passes_run(&context, module);
  struct text ptx;
  text_init(&ptx);
  nvptx_emit(&context, module, target_sm90a.name, target_sm90a.ptx_version, NULL, &ptx);
  fwrite(ptx.data, 1, ptx.size, stdout);
  text_fini(&ptx);
  mlirModuleDestroy(module);
  context_fini(&context);
  return 0;
}
