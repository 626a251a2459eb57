#include "glint/answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/json.h"
#include "base/printable.h"
#include "tests/text/random_chat.h"
#include "text/answer_machine.h"
#include "text/chat_template.h"
#include "text/hf_tokenizer.h"
#include "text/known_templates.h"
#include "text/python_json.h"
#include "text/tokenizer.h"

namespace glint {
namespace {

using Kind = AnswerEvent::Kind;
using Events = std::vector<AnswerEvent>;

const Tokenizer& Vocabulary() {
  static const Tokenizer tokenizer = [] {
    auto data = text::ReadHfTokenizer(GLINT_TEST_DATA "/stories").value();
    data.stop_ids.clear();
    for (size_t id = 0; id < data.tokens.size(); ++id) {
      for (const std::string_view stop : {"<|endoftext|>", "<|user|>", "<|observation|>"}) {
        if (data.tokens[id] == stop) data.stop_ids.push_back(static_cast<int32_t>(id));
      }
    }
    return Tokenizer(text::Tokenizer::Create(std::move(data)).value(),
                     text::ChatTemplate::ByName("glm-5.3-flash").value());
  }();
  return tokenizer;
}

// The marks and control tokens in `source` are real ones, unless a backslash stands before: then they are spelled in ordinary tokens.
std::vector<int32_t> Ids(std::string_view source) {
  std::vector<int32_t> ids;
  const auto add = [&](std::string_view text, bool special) {
    for (const int32_t id : Vocabulary().Encode(text, special)) ids.push_back(id);
  };
  while (!source.empty()) {
    const size_t escape = std::min(source.find("\\<"), source.size());
    add(source.substr(0, escape), true);
    source.remove_prefix(escape);
    if (source.empty()) break;
    const size_t end = source.find('>') + 1;
    add(source.substr(1, end - 1), false);
    source.remove_prefix(end);
  }
  return ids;
}

// The same bytes in other tokens: some ordinary ones become a token a byte.
std::vector<int32_t> Respelled(const std::vector<int32_t>& ids, std::mt19937_64& rng) {
  std::vector<int32_t> out;
  const unsigned often = rng() % 4;
  for (const int32_t id : ids) {
    const std::string bytes = Vocabulary().Decode(std::span(&id, 1)).value();
    bool mark = Vocabulary().IsSpecial(id);
    for (const auto spelling : text::kMarks) mark = mark || Vocabulary().Find(spelling) == id;
    if (mark || rng() % 4 >= often) {
      out.push_back(id);
      continue;
    }
    for (const char c : bytes) {
      const auto byte = Vocabulary().Encode(std::string(1, c));
      out.insert(out.end(), byte.begin(), byte.end());
    }
  }
  return out;
}

// Neighbours of one kind become one: what does not depend on the cut.
Events Joined(const Events& events) {
  Events out;
  for (const AnswerEvent& event : events) {
    const bool text =
        event.kind == Kind::kReasoning || event.kind == Kind::kText || event.kind == Kind::kCallArguments;
    if (text && event.text.empty()) continue;
    if (text && !out.empty() && out.back().kind == event.kind && out.back().call == event.call) {
      out.back().text += event.text;
    } else {
      out.push_back(event);
    }
  }
  return out;
}

// R(reasoning) T(text) C0(name){arguments}; or, if broken, C0(name){argum! and last what ended it.
std::string Shown(const Events& events) {
  std::string out;
  for (const AnswerEvent& event : Joined(events)) {
    switch (event.kind) {
      case Kind::kReasoning:
        out += "R(" + event.text + ") ";
        break;
      case Kind::kText:
        out += "T(" + event.text + ") ";
        break;
      case Kind::kCallBegin:
        out += "C" + std::to_string(event.call) + "(" + event.text + ")";
        break;
      case Kind::kCallArguments:
        out += event.text;
        break;
      case Kind::kCallEnd:
        out += event.broken ? "! " : "; ";
        break;
      case Kind::kEnd:
        out += event.end == AnswerEnd::kTurn ? "turn" : event.end == AnswerEnd::kCut ? "cut" : "stop";
        break;
    }
  }
  return out;
}

void Check(const Events& events) {
  bool call = false;
  size_t calls = 0;
  std::string arguments;
  for (const AnswerEvent& event : events) {
    EXPECT_TRUE(ValidUtf8(event.text)) << Printable(event.text);
    EXPECT_EQ(call, event.kind == Kind::kCallArguments || event.kind == Kind::kCallEnd);
    if (event.kind == Kind::kCallBegin) call = true, arguments.clear();
    if (event.kind == Kind::kCallArguments) arguments += event.text;
    EXPECT_TRUE(!call || event.call == calls);
    if (event.kind != Kind::kCallEnd) continue;
    call = false, ++calls;
    EXPECT_TRUE(event.broken || text::ObjectMembers(arguments).ok()) << arguments;
  }
  EXPECT_FALSE(call);
}

// Parses up to the end, and then as far as `ids` go.
Events Parse(const AnswerOptions& options, const std::vector<int32_t>& ids) {
  auto parser = AnswerParser::Create(Vocabulary(), options);
  EXPECT_TRUE(parser.ok()) << parser.status().message();
  Events events;
  for (const int32_t id : ids) EXPECT_TRUE(parser->Push(id, events).ok());
  EXPECT_TRUE(parser->Finish(events).ok());
  EXPECT_TRUE(parser->Finish(events).ok());
  EXPECT_TRUE(parser->ended());
  Check(events);
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const auto& e) { return e.kind == Kind::kEnd; }),
            1);
  return events;
}

