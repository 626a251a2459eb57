#include "cli/answer.h"

#include <unistd.h>

#include <algorithm>

#include "cli/output.h"
#include "cli/terminal.h"

namespace glint::cli {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kPlain = "\x1b[0m";

}  // namespace

AnswerStyle StyleOfStdout() {
  AnswerStyle style;
  style.terminal = IsTerminal(STDOUT_FILENO);
  style.colour = WantsColour(STDOUT_FILENO);
  style.show_reasoning = style.terminal;
  style.end_line = style.terminal || StreamsAreOne();  // else the summary would stand in the text's last line
  return style;
}

Answer::Answer(const Tokenizer& tokenizer, std::span<const int32_t> prompt, AnswerStyle style)
    : tokenizer_(tokenizer),
      style_(style),
      open_id_(style.raw ? -1 : tokenizer.Find("<think>")),
      close_id_(style.raw ? -1 : tokenizer.Find("</think>")),
      stream_(tokenizer.Stream()) {
  for (const int32_t id : prompt) {
    if (id == open_id_) thinking_ = true;
    if (id == close_id_) thinking_ = false;
  }
}

Status Answer::Push(int32_t id) {
  if (id == open_id_ && !thinking_) return Switch(true);
  if (id == close_id_ && thinking_) return Switch(false);
  return Emit(stream_->Push(id));
}

Status Answer::Finish() {
  Status status = Emit(stream_->Finish());
  if (!status.ok()) return status;
  std::string end;
  if (dimmed_) end += kPlain;
  dimmed_ = false;
  if (style_.end_line && !at_line_start_) end += '\n';
  at_line_start_ = true;
  return style_.silent ? Status() : Print(end);
}

Status Answer::Switch(bool thinking) {
  Status status = Emit(stream_->Finish());
  if (!status.ok()) return status;
  stream_.emplace(tokenizer_.Stream());
  thinking_ = thinking;
  if (style_.silent || !style_.show_reasoning) return {};
  std::string between;
  if (dimmed_) between += kPlain;
  dimmed_ = false;
  if (!at_line_start_) between += '\n';
  if (!thinking && !reasoning_.empty()) between += '\n', skip_newlines_ = true;
  at_line_start_ = true;
  return Print(between);
}

Status Answer::Emit(const std::string& text) {
  if (text.empty()) return {};
  (thinking_ ? reasoning_ : content_) += text;
  if (style_.silent || (thinking_ && !style_.show_reasoning)) return {};
  std::string shown = text;
  if (skip_newlines_) {  // the separation after the reasoning is ours; models bring their own too
    shown.erase(0, std::min(shown.find_first_not_of('\n'), shown.size()));
    if (shown.empty()) return {};
    skip_newlines_ = false;
  }
  at_line_start_ = shown.back() == '\n';
  if (style_.terminal) shown = TerminalText(shown);
  if (thinking_ && style_.colour && !dimmed_) {
    shown.insert(0, kDim);
    dimmed_ = true;
  }
  return Print(shown);
}

}  // namespace glint::cli
