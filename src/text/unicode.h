// UTF-8, and the classes of code points that the pre-tokenizer tells apart.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace glint::text::unicode {

// What stands at the start of some bytes.
struct Unit {
  enum class State : uint8_t {
    kValid,      // a whole, well-formed character
    kInvalid,    // bytes that no continuation can make well-formed
    kTruncated,  // the bytes end inside a character that is well-formed so far
  };
  State state = State::kInvalid;
  uint8_t length = 1;       // bytes; of kInvalid the maximal subpart (Unicode 15, 3.9 U+FFFD Substitution)
  char32_t code_point = 0;  // of kValid
};

// `bytes` must not be empty.
Unit Read(std::string_view bytes);

void Append(char32_t code_point, std::string& out);

// Moves from `pending` to `out` what can be told: whole characters as they are, bytes that cannot become one as U+FFFD, one for
// each maximal subpart. An unfinished character stays.
void MoveWhole(std::string& pending, std::string& out);
// U+FFFD in place of an unfinished character: what MoveWhole left, when nothing follows.
void MoveRest(std::string& pending, std::string& out);

// The pre-tokenizer's classes: general category L*, N*, property White_Space, and the rest (unassigned too).
enum class Class : uint8_t { kOther, kLetter, kNumber, kSpace };

// Unicode 15.0 in two stages, two bits a code point (unicode_table.cc).
extern const uint8_t kPageOf[0x1100];
extern const uint8_t kPages[][64];

inline Class ClassOf(char32_t c) {
  if (c >= 0x110000) return Class::kOther;
  const uint8_t four = kPages[kPageOf[c >> 8]][(c & 0xff) >> 2];
  return static_cast<Class>((four >> (2 * (c & 3))) & 3);
}

}  // namespace glint::text::unicode
