#include "serve/replay.h"

#include <set>
#include <string>

namespace glint::serve {
namespace {

// Tokens that mean something to templates: control tokens, and the marks of reasoning and of calls, which are none.
class Marks {
 public:
  explicit Marks(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    for (const char* mark : {"<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
                             "<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>"}) {
      if (const int32_t id = tokenizer.Find(mark); id >= 0) ids_.insert(id);
    }
  }
  // The tokens from `at` up to the next mark.
  std::span<const int32_t> Stretch(std::span<const int32_t> ids, size_t at) const {
    size_t end = at;
    while (end < ids.size() && !tokenizer_.IsSpecial(ids[end]) && !ids_.contains(ids[end])) ++end;
    return ids.subspan(at, end - at);
  }

 private:
  const Tokenizer& tokenizer_;
  std::set<int32_t> ids_;
};

bool SameText(const Tokenizer& tokenizer, std::span<const int32_t> a, std::span<const int32_t> b) {
  // What is equal at both ends needs no decoding.
  while (!a.empty() && !b.empty() && a.front() == b.front()) a = a.subspan(1), b = b.subspan(1);
  if (a.empty() && b.empty()) return true;
  const Result<std::string> text_a = tokenizer.Decode(a), text_b = tokenizer.Decode(b);
  return text_a.ok() && text_b.ok() && *text_a == *text_b;
}

}  // namespace

std::vector<int32_t> WithHistory(const Tokenizer& tokenizer, std::span<const int32_t> history,
                                 std::vector<int32_t> rendered) {
  if (history.empty()) return rendered;
  const Marks marks(tokenizer);
  size_t h = 0, r = 0;  // both say the same up to here
  while (h < history.size() && r < rendered.size()) {
    const auto old = marks.Stretch(history, h), now = marks.Stretch(rendered, r);
    if (!SameText(tokenizer, old, now)) break;
    h += old.size();
    r += now.size();
    if (h == history.size() || r == rendered.size() || history[h] != rendered[r]) break;
    ++h, ++r;  // the mark
  }
  std::vector<int32_t> all(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(h));
  all.insert(all.end(), rendered.begin() + static_cast<std::ptrdiff_t>(r), rendered.end());
  return all;
}

}  // namespace glint::serve