const std::vector<std::string>& Tools() {
  static const std::vector<std::string> tools = {
      R"({"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties":)"
      R"({"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},)"
      R"("where": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "box": {"type": "array"}}}}})",
      R"({"name": "now"})",
      R"({"name": "odd", "parameters": {"properties": {" a": {"type": "string"}, "a": {"type": "integer"}}}})",
  };
  return tools;
}

struct Case {
  const char* name;
  std::string source, want;
  bool in_reasoning = false;
  std::string streamed = {};  // with stream_arguments, where that differs
};

void CheckCases(const std::vector<Case>& cases, AnswerOptions options) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    options.in_reasoning = c.in_reasoning;
    const std::vector<int32_t> ids = Ids(c.source);
    for (const bool stream : {false, true}) {
      options.stream_arguments = stream;
      const std::string& want = stream && !c.streamed.empty() ? c.streamed : c.want;
      EXPECT_EQ(Shown(Parse(options, ids)), want) << (stream ? "streamed" : "whole");
      for (int repeat = 0; repeat < 20; ++repeat)
        EXPECT_EQ(Shown(Parse(options, Respelled(ids, rng))), want) << (stream ? "streamed" : "whole");
    }
  }
}

TEST(AnswerParser, ReasoningIsWhatWasRendered) {
  CheckCases(
      {
          {"opened by the prompt", "Hm.</think>Yes.<|user|>", "R(Hm.) T(Yes.) turn", true},
          {"not opened", "Yes.<|user|>", "T(Yes.) turn"},
          {"opened by the model", "<think>Hm.</think>Yes.<|user|>", "R(Hm.) T(Yes.) turn"},
          {"opened again", "a</think>\n<think>b</think>c<|user|>", "R(a) T(\n) R(b) T(c) turn", true},
          {"a word of the answer", "a</think>b<think>c</think>d<|user|>", "R(a) T(b<think>c</think>d) turn",
           true},
          {"empty", "</think>Yes.<|user|>", "T(Yes.) turn", true},
          {"no answer", "Hm.</think><|user|>", "R(Hm.) turn", true},
          {"ends inside", "Hm.<|user|>", "R(Hm.) turn", true},
          {"cut inside", "Hm.", "R(Hm.) cut", true},
          {"nothing", "", "cut", true},
          {"only an end", "<|user|>", "turn"},
          {"white space is kept", "\n Hm. \n</think>\n\nYes. \n<|user|>", "R(\n Hm. \n) T(\n\nYes. \n) turn",
           true},
          {"spelled", "a \\</think> b</think>c \\<think> d \\</think><|user|>",
           "R(a </think> b) T(c <think> d </think>) turn", true},
          {"a mark that means nothing", "a<think>b</think>c</think>d<|user|>",
           "R(a<think>b) T(c</think>d) turn", true},
          {"other control tokens", "a[gMASK]b</think><sop>c<|system|><|user|>", "R(ab) T(c) turn", true},
          {"spelled control token", "a \\<|user|> b<|user|>", "T(a <|user|> b) turn"},
          {"nothing after the end", "a<|user|>b</think>", "T(a) turn"},
          {"calls without tools", "<tool_call>now</tool_call><|user|>", "T(<tool_call>now</tool_call>) turn"},
      },
      {});
}

