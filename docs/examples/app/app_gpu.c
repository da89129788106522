/* app_gpu: attention on the application's own stream and memory, then again from a CUDA graph.
   usage: app_gpu PACK [TOKENS] */
#include <cuda_runtime.h>
#include <pisa.h>
#include <stdio.h>
#include <stdlib.h>

static void check_cuda(cudaError_t status, const char *what) {
  if (status == cudaSuccess)
    return;
  fprintf(stderr, "app_gpu: %s: %s\n", what, cudaGetErrorString(status));
  exit(1);
}

static void check(pisa_status status, const pisa_error *error) {
  if (status == PISA_OK)
    return;
  fprintf(stderr, "app_gpu: %s: %s\n", pisa_status_name(status), error->message);
  exit(1);
}

/* |n| bfloat16 numbers in [-1, 1) on the device. */
static void *noise(size_t n, unsigned seed) {
  uint16_t *host = malloc(n * 2);
  void *device;
  for (size_t i = 0; host && i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    union {
      float real;
      uint32_t bits;
    } u = {(float)(seed >> 8) / 8388608.0f - 1.0f};
    host[i] = (uint16_t)(u.bits >> 16);
  }
  check_cuda(cudaMalloc(&device, n * 2), "allocating");
  check_cuda(cudaMemcpy(device, host, n * 2, cudaMemcpyHostToDevice), "copying");
  free(host);
  return device;
}

/* [1, heads, n, d], contiguous. */
static pisa_tensor tensor(void *data, int64_t heads, int64_t n, int64_t d) {
  return (pisa_tensor){data, {heads * n * d, n * d, d, 1}};
}

/* Attention of one sequence of |n| random tokens with the pack's own heads. */
static pisa_attention random_call(const pisa_pack_info *info, int64_t n) {
  int64_t h = info->heads, hk = info->kv_heads, d = info->head_dim;
  size_t q_size = (size_t)(h * n * d), k_size = (size_t)(hk * n * d);
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = 1,
                          .heads = h,
                          .kv_heads = hk,
                          .n_q = n,
                          .n_k = n,
                          .q = tensor(noise(q_size, 1), h, n, d),
                          .k = tensor(noise(k_size, 2), hk, n, d),
                          .v = tensor(noise(k_size, 3), hk, n, d),
                          .o = tensor(noise(q_size, 4), h, n, d)};
}

/* The call ten times from a graph: a launch only enqueues kernels, so it can be captured. */
static void replay(const pisa_module *module, const pisa_attention *call, void *workspace,
                   size_t bytes, cudaStream_t stream) {
  pisa_error error;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capturing");
  check(pisa_launch(module, call, workspace, bytes, stream, &error), &error);
  check_cuda(cudaStreamEndCapture(stream, &graph), "capturing");
  check_cuda(cudaGraphInstantiate(&ready, graph, 0), "making the graph");
  for (int i = 0; i < 10; i++)
    check_cuda(cudaGraphLaunch(ready, stream), "launching the graph");
  check_cuda(cudaStreamSynchronize(stream), "the graph");
  check_cuda(cudaGraphExecDestroy(ready), "ending");
  check_cuda(cudaGraphDestroy(graph), "ending");
}

int main(int argc, char **argv) {
  pisa_error error;
  pisa_pack *pack;
  pisa_pack_info info;
  pisa_module *module;
  if (argc < 2) {
    fprintf(stderr, "usage: app_gpu PACK [TOKENS]\n");
    return 1;
  }
  check(pisa_pack_open(argv[1], &pack, &error), &error);
  check(pisa_pack_get_info(pack, &info, &error), &error);
  int64_t n = argc > 2 ? atoi(argv[2]) : 4096;
  pisa_attention call = random_call(&info, n);
  check(pisa_module_load(pack, 0, 0, &module, &error), &error); /* into the runtime's context */

  size_t bytes;
  void *workspace = NULL;
  cudaStream_t stream;
  check(pisa_workspace_size(module, &call, &bytes, &error), &error);
  if (bytes)
    check_cuda(cudaMalloc(&workspace, bytes), "allocating the workspace");
  check_cuda(cudaStreamCreate(&stream), "making a stream");
  check(pisa_launch(module, &call, workspace, bytes, stream, &error), &error);
  check_cuda(cudaStreamSynchronize(stream), "attention");

  replay(module, &call, workspace, bytes, stream);

  uint16_t first;
  check_cuda(cudaMemcpy(&first, call.o.data, 2, cudaMemcpyDeviceToHost), "copying o");
  printf("%s: o[0] = %#06x, %lld tokens, %zu bytes of workspace, pisa %s\n", info.name, first,
         (long long)n, bytes, pisa_version());
  check_cuda(cudaStreamDestroy(stream), "ending");
  pisa_module_unload(module);
  pisa_pack_close(pack);
  return 0;
}
