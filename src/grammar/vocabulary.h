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

// Longer tokens (runs of spaces and the like) are never allowed: what they spell, shorter ones spell. What a state allows depends on how much room its
// limits leave, as far as one token reaches; so this bounds how many masks there are.
constexpr size_t kLongestToken = 32;

// The trie's nodes are in depth-first order, children by rising byte; the root, node 0, has no byte. What is below node i is i + 1 ... end - 1.
struct TrieNode {
  uint32_t end = 0;
  int32_t token = -1;  // that ends here; -1 if none does
  uint8_t byte = 0;
  uint8_t depth = 0;  // bytes from the root
};
using Trie = std::vector<TrieNode>;

class ReachCache;

// Immutable after Create but for what it remembers of the rules that all grammars share (grammar/reach.h); safe to share between threads.
class Vocabulary {
 public:
  // Added tokens (control and user-defined ones) are known by id alone: no text of a grammar is ever spelled with them. kUnsupported
  // if a byte has no token of its own: a grammar could then lead where no token fits.
  static Result<std::shared_ptr<const Vocabulary>> Create(const Tokenizer& tokenizer);
  // `tokens`: the bytes of each id; empty for those that stand for no text.
  static Result<std::shared_ptr<const Vocabulary>> Create(std::vector<std::string> tokens,
                                                          std::vector<int32_t> stop_ids);

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }  // ids go from 0 to size() - 1
  size_t mask_words() const { return (tokens_.size() + 63) / 64; }       // of 64 ids each
  // Empty for tokens that no grammar's text is spelled with.
  std::string_view Bytes(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  bool IsStop(int32_t id) const;
  std::span<const int32_t> stop_ids() const { return stop_ids_; }
  const Trie& trie() const { return trie_; }
  ReachCache& common() const { return *common_; }

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> stop_ids_;
  Trie trie_;
  std::shared_ptr<ReachCache> common_;
};

}  // namespace glint::grammar
