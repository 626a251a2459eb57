#include "cuda/backend.h"

#include <fmt/core.h>

#include <chrono>
#include <list>

#include "cuda/execution.h"
#include "cuda/limits.h"
#include "cuda/ranges.h"
#include "cuda/status.h"

namespace glint::cuda {
namespace {

using plan::Batch;
using plan::Plan;
using plan::Slot;
using plan::Step;

// Passes of more rows are bound by their kernels, not by launches.
constexpr int64_t kMostGraphRows = 8;
constexpr size_t kGraphsKept = 16;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The launches of a pass, captured once. Everything that its kernels read from host variables is in the key.
struct GraphKey {
  uint64_t plan = 0;       // Plan::id
  uint64_t addresses = 0;  // counts how often memory that the launches refer to has moved
  size_t segments = 0, wanted = 0;
  int64_t rows = 0, capacity = 0;
  int64_t best_of = 0;  // Batch::usable_vocab; 0: its best is not wanted
  bool final_out = false;
  friend bool operator==(const GraphKey&, const GraphKey&) = default;
};
struct Graph {
  GraphKey key;
  cudaGraphExec_t exec = nullptr;
};

// Marks in device time around the steps of a pass.
class Events {
 public:
  Events() = default;
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Status Mark(cudaStream_t stream) {
    cudaEvent_t event = nullptr;
    if (Status status = Check(cudaEventCreate(&event), "making an event"); !status.ok()) return status;
    events_.push_back(event);
    return Check(cudaEventRecord(event, stream), "recording an event");
  }
  // Seconds from mark `a` to mark `b`; after the stream was waited for.
  double Between(size_t a, size_t b) const {
    float milliseconds = 0;
    return cudaEventElapsedTime(&milliseconds, events_[a], events_[b]) == cudaSuccess ? milliseconds * 1e-3
                                                                                      : 0;
  }

 private:
  std::vector<cudaEvent_t> events_;
};

class Backend final : public plan::Backend {
 public:
  explicit Backend(Device device) : device_(std::move(device)) {}
  ~Backend() override {
    if (!device_.context->Enter().ok()) return;
    (void)device_.context->Wait();
    for (const Graph& graph : graphs_) cudaGraphExecDestroy(graph.exec);
  }

  const Device& device() const { return device_; }
  std::string_view name() const override { return "cuda"; }
  std::span<const plan::Lever> levers() const override { return Levers(); }
  uint64_t weight_bytes() const override { return device_.on_device->bytes(); }

  MemoryRoom Room() const override {
    const DeviceInfo& device = device_.context->device();
    MemoryRoom room{std::numeric_limits<uint64_t>::max(),
                    fmt::format("the memory of GPU {} ({})", device.ordinal, device.name)};
    size_t free = 0, total = 0;
    if (device_.context->Enter().ok() && Check(cudaMemGetInfo(&free, &total), "").ok()) room.bytes = free;
    return room;  // who takes it learns of a device that does not answer
  }
  // Every pass of more than a hundred rows reads and decodes all experts: 114 rows an expert share that, instead of 14 at 512.
  int64_t prompt_rows() const override { return 4096; }

  uint64_t StateBytes(int64_t capacity, bool mtp) const override {
    return plan::StateBytes(device_.hp, capacity, mtp);
  }

  Result<std::unique_ptr<plan::SequenceState>> NewState(int64_t capacity, bool mtp) override {
    const auto layout = plan::NewStateLayout(device_.hp, !device_.weights.nextn.empty(), capacity, mtp);
    if (!layout.ok()) return layout.status();
    auto state = SequenceState::Create(device_.context, *layout, device_.options.poison);
    if (!state.ok()) return state.status();
    return std::unique_ptr<plan::SequenceState>(std::move(*state));
  }

  Status Run(const Plan& plan, const Batch& batch, const plan::Observer& observer) override {
    return Run(plan, batch, observer, nullptr);
  }

