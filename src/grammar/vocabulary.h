// The bytes of all tokens as one trie, so that what a grammar thinks of a prefix is found out once for all tokens that share it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"
#include "glint/tokenizer.h"

namespace glint::grammar {

// The trie's nodes in depth-first order, children by rising byte; the root, node 0, has no byte. What is below node i is i + 1 ... end[i] - 1.
struct Trie {
  std::vector<uint8_t> byte;
  std::vector<uint16_t> depth;  // bytes from the root
  std::vector<uint32_t> end;
  std::vector<int32_t> token;  // that ends here; -1 if none does
  size_t size() const { return byte.size(); }
};

class ReachCache;

// Immutable after Create but for what it remembers of the rules that all grammars share (grammar/reach.h); safe to share between threads.
class Vocabulary {
 public:
  // Added tokens (control and user-defined ones) are known by id alone: no text of a grammar is ever spelled with them. kUnsupported
  // if a byte has no token of its own (a grammar could then lead where no token fits) or a token is longer than 65,535 bytes.
  static Result<std::shared_ptr<const Vocabulary>> Create(const Tokenizer& tokenizer);
  // `tokens`: the bytes of each id; empty for those that stand for no text.
  static Result<std::shared_ptr<const Vocabulary>> Create(std::vector<std::string> tokens,
                                                          std::vector<int32_t> stop_ids);

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }  // ids go from 0 to size() - 1
  size_t mask_words() const { return (tokens_.size() + 63) / 64; }       // of 64 ids each
  std::string_view Bytes(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  bool IsStop(int32_t id) const;
  std::span<const int32_t> stop_ids() const { return stop_ids_; }
  const Trie& trie() const { return trie_; }
  uint32_t longest() const { return longest_; }  // token, in bytes
  ReachCache& common() const { return *common_; }

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> stop_ids_;
  Trie trie_;
  uint32_t longest_ = 0;
  std::shared_ptr<ReachCache> common_;
};

}  // namespace glint::grammar
