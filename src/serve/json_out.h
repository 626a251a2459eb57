// Writes JSON without white space, members in the order given.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace glint::serve {

// A document built by calls in order. Strings must be well-formed UTF-8. Controls, and the line ends of Unicode, are escaped: no value
// can break a line, whatever a client takes for one. A number that JSON cannot say becomes null.
class JsonOut {
 public:
  JsonOut& Begin(char bracket);  // '{' or '['
  JsonOut& End(char bracket);    // '}' or ']'
  JsonOut& Key(std::string_view key);
  JsonOut& String(std::string_view text);
  JsonOut& Integer(int64_t value);
  JsonOut& Number(double value);
  JsonOut& Bool(bool value);
  JsonOut& Null();
  JsonOut& Raw(std::string_view json);  // a value that is JSON already
  // Members.
  JsonOut& String(std::string_view key, std::string_view text) { return Key(key).String(text); }
  JsonOut& Integer(std::string_view key, int64_t value) { return Key(key).Integer(value); }
  JsonOut& Integer(std::string_view key, uint64_t value) {
    return Key(key).Integer(static_cast<int64_t>(value));
  }
  JsonOut& Number(std::string_view key, double value) { return Key(key).Number(value); }
  JsonOut& Null(std::string_view key) { return Key(key).Null(); }

  std::string Take() { return std::move(out_); }

 private:
  void Separate();
  std::string out_;
  bool first_ = true;
};

// A parsed value as text again, numbers as Python writes them; an integer beyond 64 bits has become a float.
std::string ToText(const Json& value);

// Any bytes as UTF-8: what is none becomes U+FFFD.
std::string ToUtf8(std::string_view bytes);

}  // namespace glint::serve
