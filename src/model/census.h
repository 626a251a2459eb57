// What a model's bytes are for: the figures of `glint inspect` and of spec/budget.md sections 1, 2 and 5, computed from tensor lists alone.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"
#include "model/glm_flash/hparams.h"
#include "quant/format.h"

namespace glint::model {

enum class Role : uint8_t {
  kEmbedding,
  kHead,
  kNorm,
  kHc,
  kKda,
  kDsa,
  kIndexer,
  kDense,
  kRouter,
  kShared,
  kExperts,
  kMtp,
  kOther,
  kCount
};
std::string_view Name(Role role);      // for people: "routed experts"
std::string_view RuleName(Role role);  // in recipes: "experts"

struct CensusTensor {
  std::string name;  // GGUF name, dialect A spelling
  quant::Type type;
  std::vector<uint64_t> ne;
  uint64_t bytes = 0;
  Role role = Role::kOther;
  uint64_t per_token = 0;  // bytes one decoded token reads of it (trunk only; 0 for the MTP block)
};

struct Census {
  std::vector<CensusTensor> tensors;
  uint64_t total_bytes = 0, trunk_bytes = 0, mtp_bytes = 0, trunk_expert_bytes = 0;
  uint64_t per_token = 0;  // trunk, one decoded token
  uint64_t parameters = 0;
  // Caches (spec/budget.md section 5.2, as glint's CPU backend keeps them: fp32)
  uint64_t fixed_state_bytes = 0, bytes_per_context_token = 0;
};

// From a GGUF file or HF directory, binding nothing.
Result<Census> TakeCensus(const std::string& path);
// From a synthetic spec, allocating nothing: recipes ds4, q8_0-q4_k, q8_0-iq3_xxs, q4_k, ud-iq3_xxs (A to E of spec/budget.md) and plain types.
Result<Census> SyntheticCensus(const std::string& spec);

}  // namespace glint::model
