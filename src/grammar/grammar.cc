#include "grammar/grammar.h"

#include <fmt/core.h>

#include "base/hash.h"
#include "base/no_room.h"
#include "base/printable.h"

namespace glint::grammar {
namespace {

Status NoVocabulary() { return {Code::kBadInput, "a grammar needs a vocabulary"}; }

}  // namespace

Result<ToolMarks> GlmToolMarks(const Tokenizer& tokenizer) try {
  ToolMarks marks;
  const std::pair<const char*, int32_t*> all[] = {
      {"<tool_call>", &marks.call},   {"</tool_call>", &marks.end_call}, {"<arg_key>", &marks.key},
      {"</arg_key>", &marks.end_key}, {"<arg_value>", &marks.value},     {"</arg_value>", &marks.end_value}};
  for (const auto& [spelling, id] : all) {
    *id = tokenizer.Find(spelling);
    if (*id < 0)
      return Status(Code::kUnsupported,
                    fmt::format("the vocabulary has no token {} for tool calls", spelling));
  }
  marks.end_value_text = "</arg_value>";
  return marks;
} catch (...) {
  return NoRoomOrRethrow();
}

Result<std::shared_ptr<const Grammar>> Grammar::Make(std::shared_ptr<const Vocabulary> vocabulary,
                                                     Result<Automaton> automaton) {
  if (!automaton.ok()) return automaton.status();
  auto grammar = std::make_shared<Grammar>();
  grammar->vocabulary_ = std::move(vocabulary);
  grammar->automaton_ = *std::move(automaton);
  // Once for a vocabulary: strings are where most of a text is, and the dearest to find out about.
  if (grammar->vocabulary_->common().bytes() == 0) {
    for (uint32_t s = 0; s < CommonStates(); ++s) grammar->ReachOf({s, 0, kBottom});
  }
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

Result<std::shared_ptr<const Grammar>> Grammar::OfSchema(std::shared_ptr<const Vocabulary> vocabulary,
                                                         const Json& schema, std::string_view named,
                                                         const CompileLimits& limits) try {
  if (vocabulary == nullptr) return NoVocabulary();
  const auto read = ReadSchema(schema, named, limits);
  if (!read.ok()) return read.status();
  auto automaton = EmitJson(*read, limits);
  if (!automaton.ok())
    return Status(automaton.status().code(), fmt::format("{}: {}", named, automaton.status().message()));
  return Make(std::move(vocabulary), std::move(automaton));
} catch (...) {
  return NoRoomOrRethrow();
}

Result<std::shared_ptr<const Grammar>> Grammar::OfSchema(std::shared_ptr<const Vocabulary> vocabulary,
                                                         std::string_view schema, std::string_view named,
                                                         const CompileLimits& limits) try {
  if (schema.size() > limits.schema_bytes) {
    return Status(Code::kUnsupported, fmt::format("{}: a schema of {} bytes; at most {} are supported", named,
                                                  schema.size(), limits.schema_bytes));
  }
  const auto parsed = ParseJson(schema, named, {.depth = limits.depth});
  if (!parsed.ok()) return Status(Code::kBadInput, parsed.status().message());
  return OfSchema(std::move(vocabulary), *parsed, named, limits);
} catch (...) {
  return NoRoomOrRethrow();
}

Result<std::shared_ptr<const Grammar>> Grammar::AnyObject(std::shared_ptr<const Vocabulary> vocabulary) {
  return OfSchema(std::move(vocabulary), R"({"type":"object"})", "json_object");
}

Result<std::shared_ptr<const Grammar>> Grammar::ToolCalls(std::shared_ptr<const Vocabulary> vocabulary,
                                                          std::span<const ToolSchema> tools,
                                                          const ToolMarks& marks, uint32_t most_calls,
                                                          const CompileLimits& limits) try {
  if (vocabulary == nullptr) return NoVocabulary();
  if (tools.empty() || most_calls == 0)
    return Status(Code::kBadInput, "a tool call needs a tool, and one call at least");
  std::vector<Schema> schemas(tools.size());
  std::vector<ToolRules> rules;
  for (size_t i = 0; i < tools.size(); ++i) {
    Json none(Json::Object{});
    if (tools[i].parameters == nullptr) {
      none = Json(Json::Object{{"type", Json(std::string("object"))}, {"properties", Json(Json::Object{})}});
    }
    const Json& parameters = tools[i].parameters == nullptr ? none : *tools[i].parameters;
    auto read = ReadSchema(parameters, fmt::format("tool {}", Quoted(tools[i].name)), limits);
    if (!read.ok()) return read.status();
    schemas[i] = *std::move(read);
    rules.push_back({tools[i].name, &schemas[i]});
  }
  return Make(std::move(vocabulary), EmitToolCalls(rules, marks, most_calls, limits));
} catch (...) {
  return NoRoomOrRethrow();
}

std::string Grammar::Key(std::string_view schema) {
  Hasher hasher;
  hasher.AddText(schema);
  return Hex(hasher.Value());
}

std::shared_ptr<const Reach> Grammar::ReachOf(const Config& config) const {
  const uint64_t key = automaton_.CountKey(automaton_.state(config.state), config.count, kLongestToken);
  ReachCache& cache = config.state < CommonStates() ? vocabulary_->common() : cache_;
  if (auto known = cache.Find(config.state, key)) return known;
  auto made = ComputeReach(automaton_, *vocabulary_, config.state, config.count);
  cache.Insert(config.state, key, made);
  return made;
}

size_t Grammar::bytes() const { return automaton_.bytes() + cache_.bytes(); }

}  // namespace glint::grammar
