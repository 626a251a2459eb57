#include "text/stop_strings.h"

#include <algorithm>

namespace glint::text {

StopStrings::StopStrings(const std::vector<std::string>& stops) {
  for (const std::string& text : stops) {
    if (text.empty()) continue;
    Pattern& pattern = patterns_.emplace_back();
    pattern.text = text;
    pattern.borders.assign(text.size(), 0);
    for (size_t i = 1; i < text.size(); ++i) {
      size_t border = pattern.borders[i - 1];
      while (border > 0 && text[i] != text[border]) border = pattern.borders[border - 1];
      pattern.borders[i] = border + (text[i] == text[border] ? 1 : 0);
    }
  }
}

void StopStrings::Push(std::string_view text, std::string& out) {
  if (matched()) return;
  const size_t before = held_.size();
  held_ += text;
  for (size_t i = before; i < held_.size(); ++i) {
    for (size_t n = 0; n < patterns_.size(); ++n) {
      Pattern& p = patterns_[n];
      while (p.matched > 0 && held_[i] != p.text[p.matched]) p.matched = p.borders[p.matched - 1];
      if (held_[i] == p.text[p.matched]) ++p.matched;
      if (p.matched == p.text.size() && (!matched() || match().size() < p.text.size())) match_ = n;
    }
    if (!matched()) continue;
    out.append(held_, 0, i + 1 - match().size());
    held_.clear();
    return;
  }
  size_t keep = 0;
  for (const Pattern& p : patterns_) keep = std::max(keep, p.matched);
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
}

void StopStrings::Flush(std::string& out) {
  out += held_;
  held_.clear();
  for (Pattern& p : patterns_) p.matched = 0;
}

}  // namespace glint::text
