#include "cuda/limits.h"

#include <algorithm>
#include <vector>

#include "cuda/limit_kernels.h"
#include "cuda/memory.h"
#include "cuda/status.h"

namespace glint::cuda {
namespace {

constexpr int kPasses = 9;
constexpr uint64_t kMostBytes = uint64_t{2} << 30, kLeastBytes = uint64_t{256} << 20;

plan::Rate RateOf(double work, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {work / seconds.front(), work / seconds[seconds.size() / 2]};
}

}  // namespace

Result<plan::Limits> MeasureLimits(const Context& context, const Progress& progress) {
  if (Status status = context.Enter(); !status.ok()) return status;
  size_t free = 0, total = 0;
  if (Status status = Check(cudaMemGetInfo(&free, &total), "asking for free device memory"); !status.ok())
    return status;
  const uint64_t bytes = std::min<uint64_t>(kMostBytes, free / 2 / kLeastBytes * kLeastBytes);
  if (bytes < kLeastBytes)
    return Status(Code::kNoRoom, "too little device memory is free to measure its bandwidth");
  auto memory = DeviceMemory::Take(context, bytes + 256, "measuring the bandwidth");
  if (!memory.ok()) return memory.status();
  const cudaStream_t stream = context.stream();
  if (Status status = Check(cudaMemsetAsync(memory->data(), 1, bytes, stream), "filling memory");
      !status.ok())
    return status;
  std::byte* const out = memory->data() + bytes;

  cudaEvent_t begin = nullptr, end = nullptr;
  Status status = Check(cudaEventCreate(&begin), "making an event");
  if (status.ok()) status = Check(cudaEventCreate(&end), "making an event");
  const int blocks = context.device().multiprocessors;
  int done = 0;
  const auto measure = [&](auto&& launch) {
    std::vector<double> seconds;
    for (int pass = 0; pass <= kPasses && status.ok(); ++pass, ++done) {
      if (progress && !progress(static_cast<uint64_t>(done), 3 * (kPasses + 1))) {
        status = {Code::kBadInput, "interrupted"};
        break;
      }
      cudaEventRecord(begin, stream);
      launch();
      cudaEventRecord(end, stream);
      status = Check(cudaGetLastError(), "launching a measurement");
      if (status.ok()) status = context.Wait();
      float milliseconds = 0;
      if (status.ok()) status = Check(cudaEventElapsedTime(&milliseconds, begin, end), "reading an event");
      if (pass > 0) seconds.push_back(milliseconds * 1e-3);  // the first warms up
    }
    return seconds;
  };
  const auto read = measure([&] { LaunchRead(blocks * 4, memory->data(), bytes, out, stream); });
  const auto products = measure([&] { LaunchByteProducts(blocks * 2, out, stream); });
  const auto floats = measure([&] { LaunchFloatProducts(blocks * 4, out, stream); });
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  if (!status.ok()) return status;

  plan::Limits limits;
  limits.passes = kPasses;
  limits.read = RateOf(static_cast<double>(bytes), read);
  limits.read_bytes = bytes;
  const double warps = static_cast<double>(blocks) * 2 * (kLimitThreads / 32);
  limits.byte_products = RateOf(warps * kLimitProducts * kByteAccumulators * (16 * 8 * 32), products);
  // A canonical product's 16-bit digits are two bytes each: half the rate.
  limits.integer_products = {limits.byte_products.best / 2, limits.byte_products.median / 2};
  limits.float_products =
      RateOf(static_cast<double>(blocks) * 4 * kLimitThreads * kLimitProducts * kFloatAccumulators, floats);
  limits.instructions = "mma.m16n8k32";
  return limits;
}

}  // namespace glint::cuda
