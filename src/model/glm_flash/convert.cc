#include "model/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>

#include "base/json.h"
#include "base/thread_pool.h"
#include "gguf/safetensors.h"
#include "gguf/writer.h"
#include "model/arena.h"
#include "model/file_type.h"
#include "model/glm_flash/hf_checkpoint.h"
#include "model/glm_flash/hf_source.h"
#include "model/glm_flash/recipe.h"
#include "model/load.h"
#include "quant/range.h"
#include "text/gguf_tokenizer.h"
#include "text/hf_tokenizer.h"

namespace glint::model {
namespace {

using quant::Type;

// Rows are converted in batches of about this many weights: the whole of what is in memory at a time.
constexpr int64_t kBatchWeights = int64_t{1} << 20;

Status CheckType(Type type) {
  const quant::Format* format = quant::Find(type);
  if (format != nullptr && format->encode != nullptr) return {};
  return {Code::kUnsupported, fmt::format("can not convert to type {}; there are {}", quant::Name(type),
                                          quant::EncodableNames())};
}

// Every key of dialect A that a loader may ask for (spec/gguf.md 2.1).
Status SetHParams(const HParams& hp, gguf::Writer& writer) {
  constexpr const char* kArchitecture = "glm5next";
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", kArchitecture, name); };
  const auto u32 = [&](std::string_view name, int64_t value) {
    writer.SetU32(key(name), static_cast<uint32_t>(value));
  };
  const auto f32 = [&](std::string_view name, float value) { writer.SetF32(key(name), value); };

  const auto first_moe = std::find(hp.moe.begin(), hp.moe.end(), uint8_t{1});
  if (std::find(first_moe, hp.moe.end(), uint8_t{0}) != hp.moe.end()) {
    return {Code::kUnsupported,
            "a dense FFN after one of experts can not be written: GGUF counts leading dense blocks"};
  }
  const int64_t blocks = hp.layers + hp.nextn_layers;
  std::vector<uint32_t> schedule;
  for (int64_t i = 0; i < blocks; ++i) {
    schedule.push_back(i >= hp.layers || hp.mixers[static_cast<size_t>(i)] == Mixer::kDsa);
  }
  u32("block_count", blocks);
  u32("context_length", hp.context_length);
  u32("embedding_length", hp.hidden);
  u32("feed_forward_length", hp.dense_ffn);
  u32("attention.head_count", hp.heads);
  writer.SetU32s(key("attention.head_count_kv"), schedule);
  f32("attention.layer_norm_rms_epsilon", hp.rms_eps);
  f32("attention.layer_norm_epsilon", hp.layer_norm_eps);
  u32("attention.q_lora_rank", hp.q_lora_rank);
  u32("attention.kv_lora_rank", hp.kv_lora_rank);
  u32("attention.key_length", hp.kv_lora_rank);  // what the absorbed form attends with
  u32("attention.value_length", hp.kv_lora_rank);
  u32("attention.key_length_mla", hp.qk_head_dim);
  u32("attention.value_length_mla", hp.v_head_dim);
  u32("rope.dimension_count", 0);
  u32("vocab_size", hp.vocab_size);
  u32("expert_count", hp.experts);
  u32("expert_used_count", hp.experts_used);
  u32("expert_group_count", 1);
  u32("expert_group_used_count", 1);
  u32("expert_gating_func", 2);  // sigmoid
  u32("expert_feed_forward_length", hp.expert_ffn);
  u32("expert_shared_count", hp.expert_ffn > 0 ? std::max<int64_t>(hp.shared_ffn / hp.expert_ffn, 1) : 1);
  u32("expert_shared_feed_forward_length", hp.shared_ffn);
  f32("expert_weights_scale", hp.routed_scale);
  writer.SetBool(key("expert_weights_norm"), hp.norm_topk);
  u32("leading_dense_block_count", first_moe - hp.moe.begin());
  if (std::isfinite(hp.swiglu_limit)) {
    const std::vector<float> limits(static_cast<size_t>(blocks), hp.swiglu_limit);
    writer.SetF32s(key("swiglu_clamp_exp"), limits);
    writer.SetF32s(key("swiglu_clamp_shexp"), limits);
  }
  u32("ssm.conv_kernel", hp.conv_kernel);
  u32("kda.head_dim", hp.kda_head_dim);
  f32("kda.gate_lower_bound", hp.gate_lower_bound);
  u32("attention.indexer.head_count", hp.index_heads);
  u32("attention.indexer.key_length", hp.index_head_dim);
  u32("attention.indexer.top_k", hp.index_topk);
  u32("attention.indexer.kpool", hp.index_kpool);
  u32("hyper_connection.count", hp.hc_mult);
  u32("hyper_connection.sinkhorn_iterations", hp.sinkhorn_iters);
  f32("hyper_connection.epsilon", hp.hc_eps);
  u32("nextn_predict_layers", hp.nextn_layers);
  return {};
}

void SetGeneral(const ConvertOptions& options, const std::string& directory, gguf::Writer& writer,
                std::vector<std::string>& notes) {
  writer.SetString("general.architecture", "glm5next");
  writer.SetString("general.type", "model");
  writer.SetString("general.name", options.name.empty() ? NameFromPath(directory) : options.name);
  writer.SetU32("general.file_type", FileType(options.experts_set ? options.experts : options.type));
  writer.SetU32("general.quantization_version", 2);
  const SamplingHints hints = ReadGenerationConfig(directory, notes);
  if (hints.temperature) writer.SetF32("general.sampling.temp", *hints.temperature);
  if (hints.top_p) writer.SetF32("general.sampling.top_p", *hints.top_p);
  if (hints.top_k) writer.SetI32("general.sampling.top_k", *hints.top_k);
}

// A checkpoint without a tokenizer makes a file without one.
Status SetTokenizer(const std::string& directory, const HParams& hp, gguf::Writer& writer) {
  auto tokenizer = text::ReadHfTokenizer(directory, hp.vocab_size);
  if (!tokenizer.ok()) return tokenizer.status().code() == Code::kNotFound ? Status() : tokenizer.status();
  auto chat_template = text::ReadHfChatTemplate(directory);
  if (!chat_template.ok()) return chat_template.status();
  return text::WriteGgufTokenizer(*tokenizer, *chat_template, writer);
}

// Streams one tensor in its new type.
class Conversion {
 public:
  // `files` and `threads` must outlive it.
  Conversion(Tensor tensor, HfTensor source, const gguf::SafeTensors& files, const quant::Format& format,
             ThreadPool& threads)
      : tensor_(tensor), source_(std::move(source)), files_(files), format_(format), threads_(threads) {}

