#include "text/unicode.h"

namespace glint::text::unicode {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

// Table 3-7 of the Unicode Standard: only the second byte's range depends on the first.
Unit Read(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {Unit::State::kValid, 1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {Unit::State::kInvalid, 1, 0};
  const uint8_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t code_point = lead & (0x7f >> length);
  for (uint8_t i = 1; i < length; ++i) {
    if (i >= bytes.size()) return {Unit::State::kTruncated, i, 0};
    uint8_t low = 0x80, high = 0xbf;
    if (i == 1) {
      if (lead == 0xe0) low = 0xa0;   // overlong
      if (lead == 0xed) high = 0x9f;  // surrogates
      if (lead == 0xf0) low = 0x90;   // overlong
      if (lead == 0xf4) high = 0x8f;  // above U+10FFFF
    }
    if (at(i) < low || at(i) > high) return {Unit::State::kInvalid, i, 0};
    code_point = code_point << 6 | (at(i) & 0x3f);
  }
  return {Unit::State::kValid, length, code_point};
}

void Append(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6), put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 0x3f)), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  }
}

void MoveWhole(std::string& pending, std::string& out) {
  std::string_view rest = pending;
  while (!rest.empty()) {
    const Unit unit = Read(rest);
    if (unit.state == Unit::State::kTruncated) break;
    out += unit.state == Unit::State::kValid ? rest.substr(0, unit.length) : kReplacement;
    rest.remove_prefix(unit.length);
  }
  pending.erase(0, pending.size() - rest.size());
}

void MoveRest(std::string& pending, std::string& out) {
  if (!pending.empty()) out += kReplacement;  // at most three bytes, one maximal subpart
  pending.clear();
}

}  // namespace glint::text::unicode
