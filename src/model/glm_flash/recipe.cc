#include "model/glm_flash/recipe.h"

#include <fmt/core.h>

namespace glint::model {
namespace {

using quant::Type;

// What every recipe but ds4 keeps in F32.
bool StaysF32(TensorId id) {
  return Kind(id).vector != nullptr || id == TensorId::kRouter || id == TensorId::kIndexProj;
}

bool IsHcFn(TensorId id) { return id == TensorId::kHcAttnFn || id == TensorId::kHcFfnFn; }

bool IsExperts(TensorId id) {
  return id == TensorId::kExpertGate || id == TensorId::kExpertUp || id == TensorId::kExpertDown;
}

// spec/gguf.md 5.3
Type Ds4(const Tensor& tensor) {
  const TensorId id = tensor.id();
  if (id == TensorId::kIndexApe) return Type::kBF16;
  if (Kind(id).vector != nullptr || id == TensorId::kRouter) return Type::kF32;
  if (IsExperts(id)) return Type::kQ4_K;
  switch (tensor.kind->role) {
    case Role::kDsa:
    case Role::kDense:
    case Role::kShared:
      return Type::kQ8_0;
    default:
      return Type::kBF16;
  }
}

// spec/gguf.md 5.1, by block numbers of the released model
Type UdIq3Xxs(const Tensor& tensor, int64_t mtp_block) {
  constexpr int kBetter = 11, kBetterDown[] = {12, 44};
  const bool mtp = tensor.block == mtp_block;
  const bool better = tensor.block == kBetter && !mtp;
  switch (tensor.id()) {
    case TensorId::kEmbedding:
    case TensorId::kHead:
      return Type::kQ6_K;
    case TensorId::kExpertGate:
    case TensorId::kExpertUp:
      return mtp ? Type::kQ2_K : better ? Type::kIQ3_S : Type::kIQ2_S;
    case TensorId::kExpertDown:
      if (mtp) return Type::kQ3_K;
      return better || tensor.block == kBetterDown[0] || tensor.block == kBetterDown[1] ? Type::kIQ4_XS
                                                                                        : Type::kIQ3_S;
    case TensorId::kKdaQ:
    case TensorId::kKdaK:
    case TensorId::kKdaV:
    case TensorId::kKdaOut:
    case TensorId::kDenseGate:
    case TensorId::kDenseUp:
    case TensorId::kDenseDown:
    case TensorId::kDsaQa:
    case TensorId::kDsaOut:
    case TensorId::kSharedGate:
    case TensorId::kSharedUp:
    case TensorId::kSharedDown:
      return better ? Type::kQ8_0 : Type::kQ6_K;
    default:
      return StaysF32(tensor.id()) ? Type::kF32 : Type::kQ8_0;
  }
}

bool IsFloat(Type type) { return type == Type::kF32 || type == Type::kF16 || type == Type::kBF16; }

bool Fits(Type type, int64_t columns) {
  const quant::Format* format = quant::Find(type);
  return format != nullptr && columns % static_cast<int64_t>(format->block_weights) == 0;
}

}  // namespace

Result<Recipe> Recipe::Parse(std::string_view name) {
  if (name == "ds4") return Recipe(Mix::kDs4, Type::kBF16, Type::kQ4_K);
  if (name == "q8_0-q4_k") return Plain(Type::kQ8_0, Type::kQ4_K);
  if (name == "q8_0-iq3_xxs") return Plain(Type::kQ8_0, Type::kIQ3_XXS);
  if (name == "q4_k") return Recipe(Mix::kQ4K, Type::kQ4_K, Type::kQ4_K);
  if (name == "ud-iq3_xxs") return Recipe(Mix::kUdIq3Xxs, Type::kQ6_K, Type::kIQ2_S);
  if (const quant::Format* format = quant::Find(name)) return Plain(format->type, format->type);
  return Status(
      Code::kBadInput,
      fmt::format(
          "unknown recipe \"{}\"; there are ds4, q8_0-q4_k, q8_0-iq3_xxs, q4_k, ud-iq3_xxs and the names of "
          "formats ({}, ...)",
          name, "f32, bf16, f16, q8_0, q6_k"));
}

Type Recipe::Wanted(const Tensor& tensor, int64_t mtp_block) const {
  const TensorId id = tensor.id();
  switch (mix_) {
    case Mix::kDs4:
      return Ds4(tensor);
    case Mix::kUdIq3Xxs:
      return UdIq3Xxs(tensor, mtp_block);
    case Mix::kQ4K:
      return StaysF32(id) ? Type::kF32 : Type::kQ4_K;
    case Mix::kPlain:
      break;
  }
  if (StaysF32(id)) return Type::kF32;
  if (IsHcFn(id)) return IsFloat(type_) ? Type::kF32 : Type::kQ8_0;
  return IsExperts(id) ? experts_ : type_;
}

Type Recipe::TypeFor(const Tensor& tensor, int64_t mtp_block) const {
  const Type wanted = Wanted(tensor, mtp_block);
  const int64_t columns = tensor.kind->dims == 1 ? tensor.shape.count() : tensor.shape.columns;
  if (Fits(wanted, columns)) return wanted;
  const Type next = mix_ == Mix::kQ4K ? Type::kQ5_0 : Type::kQ8_0;
  return Fits(next, columns) ? next : Type::kF16;
}

uint64_t TensorBytes(const Tensor& tensor, Type type) {
  const quant::Format& format = *quant::Find(type);
  return static_cast<uint64_t>(tensor.shape.count()) / format.block_weights * format.block_bytes;
}

}  // namespace glint::model
