#include "serve/prompts.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "serve/api_error.h"
#include "serve/replay.h"

namespace glint::serve {
namespace {

using Ids = std::vector<int32_t>;

Parsed<std::vector<Ids>> EncodeConversation(const Model& model, const GenerationRequest& request,
                                            SampledTurns* turns) {
  if (!model.has_tokenizer()) {
    return ApiError{400, "This model has no tokenizer: /v1/completions with token ids is what it takes.",
                    "messages", "unsupported_value"};
  }
  const Tokenizer& tokenizer = model.tokenizer();
  auto ids = EncodeWithTurns(tokenizer, request.messages, request.chat, turns);
  if (!ids.ok()) return FromStatus(ids.status(), "messages");
  *ids = WithHistory(tokenizer, request.history, std::move(*ids));
  if (request.skip_reasoning && OpensReasoning(tokenizer, *ids)) ids->push_back(tokenizer.Find("</think>"));
  return std::vector<Ids>{*std::move(ids)};
}

}  // namespace

Parsed<std::vector<Ids>> EncodePrompts(const Model& model, const GenerationRequest& request,
                                       SampledTurns* turns) {
  if (request.prompts.empty()) return EncodeConversation(model, request, turns);
  std::vector<Ids> all;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const std::string param = request.prompts.size() > 1 ? fmt::format("prompt[{}]", i) : "prompt";
    Ids ids;
    if (const auto* text = std::get_if<std::string>(&request.prompts[i])) {
      if (!model.has_tokenizer()) {
        return ApiError{400, "This model has no tokenizer: give the prompt as token ids.", param,
                        "unsupported_value"};
      }
      ids = model.tokenizer().Encode(*text);
    } else {
      ids = std::get<Ids>(request.prompts[i]);
    }
    if (ids.empty()) {
      return ApiError{400,
                      fmt::format("Invalid '{}': it is empty; there must be a token to go on from.", param),
                      param, "invalid_value"};
    }
    all.push_back(std::move(ids));
  }
  return all;
}

std::vector<PrefixCache::Position> PlacesToKeep(const Model& model, std::span<const int32_t> prompt) {
  // A person's words never become this token.
  const int32_t user = model.has_tokenizer() ? model.tokenizer().Find("<|user|>") : -1;
  if (user < 0) return {};
  const auto first = std::find(prompt.begin(), prompt.end(), user);
  if (first == prompt.end()) return {};
  const auto last = std::find(prompt.rbegin(), prompt.rend(), user);
  return {{first - prompt.begin(), CacheKind::kMark}, {prompt.rend() - last - 1, CacheKind::kPrompt}};
}

}  // namespace glint::serve