TEST(AnswerParser, Calls) {
  AnswerOptions options;
  options.tools = Tools();
  CheckCases(
      {
          {"without arguments", "<tool_call>now</tool_call><|observation|>", "C0(now){}; turn"},
          {"typed",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value>007</arg_value><arg_key>days</arg_key>"
           "<arg_value>007</arg_value><arg_key>exact</arg_key><arg_value>true</arg_value><arg_key>where</"
           "arg_key>"
           "<arg_value>null</arg_value><arg_key>box</arg_key><arg_value>[1, "
           "\"a\"]</arg_value></tool_call><|observation|>",
           R"(C0(get_weather){"city":"007","days":"007","exact":true,"where":null,"box":[1, "a"]}; turn)"},
          {"a string with everything",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value> \"a\\b\"\n\xc3\xa9\\</arg_value> "
           "</arg_value></tool_call><|observation|>",
           "C0(get_weather){\"city\":\" \\\"a\\\\b\\\"\\n\xc3\xa9</arg_value> \"}; turn"},
          {"an empty string",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value></arg_value></tool_call><|user|>",
           R"(C0(get_weather){"city":""}; turn)"},
          {"one that is not declared",
           "<tool_call>get_weather<arg_key>x</arg_key><arg_value>5</arg_value></tool_call><|user|>",
           R"(C0(get_weather){"x":5}; turn)"},
          {"parallel, after reasoning and text",
           "Hm.</think>Let me "
           "see.\n\n<tool_call>now</tool_call>\n<tool_call>get_weather<arg_key>days</arg_key>"
           "<arg_value>2</arg_value></tool_call>\n<|observation|>",
           R"(R(Hm.) T(Let me see.) C0(now){}; C1(get_weather){"days":2}; turn)", true},
          {"text behind", "<tool_call>now</tool_call>\n Well.\n<|user|>", "C0(now){}; T(\n Well.\n) turn"},
          {"white space alone", " \n<|user|>", "T( \n) turn"},
          {"white space inside",
           "<tool_call>\nget_weather\n<arg_key>\ncity "
           "</arg_key>\n<arg_value>Ulm</arg_value>\n<arg_key>days</arg_key>"
           "\n<arg_value> 2 </arg_value>\n</tool_call><|user|>",
           R"(C0(get_weather){"city":"Ulm","days":2}; turn)"},
          {"white space in a declared name",
           "<tool_call>odd<arg_key> a</arg_key><arg_value>5</arg_value></tool_call><|user|>",
           R"(C0(odd){" a":"5"}; turn)"},
          {"an unknown tool",
           "<tool_call>no_such<arg_key>a</arg_key><arg_value>007</arg_value></tool_call><|user|>",
           R"(C0(no_such){"a":"007"}; turn)"},
          {"reasoning marks in a value",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a<think>b</think></think>c</arg_value></"
           "tool_call><|user|>",
           R"(C0(get_weather){"city":"a<think>b</think></think>c"}; turn)"},
          {"spelled in text", "a \\<tool_call>now\\</tool_call> b<|user|>",
           "T(a <tool_call>now</tool_call> b) turn"},
          {"cut behind a call", "<tool_call>now</tool_call>", "C0(now){}; cut"},
          {"no reasoning behind one", "<tool_call>now</tool_call><think>x<|user|>",
           "C0(now){}; T(<think>x) turn"},
          {"control token in a value",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a<sop>b</arg_value></tool_call><|user|>",
           R"(C0(get_weather){"city":"ab"}; turn)"},
      },
      options);
}

