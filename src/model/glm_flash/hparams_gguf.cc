#include "model/glm_flash/hparams_gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>

#include "base/printable.h"
#include "model/glm_flash/tensors.h"

namespace glint::model {
namespace {

using Names = std::initializer_list<std::string_view>;

// Typed reads under the architecture's prefix, each by any of several spellings. The first failure is kept and later reads
// go on with zeros, so that a caller checks once.
class Keys {
 public:
  Keys(const gguf::File& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  const Status& status() const { return status_; }
  void Fail(Code code, std::string message) {
    if (status_.ok()) status_ = {code, fmt::format("{}: {}", file_.paths().front(), message)};
  }
  std::string Full(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }

  // The full name of the first spelling that the file has.
  std::optional<std::string> Find(Names names) const {
    for (const std::string_view name : names) {
      if (std::string full = Full(name); file_.Find(full) != nullptr) return full;
    }
    return std::nullopt;
  }
  bool Has(Names names) const { return Find(names).has_value(); }

  int64_t Int(Names names, std::optional<int64_t> otherwise = {}) {
    const auto name = Locate(names, otherwise.has_value());
    if (!name) return otherwise.value_or(0);
    const uint64_t value = Take(*name, file_.GetUint(*name));
    if (value <= uint64_t{std::numeric_limits<int64_t>::max()}) return static_cast<int64_t>(value);
    Fail(Code::kBadFile, fmt::format("{} is {}, which is too large", *name, value));
    return 0;
  }
  float Float(Names names, std::optional<float> otherwise = {}) {
    const auto name = Locate(names, otherwise.has_value());
    return name ? static_cast<float>(Take(*name, file_.GetFloat(*name))) : otherwise.value_or(0);
  }
  bool Bool(Names names, bool otherwise) {
    const auto name = Find(names);
    return name ? Take(*name, file_.GetBool(*name)) : otherwise;
  }
  std::vector<uint64_t> Ints(const std::string& name) { return Take(name, file_.GetUints(name)); }
  std::vector<double> Floats(const std::string& name) { return Take(name, file_.GetFloats(name)); }

 private:
  std::optional<std::string> Locate(Names names, bool optional) {
    auto name = Find(names);
    if (name || optional) return name;
    std::string others;
    for (const std::string_view other : names) {
      others += fmt::format("{}{}", others.empty() ? "" : " or ", Full(other));
    }
    Fail(Code::kBadFile, fmt::format("the key {} is missing", others));
    return std::nullopt;
  }
  template <class T>
  T Take(const std::string& name, Result<T> value) {
    if (value.ok()) return std::move(*value);
    if (status_.ok()) {
      // The reader may have named file and key already.
      const std::string& m = value.status().message();
      const bool named = m.find(name) != std::string::npos;
      const bool placed = m.find(file_.paths().front()) != std::string::npos;
      status_ = {value.status().code(), fmt::format("{}{}{}", placed ? "" : file_.paths().front() + ": ",
                                                    named ? "" : name + ": ", m)};
    }
    return T{};
  }

  const gguf::File& file_;
  std::string architecture_;
  Status status_;
};

const gguf::TensorInfo* FindAny(const gguf::File& file, int block, TensorId id) {
  const TensorKind& kind = Kind(id);
  for (const std::string_view name : {kind.name, kind.name_d, kind.name_old}) {
    if (name.empty()) continue;
    if (const auto* info = file.FindTensor(BlockName(block, name))) return info;
  }
  return nullptr;
}

bool HasBlockTensor(const gguf::File& file, int64_t block, TensorId id) {
  return block >= 0 && block <= std::numeric_limits<int>::max() &&
         FindAny(file, static_cast<int>(block), id) != nullptr;
}

std::string DialectOf(const gguf::File& file, const Keys& keys, std::string_view architecture) {
  if (file.FindTensor("blk.0.kda_q.weight") != nullptr || keys.Has({"linear_attention.head_count"}))
    return "D";
  const bool gated = keys.Has({"kda.gate_lower_bound", "kda.head_dim"});
  if (keys.Has({"attention.indexer.block_size"}) || (!gated && keys.Has({"ssm.state_size"}))) return "B";
  return architecture == "glm5-next" ? "C" : "A";
}

// Trunk depth and MTP blocks. The block count of a file includes MTP blocks, whose number may be unstated.
void ReadDepth(const gguf::File& file, Keys& keys, GgufModel& model) {
  HParams& hp = model.hparams;
  const int64_t blocks = keys.Int({"block_count"});
  int64_t nextn = 0;
  if (keys.Has({"nextn_predict_layers"})) {
    nextn = keys.Int({"nextn_predict_layers"});
  } else if (keys.Has({"trunk_block_count"})) {
    nextn = blocks - keys.Int({"trunk_block_count"});
  } else if (HasBlockTensor(file, blocks - 1, TensorId::kNextnEhProj)) {
    nextn = 1;
  }
  if (!keys.status().ok()) return;
  hp.layers = blocks - nextn;
  if (nextn < 0 || hp.layers < 1) {
    return keys.Fail(Code::kBadFile, fmt::format("{} is {} with {} MTP blocks, which leaves no trunk",
                                                 keys.Full("block_count"), blocks, nextn));
  }
  if (keys.Has({"trunk_block_count"}) && keys.Int({"trunk_block_count"}) != hp.layers) {
    return keys.Fail(Code::kBadFile, fmt::format("{} is {}, wanted {}", keys.Full("trunk_block_count"),
                                                 keys.Int({"trunk_block_count"}), hp.layers));
  }
  if (HasBlockTensor(file, hp.layers, TensorId::kHcAttnFn)) {
    return keys.Fail(
        Code::kBadFile,
        fmt::format("{} says that block {} is an MTP block, but it has {}, which only trunk blocks have",
                    keys.Full("nextn_predict_layers"), hp.layers,
                    BlockName(static_cast<int>(hp.layers), Kind(TensorId::kHcAttnFn).name)));
  }
  if (!HasBlockTensor(file, 0, TensorId::kAttnNorm) && !HasBlockTensor(file, 0, TensorId::kFfnNorm) &&
      HasBlockTensor(file, hp.layers, TensorId::kNextnEhProj)) {
    return keys.Fail(
        Code::kUnsupported,
        "the file holds only the MTP block (blk.0.* is missing); open the file with the trunk instead");
  }
  if (nextn > 1) model.mtp_flaw = fmt::format("the file states {} MTP blocks, glint runs one", nextn);
  hp.nextn_layers = std::min<int64_t>(nextn, 1);
}

// Which blocks are KDA (0) and which DSA (1).
void ReadSchedule(Keys& keys, HParams& hp) {
  const auto name = keys.Find({"layer_types", "attention.head_count_kv"});
  if (!name) {
    return keys.Fail(Code::kBadFile,
                     fmt::format("the layer schedule is missing: neither {} nor {} is there",
                                 keys.Full("attention.head_count_kv"), keys.Full("layer_types")));
  }
  const auto entries = keys.Ints(*name);
  if (!keys.status().ok()) return;
  const auto layers = static_cast<size_t>(hp.layers);
  // Early files leave the MTP block's entry out; it is always DSA.
  if (entries.size() < layers || entries.size() > layers + 8) {
    return keys.Fail(Code::kBadFile, fmt::format("{} has {} entries, wanted one for each of {} blocks", *name,
                                                 entries.size(), hp.layers + hp.nextn_layers));
  }
  hp.mixers.resize(layers);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i] > 1 || (i >= layers && entries[i] != 1)) {
      return keys.Fail(Code::kBadFile,
                       fmt::format("{}[{}] is {}, wanted {}", *name, i, entries[i],
                                   i < layers ? "0 (KDA) or 1 (DSA)" : "1 (the MTP block is DSA)"));
    }
    if (i < layers) hp.mixers[i] = entries[i] == 0 ? Mixer::kKda : Mixer::kDsa;
  }
}

