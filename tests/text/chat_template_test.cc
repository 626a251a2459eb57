#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "base/json.h"
#include "tests/text/random_chat.h"
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

std::string Variables(const std::vector<Message>& messages, const ChatOptions& options, bool with_defaults) {
  std::string out = "{\"messages\": [";
  const char* between = "";
  for (const Message& m : messages) {
    constexpr const char* kRoles[] = {"system", "user", "assistant", "tool"};
    out += std::string(std::exchange(between, ", ")) + "{\"role\": \"" + kRoles[static_cast<int>(m.role)] +
           "\", \"content\": " + Quote(m.content);
    if (!m.reasoning.empty() || m.reasoning_apart) out += ", \"reasoning_content\": " + Quote(m.reasoning);
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
