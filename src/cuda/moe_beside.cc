// Lever moe.beside: a layer's experts but for their sum in one step, the shared one on a second stream while the router and the routed
// ones run. For few rows neither fills the GPU: their launches wait for memory, and for one another.
#include <algorithm>

#include "cuda/context.h"
#include "cuda/digits.h"
#include "cuda/launch.h"
#include "cuda/moe_experts.h"
#include "cuda/status.h"

namespace glint::cuda {

// The shared expert's part of the step's temporary memory.
static uint64_t SharedBytes(const StepContext& c) {
  constexpr int64_t kAreas = 4, kAlignment = 256;
  return static_cast<uint64_t>(Digits::Bytes(c.rows, c.hp.hidden) + Digits::Bytes(c.rows, c.hp.shared_ffn) +
                               c.rows * c.hp.shared_ffn * int64_t{sizeof(float)} + kAreas * kAlignment);
}

// Where a pass is captured, the first launch on the side stream may begin before what was launched before the fork has ended, like the
// next one on the main stream: the shared expert's first weights are there when hc.block ends. Both wait for it (cuda/async.cuh).
static Status BeginEarlyAfterFork(const StepContext& c) {
#if CUDART_VERSION >= 13000
  cudaStreamCaptureStatus capture{};
  const cudaGraphNode_t* before = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  Status s = Check(cudaStreamGetCaptureInfo(c.stream, &capture, nullptr, nullptr, &before, &edges, &count),
                   "asking what a pass's next launch depends on");
  if (!s.ok() || !c.early || capture != cudaStreamCaptureStatusActive || count != 1) return s;
  cudaGraphNode_t node = *before;
  cudaGraphNodeType type{};
  s = Check(cudaGraphNodeGetType(node, &type), "asking what a pass's next launch depends on");
  if (!s.ok() || type != cudaGraphNodeTypeKernel) return s;
  cudaGraphEdgeData edge{};
  edge.from_port = cudaGraphKernelNodePortProgrammatic;
  edge.type = cudaGraphDependencyTypeProgrammatic;
  return Check(
      cudaStreamUpdateCaptureDependencies(c.side.stream, &node, &edge, 1, cudaStreamSetCaptureDependencies),
      "leaving the stream of a pass");
#else
  static_cast<void>(c);
  return {};
#endif
}

Status MoeBeside(const StepContext& c) {
  const uint64_t bytes = SharedBytes(c);
  auto* const memory = c.scratch.Take<std::byte>(static_cast<int64_t>(bytes));
  if (memory == nullptr) return NoScratch(c);
  Scratch of_shared(memory, bytes);
  const StepContext shared = c.Beside(of_shared);

  Status s = Check(cudaEventRecord(c.side.forked, c.stream), "leaving the stream of a pass");
  if (s.ok()) s = Check(cudaStreamWaitEvent(c.side.stream, c.side.forked), "leaving the stream of a pass");
  if (s.ok()) s = BeginEarlyAfterFork(c);
  if (s.ok()) s = MoeSharedGateUp(shared);
  if (s.ok()) s = MoeSharedDown(shared);
  if (s.ok()) s = Check(cudaEventRecord(c.side.joined, c.side.stream), "returning to the stream of a pass");
  if (s.ok()) s = MoeRoute(c);
  bool in_one = false;
  if (s.ok()) s = MoeGateUpIn(c, &in_one);
  if (s.ok()) s = MoeDownOf(c, in_one);
  if (s.ok()) s = Check(cudaStreamWaitEvent(c.stream, c.side.joined), "returning to the stream of a pass");
  return s;
}

}  // namespace glint::cuda