// Tags that models were seen to leave out or to say twice.
TEST(AnswerParser, CallsWithATagMissingAreRepaired) {
  AnswerOptions options;
  options.tools = Tools();
  const std::string ulm = R"(C0(get_weather){"city":"Ulm"}; turn)";
  const std::string both = R"(C0(get_weather){"city":"Ulm","days":2}; turn)";
  CheckCases(
      {
          {"<arg_value>", "<tool_call>get_weather<arg_key>city</arg_key>Ulm</arg_value></tool_call><|user|>",
           ulm},
          {"<arg_value>, then a whole one",
           "<tool_call>get_weather<arg_key>city</arg_key>Ulm</arg_value><arg_key>days</arg_key><arg_value>2</"
           "arg_value>"
           "</tool_call><|user|>",
           both},
          {"</arg_key>", "<tool_call>get_weather<arg_key>city<arg_value>Ulm</arg_value></tool_call><|user|>",
           ulm},
          {"first <arg_key>",
           "<tool_call>get_weathercity</arg_key><arg_value>Ulm</arg_value></tool_call><|user|>", ulm},
          {"first <arg_key>, white space",
           "<tool_call>get_weather city</arg_key><arg_value>Ulm</arg_value></tool_call><|user|>", ulm},
          {"second <arg_key>",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Ulm</arg_value>days</arg_key>"
           "<arg_value>2</arg_value></tool_call><|user|>",
           both},
          {"</arg_value> before the end",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Ulm</tool_call><|user|>", ulm},
          {"</arg_value> before a key",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Ulm<arg_key>days</arg_key><arg_value>2</"
           "arg_value>"
           "</tool_call><|user|>",
           both},
          {"</tool_call> before the end of the turn",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Ulm</arg_value>\n<|observation|>", ulm},
          {"</tool_call> before a call",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Ulm</arg_value><tool_call>now</"
           "tool_call><|user|>",
           R"(C0(get_weather){"city":"Ulm"}; C1(now){}; turn)"},
          {"all twice",
           "<tool_call><tool_call>get_weather<arg_key><arg_key>city</arg_key></"
           "arg_key><arg_value><arg_value>Ulm"
           "</arg_value></arg_value></tool_call></tool_call><|user|>",
           ulm},
      },
      options);
}

TEST(AnswerParser, WhatIsNoCallIsText) {
  AnswerOptions options;
  options.tools = Tools();
  const std::string call = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>";
  const auto text = [](const std::string& source, const std::string& end) {
    return "T(" + source + ") " + end;
  };
  std::vector<Case> cases;
  // Nothing of these is sent before they turn out to be no call.
  for (const auto& [name, source] : std::vector<std::pair<const char*, std::string>>{
           {"begin alone", "<tool_call>"},
           {"name alone", "<tool_call>now"},
           {"no name", "<tool_call></tool_call>"},
           {"blank name", "<tool_call> \n</tool_call>"},
           {"no name but an argument",
            "<tool_call><arg_key>city</arg_key><arg_value>Ulm</arg_value></tool_call>"},
           {"JSON", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"},
           {"words for a name", "<tool_call>I would call now</tool_call>"},
           {"a long name", "<tool_call>" + std::string(3000, 'n') + "</tool_call>"},
           {"key alone", "<tool_call>get_weather<arg_key>city"},
           {"no value", "<tool_call>get_weather<arg_key>city</arg_key></tool_call>"},
           {"no value, an end", "<tool_call>get_weather<arg_key>city</arg_key></arg_value></tool_call>"},
           {"key in a key", "<tool_call>get_weather<arg_key>a<arg_key>b</arg_key>"},
           {"text before the value",
            "<tool_call>get_weather<arg_key>city</arg_key>no<arg_value>Ulm</arg_value></tool_call>"},
           {"both value tags missing", "<tool_call>get_weather<arg_key>city</arg_key>Ulm</tool_call>"},
           {"value for a name", "<tool_call>get_weather<arg_value>Ulm</arg_value></tool_call>"},
           {"missing <arg_key>, unknown argument",
            "<tool_call>get_weatherx</arg_key><arg_value>Ulm</arg_value></tool_call>"},
           {"end of reasoning in a name", "<tool_call>no</think>w</tool_call>"},
           {"end alone", "a</tool_call></tool_call>b"},
           {"tags alone", "a<arg_key>b</arg_key><arg_value></arg_value>c"},
       }) {
    cases.push_back({name, source + "<|user|>", text(source, "turn")});
    cases.push_back({name, source, text(source, "cut")});
    // Inside the reasoning as well, unless it has its end in it.
    if (source.find("</think>") == std::string::npos)
      cases.push_back({name, source + "</think>x<|user|>", "R(" + source + ") T(x) turn", true});
  }
  // These have begun to come where strings are streamed.
  const auto also = [&](const char* name, const std::string& rest, const std::string& sent,
                        const std::string& left) {
    const std::string broken = R"(C0(get_weather){"city":")" + sent + "! " + left;
    cases.push_back({name, call + rest + "<|user|>", text(call + rest, "turn"), false, broken + "turn"});
    cases.push_back({name, call + rest, text(call + rest, "cut"), false, broken + "cut"});
  };
  also("value without an end", "Ulm", "Ulm", "");
  also("value in a value", "Ulm<arg_value>x</arg_value></tool_call>", "Ulm",
       "T(<arg_value>x</arg_value></tool_call>) ");
  also("call in a value", "Ulm<tool_call>x", "Ulm", "T(<tool_call>x) ");
  also("key's end in a value", "Ulm</arg_key></arg_value></tool_call>", "Ulm",
       "T(</arg_key></arg_value></tool_call>) ");
  also("a key twice", "Ulm</arg_value><arg_key>city</arg_key><arg_value>Bonn</arg_value></tool_call>",
       "Ulm\"", "T(<arg_key>city</arg_key><arg_value>Bonn</arg_value></tool_call>) ");
  also("text between arguments",
       "Ulm</arg_value> and <arg_key>days</arg_key><arg_value>2</arg_value></tool_call>", "Ulm\"",
       "T( and <arg_key>days</arg_key><arg_value>2</arg_value></tool_call>) ");
  also("text before the end", "Ulm</arg_value>.</tool_call>", "Ulm\"", "T(.</tool_call>) ");
  also("text before a call", "Ulm</arg_value>.<tool_call>x", "Ulm\"", "T(.<tool_call>x) ");
  also("second key alone", "Ulm</arg_value><arg_key>days", "Ulm\"", "T(<arg_key>days) ");
  also("second value without an end", "Ulm</arg_value><arg_key>days</arg_key><arg_value>2", "Ulm\"",
       "T(<arg_key>days</arg_key><arg_value>2) ");
  cases.push_back({"cut behind an argument", call + "Ulm</arg_value>", text(call + "Ulm</arg_value>", "cut"),
                   false, R"(C0(get_weather){"city":"Ulm"! cut)"});
  cases.push_back({"a whole one behind", "<tool_call>no no<tool_call>now</tool_call><|user|>",
                   "T(<tool_call>no no) C0(now){}; turn"});
  cases.push_back({"a whole one before", "<tool_call>now</tool_call> <tool_call>no no</tool_call><|user|>",
                   "C0(now){}; T( <tool_call>no no</tool_call>) turn"});
  cases.push_back({"white space around", "a \n<tool_call> b \n<|user|>", "T(a \n<tool_call> b \n) turn"});
  CheckCases(cases, options);
}

TEST(AnswerParser, CallsInsideReasoningCountWhereTheTurnEnds) {
  AnswerOptions options;
  options.tools = Tools();
  const std::string now = "<tool_call>now</tool_call>";
  const std::string get = "<tool_call>get_weather<arg_key>days</arg_key><arg_value>2</arg_value>";
  CheckCases(
      {
          {"at the end", "Hm." + now + "\n<|observation|>", "R(Hm.) C0(now){}; turn", true},
          {"two", "Hm." + now + " " + get + "<|observation|>",
           R"(R(Hm.) C0(now){}; C1(get_weather){"days":2}; turn)", true},
          {"two, the first without its end", "Hm." + get + now + "<|observation|>",
           R"(R(Hm.) C0(get_weather){"days":2}; C1(now){}; turn)", true},
          {"considered", "Hm." + now + " or not</think>No.<|user|>", "R(Hm." + now + " or not) T(No.) turn",
           true},
          {"reasoning ends behind it", "Hm." + now + "\n</think>No.<|user|>",
           "R(Hm." + now + "\n) T(No.) turn", true},
          {"reasoning ends inside it",
           "Hm." + get.substr(0, get.find("</arg_value>")) + "</think>No.<|user|>",
           "R(Hm." + get.substr(0, get.find("</arg_value>")) + ") T(No.) turn", true},
          {"cut behind it", "Hm." + now, "R(Hm." + now + ") cut", true},
          {"the second is none", "Hm." + now + "<tool_call>no no<|user|>",
           "R(Hm." + now + "<tool_call>no no) turn", true},
          {"then a real one", "Hm." + now + "</think>" + now + "<|observation|>",
           "R(Hm." + now + ") C0(now){}; turn", true},
      },
      options);
}

TEST(AnswerParser, SendsStringsAsTheyCome) {
  AnswerOptions options;
  options.tools = Tools();
  options.stream_arguments = true;
  auto parser = AnswerParser::Create(Vocabulary(), options).value();
  Events events;
  const auto push = [&](std::string_view source) {
    events.clear();
    for (const int32_t id : Ids(source)) ASSERT_TRUE(parser.Push(id, events).ok());
  };
  push("<tool_call>get_weather<arg_key>city</arg_key>");
  EXPECT_TRUE(events.empty());
  EXPECT_TRUE(parser.in_call());
  push("<arg_value>");
  EXPECT_EQ(Shown(events), "C0(get_weather){\"city\":\"");
  push("U");
  EXPECT_EQ(Shown(events), "U");
  push("\xc3");
  EXPECT_TRUE(events.empty());
  push("\xa9\"");
  EXPECT_EQ(Shown(events), "\xc3\xa9\\\"");
  push("</arg_value><arg_key>days</arg_key><arg_value>2");
  EXPECT_EQ(Shown(events), "\"");
  push("</arg_value>");
  EXPECT_EQ(Shown(events), ",\"days\":2");
  push("</tool_call>");
  EXPECT_EQ(Shown(events), "}; ");
  EXPECT_FALSE(parser.in_call());
}

TEST(AnswerParser, StopStringsAreOfTheAnswerAlone) {
  AnswerOptions options;
  options.tools = Tools();
  options.stop = {"END", "\n\n"};
  const std::string call =
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>END</arg_value></tool_call>";
  CheckCases(
      {
          {"found", "Yes. END or not<|user|>", "T(Yes. ) stop"},
          {"not in reasoning", "a END\n\n</think>Yes.END", "R(a END\n\n) T(Yes.) stop", true},
          {"not in a call", call + "<|user|>", R"(C0(get_weather){"city":"END"}; turn)"},
          {"not across a call", "a EN" + call + "D b<|user|>",
           R"(T(a EN) C0(get_weather){"city":"END"}; T(D b) turn)"},
          {"not across reasoning", "a EN</think>D<|user|>", "R(a EN) T(D) turn", true},
          {"half of one at the end", "a EN<|user|>", "T(a EN) turn"},
          {"half of one, cut", "a EN", "T(a EN) cut"},
          {"white space", "a\n\nb<|user|>", "T(a) stop"},
          {"white space before a call", "a\n\n" + call + "<|user|>", "T(a) stop"},
          {"first of all", "END<|user|>", "stop"},
          {"in what is no call", "a<tool_call>b END c</tool_call><|user|>", "T(a<tool_call>b ) stop"},
          {"in what is no call, at the end", "a<tool_call>now<arg_key>b END<|user|>",
           "T(a<tool_call>now<arg_key>b ) stop"},
          {"across what is no call", "a E<tool_call>x<|user|>", "T(a E<tool_call>x) turn"},
          {"across a control token", "a E<sop>ND b<|user|>", "T(a ) stop"},
      },
      options);
  // The token that completes the match ends the answer, also where white space is held back.
  for (const bool tools : {false, true}) {
    if (!tools) options.tools.clear();
    auto parser = AnswerParser::Create(Vocabulary(), options).value();
    Events events;
    for (const int32_t id : Ids("a \n")) ASSERT_TRUE(parser.Push(id, events).ok());
    EXPECT_FALSE(parser.ended());
    EXPECT_EQ(parser.stop_string(), "");
    ASSERT_TRUE(parser.Push(Ids("\n")[0], events).ok());
    EXPECT_TRUE(parser.ended());
    EXPECT_EQ(parser.stop_string(), "\n\n");
    EXPECT_EQ(Shown(events), "T(a ) stop");
  }
}

TEST(AnswerParser, BrokenCharacters) {
  const std::string bad = "\xef\xbf\xbd";
  AnswerOptions options;
  options.tools = Tools();
  CheckCases(
      {
          {"alone",
           "a\xff"
           "b<|user|>",
           "T(a" + bad + "b) turn"},
          {"unfinished at the end", "a\xf0\x9f\x98<|user|>", "T(a" + bad + ") turn"},
          {"unfinished, cut", "a\xf0\x9f\x98", "T(a" + bad + ") cut"},
          {"unfinished before a mark",
           "a\xf0\x9f</think>\x98\x80"
           "b<|user|>",
           "R(a" + bad + ") T(" + bad + bad + "b) turn", true},
          {"in a value",
           "<tool_call>get_weather<arg_key>city</arg_key><arg_value>\xe4\xb8</arg_value></tool_call><|user|>",
           R"(C0(get_weather){"city":")" + bad + "\"}; turn"},
          {"in a number",
           "<tool_call>get_weather<arg_key>days</arg_key><arg_value>2\xff</arg_value></tool_call><|user|>",
           R"(C0(get_weather){"days":"2)" + bad + "\"}; turn"},
      },
      options);
}

