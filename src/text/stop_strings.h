// Stop strings in text that comes in pieces.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace glint::text {

// Lets text through up to the first stop string, and holds back just what may be the beginning of one. Of several the match that
// ends first counts, of those that end together the longest: that can be told without waiting for more text, and does not
// depend on how the text was cut. Stop strings are compared as bytes; empty ones are left out.
class StopStrings {
 public:
  explicit StopStrings(const std::vector<std::string>& stops = {});

  // Appends to `out` what has become certain. After a match nothing comes any more.
  void Push(std::string_view text, std::string& out);
  // Appends what was held back: no text follows that could make it a stop string. What is pushed later is matched afresh.
  void Flush(std::string& out);

  bool matched() const { return match_.has_value(); }
  const std::string& match() const { return patterns_[*match_].text; }  // if matched()

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> borders;  // [i]: longest proper border of text[0..i] (Knuth, Morris, Pratt)
    size_t matched = 0;           // longest prefix of `text` that ends where we are
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  std::optional<size_t> match_;  // in patterns_
};

}  // namespace glint::text
