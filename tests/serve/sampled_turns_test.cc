// Turns as they were sampled: a prompt that a client sends again has the very tokens, and only then.
#include "serve/sampled_turns.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/base/temp_dir.h"
#include "tests/engine/reference.h"
#include "tests/serve/thinking_stories.h"

namespace glint::serve {
namespace {

using test::TempDir;
using Ids = std::vector<int32_t>;

const Tokenizer& Thinking() {
  static const Model model = [] {
    const std::string path = test::ScratchFolder() + "/turns.gguf";
    test::WriteThinkingStories(path);
    return test::MustOpen(path, {.device = "cpu", .threads = 1});
  }();
  return model.tokenizer();
}

std::unique_ptr<SampledTurns> Open(const SampledTurnsOptions& options = {}) {
  auto turns = SampledTurns::Open(options);
  EXPECT_TRUE(turns.ok()) << turns.status().message();
  return std::move(*turns);
}

// As no tokenizer would cut it: letter by letter. Marks are one token.
Ids Letters(const std::string& text, bool marks = false) {
  Ids ids;
  for (size_t at = 0; at < text.size();) {
    const size_t end = marks && text[at] == '<' ? text.find('>', at) + 1 : at + 1;
    const auto more = Thinking().Encode(text.substr(at, end - at), marks);
    ids.insert(ids.end(), more.begin(), more.end());
    at = end;
  }
  return ids;
}

Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Ids Encode(std::span<const Message> messages, SampledTurns* turns, const ChatOptions& chat = {}) {
  auto ids = EncodeWithTurns(Thinking(), messages, chat, turns);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : Ids();
}

ChatOptions Chat(const std::string& effort, bool clear = false, std::vector<std::string> tools = {}) {
  ChatOptions chat;
  chat.reasoning_effort = effort, chat.clear_thinking = clear, chat.tools = std::move(tools);
  return chat;
}

Ids Marks(const std::string& text) { return Thinking().Encode(text, true); }

const std::string kTool = R"({"type":"function","function":{"name":"look","parameters":{"type":"object"}}})";

TEST(SampledTurns, ATurnThatComesBackIsTheVeryTokens) {
  auto turns = Open();
  std::vector<Message> messages = {{Role::kSystem, "Be kind."}, {Role::kUser, "Hello there"}};
  const Ids prompt = Encode(messages, turns.get());
  EXPECT_EQ(prompt, *Thinking().EncodeChat(messages));
  const Ids sampled = Letters("A greeting.</think>Good morning, friend", true);
  turns->Remember(prompt, {Role::kAssistant, "Good morning, friend", "A greeting."}, sampled);
  const Message next{Role::kUser, "And now?"};
  const Ids want =
      prompt + sampled + Marks("<|user|>") + Thinking().Encode("And now?") + Marks("<|assistant|><think>");
  // With its reasoning, without, and with white space around it.
  for (const Message& said : {Message{Role::kAssistant, "Good morning, friend", "A greeting."},
                              Message{Role::kAssistant, "Good morning, friend"},
                              Message{Role::kAssistant, "  Good morning, friend\n", " A greeting. "}}) {
    const std::vector<Message> all = {messages[0], messages[1], said, next};
    EXPECT_EQ(Encode(all, turns.get()), want);
    EXPECT_NE(*Thinking().EncodeChat(all), want);
  }
  EXPECT_EQ(turns->stats().replayed, 3u);
  // Two turns on, the first has to be replayed for the second to be known.
  const Ids second = Letters("</think>Later", true);
  turns->Remember(want, {Role::kAssistant, "Later"}, second);
  const std::vector<Message> longer = {messages[0],
                                       messages[1],
                                       {Role::kAssistant, "Good morning, friend"},
                                       next,
                                       {Role::kAssistant, "Later"},
                                       {Role::kUser, "Bye"}};
  EXPECT_EQ(Encode(longer, turns.get()),
            want + second + Marks("<|user|>") + Thinking().Encode("Bye") + Marks("<|assistant|><think>"));
}

TEST(SampledTurns, AnythingElseIsWhatItsTextSays) {
  auto turns = Open();
  const std::vector<Message> messages = {{Role::kUser, "Hello"}};
  const Ids prompt = Encode(messages, turns.get());
  turns->Remember(prompt, {Role::kAssistant, "Yes.", "A secret of this conversation."},
                  Letters("A secret of this conversation.</think>Yes.", true));
  const auto check = [&](const std::vector<Message>& all, const ChatOptions& chat = {}) {
    EXPECT_EQ(Encode(all, turns.get(), chat), *Thinking().EncodeChat(all, chat));
  };
  const Message next{Role::kUser, "Go on"};
  check({{Role::kUser, "Hello"}, {Role::kAssistant, "Yes"}, next});                       // other words
  check({{Role::kUser, "Hello"}, {Role::kAssistant, "Yes.", "Another thought."}, next});  // other reasoning
  check({{Role::kUser, "Hello!"}, {Role::kAssistant, "Yes."}, next});  // another conversation
  check({{Role::kSystem, "x"}, {Role::kUser, "Hello"}, {Role::kAssistant, "Yes."}, next});
  check({{Role::kUser, "Hello"},
         {Role::kAssistant, "Yes.", "", {{"look", "{}"}}},
         next});  // a call that was not made
  check({{Role::kUser, "Hello"}, {Role::kAssistant, "Yes."}, next}, Chat("", true));
  check({{Role::kUser, "Hello"}, {Role::kAssistant, "Yes."}, next}, Chat("low"));
  EXPECT_EQ(turns->stats().replayed, 0u);
  check({});
  check({{Role::kAssistant, "Yes."}});
}

TEST(SampledTurns, CallsAreTheSameWhateverTheirJsonLooksLike) {
  auto turns = Open();
  const ChatOptions chat = Chat("", false, {kTool});
  const std::vector<Message> messages = {{Role::kUser, "Where?"}};
  const Ids prompt = Encode(messages, turns.get(), chat);
  const Ids sampled = Letters(
      "</think>I "
      "look.<tool_call>look<arg_key>b</arg_key><arg_value>x</arg_value><arg_key>a</arg_key><arg_value>1</"
      "arg_value></tool_call>",
      true);
  turns->Remember(prompt, {Role::kAssistant, "I look.", "", {{"look", R"({"b":"x","a":1})"}}}, sampled);
  const auto all = [&](const std::string& arguments, const std::string& name = "look") {
    return std::vector<Message>{messages[0],
                                {Role::kAssistant, "I look.", "", {{name, arguments, "call_7"}}},
                                {Role::kTool, "There.", "", {}, "call_7"}};
  };
  const Ids want = prompt + sampled + Marks("<|observation|><tool_response>") + Thinking().Encode("There.") +
                   Marks("</tool_response><|assistant|><think>");
  for (const char* same : {R"({"b":"x","a":1})", R"({ "a" : 1, "b" : "\u0078" })"})
    EXPECT_EQ(Encode(all(same), turns.get(), chat), want);
  for (const char* other :
       {R"({"b":"x","a":"1"})", R"({"b":"x","a":2})", R"({"b":"x"})", R"({"b":"x","a":1,"c":null})"})
    EXPECT_EQ(Encode(all(other), turns.get(), chat), *Thinking().EncodeChat(all(other), chat));
  EXPECT_NE(Encode(all(R"({"b":"x","a":1})", "see"), turns.get(), chat), want);
}

// A prompt that asked for no reasoning ends with </think>; its answer is found again though the rendered text has it elsewhere.
TEST(SampledTurns, AnswersWithoutReasoningAreFound) {
  auto turns = Open();
  const std::vector<Message> messages = {{Role::kUser, "Hello"}};
  const Ids prompt = Encode(messages, turns.get()) + Marks("</think>");
  turns->Remember(prompt, {Role::kAssistant, "Yes."}, Letters("Yes."));
  const std::vector<Message> all = {messages[0], {Role::kAssistant, "Yes."}, {Role::kUser, "Go on"}};
  EXPECT_EQ(Encode(all, turns.get()), prompt + Letters("Yes.") + Marks("<|user|>") +
                                          Thinking().Encode("Go on") + Marks("<|assistant|><think>"));
}

TEST(SampledTurns, AreFoundAfterARestart) {
  TempDir dir;
  const SampledTurnsOptions options{.path = dir.Path("turns")};
  {
    auto turns = Open(options);
    for (int32_t i = 0; i < 20; ++i)
      turns->Remember(Ids{1, i}, {Role::kAssistant, "said " + std::to_string(i)}, Ids{i, i + 1, i + 2});
  }
  const std::string good = dir.Read("turns");
  const auto count = [&] {
    auto turns = Open(options);
    int found = 0;
    for (int32_t i = 0; i < 20; ++i) {
      const Ids ids = turns->Find(Ids{1, i}, {Role::kAssistant, "said " + std::to_string(i)});
      if (ids.empty()) continue;
      EXPECT_EQ(ids, (Ids{i, i + 1, i + 2}));
      ++found;
    }
    // What is remembered now is there next time, whatever was damaged.
    turns->Remember(Ids{2}, {Role::kAssistant, "more"}, Ids{9});
    turns.reset();
    EXPECT_EQ(Open(options)->Find(Ids{2}, {Role::kAssistant, "more"}), Ids{9});
    return found;
  };
  EXPECT_EQ(count(), 20);
  std::mt19937_64 rng(std::random_device{}());
  for (int round = 0; round < 60; ++round) {
    std::string broken = good;
    if (round % 2 == 0) {
      broken.resize(rng() % good.size());
    } else {
      broken[rng() % good.size()] ^= static_cast<char>(1 << rng() % 8);
    }
    dir.Write("turns", broken);
    EXPECT_LT(count(), 20);
  }
  dir.Write("turns", "a file of somebody else's");
  EXPECT_EQ(count(), 0);
}

TEST(SampledTurns, ForgetTheOldestFirstAndTheFileStaysSmall) {
  TempDir dir;
  const SampledTurnsOptions options{.bytes = 20000, .path = dir.Path("turns")};
  auto turns = Open(options);
  for (int32_t i = 0; i < 3000; ++i) {
    turns->Remember(Ids{1, i}, {Role::kAssistant, "x"}, Ids(100, i));
    EXPECT_LE(turns->stats().bytes, options.bytes);
    EXPECT_FALSE(turns->Find(Ids{1, 0}, {Role::kAssistant, "x"}).empty()) << i;  // what is asked for stays
  }
  EXPECT_TRUE(turns->Find(Ids{1, 1}, {Role::kAssistant, "x"}).empty());
  EXPECT_FALSE(turns->Find(Ids{1, 2999}, {Role::kAssistant, "x"}).empty());
  turns.reset();
  EXPECT_LT(dir.Read("turns").size(), 3 * options.bytes + (2u << 20));
  EXPECT_FALSE(Open(options)->Find(Ids{1, 2999}, {Role::kAssistant, "x"}).empty());
}

TEST(SampledTurns, TwoServersDoNotWriteOneFile) {
  TempDir dir;
  std::vector<std::string> lines;
  auto first = Open({.path = dir.Path("turns")});
  auto second =
      Open({.path = dir.Path("turns"), .log = [&](const std::string& line) { lines.push_back(line); }});
  ASSERT_EQ(lines.size(), 1u);
  second->Remember(Ids{1}, {Role::kAssistant, "x"}, Ids{5});
  EXPECT_EQ(second->Find(Ids{1}, {Role::kAssistant, "x"}), Ids{5});
  first->Remember(Ids{1}, {Role::kAssistant, "x"}, Ids{6});
  first.reset(), second.reset();
  EXPECT_EQ(Open({.path = dir.Path("turns")})->Find(Ids{1}, {Role::kAssistant, "x"}), Ids{6});
  EXPECT_EQ(Open({.path = dir.Path("none/turns")})->stats().turns, 0u);
}

}  // namespace
}  // namespace glint::serve
