// A model's answer on its way to the screen: reasoning told from the answer proper, and both made safe to show.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "glint/tokenizer.h"

namespace glint::cli {

// Where text goes and in what form.
struct AnswerStyle {
  bool terminal = false;        // stdout is one: control characters are made visible
  bool colour = false;          // reasoning is dimmed
  bool show_reasoning = false;  // else it is only collected
  bool silent = false;          // nothing is written (--json)
  bool end_line = false;        // Finish completes the last line
  bool raw = false;             // a continuation, not an answer: <think> is text like any other
};
// As stdout is now: a terminal shows reasoning, a pipe gets the answer alone.
AnswerStyle StyleOfStdout();

// Takes ids, writes text to stdout as soon as its characters are complete, and collects both parts.
class Answer {
 public:
  // `prompt`: the ids the model continues; they tell whether it starts inside <think>.
  Answer(const Tokenizer& tokenizer, std::span<const int32_t> prompt, AnswerStyle style);

  Status Push(int32_t id);
  // What is left, and (end_line) a final newline if the text did not end with one.
  Status Finish();

  const std::string& content() const { return content_; }
  const std::string& reasoning() const { return reasoning_; }
  bool thinking() const { return thinking_; }

 private:
  Status Emit(const std::string& text);
  Status Switch(bool thinking);

  const Tokenizer& tokenizer_;
  AnswerStyle style_;
  int32_t open_id_, close_id_;
  bool thinking_ = false, at_line_start_ = true, dimmed_ = false, skip_newlines_ = false;
  std::optional<TextStream> stream_;
  std::string content_, reasoning_;
};

}  // namespace glint::cli
