// A tokenizer as it comes out of a file, before it is compiled for use.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace glint::text {

enum class TokenKind : uint8_t {
  kNormal,
  kControl,      // special: never produced from user text unless asked, not shown
  kUserDefined,  // added token that is matched as a whole but shown (<think>, <tool_call>)
  kUnused,       // padding row: never sampled, never produced
};

struct TokenizerData {
  std::vector<std::string>
      tokens;                    // [ids] in the byte-level alphabet for normal ones, raw text for added ones
  std::vector<TokenKind> kinds;  // [ids]
  std::vector<std::pair<std::string, std::string>> merges;  // best first, byte-level alphabet
  bool ignore_merges = true;      // a pre-token that is a vocabulary entry is emitted whole
  std::vector<int32_t> stop_ids;  // generation ends on any of these
  int32_t pad_id = -1, bos_id = -1;
};

}  // namespace glint::text
