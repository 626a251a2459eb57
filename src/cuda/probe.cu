#include "cuda/probe.h"

namespace glint::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) ProbeKernel(const ProbeArgs p) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= p.n) return;
  p.fused[i] = fmaf(p.a[i], p.b[i], p.c[i]);
  p.separate[i] = p.a[i] * p.b[i] + p.c[i];  // stays two roundings: built with -fmad=false
}

}  // namespace

cudaError_t LaunchProbe(const ProbeArgs& args, cudaStream_t stream) {
  if (args.n <= 0) return cudaSuccess;
  ProbeKernel<<<(args.n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t CompiledFor(int& architecture) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, ProbeKernel);
  architecture = attributes.ptxVersion;
  return error;
}

}  // namespace glint::cuda
