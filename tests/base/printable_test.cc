#include "base/printable.h"

#include <gtest/gtest.h>

#include <random>

namespace glint {
namespace {

TEST(Printable, LeavesOrdinaryTextAlone) {
  EXPECT_EQ(Printable("blk.3.attn_q.weight"), "blk.3.attn_q.weight");
  EXPECT_EQ(Printable("fuchs, 狐狸, 🦊, é"), "fuchs, 狐狸, 🦊, é");
  EXPECT_EQ(Printable(""), "");
}

TEST(Printable, EscapesWhatActsOnTerminals) {
  EXPECT_EQ(Printable("\x1b[2J\x07"), "\\x1b[2J\\x07");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("a\n\r\t\x7f"), "a\\n\\r\\t\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            "\\u{009b}2J");  // C1: another way to write ESC [
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "abc"),
            "\\u{202e}abc");  // right-to-left override
  EXPECT_EQ(Printable("\xef\xbb\xbf"), "\\u{feff}");
  EXPECT_EQ(Printable("\\x1b"), "\\\\x1b");
}

// The examples of ill-formed sequences of the Unicode standard, tables 3-8 to 3-11, and others.
TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(Printable("\xe0\x9f\x80"), "\\xe0\\x9f\\x80");           // overlong
  EXPECT_EQ(Printable("\xf0\x8f\xbf\xbf"), "\\xf0\\x8f\\xbf\\xbf");  // overlong
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(Printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82");  // cut
  EXPECT_EQ(Printable("a\x80z"), "a\\x80z");
  EXPECT_EQ(Printable("\xe2(\xa1"), "\\xe2(\\xa1");
}

// Every code point: encoded here by hand, decoded there.
TEST(Utf8, DecodesEveryCodePointAndNoSurrogate) {
  for (uint32_t c = 0; c <= 0x110000; ++c) {
    std::string s;
    const auto put = [&](uint32_t byte) { s += static_cast<char>(byte); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xc0 | c >> 6), put(0x80 | (c & 63));
    } else if (c < 0x10000) {
      put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
    } else {
      put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
    }
    char32_t decoded = 0;
    const bool scalar = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
    ASSERT_EQ(DecodeUtf8(s, decoded), scalar ? s.size() : 0) << c;
    if (scalar) {
      ASSERT_EQ(uint32_t{decoded}, c);
    }
  }
}

TEST(Printable, OfAnyBytesIsValidAndWithoutControls) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::string s(rng() % 40, '\0');
    for (char& c : s) c = static_cast<char>(rng() % 3 == 0 ? 0x80 + rng() % 64 : rng());
    const std::string out = Printable(s);
    ASSERT_TRUE(ValidUtf8(out));
    for (const char c : out) ASSERT_TRUE(static_cast<uint8_t>(c) >= 0x20 && c != 0x7f);
  }
}

TEST(Quoted, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(Quoted("abc"), "'abc'");
  EXPECT_EQ(Quoted("abcdef", 3), "'abc...'");
  EXPECT_EQ(Quoted("aé", 2), "'a...'");
  EXPECT_EQ(Quoted("狐狸", 5), "'狐...'");
}

}  // namespace
}  // namespace glint
