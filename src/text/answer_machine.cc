#include "text/answer_machine.h"

#include <algorithm>

#include "text/python_json.h"

namespace glint::text {
namespace {

using Kind = AnswerEvent::Kind;

constexpr size_t kLongestName = 1024;  // bytes; a longer one is text that is let go

bool Blank(std::string_view text) { return StripAscii(text).empty(); }

// Whether an unknown tool's name may be one. The caller then tells the model that there is no such tool.
bool LooksLikeAName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':' || c == '/' || static_cast<uint8_t>(c) >= 0x80;
  });
}

}  // namespace

AnswerMachine::AnswerMachine(std::shared_ptr<const ToolSchemas> tools, bool in_reasoning,
                             bool stream_arguments)
    : tools_(std::move(tools)), reasoning_(in_reasoning), stream_arguments_(stream_arguments) {}

void AnswerMachine::Say(std::string_view text, Events& events) {
  if (text.empty()) return;
  answered_ = answered_ || (!reasoning_ && !Blank(text));
  events.push_back({reasoning_ ? Kind::kReasoning : Kind::kText, std::string(text)});
}

void AnswerMachine::Text(std::string_view text, Events& events) {
  if (text.empty()) return;
  fresh_ = false;
  if (at_ == At::kAfterCall && !Blank(text)) GiveUp(events);
  if (at_ == At::kOutside) return Say(text, events);
  if (at_ == At::kValue && streaming_) {
    Queue(Kind::kCallArguments, {});
    AppendInsideJsonString(text, queue_.back().text);
    return Commit(events);
  }
  source_ += text;
  if (at_ == At::kAfterCall) return;
  text_ += text;
  if (at_ == At::kName && text_.size() > kLongestName) return GiveUp(events);
  if (at_ == At::kAfterKey && !Blank(text)) BeginValue(false, events);
}

void AnswerMachine::OnMark(Mark mark, Events& events) {
  const bool again = fresh_ && mark == last_;
  fresh_ = true;
  last_ = mark;
  if (at_ == At::kOutside) {
    if (again && mark == Mark::kEndToolCall) return;  // of the call that just ended
    return Outside(mark, events);
  }
  const size_t before = source_.size();
  source_ += Spelling(mark);
  if (again) return;
  if (Inside(mark, events)) return;
  source_.resize(before);
  GiveUp(events);
  Outside(mark, events);
}

void AnswerMachine::Outside(Mark mark, Events& events) {
  if (reasoning_ ? mark == Mark::kEndThink : mark == Mark::kThink && !answered_) {
    reasoning_ = !reasoning_;
  } else if (mark == Mark::kToolCall && !tools_->empty()) {
    BeginCall();
  } else {
    Say(Spelling(mark), events);
    // Not the end of a call: a second one is text as well.
    fresh_ = mark != Mark::kEndToolCall;
  }
}

bool AnswerMachine::Inside(Mark mark, Events& events) {
  switch (at_) {
    case At::kOutside:
      return false;
    case At::kName: {
      if (mark == Mark::kArgKey || mark == Mark::kEndToolCall) {
        if (!TakeName(text_)) return false;
        text_.clear();
        at_ = At::kKey;
        if (mark == Mark::kEndToolCall) EndCall(events);
        return true;
      }
      std::string name, key;  // its tag is missing: NAMEkey</arg_key>
      if (mark != Mark::kEndArgKey || !tools_->Split(text_, name, key)) return false;
      return TakeName(name) && TakeKey(key);
    }
    case At::kKey:
      if (mark != Mark::kEndArgKey && mark != Mark::kArgValue) return false;
      if (!TakeKey(text_)) return false;
      if (mark == Mark::kArgValue) BeginValue(true, events);
      return true;
    case At::kAfterKey:
      if (mark != Mark::kArgValue) return false;
      BeginValue(true, events);
      return true;
    case At::kValue:
      // They mean nothing here, but that the reasoning ends even if a call in it does not.
      if (mark == Mark::kThink || (mark == Mark::kEndThink && !reasoning_)) {
        source_.resize(source_.size() - Spelling(mark).size());
        Text(Spelling(mark), events);
        return true;
      }
      if (mark == Mark::kEndArgValue) {
        EndValue(events);
        return true;
      }
      // Its end is missing, and the beginning isn't.
      if (!tagged_ || (mark != Mark::kArgKey && mark != Mark::kEndToolCall)) return false;
      EndValue(events);
      if (mark == Mark::kArgKey) at_ = At::kKey;
      if (mark == Mark::kEndToolCall) EndCall(events);
      return true;
    case At::kBetween:
      if (mark == Mark::kEndArgKey) return !Blank(text_) && TakeKey(StripAscii(text_));
      if (!Blank(text_)) return false;
      text_.clear();
      if (mark == Mark::kArgKey) {
        at_ = At::kKey;
      } else if (mark == Mark::kEndToolCall) {
        EndCall(events);
      } else if (mark == Mark::kToolCall) {
        EndCall(events);
        BeginCall();
      } else {
        return false;
      }
      return true;
    case At::kAfterCall:
      if (mark != Mark::kToolCall) return false;
      BeginCall();
      return true;
  }
  return false;
}

