// Lever moe.beside: a layer's experts but for their sum in one step, the shared one on a second stream while the router and the routed
// ones run. For few rows neither fills the GPU: their launches wait for memory, and for one another.
#include <algorithm>

#include "cuda/context.h"
#include "cuda/digits.h"
#include "cuda/launch.h"
#include "cuda/status.h"

namespace glint::cuda {

// The shared expert's part of the step's temporary memory.
static uint64_t SharedBytes(const StepContext& c) {
  constexpr int64_t kAreas = 4, kAlignment = 256;
  return static_cast<uint64_t>(Digits::Bytes(c.rows, c.hp.hidden) + Digits::Bytes(c.rows, c.hp.shared_ffn) +
                               c.rows * c.hp.shared_ffn * int64_t{sizeof(float)} + kAreas * kAlignment);
}

Status MoeBeside(const StepContext& c) {
  const uint64_t bytes = SharedBytes(c);
  auto* const memory = c.scratch.Take<std::byte>(static_cast<int64_t>(bytes));
  if (memory == nullptr) return NoScratch(c);
  Scratch of_shared(memory, bytes);
  const StepContext shared = c.Beside(of_shared);

  Status s = Check(cudaEventRecord(c.side.forked, c.stream), "leaving the stream of a pass");
  if (s.ok()) s = Check(cudaStreamWaitEvent(c.side.stream, c.side.forked), "leaving the stream of a pass");
  if (s.ok()) s = MoeSharedGateUp(shared);
  if (s.ok()) s = MoeSharedDown(shared);
  if (s.ok()) s = Check(cudaEventRecord(c.side.joined, c.side.stream), "returning to the stream of a pass");
  if (s.ok()) s = MoeRoute(c);
  if (s.ok()) s = MoeGateUp(c);
  if (s.ok()) s = MoeDown(c);
  if (s.ok()) s = Check(cudaStreamWaitEvent(c.stream, c.side.joined), "returning to the stream of a pass");
  return s;
}

}  // namespace glint::cuda
