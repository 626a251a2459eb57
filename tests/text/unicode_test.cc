#include "text/unicode.h"

#include <gtest/gtest.h>

#include <charconv>
#include <map>

#include "tests/text/random_text.h"
#include "tests/text/referee.h"

namespace glint::text::unicode {
namespace {

// Every code point, as its definition spells it.
TEST(Unicode, ReadsWhatItAppends) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string bytes;
    Append(c, bytes);
    const Unit unit = Read(bytes + "x");
    ASSERT_EQ(unit.state, Unit::State::kValid) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(unit.length, bytes.size());
    ASSERT_EQ(unit.code_point, c);
    for (size_t n = 1; n < bytes.size(); ++n) {
      ASSERT_EQ(Read(bytes.substr(0, n)).state, Unit::State::kTruncated);
      ASSERT_EQ(Read(bytes.substr(0, n)).length, n);
      ASSERT_EQ(Read(bytes.substr(0, n) + "x").state, Unit::State::kInvalid);
      ASSERT_EQ(Read(bytes.substr(0, n) + "x").length, n);
    }
  }
}

// The counts follow from the encoding: 0x110000 - 0x800 scalar values by length.
TEST(Unicode, AcceptsNoOtherBytes) {
  std::map<size_t, uint64_t> valid;
  std::string bytes(4, '\0');
  // The last of four bytes is 0x80, for each of the 64 that may stand there.
  for (uint32_t high = 0; high < 0x1000000; ++high) {
    bytes[0] = static_cast<char>(high >> 16), bytes[1] = static_cast<char>(high >> 8),
    bytes[2] = static_cast<char>(high);
    bytes[3] = '\x80';
    const Unit unit = Read(bytes);
    if (unit.state == Unit::State::kValid) ++valid[unit.length];
    ASSERT_LE(unit.length, 4);
    ASSERT_GE(unit.length, 1);
  }
  EXPECT_EQ(valid[1], 0x80u << 16);
  EXPECT_EQ(valid[2], 0x780u << 8);
  EXPECT_EQ(valid[3], 0x10000u - 0x800u - 0x800u);
  EXPECT_EQ(valid[4], 0x100000u / 64);  // the last byte stands for 64
}

TEST(Unicode, SurrogatesAndOverlongFormsAreNotValid) {
  for (const std::string_view bytes :
       {"\xed\xa0\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\x80", "\xff"}) {
    EXPECT_NE(Read(bytes).state, Unit::State::kValid) << Hex(bytes);
    EXPECT_EQ(Read(bytes).length, 1) << Hex(bytes);
  }
}

TEST(Unicode, ClassesAreTheReferencesButForNewerLetters) {
  if (!HasReferee()) GTEST_SKIP() << NoReferee();
  const auto answer = AskReferee("referee_tokenizer.py", "classes", {});
  ASSERT_TRUE(answer && answer->size() == 3);
  std::vector<Class> want(0x110000, Class::kOther);
  const Class kinds[] = {Class::kLetter, Class::kNumber, Class::kSpace};
  for (size_t i = 0; i < 3; ++i) {
    const std::string& line = (*answer)[i];
    const char* at = line.data();
    const char* const end = at + line.size();
    while (at < end) {
      uint32_t first = 0, last = 0;
      at = std::from_chars(at, end, first).ptr + 1;
      at = std::from_chars(at, end, last).ptr + 1;
      for (uint32_t c = first; c <= last; ++c) want[c] = kinds[i];
    }
  }
  for (const auto& range : kNewer) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      EXPECT_EQ(want[c], range.kind) << std::hex << static_cast<uint32_t>(c);
      EXPECT_EQ(ClassOf(c), Class::kOther) << std::hex << static_cast<uint32_t>(c);
      want[c] = Class::kOther;
    }
  }
  for (uint32_t c = 0; c < 0x110000; ++c) ASSERT_EQ(ClassOf(c), want[c]) << std::hex << c;
  EXPECT_EQ(ClassOf(0x110000), Class::kOther);
}

}  // namespace
}  // namespace glint::text::unicode
