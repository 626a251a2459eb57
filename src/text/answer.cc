// include/glint/answer.h: tokens in, through the grammar (answer_machine.h), stop strings and white space around calls.
#include "glint/answer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/no_room.h"
#include "base/printable.h"
#include "text/answer_machine.h"
#include "text/stop_strings.h"
#include "text/unicode.h"

namespace glint {

using Kind = AnswerEvent::Kind;
using Events = std::vector<AnswerEvent>;

struct AnswerParser::State {
  State(const Tokenizer& from, const AnswerOptions& options, text::ToolSchemas schemas)
      : tokenizer(from),
        raw(options.raw),
        end_at_stop_ids(options.end_at_stop_ids),
        calls(!schemas.empty() && !options.raw),
        machine(std::make_shared<const text::ToolSchemas>(std::move(schemas)), options.in_reasoning,
                options.stream_arguments),
        stops(options.stop) {
    for (const std::string_view mark : text::kMarks) marks.push_back(from.Find(mark));
  }

  // Whole characters of the answer's bytes go to the machine.
  void Read(std::string_view text) {
    if (raw) {
      if (!text.empty()) found.push_back({Kind::kText, std::string(text)});
    } else {
      machine.Text(text, found);
    }
  }
  void ReadRest() {
    std::string text;
    text::unicode::MoveRest(bytes, text);
    Read(text);
  }

  // A run of white space is held back until it is known whether a call is beside it.
  void Say(std::string_view text, Events& events) {
    if (text.empty()) return;
    const size_t last = calls ? text.find_last_not_of(text::kAsciiSpace) : text.size() - 1;
    if (last == std::string_view::npos) {
      space += text;
      return;
    }
    std::string whole = std::exchange(space, std::string(text.substr(last + 1)));
    whole += text.substr(0, last + 1);
    after_call = false;
    events.push_back({Kind::kText, std::move(whole)});
  }
  void SaySpace(Events& events) {
    if (!after_call && !space.empty()) events.push_back({Kind::kText, std::move(space)});
    space.clear();
  }

  void End(AnswerEnd why, Events& events) {
    SaySpace(events);
    AnswerEvent event{Kind::kEnd};
    event.end = why;
    events.push_back(event);
    ended = true;
  }

  // What the machine found, through the stop strings.
  void Pass(Events& events) {
    std::string text;
    for (AnswerEvent& event : std::exchange(found, {})) {
      text.clear();
      if (event.kind == Kind::kText) {
        stops.Push(event.text, text);
        Say(text, events);
        if (!stops.matched()) continue;
        End(AnswerEnd::kStopString, events);
        return;
      }
      stops.Flush(text);
      Say(text, events);
      if (event.kind == Kind::kCallBegin) space.clear();
      SaySpace(events);
      after_call = event.kind != Kind::kReasoning && !event.broken;
      events.push_back(std::move(event));
    }
  }

  void Finish(AnswerEnd why, Events& events) {
    ReadRest();
    in_call = machine.in_call();
    if (!raw) machine.End(why == AnswerEnd::kTurn, found);
    Pass(events);
    if (ended) return;
    std::string text;
    stops.Flush(text);
    Say(text, events);
    End(why, events);
  }

  const Tokenizer tokenizer;
  const bool raw, end_at_stop_ids, calls;
  std::vector<int32_t> marks;  // ids, -1 where the vocabulary has none; in the order of text::kMarks
  std::string bytes;           // of an unfinished character
  text::AnswerMachine machine;
  Events found;
  text::StopStrings stops;
  std::string space;
  bool after_call = false;  // a call ended, and only white space came since
  bool ended = false, in_call = false;
};

AnswerParser::AnswerParser(std::unique_ptr<State> state) : state_(std::move(state)) {}
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;
AnswerParser::~AnswerParser() = default;

Result<AnswerParser> AnswerParser::Create(const Tokenizer& tokenizer, const AnswerOptions& options) try {
  for (size_t i = 0; i < options.stop.size(); ++i) {
    if (!ValidUtf8(options.stop[i]))
      return Status(Code::kBadInput,
                    fmt::format("stop string {}: is not UTF-8: {}", i, Quoted(options.stop[i])));
  }
  auto schemas = text::ToolSchemas::Read(options.tools);
  if (!schemas.ok()) return schemas.status();
  return AnswerParser(std::make_unique<State>(tokenizer, options, *std::move(schemas)));
} catch (...) {
  return NoRoomOrRethrow();
}

Status AnswerParser::Push(int32_t id, std::vector<AnswerEvent>& events) try {
  State& s = *state_;
  if (s.ended) return {};
  const auto bytes = s.tokenizer.Decode(std::span(&id, 1), false);
  if (!bytes.ok()) return bytes.status();
  const auto is = [id](int32_t other) { return other == id; };
  const std::span<const int32_t> stop_ids = s.tokenizer.stop_ids();
  if (s.end_at_stop_ids && std::any_of(stop_ids.begin(), stop_ids.end(), is)) {
    s.Finish(AnswerEnd::kTurn, events);
    return {};
  }
  const auto mark = std::find_if(s.marks.begin(), s.marks.end(), is);
  if (mark != s.marks.end() && !s.raw) {
    s.ReadRest();
    s.machine.OnMark(static_cast<text::Mark>(mark - s.marks.begin()), s.found);
  } else {
    std::string text;
    s.bytes += *bytes;
    text::unicode::MoveWhole(s.bytes, text);
    s.Read(text);
  }
  s.Pass(events);
  return {};
} catch (...) {
  return NoRoomOrRethrow();
}

Status AnswerParser::Finish(std::vector<AnswerEvent>& events) try {
  if (!state_->ended) state_->Finish(AnswerEnd::kCut, events);
  return {};
} catch (...) {
  return NoRoomOrRethrow();
}

bool AnswerParser::ended() const { return state_->ended; }
bool AnswerParser::in_reasoning() const { return !state_->raw && state_->machine.in_reasoning(); }
bool AnswerParser::in_call() const { return state_->ended ? state_->in_call : state_->machine.in_call(); }
std::string_view AnswerParser::stop_string() const {
  return state_->stops.matched() ? std::string_view(state_->stops.match()) : std::string_view();
}

bool OpensReasoning(const Tokenizer& tokenizer, std::span<const int32_t> prompt) {
  const int32_t open = tokenizer.Find("<think>"), close = tokenizer.Find("</think>");
  for (size_t i = prompt.size(); i > 0; --i) {
    if (prompt[i - 1] == close) return false;
    if (prompt[i - 1] == open) return true;
  }
  return false;
}

}  // namespace glint