  Status RunTimed(const Plan& plan, const Batch& batch, std::span<plan::StepTime> times,
                  double* whole) override {
    if (times.size() != plan.steps.size()) {
      return {Code::kInternal, fmt::format("room for {} times of {} steps", times.size(), plan.steps.size())};
    }
    const double start = Seconds();
    Events events;
    if (Status status = Run(plan, batch, {}, &events); !status.ok()) return status;
    *whole = Seconds() - start;
    for (size_t i = 0; i < times.size() && !batch.tokens.empty(); ++i)
      times[i] = {events.Between(0, i), events.Between(i, i + 1)};
    return {};
  }

  Result<plan::Limits> MeasureLimits(const Progress& progress) override {
    return cuda::MeasureLimits(*device_.context, progress);
  }

  Result<std::unique_ptr<plan::Execution>> Begin(const Plan& plan, const Batch& batch) override {
    return BeginExecution(device_, plan, batch);
  }

 private:
  Status Run(const Plan& plan, const Batch& batch, const plan::Observer& observer, Events* events) {
    if (Status status = device_.context->Enter(); !status.ok()) return status;
    if (Status status = CheckPass(device_, plan, batch); !status.ok()) return status;
    if (batch.tokens.empty()) return {};
    if (Status status = Reserve(plan, batch); !status.ok()) return status;
    if (Status status = batch_.Fill(device_, batch); !status.ok()) return status;
    PassRunner runner(device_, plan, batch, batch_.view(), buffers_.data());
    const Range range([&] { return fmt::format("pass of {} rows", runner.rows()); });
    const bool graph = !observer && events == nullptr && !device_.options.poison &&
                       runner.rows() <= kMostGraphRows && UsesGraph(plan);
    Status status = graph ? RunGraph(plan, batch, runner) : RunSteps(plan, runner, observer, events);
    if (status.ok()) status = batch_.Return(device_, batch);
    if (!status.ok()) {
      (void)device_.context->Wait();  // nothing of a failed pass may still run when its memory is used anew
      return status;
    }
    runner.Advance();
    return {};
  }

  Status Reserve(const Plan& plan, const Batch& batch) {
    if (Status status = ReserveScratch(device_, plan, batch); !status.ok()) return status;
    Status status =
        batch_.Reserve(device_, static_cast<int64_t>(batch.tokens.size()),
                       static_cast<int64_t>(batch.segments.size()), static_cast<int64_t>(batch.wanted.size()),
                       batch.best != nullptr, batch.final_out != nullptr, batch.hidden_in != nullptr);
    if (!status.ok()) return status;
    const uint64_t bytes = PassBytes(device_, plan);
    if (buffers_.bytes() < bytes) {
      buffers_ = {};
      auto memory = DeviceMemory::Take(*device_.context, bytes, "the buffers of a pass");
      if (!memory.ok()) return memory.status();
      buffers_ = std::move(*memory);
      ++buffers_moves_;
    }
    return {};
  }

  Status RunSteps(const Plan& plan, PassRunner& runner, const plan::Observer& observer, Events* events) {
    const cudaStream_t stream = device_.context->stream();
    Status status = runner.Start();
    if (status.ok() && events != nullptr) status = events->Mark(stream);
    for (const Step& step : plan.steps) {
      if (!status.ok()) return status;
      status = runner.Run(step);
      if (status.ok() && events != nullptr) status = events->Mark(stream);
      if (!status.ok() || !observer) continue;
      Observed observed{runner, *device_.context, {}, {}};
      if (status = device_.context->Wait(); !status.ok()) return status;
      observer({plan, step, static_cast<int>(runner.rows()), &Observed::Find, &observed});
      status = observed.status;
    }
    return status.ok() ? runner.FindBest() : status;
  }

  // Slots copied to the host when an observer asks for them.
  struct Observed {
    PassRunner& runner;
    const Context& context;
    std::vector<std::vector<std::byte>> copies;
    Status status;
    static const void* Find(const void* self, Slot slot) {
      auto& o = *static_cast<Observed*>(const_cast<void*>(self));
      const void* const from = o.runner.Find(slot);
      if (from == nullptr) return nullptr;
      auto& copy = o.copies.emplace_back(static_cast<size_t>(o.runner.BytesOf(slot)));
      Status status =
          Check(cudaMemcpyAsync(copy.data(), from, copy.size(), cudaMemcpyDeviceToHost, o.context.stream()),
                "reading a slot");
      if (status.ok()) status = o.context.Wait();
      if (!status.ok()) o.status = status;
      return copy.data();
    }
  };