  Status operator()(const gguf::Writer::Sink& sink) const {
    const int64_t columns = source_.shape.columns;
    const int64_t batch = std::max<int64_t>(1, kBatchWeights / columns);
    const auto row_bytes = static_cast<size_t>(columns) / format_.block_weights * format_.block_bytes;
    std::vector<float> weights(static_cast<size_t>(std::min(batch, source_.shape.rows) * columns));
    std::vector<std::byte> encoded(static_cast<size_t>(std::min(batch, source_.shape.rows)) * row_bytes);
    for (int64_t slice = 0; slice < source_.shape.slices; ++slice) {
      for (int64_t first = 0; first < source_.shape.rows; first += batch) {
        const int64_t rows = std::min(batch, source_.shape.rows - first);
        std::atomic<int64_t> bad{
            std::numeric_limits<int64_t>::max()};  // the first weight that can not be stored
        threads_.ParallelFor(static_cast<size_t>(rows), 1, [&](size_t begin, size_t end, int) {
          for (size_t r = begin; r < end; ++r) {
            float* row = weights.data() + r * static_cast<size_t>(columns);
            source_.ReadRow(slice, first + static_cast<int64_t>(r), row);
            if (const int64_t c = Transform(row, columns); c < columns) {
              const int64_t at = static_cast<int64_t>(r) * columns + c;
              int64_t seen = bad.load();
              while (at < seen && !bad.compare_exchange_weak(seen, at)) {
              }
              continue;
            }
            format_.encode(row, nullptr, encoded.data() + r * row_bytes, static_cast<size_t>(columns));
          }
        });
        if (const int64_t at = bad.load(); at < rows * columns)
          return Refuse(slice, first + at / columns, at % columns);
        Status s = sink(std::span(encoded).first(static_cast<size_t>(rows) * row_bytes));
        if (!s.ok()) return s;
      }
    }
    return {};
  }