TEST(AnswerParser, RawIsTextAlone) {
  AnswerOptions options;
  options.raw = true;
  options.stop = {"</t"};
  CheckCases({{"marks", "a<think>b<tool_call>c<|user|>", "T(a<think>b<tool_call>c) turn"},
              {"stop", "a<think>b</think>c<|user|>", "T(a<think>b) stop"}},
             options);
  options.stop.clear();
  options.end_at_stop_ids = false;
  CheckCases({{"goes on", "a<|user|>b", "T(ab) cut"}}, options);
}

TEST(AnswerParser, ErrorsAreOfTheCaller) {
  AnswerOptions options;
  options.tools = {"{"};
  EXPECT_EQ(AnswerParser::Create(Vocabulary(), options).status().code(), Code::kBadInput);
  options.tools.clear();
  options.stop = {"a", "b\xff"};
  const auto bad = AnswerParser::Create(Vocabulary(), options);
  EXPECT_EQ(bad.status().code(), Code::kBadInput);
  EXPECT_NE(bad.status().message().find("stop string 1"), std::string::npos) << bad.status().message();
  auto parser = AnswerParser::Create(Vocabulary(), {}).value();
  Events events;
  for (const int32_t id : {-1, Vocabulary().size(), 1 << 30}) {
    EXPECT_EQ(parser.Push(id, events).code(), Code::kBadInput) << id;
  }
  EXPECT_TRUE(events.empty());
}