  static bool UsesGraph(const Plan& plan) {
    for (const plan::Lever* lever : plan.levers)
      if (lever->name == "graph") return true;
    return false;
  }

  Status RunGraph(const Plan& plan, const Batch& batch, PassRunner& runner) {
    const GraphKey key{plan.id,
                       device_.scratch_moves + batch_.moves() + buffers_moves_,
                       batch.segments.size(),
                       batch.wanted.size(),
                       runner.rows(),
                       runner.capacity(),
                       batch.best != nullptr ? batch.usable_vocab : 0,
                       batch.final_out != nullptr};
    for (auto it = graphs_.begin(); it != graphs_.end(); ++it) {
      if (!(it->key == key)) continue;
      graphs_.splice(graphs_.begin(), graphs_, it);
      return Check(cudaGraphLaunch(it->exec, device_.context->stream()), "launching the graph of a pass");
    }
    auto made = Capture(plan, runner);
    if (!made.ok()) return made.status();
    if (graphs_.size() == kGraphsKept) {
      cudaGraphExecDestroy(graphs_.back().exec);
      graphs_.pop_back();
    }
    graphs_.push_front({key, *made});
    return Check(cudaGraphLaunch(*made, device_.context->stream()), "launching the graph of a pass");
  }

  Result<cudaGraphExec_t> Capture(const Plan& plan, PassRunner& runner) {
    const cudaStream_t stream = device_.context->stream();
    Status status =
        Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a pass");
    Status steps = status;
    for (size_t i = 0; i < plan.steps.size() && steps.ok(); ++i) steps = runner.Run(plan.steps[i]);
    if (steps.ok()) steps = runner.FindBest();
    cudaGraph_t graph = nullptr;
    // Whatever happened: a stream that goes on capturing is of no more use.
    status = Check(cudaStreamEndCapture(stream, &graph), "ending the capture of a pass");
    if (!steps.ok()) status = steps;
    cudaGraphExec_t exec = nullptr;
    if (status.ok()) status = Check(cudaGraphInstantiate(&exec, graph, 0), "making a graph of a pass");
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (status.ok()) return exec;
    if (exec != nullptr) cudaGraphExecDestroy(exec);
    return status;
  }

  Device device_;
  DeviceMemory buffers_;
  uint64_t buffers_moves_ = 0;
  BatchMemory batch_;
  std::list<Graph> graphs_;  // most recently used first
};

}  // namespace

Result<std::unique_ptr<plan::Backend>> MakeBackend(const model::ModelData& model, int ordinal,
                                                   const Progress& progress, const BackendOptions& options) {
  auto context = Context::Create(ordinal);
  if (!context.ok()) return context.status();
  auto shared = std::make_shared<const Context>(std::move(*context));
  auto weights = DeviceWeights::Load(*shared, model.hparams, model.weights, progress, model.synthetic.get());
  if (!weights.ok()) return weights.status();
  auto tables = DeviceTables::Load(*shared);
  if (!tables.ok()) return tables.status();
  return std::unique_ptr<plan::Backend>(
      std::make_unique<Backend>(Device{model.hparams,
                                       model.weights,
                                       options,
                                       std::move(shared),
                                       std::move(*weights),
                                       std::make_shared<const DeviceTables>(std::move(*tables)),
                                       {},
                                       0}));
}

Result<std::unique_ptr<plan::Backend>> ShareBackend(const model::ModelData& model, const plan::Backend& other,
                                                    const BackendOptions& options) {
  const auto* backend = dynamic_cast<const Backend*>(&other);
  if (backend == nullptr) return Status(Code::kInternal, "weights of a backend that is not CUDA's");
  const Device& device = backend->device();
  if (Status status = device.context->Enter(); !status.ok()) return status;
  return std::unique_ptr<plan::Backend>(std::make_unique<Backend>(
      Device{model.hparams, model.weights, options, device.context, device.on_device, device.tables, {}, 0}));
}

}  // namespace glint::cuda
