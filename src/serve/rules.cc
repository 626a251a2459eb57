#include "serve/rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "serve/api_error.h"
#include "serve/fields.h"

namespace glint::serve {
namespace {

// Grammars that are kept: by number, and by the memory that they and their masks take.
constexpr size_t kMostKept = 64;
constexpr size_t kMostBytes = size_t{256} << 20;
// Calls in one answer that has to be calls.
constexpr uint32_t kMostCalls = 16;

const Json* MemberOf(const Json& object, std::string_view key) {
  return object.kind() == Json::Kind::kObject ? object.Find(key) : nullptr;
}

}  // namespace

Result<std::shared_ptr<const grammar::Vocabulary>> Rules::Vocabulary() {
  {
    const std::lock_guard lock(mutex_);
    if (vocabulary_ != nullptr) return vocabulary_;
  }
  if (!model_.has_tokenizer())
    return Status(Code::kUnsupported, "this model has no tokenizer: its answers can't be held to a form");
  auto made = grammar::Vocabulary::Create(model_.tokenizer());
  if (!made.ok()) return made.status();
  const std::lock_guard lock(mutex_);
  if (vocabulary_ == nullptr) vocabulary_ = *std::move(made);  // else another was faster
  return vocabulary_;
}

template <class Make>
Result<Rules::GrammarPtr> Rules::Keep(const std::string& key, Make make) {
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(kept_.begin(), kept_.end(), [&](const Kept& one) { return one.key == key; });
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      return found->grammar;
    }
  }
  auto vocabulary = Vocabulary();
  if (!vocabulary.ok()) return vocabulary.status();
  Result<GrammarPtr> made = make(*std::move(vocabulary));
  if (!made.ok()) return made;
  const std::lock_guard lock(mutex_);
  kept_.push_front({key, *made});
  size_t bytes = 0;
  const auto out = std::find_if(kept_.begin(), kept_.end(), [&, number = size_t{0}](const Kept& one) mutable {
    bytes += one.grammar->bytes() + one.key.size();
    return ++number > kMostKept || (number > 1 && bytes > kMostBytes);
  });
  kept_.erase(out, kept_.end());
  return made;
}

Result<Rules::GrammarPtr> Rules::Calls(const GenerationRequest& request) {
  const ToolChoice& choice = request.tool_choice;
  const bool named = choice.kind == ToolChoice::Kind::kNamed;
  const uint32_t most = named || !choice.parallel ? 1 : kMostCalls;
  std::string all = fmt::format("calls {} {}\n", most, named ? choice.name : "");
  for (const std::string& tool : request.chat.tools) all += tool + "\n";
  return Keep(all, [&](auto vocabulary) -> Result<GrammarPtr> {
    const auto marks = grammar::GlmToolMarks(model_.tokenizer());
    if (!marks.ok()) return marks.status();
    std::vector<Json> tools;  // the schemas point into them
    for (const std::string& text : request.chat.tools) {
      auto parsed = ParseJson(text, "tools", {.depth = 80});
      if (!parsed.ok()) return parsed.status();
      tools.push_back(*std::move(parsed));
    }
    std::vector<grammar::ToolSchema> schemas;
    for (const Json& tool : tools) {
      const Json* function = MemberOf(tool, "function");
      const Json* name = function == nullptr ? nullptr : MemberOf(*function, "name");
      const auto text = name == nullptr ? std::nullopt : AsString(*name);
      if (!text) return Status(Code::kBadInput, "a tool has no name");
      if (named && *text != choice.name) continue;
      schemas.push_back({*text, MemberOf(*function, "parameters")});
    }
    return grammar::Grammar::ToolCalls(std::move(vocabulary), schemas, *marks, most);
  });
}

Parsed<AnswerRules> Rules::For(const GenerationRequest& request) {
  using Choice = ToolChoice::Kind;
  AnswerRules rules;
  const ToolChoice& choice = request.tool_choice;
  const bool tools = !request.chat.tools.empty();
  if (model_.has_tokenizer()) rules.call_mark = model_.tokenizer().Find("<tool_call>");
  if (tools && choice.kind == Choice::kNone && rules.call_mark >= 0) rules.banned.push_back(rules.call_mark);

  if (choice.kind == Choice::kRequired || choice.kind == Choice::kNamed) {
    // Calls and nothing else: a form of the text beside them has nothing to say.
    auto calls = Calls(request);
    if (!calls.ok()) return FromStatus(calls.status(), "tools");
    rules.answer = *std::move(calls);
    return rules;
  }
  const Constraint& constraint = request.constraint;
  if (constraint.kind == Constraint::Kind::kNone) return rules;
  const bool any = constraint.kind == Constraint::Kind::kJsonObject;
  const std::string key = any ? "object" : "schema\n" + constraint.schema;
  auto form = Keep(key, [&](auto vocabulary) {
    return any ? grammar::Grammar::AnyObject(std::move(vocabulary))
               : grammar::Grammar::OfSchema(std::move(vocabulary), constraint.schema, "response_format");
  });
  if (!form.ok()) return FromStatus(form.status(), "response_format");
  rules.answer = *std::move(form);
  if (tools && choice.kind == Choice::kAuto && rules.call_mark >= 0) {
    auto calls = Calls(request);
    if (!calls.ok()) return FromStatus(calls.status(), "tools");
    rules.calls = *std::move(calls);
  }
  return rules;
}

}  // namespace glint::serve