TEST(AnswerParser, SaysWhereItEnded) {
  AnswerOptions options;
  options.tools = Tools();
  for (const auto& [source, reasoning, call] :
       std::vector<std::tuple<std::string, bool, bool>>{{"a", true, false},
                                                        {"a</think>b", false, false},
                                                        {"a</think><tool_call>now", false, true},
                                                        {"a</think><tool_call>now</tool_call>", false, false},
                                                        {"a<tool_call>now", true, true}}) {
    options.in_reasoning = true;
    auto parser = AnswerParser::Create(Vocabulary(), options).value();
    Events events;
    for (const int32_t id : Ids(source)) ASSERT_TRUE(parser.Push(id, events).ok());
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(parser.in_reasoning(), reasoning) << source;
      EXPECT_EQ(parser.in_call(), call) << source;
      ASSERT_TRUE(parser.Finish(events).ok());
    }
  }
  EXPECT_TRUE(OpensReasoning(Vocabulary(), Ids("<think></think><|assistant|><think>")));
  EXPECT_TRUE(OpensReasoning(Vocabulary(), Ids("<think>a b\n")));
  EXPECT_FALSE(OpensReasoning(Vocabulary(), Ids("<|assistant|>\n<think></think>\n")));
  EXPECT_FALSE(OpensReasoning(Vocabulary(), Ids("\\<think>")));
  EXPECT_FALSE(OpensReasoning(Vocabulary(), {}));
}

