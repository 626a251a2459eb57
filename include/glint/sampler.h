// From a row of logits to the next token.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "glint/status.h"

namespace glint {

struct SamplerOptions {
  float temperature = 1.0f;  // 0 = greedy (the highest logit; ties to the lower id)
  int32_t top_k = 0;         // 0 = off
  float top_p = 1.0f;        // (0, 1]; 1 = off
  float min_p = 0.0f;        // [0, 1); 0 = off
  float repetition_penalty =
      1.0f;  // > 0; 1 = off: divides positive logits of seen ids, multiplies negative ones
  float presence_penalty = 0.0f;   // subtracted once from the logit of an id already generated
  float frequency_penalty = 0.0f;  // subtracted for each time it was generated
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // added before everything else; -inf bans an id
  uint64_t seed = 0;
};

// Order: bias, penalties, temperature, top-k, top-p, min-p, draw; docs/sampling.md has each step in full.
// Probabilities are exact integers made with glint's own exp, and draw n of seed s is a pure function of (s,
// n), so a seed gives the same ids on every machine whose logits have the same bits. A logit that is NaN or
// -infinity is never chosen. Threads: one call at a time.
class Sampler {
 public:
  // kBadInput names the option out of range. usable_vocab: ids at and above it are never returned.
  static Result<Sampler> Create(const SamplerOptions& options, int64_t usable_vocab);

  // Picks the next id and counts it. `logits` has at least usable_vocab entries and is not changed.
  // kBadInput if no id is left (all banned, or every logit NaN).
  Result<int32_t> Sample(std::span<const float> logits);
  // Whether it chooses by the highest logit alone, as Session::AppendBest does.
  bool is_argmax() const;
  // Ids the penalties should know of though they were not sampled here (the prompt, a resumed text).
  // Repetition penalty sees them; presence and frequency count generated ids only. Ids out of range are
  // ignored.
  void Observe(std::span<const int32_t> prompt);
  void Reset();  // forgets counts and starts the generator anew

 private:
  struct Candidate {
    float value;  // logit after bias and penalties
    int32_t id;
    uint64_t weight;
  };

  Sampler(SamplerOptions options, int64_t usable_vocab);
  void See(int32_t id);
  float Changed(int32_t id, float logit) const;        // by bias and penalties
  const float* Values(std::span<const float> logits);  // [usable_vocab] after bias and penalties
  void Rank(const float* values, float highest);       // fills bucket_, weights_ and counts_
  void Members(const float* values, uint32_t bucket);  // fills members_ with those of a bucket, in order
  int32_t Draw(const float* values);                   // the highest of values is above -infinity

  SamplerOptions options_;
  int64_t usable_vocab_;
  uint64_t draws_ = 0;
  std::vector<uint32_t> generated_;  // [usable_vocab] how often
  std::vector<uint8_t> seen_;        // [usable_vocab]
  std::vector<float> bias_;          // [usable_vocab], empty if there is none
  std::vector<int32_t>
      touched_;        // ids with a bias or, if there are penalties, seen: those of others are their logits
  size_t biased_ = 0;  // the first of touched_, which stay
  bool penalties_ = false;

  // Working memory of a draw.
  std::vector<float> values_;
  float highest_ = 0, scale_ = 0;
  std::vector<uint16_t> bucket_;   // [usable_vocab]
  std::vector<uint64_t> weights_;  // [buckets + 1] sums
  std::vector<uint32_t> counts_;   // [buckets + 1]
  std::vector<Candidate> members_;
};

}  // namespace glint
