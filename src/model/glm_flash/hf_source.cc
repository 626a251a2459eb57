#include "model/glm_flash/hf_source.h"

#include <fmt/core.h>

#include <cstring>
#include <optional>

#include "base/half.h"

namespace glint::model {
namespace {

constexpr int64_t kScaleBlock = 128;  // FP8 scales cover 128 x 128 weights

struct Dtype {
  quant::Type type;
  bool fp8;
  int64_t bytes;
};

std::optional<Dtype> DtypeOf(std::string_view name) {
  if (name == "F32") return Dtype{quant::Type::kF32, false, 4};
  if (name == "F16") return Dtype{quant::Type::kF16, false, 2};
  if (name == "BF16") return Dtype{quant::Type::kBF16, false, 2};
  if (name == "F8_E4M3") return Dtype{quant::Type::kF32, true, 1};
  return std::nullopt;
}

float LoadFloat(const std::byte* p, quant::Type type) {
  if (type == quant::Type::kF32) {
    float value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return type == quant::Type::kF16 ? HalfToFloat(bits) : BFloatToFloat(bits);
}

int64_t BytesOf(const HfTensor& t) { return t.fp8 ? 1 : t.type == quant::Type::kF32 ? 4 : 2; }

// The weight at (row, column) of a part's two-dimensional view.
float Weight(const HfTensor& t, const HfTensor::Part& part, int64_t row, int64_t column) {
  const std::byte* p = part.data + (row * part.columns + column) * BytesOf(t);
  if (!t.fp8) return LoadFloat(p, t.type);
  const float code = Fp8E4M3ToFloat(std::to_integer<uint8_t>(*p));
  const int64_t across = (part.columns + kScaleBlock - 1) / kScaleBlock;
  const int64_t at = row / kScaleBlock * across + column / kScaleBlock;
  const quant::Type scale_type = part.scale->dtype == "BF16" ? quant::Type::kBF16 : quant::Type::kF32;
  return code * LoadFloat(part.scale->data + at * (scale_type == quant::Type::kF32 ? 4 : 2), scale_type);
}

// Suffixes of what the tensors of an expert stack are called when the experts are fused.
constexpr std::string_view kFusedGateUp[] = {"mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj.weight"};
constexpr std::string_view kFusedDown[] = {"mlp.experts.down_proj", "mlp.experts.down_proj.weight"};

bool IsExperts(const Tensor& t) {
  return t.id() == TensorId::kExpertGate || t.id() == TensorId::kExpertUp || t.id() == TensorId::kExpertDown;
}
bool IsKvB(const Tensor& t) { return t.id() == TensorId::kDsaKb || t.id() == TensorId::kDsaVb; }

std::string ExpertSuffix(const Tensor& tensor, int64_t expert) {
  return fmt::format("mlp.experts.{}.{}", expert, tensor.kind->hf);
}

}  // namespace

void HfTensor::ReadRow(int64_t slice, int64_t row, float* out) const {
  const Part& part = parts[static_cast<size_t>(slice)];
  if (transposed) {
    for (int64_t i = 0; i < shape.columns; ++i) out[i] = Weight(*this, part, part.first_row + i, row);
  } else {
    for (int64_t i = 0; i < shape.columns; ++i) out[i] = Weight(*this, part, part.first_row + row, i);
  }
}

uint64_t HfTensor::StoredBytes() const { return static_cast<uint64_t>(shape.count() * BytesOf(*this)); }

uint64_t HfTensor::CopyBytes() const {
  return static_cast<uint64_t>(shape.count()) * (type == quant::Type::kF32 ? 4 : 2);
}

HfSource::HfSource(const HParams& hp, const gguf::SafeTensors& files, Arena& arena)
    : hp_(hp), files_(files), arena_(arena), prefix_("model.") {
  constexpr std::string_view kNested = "model.language_model.";
  if (files.Find(std::string(kNested) + "embed_tokens.weight") != nullptr) prefix_ = kNested;
}

std::string HfSource::FullName(const Tensor& tensor, std::string_view suffix) const {
  if (tensor.id() == TensorId::kHead) return std::string(suffix);
  if (tensor.block < 0) return prefix_ + std::string(suffix);
  return fmt::format("{}layers.{}.{}", prefix_, tensor.block, suffix);
}

const gguf::SafeTensor* HfSource::FindIn(const Tensor& tensor, std::string_view suffix) const {
  return suffix.empty() ? nullptr : files_.Find(FullName(tensor, suffix));
}

const gguf::SafeTensor* HfSource::FindPlain(const Tensor& tensor) const {
  if (const auto* found = FindIn(tensor, tensor.kind->hf)) return found;
  return FindIn(tensor, tensor.kind->hf_alias);
}

bool HfSource::Has(const Tensor& tensor) const {
  if (!IsExperts(tensor)) return FindPlain(tensor) != nullptr;
  if (FindIn(tensor, ExpertSuffix(tensor, 0)) != nullptr) return true;
  for (const std::string_view name : tensor.id() == TensorId::kExpertDown ? kFusedDown : kFusedGateUp) {
    if (FindIn(tensor, name) != nullptr) return true;
  }
  return false;
}

std::string HfSource::NameOf(const Tensor& tensor) const {
  return FullName(tensor, IsExperts(tensor) ? ExpertSuffix(tensor, 0) : std::string(tensor.kind->hf));
}

Status HfSource::Bad(const gguf::SafeTensor& tensor, Code code, std::string_view what) const {
  return {code,
          fmt::format("{}: {}: {} (file offset {:#x})", files_.paths()[static_cast<size_t>(tensor.file)],
                      tensor.name, what, tensor.offset)};
}

Status HfSource::WrongShape(const gguf::SafeTensor& tensor, std::initializer_list<int64_t> want) const {
  std::vector<uint64_t> wanted;
  for (const int64_t n : want) wanted.push_back(static_cast<uint64_t>(n));
  return Bad(tensor, Code::kBadFile,
             fmt::format("shape {}, wanted {}", ShapeText(tensor.shape), ShapeText(wanted)));
}

Status HfSource::Missing(const Tensor& tensor, std::string_view suffix) const {
  return {Code::kBadFile, fmt::format("{}: {} is missing", files_.paths().front(), FullName(tensor, suffix))};
}

// Type and scales of a tensor whose last two axes are rows and columns; all parts of one tensor must agree in type.
Result<HfTensor::Part> HfSource::MakePart(const gguf::SafeTensor& tensor, int64_t first_row,
                                          HfTensor& out) const {
  const auto dtype = DtypeOf(tensor.dtype);
  if (!dtype) {
    return Bad(tensor, Code::kUnsupported,
               fmt::format("type {}; glint reads F32, F16, BF16 and F8_E4M3", tensor.dtype));
  }
  if (!out.parts.empty() && (dtype->type != out.type || dtype->fp8 != out.fp8)) {
    return Bad(tensor, Code::kUnsupported,
               fmt::format("type {}, but {} of the same stack has {}", tensor.dtype,
                           out.parts.front().tensor->name, out.parts.front().tensor->dtype));
  }
  out.type = dtype->type;
  out.fp8 = dtype->fp8;
  uint64_t count = static_cast<uint64_t>(dtype->bytes);
  for (const uint64_t n : tensor.shape) count *= n;  // the reader has checked that this fits
  if (count != tensor.bytes) {
    return Bad(tensor, Code::kBadFile, fmt::format("{} bytes, wanted {}", tensor.bytes, count));
  }
  HfTensor::Part part{&tensor, nullptr, tensor.data, first_row,
                      tensor.shape.empty() ? 1 : static_cast<int64_t>(tensor.shape.back())};
  if (!dtype->fp8) return part;

  if (tensor.shape.size() != 2) {
    return Bad(tensor, Code::kUnsupported,
               fmt::format("F8_E4M3 with shape {}; wanted two axes", ShapeText(tensor.shape)));
  }
  part.scale = files_.Find(tensor.name + "_scale_inv");
  if (part.scale == nullptr) {
    return Bad(tensor, Code::kBadFile,
               fmt::format("F8_E4M3 needs {}_scale_inv, which is missing", tensor.name));
  }
  const gguf::SafeTensor& scale = *part.scale;
  const uint64_t rows = (tensor.shape[0] + kScaleBlock - 1) / kScaleBlock;
  const uint64_t columns = (tensor.shape[1] + kScaleBlock - 1) / kScaleBlock;
  if (scale.shape != std::vector<uint64_t>{rows, columns}) {
    return Bad(
        scale, Code::kBadFile,
        fmt::format("shape {}, wanted {} (one scale for 128 x 128 weights of {})", ShapeText(scale.shape),
                    ShapeText(std::vector<uint64_t>{rows, columns}), tensor.name));
  }
  const auto scale_type = DtypeOf(scale.dtype);
  if (!scale_type || scale_type->fp8 || scale_type->type == quant::Type::kF16) {
    return Bad(scale, Code::kUnsupported, fmt::format("type {}, wanted F32 or BF16", scale.dtype));
  }
  if (scale.bytes != rows * columns * static_cast<uint64_t>(scale_type->bytes)) {
    return Bad(scale, Code::kBadFile,
               fmt::format("{} bytes for shape {}", scale.bytes, ShapeText(scale.shape)));
  }
  return part;
}

Result<HfTensor> HfSource::LocateKvB(const Tensor& tensor) const {
  const gguf::SafeTensor* found = FindPlain(tensor);
  if (found == nullptr) return Missing(tensor, tensor.kind->hf);
  const int64_t per_head = hp_.qk_head_dim + hp_.v_head_dim;
  const int64_t rows = hp_.heads * per_head;
  if (found->shape !=
      std::vector<uint64_t>{static_cast<uint64_t>(rows), static_cast<uint64_t>(hp_.kv_lora_rank)}) {
    return WrongShape(*found, {rows, hp_.kv_lora_rank});
  }
  HfTensor out;
  out.shape = tensor.shape;
  out.transposed = tensor.id() == TensorId::kDsaKb;
  for (int64_t head = 0; head < hp_.heads; ++head) {
    auto part = MakePart(*found, head * per_head + (out.transposed ? 0 : hp_.qk_head_dim), out);
    if (!part.ok()) return part.status();
    out.parts.push_back(*part);
  }
  return out;
}

Result<HfTensor> HfSource::LocateExperts(const Tensor& tensor) const {
  HfTensor out;
  out.shape = tensor.shape;
  const bool down = tensor.id() == TensorId::kExpertDown;
  for (const std::string_view name : down ? kFusedDown : kFusedGateUp) {
    const gguf::SafeTensor* fused = FindIn(tensor, name);
    if (fused == nullptr) continue;
    const int64_t rows = down ? tensor.shape.rows : 2 * tensor.shape.rows;  // gate rows first, up rows second
    const auto want = std::vector<uint64_t>{static_cast<uint64_t>(hp_.experts), static_cast<uint64_t>(rows),
                                            static_cast<uint64_t>(tensor.shape.columns)};
    if (fused->shape != want) return WrongShape(*fused, {hp_.experts, rows, tensor.shape.columns});
    const int64_t first = tensor.id() == TensorId::kExpertUp ? tensor.shape.rows : 0;
    for (int64_t expert = 0; expert < hp_.experts; ++expert) {
      auto part = MakePart(*fused, expert * rows + first, out);
      if (!part.ok()) return part.status();
      out.parts.push_back(*part);
    }
    return out;
  }
  for (int64_t expert = 0; expert < hp_.experts; ++expert) {
    const std::string suffix = ExpertSuffix(tensor, expert);
    const gguf::SafeTensor* one = FindIn(tensor, suffix);
    if (one == nullptr) return Missing(tensor, suffix);
    if (one->shape != std::vector<uint64_t>{static_cast<uint64_t>(tensor.shape.rows),
                                            static_cast<uint64_t>(tensor.shape.columns)}) {
      return WrongShape(*one, {tensor.shape.rows, tensor.shape.columns});
    }
    auto part = MakePart(*one, 0, out);
    if (!part.ok()) return part.status();
    out.parts.push_back(*part);
  }
  return out;
}

Result<HfTensor> HfSource::Locate(const Tensor& tensor) const {
  if (IsKvB(tensor)) return LocateKvB(tensor);
  if (IsExperts(tensor)) return LocateExperts(tensor);
  const gguf::SafeTensor* found = FindPlain(tensor);
  if (found == nullptr) return Missing(tensor, tensor.kind->hf);
  const auto rows = static_cast<uint64_t>(tensor.shape.rows),
             columns = static_cast<uint64_t>(tensor.shape.columns);
  const std::vector<uint64_t> want = {rows, columns};
  const bool vector = tensor.kind->vector != nullptr;
  // A vector may have axes of length one ([8192, 1, 4], [1, 1, 64, 1]).
  if (vector ? !SameButOnes(found->shape, want) : found->shape != want) {
    return tensor.kind->dims == 1 ? WrongShape(*found, {tensor.shape.columns})
                                  : WrongShape(*found, {tensor.shape.rows, tensor.shape.columns});
  }
  HfTensor out;
  out.shape = tensor.shape;
  auto part = MakePart(*found, 0, out);
  if (!part.ok()) return part.status();
  part->columns = tensor.shape.columns;
  if (vector && out.fp8) return Bad(*found, Code::kUnsupported, "a vector in F8_E4M3");
  out.parts.push_back(*part);
  return out;
}

Result<Matrix> HfSource::GetMatrix(const Tensor& tensor) {
  auto located = Locate(tensor);
  if (!located.ok()) return located.status();
  const HfTensor& t = *located;
  const int64_t element = t.type == quant::Type::kF32 ? 4 : 2;  // in memory
  const int64_t row_bytes = t.shape.columns * element;
  Matrix matrix{t.type,         t.shape.columns, t.shape.rows,
                t.shape.slices, nullptr,         static_cast<size_t>(row_bytes)};
  if (t.InPlace()) {
    matrix.data = t.parts[0].data + t.parts[0].first_row * row_bytes;
    return matrix;
  }

  auto memory = arena_.Bytes(matrix.bytes(), tensor.Name());
  if (!memory.ok()) return memory.status();
  std::byte* out = memory->data();
  for (int64_t slice = 0; slice < t.shape.slices; ++slice) {
    const HfTensor::Part& part = t.parts[static_cast<size_t>(slice)];
    if (!t.fp8 && !t.transposed) {  // whole slices at once
      std::memcpy(out, part.data + part.first_row * row_bytes, static_cast<size_t>(row_bytes * t.shape.rows));
      out += row_bytes * t.shape.rows;
      continue;
    }
    for (int64_t row = 0; row < t.shape.rows; ++row, out += row_bytes) {
      if (t.fp8) {
        t.ReadRow(slice, row, reinterpret_cast<float*>(out));
        continue;
      }
      for (int64_t i = 0; i < t.shape.columns; ++i) {
        std::memcpy(out + i * element, part.data + ((part.first_row + i) * part.columns + row) * element,
                    static_cast<size_t>(element));
      }
    }
  }
  matrix.data = memory->data();
  return matrix;
}

Result<Vector> HfSource::GetVector(const Tensor& tensor) {
  auto located = Locate(tensor);
  if (!located.ok()) return located.status();
  auto values = arena_.Floats(static_cast<uint64_t>(tensor.shape.count()), tensor.Name());
  if (!values.ok()) return values.status();
  for (int64_t row = 0; row < tensor.shape.rows; ++row) {
    located->ReadRow(0, row, values->data() + row * tensor.shape.columns);
  }
  const Status s = tensor.id() == TensorId::kKdaA ? DecodeA(*values, StoredA::kLog) : CheckFinite(*values);
  if (!s.ok()) return Bad(*located->parts[0].tensor, s.code(), s.message());
  return Vector(*values);
}

}  // namespace glint::model
