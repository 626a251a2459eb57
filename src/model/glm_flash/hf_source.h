// The tensors of a Hugging Face checkpoint: the few that are laid out otherwise than in a GGUF file are put together here.
#pragma once
#include <string>
#include <vector>

#include "gguf/safetensors.h"
#include "model/arena.h"
#include "model/glm_flash/bind.h"

namespace glint::model {

// One tensor of the model as pieces of the checkpoint. Slice s has `rows` rows of `columns` weights.
struct HfTensor {
  // Rows [first_row, first_row + rows) of a two-dimensional tensor; or, transposed, columns of it.
  struct Part {
    const gguf::SafeTensor* tensor = nullptr;
    const gguf::SafeTensor* scale = nullptr;  // FP8: one float per 128 x 128 weights
    const std::byte* data = nullptr;          // of row 0 of the two-dimensional view
    int64_t first_row = 0, columns = 0;       // columns of that view
  };
  std::vector<Part> parts;               // one a slice
  quant::Type type = quant::Type::kF32;  // of the weights as stored; F32 for FP8
  bool fp8 = false;
  bool transposed = false;  // attn_k_b: row r of slice s is column r of the key rows of head s
  Shape shape;

  // Row `row` of slice `slice`, exact (FP8: code times scale, rounded once).
  void ReadRow(int64_t slice, int64_t row, float* out) const;
  // Whether the engine can use it where it is mapped, and what a copy of it takes.
  bool InPlace() const { return !fp8 && !transposed && shape.slices == 1; }
  uint64_t CopyBytes() const;
  // Of its weights in the checkpoint, FP8 scales not counted.
  uint64_t StoredBytes() const;
};

class HfSource : public TensorSource {
 public:
  // All must outlive the source and the weights.
  HfSource(const HParams& hp, const gguf::SafeTensors& files, Arena& arena);

  bool Has(const Tensor& tensor) const override;
  std::string NameOf(const Tensor& tensor) const override;
  // In place where the checkpoint's layout is the engine's; otherwise copied into the arena: kv_b (split and transposed),
  // experts (stacked), FP8 (as F32, four times the size).
  Result<Matrix> GetMatrix(const Tensor& tensor) override;
  Result<Vector> GetVector(const Tensor& tensor) override;

  // Where the tensor's weights are, shapes and types checked. For vectors too (one slice; A is raw A_log).
  Result<HfTensor> Locate(const Tensor& tensor) const;

 private:
  const gguf::SafeTensor* FindIn(const Tensor& tensor, std::string_view suffix) const;
  const gguf::SafeTensor* FindPlain(const Tensor& tensor) const;
  std::string FullName(const Tensor& tensor, std::string_view suffix) const;
  Result<HfTensor::Part> MakePart(const gguf::SafeTensor& tensor, int64_t first_row, HfTensor& out) const;
  Result<HfTensor> LocateKvB(const Tensor& tensor) const;
  Result<HfTensor> LocateExperts(const Tensor& tensor) const;
  Status Bad(const gguf::SafeTensor& tensor, Code code, std::string_view what) const;
  Status WrongShape(const gguf::SafeTensor& tensor, std::initializer_list<int64_t> want) const;
  Status Missing(const Tensor& tensor, std::string_view suffix) const;

  const HParams& hp_;
  const gguf::SafeTensors& files_;
  Arena& arena_;
  std::string prefix_;  // "model.language_model." or "model."
};

}  // namespace glint::model
