// Constrained decoding: which tokens may come next so that the whole text is a JSON document of a schema, or a tool call with such arguments.
// docs/grammar.md states what is supported and how values are spelled.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "glint/status.h"
#include "grammar/automaton.h"
#include "grammar/configs.h"
#include "grammar/emit.h"
#include "grammar/reach.h"
#include "grammar/schema.h"
#include "grammar/vocabulary.h"

namespace glint::grammar {

struct ToolSchema {
  std::string name;        // as it is called
  const Json* parameters;  // the schema of its arguments; null: none
};

// The marks of GLM's tool calls in this vocabulary. kUnsupported names the one that it lacks.
Result<ToolMarks> GlmToolMarks(const Tokenizer& tokenizer);

// Compiled; immutable but for a cache of its own with a lock. Share one between all matchers, threads and requests that want it: callers keep
// them by Key().
class Grammar {
 public:
  // `named` begins messages; then comes the JSON pointer of what is wrong (schema.h). Depth: schemas must have been parsed with
  // JsonLimits.depth at most CompileLimits.depth.
  static Result<std::shared_ptr<const Grammar>> OfSchema(std::shared_ptr<const Vocabulary> vocabulary,
                                                         const Json& schema, std::string_view named,
                                                         const CompileLimits& limits = {});
  static Result<std::shared_ptr<const Grammar>> OfSchema(std::shared_ptr<const Vocabulary> vocabulary,
                                                         std::string_view schema, std::string_view named,
                                                         const CompileLimits& limits = {});
  // Any JSON object.
  static Result<std::shared_ptr<const Grammar>> AnyObject(std::shared_ptr<const Vocabulary> vocabulary);
  // From one to most_calls calls of these tools and nothing else. kBadInput if there is no tool or most_calls is 0.
  static Result<std::shared_ptr<const Grammar>> ToolCalls(std::shared_ptr<const Vocabulary> vocabulary,
                                                          std::span<const ToolSchema> tools,
                                                          const ToolMarks& marks, uint32_t most_calls,
                                                          const CompileLimits& limits = {});

  // For a table of compiled grammars: the same schema text has the same key (128 bits, hexadecimal).
  static std::string Key(std::string_view schema);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const Automaton& automaton() const { return automaton_; }
  std::shared_ptr<const Reach> ReachOf(const Config& config) const;
  size_t bytes() const;  // of memory, cache included, the vocabulary's not

 private:
  static Result<std::shared_ptr<const Grammar>> Make(std::shared_ptr<const Vocabulary> vocabulary,
                                                     Result<Automaton> automaton);
  std::shared_ptr<const Vocabulary> vocabulary_;
  Automaton automaton_;
  mutable ReachCache cache_;
};

// Where one text stands in its grammar. Cheap to make; copying it forks it. One call at a time for each; matchers of one grammar may run in
// parallel.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Grammar> grammar);

  // False, and nothing changes, if the token may not come here. A stop token is taken where the text is complete, and nothing after it.
  bool Accept(int32_t token);
  // Bit t of word t / 64: whether Accept(t) would be true. `mask` has vocabulary.mask_words() words; bits beyond the vocabulary are 0. (Of
  // grammars beyond Walker::kMostSteps it may leave out some; one at least is always set until a stop token has been taken.)
  void Mask(std::span<uint64_t> mask);
  // Takes back the last n tokens, at most accepted().
  void Rollback(size_t n);
  size_t accepted() const { return history_.size(); }
  bool IsComplete();                           // the text could end here
  bool IsStopped() const { return stopped_; }  // it has
  // The bytes that must come next, whatever the tokens; empty where there is a choice, or it could end.
  std::string ForcedBytes(size_t most = 256);

 private:
  struct Past {
    size_t configs;  // where its set begins in past_
    size_t stacks;
  };
  bool AcceptBytes(std::string_view bytes);
  bool AcceptMark(int32_t token);
  void Remember();

  std::shared_ptr<const Grammar> grammar_;
  Stacks stacks_;
  std::vector<Config> now_;  // not closed
  bool stopped_ = false;
  std::vector<Past> history_;
  std::vector<Config> past_;
  std::vector<Config> scratch_, next_;
  // The last mask, and the set that it is of: inside a string most tokens leave the set as it is.
  std::vector<Config> masked_;
  std::vector<uint64_t> mask_;
};

// logits[i] = -infinity where bit i is 0; logits beyond the mask too.
void ApplyMask(std::span<const uint64_t> mask, std::span<float> logits);

}  // namespace glint::grammar
