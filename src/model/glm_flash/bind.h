// Binds the tensors of some source (a GGUF file, a Hugging Face checkpoint) to the fields of Weights.
#pragma once
#include <string>

#include "base/progress.h"
#include "glint/status.h"
#include "model/glm_flash/tensors.h"

namespace glint::model {

// Knows the names, layouts and types of one kind of file. What it hands out has the tensor's shape (anything else is an
// error that names the tensor, its shape and the one wanted) and lives as long as the source's file and arena.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual bool Has(const Tensor& tensor) const = 0;
  // The name under which Has looked, for messages.
  virtual std::string NameOf(const Tensor& tensor) const = 0;
  virtual Result<Matrix> GetMatrix(const Tensor& tensor) = 0;
  virtual Result<Vector> GetVector(const Tensor& tensor) = 0;
};

// The name of the first tensor of `block` that the source lacks; empty if it has them all.
std::string FirstMissing(const HParams& hp, const TensorSource& source, int block);

// Fills weights (from EmptyWeights(hp)). Progress counts weights.
Status Bind(const HParams& hp, TensorSource& source, Weights& weights, const Progress& progress);

// Drops the MTP block from hp if it can not be bound, with a note, or fails if it is demanded. `loadable`: what the file
// says about it besides its tensors; empty if nothing speaks against it.
Status SettleMtp(HParams& hp, const TensorSource& source, bool wanted, bool required, std::string loadable,
                 std::vector<std::string>& notes);

// "[4096, 1, 4]"
std::string ShapeText(std::span<const uint64_t> shape);
// Whether both are the same but for entries of 1.
bool SameButOnes(std::span<const uint64_t> a, std::span<const uint64_t> b);

// A NaN or an infinity in a small vector would not stop a pass, but turn selections and sums into nonsense: refused, naming
// the entry.
Status CheckFinite(std::span<const float> values);

// `values` holds A as its source stores it; makes it exp(A_log). Refuses what can not be one, naming the entry.
enum class StoredA : uint8_t { kMinusExp, kLog };
Status DecodeA(std::span<float> values, StoredA stored);

}  // namespace glint::model
