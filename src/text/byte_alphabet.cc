#include "text/byte_alphabet.h"

#include <array>

#include "text/unicode.h"

namespace glint::text {
namespace {

constexpr int kAlphabetEnd = 0x100 + 68;

struct Alphabet {
  std::array<char32_t, 256> char_of = {};
  std::array<int16_t, kAlphabetEnd> byte_of = {};  // -1: not of the alphabet
};

constexpr Alphabet MakeAlphabet() {
  Alphabet a;
  a.byte_of.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    const char32_t c = printable ? static_cast<char32_t>(byte) : next++;
    a.char_of[byte] = c;
    a.byte_of[c] = static_cast<int16_t>(byte);
  }
  return a;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

char32_t AlphabetChar(uint8_t byte) { return kAlphabet.char_of[byte]; }

std::string ToAlphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) unicode::Append(AlphabetChar(static_cast<uint8_t>(c)), out);
  return out;
}

std::optional<std::string> FromAlphabet(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const unicode::Unit unit = unicode::Read(text);
    if (unit.state != unicode::Unit::State::kValid || unit.code_point >= kAlphabetEnd) return std::nullopt;
    const int16_t byte = kAlphabet.byte_of[unit.code_point];
    if (byte < 0) return std::nullopt;
    out.push_back(static_cast<char>(byte));
    text.remove_prefix(unit.length);
  }
  return out;
}

}  // namespace glint::text
