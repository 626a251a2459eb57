// GLM's pre-tokenizer (spec/gguf.md section 8) as a scanner: the pattern
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//   ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// whose alternatives are tried in order at each position; every character is matched by one of them, so the
// pieces cover the text.
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace glint::text {
namespace {

using unicode::Class;

// One character and its class. A byte that belongs to no well-formed character is a character of its own, of
// class kOther: it behaves like a symbol.
struct Char {
  char32_t code_point = 0;  // 0 for an ill-formed byte, which is no letter of any alternative
  Class kind = Class::kOther;
  size_t length = 0;  // 0 at the end of the text
  bool newline() const { return code_point == '\n' || code_point == '\r'; }
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // Length of the piece that begins at `start`, which is before the end.
  size_t Piece(size_t start) const {
    const Char first = At(start);
    if (const size_t n = Contraction(start)) return n;
    if (first.kind == Class::kLetter) return Run(start, Class::kLetter) - start;
    const size_t second = start + first.length;
    if (first.kind == Class::kNumber) return Digits(start) - start;
    const Char next = At(second);
    if (!first.newline() && next.length > 0 && next.kind == Class::kLetter) {
      return Run(second, Class::kLetter) - start;
    }
    if (first.kind == Class::kOther) return Symbols(start) - start;
    if (first.code_point == ' ' && next.length > 0 && next.kind == Class::kOther)
      return Symbols(second) - start;
    return Space(start) - start;
  }

 private:
  Char At(size_t at) const {
    if (at >= text_.size()) return {};
    const auto byte = static_cast<uint8_t>(text_[at]);
    if (byte < 0x80) return {byte, unicode::ClassOf(byte), 1};
    const unicode::Unit unit = unicode::Read(text_.substr(at, 4));
    if (unit.state != unicode::Unit::State::kValid) return {0, Class::kOther, 1};
    return {unit.code_point, unicode::ClassOf(unit.code_point), unit.length};
  }

  size_t Run(size_t at, Class kind) const {
    for (Char c = At(at); c.length > 0 && c.kind == kind; c = At(at)) at += c.length;
    return at;
  }

  size_t Digits(size_t at) const {
    for (int n = 0; n < 3; ++n) {
      const Char c = At(at);
      if (c.length == 0 || c.kind != Class::kNumber) break;
      at += c.length;
    }
    return at;
  }

  size_t Symbols(size_t at) const {
    at = Run(at, Class::kOther);
    while (at < text_.size() && (text_[at] == '\r' || text_[at] == '\n')) ++at;
    return at;
  }

  // The last three alternatives; all of them begin with the run of white space that starts here.
  size_t Space(size_t start) const {
    size_t end = start, last = start, after_newline = start;
    for (Char c = At(end); c.length > 0 && c.kind == Class::kSpace; c = At(end)) {
      last = end;
      end += c.length;
      if (c.newline()) after_newline = end;
    }
    if (after_newline > start) return after_newline;  // \s*[\r\n]+ gives back what follows the last newline
    if (end == text_.size() || last == start)
      return end;  // \s+(?!\S) at the end of the text, or \s+ of one character
    return last;   // \s+(?!\S) leaves one character to the word that follows
  }

  size_t Contraction(size_t start) const {
    if (text_[start] != '\'') return 0;
    const Char a = Folded(start + 1);
    if (a.code_point == 's' || a.code_point == 't' || a.code_point == 'm' || a.code_point == 'd')
      return 1 + a.length;
    const Char b = Folded(start + 1 + a.length);
    const bool two = (a.code_point == 'r' && b.code_point == 'e') ||
                     (a.code_point == 'v' && b.code_point == 'e') ||
                     (a.code_point == 'l' && b.code_point == 'l');
    return two ? 1 + a.length + b.length : 0;
  }

  // Simple case folding, as far as the contractions' letters go: A-Z, and U+017F, the long s.
  Char Folded(size_t at) const {
    Char c = At(at);
    if (c.code_point >= 'A' && c.code_point <= 'Z') c.code_point += 'a' - 'A';
    if (c.code_point == 0x17f) c.code_point = 's';
    return c;
  }

  std::string_view text_;
};

}  // namespace

size_t PieceLength(std::string_view text) { return text.empty() ? 0 : Scanner(text).Piece(0); }

std::vector<std::string_view> PreTokenize(std::string_view text) {
  std::vector<std::string_view> pieces;
  const Scanner scanner(text);
  for (size_t at = 0; at < text.size();) {
    const size_t length = scanner.Piece(at);
    pieces.push_back(text.substr(at, length));
    at += length;
  }
  return pieces;
}

}  // namespace glint::text
