#include <algorithm>
#include <limits>

#include "grammar/grammar.h"

namespace glint::grammar {
namespace {

void Set(std::span<uint64_t> mask, int32_t id) {
  mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
}

}  // namespace

Matcher::Matcher(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  const Automaton& a = grammar_->automaton();
  now_ = {{a.rule(a.root()).start, 0, kBottom}};
}

void Matcher::Remember() {
  history_.push_back({past_.size(), stacks_.size()});
  past_.insert(past_.end(), now_.begin(), now_.end());
}

bool Matcher::AcceptBytes(std::string_view bytes) {
  const Automaton& a = grammar_->automaton();
  scratch_ = now_;
  for (const char c : bytes) {
    Close(a, scratch_, 0, stacks_);
    next_.clear();
    Step(a, scratch_, 0, scratch_.size(), static_cast<uint8_t>(c), next_, 0);
    if (next_.empty()) return false;
    scratch_.swap(next_);
  }
  return true;
}

bool Matcher::AcceptMark(int32_t token) {
  const Automaton& a = grammar_->automaton();
  scratch_ = now_;
  Close(a, scratch_, 0, stacks_);
  next_.clear();
  for (const Config& c : scratch_) {
    for (const TokenEdge& e : a.Tokens(a.state(c.state))) {
      uint32_t count = c.count;
      if (e.token == token && a.Pass(e.guard, count)) next_.push_back({e.to, count, c.stack});
    }
  }
  scratch_.swap(next_);
  return !scratch_.empty();
}

bool Matcher::Accept(int32_t token) {
  const Vocabulary& vocabulary = grammar_->vocabulary();
  if (stopped_ || token < 0 || token >= vocabulary.size()) return false;
  if (vocabulary.IsStop(token) && IsComplete()) {
    Remember();
    stopped_ = true;
    return true;
  }
  const size_t stacks = stacks_.size();
  const std::string_view bytes = vocabulary.Bytes(token);
  if (!(bytes.empty() ? AcceptMark(token) : AcceptBytes(bytes))) {
    stacks_.Truncate(stacks);
    return false;
  }
  Remember();
  history_.back().stacks = stacks;
  now_.swap(scratch_);
  return true;
}

void Matcher::Rollback(size_t n) {
  n = std::min(n, history_.size());
  if (n == 0) return;
  const Past& past = history_[history_.size() - n];
  const size_t end = n == 1 ? past_.size() : history_[history_.size() - n + 1].configs;
  now_.assign(past_.begin() + static_cast<ptrdiff_t>(past.configs),
              past_.begin() + static_cast<ptrdiff_t>(end));
  stacks_.Truncate(past.stacks);
  past_.resize(past.configs);
  history_.resize(history_.size() - n);
  stopped_ = false;
  masked_.clear();  // its stacks may be forgotten
}

bool Matcher::IsComplete() {
  const size_t stacks = stacks_.size();
  scratch_ = now_;
  const bool complete = Close(grammar_->automaton(), scratch_, 0, stacks_).bottom;
  stacks_.Truncate(stacks);
  return complete;
}

void Matcher::Mask(std::span<uint64_t> mask) {
  const Automaton& a = grammar_->automaton();
  const Vocabulary& vocabulary = grammar_->vocabulary();
  if (mask.size() != vocabulary.mask_words()) return;
  if (stopped_) {
    std::fill(mask.begin(), mask.end(), 0);
    return;
  }
  if (!masked_.empty() && masked_ == now_) {
    std::copy(mask_.begin(), mask_.end(), mask.begin());
    return;
  }
  std::fill(mask.begin(), mask.end(), 0);
  const Trie& trie = vocabulary.trie();
  const size_t stacks = stacks_.size();
  // What each configuration allows by itself, and then what its caller does with tokens that go beyond its rule. Those that end before any byte
  // are followed by their callers.
  std::vector<Config> todo = now_;
  Walker walker(a, trie, stacks_);
  std::vector<Config> closed, stepped;
  size_t together = 0;
  for (size_t i = 0; i < todo.size() && together <= kMostConfigs; ++i) {
    const Config c = todo[i];
    const auto reach = grammar_->ReachOf(c);
    together += std::max(reach->largest, walker.largest());
    for (size_t w = 0; w < reach->mask.size(); ++w) mask[w] |= reach->mask[w];
    for (const int32_t id : reach->few) Set(mask, id);
    if (c.stack == kBottom) continue;
    const auto frame = stacks_.frame(c.stack);
    const Config caller{frame.state, frame.count, frame.parent};
    if (reach->ends && std::find(todo.begin(), todo.end(), caller) == todo.end()) todo.push_back(caller);
    if (reach->exits.empty()) continue;
    closed.assign(1, caller);
    Close(a, closed, 0, stacks_);
    const auto& exits = reach->exits;
    for (size_t first = 0, last = 0; first < exits.size(); first = last) {
      while (last < exits.size() && exits[last].byte == exits[first].byte) ++last;
      stepped.clear();
      Step(a, closed, 0, closed.size(), exits[first].byte, stepped, 0);
      if (stepped.empty()) continue;
      Close(a, stepped, 0, stacks_);
      for (size_t k = first; k < last; ++k) {
        const uint32_t node = exits[k].node;
        if (trie[node].token >= 0) Set(mask, trie[node].token);
        walker.Walk(node + 1, trie[node].end, stepped, mask, nullptr);
      }
    }
  }
  closed = now_;
  const Ends ends = Close(a, closed, 0, stacks_);
  if (together + walker.largest() > kMostConfigs) {
    // So many that Accept may leave some out: then as Accept does it, all together.
    std::fill(mask.begin(), mask.end(), 0);
    Walker(a, trie, stacks_).Walk(1, static_cast<uint32_t>(trie.size()), closed, mask, nullptr);
  }
  // Marks, and the end.
  for (const Config& c : closed) {
    for (const TokenEdge& e : a.Tokens(a.state(c.state))) {
      uint32_t count = c.count;
      if (a.Pass(e.guard, count)) Set(mask, e.token);
    }
  }
  if (ends.bottom) {
    for (const int32_t id : vocabulary.stop_ids()) Set(mask, id);
  }
  stacks_.Truncate(stacks);
  masked_ = now_;
  mask_.assign(mask.begin(), mask.end());
}

std::string Matcher::ForcedBytes(size_t most) {
  const Automaton& a = grammar_->automaton();
  std::string out;
  if (stopped_) return out;
  std::vector<Config> set = now_, next;
  const size_t stacks = stacks_.size();
  while (out.size() < most) {
    if (Close(a, set, 0, stacks_).bottom) break;
    int only = -1;
    bool choice = false;
    for (const Config& c : set) {
      const auto& s = a.state(c.state);
      choice = choice || s.n_tokens > 0;
      for (const Edge& e : a.Edges(s)) {
        uint32_t count = c.count;
        if (!a.Pass(e.guard, count)) continue;
        if (e.lo != e.hi || (only >= 0 && only != e.lo)) choice = true;
        only = e.lo;
      }
    }
    if (choice || only < 0) break;
    next.clear();
    Step(a, set, 0, set.size(), static_cast<uint8_t>(only), next, 0);
    out += static_cast<char>(only);
    set.swap(next);
  }
  stacks_.Truncate(stacks);
  return out;
}

void ApplyMask(std::span<const uint64_t> mask, std::span<float> logits) {
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  const size_t whole = std::min(mask.size(), logits.size() / 64);
  for (size_t w = 0; w < whole; ++w) {
    float* const row = logits.data() + 64 * w;
    const uint64_t word = mask[w];
    if (word == ~uint64_t{0}) continue;
    for (size_t i = 0; i < 64; ++i) row[i] = (word >> i & 1) != 0 ? row[i] : kOut;
  }
  for (size_t i = 64 * whole; i < logits.size(); ++i) {
    const bool in = i / 64 < mask.size() && (mask[i / 64] >> (i % 64) & 1) != 0;
    if (!in) logits[i] = kOut;
  }
}

}  // namespace glint::grammar
