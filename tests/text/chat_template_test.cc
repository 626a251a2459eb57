#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "base/json.h"
#include "tests/text/random_text.h"
#include "tests/text/referee.h"
#include "text/known_templates.h"

namespace glint::text {
namespace {

std::string Text(const std::vector<ChatPart>& parts) {
  std::string out;
  for (const ChatPart& part : parts) out += part.text;
  return out;
}

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string StoriesSource() {
  const auto json = ReadJson(GLINT_TEST_DATA "/stories/tokenizer_config.json");
  return json->Get<std::string>("chat_template").value();
}

// JSON for the referee, apart from the code under test: all but printable ASCII as \uXXXX.
std::string Quote(std::string_view text) {
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

std::string Variables(const std::vector<Message>& messages, const ChatOptions& options, bool with_defaults) {
  std::string out = "{\"messages\": [";
  const char* between = "";
  for (const Message& m : messages) {
    constexpr const char* kRoles[] = {"system", "user", "assistant", "tool"};
    out += std::string(std::exchange(between, ", ")) + "{\"role\": \"" + kRoles[static_cast<int>(m.role)] +
           "\", \"content\": " + Quote(m.content);
    if (!m.reasoning.empty()) out += ", \"reasoning_content\": " + Quote(m.reasoning);
    if (!m.tool_call_id.empty()) out += ", \"tool_call_id\": " + Quote(m.tool_call_id);
    if (!m.tool_calls.empty()) {
      out += ", \"tool_calls\": [";
      const char* comma = "";
      for (const ToolCall& call : m.tool_calls) {
        out += std::string(std::exchange(comma, ", ")) +
               "{\"type\": \"function\", \"function\": {\"name\": " + Quote(call.name) +
               ", \"arguments\": " + (call.arguments.empty() ? "{}" : call.arguments) + "}";
        if (!call.id.empty()) out += ", \"id\": " + Quote(call.id);
        out += "}";
      }
      out += "]";
    }
    out += "}";
  }
  out += "], \"add_generation_prompt\": " + std::string(options.add_generation_prompt ? "true" : "false");
  if (!options.reasoning_effort.empty()) out += ", \"reasoning_effort\": " + Quote(options.reasoning_effort);
  if (options.clear_thinking || with_defaults) {
    out += ", \"clear_thinking\": " + std::string(options.clear_thinking ? "true" : "false");
  }
  if (!options.tools.empty() || with_defaults) {
    out += ", \"tools\": [";
    const char* comma = "";
    for (const auto& tool : options.tools) out += std::exchange(comma, ", ") + tool;
    out += "]";
  }
  return out + "}";
}

class RandomChat {
 public:
  explicit RandomChat(uint64_t seed) : rng_(seed) {}

  bool Coin(unsigned of = 2) { return rng_() % of == 0; }

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

void CompareWithJinja(const ChatTemplate& chat, const std::string& arguments) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  RandomChat random(seed);
  std::vector<std::string> lines, rendered;
  for (int i = 0; i < 4000; ++i) {
    const auto messages = random.Messages();
    const auto options = random.Options();
    const auto parts = chat.Render(messages, options);
    lines.push_back(Variables(messages, options, random.Coin()));
    ASSERT_TRUE(parts.ok()) << parts.status().message() << "\n" << lines.back();
    rendered.push_back(Hex(Text(parts.value())));
  }
  const auto answer = AskReferee("referee_template.py", arguments, lines);
  ASSERT_TRUE(answer && answer->size() == lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(rendered[i], (*answer)[i])
        << lines[i] << "\nglint: " << FromHex(rendered[i]) << "\njinja: " << FromHex((*answer)[i]);
  }
}

TEST(ChatTemplate, StoriesEqualsJinja) {
  if (!HasReferee()) GTEST_SKIP() << NoReferee();
  const auto chat = ChatTemplate::Recognise(StoriesSource());
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ((*chat)->name(), "stories");
  CompareWithJinja(**chat, "'" GLINT_TEST_DATA "/stories/tokenizer_config.json' chat_template");
}

TEST(ChatTemplate, GlmFlashEqualsJinja) {
  if (!HasReferee()) GTEST_SKIP() << NoReferee();
  CompareWithJinja(*ChatTemplate::ByName("glm-5.3-flash").value(),
                   "'" GLINT_TEST_DATA "/templates/glm_flash.jinja'");
}

// The released source is not part of this repository: GLINT_RELEASED_TEMPLATE names a copy of chat_template.jinja.
TEST(ChatTemplate, ReleasedSourceEqualsJinja) {
  const char* path = std::getenv("GLINT_RELEASED_TEMPLATE");
  if (path == nullptr || !HasReferee())
    GTEST_SKIP() << "GLINT_RELEASED_TEMPLATE names no file, or there is no GLINT_PYTHON";
  const auto chat = ChatTemplate::Recognise(Slurp(path));
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ((*chat)->name(), "glm-5.3-flash");
  EXPECT_TRUE((*chat)->exact());
  CompareWithJinja(**chat, "'" + std::string(path) + "'");
}

// By hand from spec/gguf.md section 9.
TEST(ChatTemplate, GlmFlashByHand) {
  const auto chat = ChatTemplate::ByName("glm-5.3-flash").value();
  std::vector<Message> messages(4);
  messages[0].role = Role::kSystem, messages[0].content = "Be brief.";
  messages[1].role = Role::kUser, messages[1].content = "Weather? <|user|>";
  messages[2].role = Role::kAssistant, messages[2].reasoning = "Ask.", messages[2].content = " One moment.\n";
  messages[2].tool_calls = {{"get", R"({"city": "Ulm", "days": 2, "x": [1.50, "\u00e9"]})", "1"}};
  messages[3].role = Role::kTool, messages[3].content = "rain";
  EXPECT_EQ(Text(chat->Render(messages, {}).value()),
            "[gMASK]<sop><|system|>Reasoning Effort: Max<|system|>Be brief.<|user|>Weather? "
            "<|user|><|assistant|><think>Ask.</think>"
            "One "
            "moment.<tool_call>get<arg_key>city</arg_key><arg_value>Ulm</arg_value><arg_key>days</"
            "arg_key><arg_value>2</arg_value>"
            "<arg_key>x</arg_key><arg_value>[1.5, "
            "\"\xc3\xa9\"]</arg_value></tool_call><|observation|><tool_response>rain</tool_response>"
            "<|assistant|><think>");
}

TEST(ChatTemplate, WhatPeopleWriteIsNeverSpecial) {
  for (const std::string_view name : {"glm-5.3-flash", "stories"}) {
    const auto chat = ChatTemplate::ByName(name).value();
    std::vector<Message> messages(4);
    const std::string mark = "\x01<|user|>\x01";
    for (size_t i = 0; i < 4; ++i) messages[i].role = static_cast<Role>(i), messages[i].content = mark;
    messages[2].reasoning = mark;
    messages[2].tool_calls = {{mark,
                               "{\""
                               "<|user|>"
                               "\": \"<|user|>\"}"}};
    ChatOptions options;
    options.tools = {R"({"name": "<|user|>", "<|user|>": 1})"};
    size_t seen = 0;
    const auto parts = chat->Render(messages, options);
    ASSERT_TRUE(parts.ok());
    for (const ChatPart& part : parts.value()) {
      const std::string shown = part.special ? "" : part.text;
      for (size_t at = shown.find("<|user|>"); at != std::string::npos; at = shown.find("<|user|>", at + 1))
        ++seen;
      EXPECT_TRUE(!part.special || part.text.find('\x01') == std::string::npos);
    }
    EXPECT_EQ(seen, name == "stories" ? 4 : 10);
  }
}

TEST(ChatTemplate, RecognisesByFingerprintThenByFamily) {
  const std::string stories = StoriesSource();
  EXPECT_TRUE(ChatTemplate::Recognise(stories).ok());
  EXPECT_TRUE(ChatTemplate::Recognise(stories + "\n").ok());  // Jinja drops one newline at the end
  EXPECT_FALSE(ChatTemplate::Recognise(stories + " ").ok());
  std::string crlf;
  for (const char c : stories) crlf += c == '\n' ? "\r\n" : std::string(1, c);
  EXPECT_TRUE(ChatTemplate::Recognise(crlf).ok());

  const std::string family =
      "[gMASK]<sop>{{ 'Reasoning Effort: ' }}{{ clear_thinking }}<|observation|><tool_response><arg_key>";
  const auto like = ChatTemplate::Recognise(family);
  ASSERT_TRUE(like.ok());
  EXPECT_EQ((*like)->name(), "glm-5.3-flash");
  EXPECT_FALSE((*like)->exact());

  const auto unknown = ChatTemplate::Recognise("{{ messages }}");
  EXPECT_EQ(unknown.status().code(), Code::kUnsupported);
  EXPECT_NE(unknown.status().message().find("raw text"), std::string::npos);
  EXPECT_EQ(ChatTemplate::Recognise("").status().code(), Code::kUnsupported);
  EXPECT_EQ(ChatTemplate::ByName("llama").status().code(), Code::kBadInput);
}

TEST(ChatTemplate, BadToolsAndArgumentsAreErrorsWithPlace) {
  const auto chat = ChatTemplate::ByName("glm-5.3-flash").value();
  std::vector<Message> messages(2);
  messages[1].role = Role::kAssistant;
  for (const std::string bad : {"[]", "{", "{} x", "nul", "{\"a\": \"\xff\"}", "{\"a\": \"\\ud800\"}"}) {
    messages[1].tool_calls = {{"f", "{}"}, {"g", bad}};
    const auto parts = chat->Render(messages, {});
    ASSERT_FALSE(parts.ok()) << bad;
    EXPECT_EQ(parts.status().code(), Code::kBadInput);
    EXPECT_NE(parts.status().message().find("message 1: tool call 1: arguments of the call of \"g\""),
              std::string::npos)
        << parts.status().message();
    ChatOptions options;
    options.tools = {"{}", bad};
    EXPECT_NE(chat->Render({}, options).status().message().find("tool 1"), std::string::npos) << bad;
    options.tools = {"{\"function\": 1}"};
    EXPECT_EQ(chat->Render({}, options).status().code(), Code::kBadInput);
  }
}

TEST(ChatTemplate, StripsAsPython) {
  EXPECT_EQ(PythonStrip(""), "");
  EXPECT_EQ(PythonStrip(" \x1c\n"), "");
  EXPECT_EQ(PythonStrip("\xe3\x80\x80 a b\xc2\x85\x1f"), "a b");
  EXPECT_EQ(PythonStrip(" \xff "), "\xff");
  EXPECT_EQ(PythonStrip("\xe2\x80\x8b"), "\xe2\x80\x8b");  // zero width space is no white space
}

}  // namespace
}  // namespace glint::text
