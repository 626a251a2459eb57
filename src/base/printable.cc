#include "base/printable.h"

#include <fmt/core.h>

namespace glint {
namespace {

bool Unprintable(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f)       // C0, DEL, C1
         || c == 0xad || c == 0x61c || c == 0xfeff  // soft hyphen, Arabic letter mark, byte order mark
         || (c >= 0x200b && c <= 0x200f)            // zero width, left-to-right and right-to-left marks
         || (c >= 0x2028 && c <= 0x202e)            // line and paragraph separators, embeddings and overrides
         || (c >= 0x2060 && c <= 0x206f)            // invisible operators, isolates
         || (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);  // annotations, tags
}

void Escape(char32_t c, std::string& out) {
  switch (c) {
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    case '\\':
      out += "\\\\";
      break;
    default:
      out += c < 0x80 ? fmt::format("\\x{:02x}", uint32_t{c}) : fmt::format("\\u{{{:04x}}}", uint32_t{c});
  }
}

}  // namespace

size_t DecodeUtf8(std::string_view text, char32_t& code_point) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (text.empty()) return 0;
  const uint8_t first = byte(0);
  if (first < 0x80) {
    code_point = first;
    return 1;
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  char32_t c = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
    c = c << 6 | (byte(i) & 0x3fu);
  }
  if ((length == 3 && c < 0x800) || (length == 4 && c < 0x10000) || c > 0x10ffff ||
      (c >= 0xd800 && c <= 0xdfff))
    return 0;
  code_point = c;
  return length;
}

bool ValidUtf8(std::string_view text) {
  char32_t c = 0;
  while (!text.empty()) {
    const size_t length = DecodeUtf8(text, c);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    char32_t c = 0;
    size_t length = DecodeUtf8(text, c);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[0]));
      length = 1;
    } else if (Unprintable(c) || c == '\\') {
      Escape(c, out);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string Quoted(std::string_view text, size_t limit) {
  if (text.size() <= limit) return "'" + Printable(text) + "'";
  size_t cut = limit;  // not in the middle of a character
  while (cut > 0 && limit - cut < 3 && (static_cast<uint8_t>(text[cut]) & 0xc0u) == 0x80u) --cut;
  return "'" + Printable(text.substr(0, cut)) + "...'";
}

}  // namespace glint
