// Any tokens as a model's answer. Input: a byte of options, a byte that counts the tools' bytes / 16 and one the stop string's, the
// tools (JSON, one a line), the stop string, and the answer: bytes of text, but 1 to 8 are marks and 14 ends the turn.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/printable.h"
#include "fuzz/small_tokenizer.h"
#include "glint/answer.h"
#include "text/answer_machine.h"
#include "text/chat_template.h"
#include "text/python_json.h"

namespace {

using glint::AnswerEvent;
using Kind = AnswerEvent::Kind;

const glint::Tokenizer& Vocabulary() {
  static const glint::Tokenizer tokenizer = [] {
    glint::text::TokenizerData data = glint::fuzz::SmallTokenizerData();
    for (const auto mark : glint::text::kMarks) {
      if (std::find(data.tokens.begin(), data.tokens.end(), mark) != data.tokens.end()) continue;
      data.tokens.emplace_back(mark);
      data.kinds.push_back(glint::text::TokenKind::kUserDefined);
    }
    for (size_t id = 0; id < data.tokens.size(); ++id) {
      if (data.tokens[id] == "<|user|>") data.stop_ids.push_back(static_cast<int32_t>(id));
    }
    auto made = glint::text::Tokenizer::Create(std::move(data));
    if (!made.ok()) std::abort();
    return glint::Tokenizer(*made, nullptr);
  }();
  return tokenizer;
}

// All that the events say, one after another, so that it can be compared.
struct Said {
  std::vector<AnswerEvent> events;

  void Take(const std::vector<AnswerEvent>& more) {
    for (const AnswerEvent& event : more) {
      if (!glint::ValidUtf8(event.text)) std::abort();
      const bool pieces =
          event.kind == Kind::kReasoning || event.kind == Kind::kText || event.kind == Kind::kCallArguments;
      if (pieces && event.text.empty()) continue;
      if (pieces && !events.empty() && events.back().kind == event.kind && events.back().call == event.call) {
        events.back().text += event.text;
      } else {
        events.push_back(event);
      }
    }
  }

  // Events are in order, calls are JSON, and the end is the last.
  void Check() const {
    size_t calls = 0;
    bool inside = false;
    for (const AnswerEvent& event : events) {
      const bool of_call = event.kind == Kind::kCallArguments || event.kind == Kind::kCallEnd;
      if (of_call != inside) std::abort();
      if ((of_call || event.kind == Kind::kCallBegin) && event.call != calls) std::abort();
      if (event.kind == Kind::kCallBegin) inside = true;
      if (event.kind == Kind::kCallArguments && !(&event + 1)->broken &&
          !glint::text::ObjectMembers(event.text).ok()) {
        std::abort();
      }
      if (event.kind == Kind::kCallEnd) inside = false, ++calls;
      if ((event.kind == Kind::kEnd) != (&event == &events.back())) std::abort();
    }
  }
};

Said Parse(const glint::AnswerOptions& options, std::span<const int32_t> ids) {
  auto parser = glint::AnswerParser::Create(Vocabulary(), options);
  if (!parser.ok()) std::abort();
  Said said;
  for (const int32_t id : ids) {
    std::vector<AnswerEvent> events;
    if (!parser->Push(id, events).ok()) std::abort();
    said.Take(events);
    if (parser->ended() != (!said.events.empty() && said.events.back().kind == Kind::kEnd)) std::abort();
  }
  std::vector<AnswerEvent> events;
  if (!parser->Finish(events).ok()) std::abort();
  said.Take(events);
  said.Check();
  return said;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const uint8_t bits = data[0];
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const size_t tool_bytes = size_t{data[1]} * 16, stop_bytes = data[2];
  rest.remove_prefix(3);
  const auto take = [&](size_t bytes) {
    const std::string_view taken = rest.substr(0, std::min(bytes, rest.size()));
    rest.remove_prefix(taken.size());
    return taken;
  };
  glint::AnswerOptions options;
  options.in_reasoning = (bits & 1) != 0;
  options.stream_arguments = (bits & 2) != 0;
  options.raw = (bits & 12) == 12;
  for (std::string_view tools = take(tool_bytes); !tools.empty();) {
    const std::string_view line = tools.substr(0, tools.find('\n'));
    options.tools.emplace_back(line);
    tools.remove_prefix(std::min(tools.size(), line.size() + 1));
  }
  const std::string_view stop = take(stop_bytes);
  if (glint::ValidUtf8(stop)) options.stop.emplace_back(stop);
  if (!glint::AnswerParser::Create(Vocabulary(), options).ok()) {
    options.tools = {R"({"name": "f", "parameters": {"properties": {"s": {"type": "string"}}}})"};
  }

  // The tokens of bytes alone, and longer ones where the vocabulary has them.
  std::vector<int32_t> bytes, merged;
  std::string plain;
  const auto flush = [&] {
    for (const int32_t id : Vocabulary().Encode(plain)) merged.push_back(id);
    plain.clear();
  };
  for (const char c : rest) {
    const bool mark = c >= 1 && c <= 8;
    if (!mark && c != 14) {
      bytes.push_back(static_cast<uint8_t>(c));  // ids 0 to 255 of the small vocabulary
      plain += c;
      continue;
    }
    flush();
    bytes.push_back(Vocabulary().Find(mark ? glint::text::kMarks[static_cast<size_t>(c) - 1] : "<|user|>"));
    merged.push_back(bytes.back());
  }
  flush();
  const Said said = Parse(options, bytes);
  if (Parse(options, merged).events != said.events) std::abort();

  // Without tools and stop strings the text is all that was written, marks that open or close reasoning aside.
  glint::AnswerOptions bare;
  bare.in_reasoning = options.in_reasoning;
  bare.end_at_stop_ids = false;
  const auto letters = [](std::string_view text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  };
  std::ptrdiff_t want = letters(rest), have = 0;
  for (const char c : rest) {
    if (c >= 3 && c <= 8) want += letters(glint::text::kMarks[static_cast<size_t>(c) - 1]);
  }
  for (const AnswerEvent& event : Parse(bare, bytes).events) have += letters(event.text);
  // "think" of a mark that was text counts five more.
  if (have < want || (have - want) % 5 != 0) std::abort();
  return 0;
}
