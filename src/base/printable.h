// Text from files, made safe for terminals, logs and messages.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace glint {

// Bytes of the well-formed UTF-8 sequence that `text` starts with (Unicode table 3-7: no overlong forms,
// surrogates or numbers above U+10FFFF), and its code point; 0 if there is none.
size_t DecodeUtf8(std::string_view text, char32_t& code_point);
bool ValidUtf8(std::string_view text);

// `text` with everything that could move a cursor, colour or reorder what surrounds it, or that is not UTF-8,
// escaped: \n \r \t, \xNN for other C0 controls, DEL and bytes of broken sequences, \u{NNNN} for C1 controls,
// line separators, zero-width and bidirectional controls. A backslash becomes \\, so that nothing in a file
// can pass for an escape.
std::string Printable(std::string_view text);

// For messages: Printable between single quotes, at most `limit` bytes of the text and then "...".
std::string Quoted(std::string_view text, size_t limit = 80);

}  // namespace glint
