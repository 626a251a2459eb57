// Regular expressions and number ranges, against other ways to say the same.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <random>

#include "grammar/numbers.h"
#include "grammar/regex.h"
#include "tests/grammar/texts.h"
#include "tests/text/referee.h"

namespace glint::grammar {
namespace {

std::u32string Wide32(const std::string& text) { return {text.begin(), text.end()}; }

TEST(Numbers, WholeOnesBetweenBounds) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto any = [&] {
    const int64_t n = static_cast<int64_t>(rng() % 4 == 0   ? rng() % 12
                                           : rng() % 4 == 0 ? rng() % 130
                                                            : rng() % 20'000);
    return rng() % 2 ? n : -n;
  };
  for (int round = 0; round < 60; ++round) {
    const int64_t lo = any(), hi = any();
    const bool has_lo = rng() % 4 != 0, has_hi = rng() % 4 != 0;
    const auto dfa = WholeNumbers(has_lo ? std::optional<Wide>(lo) : std::nullopt,
                                  has_hi ? std::optional<Wide>(hi) : std::nullopt);
    ASSERT_TRUE(dfa.ok()) << dfa.status().message();
    for (int i = 0; i < 200; ++i) {
      const int64_t n = i < 5 ? lo + i - 2 : i < 10 ? hi + i - 7 : any();
      const bool in = (!has_lo || n >= lo) && (!has_hi || n <= hi);
      EXPECT_EQ(dfa->Accepts(Wide32(std::to_string(n))), in)
          << n << " in " << lo << " " << hi << has_lo << has_hi;
      EXPECT_FALSE(dfa->Accepts(Wide32("0" + std::to_string(n))));
    }
    EXPECT_FALSE(dfa->Accepts(U"-0"));
  }
}

TEST(Numbers, DecimalsBetweenBounds) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto any = [&] {  // in thousandths
    const int64_t n = static_cast<int64_t>(rng() % 3 == 0   ? rng() % 30 * 100
                                           : rng() % 3 == 0 ? rng() % 2000
                                                            : rng() % 200'000);
    return rng() % 2 ? n : -n;
  };
  const auto text = [](int64_t n) {
    return fmt::format("{}{}.{:03}", n < 0 ? "-" : "", std::abs(n) / 1000, std::abs(n) % 1000);
  };
  for (int round = 0; round < 60; ++round) {
    const int64_t lo = any(), hi = any();
    const bool has_lo = rng() % 4 != 0, has_hi = rng() % 4 != 0, open_lo = rng() % 2, open_hi = rng() % 2;
    std::optional<Bound> least, most;
    if (has_lo) least = Bound{text(lo), open_lo};
    if (has_hi) most = Bound{text(hi), open_hi};
    const auto dfa = Decimals(least, most);
    ASSERT_TRUE(dfa.ok()) << dfa.status().message();
    for (int i = 0; i < 200; ++i) {
      const int64_t n = i < 5 ? lo + i - 2 : i < 10 ? hi + i - 7 : any();
      const bool in =
          (!has_lo || n > lo || (n == lo && !open_lo)) && (!has_hi || n < hi || (n == hi && !open_hi));
      std::string t = text(n);
      if (n == 0) t = "0";  // never with a minus
      EXPECT_EQ(dfa->Accepts(Wide32(t)), in)
          << t << " in " << text(lo) << open_lo << " " << text(hi) << open_hi << has_lo << has_hi;
      while (t.find('.') != std::string::npos && t.back() == '0') t.pop_back();
      if (t.back() == '.') t.pop_back();
      EXPECT_EQ(dfa->Accepts(Wide32(t)), in)
          << t << " in " << text(lo) << open_lo << " " << text(hi) << open_hi << has_lo << has_hi;
    }
  }
}

// Random expressions over a small alphabet, and random texts: Python's re finds the same.
std::string RandomRegex(std::mt19937_64& rng, int depth) {
  static const char* const kAtoms[] = {"a",   "b", "c",   "[ab]",   "[^a]",  ".", "\\d",
                                       "\\w", "1", "\\.", "[a-c1]", "\\x61", "-"};
  std::string out;
  for (size_t n = 1 + rng() % 3; n > 0; --n) {
    std::string atom;
    if (depth > 0 && rng() % 3 == 0)
      atom = (rng() % 2 ? "(?:" : "(") + RandomRegex(rng, depth - 1) + ")";
    else
      atom = kAtoms[rng() % std::size(kAtoms)];
    static const char* const kTimes[] = {"", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"};
    out += atom + kTimes[rng() % std::size(kTimes)];
  }
  if (rng() % 4 == 0) out += "|" + RandomRegex(rng, depth - 1 > 0 ? depth - 1 : 0);
  return out;
}

TEST(Regex, FindsWhatPythonFinds) {
  if (!text::HasReferee()) GTEST_SKIP() << text::NoReferee();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  std::vector<std::string> lines, named;
  std::vector<bool> found;
  for (int round = 0; round < 300; ++round) {
    std::string pattern = RandomRegex(rng, 2);
    if (rng() % 3 == 0) pattern = "^" + pattern;
    if (rng() % 3 == 0) pattern += "$";
    const auto dfa = CompileRegex(pattern);
    if (!dfa.ok() && dfa.status().code() == Code::kUnsupported) continue;
    ASSERT_TRUE(dfa.ok()) << dfa.status().message();
    for (int i = 0; i < 20; ++i) {
      std::string t;
      for (size_t n = rng() % 8; n > 0; --n) t += "abc1.-_"[rng() % 7];
      found.push_back(dfa->Accepts(Wide32(t)));
      lines.push_back(text::Hex(pattern) + " " + text::Hex(t));
      named.push_back(pattern + " in " + t);
    }
  }
  const auto answers = text::AskReferee("../grammar/referee_regex.py", "", lines);
  ASSERT_TRUE(answers && answers->size() == lines.size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ((*answers)[i], found[i] ? "1" : "0") << named[i];
}

}  // namespace
}  // namespace glint::grammar
