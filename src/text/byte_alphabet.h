// The byte-level alphabet: one printable character for each byte, so that token files are valid text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace glint::text {

// The character that stands for a byte: itself for printable Latin-1 (! to ~, U+00A1 to U+00AC, U+00AE to
// U+00FF), and U+0100, U+0101, ... for the other 68 bytes in rising order.
char32_t AlphabetChar(uint8_t byte);

std::string ToAlphabet(std::string_view bytes);

// Nullopt if the text has a character that is not of the alphabet, or is not UTF-8.
std::optional<std::string> FromAlphabet(std::string_view text);

}  // namespace glint::text
