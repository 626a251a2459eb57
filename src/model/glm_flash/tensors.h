// Every tensor of a GLM-5.3-Flash model, in one table: its names in all sources, its shape, its role and where it is bound.
// Readers, the converter, synthetic weights and the census all walk the same list.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/census.h"
#include "model/glm_flash/hparams.h"
#include "model/glm_flash/weights.h"

namespace glint::model {

// In the order of kTensorKinds; recipes and transformations speak of tensors by these.
enum class TensorId : uint8_t {
  kEmbedding,
  kOutputNorm,
  kHead,
  kAttnNorm,
  kFfnNorm,
  kHcAttnFn,
  kHcAttnBase,
  kHcAttnScale,
  kHcFfnFn,
  kHcFfnBase,
  kHcFfnScale,
  kKdaQ,
  kKdaK,
  kKdaV,
  kKdaConvQ,
  kKdaConvK,
  kKdaConvV,
  kKdaFa,
  kKdaFb,
  kKdaGa,
  kKdaGb,
  kKdaBeta,
  kKdaA,
  kKdaDt,
  kKdaNorm,
  kKdaOut,
  kDsaQa,
  kDsaQaNorm,
  kDsaQb,
  kDsaKva,
  kDsaKvaNorm,
  kDsaKb,
  kDsaVb,
  kDsaOut,
  kIndexQb,
  kIndexK,
  kIndexNorm,
  kIndexNormBias,
  kIndexProj,
  kIndexApe,
  kIndexGate,
  kDenseGate,
  kDenseUp,
  kDenseDown,
  kRouter,
  kRouterBias,
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kNextnEhProj,
  kNextnEnorm,
  kNextnHnorm,
  kNextnHeadNorm,
  kCount
};

// Which blocks have the tensor.
enum class Where : uint8_t {
  kGlobal,
  kEvery,  // trunk and MTP block
  kTrunk,  // not the MTP block
  kKda,
  kDsa,
  kDense,
  kMoe,
  kNextn,  // the MTP block alone
};

// slices x rows x columns, columns fastest. A vector has only columns, a convolution [rows][columns = taps].
struct Shape {
  int64_t columns = 1, rows = 1, slices = 1;
  friend bool operator==(const Shape&, const Shape&) = default;
  int64_t count() const { return columns * rows * slices; }
};

// Where a tensor of a block is bound; layer is the MTP block's own layer there.
struct Site {
  Weights* weights;
  Layer* layer;
  NextnWeights* nextn;
};

struct TensorKind {
  TensorId id;
  Where where;
  Role role;
  int dims;  // in a GGUF file: 1 to 3; 4 is a convolution, ne = [taps, 1, channels, 1]
  // After "blk.N." (dialects A to C), the name in dialect D if another, and the one of the oldest C files if another.
  std::string_view name, name_d, name_old;
  // After "layers.N."; global ones are whole names. kv_b and experts are put together by the reader (hf_source.cc).
  std::string_view hf, hf_alias;
  Shape (*shape)(const HParams& hp);
  // Exactly one of them: matrices stay in their type, vectors become floats.
  Matrix* (*matrix)(const Site& site);
  Vector* (*vector)(const Site& site);
};

std::span<const TensorKind> TensorKinds();
const TensorKind& Kind(TensorId id);

// One tensor of one model.
struct Tensor {
  const TensorKind* kind = nullptr;
  int block = -1;  // -1: global
  Shape shape;

  TensorId id() const { return kind->id; }
  std::string Name() const;          // dialect A
  std::vector<uint64_t> Ne() const;  // as dialect A writes it
};

// `suffix` with the block's prefix.
std::string BlockName(int block, std::string_view suffix);

// All tensors in file order: global, then block by block; the MTP block, if hp.nextn_layers says so, last.
// hp must have passed Check.
std::vector<Tensor> ListTensors(const HParams& hp);
// Of one block only; block hp.layers is the MTP block. -1: the global ones.
std::vector<Tensor> ListBlock(const HParams& hp, int block);

// Sized for hp, nothing bound yet.
Weights EmptyWeights(const HParams& hp);
Site SiteOf(Weights& weights, const HParams& hp, int block);

// A tensor as it is bound in some weights: exactly one of matrix and vector, pointing into them.
struct BoundTensor {
  const TensorKind* kind = nullptr;
  int block = -1;  // -1: global
  const Matrix* matrix = nullptr;
  const Vector* vector = nullptr;

  std::string Name() const { return BlockName(block, kind->name); }  // dialect A
};

// What `weights` has (what is empty is left out), in the order of ListTensors.
std::vector<BoundTensor> ListBound(const Weights& weights);

}  // namespace glint::model