void AnswerMachine::BeginCall() {
  if (queue_.empty()) calls_before_ = calls_;
  if (source_.empty()) source_ = Spelling(Mark::kToolCall);
  at_ = At::kName;
  sent_ = false;
  text_.clear();
  keys_.clear();
}

bool AnswerMachine::TakeName(std::string_view text) {
  if (!tools_->Has(text)) {
    text = StripAscii(text);
    if (!tools_->Has(text) && !LooksLikeAName(text)) return false;
  }
  name_ = text;
  Queue(Kind::kCallBegin, name_);
  return true;
}

bool AnswerMachine::TakeKey(std::string_view text) {
  if (!tools_->Declares(name_, text) && tools_->Declares(name_, StripAscii(text))) text = StripAscii(text);
  if (!keys_.emplace(text).second) return false;
  key_ = text;
  text_.clear();
  at_ = At::kAfterKey;
  return true;
}

void AnswerMachine::BeginValue(bool tagged, Events& events) {
  if (tagged) text_.clear();
  at_ = At::kValue;
  tagged_ = tagged;
  streaming_ = tagged && stream_arguments_ && !reasoning_ && tools_->Kinds(name_, key_) == json_kind::kString;
  if (!streaming_) return;
  std::string piece = keys_.size() == 1 ? "{" : ",";
  AppendJsonString(key_, piece);
  Queue(Kind::kCallArguments, piece + ":\"");
  Commit(events);
}

void AnswerMachine::EndValue(Events& events) {
  std::string piece = "\"";
  if (!streaming_) {
    piece = keys_.size() == 1 ? "{" : ",";
    AppendJsonString(key_, piece);
    piece += ":" + TypedJson(text_, tools_->Kinds(name_, key_));
  }
  Queue(Kind::kCallArguments, std::move(piece));
  if (stream_arguments_ && !reasoning_) Commit(events);
  text_.clear();
  at_ = At::kBetween;
}

void AnswerMachine::EndCall(Events& events) {
  Queue(Kind::kCallArguments, keys_.empty() ? "{}" : "}");
  Queue(Kind::kCallEnd, {});
  ++calls_;
  at_ = At::kAfterCall;
  if (reasoning_) return;
  answered_ = true;
  Commit(events);
  sent_ = false;
  at_ = At::kOutside;
}

void AnswerMachine::Queue(AnswerEvent::Kind kind, std::string text) {
  queue_.push_back({kind, std::move(text), calls_});
}

void AnswerMachine::Commit(Events& events) {
  for (AnswerEvent& event : queue_) events.push_back(std::move(event));
  queue_.clear();
  source_.clear();
  sent_ = true;
}

void AnswerMachine::GiveUp(Events& events) {
  if (sent_) {
    events.push_back({Kind::kCallEnd, {}, calls_, true});
    ++calls_;
  } else {
    calls_ = calls_before_;
  }
  queue_.clear();
  sent_ = false;
  at_ = At::kOutside;
  const std::string source = std::exchange(source_, {});
  Say(source, events);
}

void AnswerMachine::End(bool turn, Events& events) {
  if (turn && at_ == At::kBetween && Blank(text_)) EndCall(events);
  if (turn && at_ == At::kAfterCall) {
    Commit(events);
    sent_ = false;
    at_ = At::kOutside;
  }
  if (at_ != At::kOutside) GiveUp(events);
}

}  // namespace glint::text
