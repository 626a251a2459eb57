// What a request's answers are held to, beyond free text: compiled grammars, kept for the requests that ask for the same.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "glint/model.h"
#include "grammar/grammar.h"
#include "serve/generation.h"

namespace glint::serve {

// The grammar of an answer proper, which begins after the reasoning. Null grammars: whatever comes.
struct AnswerRules {
  std::shared_ptr<const grammar::Grammar> answer;
  // May come in its place, if the answer begins with `call_mark`: tools that are offered beside a form of the answer.
  std::shared_ptr<const grammar::Grammar> calls;
  int32_t call_mark = -1;
  std::vector<int32_t> banned;  // tokens that may come nowhere

  bool constrain() const { return answer != nullptr; }
};

// Thread-safe; two requests may compile at a time.
class Rules {
 public:
  explicit Rules(const Model& model) : model_(model) {}

  // 400: what can't be compiled, by the field that asked for it.
  Parsed<AnswerRules> For(const GenerationRequest& request);

 private:
  using GrammarPtr = std::shared_ptr<const grammar::Grammar>;
  Result<std::shared_ptr<const grammar::Vocabulary>> Vocabulary();
  Result<GrammarPtr> Calls(const GenerationRequest& request);
  // The grammar kept under `key`, or what `make` compiles.
  template <class Make>
  Result<GrammarPtr> Keep(const std::string& key, Make make);

  const Model model_;
  std::mutex mutex_;  // of what follows
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  struct Kept {
    std::string key;  // the whole text: of a hash, somebody could make another's
    GrammarPtr grammar;
  };
  std::list<Kept> kept_;  // the last used first
};

}  // namespace glint::serve