// Any order of marks and text. Its letters are a to e, which make no JSON and are nothing in a tag's name but "ae": so what
// was said can be read back out of the events, whatever they are.
TEST(AnswerParser, LosesNothingHoweverItIsCut) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  constexpr std::string_view kWords[] = {"b", "c", "d", "bcd", " ", "\n", "b", "cb"};
  const std::vector<std::string> tools = {
      R"({"name": "b", "parameters": {"properties": {"b": {"type": "string"}, "c": {"type": "integer"}}}})"};
  size_t whole = 0, broken = 0;
  for (int repeat = 0; repeat < 20000; ++repeat) {
    // Sound calls more often than chance would have it: a grammar's walk with slips.
    struct Item {
      bool mark;
      text::Mark which;
      std::string text;
    };
    std::vector<Item> items;
    const auto mark = [&](text::Mark which) { items.push_back({true, which, ""}); };
    const auto word = [&] { items.push_back({false, {}, std::string(kWords[rng() % std::size(kWords)])}); };
    for (size_t n = rng() % 5; n > 0; --n) {
      word();
      mark(text::Mark::kToolCall), word();
      for (size_t m = rng() % 4; m > 0; --m) {
        mark(text::Mark::kArgKey), word(), mark(text::Mark::kEndArgKey);
        mark(text::Mark::kArgValue), word(), mark(text::Mark::kEndArgValue);
      }
      mark(text::Mark::kEndToolCall);
    }
    for (size_t n = rng() % 4; n > 0 && !items.empty(); --n) {
      const auto at = items.begin() + static_cast<ptrdiff_t>(rng() % items.size());
      if (rng() % 2) {
        items.erase(at);
      } else {
        items.insert(at, {true, static_cast<text::Mark>(rng() % 8), ""});
      }
    }
    std::string letters;
    for (const Item& item : items) {
      for (const char c : item.text) letters += c > ' ' ? std::string(1, c) : "";
    }

    const bool reasoning = rng() % 2, stream = rng() % 2, turn = rng() % 2;
    const auto schemas = std::make_shared<const text::ToolSchemas>(text::ToolSchemas::Read(tools).value());
    std::string first;
    for (int cut = 0; cut < 3; ++cut) {
      text::AnswerMachine machine(schemas, reasoning, stream);
      Events events;
      std::string pending;
      for (const Item& item : items) {
        if (item.mark) {
          machine.Text(std::exchange(pending, {}), events);
          machine.OnMark(item.which, events);
          continue;
        }
        pending += item.text;
        if (cut == 0) continue;  // neighbours come as one
        for (size_t at = 0; at < pending.size(); ++at) machine.Text(pending.substr(at, 1), events);
        pending.clear();
      }
      machine.Text(pending, events);
      machine.End(turn, events);
      Check(events);
      const std::string shown = Shown(events);
      if (cut == 0) first = shown;
      ASSERT_EQ(shown, first);

      std::string said;
      for (const AnswerEvent& event : events) {
        said += event.text;
        whole += event.kind == Kind::kCallEnd && !event.broken;
        broken += event.broken;
      }
      for (const auto spelling : text::kMarks) {
        for (size_t at = said.find(spelling); at != std::string::npos; at = said.find(spelling))
          said.erase(at, spelling.size());
      }
      std::string back;
      for (size_t at = 0; at < said.size(); ++at) {
        if (said[at] == '\\') {
          ++at;  // \n of a value
        } else if (said[at] >= 'a' && said[at] <= 'z') {
          back += said[at];
        }
      }
      ASSERT_EQ(back, letters) << shown;
    }
  }
  EXPECT_GT(whole, 5000);
  EXPECT_GT(broken, 500);
}

// A schema that admits the value, now and then in a roundabout way.
std::string SchemaOf(std::string_view value, text::RandomChat& random) {
  const Json json = ParseJson(value, "").value();
  std::string type = "null";
  switch (json.kind()) {
    case Json::Kind::kNull:
      break;
    case Json::Kind::kBool:
      type = "boolean";
      break;
    case Json::Kind::kInteger:
    case Json::Kind::kFloat:
      type = "number";
      if (value.find_first_of(".eE") == std::string_view::npos && random.Coin()) type = "integer";
      break;
    case Json::Kind::kString: {
      // A union of a string and others is told apart by the spelling: not where the string reads as JSON.
      if (ParseJson(text::StripAscii(text::DecodeString(value)), "").ok() || random.Coin())
        return R"({"type": "string"})";
      static constexpr std::string_view kUnions[] = {
          R"({"type": ["string", "null"]})",
          R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})",
          R"({"type": "string", "nullable": true})",
          R"({"oneOf": [{"$ref": "#/$defs/s"}, {"type": "object"}]})",
          R"({"description": "any"})",
      };
      return std::string(kUnions[random.rng()() % std::size(kUnions)]);
    }
    case Json::Kind::kArray:
      type = "array";
      break;
    case Json::Kind::kObject:
      type = "object";
      break;
  }
  switch (random.rng()() % 5) {
    case 0:
      return "{}";
    case 1:
      return R"({"type": ["string", ")" + type + "\"]}";
    case 2:
      return R"({"anyOf": [{"$ref": "#/$defs/s"}, {"type": ")" + type + "\"}]}";
    default:
      return R"({"type": ")" + type + "\"}";
  }
}

