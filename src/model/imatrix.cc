#include "model/imatrix.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/printable.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "model/glm_flash/gguf_source.h"

namespace glint::model {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr const char* kDatasets = "imatrix.datasets";
constexpr const char* kChunks = "imatrix.chunk_count";
constexpr const char* kChunkTokens = "imatrix.chunk_size";

Status Bad(const gguf::File& file, const gguf::TensorInfo& info, std::string_view what) {
  return {Code::kBadFile, fmt::format("{}: {}: {} (file offset {:#x})", Printable(file.paths().front()),
                                      Quoted(info.name), what, info.offset)};
}

// A float32 tensor's numbers, all finite and none below zero.
Result<std::vector<float>> Numbers(const gguf::File& file, const gguf::TensorInfo& info) {
  if (info.type != static_cast<uint32_t>(quant::Type::kF32))
    return Bad(file, info,
               fmt::format("is of type {}, wanted f32", quant::Name(static_cast<quant::Type>(info.type))));
  std::vector<float> values(static_cast<size_t>(info.elements()));
  if (!values.empty()) std::memcpy(values.data(), info.data, values.size() * sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && values[i] >= 0) continue;
    return Bad(file, info, fmt::format("entry {} is {}, wanted a number from 0", i, values[i]));
  }
  return values;
}

}  // namespace

Result<ImportanceMatrix> ImportanceMatrix::Read(const std::string& path) {
  auto file = gguf::File::Open(path, BlockSizeOf);
  if (!file.ok()) {
    return Status(file.status().code(), file.status().message() +
                                            "; importance matrices are read in GGUF form (.gguf), not the "
                                            "older form (.dat): its makers' tools "
                                            "convert it");
  }
  const auto type = file->GetString("general.type");
  if (!type.ok() || *type != "imatrix") {
    return Status(Code::kBadFile,
                  fmt::format("{}: is no importance matrix: general.type is {}, wanted 'imatrix'",
                              Printable(path), type.ok() ? Quoted(*type) : "missing"));
  }
  ImportanceMatrix matrix;
  if (const auto datasets = file->GetStrings(kDatasets); datasets.ok()) matrix.datasets = *datasets;
  for (const auto& [key, number] :
       {std::pair(kChunks, &matrix.chunks), std::pair(kChunkTokens, &matrix.chunk_tokens)}) {
    const auto value = file->GetUint(key);
    if (!value.ok() && value.status().code() == Code::kNotFound) continue;
    if (!value.ok()) return value.status();
    if (*value > kMostChunks)
      return Status(Code::kBadFile, fmt::format("{}: {} is {}, at most {} make sense", Printable(path), key,
                                                *value, kMostChunks));
    *number = *value;
  }
  for (const gguf::TensorInfo& info : file->tensors()) {
    if (!info.name.ends_with(kSums)) {
      const bool counts = info.name.ends_with(kCounts);
      const std::string name = info.name.substr(0, info.name.size() - (counts ? kCounts.size() : 0));
      if (counts && file->FindTensor(name + std::string(kSums)) != nullptr) continue;
      return Bad(*file, info, "belongs to no tensor: names end in .in_sum2 and .counts, in pairs");
    }
    const std::string name = info.name.substr(0, info.name.size() - kSums.size());
    const gguf::TensorInfo* const counted = file->FindTensor(name + std::string(kCounts));
    if (counted == nullptr) return Bad(*file, info, "has no .counts beside it");
    auto sums = Numbers(*file, info);
    if (!sums.ok()) return sums.status();
    auto counts = Numbers(*file, *counted);
    if (!counts.ok()) return counts.status();
    Importance importance;
    importance.columns = info.ne[0];
    importance.matrices = info.ne[1];
    if (info.elements() != importance.columns * importance.matrices || sums->empty())
      return Bad(*file, info, "has more than two dimensions, or none");
    if (counts->size() != importance.matrices)
      return Bad(*file, *counted,
                 fmt::format("has {} entries, wanted {}", counts->size(), importance.matrices));
    importance.counts = std::move(*counts);
    importance.mean = std::move(*sums);
    for (uint64_t m = 0; m < importance.matrices; ++m) {
      const float count = importance.counts[static_cast<size_t>(m)];
      for (uint64_t c = 0; c < importance.columns; ++c) {
        float& mean = importance.mean[static_cast<size_t>(m * importance.columns + c)];
        mean = count > 0 ? mean / count : 0;
        // A count below one could make a sum too large for a float.
        if (!std::isfinite(mean))
          return Bad(*file, info, fmt::format("the mean of column {} is no number", c));
      }
    }
    matrix.tensors_[name] = std::move(importance);
  }
  if (matrix.tensors_.empty())
    return Status(Code::kBadFile, fmt::format("{}: holds no tensor's importance", Printable(path)));
  return matrix;
}

Status ImportanceMatrix::Write(const std::string& path, std::span<const std::string> inputs,
                               bool replace) const {
  for (const auto& [what, number] :
       {std::pair("chunks", chunks), std::pair("tokens in a chunk", chunk_tokens)}) {
    if (number > kMostChunks)
      return {Code::kBadInput, fmt::format("{}: {} {}; an importance matrix tells of {} at most",
                                           Printable(path), number, what, kMostChunks)};
  }
  gguf::Writer writer;
  writer.SetString("general.type", "imatrix");
  writer.SetStrings(kDatasets, datasets);
  writer.SetU32(kChunks, static_cast<uint32_t>(chunks));
  writer.SetU32(kChunkTokens, static_cast<uint32_t>(chunk_tokens));
  for (const auto& [name, importance] : tensors_) {
    // Sums are made when they are written: a large model's would be a second copy of everything.
    writer.AddTensor(name + std::string(kSums), static_cast<uint32_t>(quant::Type::kF32),
                     {importance.columns, importance.matrices}, importance.mean.size() * sizeof(float),
                     [&of = importance](const gguf::Writer::Sink& sink) {
                       std::vector<float> sums = of.mean;
                       for (size_t i = 0; i < sums.size(); ++i) sums[i] *= of.counts[i / of.columns];
                       return sink(std::as_bytes(std::span(sums)));
                     });
    writer.AddTensor(name + std::string(kCounts), static_cast<uint32_t>(quant::Type::kF32),
                     {1, importance.matrices}, importance.matrices * sizeof(float),
                     [&of = importance](const gguf::Writer::Sink& sink) {
                       return sink(std::as_bytes(std::span(of.counts)));
                     });
  }
  return writer.Write(path, inputs, {}, replace);
}

const Importance* ImportanceMatrix::Find(std::string_view tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

void ImportanceMatrix::Add(std::string tensor, Importance importance) {
  tensors_[std::move(tensor)] = std::move(importance);
}

}  // namespace glint::model
