#include "cuda/limits.h"

#include <algorithm>
#include <vector>

#include "cuda/limit_kernels.h"
#include "cuda/memory.h"
#include "cuda/status.h"

namespace glint::cuda {
namespace {

constexpr int kPasses = 9, kKinds = 8;  // of passes
constexpr uint64_t kMostBytes = uint64_t{2} << 30, kLeastBytes = uint64_t{256} << 20;
constexpr uint64_t kCopyBytes = uint64_t{64} << 20;
// Enough that starting the graph, or the kernel, hardly counts.
constexpr int kLaunches = 1000, kBarriers = 1000;

double Median(std::vector<double>& seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}
plan::Rate RateOf(double work, std::vector<double> seconds) {
  const double median = Median(seconds);
  return {work / seconds.front(), work / median};
}
plan::Cost CostOf(double work, std::vector<double> seconds) {
  const double median = Median(seconds);
  return {seconds.front() / work, median / work};
}

// Device time of what is enqueued between two marks, again and again.
class Clock {
 public:
  Clock(const Context& context, const Progress& progress) : context_(context), progress_(progress) {}
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  ~Clock() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }
  Status Create() {
    Status status = Check(cudaEventCreate(&begin_), "making an event");
    return status.ok() ? Check(cudaEventCreate(&end_), "making an event") : status;
  }
  // Seconds of kPasses passes of `enqueue`, a Status(); the one before them warms up.
  template <class Enqueue>
  Result<std::vector<double>> Measure(Enqueue&& enqueue) {
    std::vector<double> seconds;
    const cudaStream_t stream = context_.stream();
    for (int pass = 0; pass <= kPasses; ++pass, ++done_) {
      if (progress_ && !progress_(done_, kKinds * (kPasses + 1)))
        return Status(Code::kBadInput, "interrupted");
      Status status = Check(cudaEventRecord(begin_, stream), "recording an event");
      if (status.ok()) status = enqueue();
      if (status.ok()) status = Check(cudaGetLastError(), "launching a measurement");
      if (status.ok()) status = Check(cudaEventRecord(end_, stream), "recording an event");
      if (status.ok()) status = context_.Wait();
      float milliseconds = 0;
      if (status.ok()) status = Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "reading an event");
      if (!status.ok()) return status;
      if (pass > 0) seconds.push_back(milliseconds * 1e-3);
    }
    return seconds;
  }

 private:
  const Context& context_;
  const Progress& progress_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  uint64_t done_ = 0;
};

// kLaunches empty kernels after each other, captured.
class EmptyGraph {
 public:
  EmptyGraph() = default;
  EmptyGraph(const EmptyGraph&) = delete;
  EmptyGraph& operator=(const EmptyGraph&) = delete;
  ~EmptyGraph() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }
  Status Create(const Context& context, int blocks, bool early) {
    const cudaStream_t stream = context.stream();
    Status status =
        Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing launches");
    Status launched = status;
    for (int i = 0; i < kLaunches && launched.ok(); ++i) LaunchEmpty(blocks, early && i > 0, stream);
    if (launched.ok()) launched = Check(cudaGetLastError(), "capturing launches");
    cudaGraph_t graph = nullptr;
    status = Check(cudaStreamEndCapture(stream, &graph), "ending the capture of launches");
    if (!launched.ok()) status = launched;
    if (status.ok()) status = Check(cudaGraphInstantiate(&exec_, graph, 0), "making a graph of launches");
    if (graph != nullptr) cudaGraphDestroy(graph);
    return status;
  }
  Status Launch(const Context& context) const {
    return Check(cudaGraphLaunch(exec_, context.stream()), "launching a graph of launches");
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

Result<plan::HostLimits> MeasureHost(const Context& context, Clock& clock, std::byte* memory) {
  plan::HostLimits limits;
  limits.launches = kLaunches, limits.barriers = kBarriers, limits.copy_bytes = kCopyBytes;
  const int blocks = context.device().multiprocessors;
  const cudaStream_t stream = context.stream();
  for (const bool early : {false, true}) {
    if (early && context.device().compiled_major < 9) continue;
    EmptyGraph graph;
    if (Status status = graph.Create(context, blocks, early); !status.ok()) return status;
    const auto seconds = clock.Measure([&] { return graph.Launch(context); });
    if (!seconds.ok()) return seconds.status();
    (early ? limits.early_launch : limits.launch) = CostOf(kLaunches, *seconds);
  }

  // Clearing the counter is timed too, and does not count beside a thousand barriers.
  auto* const arrived = reinterpret_cast<uint32_t*>(memory);
  const auto barriers = clock.Measure([&] {
    Status status = Check(cudaMemsetAsync(arrived, 0, sizeof(uint32_t), stream), "clearing a counter");
    if (!status.ok()) return status;
    return Check(LaunchBarriers(blocks, kBarriers, arrived, stream), "launching barriers");
  });
  if (!barriers.ok()) return barriers.status();
  limits.barrier = CostOf(kBarriers, *barriers);

  auto pinned = PinnedMemory::Take(kCopyBytes, "measuring copies");
  if (!pinned.ok()) return pinned.status();
  const auto to = clock.Measure([&] {
    return Check(cudaMemcpyAsync(memory, pinned->data(), kCopyBytes, cudaMemcpyHostToDevice, stream),
                 "copying to the device");
  });
  if (!to.ok()) return to.status();
  limits.to_device = RateOf(static_cast<double>(kCopyBytes), *to);
  const auto from = clock.Measure([&] {
    return Check(cudaMemcpyAsync(pinned->data(), memory, kCopyBytes, cudaMemcpyDeviceToHost, stream),
                 "copying from the device");
  });
  if (!from.ok()) return from.status();
  limits.from_device = RateOf(static_cast<double>(kCopyBytes), *from);
  return limits;
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

  Clock clock(context, progress);
  if (Status status = clock.Create(); !status.ok()) return status;
  const int blocks = context.device().multiprocessors;
  const auto measure = [&](auto&& launch) {
    return clock.Measure([&] {
      launch();
      return Status();
    });
  };
  const auto read = measure([&] { LaunchRead(blocks * 4, memory->data(), bytes, out, stream); });
  if (!read.ok()) return read.status();
  const auto products = measure([&] { LaunchByteProducts(blocks * 2, out, stream); });
  if (!products.ok()) return products.status();
  const auto floats = measure([&] { LaunchFloatProducts(blocks * 4, out, stream); });
  if (!floats.ok()) return floats.status();
  auto host = MeasureHost(context, clock, memory->data());
  if (!host.ok()) return host.status();

  plan::Limits limits;
  limits.passes = kPasses;
  limits.read = RateOf(static_cast<double>(bytes), *read);
  limits.read_bytes = bytes;
  const double warps = static_cast<double>(blocks) * 2 * (kLimitThreads / 32);
  limits.byte_products = RateOf(warps * kLimitProducts * kByteAccumulators * (16 * 8 * 32), *products);
  // A canonical product's 16-bit digits are two bytes each: half the rate.
  limits.integer_products = {limits.byte_products.best / 2, limits.byte_products.median / 2};
  limits.float_products =
      RateOf(static_cast<double>(blocks) * 4 * kLimitThreads * kLimitProducts * kFloatAccumulators, *floats);
  limits.instructions = "mma.m16n8k32";
  limits.host = *host;
  return limits;
}

}  // namespace glint::cuda
