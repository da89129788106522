/* passes.c: in goes a module of kernels; out comes the same module in the LLVM dialect. Five
   conversions, about 12 ms; canonicalize and cse are left out because the PTX is byte-identical
   without them. */
#include "compiler/emit/passes.h"

#include "mlir-c/Conversion.h"
#include "mlir-c/Pass.h"

void passes_run(struct context *context, MlirModule module) {
  MlirOperation top = mlirModuleGetOperation(module);
  context_check(context, mlirOperationVerify(top), "kernels do not verify");

  MlirPassManager passes = mlirPassManagerCreate(context->mlir);
  mlirPassManagerAddOwnedPass(passes, mlirCreateConversionSCFToControlFlowPass());
  mlirPassManagerAddOwnedPass(passes, mlirCreateConversionConvertNVVMToLLVMPass());
  mlirPassManagerAddOwnedPass(passes, mlirCreateConversionArithToLLVMConversionPass());
  mlirPassManagerAddOwnedPass(passes, mlirCreateConversionConvertControlFlowToLLVMPass());
  mlirPassManagerAddOwnedPass(passes, mlirCreateConversionReconcileUnrealizedCastsPass());
  MlirLogicalResult ran = mlirPassManagerRunOnOp(passes, top);
  mlirPassManagerDestroy(passes);
  context_check(context, mlirLogicalResultIsSuccess(ran), "lowering to the LLVM dialect");
}
