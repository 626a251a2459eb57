// Any bytes as a schema, and any choices under its masks. Input: a 16-bit length, choices of that length, the schema's text.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/printable.h"
#include "grammar/grammar.h"

namespace {

using namespace glint;

std::shared_ptr<const grammar::Vocabulary> SmallVocabulary() {
  static const auto vocabulary = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* t : {"{\"", "\":", "\": \"", "\",", "\"}", "},", "[[", "12", "ab", "\\u00", "\xc3\xa9",
                          "\xe4\xb8", "true", "\n  "})
      tokens.emplace_back(t);
    tokens.emplace_back();
    const auto stop = static_cast<int32_t>(tokens.size() - 1);
    return *grammar::Vocabulary::Create(std::move(tokens), {stop});
  }();
  return vocabulary;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t choices = std::min<size_t>(data[0] | data[1] << 8, size - 2);
  const uint8_t* const choice = data + 2;
  const std::string_view schema(reinterpret_cast<const char*>(data) + 2 + choices, size - 2 - choices);
  const auto vocabulary = SmallVocabulary();
  const auto compiled = grammar::Grammar::OfSchema(vocabulary, schema, "schema");
  if (!compiled.ok()) {
    if (compiled.status().message().empty() || !ValidUtf8(compiled.status().message())) std::abort();
    return 0;
  }
  grammar::Matcher matcher(*compiled);
  std::vector<uint64_t> mask(vocabulary->mask_words());
  std::string text;
  std::vector<size_t> lengths;  // of the text before each token
  for (size_t i = 0; i < std::min<size_t>(choices, 200) && !matcher.IsStopped(); ++i) {
    matcher.Mask(mask);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < vocabulary->size(); ++id) {
      if (mask[static_cast<size_t>(id) / 64] >> (id % 64) & 1) allowed.push_back(id);
    }
    if (allowed.empty()) std::abort();  // a dead end
    if (choice[i] == 255 && matcher.accepted() > 0) {
      matcher.Rollback(1);
      text.resize(lengths.back());
      lengths.pop_back();
      continue;
    }
    const int32_t id = allowed[choice[i] % allowed.size()];
    if (!matcher.Accept(id)) std::abort();
    lengths.push_back(text.size());
    text += vocabulary->Bytes(id);
  }
  if (!matcher.IsStopped()) return 0;
  // What is complete parses; but for keys that come twice, and what our reader has no room for.
  const auto parsed = ParseJson(text, "text");
  const std::string& why = parsed.status().message();
  const bool excused = why.find("comes twice") != why.npos || why.find("nested more than") != why.npos;
  if (!parsed.ok() && !excused) std::abort();
  return 0;
}
