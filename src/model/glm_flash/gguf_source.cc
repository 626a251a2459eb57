#include "model/glm_flash/gguf_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace glint::model {

gguf::BlockSize BlockSizeOf(uint32_t type) {
  const quant::Format* format = quant::Find(static_cast<quant::Type>(type));
  if (format == nullptr) return {0, 0};
  return {static_cast<uint32_t>(format->block_weights), static_cast<uint32_t>(format->block_bytes)};
}

std::unordered_map<std::string, Tensor> TensorsByName(const HParams& hp) {
  std::unordered_map<std::string, Tensor> known;
  for (const Tensor& tensor : ListTensors(hp)) {
    for (const std::string_view name : {tensor.kind->name, tensor.kind->name_d, tensor.kind->name_old}) {
      if (!name.empty()) known.emplace(BlockName(tensor.block, name), tensor);
    }
  }
  return known;
}

GgufSource::Found GgufSource::Find(const Tensor& tensor) const {
  const TensorKind& kind = *tensor.kind;
  if (const auto* info = file_.FindTensor(BlockName(tensor.block, kind.name))) return {info, false};
  for (const std::string_view other : {kind.name_d, kind.name_old}) {
    if (other.empty()) continue;
    if (const auto* info = file_.FindTensor(BlockName(tensor.block, other)))
      return {info, other == kind.name_d};
  }
  return {};
}

std::string GgufSource::NameOf(const Tensor& tensor) const { return tensor.Name(); }

Status GgufSource::Bad(const gguf::TensorInfo& info, Code code, std::string_view what) const {
  return {code, fmt::format("{}: {}: {} (file offset {:#x})", file_.paths()[static_cast<size_t>(info.file)],
                            info.name, what, info.offset)};
}

Result<GgufSource::Found> GgufSource::Get(const Tensor& tensor) const {
  const Found found = Find(tensor);
  if (found.info == nullptr) {
    std::string other;
    if (!tensor.kind->name_d.empty()) {
      other = fmt::format(" (nor is there {})", BlockName(tensor.block, tensor.kind->name_d));
    }
    const bool fused = (tensor.id() == TensorId::kDsaKb || tensor.id() == TensorId::kDsaVb) &&
                       file_.FindTensor(BlockName(tensor.block, "attn_kv_b.weight")) != nullptr;
    if (fused)
      other =
          "; the file has the fused attn_kv_b.weight instead: convert the model again with a newer converter";
    return Status(fused ? Code::kUnsupported : Code::kBadFile,
                  fmt::format("{}: {} is missing{}", file_.paths().front(), tensor.Name(), other));
  }
  const gguf::TensorInfo& info = *found.info;
  const auto got = std::span(info.ne).first(static_cast<size_t>(std::clamp(info.dims, 1, 4)));
  const auto want = tensor.Ne();
  // Trailing ones carry no meaning anywhere; a vector or a convolution may have others too.
  std::array<uint64_t, 4> padded = {1, 1, 1, 1};
  std::copy(want.begin(), want.end(), padded.begin());
  if (tensor.kind->vector != nullptr ? !SameButOnes(got, want) : padded != info.ne) {
    return Bad(info, Code::kBadFile, fmt::format("shape {}, wanted {}", ShapeText(got), ShapeText(want)));
  }
  const quant::Format* format = quant::Find(static_cast<quant::Type>(info.type));
  if (format == nullptr || !format->runnable()) {
    return Bad(
        info, Code::kUnsupported,
        fmt::format("type {} can not be run; glint runs {}",
                    format == nullptr ? fmt::format("number {}", info.type) : std::string(format->name),
                    quant::RunnableNames()));
  }
  return found;
}

Result<Matrix> GgufSource::GetMatrix(const Tensor& tensor) {
  auto found = Get(tensor);
  if (!found.ok()) return found.status();
  const gguf::TensorInfo& info = *found->info;
  const auto type = static_cast<quant::Type>(info.type);
  auto row_bytes = quant::RowBytes(*quant::Find(type), static_cast<uint64_t>(tensor.shape.columns));
  if (!row_bytes.ok()) return Bad(info, row_bytes.status().code(), row_bytes.status().message());
  auto scales = GetScales(info, tensor.shape.slices);
  if (!scales.ok()) return scales.status();
  const Matrix matrix{type,
                      tensor.shape.columns,
                      tensor.shape.rows,
                      tensor.shape.slices,
                      info.data,
                      static_cast<size_t>(*row_bytes),
                      *scales};
  if (matrix.bytes() != info.bytes) {
    return Bad(info, Code::kBadFile, fmt::format("{} bytes, wanted {}", info.bytes, matrix.bytes()));
  }
  return matrix;
}

Result<const float*> GgufSource::GetScales(const gguf::TensorInfo& matrix, int64_t slices) {
  constexpr std::string_view kWeight = ".weight";
  if (!matrix.name.ends_with(kWeight)) return nullptr;
  const std::string name = matrix.name.substr(0, matrix.name.size() - kWeight.size());
  const gguf::TensorInfo* info = file_.FindTensor(name + ".scale");
  if (info == nullptr) info = file_.FindTensor(matrix.name + ".scale");
  if (info == nullptr) return nullptr;
  uint64_t count = 1;
  for (const uint64_t n : info->ne) count *= n;
  if (info->type != static_cast<uint32_t>(quant::Type::kF32))
    return Bad(*info, Code::kUnsupported, "a scale of another type than f32");
  if (count != 1 && count != static_cast<uint64_t>(slices)) {
    return Bad(*info, Code::kBadFile,
               slices == 1 ? fmt::format("{} scales, wanted 1", count)
                           : fmt::format("{} scales, wanted 1 or {}", count, slices));
  }
  auto values = arena_.Floats(static_cast<uint64_t>(slices), info->name);
  if (!values.ok()) return values.status();
  for (size_t i = 0; i < values->size(); ++i)
    std::memcpy(&(*values)[i], info->data + (count == 1 ? 0 : i) * sizeof(float), sizeof(float));
  if (const Status s = CheckFinite(*values); !s.ok()) return Bad(*info, s.code(), s.message());
  return values->data();
}

Result<Vector> GgufSource::GetVector(const Tensor& tensor) {
  auto found = Get(tensor);
  if (!found.ok()) return found.status();
  const gguf::TensorInfo& info = *found->info;
  const quant::Format& format = *quant::Find(static_cast<quant::Type>(info.type));
  const auto count = static_cast<uint64_t>(tensor.shape.count());
  if (count % format.block_weights != 0 || count / format.block_weights * format.block_bytes != info.bytes) {
    return Bad(info, Code::kBadFile,
               fmt::format("{} weights in {} bytes of {}", count, info.bytes, format.name));
  }
  auto values = arena_.Floats(count, info.name);
  if (!values.ok()) return values.status();
  format.decode(info.data, values->data(), count);
  const Status s = tensor.id() == TensorId::kKdaA
                       ? DecodeA(*values, found->native ? StoredA::kLog : StoredA::kMinusExp)
                       : CheckFinite(*values);
  if (!s.ok()) return Bad(info, s.code(), s.message());
  return Vector(*values);
}

}  // namespace glint::model
