#include "cli/terminal.h"

#include <gtest/gtest.h>

#include <random>

#include "base/printable.h"

namespace glint::cli {
namespace {

TEST(Terminal, TextKeepsLinesTabsAndBackslashes) {
  EXPECT_EQ(TerminalText("a\n\tb\\c\n"), "a\n\tb\\c\n");
  EXPECT_EQ(TerminalText("grün 漢字 😀"), "grün 漢字 😀");
  EXPECT_EQ(TerminalText(""), "");
}

TEST(Terminal, TextShowsWhatCouldSteer) {
  EXPECT_EQ(TerminalText("\x1b[2J").find('\x1b'), std::string::npos);
  EXPECT_EQ(TerminalText("\xc2\x9b"
                         "2J")
                .find('\xc2'),
            std::string::npos);  // C1 CSI
  EXPECT_EQ(TerminalText("over\rwritten").find('\r'), std::string::npos);
  EXPECT_NE(TerminalText("\xff"), "\xff");
}

TEST(Terminal, AnyBytesComeOutHarmless) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int repeat = 0; repeat < 1000; ++repeat) {
    std::string bytes(rng() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng() % 256);
    const std::string text = TerminalText(bytes);
    ASSERT_TRUE(ValidUtf8(text));
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      ASSERT_TRUE(byte >= 0x20 || byte == '\n' || byte == '\t');
      ASSERT_NE(byte, 0x7f);
    }
  }
}

}  // namespace
}  // namespace glint::cli
