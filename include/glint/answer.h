// A model's answer as it comes, token by token: reasoning, text and tool calls told from one another, stop strings found.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"
#include "glint/tokenizer.h"

namespace glint {

// How an answer ended.
enum class AnswerEnd : uint8_t {
  kTurn,        // the model gave one of the tokenizer's stop ids
  kStopString,  // one of the caller's stop strings was found
  kCut,         // Finish: a limit was reached, or nobody waits any more
};

// One step of an answer. The `text` of every event is well-formed UTF-8.
struct AnswerEvent {
  enum class Kind : uint8_t {
    kReasoning,      // text: more of the reasoning
    kText,           // text: more of the answer proper
    kCallBegin,      // text: the name of the tool
    kCallArguments,  // text: more of the arguments' JSON; the pieces of a call together are one JSON object
    kCallEnd,        // the call is complete, or `broken`
    kEnd,            // the last event, once; `end` says why
  };
  Kind kind = Kind::kText;
  std::string text = {};
  size_t call = 0;  // of kCall...: 0, 1, ... in the order of the calls
  // kCallEnd, with stream_arguments alone: what came after the pieces sent so far was no call, or was cut off. Their JSON has no
  // end, and what was not sent follows as kText.
  bool broken = false;
  AnswerEnd end = AnswerEnd::kTurn;  // of kEnd
  bool operator==(const AnswerEvent&) const = default;
};

struct AnswerOptions {
  // Whether the prompt left <think> open: what was rendered decides what an answer begins with (OpensReasoning says it).
  bool in_reasoning = false;
  // The tools of the request, as ChatOptions has them: calls are looked for if there are any. Their schemas say which arguments
  // are strings.
  std::vector<std::string> tools = {};
  // Sends the strings of a call's arguments as they come. Else a call comes as a whole when it is complete, so that one that turns
  // out to be malformed can come as text.
  bool stream_arguments = false;
  // Looked for in the answer proper: not in reasoning, and not in calls.
  std::vector<std::string> stop = {};
  // A continuation, not an answer: all is text, <think> too.
  bool raw = false;
  // Whether the tokenizer's stop ids end the answer; if not, they add nothing to it, as other control tokens do.
  bool end_at_stop_ids = true;
};

// Only real special tokens are marks: a model, as people do, may spell "<think>" or "<tool_call>" in ordinary tokens, and that is
// text. How the text between marks is cut into tokens makes no difference, and nothing is lost:
//   - Reasoning is what comes before </think>, if the prompt or the model itself opens it before anything is said. Later, <think> is
//     a word of the answer, as </think> is.
//   - What looks like a call and is none comes as the text that it was, its tags spelled out. A call is one if its name is that of a
//     tool (or looks like a name) and each argument has its key and its value, with at most one tag missing around each, a tag
//     said twice in a row counting once; no key comes twice; and it ends with </tool_call>, or after an argument where the
//     turn ends or another call begins.
//   - A call inside the reasoning is part of it, unless the turn ends right after it.
//   - A mark where it means nothing is spelled out; other control tokens add nothing.
//   - White space between calls, and between text and a call, is left out (if there are tools), as the template would.
// Bytes that are no UTF-8 become U+FFFD as in TextStream; a mark ends an unfinished character.
//
// Movable. One thread at a time.
class AnswerParser {
 public:
  // kBadInput: a tool that is not a JSON object with a name; a stop string that is not UTF-8.
  static Result<AnswerParser> Create(const Tokenizer& tokenizer, const AnswerOptions& options);
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;
  ~AnswerParser();

  // Takes the next token and appends to `events` what has become certain. After the end (ended()) nothing comes any more.
  // kBadInput for an id out of range.
  Status Push(int32_t id, std::vector<AnswerEvent>& events);
  // The answer ends here, without a stop id. Appends what was held back, and kEnd if it had not ended before.
  Status Finish(std::vector<AnswerEvent>& events);

  bool ended() const;
  // Where the last token left us: inside reasoning; inside a call. After the end: where the answer ended.
  bool in_reasoning() const;
  bool in_call() const;
  // The stop string that ended the answer; empty if none did.
  std::string_view stop_string() const;

 private:
  struct State;
  explicit AnswerParser(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether a prompt ends inside reasoning: its last <think> comes after its last </think>.
bool OpensReasoning(const Tokenizer& tokenizer, std::span<const int32_t> prompt);

}  // namespace glint
