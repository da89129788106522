/* driver_symbols.h: declares every driver entry point of runtime/cuda.def under the name it is
   exported by, for the libraries that stand in for libcuda.so.1. Those with a version are called by
   their plain name in the sources. */
#ifndef PISA_TESTS_DRIVER_SYMBOLS_H
#define PISA_TESTS_DRIVER_SYMBOLS_H

#include "runtime/cuda.h"

#define X(name, symbol, parameters) CUresult name parameters;
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemsetD8 cuMemsetD8_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#include "runtime/cuda.def"
#undef X

#endif
