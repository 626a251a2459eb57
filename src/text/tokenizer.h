// Byte-level BPE with GLM's pre-tokenizer (spec/gguf.md section 8).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"
#include "glint/tokenizer.h"
#include "text/tokenizer_data.h"

namespace glint::text {

// Immutable after Create; safe to share between threads.
class Tokenizer {
 public:
  // Checks the data: every byte of the alphabet must be encodable, normal tokens spelled in the alphabet and
  // each once, merges must name tokens, ids in range, kinds of the same length. kBadFile with what is wrong;
  // the caller adds the file.
  static Result<std::shared_ptr<const Tokenizer>> Create(TokenizerData data);

  // Any bytes. Ill-formed UTF-8 is encoded byte by byte and decodes to the same bytes. With parse_special,
  // added tokens (control and user-defined) found in the text become their ids, leftmost first, the longest
  // of those that begin at one place; without, neither kind appears: only normal tokens take part in merging.
  std::vector<int32_t> Encode(std::string_view text, bool parse_special) const;
  // A conversation as one text: added tokens are looked for inside special parts only, and what stands
  // between two of them is cut by the pre-tokenizer as a whole, also across parts. So the ids of harmless
  // text are those of the plain rendered string.
  std::vector<int32_t> Encode(std::span<const ChatPart> parts) const;

  // The bytes of one id (what it adds to the text); empty for padding and ids out of range. Added tokens by
  // their spelling.
  std::string_view Bytes(int32_t id) const;
  TokenKind Kind(int32_t id) const;                    // kUnused out of range
  int32_t FindAdded(std::string_view spelling) const;  // -1 if there is none
  int32_t size() const;                                // entries, padding included
  int32_t usable() const;                              // ids at and above are padding
  const TokenizerData& data() const { return data_; }

 private:
  struct Tables;
  TokenizerData data_;
  std::shared_ptr<const Tables> tables_;
};

// Cuts text at the pre-tokenizer's boundaries; each piece is BPE-encoded by itself. Exposed for tests.
std::vector<std::string_view> PreTokenize(std::string_view text);
// Bytes of the first piece; 0 for an empty text.
size_t PieceLength(std::string_view text);

}  // namespace glint::text
