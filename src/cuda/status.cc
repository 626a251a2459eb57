#include "cuda/status.h"

#include <fmt/core.h>

#include <atomic>

namespace glint::cuda {
namespace {

// FailingChecks'. Written only while nobody checks.
struct Failing {
  std::atomic<bool> armed{false};
  std::atomic<int64_t> made{0};
  int64_t first = 0;
  bool once = false;
  cudaError_t error = cudaSuccess;
};
Failing g_failing;

}  // namespace

cudaError_t Seen(cudaError_t error) {
  if (!g_failing.armed.load(std::memory_order_relaxed)) return error;
  const int64_t n = g_failing.made++;
  const bool fails = g_failing.once ? n == g_failing.first : n >= g_failing.first;
  return fails && error == cudaSuccess ? g_failing.error : error;
}

Status Failed(cudaError_t error, std::string_view doing) {
  cudaGetLastError();
  const Code code = error == cudaErrorMemoryAllocation ? Code::kNoRoom : Code::kDevice;
  return {code, fmt::format("{}: {} ({})", doing, cudaGetErrorName(error), cudaGetErrorString(error))};
}

Status Check(cudaError_t error, std::string_view doing) {
  const cudaError_t seen = Seen(error);
  if (seen == cudaSuccess) return {};
  return Failed(seen, doing);
}

FailingChecks::FailingChecks(int64_t n, cudaError_t error, bool once) {
  g_failing.made = 0;
  g_failing.first = n, g_failing.once = once, g_failing.error = error;
  g_failing.armed = true;
}
FailingChecks::~FailingChecks() { g_failing.armed = false; }
int64_t FailingChecks::made() const { return g_failing.made; }

}  // namespace glint::cuda
