#include "model/census.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include "base/json.h"
#include "gguf/gguf.h"
#include "gguf/safetensors.h"
#include "model/arena.h"
#include "model/glm_flash/gguf_source.h"
#include "model/glm_flash/hf_checkpoint.h"
#include "model/glm_flash/hf_source.h"
#include "model/glm_flash/hparams_gguf.h"
#include "model/glm_flash/synthetic_spec.h"
#include "model/glm_flash/tensors.h"

namespace glint::model {
namespace {

struct RoleNames {
  std::string_view rule, title;
};
// By Role.
constexpr std::array<RoleNames, static_cast<size_t>(Role::kCount)> kRoleNames = {{
    {"embedding", "embedding"},
    {"head", "head"},
    {"norm", "norms"},
    {"hc", "hyper-connections"},
    {"kda", "kda"},
    {"dsa", "dsa"},
    {"indexer", "indexer"},
    {"dense", "dense ffn"},
    {"router", "router"},
    {"shared", "shared experts"},
    {"experts", "routed experts"},
    {"mtp", "mtp"},
    {"other", "other"},
}};
static_assert(!kRoleNames.back().rule.empty(), "names for each");

// What one decoded token reads: one embedding row, the chosen experts, all of anything else; nothing of the MTP block.
uint64_t PerToken(const HParams& hp, const Tensor& tensor, uint64_t bytes) {
  if (tensor.block == hp.layers) return 0;
  switch (tensor.kind->role) {
    case Role::kEmbedding:
      return bytes / static_cast<uint64_t>(hp.vocab_size);
    case Role::kExperts:
      return bytes / static_cast<uint64_t>(hp.experts) * static_cast<uint64_t>(hp.experts_used);
    default:
      return bytes;
  }
}

// What one sequence needs at fp32: recurrent state, convolution inputs and the rows of the unfinished block (docs/design.md,
// "The grid") whatever its length; latent rows and pooled keys by the token.
void AddCaches(const HParams& hp, Census& census) {
  const auto kda = static_cast<uint64_t>(std::count(hp.mixers.begin(), hp.mixers.end(), Mixer::kKda));
  const uint64_t dsa = hp.mixers.size() - kda;
  const auto u = [](int64_t n) { return static_cast<uint64_t>(n); };
  const uint64_t width = u(hp.kda_width());
  const uint64_t state = width * u(hp.kda_head_dim);
  const uint64_t conv = u(hp.conv_kernel - 1) * 3 * width;
  const uint64_t rows = u(hp.block) * 3 * width;  // kF, delta, G
  census.fixed_state_bytes = kda * (state + conv + rows) * sizeof(float);
  // A pooled key is shared by the tokens of its pool.
  census.bytes_per_context_token =
      dsa * (u(hp.kv_lora_rank) * sizeof(float) + u(hp.index_head_dim) * sizeof(float) / u(hp.index_kpool));
}

void Add(const HParams& hp, const Tensor& tensor, quant::Type type, uint64_t bytes, Census& census) {
  const bool mtp = tensor.block == hp.layers;
  CensusTensor row{tensor.Name(),
                   type,
                   tensor.Ne(),
                   bytes,
                   mtp ? Role::kMtp : tensor.kind->role,
                   PerToken(hp, tensor, bytes)};
  census.total_bytes += bytes;
  (mtp ? census.mtp_bytes : census.trunk_bytes) += bytes;
  if (row.role == Role::kExperts) census.trunk_expert_bytes += bytes;
  census.per_token += row.per_token;
  census.parameters += static_cast<uint64_t>(tensor.shape.count());
  census.tensors.push_back(std::move(row));
}

Result<Census> OfGguf(const std::string& path) {
  auto file = gguf::File::Open(path, BlockSizeOf);
  if (!file.ok()) return file.status();
  auto read = ReadHParams(*file);
  if (!read.ok()) return read.status();
  const HParams& hp = read->hparams;
  const auto known = TensorsByName(hp);
  Census census;
  for (const gguf::TensorInfo& info : file->tensors()) {
    const auto type = static_cast<quant::Type>(info.type);
    if (const auto it = known.find(info.name); it != known.end()) {
      Add(hp, it->second, type, info.bytes, census);
      census.tensors.back().ne.assign(info.ne.begin(), info.ne.begin() + std::clamp(info.dims, 1, 4));
    } else {
      census.tensors.push_back({info.name,
                                type,
                                {info.ne.begin(), info.ne.begin() + std::clamp(info.dims, 1, 4)},
                                info.bytes,
                                Role::kOther,
                                0});
      census.total_bytes += info.bytes;
      census.trunk_bytes += info.bytes;
      census.parameters += info.elements();
    }
  }
  AddCaches(hp, census);
  return census;
}

Result<Census> OfHf(const std::string& directory) {
  auto checkpoint = OpenHfCheckpoint(directory);
  if (!checkpoint.ok()) return checkpoint.status();
  Arena arena;
  HParams& hp = checkpoint->hparams;
  const HfSource source(hp, checkpoint->files, arena);
  if (!FirstMissing(hp, source, static_cast<int>(hp.layers)).empty()) hp.nextn_layers = 0;
  Census census;
  for (const Tensor& tensor : ListTensors(hp)) {
    auto located = source.Locate(tensor);
    if (!located.ok()) return located.status();
    // As stored: an FP8 weight is one byte; its scales (one float for 16,384 weights) are not counted.
    Add(hp, tensor, located->type, located->StoredBytes(), census);
  }
  AddCaches(hp, census);
  return census;
}

}  // namespace

std::string_view Name(Role role) { return kRoleNames[static_cast<size_t>(role)].title; }
std::string_view RuleName(Role role) { return kRoleNames[static_cast<size_t>(role)].rule; }

Result<Census> TakeCensus(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? OfHf(path) : OfGguf(path);
}

Result<Census> SyntheticCensus(const std::string& spec) {
  auto parsed = ParseSynthetic(spec);
  if (!parsed.ok()) return parsed.status();
  const HParams& hp = parsed->hparams;
  Census census;
  for (const Tensor& tensor : ListTensors(hp)) {
    const quant::Type type = parsed->recipe.TypeFor(tensor, hp.layers);
    Add(hp, tensor, type, TensorBytes(tensor, type), census);
  }
  AddCaches(hp, census);
  return census;
}

}  // namespace glint::model