void ReadKda(const gguf::File& file, Keys& keys, GgufModel& model) {
  HParams& hp = model.hparams;
  int kda = -1;
  for (size_t i = 0; i < hp.mixers.size() && kda < 0; ++i) {
    if (hp.mixers[i] == Mixer::kKda) kda = static_cast<int>(i);
  }
  // The head count has no key in dialects A to C, the head width none in B: the tensors tell.
  constexpr uint64_t kTooMany = uint64_t{1} << 40;
  const auto entries = [&](TensorId id, int axis) -> std::optional<int64_t> {
    const auto* info = kda < 0 ? nullptr : FindAny(file, kda, id);
    if (info == nullptr) return std::nullopt;
    return static_cast<int64_t>(
        std::min(axis < 0 ? info->elements() : info->ne[static_cast<size_t>(axis)], kTooMany));
  };
  const auto heads = entries(TensorId::kKdaA, -1), beta = entries(TensorId::kKdaBeta, 1);
  if (heads && beta && *heads != *beta) {
    keys.Fail(Code::kBadFile,
              fmt::format("{} has {} entries, but {} has {} rows; wanted one of each for a head",
                          BlockName(kda, Kind(TensorId::kKdaA).name), *heads,
                          BlockName(kda, Kind(TensorId::kKdaBeta).name), *beta));
  }
  hp.kda_heads = keys.Int({"linear_attention.head_count"}, heads ? heads : beta ? beta : hp.heads);
  const auto width = entries(TensorId::kKdaNorm, -1);
  if (model.dialect == "B" && !width) {
    keys.Fail(Code::kBadFile,
              fmt::format("{} is missing", BlockName(std::max(kda, 0), Kind(TensorId::kKdaNorm).name)));
  }
  hp.kda_head_dim = keys.Int({"kda.head_dim", "linear_attention.head_dimension"}, width);
  hp.conv_kernel = keys.Int({"ssm.conv_kernel", "linear_attention.conv_kernel"});
  if (keys.Has({"kda.gate_lower_bound", "linear_attention.gate_lower_bound"})) {
    hp.gate_lower_bound = keys.Float({"kda.gate_lower_bound", "linear_attention.gate_lower_bound"});
  } else if (model.dialect == "B") {
    hp.gate_lower_bound = -5.0f;  // these early files have no key for it
    model.notes.emplace_back("the file does not state the KDA gate's lower bound; taken as -5");
  } else {
    keys.Fail(Code::kBadFile, fmt::format("the key {} is missing", keys.Full("kda.gate_lower_bound")));
  }
}

