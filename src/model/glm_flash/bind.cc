#include "model/glm_flash/bind.h"

#include <fmt/core.h>

#include <cmath>

namespace glint::model {

std::string FirstMissing(const HParams& hp, const TensorSource& source, int block) {
  for (const Tensor& tensor : ListBlock(hp, block)) {
    if (!source.Has(tensor)) return source.NameOf(tensor);
  }
  return {};
}

Status Bind(const HParams& hp, TensorSource& source, Weights& weights, const Progress& progress) {
  const auto tensors = ListTensors(hp);
  uint64_t done = 0, total = 0;
  for (const Tensor& tensor : tensors) total += static_cast<uint64_t>(tensor.shape.count());
  for (const Tensor& tensor : tensors) {
    if (progress && !progress(done, total)) return {Code::kBadInput, "interrupted"};
    const Site site = SiteOf(weights, hp, tensor.block);
    if (tensor.kind->matrix != nullptr) {
      auto matrix = source.GetMatrix(tensor);
      if (!matrix.ok()) return matrix.status();
      *tensor.kind->matrix(site) = *matrix;
    } else {
      auto vector = source.GetVector(tensor);
      if (!vector.ok()) return vector.status();
      *tensor.kind->vector(site) = *vector;
    }
    done += static_cast<uint64_t>(tensor.shape.count());
  }
  if (progress && !progress(total, total)) return {Code::kBadInput, "interrupted"};
  return {};
}

Status SettleMtp(HParams& hp, const TensorSource& source, bool wanted, bool required, std::string loadable,
                 std::vector<std::string>& notes) {
  if (loadable.empty() && hp.nextn_layers == 0) {
    if (!required) return {};
    return {Code::kBadFile, "the MTP block was asked for, but the model has none"};
  }
  if (loadable.empty() && hp.nextn_layers > 0) {
    const std::string missing = FirstMissing(hp, source, static_cast<int>(hp.layers));
    if (!missing.empty()) loadable = fmt::format("the MTP block is incomplete: {} is missing", missing);
  }
  if (!loadable.empty()) {
    if (required) return {Code::kBadFile, std::move(loadable)};
    hp.nextn_layers = 0;
    if (wanted) notes.push_back(loadable + "; loaded without it");
    return {};
  }
  if (!wanted && !required) hp.nextn_layers = 0;
  return {};
}

std::string ShapeText(std::span<const uint64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

bool SameButOnes(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  size_t i = 0, j = 0;
  while (true) {
    while (i < a.size() && a[i] == 1) ++i;
    while (j < b.size() && b[j] == 1) ++j;
    if (i == a.size() || j == b.size()) return i == a.size() && j == b.size();
    if (a[i++] != b[j++]) return false;
  }
}

Status CheckFinite(std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return {Code::kBadFile, fmt::format("entry {} is {}, wanted a finite number", i, values[i])};
  }
  return {};
}

Status DecodeA(std::span<float> values, StoredA stored) {
  for (size_t i = 0; i < values.size(); ++i) {
    const float given = values[i];
    // Rounded once from double, so that it does not depend on a library's expf.
    values[i] = stored == StoredA::kLog ? static_cast<float>(std::exp(static_cast<double>(given))) : -given;
    if (std::isfinite(values[i]) && values[i] > 0) continue;
    return {Code::kBadFile,
            fmt::format("entry {} is {}, wanted {}", i, given,
                        stored == StoredA::kLog ? "a logarithm whose exponential is finite and above 0"
                                                : "a finite number below 0, -exp(A_log)")};
  }
  return {};
}

}  // namespace glint::model
