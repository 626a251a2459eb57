#include "cli/progress_bar.h"

#include <gtest/gtest.h>

#include <vector>

namespace glint::cli {
namespace {

struct Screen {
  double now = 100;
  std::vector<std::string> drawn;
};

TEST(ProgressBar, ShowsNothingForShortWork) {
  Screen screen;
  ProgressBar bar(
      "loading", Unit::kBytes, [&] { return screen.now; },
      [&](std::string_view text) { screen.drawn.emplace_back(text); }, 80);
  for (int i = 0; i <= 10; ++i, screen.now += 0.15) bar.Update(static_cast<uint64_t>(i), 10);
  bar.Finish();
  EXPECT_TRUE(screen.drawn.empty()) << screen.drawn.front();
}

TEST(ProgressBar, ShowsNothingWithoutATerminal) {
  Screen screen;
  ProgressBar bar(
      "loading", Unit::kBytes, [&] { return screen.now; },
      [&](std::string_view text) { screen.drawn.emplace_back(text); }, 0);
  for (int i = 0; i <= 10; ++i, screen.now += 5) bar.Update(static_cast<uint64_t>(i), 10);
  EXPECT_TRUE(screen.drawn.empty());
}

TEST(ProgressBar, LongWorkIsDrawnSeldomAndErasedAtTheEnd) {
  Screen screen;
  {
    ProgressBar bar(
        "loading", Unit::kBytes, [&] { return screen.now; },
        [&](std::string_view text) { screen.drawn.emplace_back(text); }, 80);
    for (int i = 0; i <= 10000; ++i, screen.now += 0.001)
      bar.Update(static_cast<uint64_t>(i) * 1000000, 10000000000);
  }
  ASSERT_GT(screen.drawn.size(), 10u);
  EXPECT_LT(screen.drawn.size(), 110u);  // ten a second
  EXPECT_EQ(screen.drawn.back(), "\r\x1b[K");
  const std::string& middle = screen.drawn[screen.drawn.size() / 2];
  EXPECT_NE(middle.find("of 10.0 GB"), std::string::npos) << middle;
  EXPECT_NE(middle.find('#'), std::string::npos) << middle;
  EXPECT_NE(middle.find("left"), std::string::npos) << middle;
}

TEST(ProgressBar, FitsTheTerminal) {
  for (const int columns : {1, 2, 8, 20, 40, 60, 80, 200}) {
    Screen screen;
    ProgressBar bar(
        "reading the prompt", Unit::kTokens, [&] { return screen.now; },
        [&](std::string_view text) { screen.drawn.emplace_back(text); }, columns);
    for (uint64_t i = 0; i <= 1000; i += 100, screen.now += 1) bar.Update(i, 1000);
    ASSERT_FALSE(screen.drawn.empty());
    for (const std::string& line : screen.drawn) {
      EXPECT_LE(line.size(), static_cast<size_t>(columns) + std::string("\r\x1b[K").size()) << line;
    }
  }
}

TEST(ProgressBar, StandsOddNumbers) {
  Screen screen;
  ProgressBar bar(
      "x", Unit::kBytes, [&] { return screen.now; }, [](std::string_view) {}, 80);
  bar.Update(0, 0);
  screen.now += 10;
  bar.Update(5, 0);
  bar.Update(7, 5);
  bar.Update(0, UINT64_MAX);
  screen.now += 10;
  bar.Update(UINT64_MAX, UINT64_MAX);
}

}  // namespace
}  // namespace glint::cli