void ReadDsa(Keys& keys, HParams& hp) {
  hp.q_lora_rank = keys.Int({"attention.q_lora_rank"});
  hp.kv_lora_rank = keys.Int({"attention.kv_lora_rank"});
  // key_length is the latent width where key_length_mla is there too, and the head width where it is not (dialect D).
  hp.qk_head_dim = keys.Int({"attention.key_length_mla", "attention.key_length"});
  hp.v_head_dim = keys.Int({"attention.value_length_mla", "attention.value_length"});
  hp.index_heads = keys.Int({"attention.indexer.head_count"});
  hp.index_head_dim = keys.Int({"attention.indexer.key_length"});
  hp.index_topk = keys.Int({"attention.indexer.top_k"});
  // No default: the reference implementation's own differs from every published model's.
  hp.index_kpool =
      keys.Int({"attention.indexer.kpool", "attention.indexer.block_size", "attention.indexer.pool_size"});
  hp.block = GridBlock(hp.index_kpool);
  if (!keys.Bool({"attention.indexer.kpool_select_tail"}, true)) {
    keys.Fail(Code::kUnsupported,
              fmt::format("{} is false; glint always selects the tail, as the released model does",
                          keys.Full("attention.indexer.kpool_select_tail")));
  }
}

// Later DSA layers may reuse an earlier one's selection in other models of the kind; in this one every layer has its own.
void CheckIndexerTypes(const gguf::File& file, Keys& keys) {
  const auto name = keys.Find({"attention.indexer.types"});
  if (!name) return;
  const auto types = file.GetStrings(*name);
  if (!types.ok()) return;  // as numbers their meaning is nowhere written down
  for (const std::string& type : *types) {
    if (type != "full") {
      return keys.Fail(
          Code::kUnsupported,
          fmt::format("{} has entries that are not \"full\"; glint runs no shared indexers", *name));
    }
  }
}

// One limit for every FFN of the model; scalar, or an array with the same number for all blocks.
void ReadSwiGluLimit(Keys& keys, HParams& hp, std::vector<std::string>& notes) {
  std::optional<double> limit;
  std::string from;
  for (const std::string_view spelling : {"swiglu_clamp_exp", "swiglu_clamp_shexp", "swiglu_limit"}) {
    const auto name = keys.Find({spelling});
    if (!name) continue;
    for (const double value : keys.Floats(*name)) {
      if (limit && *limit != value) {
        return keys.Fail(Code::kUnsupported,
                         fmt::format("{} has {} where {} has {}; glint runs one limit for all FFNs", *name,
                                     value, from, *limit));
      }
      limit = value;
      from = *name;
    }
  }
  if (!limit) notes.emplace_back("the file states no SwiGLU clamp; none is applied");
  hp.swiglu_limit = limit ? static_cast<float>(*limit) : std::numeric_limits<float>::infinity();
}

