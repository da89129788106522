/* context.c: in goes nothing; out comes an MLIR context that knows exactly the dialects our kernels
   use and how to translate them to LLVM IR. Registering everything MLIR has would double the
   start-up time. */
#include "compiler/emit/context.h"

#include "compiler/emit/internal.h"
#include "mlir-c/Diagnostics.h"
#include "mlir-c/Dialect/Arith.h"
#include "mlir-c/Dialect/ControlFlow.h"
#include "mlir-c/Dialect/IRDL.h"
#include "mlir-c/Dialect/LLVM.h"
#include "mlir-c/Dialect/NVVM.h"
#include "mlir-c/Dialect/SCF.h"

/* The C API can register the translation of all dialects only. These are the C++ functions behind
   the three we need, by their mangled names: mlir::register*DialectTranslation(mlir::MLIRContext
   &). Part of LLVM 22's ABI. */
extern void
register_builtin(void *) __asm__("_ZN4mlir33registerBuiltinDialectTranslationERNS_11MLIRContextE");
extern void
register_llvm(void *) __asm__("_ZN4mlir30registerLLVMDialectTranslationERNS_11MLIRContextE");
extern void
register_nvvm(void *) __asm__("_ZN4mlir30registerNVVMDialectTranslationERNS_11MLIRContextE");

void text_of_mlir(MlirStringRef part, void *user) {
  text_append(user, part.data, part.length);
}

static MlirLogicalResult listen(MlirDiagnostic diagnostic, void *user) {
  struct context *context = user;
  mlirLocationPrint(mlirDiagnosticGetLocation(diagnostic), text_of_mlir, &context->said);
  text_puts(&context->said, ": ");
  mlirDiagnosticPrint(diagnostic, text_of_mlir, &context->said);
  text_putc(&context->said, '\n');
  return mlirLogicalResultSuccess();
}

static MlirDialectRegistry dialects(void) {
  MlirDialectHandle handles[] = {
      mlirGetDialectHandle__arith__(), mlirGetDialectHandle__cf__(),
      mlirGetDialectHandle__irdl__(),  mlirGetDialectHandle__llvm__(),
      mlirGetDialectHandle__nvvm__(),  mlirGetDialectHandle__scf__(),
  };
  MlirDialectRegistry registry = mlirDialectRegistryCreate();
  for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
    mlirDialectHandleInsertDialect(handles[i], registry);
  return registry;
}

void context_init(struct context *context) {
  text_init(&context->said);
  MlirDialectRegistry registry = dialects();
  context->mlir = mlirContextCreateWithRegistry(registry, false);
  mlirDialectRegistryDestroy(registry);
  mlirContextAttachDiagnosticHandler(context->mlir, listen, context, NULL);
  mlirContextLoadAllAvailableDialects(context->mlir);
  register_builtin(context->mlir.ptr);
  register_llvm(context->mlir.ptr);
  register_nvvm(context->mlir.ptr);
}

void context_fini(struct context *context) {
  mlirContextDestroy(context->mlir);
  text_fini(&context->said);
}

void context_check(const struct context *context, int ok, const char *stage) {
  if (!ok)
    internal_error(stage, context->said.size > 0 ? context->said.data : "no reason was given");
}
