/* emit_test.c: the road from a module to PTX and a ptxas report, on a kernel written out as MLIR
 * text. */
#include <stdio.h>
#include <string.h>

#include "compiler/emit/context.h"
#include "compiler/emit/nvptx.h"
#include "compiler/emit/passes.h"
#include "compiler/emit/ptxas.h"

#define CHECK(condition)                                                                           \
  ((condition)                                                                                     \
       ? (void)0                                                                                   \
       : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), failures++, (void)0))
static int failures;

/* out[0] = sum over i < n of i * 2, with a loop (scf), a mutable variable (alloca) and inline asm.
 */
static const char KERNEL[] = "llvm.func @probe(%out: !llvm.ptr, %n: i32) attributes {nvvm.kernel, "
                             "nvvm.reqntid = array<i32: 128, 1, 1>} {\n"
                             "  %one = llvm.mlir.constant(1 : i32) : i32\n"
                             "  %zero = arith.constant 0 : i32\n"
                             "  %sum = llvm.alloca %one x i32 : (i32) -> !llvm.ptr\n"
                             "  llvm.store %zero, %sum : i32, !llvm.ptr\n"
                             "  scf.for %i = %zero to %n step %one : i32 {\n"
                             "    %d = llvm.inline_asm has_side_effects \"add.s32 $0, $1, $1;\", "
                             "\"=r,r\" %i : (i32) -> i32\n"
                             "    %s = llvm.load %sum : !llvm.ptr -> i32\n"
                             "    %t = arith.addi %s, %d : i32\n"
                             "    llvm.store %t, %sum : i32, !llvm.ptr\n"
                             "  }\n"
                             "  %r = llvm.load %sum : !llvm.ptr -> i32\n"
                             "  llvm.store %r, %out : i32, !llvm.ptr\n"
                             "  llvm.return\n"
                             "}\n";

static void emits(struct text *ptx) {
  struct context context;
  context_init(&context);
  MlirModule module = mlirModuleCreateParse(context.mlir, mlirStringRefCreateFromCString(KERNEL));
  context_check(&context, !mlirModuleIsNull(module), "test kernel");
  passes_run(&context, module);
  struct text ir;
  text_init(&ir);
  nvptx_emit(&context, module, "sm_90a", 86, &ir, ptx);
  CHECK(strstr(ir.data, "convergent"));
  CHECK(!strstr(ir.data, "alloca"));
  CHECK(strstr(ptx->data, ".version 8.6"));
  CHECK(strstr(ptx->data, ".target sm_90a"));
  CHECK(strstr(ptx->data, ".entry probe"));
  CHECK(strstr(ptx->data, ".reqntid 128"));
  text_fini(&ir);
  mlirModuleDestroy(module);
  context_fini(&context);
}

static void assembles(const struct text *ptx) {
  struct arena arena;
  arena_init(&arena);
  struct ptxas ptxas = ptxas_find(&arena, 86);
  struct text cubin, why;
  text_init(&cubin);
  text_init(&why);
  struct ptxas_report report = {0};
  if (!ptxas.path) {
    printf("not assembled: %s\n", ptxas.why_not);
  } else {
    CHECK(ptxas_assemble(&ptxas, "sm_90a", ptx, &arena, &cubin, &report, &why));
    CHECK(report.n_kernels == 1 && ptxas_kernel_find(&report, "probe"));
    CHECK(cubin.size > 100 && memcmp(cubin.data, "\177ELF", 4) == 0);
    struct text broken;
    text_init(&broken);
    text_puts(&broken, ".version 8.6\n.target sm_90a\nnonsense\n");
    CHECK(!ptxas_assemble(&ptxas, "sm_90a", &broken, &arena, &cubin, &report, &why));
    CHECK(strstr(why.data, "ptxas failed"));
    text_fini(&broken);
  }
  text_fini(&cubin);
  text_fini(&why);
  arena_fini(&arena);
}

static void reads_reports(void) {
  struct arena arena;
  arena_init(&arena);
  struct ptxas_report report = ptxas_report_parse(
      &arena,
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized due to non wgmma instructions in the function 'a'\n"
      "ptxas info    : Compiling entry function 'a' for 'sm_90a'\n"
      "ptxas info    : Function properties for a\n"
      "    16 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 9 barriers, 72 bytes smem\n"
      "ptxas info    : Compiling entry function 'b' for 'sm_90a'\n"
      "ptxas info    : Function properties for b\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 40 registers\n"
      "ptxas warning : Value of something is out of range\n");
  CHECK(report.n_kernels == 2 && report.n_warnings == 2);
  const struct ptxas_kernel *a = ptxas_kernel_find(&report, "a");
  CHECK(a && a->registers == 168 && a->stack == 16 && a->spill_stores == 20 &&
        a->spill_loads == 24);
  CHECK(a && a->smem == 72);
  CHECK(ptxas_kernel_find(&report, "b")->registers == 40 && !ptxas_kernel_find(&report, "c"));
  arena_fini(&arena);
}

int main(void) {
  struct text ptx;
  text_init(&ptx);
  emits(&ptx);
  assembles(&ptx);
  reads_reports();
  text_fini(&ptx);
  return failures != 0;
}
