// What tells vocabularies apart.
#pragma once
#include <string>

#include "text/tokenizer_data.h"

namespace glint::text {

// 32 hexadecimal digits of what decides which ids a text becomes: tokens with their kinds, and merges. Rows that stand for
// nothing count only by their number, and which ids end a generation not at all.
std::string Fingerprint(const TokenizerData& data);

}  // namespace glint::text
