// What a mask costs: the time to find which of the vocabulary's tokens may come next, along documents of a few schemas.
//
//   grammar_bench [FILE]
//
// FILE: a vocabulary, one token a line as hexadecimal bytes. Without it one of 154,880 entries is made, of the kinds and lengths that byte-level
// BPE gives: all bytes, runs of spaces, numbers to 999, words with and without a space, punctuation, and words of multi-byte characters.
// Tokens of a document are the longest that fit, as a sampler under the mask would often take them. "first" is the first time a state is met
// (what it reaches is found out and kept), "again" a second document of the same grammar. Microseconds of the thread's own time.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace glint::grammar {
namespace {

double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

constexpr size_t kEntries = 154'880;

std::string Utf8(uint32_t c) {
  if (c < 0x800) return {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
  return {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
          static_cast<char>(0x80 | (c & 63))};
}

std::vector<std::string> MadeVocabulary() {
  std::mt19937_64 rng(1);
  std::vector<std::string> tokens;
  std::set<std::string> seen;
  const auto add = [&](const std::string& t) {
    if (tokens.size() + 1 < kEntries && !t.empty() && seen.insert(t).second) tokens.push_back(t);
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (size_t n = 2; n <= 128; n += n < 32 ? 1 : 16)
    add(std::string(n, ' ')), add("\n" + std::string(n, ' ')), add(std::string(n, '\n'));
  for (int n = 0; n < 1000; ++n) {
    const std::string digits = std::to_string(n);
    add(digits), add(std::string(3 - std::min<size_t>(3, digits.size()), '0') + digits);
  }
  const std::string marks = "\"'`.,:;!?()[]{}<>/\\|=+-*&%$#@~_^";
  for (size_t i = 0; i < 9000; ++i) {
    std::string t = rng() % 3 == 0 ? " " : "";
    for (size_t n = 1 + rng() % 4; n > 0; --n) t += marks[rng() % (rng() % 2 ? marks.size() : 12)];
    if (rng() % 6 == 0) t += "\n";
    add(t);
  }
  // Words grow from each other, as merges make them: most prefixes of a token are tokens.
  std::vector<std::string> words = {"a", "e", "i", "o", "t", "s", "n", "r"};
  const std::string letters = "etaoinshrdlucmfwygpbvkxqjz";
  while (tokens.size() < 110'000) {
    std::string word = words[rng() % words.size()];
    for (size_t n = 1 + rng() % 2; n > 0; --n) word += letters[std::min(rng() % 26, rng() % 26)];
    if (word.size() > 14) continue;
    words.push_back(word);
    add(word), add(" " + word);
    if (rng() % 4 == 0) word[0] = static_cast<char>(word[0] - 32), add(word), add(" " + word);
    if (rng() % 40 == 0) add("_" + word), add("." + word), add("\"" + word), add("(" + word);
  }
  while (tokens.size() + 1 < kEntries) {
    std::string t = rng() % 8 == 0 ? " " : "";
    const bool cjk = rng() % 3 != 0;
    for (size_t n = 1 + rng() % 4; n > 0; --n)
      t += Utf8(cjk ? 0x4e00 + static_cast<uint32_t>(std::min(rng() % 8000, rng() % 8000))
                    : 0x400 + static_cast<uint32_t>(rng() % 256));
    add(t);
  }
  return tokens;
}

std::vector<std::string> ReadVocabulary(const char* path) {
  std::vector<std::string> tokens;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::string t;
    for (size_t i = 0; i + 1 < line.size(); i += 2)
      t += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    tokens.push_back(t);
  }
  return tokens;
}

struct Times {
  std::vector<double> mask, accept;
};
double At(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
}

struct Tokens {
  std::unordered_map<std::string_view, int32_t> id;
  size_t longest = 0;
};

Times Run(const std::shared_ptr<const Grammar>& grammar, const Tokens& tokens, std::string_view text) {
  Times times;
  Matcher matcher(grammar);
  std::vector<uint64_t> mask(grammar->vocabulary().mask_words());
  while (true) {
    const double start = Now();
    matcher.Mask(mask);
    times.mask.push_back(Now() - start);
    if (text.empty()) return times;
    int32_t chosen = -1;
    for (size_t n = std::min(tokens.longest, text.size()); n > 0 && chosen < 0; --n) {
      const auto found = tokens.id.find(text.substr(0, n));
      if (found != tokens.id.end() &&
          (mask[static_cast<size_t>(found->second) / 64] >> (found->second % 64) & 1))
        chosen = found->second;
    }
    if (chosen < 0) {
      std::printf("no token fits before %.40s\n", std::string(text).c_str());
      return times;
    }
    const double between = Now();
    matcher.Accept(chosen);
    times.accept.push_back(Now() - between);
    text.remove_prefix(grammar->vocabulary().Bytes(chosen).size());
  }
}

void Report(const char* name, const char* when, const Times& t) {
  double total = 0;
  for (const double x : t.mask) total += x;
  std::printf(
      "%-10s %-6s %5zu masks: mean %7.1f  median %7.1f  90%% %7.1f  99%% %8.1f  worst %8.1f us; accept: "
      "median %5.2f worst %5.1f us\n",
      name, when, t.mask.size(), total / static_cast<double>(t.mask.size()), At(t.mask, 0.5), At(t.mask, 0.9),
      At(t.mask, 0.99), At(t.mask, 1), At(t.accept, 0.5), At(t.accept, 1));
}

void Measure(const std::shared_ptr<const Vocabulary>& vocabulary, const Tokens& tokens, const char* name,
             const char* schema, const std::string& text) {
  const double start = Now();
  const auto grammar = Grammar::OfSchema(vocabulary, schema, name);
  const double compiled = Now() - start;
  if (!grammar.ok()) {
    std::printf("%s\n", grammar.status().message().c_str());
    return;
  }
  std::printf("%-10s compiled in %.0f us, %zu states, %zu bytes\n", name, compiled,
              (*grammar)->automaton().states(), (*grammar)->bytes());
  Report(name, "first", Run(*grammar, tokens, text));
  Report(name, "again", Run(*grammar, tokens, text));
}

int Main(int argc, char** argv) {
  auto list = argc > 1 ? ReadVocabulary(argv[1]) : MadeVocabulary();
  list.emplace_back("");
  const auto stop = static_cast<int32_t>(list.size() - 1);
  Tokens tokens;
  const double start = Now();
  const auto vocabulary = Vocabulary::Create(std::move(list), {stop});
  if (!vocabulary.ok()) {
    std::printf("%s\n", vocabulary.status().message().c_str());
    return 1;
  }
  std::printf("%d tokens, %zu trie nodes, made in %.0f ms\n", (*vocabulary)->size(),
              (*vocabulary)->trie().size(), (Now() - start) * 1e-3);
  for (int32_t id = 0; id < (*vocabulary)->size(); ++id) {
    const auto bytes = (*vocabulary)->Bytes(id);
    if (!bytes.empty()) tokens.id.emplace(bytes, id);
    tokens.longest = std::max(tokens.longest, bytes.size());
  }
  const std::string prose =
      "The quick brown fox jumps over the lazy dog; then it said, quite calmly: nothing here is lost. "
      "\xe4\xbd\xa0\xe5\xa5\xbd caf\xc3\xa9 ";
  std::string object =
      "{\n  \"title\": \"" + prose + prose +
      "\",\n  \"year\": 2024,\n  \"tags\": [\"a\", \"bright\", \"cold\"],\n  \"score\": 0.75,\n"
      "  \"author\": {\"name\": \"Ann Example\", \"mail\": null},\n  \"done\": true\n}";
  const char* const typed =
      R"({"type":"object","properties":{"title":{"type":"string"},"year":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}},)"
      R"("score":{"type":"number"},"author":{"type":"object","properties":{"name":{"type":"string"},"mail":{"type":["string","null"]}},)"
      R"("required":["name","mail"],"additionalProperties":false},"done":{"type":"boolean"}},"required":["title","year","tags","score","author","done"],"additionalProperties":false})";
  Measure(*vocabulary, tokens, "any", R"({"type":"object"})", object);
  Measure(*vocabulary, tokens, "typed", typed, object);
  Measure(
      *vocabulary, tokens, "limits",
      R"({"type":"object","properties":{"title":{"type":"string","minLength":5,"maxLength":250},"year":{"type":"integer","minimum":1900,"maximum":2100},)"
      R"("tags":{"type":"array","items":{"type":"string","pattern":"^[a-z]+( [a-z]+)*$"},"minItems":1,"maxItems":8},"score":{"type":"number","minimum":0,"maximum":1},)"
      R"("author":{"type":"object","additionalProperties":{"type":["string","null"]}},"done":{"enum":[true,false]}},"required":["title","year"]})",
      object);
  std::string optional = "{\"type\":\"object\",\"properties\":{", document = "{";
  for (int i = 0; i < 200; ++i) {
    const std::string name = "\"option_" + std::to_string(i) + "\"";
    optional += (i ? "," : "") + name + ":{\"type\":\"integer\"}";
    if (i % 20 == 7) document += (document.size() > 1 ? ", " : "") + name + ": " + std::to_string(i);
  }
  Measure(*vocabulary, tokens, "options", (optional + "},\"additionalProperties\":false}").c_str(),
          document + "}");
  std::string either = "{\"anyOf\":[";
  for (int i = 0; i < 60; ++i) {
    either += std::string(i ? "," : "") + R"({"type":"object","properties":{"kind":{"const":"k)" +
              std::to_string(i) +
              R"("},"text":{"type":"string"}},"required":["kind","text"],"additionalProperties":false})";
  }
  Measure(*vocabulary, tokens, "either", (either + "]}").c_str(),
          "{\"kind\": \"k42\", \"text\": \"" + prose + "\"}");
  return 0;
}

}  // namespace
}  // namespace glint::grammar

int main(int argc, char** argv) { return glint::grammar::Main(argc, argv); }
