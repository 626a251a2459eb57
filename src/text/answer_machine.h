// The grammar of a GLM answer: marks and text to events. (glint/answer.h: the same for tokens, with stop strings.)
//
//   answer    = [reasoning "</think>"] { "<think>" reasoning "</think>" } { text | call }
//   call      = "<tool_call>" name { argument } "</tool_call>"
//   argument  = "<arg_key>" key "</arg_key>" "<arg_value>" value "</arg_value>"
//
// with white space between the parts of a call, and the repairs that glint/answer.h lists.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "glint/answer.h"
#include "text/tool_schemas.h"

namespace glint::text {

enum class Mark : uint8_t {
  kThink,
  kEndThink,
  kToolCall,
  kEndToolCall,
  kArgKey,
  kEndArgKey,
  kArgValue,
  kEndArgValue,
};
inline constexpr std::array<std::string_view, 8> kMarks = {"<think>",      "</think>",    "<tool_call>",
                                                           "</tool_call>", "<arg_key>",   "</arg_key>",
                                                           "<arg_value>",  "</arg_value>"};
inline std::string_view Spelling(Mark mark) { return kMarks[static_cast<size_t>(mark)]; }

// Takes well-formed UTF-8; how it is cut makes no difference to what the events say together. No kEnd: that is the caller's.
class AnswerMachine {
 public:
  using Events = std::vector<AnswerEvent>;

  AnswerMachine(std::shared_ptr<const ToolSchemas> tools, bool in_reasoning, bool stream_arguments);

  void Text(std::string_view text, Events& events);
  void OnMark(Mark mark, Events& events);
  // `turn`: the model said that its turn ends; else it was cut off.
  void End(bool turn, Events& events);

  bool in_reasoning() const { return reasoning_; }
  bool in_call() const { return at_ != At::kOutside && at_ != At::kAfterCall; }

 private:
  enum class At : uint8_t {
    kOutside,
    kName,      // text_: the name so far
    kKey,       // text_: the key so far
    kAfterKey,  // text_: white space
    kValue,     // text_: the value so far, less what was streamed
    kBetween,   // behind an argument. text_: what is there
    // Behind a call inside the reasoning, which is one if the turn ends here. text_ is not used: white space goes to source_.
    kAfterCall,
  };

  void Say(std::string_view text, Events& events);
  void Outside(Mark mark, Events& events);
  bool Inside(Mark mark, Events& events);  // false, and nothing done, if the mark can't stand here
  void BeginCall();
  bool TakeName(std::string_view text);
  bool TakeKey(std::string_view text);
  void BeginValue(bool tagged, Events& events);
  void EndValue(Events& events);
  void EndCall(Events& events);
  void Queue(AnswerEvent::Kind kind, std::string text);
  void Commit(Events& events);
  void GiveUp(Events& events);

  std::shared_ptr<const ToolSchemas> tools_;
  bool reasoning_, stream_arguments_;
  bool answered_ = false;  // the answer proper has begun with more than white space
  At at_ = At::kOutside;
  bool fresh_ = false;  // no text came after last_
  Mark last_ = Mark::kThink;
  // A call, or several inside the reasoning.
  std::string
      source_;  // what was read and is in no event that was sent: the text it is if it turns out to be no call
  Events queue_;       // not sent yet
  bool sent_ = false;  // some of the call's events were sent: it can't be taken back
  size_t calls_ = 0, calls_before_ = 0;
  std::string text_, name_, key_;
  std::set<std::string, std::less<>> keys_;
  bool streaming_ = false;  // at kValue: its characters are sent as they come
  bool tagged_ = true;      // at kValue: it began with its tag
};

}  // namespace glint::text