std::string Normal(std::string_view arguments) {
  std::string out;
  const auto members = text::ObjectMembers(arguments);
  for (const auto& member : *members)
    out += text::Quote(member.key) + ": " + text::PythonDumps(member.value) + "\n";
  return out;
}

// What the template renders of an assistant's turn, the parser reads back: reasoning, text, calls and the kinds of their arguments,
// in the tokens of the tokenizer and in others.
TEST(AnswerParser, ReadsBackWhatTheTemplateRenders) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  text::RandomChat random(seed);
  size_t turns = 0, calls = 0;
  for (int repeat = 0; repeat < 1500; ++repeat) {
    std::vector<Message> messages = random.Messages();
    ChatOptions chat = random.Options();
    chat.clear_thinking = false;  // else later user turns change earlier ones
    chat.tools.clear();
    for (Message& m : messages) {
      if (m.role != Role::kAssistant) continue;
      m.reasoning_apart = true;
      m.content = text::PythonStrip(m.content);  // as the template does
      for (ToolCall& call : m.tool_calls) {
        call.name += std::to_string(chat.tools.size());
        if (call.arguments.empty()) call.arguments = "{}";
        std::string properties;
        const auto members = text::ObjectMembers(call.arguments);
        for (const auto& member : *members) {
          const bool string = text::IsString(member.value);
          if (!string && random.Coin(8)) continue;  // not declared
          properties += (properties.empty() ? "" : ", ") + text::Quote(member.key) + ": " +
                        SchemaOf(member.value, random);
        }
        chat.tools.push_back(R"({"type": "function", "function": {"name": )" + text::Quote(call.name) +
                             R"(, "parameters": {"type": "object", "properties": {)" + properties +
                             R"(}, "$defs": {"s": {"type": "string"}}}}})");
      }
    }
    if (chat.tools.empty()) chat.tools.push_back(R"({"name": "none"})");
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& m = messages[i];
      if (m.role != Role::kAssistant) continue;
      const std::span<const Message> all(messages);
      chat.add_generation_prompt = true;
      const auto prompt = Vocabulary().EncodeChat(all.first(i), chat).value();
      chat.add_generation_prompt = false;
      auto ids = Vocabulary().EncodeChat(all.first(i + 1), chat).value();
      ASSERT_TRUE(std::equal(prompt.begin(), prompt.end(), ids.begin()));
      ids.erase(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(prompt.size()));
      ids.push_back(Vocabulary().Find(m.tool_calls.empty() ? "<|user|>" : "<|observation|>"));

      AnswerOptions options;
      options.in_reasoning = OpensReasoning(Vocabulary(), prompt);
      ASSERT_TRUE(options.in_reasoning);
      options.tools = chat.tools;
      for (int form = 0; form < 4; ++form) {
        options.stream_arguments = form % 2;
        const Events events = Parse(options, form < 2 ? ids : Respelled(ids, random.rng()));
        Message back;
        for (const AnswerEvent& event : events) {
          if (event.kind == Kind::kReasoning) back.reasoning += event.text;
          if (event.kind == Kind::kText) back.content += event.text;
          if (event.kind == Kind::kCallBegin) back.tool_calls.push_back({event.text, ""});
          if (event.kind == Kind::kCallArguments) back.tool_calls.back().arguments += event.text;
          ASSERT_FALSE(event.broken);
        }
        ASSERT_EQ(back.reasoning, m.reasoning);
        ASSERT_EQ(back.content, m.content);
        ASSERT_EQ(back.tool_calls.size(), m.tool_calls.size());
        for (size_t c = 0; c < m.tool_calls.size(); ++c) {
          ASSERT_EQ(back.tool_calls[c].name, m.tool_calls[c].name);
          ASSERT_EQ(Normal(back.tool_calls[c].arguments), Normal(m.tool_calls[c].arguments))
              << m.tool_calls[c].arguments << "\n"
              << chat.tools[0];
        }
        ASSERT_EQ(events.back().end, AnswerEnd::kTurn);
      }
      ++turns;
      calls += m.tool_calls.size();
    }
  }
  EXPECT_GT(turns, 300);
  EXPECT_GT(calls, 300);
}

}  // namespace
}  // namespace glint
