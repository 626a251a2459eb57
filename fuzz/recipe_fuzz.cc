// Any text as a recipe, asked for tensors of every role and of rows that fit no block; its patterns against one that tries everything.
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "model/glm_flash/recipe.h"

namespace {

using namespace glint;
using model::Role;
using quant::Type;

constexpr std::array<std::string_view, 8> kNames = {
    "token_embd.weight",
    "blk.0.attn_q_b.weight",
    "blk.12.ffn_gate_exps.weight",
    "blk.045.ssm_a",
    "blk.4294967297.nextn.x.y",
    "output.weight",
    "a.weight.weight",
    "",
};

void Ask(const model::Recipe& recipe) {
  for (int role = 0; role < static_cast<int>(Role::kCount); ++role) {
    for (size_t i = 0; i < kNames.size(); ++i) {
      const uint64_t columns = i % 2 == 0 ? 4096 : 2 * i + 1;
      const model::RecipeSubject subject{kNames[i],  static_cast<Role>(role),
                                         i % 3 == 0, i % 4 == 3,
                                         columns,    i % 2 == 0 ? Type::kBF16 : Type::kF32};
      const quant::Format* const got = quant::Find(recipe.TypeFor(subject));
      if (got == nullptr || !got->runnable() || columns % got->block_weights != 0) std::abort();
      if (subject.vector && got->block_weights != 1) std::abort();
    }
  }
}

// The definition of patterns without braces.
bool Simple(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*')
    return Simple(pattern.substr(1), text) || (!text.empty() && Simple(pattern, text.substr(1)));
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         Simple(pattern.substr(1), text.substr(1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto recipe = model::Recipe::Read(text, "input"); recipe.ok()) {
    if (recipe->text() != text) std::abort();
    Ask(*recipe);
  }
  constexpr size_t kLongest = 12;  // Simple takes exponential time
  const std::string_view pattern = std::string_view(text).substr(0, text.find('\n'));
  if (pattern.size() == text.size() || pattern.size() > kLongest) return 0;
  const std::string_view name = std::string_view(text).substr(pattern.size() + 1, 2 * kLongest);
  const bool matches = model::MatchesPattern(pattern, name);
  if (pattern.find('{') == std::string_view::npos && matches != Simple(pattern, name)) std::abort();
  return 0;
}