 private:
  // Makes the row what the file stores; the index of the first weight that has no place in the type, or `columns`.
  int64_t Transform(float* row, int64_t columns) const {
    if (tensor_.id() == TensorId::kKdaA) {
      for (int64_t i = 0; i < columns; ++i) {
        row[i] = static_cast<float>(-std::exp(static_cast<double>(row[i])));
        if (!std::isfinite(row[i]) || row[i] == 0) return i;
      }
      return columns;
    }
    if (format_.type == Type::kF32) return columns;
    const bool any = format_.type == Type::kBF16;  // keeps a NaN or infinity that is there, but makes none
    const float limit = quant::TooLarge(format_.type);
    for (int64_t i = 0; i < columns; ++i) {
      if (!(std::fabs(row[i]) < limit) && !(any && !std::isfinite(row[i]))) return i;
    }
    return columns;
  }

  Status Refuse(int64_t slice, int64_t row, int64_t column) const {
    const gguf::SafeTensor& from = *source_.parts[static_cast<size_t>(slice)].tensor;
    std::vector<float> weights(static_cast<size_t>(source_.shape.columns));
    source_.ReadRow(slice, row, weights.data());
    const std::string where = source_.shape.slices > 1
                                  ? fmt::format("slice {}, row {}, column {}", slice, row, column)
                                  : fmt::format("row {}, column {}", row, column);
    return {Code::kBadFile,
            fmt::format("{}: {} (from {} at offset {}): {} is {}, which {} can not hold",
                        files_.paths()[static_cast<size_t>(from.file)], tensor_.Name(), from.name,
                        from.offset, where, weights[static_cast<size_t>(column)],
                        tensor_.id() == TensorId::kKdaA ? "-exp(A_log)" : std::string(format_.name))};
  }

  Tensor tensor_;
  HfTensor source_;
  const gguf::SafeTensors& files_;
  const quant::Format& format_;
  ThreadPool& threads_;
};

}  // namespace

Result<ConvertSummary> Convert(const std::string& directory, const std::string& out,
                               const ConvertOptions& options) {
  const Type experts = options.experts_set ? options.experts : options.type;
  for (const Type type : {options.type, experts})
    if (Status s = CheckType(type); !s.ok()) return s;
  auto checkpoint = OpenHfCheckpoint(directory);
  if (!checkpoint.ok()) return checkpoint.status();
  HParams& hp = checkpoint->hparams;
  const gguf::SafeTensors& files = checkpoint->files;
  Arena arena;
  HfSource source(hp, files, arena);
  std::vector<std::string> notes;
  if (Status s = SettleMtp(hp, source, true, false, checkpoint->mtp_flaw, notes); !s.ok()) return s;

  gguf::Writer writer;
  SetGeneral(options, directory, writer, notes);
  if (Status s = SetHParams(hp, writer); !s.ok())
    return Status(s.code(), fmt::format("{}: {}", directory, s.message()));

  if (Status s = SetTokenizer(directory, hp, writer); !s.ok()) return s;

  const auto recipe = options.recipe != nullptr ? *options.recipe : Recipe::Plain(options.type, experts);
  std::map<Type, uint64_t> bytes_of;
  auto threads = std::make_unique<ThreadPool>(AvailableCores());
  ConvertSummary summary;
  Recipe::Use use(recipe);
  for (const Tensor& tensor : ListTensors(hp)) {
    use.Add(tensor, hp.layers);
    auto located = source.Locate(tensor);
    if (!located.ok()) return located.status();
    const Type type = recipe.TypeFor(tensor, hp.layers);
    if (Status s = CheckType(type); !s.ok()) return s;
    if (type != recipe.Wanted(tensor, hp.layers)) ++summary.fallbacks;
    const uint64_t bytes = TensorBytes(tensor, type);
    ++summary.tensors;
    summary.bytes += bytes;
    bytes_of[type] += bytes;
    writer.AddTensor(tensor.Name(), static_cast<uint32_t>(type), tensor.Ne(), bytes,
                     Conversion(tensor, std::move(*located), files, *quant::Find(type), *threads));
  }
  const auto most = std::max_element(bytes_of.begin(), bytes_of.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (options.recipe != nullptr) writer.SetU32("general.file_type", FileType(most->first));
  for (std::string& line : use.Idle()) notes.push_back(std::move(line));
  summary.notes = std::move(notes);
  auto inputs = CheckpointFiles(directory, files.paths());
  inputs.insert(inputs.end(), options.inputs.begin(), options.inputs.end());
  if (Status s = writer.Write(out, inputs, options.progress, options.replace); !s.ok()) return s;
  return summary;
}

}  // namespace glint::model
