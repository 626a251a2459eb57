// Random texts that meet the pre-tokenizer's boundaries often.
#pragma once
#include <random>
#include <string>
#include <string_view>

#include "text/unicode.h"

namespace glint::text {

// Whether Unicode 15.1 or 16.0 made this code point a letter or a number. Our table is Unicode 15.0;
// tokenizers 0.23.3 knows 16.0.
struct NewerRange {
  char32_t first, last;
  unicode::Class kind;
};
inline constexpr NewerRange kNewer[] = {
    {0x1c89, 0x1c8a, unicode::Class::kLetter},   {0xa7cb, 0xa7cd, unicode::Class::kLetter},
    {0xa7da, 0xa7dc, unicode::Class::kLetter},   {0x105c0, 0x105f3, unicode::Class::kLetter},
    {0x10d4a, 0x10d65, unicode::Class::kLetter}, {0x10d6f, 0x10d85, unicode::Class::kLetter},
    {0x10ec2, 0x10ec4, unicode::Class::kLetter}, {0x11380, 0x11389, unicode::Class::kLetter},
    {0x1138b, 0x1138b, unicode::Class::kLetter}, {0x1138e, 0x1138e, unicode::Class::kLetter},
    {0x11390, 0x113b5, unicode::Class::kLetter}, {0x113b7, 0x113b7, unicode::Class::kLetter},
    {0x113d1, 0x113d1, unicode::Class::kLetter}, {0x113d3, 0x113d3, unicode::Class::kLetter},
    {0x11bc0, 0x11be0, unicode::Class::kLetter}, {0x13460, 0x143fa, unicode::Class::kLetter},
    {0x16100, 0x1611d, unicode::Class::kLetter}, {0x16d40, 0x16d6c, unicode::Class::kLetter},
    {0x18cff, 0x18cff, unicode::Class::kLetter}, {0x1e5d0, 0x1e5ed, unicode::Class::kLetter},
    {0x1e5f0, 0x1e5f0, unicode::Class::kLetter}, {0x2ebf0, 0x2ee5d, unicode::Class::kLetter},
    {0x10d40, 0x10d49, unicode::Class::kNumber}, {0x116d0, 0x116e3, unicode::Class::kNumber},
    {0x11bf0, 0x11bf9, unicode::Class::kNumber}, {0x16130, 0x16139, unicode::Class::kNumber},
    {0x16d70, 0x16d79, unicode::Class::kNumber}, {0x1ccf0, 0x1ccf9, unicode::Class::kNumber},
    {0x1e5f1, 0x1e5fa, unicode::Class::kNumber}};

inline bool NewerThanTable(char32_t c) {
  for (const auto& range : kNewer) {
    if (c >= range.first && c <= range.last) return true;
  }
  return false;
}

inline std::string RandomBytes(std::mt19937_64& rng, size_t longest) {
  std::string out(rng() % (longest + 1), '\0');
  for (char& c : out) c = static_cast<char>(rng());
  return out;
}

// Up to `longest` fragments of valid UTF-8: words, contractions, digits, white space, marks, CJK, emoji, any
// code point.
inline std::string RandomText(std::mt19937_64& rng, size_t longest) {
  static constexpr std::string_view kFragments[] = {" ",
                                                    " ",
                                                    " ",
                                                    "  ",
                                                    "\t",
                                                    "\n",
                                                    "\r\n",
                                                    "\n\n",
                                                    "\xc2\xa0",
                                                    "\xe3\x80\x80",
                                                    "\xc2\x85",
                                                    "\v",
                                                    "'",
                                                    "'s",
                                                    "'LL",
                                                    "'re",
                                                    "'Ve",
                                                    "'\xc5\xbf",
                                                    "0",
                                                    "1",
                                                    "42",
                                                    "1234",
                                                    "\xd9\xa3",
                                                    "\xe2\x85\xa7",
                                                    "\xc2\xbd",
                                                    ".",
                                                    ",",
                                                    "!?",
                                                    "--",
                                                    "<",
                                                    "|>",
                                                    "$",
                                                    "\xe2\x80\x94",
                                                    "the",
                                                    "fox",
                                                    "Once",
                                                    "upon",
                                                    "a",
                                                    "time",
                                                    "there",
                                                    "ing",
                                                    "tion",
                                                    "\xc3\xa9t\xc3\xa9",
                                                    "e\xcc\x81",
                                                    "\xcc\x88",
                                                    "\xe4\xb8\xad\xe6\x96\x87",
                                                    "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e",
                                                    "\xe3\x81\xb2\xe3\x82\x89",
                                                    "\xed\x95\x9c\xea\xb5\xad",
                                                    "\xd0\xa0\xd1\x83\xd1\x81",
                                                    "\xd8\xb9\xd8\xb1\xd8\xa8",
                                                    "\xf0\x9f\x98\x80",
                                                    "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7",
                                                    "\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa",
                                                    "\xf0\x9d\x94\x98",
                                                    "\xe2\x80\x8b",
                                                    "\xef\xbb\xbf",
                                                    "\xf0\xa0\x80\x80",
                                                    "<think",
                                                    "<|user|",
                                                    "[gMASK",
                                                    "aaaa",
                                                    "AAA"};
  std::string out;
  for (size_t n = rng() % (longest + 1); n > 0; --n) {
    const uint64_t pick = rng() % 10;
    if (pick < 8) {
      out += kFragments[rng() % std::size(kFragments)];
      continue;
    }
    char32_t c = static_cast<char32_t>(pick == 8 ? rng() % 0x3000 : rng() % 0x110000);
    if ((c >= 0xd800 && c < 0xe000) || NewerThanTable(c)) c = 0xfffd;
    unicode::Append(c, out);
  }
  return out;
}

}  // namespace glint::text
