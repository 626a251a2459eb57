// Writes JSON for scripts: two-space indentation, keys in the order given, and nothing that could steer a terminal.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace glint::cli {

// A document built by calls in order. Bytes of a string that are no UTF-8 become U+FFFD; controls, DEL and C1 are escaped; a
// number that JSON cannot say (NaN, infinity) becomes null.
class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Begin('{'); }
  JsonWriter& EndObject() { return End('}'); }
  // A flat array is written on one line.
  JsonWriter& BeginArray(bool flat = false);
  JsonWriter& EndArray() { return End(']'); }
  JsonWriter& Key(std::string_view key);

  JsonWriter& Value(std::string_view text);
  JsonWriter& Value(const char* text) { return Value(std::string_view(text)); }
  JsonWriter& Value(bool value);
  JsonWriter& Value(double value);
  JsonWriter& Value(int64_t value);
  JsonWriter& Value(uint64_t value);
  JsonWriter& Value(int value) { return Value(static_cast<int64_t>(value)); }
  JsonWriter& Null();
  template <class T>
  JsonWriter& Member(std::string_view key, const T& value) {
    return Key(key).Value(value);
  }

  std::string Take();  // the document with a final newline

 private:
  JsonWriter& Begin(char bracket);
  JsonWriter& End(char bracket);
  JsonWriter& Raw(std::string_view text);
  void Separate();

  std::string out_, open_;  // open_: brackets not closed yet, '(' for a flat array
  bool first_ = true, after_key_ = false;
};

}  // namespace glint::cli
