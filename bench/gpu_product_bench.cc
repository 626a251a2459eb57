// Products on a GPU by themselves: one decoded row (or a few) against one matrix after another, more of them than the L2 holds, as a
// graph; and gate and up of eight experts in one launch. Prints microseconds a launch, bytes (of the file) and weights a second, beside
// the read bandwidth measured in the same run. A prompt's products are counted in weights times rows a second; those with experts send
// each row through 8 of 288, drawn at random.
//   gpu_product_bench [--prompt ROWS]... [TYPE...]
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <random>
#include <vector>

#include "cuda/limits.h"
#include "cuda/product.h"
#include "cuda/tables.h"
#include "cuda/weights.h"

namespace {

using namespace glint;

constexpr int64_t kExperts = 32, kPromptExperts = 288, kUsed = 8;

struct Shape {
  int64_t rows, columns;
  bool experts = false;  // eight of the experts, two matrices of each
};

// Device time of one product (with its share of the rounding of x), in seconds: the median of several graphs of many.
double Time(const cuda::Context& context, const cuda::DeviceWeights& on_device,
            const cuda::DeviceTables& tables, const model::Weights& weights,
            const std::vector<const model::Matrix*>& matrices, int64_t rows, bool experts) {
  const int64_t columns = matrices[0]->columns, out = matrices[0]->rows,
                outputs = rows * out * (experts ? 2 * kUsed : 1);
  constexpr uint64_t kOthers = uint64_t{64} << 20;  // sorted pairs, and what areas are rounded up to
  auto memory =
      cuda::DeviceMemory::Take(context,
                               static_cast<uint64_t>(rows * columns + outputs) * sizeof(float) +
                                   static_cast<uint64_t>(cuda::Digits::Bytes(rows, columns)) + kOthers,
                               "the bench");
  if (!memory.ok()) return fmt::print("{}\n", memory.status().message()), 0;
  cudaMemset(memory->data(), 0, memory->bytes());
  const model::HParams hp;
  const plan::Step step{};
  cuda::How how;
  how.tensor_cores = true;
  const int64_t pairs = rows * kUsed;
  std::vector<int32_t> ids(matrices.size() * static_cast<size_t>(pairs));
  std::mt19937_64 rng(2);
  const auto slices = static_cast<uint64_t>(matrices[0]->slices);
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((rows == 1 ? i * 5 + i / 8 * 3 : rng()) % slices);
  auto on_ids = cuda::DeviceMemory::Take(context, ids.size() * sizeof(int32_t), "the bench");
  if (!on_ids.ok()) return 0;
  cudaMemcpy(on_ids->data(), ids.data(), ids.size() * sizeof(int32_t), cudaMemcpyHostToDevice);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeThreadLocal);
  cuda::Scratch scratch(memory->data(), memory->bytes());
  const cuda::StepContext c{hp,
                            weights,
                            on_device,
                            tables,
                            step,
                            plan::Pass::kTrunk,
                            nullptr,
                            rows,
                            1,
                            0,
                            0,
                            {},
                            how,
                            0,
                            0,
                            {},
                            nullptr,
                            scratch,
                            context.device(),
                            context.stream(),
                            context.side(),
                            nullptr,
                            context.device().compiled_major >= 9};
  const float* const x = scratch.Take<float>(rows * columns);
  float* const y = scratch.Take<float>(outputs);
  cuda::Operand operand(c, x, columns, rows, columns);
  for (size_t i = 0; i < matrices.size(); ++i) {
    const cuda::Pairs chosen{
        cuda::Pairs::Kind::kExperts,
        reinterpret_cast<const int32_t*>(on_ids->data()) + i / 2 * static_cast<size_t>(pairs), kUsed};
    const Status s = experts
                         ? operand.TimesAll({{matrices[i], y, out}, {matrices[i + 1], y + pairs * out, out}},
                                            chosen, pairs)
                         : operand.Times(*matrices[i], y, out);
    if (!s.ok()) fmt::print("{}\n", s.message());
    if (experts) ++i;
  }
  cudaStreamEndCapture(context.stream(), &graph);
  if (cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess) return 0;
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  std::vector<double> times;
  for (int pass = 0; pass < 12; ++pass) {
    cudaEventRecord(begin, context.stream());
    cudaGraphLaunch(exec, context.stream());
    cudaEventRecord(end, context.stream());
    cudaStreamSynchronize(context.stream());
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (pass > 1) times.push_back(ms * 1e-3 / static_cast<double>(matrices.size() / (experts ? 2 : 1)));
  }
  std::sort(times.begin(), times.end());
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaEventDestroy(begin), cudaEventDestroy(end);
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  auto context = cuda::Context::Create(0);
  if (!context.ok()) return fmt::print("{}\n", context.status().message()), 1;
  auto limits = cuda::MeasureLimits(*context);
  auto tables = cuda::DeviceTables::Load(*context);
  if (!limits.ok() || !tables.ok()) return 1;
  fmt::print("{}: reads {:.0f} GB/s\n", context->device().name, limits->read.best * 1e-9);
  std::vector<std::string> names;
  std::vector<int64_t> prompts;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--prompt" && i + 1 < argc)
      prompts.push_back(std::atoll(argv[++i]));
    else
      names.emplace_back(word);
  }
  if (names.empty()) names = {"q8_0", "q4_k", "q6_k", "iq4_xs", "iq3_xxs", "iq3_s", "iq2_s", "iq2_xxs"};
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal(0, 0.02f);
  for (const std::string& name : names) {
    const quant::Format* const format = quant::Find(name);
    if (format == nullptr || format->encode == nullptr) continue;
    // One encoded stretch of weights, repeated.
    std::vector<float> some(16384);
    for (float& v : some) v = normal(rng);
    std::vector<std::byte> block(some.size() / format->block_weights * format->block_bytes);
    format->encode(some.data(), nullptr, block.data(), some.size());
    const std::vector<int64_t> rows_of = prompts.empty() ? std::vector<int64_t>{1, 4, 8} : prompts;
    for (const Shape shape : {Shape{24576, 4096}, Shape{8192, 4096}, Shape{4096, 8192}, Shape{2048, 4096},
                              Shape{4096, 2048}, Shape{2048, 4096, true}}) {
      model::Weights weights;
      const uint64_t row_bytes = *quant::RowBytes(*format, static_cast<uint64_t>(shape.columns));
      const int64_t slices = !shape.experts ? 1 : prompts.empty() ? kExperts : kPromptExperts;
      const uint64_t bytes = row_bytes * static_cast<uint64_t>(shape.rows * slices);
      const size_t count =
          std::clamp<size_t>((600u << 20) / bytes, prompts.empty() ? 4 : 2, prompts.empty() ? 64 : 8) / 2 * 2;
      std::vector<std::vector<std::byte>> data(count, std::vector<std::byte>(bytes));
      weights.layers.resize(count);
      std::vector<const model::Matrix*> matrices;
      for (size_t i = 0; i < count; ++i) {
        for (size_t at = 0; at < bytes; at += block.size())
          std::copy_n(block.begin(), std::min(block.size(), bytes - at),
                      data[i].begin() + static_cast<int64_t>(at));
        model::Matrix& m = weights.layers[i].dense.gate;
        m.type = format->type, m.columns = shape.columns, m.rows = shape.rows, m.data = data[i].data(),
        m.row_bytes = row_bytes, m.slices = slices;
        matrices.push_back(&m);
      }
      auto on_device = cuda::DeviceWeights::Load(*context, {}, weights, {});
      if (!on_device.ok()) return fmt::print("{}\n", on_device.status().message()), 1;
      fmt::print("{:8} {:6} x {:5}{}", name, shape.rows, shape.columns,
                 shape.experts ? " x 8 x 2" : "        ");
      for (const int64_t rows : rows_of) {
        if (shape.experts && prompts.empty() && rows > 1) break;
        const double s = Time(*context, **on_device, *tables, weights, matrices, rows, shape.experts);
        const double weights_read =
            static_cast<double>(shape.rows * shape.columns * (shape.experts ? 2 * kUsed : 1));
        if (!prompts.empty()) {
          fmt::print("  {} rows {:7.1f} us {:6.1f} T/s", rows, s * 1e6,
                     weights_read * static_cast<double>(rows) / s * 1e-12);
          continue;
        }
        fmt::print(
            "  {} rows {:6.2f} us {:5.0f} GB/s {:5.2f} T/s", rows, s * 1e6,
            weights_read / static_cast<double>(shape.columns) * static_cast<double>(row_bytes) / s * 1e-9,
            weights_read / s * 1e-12);
      }
      fmt::print("\n");
    }
  }
  return 0;
}
