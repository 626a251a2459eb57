// Random conversations, tools and JSON that meet what a template treats in its own way.
#pragma once
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "glint/tokenizer.h"
#include "tests/text/random_text.h"
#include "text/unicode.h"

namespace glint::text {

// JSON for the referee, apart from the code under test: all but printable ASCII as \uXXXX.
inline std::string Quote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const unicode::Unit unit = unicode::Read(text);
    text.remove_prefix(unit.length);
    char32_t c = unit.code_point;
    const auto escape = [&](char32_t code) {
      char buffer[16];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(code & 0xffff));
      out += buffer;
    };
    if (c >= 0x10000) {
      c -= 0x10000;
      escape(0xd800 + (c >> 10)), escape(0xdc00 + (c & 0x3ff));
    } else if (c < 0x20 || c > 0x7e || c == '"' || c == '\\') {
      escape(c);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + '"';
}

class RandomChat {
 public:
  explicit RandomChat(uint64_t seed) : rng_(seed) {}

  bool Coin(unsigned of = 2) { return rng_() % of == 0; }
  std::mt19937_64& rng() { return rng_; }

  std::string Words() {
    static constexpr std::string_view kOdd[] = {"",
                                                "",
                                                " ",
                                                "\n\n",
                                                "\xc2\xa0 x\xe3\x80\x80",
                                                "\x1c\x1f y\x1d",
                                                "<|user|>",
                                                "<think>",
                                                "</think>",
                                                "a<think>b</think>c</think> d ",
                                                "<tool_call>x",
                                                "[gMASK]",
                                                "{{ m }}",
                                                "{% if %}",
                                                "\\n\"'&<>",
                                                std::string_view("\0z", 2)};
    std::string out;
    for (size_t n = rng_() % 3; n > 0; --n) {
      out += Coin() ? std::string(kOdd[rng_() % std::size(kOdd)]) : RandomText(rng_, 6);
    }
    return out;
  }

  std::string Space() {
    static constexpr std::string_view kSpaces[] = {"", "", " ", "\\n", "  "};
    return std::string(kSpaces[rng_() % 3]);
  }

  std::string Value(int depth) {
    static constexpr std::string_view kPlain[] = {
        "null",
        "true",
        "false",
        "0",
        "-0",
        "7",
        "-12",
        "1234567890123456789012345",
        "0.5",
        "1.0",
        "-0.0",
        "1e5",
        "1E16",
        "1e15",
        "123456789012345680.0",
        "1e-4",
        "0.00001",
        "1.5e300",
        "5e-324",
        "0.1",
        "2.5E+3",
        "9007199254740993",
        "3.0e-7",
        "100.25",
        "\"\"",
        "[]",
        "{}",
        "[ ]",
        "{ }",
        "\"\\u00e9\\u4e2d\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\""};
    const uint64_t pick = rng_() % (depth > 3 ? 4 : 6);
    if (pick < 3) return std::string(kPlain[rng_() % std::size(kPlain)]);
    if (pick == 3) return Quote(Words());
    if (pick == 4) {
      std::string out = "[";
      for (size_t n = rng_() % 4; n > 0; --n)
        out += Space() + Value(depth + 1) + Space() + (n > 1 ? "," : "");
      return out + "]";
    }
    return Object(depth + 1);
  }

  std::string Object(int depth) {
    std::string out = "{" + Space();
    const size_t n = rng_() % 4;
    for (size_t i = 0; i < n; ++i) {
      const std::string key = (Coin(3) ? Words() : "key") + std::to_string(i);
      out += Quote(key) + Space() + ":" + Space() + Value(depth) + Space() + (i + 1 < n ? "," + Space() : "");
    }
    return out + "}";
  }

  std::string Tool() {
    std::string function = "{\"name\": " + Quote("f" + Words()) + ", \"description\": " + Quote(Words());
    if (Coin()) function += ", \"strict\": true";
    if (Coin(4)) {
      static constexpr std::string_view kDefer[] = {"true", "false", "null", "0",   "1",  "0.0",
                                                    "\"\"", "\"x\"", "[]",   "[0]", "{ }"};
      function += ", \"defer_loading\": " + std::string(kDefer[rng_() % std::size(kDefer)]);
    }
    function += ", \"parameters\": " + Object(0) + "}";
    return Coin(4) ? function : "{\"type\": \"function\", \"function\": " + function + "}";
  }

  std::vector<Message> Messages() {
    std::vector<Message> out(rng_() % 8);
    for (Message& m : out) {
      m.role = static_cast<Role>(rng_() % 4);
      m.content = Words();
      if (m.role == Role::kAssistant) {
        if (Coin()) m.reasoning = Words();
        m.reasoning_apart = Coin(4);
        if (Coin()) m.tool_calls.resize(rng_() % 4);
        for (ToolCall& call : m.tool_calls) {
          call.name = "f" + Words();
          if (!Coin(4)) call.arguments = Object(0);
          call.id = Id();
        }
      }
      if (m.role == Role::kTool) m.tool_call_id = Id();
    }
    if (Coin() && out.size() >= 4) {  // a call of several tools and its answers
      out[0].role = Role::kAssistant, out[0].tool_calls.assign(3, {"f", "{}", "a"});
      out[0].tool_calls[1].id = "b", out[0].tool_calls[2].id = Coin(4) ? Id() : "c";
      for (size_t i = 1; i < 3 + rng_() % 2; ++i) {
        out[i] = {};
        out[i].role = Role::kTool, out[i].content = "r" + std::to_string(i), out[i].tool_call_id = Id();
      }
    }
    return out;
  }

  ChatOptions Options() {
    ChatOptions options;
    static constexpr std::string_view kEfforts[] = {"", "low", "high", "max", "none", "Low", "medium"};
    options.reasoning_effort = kEfforts[rng_() % std::size(kEfforts)];
    options.add_generation_prompt = Coin();
    options.clear_thinking = Coin();
    if (Coin()) {
      for (size_t n = rng_() % 4; n > 0; --n) options.tools.push_back(Tool());
    }
    return options;
  }

 private:
  std::string Id() {
    static constexpr std::string_view kIds[] = {"", "a", "b", "c", "A"};
    return std::string(kIds[rng_() % std::size(kIds)]);
  }
  std::mt19937_64 rng_;
};

}  // namespace glint::text
