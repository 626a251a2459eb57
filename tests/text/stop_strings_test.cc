#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace glint::text {
namespace {

struct Found {
  std::string text, match;  // match is empty if there is none
};

Found Feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings filter(stops);
  std::string out;
  for (const auto& piece : pieces) filter.Push(piece, out);
  if (!filter.matched()) filter.Flush(out);
  return {out, filter.matched() ? filter.match() : ""};
}

TEST(StopStrings, ByHand) {
  struct Case {
    std::vector<std::string> stops, pieces;
    std::string text, match;
  };
  for (const Case& c : std::vector<Case>{
           {{}, {"all", " of it"}, "all of it", ""},
           {{""}, {"all"}, "all", ""},
           {{"END"}, {"abcEN", "D"}, "abc", "END"},
           {{"END"}, {"abcE", "N", "Dxyz"}, "abc", "END"},
           {{"END"}, {"EEND"}, "E", "END"},
           {{"END"}, {"ENEND"}, "EN", "END"},
           {{"END"}, {"abcEN"}, "abcEN", ""},
           {{"END"}, {"abcEN", "X"}, "abcENX", ""},
           {{"aab"}, {"a", "a", "a", "b"}, "a", "aab"},
           {{"abcd", "bc"}, {"xabcd"}, "xa", "bc"},      // ends first
           {{"c", "abc", "bc"}, {"xabcd"}, "x", "abc"},  // end together: the longest
           {{"ha ha"}, {"ha ha ha"}, "", "ha ha"},
           {{"\xf0\x9f\x98\x80"}, {"a\xf0\x9f\x98\x80"}, "a", "\xf0\x9f\x98\x80"},
           {{"stop"}, {"stop"}, "", "stop"},
       }) {
    const Found found = Feed(c.stops, c.pieces);
    EXPECT_EQ(found.text, c.text);
    EXPECT_EQ(found.match, c.match);
  }
}

TEST(StopStrings, NothingComesAfterAMatch) {
  StopStrings filter({"x"});
  std::string out;
  filter.Push("ax", out);
  filter.Push("b", out);
  filter.Flush(out);
  EXPECT_EQ(out, "a");
  EXPECT_EQ(filter.match(), "x");
}

// A match must not span a place where the text was interrupted.
TEST(StopStrings, FlushStartsAfresh) {
  StopStrings filter({"ab"});
  std::string out;
  filter.Push("a", out);
  EXPECT_EQ(out, "");
  filter.Flush(out);
  filter.Push("b", out);
  EXPECT_EQ(out, "ab");
  EXPECT_FALSE(filter.matched());
}

// Against a search in the whole text, from texts of few letters; and at every step no more is held back than must be.
TEST(StopStrings, EqualsASearchHoweverTheTextIsCut) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto word = [&](size_t longest) {
    std::string out(rng() % (longest + 1), 'a');
    for (char& c : out) c = static_cast<char>('a' + rng() % 2);
    return out;
  };
  size_t matches = 0;
  for (int repeat = 0; repeat < 20000; ++repeat) {
    std::vector<std::string> stops(rng() % 4);
    for (auto& stop : stops) stop = word(7);
    const std::string text = word(20);

    std::string want = text, match;
    for (size_t end = 1; end <= text.size() && match.empty(); ++end) {
      for (const auto& stop : stops) {
        if (text.substr(0, end).ends_with(stop) && stop.size() > match.size()) match = stop;
      }
      if (!match.empty()) want = text.substr(0, end - match.size());
    }
    matches += match.empty() ? 0 : 1;

    StopStrings filter(stops);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t length = std::min<size_t>(rng() % 5, text.size() - at);
      filter.Push(text.substr(at, length), out);
      at += length;
      if (filter.matched()) break;
      size_t held = 0;
      for (const auto& stop : stops) {
        for (size_t n = 1; n < stop.size(); ++n) {
          if (text.substr(0, at).ends_with(stop.substr(0, n))) held = std::max(held, n);
        }
      }
      ASSERT_EQ(out, text.substr(0, at - held));
    }
    ASSERT_EQ(filter.matched(), !match.empty());
    ASSERT_EQ(filter.matched() ? filter.match() : "", match);
    filter.Flush(out);
    ASSERT_EQ(out, want) << text;
  }
  EXPECT_GT(matches, 1000);
}

}  // namespace
}  // namespace glint::text
