// Which weight format each tensor of a model gets: for conversion, synthetic models and the census.
#pragma once
#include <string_view>

#include "glint/status.h"
#include "model/glm_flash/tensors.h"
#include "quant/format.h"

namespace glint::model {

class Recipe {
 public:
  // A named recipe (spec/budget.md section 2) or the name of a format, which stands for Plain of it:
  //   ds4           A: BF16 KDA, indexer, embedding and head; Q8_0 MLA, dense and shared FFNs; Q4_K experts
  //   q8_0-q4_k     B: Q8_0, experts Q4_K
  //   q8_0-iq3_xxs  C: Q8_0, experts IQ3_XXS
  //   q4_k          D: Q4_K wherever a row is a whole number of blocks, Q5_0 elsewhere
  //   ud-iq3_xxs    E: the mixture of unsloth's UD-IQ3_XXS file
  // kBadInput for another name; the message lists them.
  static Result<Recipe> Parse(std::string_view name);

  // Weight matrices of `type`, routed experts of `experts`. What stays F32: vectors, convolutions, routers, the indexer's
  // head weights and position terms; hc fn is F32 beside float types and Q8_0 beside quantised ones.
  static Recipe Plain(quant::Type type, quant::Type experts) { return {Mix::kPlain, type, experts}; }

  // The type the recipe asks for, and what it comes to: a row that is not a whole number of blocks is stored as Q8_0 (Q5_0
  // in recipe q4_k), or F16 where that does not fit either. mtp_block: hp.layers.
  quant::Type Wanted(const Tensor& tensor, int64_t mtp_block) const;
  quant::Type TypeFor(const Tensor& tensor, int64_t mtp_block) const;

 private:
  enum class Mix : uint8_t { kPlain, kDs4, kQ4K, kUdIq3Xxs };
  Recipe(Mix mix, quant::Type type, quant::Type experts) : mix_(mix), type_(type), experts_(experts) {}

  Mix mix_;
  quant::Type type_, experts_;
};

// Bytes of a tensor of a known type whose rows are whole blocks.
uint64_t TensorBytes(const Tensor& tensor, quant::Type type);

}  // namespace glint::model
