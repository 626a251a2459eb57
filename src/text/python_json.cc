#include "text/python_json.h"

#include <fmt/core.h>
#include <locale.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/json.h"
#include "text/unicode.h"

namespace glint::text {
namespace {

// Walks JSON text that is known to be well-formed; so nothing is checked here.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  size_t at() const { return at_; }
  bool end() const { return at_ >= text_.size(); }
  char Peek() const { return text_[at_]; }
  void Skip() { ++at_; }
  void SkipSpace() {
    while (!end() && (Peek() == ' ' || Peek() == '\t' || Peek() == '\n' || Peek() == '\r')) ++at_;
  }

  // The string that begins here, decoded.
  std::string String() {
    std::string out;
    for (++at_; Peek() != '"'; ++at_) {
      if (Peek() != '\\') {
        out += Peek();
        continue;
      }
      ++at_;
      switch (Peek()) {
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'n':
          out += '\n';
          break;
        case 'r':
          out += '\r';
          break;
        case 't':
          out += '\t';
          break;
        case 'u': {
          char32_t c = Hex4();
          if (c >= 0xd800 && c < 0xdc00) {  // the other half follows
            at_ += 2;
            c = 0x10000 + ((c - 0xd800) << 10) + (Hex4() - 0xdc00);
          }
          unicode::Append(c, out);
          break;
        }
        default:
          out += Peek();  // quote, backslash, slash
      }
    }
    ++at_;
    return out;
  }

  // A number or a name: up to what can't be part of one.
  std::string_view Word() {
    const size_t start = at_;
    while (!end() && std::string_view(",]} \t\r\n").find(Peek()) == std::string_view::npos) ++at_;
    return text_.substr(start, at_ - start);
  }

  // The text of the value that begins here.
  std::string_view Value() {
    const size_t start = at_;
    int depth = 0;
    do {
      const char c = Peek();
      if (c == '"') {
        String();
        continue;
      }
      depth += c == '{' || c == '[';
      depth -= c == '}' || c == ']';
      if (depth == 0 && c != '}' && c != ']') {
        Word();
      } else {
        ++at_;
      }
    } while (depth > 0);
    return text_.substr(start, at_ - start);
  }

 private:
  // The four digits after the letter u; leaves the position on the last.
  char32_t Hex4() {
    uint32_t c = 0;
    std::from_chars(text_.data() + at_ + 1, text_.data() + at_ + 5, c, 16);
    at_ += 4;
    return c;
  }

  std::string_view text_;
  size_t at_ = 0;
};

bool IsInteger(std::string_view number) { return number.find_first_of(".eE") == std::string_view::npos; }

// Out of range is an infinity or a zero, as in Python; from_chars would leave the value as it was. Plain strtod would
// read a number as the program's locale writes it.
double ToDouble(std::string_view number) {
  static const locale_t kC = newlocale(LC_ALL_MASK, "C", nullptr);
  return strtod_l(std::string(number).c_str(), nullptr, kC);
}

}  // namespace

void AppendInsideJsonString(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
}

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  AppendInsideJsonString(text, out);
  out += '"';
}

Result<std::vector<RawMember>> ObjectMembers(std::string_view text) {
  const auto parsed = ParseJson(text, "JSON");
  if (!parsed.ok()) return Status(Code::kBadInput, parsed.status().message());
  if (parsed->kind() != Json::Kind::kObject) {
    return Status(Code::kBadInput,
                  fmt::format("JSON: {} stands where an object is wanted", Name(parsed->kind())));
  }
  std::vector<RawMember> members;
  Reader reader(text);
  reader.SkipSpace();
  reader.Skip();  // {
  for (;;) {
    reader.SkipSpace();
    if (reader.Peek() == '}') return members;
    if (reader.Peek() == ',') {
      reader.Skip();
      reader.SkipSpace();
    }
    RawMember member;
    member.key = reader.String();
    reader.SkipSpace();
    reader.Skip();  // :
    reader.SkipSpace();
    member.value = reader.Value();
    members.push_back(std::move(member));
  }
}

std::string PythonDumps(std::string_view value) {
  std::string out;
  Reader reader(value);
  for (reader.SkipSpace(); !reader.end(); reader.SkipSpace()) {
    const char c = reader.Peek();
    if (c == '"') {
      AppendJsonString(reader.String(), out);
    } else if (c == ',' || c == ':') {
      out += c, out += ' ';
      reader.Skip();
    } else if (c == '{' || c == '}' || c == '[' || c == ']') {
      out += c;
      reader.Skip();
    } else {
      const std::string_view word = reader.Word();
      if (c != '-' && (c < '0' || c > '9')) {
        out += word;  // true, false, null
      } else if (IsInteger(word)) {
        out += word == "-0" ? "0" : word;
      } else {
        out += PythonFloat(ToDouble(word));
      }
    }
  }
  return out;
}

bool IsString(std::string_view value) { return value.starts_with('"'); }

std::string DecodeString(std::string_view value) { return Reader(value).String(); }

bool IsTruthy(std::string_view value) {
  if (value == "null" || value == "false" || value == "\"\"") return false;
  if (value.starts_with('{') || value.starts_with('[')) return PythonDumps(value).size() > 2;
  if (value == "true" || IsString(value)) return true;
  return ToDouble(value) != 0;
}

// Shortest digits that read back as the value; an exponent below -4 and from 16 on, at least two digits of it.
std::string PythonFloat(double value) {
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  if (std::isnan(value)) return "NaN";
  std::array<char, 32> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const size_t e = text.find('e');
  int exponent = 0;
  const size_t sign = text[e + 1] == '+' ? 1 : 0;
  std::from_chars(text.data() + e + 1 + sign, end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);  // to_chars writes exponents as Python does
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = text.starts_with('-') ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  const std::string fraction = digits.substr(whole);
  return out + digits.substr(0, whole) + "." + (fraction.empty() ? "0" : fraction);
}

}  // namespace glint::text