void ReadFfn(Keys& keys, HParams& hp, std::vector<std::string>& notes) {
  const int64_t dense = keys.Int({"leading_dense_block_count"}, 0);
  hp.moe.assign(static_cast<size_t>(hp.layers), 1);
  for (int64_t i = 0; i < std::min(dense, hp.layers); ++i) hp.moe[static_cast<size_t>(i)] = 0;
  hp.dense_ffn = keys.Int({"feed_forward_length"}, dense > 0 ? std::nullopt : std::optional<int64_t>(0));
  hp.experts = keys.Int({"expert_count"});
  hp.experts_used = keys.Int({"expert_used_count"});
  hp.expert_ffn = keys.Int({"expert_feed_forward_length"});
  const int64_t shared = keys.Int({"expert_shared_count"}, 1);
  if (shared < 1 || shared > 1024) {
    return keys.Fail(Code::kUnsupported, fmt::format("{} is {}, glint runs models with shared experts",
                                                     keys.Full("expert_shared_count"), shared));
  }
  const int64_t fallback = hp.expert_ffn > (int64_t{1} << 40) ? 0 : hp.expert_ffn * shared;
  hp.shared_ffn = keys.Int({"expert_shared_feed_forward_length"}, fallback);
  hp.routed_scale = keys.Float({"expert_weights_scale"});
  hp.norm_topk = keys.Bool({"expert_weights_norm"}, true);
  if (keys.Int({"expert_group_count"}, 1) != 1 &&
      keys.Int({"expert_group_used_count"}, 1) != keys.Int({"expert_group_count"}, 1)) {
    keys.Fail(Code::kUnsupported,
              fmt::format("{} is not 1; glint has no expert groups", keys.Full("expert_group_count")));
  }
  constexpr int64_t kSigmoid = 2;
  if (const int64_t gating = keys.Int({"expert_gating_func"}, kSigmoid); gating != kSigmoid) {
    keys.Fail(Code::kUnsupported, fmt::format("{} is {}, glint runs {} (sigmoid)",
                                              keys.Full("expert_gating_func"), gating, kSigmoid));
  }
  ReadSwiGluLimit(keys, hp, notes);
}

// Rows of the embedding are the vocabulary; the keys that repeat it must agree.
void ReadVocabulary(const gguf::File& file, Keys& keys, HParams& hp) {
  const auto* embedding = file.FindTensor(Kind(TensorId::kEmbedding).name);
  const auto stated = keys.Has({"vocab_size"}) ? std::optional(keys.Int({"vocab_size"})) : std::nullopt;
  if (embedding == nullptr) {
    return keys.Fail(Code::kBadFile, fmt::format("{} is missing", Kind(TensorId::kEmbedding).name));
  }
  hp.vocab_size = static_cast<int64_t>(std::min(embedding->ne[1], uint64_t{1} << 40));
  if (stated && *stated != hp.vocab_size) {
    keys.Fail(Code::kBadFile, fmt::format("{} is {}, but {} has {} rows", keys.Full("vocab_size"), *stated,
                                          embedding->name, hp.vocab_size));
  }
}

}  // namespace

Result<GgufModel> ReadHParams(const gguf::File& file) {
  const std::string& path = file.paths().front();
  auto architecture = file.GetString("general.architecture");
  if (!architecture.ok()) {
    return Status(Code::kBadFile,
                  fmt::format("{}: the key general.architecture is missing or no string", path));
  }
  if (*architecture == "clip") {
    return Status(Code::kUnsupported, fmt::format("{}: a vision projector, not a language model", path));
  }
  if (*architecture != "glm5next" && *architecture != "glm5-next") {
    return Status(Code::kUnsupported,
                  fmt::format("{}: architecture {}; glint runs glm5next (also written glm5-next)", path,
                              Quoted(*architecture)));
  }

  GgufModel model;
  HParams& hp = model.hparams;
  Keys keys(file, *architecture);
  model.dialect = DialectOf(file, keys, *architecture);
  ReadDepth(file, keys, model);
  if (!keys.status().ok()) return keys.status();
  // Before anything is sized by it.
  if (hp.layers > 4096) {
    return Status(Code::kBadFile, fmt::format("{}: {} is {}, wanted at most 4096", path,
                                              keys.Full("block_count"), hp.layers));
  }
  hp.hidden = keys.Int({"embedding_length"});
  hp.context_length = keys.Int({"context_length"});
  ReadVocabulary(file, keys, hp);
  ReadSchedule(keys, hp);
  hp.heads = keys.Int({"attention.head_count"});
  ReadDsa(keys, hp);
  ReadKda(file, keys, model);
  CheckIndexerTypes(file, keys);
  ReadFfn(keys, hp, model.notes);
  hp.hc_mult = keys.Int({"hyper_connection.count"});
  hp.sinkhorn_iters = keys.Int({"hyper_connection.sinkhorn_iterations"});
  hp.hc_eps = keys.Float({"hyper_connection.epsilon"});
  hp.rms_eps = keys.Float({"attention.layer_norm_rms_epsilon"});
  hp.layer_norm_eps = keys.Float({"attention.layer_norm_epsilon"}, hp.layer_norm_eps);
  if (!keys.status().ok()) return keys.status();
  if (const Status s = Check(hp); !s.ok()) return Status(s.code(), fmt::format("{}: {}", path, s.message()));
  return model;
}

}  // namespace glint::model
