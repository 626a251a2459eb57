// Helpers of this folder's tests: vocabularies, and texts through matchers.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "text/hf_tokenizer.h"
#include "text/tokenizer.h"

namespace glint::grammar {

// Of the stories model: 4,096 entries, its control tokens excluded.
inline std::shared_ptr<const Vocabulary> StoriesVocabulary() {
  static const auto vocabulary = [] {
    auto data = text::ReadHfTokenizer(GLINT_TEST_DATA "/stories");
    auto tokenizer = text::Tokenizer::Create(*std::move(data));
    return *Vocabulary::Create(Tokenizer(*tokenizer, nullptr));
  }();
  return vocabulary;
}

// All bytes, ids 0 to 255, tokens that cross the borders of JSON's parts, and one that ends a text.
inline std::shared_ptr<const Vocabulary> SmallVocabulary() {
  static const auto vocabulary = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* t : {"{\"",
                          "\":",
                          "\": ",
                          "\": \"",
                          "\",",
                          "\", \"",
                          "\"}",
                          "\"}]",
                          "},",
                          "}, {",
                          "}}",
                          "]}",
                          "[[",
                          "[]",
                          "{}",
                          "\n  ",
                          "\n    ",
                          "  ",
                          "    ",
                          ",\n",
                          "true",
                          "false",
                          "null",
                          "tr",
                          "12",
                          "123",
                          "00",
                          ".5",
                          "1,",
                          "0]",
                          "-1",
                          "e+",
                          "ab",
                          "abc",
                          "na",
                          "name",
                          "\"name",
                          "name\"",
                          "\\\"",
                          "\\\\",
                          "\\u00",
                          "\\n",
                          "\xc3\xa9",
                          "\xe4\xb8\xad",
                          "\xe4\xb8",
                          "\xad\xe5",
                          "\xf0\x9f\x98\x80",
                          "a\"",
                          "a\",",
                          "a\"]",
                          "a\": 1",
                          "{\"a\": 1}",
                          "[1, 2",
                          "\", ",
                          "}\n"})
      tokens.emplace_back(t);
    tokens.emplace_back("");
    const auto stop = static_cast<int32_t>(tokens.size() - 1);
    return *Vocabulary::Create(std::move(tokens), {stop});
  }();
  return vocabulary;
}

inline std::vector<uint64_t> MaskOf(Matcher& matcher, const Vocabulary& vocabulary) {
  std::vector<uint64_t> mask(vocabulary.mask_words(), ~uint64_t{0});
  matcher.Mask(mask);
  return mask;
}
inline bool Has(const std::vector<uint64_t>& mask, int32_t id) {
  return (mask[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0;
}

inline int32_t ByteToken(const Vocabulary& vocabulary, char byte) {
  static std::map<std::pair<const Vocabulary*, char>, int32_t> known;
  auto& id = known.try_emplace({&vocabulary, byte}, -1).first->second;
  for (int32_t i = 0; id < 0 && i < vocabulary.size(); ++i) {
    if (vocabulary.Bytes(i) == std::string_view(&byte, 1)) id = i;
  }
  return id;
}

// How many bytes of the text the grammar takes, one token each; nullopt if all of them and the text may end there.
inline std::optional<size_t> RefusedAt(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  for (size_t i = 0; i < text.size(); ++i) {
    if (!matcher.Accept(ByteToken(grammar->vocabulary(), text[i]))) return i;
  }
  if (!matcher.IsComplete()) return text.size();
  return std::nullopt;
}

// A walk under the mask: random tokens, and after `steps` of them those that close what is open, as far as that is seen. nullopt if it did
// not end in a bounded number of steps.
inline std::optional<std::string> RandomText(const std::shared_ptr<const Grammar>& grammar,
                                             std::mt19937_64& rng, size_t steps) {
  const Vocabulary& vocabulary = grammar->vocabulary();
  Matcher matcher(grammar);
  std::string text;
  for (size_t step = 0; step < steps + 3000; ++step) {
    const auto mask = MaskOf(matcher, vocabulary);
    std::vector<int32_t> allowed, closing;
    bool stop = false;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (!Has(mask, id)) continue;
      if (vocabulary.IsStop(id)) {
        stop = true;
        continue;
      }
      allowed.push_back(id);
      const std::string_view bytes = vocabulary.Bytes(id);
      if (bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "\"}" || bytes == "\",")
        closing.push_back(id);
    }
    EXPECT_TRUE(stop || !allowed.empty()) << "a dead end after " << text;
    if (stop && (allowed.empty() || step >= steps || rng() % 4 == 0)) return text;
    if (allowed.empty()) return std::nullopt;
    const bool close = !closing.empty() && (step >= steps || rng() % 5 == 0);
    const auto& from = close ? closing : allowed;
    const int32_t id = from[rng() % from.size()];
    const bool accepted = matcher.Accept(id);
    EXPECT_TRUE(accepted) << "allowed and then refused: " << vocabulary.Bytes(id) << " after " << text;
    if (!accepted) return std::nullopt;
    text += vocabulary.Bytes(id);
  }
  return std::nullopt;
}

inline std::shared_ptr<const Grammar> Compile(
    std::string_view schema, std::shared_ptr<const Vocabulary> vocabulary = SmallVocabulary()) {
  auto grammar = Grammar::OfSchema(std::move(vocabulary), schema, "schema");
  EXPECT_TRUE(grammar.ok()) << schema << "\n" << grammar.status().message();
  return grammar.ok() ? *grammar : nullptr;
}

}  // namespace glint::grammar
