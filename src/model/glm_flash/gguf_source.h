// The tensors of a GGUF file of any dialect.
#pragma once
#include <unordered_map>

#include "gguf/gguf.h"
#include "model/arena.h"
#include "model/glm_flash/bind.h"

namespace glint::model {

// For gguf::File::Open.
gguf::BlockSize BlockSizeOf(uint32_t type);
// Every tensor of the model by each name that a file of some dialect may have it under.
std::unordered_map<std::string, Tensor> TensorsByName(const HParams& hp);

// Matrices stay where the file is mapped; vectors go to the arena as floats.
class GgufSource : public TensorSource {
 public:
  // Both must outlive the source and the weights.
  GgufSource(const gguf::File& file, Arena& arena) : file_(file), arena_(arena) {}

  bool Has(const Tensor& tensor) const override { return Find(tensor).info != nullptr; }
  std::string NameOf(const Tensor& tensor) const override;
  Result<Matrix> GetMatrix(const Tensor& tensor) override;
  Result<Vector> GetVector(const Tensor& tensor) override;

 private:
  struct Found {
    const gguf::TensorInfo* info = nullptr;
    bool native = false;  // under its name in dialect D
  };
  Found Find(const Tensor& tensor) const;
  // The tensor with shape and type checked.
  Result<Found> Get(const Tensor& tensor) const;
  // The factors beside a matrix (Matrix::scales): "NAME.scale", or "NAME.weight.scale", with one for all slices or one each;
  // null if the file has none.
  Result<const float*> GetScales(const gguf::TensorInfo& matrix, int64_t slices);
  Status Bad(const gguf::TensorInfo& info, Code code, std::string_view what) const;

  const gguf::File& file_;
  Arena& arena_;
};

}  // namespace glint::model
