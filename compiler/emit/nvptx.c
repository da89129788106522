/* nvptx.c: in goes a module in the LLVM dialect; out come LLVM IR as the backend sees it, and PTX.
   The mid-level pipeline is short: SROA turns the kernels' mutable variables (allocas) into
   registers, the rest cleans up behind it; ptxas does the real work, and longer pipelines gave the
   same machine code. */
#include "compiler/emit/nvptx.h"

#include <stdio.h>

#include "compiler/emit/internal.h"
#include "mlir-c/Target/LLVMIR.h"
#include "llvm-c/Analysis.h"
#include "llvm-c/Core.h"
#include "llvm-c/Target.h"
#include "llvm-c/TargetMachine.h"
#include "llvm-c/Transforms/PassBuilder.h"

static const char PIPELINE[] =
    "function(sroa,instcombine<no-verify-fixpoint>,early-cse,simplifycfg)";

static LLVMTargetMachineRef machine_for(const char *chip, int ptx_version) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  LLVMTargetRef target;
  char *why = NULL;
  if (LLVMGetTargetFromTriple("nvptx64-nvidia-cuda", &target, &why))
    internal_error("LLVM has no NVPTX target", why);
  char features[16];
  snprintf(features, sizeof features, "+ptx%d", ptx_version);
  return LLVMCreateTargetMachine(target, "nvptx64-nvidia-cuda", chip, features,
                                 LLVMCodeGenLevelAggressive, LLVMRelocDefault,
                                 LLVMCodeModelDefault);
}

/* Translation leaves inline asm without `convergent`, so LLVM might duplicate or sink a warp-wide
 * instruction. */
static void mark_convergent(LLVMContextRef context, LLVMModuleRef module) {
  unsigned kind = LLVMGetEnumAttributeKindForName("convergent", 10);
  LLVMAttributeRef convergent = LLVMCreateEnumAttribute(context, kind, 0);
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b))
      for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i))
        if (LLVMIsACallInst(i) && LLVMIsAInlineAsm(LLVMGetCalledValue(i)))
          LLVMAddCallSiteAttribute(i, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, convergent);
}

static void optimise(LLVMModuleRef module, LLVMTargetMachineRef machine) {
  char *why = NULL;
  if (LLVMVerifyModule(module, LLVMReturnStatusAction, &why))
    internal_error("LLVM IR does not verify", why);
  LLVMDisposeMessage(why);
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(module, PIPELINE, machine, options);
  LLVMDisposePassBuilderOptions(options);
  if (error)
    internal_error("LLVM passes", LLVMGetErrorMessage(error));
}

static void print_ir(LLVMModuleRef module, struct text *out) {
  char *ir = LLVMPrintModuleToString(module);
  text_puts(out, ir);
  LLVMDisposeMessage(ir);
}

static void print_ptx(LLVMModuleRef module, LLVMTargetMachineRef machine, struct text *out) {
  LLVMMemoryBufferRef buffer;
  char *why = NULL;
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMAssemblyFile, &why, &buffer))
    internal_error("PTX emission", why);
  text_append(out, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
  LLVMDisposeMemoryBuffer(buffer);
}

void nvptx_emit(struct context *context, MlirModule module, const char *chip, int ptx_version,
                struct text *llvm_ir, struct text *ptx) {
  LLVMContextRef llvm = LLVMContextCreate();
  LLVMModuleRef ir = mlirTranslateModuleToLLVMIR(mlirModuleGetOperation(module), llvm);
  context_check(context, ir != NULL, "translation to LLVM IR");
  LLVMTargetMachineRef machine = machine_for(chip, ptx_version);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetModuleDataLayout(ir, layout);
  LLVMSetTarget(ir, "nvptx64-nvidia-cuda");
  mark_convergent(llvm, ir);
  optimise(ir, machine);
  if (llvm_ir)
    print_ir(ir, llvm_ir);
  if (ptx)
    print_ptx(ir, machine, ptx);
  LLVMDisposeTargetData(layout);
  LLVMDisposeTargetMachine(machine);
  LLVMDisposeModule(ir);
  LLVMContextDispose(llvm);
}
