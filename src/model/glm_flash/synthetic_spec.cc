#include "model/glm_flash/synthetic_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace glint::model {
namespace {

HParams Released() {
  HParams hp;
  hp.vocab_size = 154880, hp.hidden = 4096, hp.layers = 45, hp.nextn_layers = 1, hp.context_length = 1048576;
  hp.kda_heads = 64, hp.kda_head_dim = 128, hp.conv_kernel = 4, hp.gate_lower_bound = -5;
  hp.heads = 64, hp.q_lora_rank = 1536, hp.kv_lora_rank = 512, hp.qk_head_dim = 256, hp.v_head_dim = 256;
  hp.index_heads = 32, hp.index_head_dim = 128, hp.index_topk = 2048, hp.index_kpool = 4;
  hp.dense_ffn = 12288, hp.expert_ffn = 2048, hp.shared_ffn = 2048, hp.experts = 288, hp.experts_used = 8;
  hp.routed_scale = 2.5f, hp.swiglu_limit = 10;
  hp.hc_mult = 4, hp.sinkhorn_iters = 20;
  return hp;
}

// Every row but the gates' up-projections is a multiple of 256, so that all formats have their place, and the budget is small
// enough for a short prompt to drop pools.
HParams Tiny() {
  HParams hp = Released();
  hp.vocab_size = 512, hp.hidden = 256, hp.layers = 5, hp.context_length = 4096;
  hp.kda_heads = 4, hp.kda_head_dim = 64;
  hp.heads = 4, hp.q_lora_rank = 256, hp.kv_lora_rank = 256, hp.qk_head_dim = 64, hp.v_head_dim = 64;
  hp.index_heads = 2, hp.index_head_dim = 128, hp.index_topk = 32;
  hp.dense_ffn = 512, hp.expert_ffn = 256, hp.shared_ffn = 256, hp.experts = 8, hp.experts_used = 2;
  return hp;
}

struct NamedShape {
  std::string_view name, is;
  HParams (*make)();
  int64_t dense;  // leading layers with a dense FFN
};
constexpr NamedShape kShapes[] = {{"glm-5.3-flash", "as released", Released, 3},
                                  {"tiny", "the same branches in a few megabytes", Tiny, 2}};

struct Option {
  std::string_view name;
  void (*set)(HParams& hp, int64_t value);
};
constexpr Option kOptions[] = {
    {"layers", [](HParams& h, int64_t v) { h.layers = v; }},
    {"mtp", [](HParams& h, int64_t v) { h.nextn_layers = v; }},
    {"vocab", [](HParams& h, int64_t v) { h.vocab_size = v; }},
    {"hidden", [](HParams& h, int64_t v) { h.hidden = v; }},
    {"heads", [](HParams& h, int64_t v) { h.heads = v; }},
    {"kda_heads", [](HParams& h, int64_t v) { h.kda_heads = v; }},
    {"dense_ffn", [](HParams& h, int64_t v) { h.dense_ffn = v; }},
    {"expert_ffn", [](HParams& h, int64_t v) { h.expert_ffn = h.shared_ffn = v; }},
    {"experts", [](HParams& h, int64_t v) { h.experts = v; }},
    {"experts_used", [](HParams& h, int64_t v) { h.experts_used = v; }},
    {"topk", [](HParams& h, int64_t v) { h.index_topk = v; }},
    {"kpool", [](HParams& h, int64_t v) { h.index_kpool = v; }},
    {"context", [](HParams& h, int64_t v) { h.context_length = v; }},
};

constexpr std::string_view kDefaultRecipe = "q8_0";

Status Bad(std::string message) { return {Code::kBadInput, std::move(message)}; }

std::string OptionNames() {
  std::string names = "recipe, seed, dense";
  for (const Option& option : kOptions) names += fmt::format(", {}", option.name);
  return names;
}

template <class T>
bool Parse(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<SyntheticSpec> ParseSynthetic(std::string_view spec) {
  bool more = true;
  const auto next = [&spec, &more] {
    const size_t comma = spec.find(',');
    const std::string_view part = spec.substr(0, comma);
    more = comma != std::string_view::npos;
    spec = more ? spec.substr(comma + 1) : std::string_view();
    return part;
  };
  const std::string_view shape = next();
  const auto* const known = std::find_if(std::begin(kShapes), std::end(kShapes),
                                         [&](const NamedShape& s) { return s.name == shape; });
  if (known == std::end(kShapes)) {
    return Bad(fmt::format("unknown synthetic shape \"{}\"; there are glm-5.3-flash and tiny", shape));
  }
  HParams hp = known->make();
  int64_t dense = known->dense;

  uint64_t seed = 0;
  std::string_view recipe_name = kDefaultRecipe;
  while (more) {
    const std::string_view part = next();
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    if (name == "recipe") {
      recipe_name = value;
      continue;
    }
    if (name == "seed") {
      if (!Parse(value, seed)) return Bad(fmt::format("seed=\"{}\": wanted a whole number from 0", value));
      continue;
    }
    const auto* option = std::find_if(std::begin(kOptions), std::end(kOptions),
                                      [&](const Option& o) { return o.name == name; });
    if (option == std::end(kOptions) && name != "dense") {
      return Bad(fmt::format("unknown synthetic option \"{}\"; there are {}", name, OptionNames()));
    }
    int64_t number = 0;
    if (!Parse(value, number)) return Bad(fmt::format("{}=\"{}\": wanted a whole number", name, value));
    if (name == "dense") {
      dense = number;
    } else {
      option->set(hp, number);
    }
  }

  auto recipe = Recipe::Parse(recipe_name);
  if (!recipe.ok()) return recipe.status();
  constexpr int64_t kMostLayers = 4096;
  if (hp.layers < 1 || hp.layers > kMostLayers)
    return Bad(fmt::format("layers={}: wanted 1 to {}", hp.layers, kMostLayers));
  for (int64_t i = 0; i < hp.layers; ++i) {
    hp.mixers.push_back(i % 4 == 3 ? Mixer::kDsa : Mixer::kKda);
    hp.moe.push_back(i >= dense);
  }
  hp.block = GridBlock(hp.index_kpool);
  if (const Status s = Check(hp); !s.ok()) return Bad(fmt::format("synthetic model: {}", s.message()));
  return SyntheticSpec{std::move(hp), *recipe, seed};
}

std::string DescribeSyntheticSpec() {
  std::string shapes, recipes;
  for (const NamedShape& shape : kShapes)
    shapes += fmt::format("{}{} ({})", shapes.empty() ? "" : ", ", shape.name, shape.is);
  for (const ShippedRecipe& recipe : ShippedRecipes()) recipes += fmt::format("{}, ", recipe.name);
  return fmt::format("Shapes: {}. Options: {}. Recipes ({} if none is named): {}or a type: {}.", shapes,
                     OptionNames(), kDefaultRecipe, recipes, quant::RunnableNames());
}

}  // namespace glint::model
