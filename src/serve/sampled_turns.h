// What the model sampled, by what it said: a turn that a client sends back becomes the very tokens again, and the prompt begins as the
// sequence that is kept.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "glint/status.h"
#include "glint/tokenizer.h"

namespace glint::serve {

struct SampledTurnsOptions {
  uint64_t bytes = uint64_t{64} << 20;  // of memory, and about twice as many on disk
  std::string path = {};                // where they are found again after a restart; empty: nowhere
  std::function<void(const std::string& line)> log = {};
};

struct SampledTurnsStats {
  uint64_t turns = 0, bytes = 0;  // now
  uint64_t replayed = 0;          // turns of prompts
  uint64_t file_failures = 0;
};

// A turn is the same if it follows the same tokens, says the same words (but for white space around them) and makes the same calls (ids
// and the form of their JSON aside). Reasoning that comes along must be the same too; where none does, the turn's own comes back, since that
// is what the model went on from. What came after other tokens is never taken: no conversation gets what was thought in another.
//
// Threads: all functions from any thread. The file is written by a thread of its own.
class SampledTurns {
 public:
  // Never fails for the file: without it, or where another server has it, turns are kept in memory.
  static Result<std::unique_ptr<SampledTurns>> Open(const SampledTurnsOptions& options);
  ~SampledTurns();  // what was remembered is in the file
  SampledTurns(const SampledTurns&) = delete;
  SampledTurns& operator=(const SampledTurns&) = delete;

  // After `prompt` the model sampled `ids`, and was read as saying `said` (whose role does not matter).
  void Remember(std::span<const int32_t> prompt, const Message& said, std::span<const int32_t> ids);
  // The ids of a turn that a client sends; empty: not known.
  std::vector<int32_t> Find(std::span<const int32_t> prompt, const Message& sent);
  SampledTurnsStats stats() const;

 private:
  struct Impl;
  explicit SampledTurns(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The tokens of a conversation, with the turns that are known as they were sampled, and all else as Tokenizer::EncodeChat has it.
// turns: null, or where to look.
Result<std::vector<int32_t>> EncodeWithTurns(const Tokenizer& tokenizer, std::span<const Message> messages,
                                             const ChatOptions& chat, SampledTurns* turns);

}  // namespace glint::serve
