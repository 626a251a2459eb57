#include "glint/sampler.h"
#include "base/mutation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/math.h"
#include "engine/random.h"

namespace glint {
namespace {

__extension__ using Wide = unsigned __int128;

// A weight is e^((logit - highest) / temperature) in units of 2^-40, cut to an integer: sums of them are
// exact in any order, and 154,880 of them stay below 2^58. What lies under 2^-40 of the likeliest id has no
// chance.
constexpr float kUnit = 0x1p40f;
constexpr int kShareBits = 32;  // of top_p in fixed point

float Infinity() { return std::numeric_limits<float>::infinity(); }

Status OutOfRange(const char* option, double value, const char* range) {
  return {Code::kBadInput, fmt::format("{} is {}; it must be {}", option, value, range)};
}

Status CheckOptions(const SamplerOptions& o, int64_t usable_vocab) {
  if (!(o.temperature >= 0) || std::isinf(o.temperature)) {
    return OutOfRange("temperature", o.temperature, "0 (greedy) or a positive number");
  }
  if (o.top_k < 0) return OutOfRange("top_k", o.top_k, "0 (off) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) return OutOfRange("top_p", o.top_p, "above 0 and at most 1 (off)");
  if (!(o.min_p >= 0 && o.min_p < 1)) return OutOfRange("min_p", o.min_p, "at least 0 (off) and below 1");
  if (!(o.repetition_penalty > 0) || std::isinf(o.repetition_penalty)) {
    return OutOfRange("repetition_penalty", o.repetition_penalty, "a positive number (1 is off)");
  }
  if (!std::isfinite(o.presence_penalty)) return OutOfRange("presence_penalty", o.presence_penalty, "finite");
  if (!std::isfinite(o.frequency_penalty))
    return OutOfRange("frequency_penalty", o.frequency_penalty, "finite");
  for (const auto& [id, bias] : o.logit_bias) {
    if (id < 0 || id >= usable_vocab) {
      return {Code::kBadInput,
              fmt::format("logit_bias names id {}; ids go from 0 to {}", id, usable_vocab - 1)};
    }
    if (std::isnan(bias) || bias == Infinity()) {
      return {Code::kBadInput,
              fmt::format("logit_bias of id {} is {}; it must be finite, or -inf to ban the id", id, bias)};
    }
  }
  return {};
}

}  // namespace

Sampler::Sampler(SamplerOptions options, int64_t usable_vocab)
    : options_(std::move(options)),
      usable_vocab_(usable_vocab),
      generated_(static_cast<size_t>(usable_vocab)),
      seen_(static_cast<size_t>(usable_vocab)) {
  if (options_.logit_bias.empty()) return;
  bias_.resize(static_cast<size_t>(usable_vocab));
  for (const auto& [id, bias] : options_.logit_bias) bias_[static_cast<size_t>(id)] += bias;
}

Result<Sampler> Sampler::Create(const SamplerOptions& options, int64_t usable_vocab) {
  if (usable_vocab < 1 || usable_vocab > std::numeric_limits<int32_t>::max()) {
    return Status(Code::kBadInput,
                  fmt::format("a vocabulary of {} entries can't be sampled from", usable_vocab));
  }
  Status status = CheckOptions(options, usable_vocab);
  if (!status.ok()) return status;
  return Sampler(options, usable_vocab);
}

void Sampler::Gather(std::span<const float> logits) {
  const bool penalties =
      options_.repetition_penalty != 1 || options_.presence_penalty != 0 || options_.frequency_penalty != 0;
  candidates_.clear();
  for (size_t id = 0; id < generated_.size(); ++id) {
    float value = logits[id];
    if (!bias_.empty()) value += bias_[id];
    if (penalties) {
      if (seen_[id])
        value = value > 0 ? value / options_.repetition_penalty : value * options_.repetition_penalty;
      if (generated_[id]) {
        value -= options_.presence_penalty;
        value -= options_.frequency_penalty * static_cast<float>(generated_[id]);
      }
    }
    if (value > -Infinity()) candidates_.push_back({value, static_cast<int32_t>(id)});  // drops NaN too
  }
}

int32_t Sampler::Draw() {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  };
  const auto begin = candidates_.begin();
  const size_t k = options_.top_k == 0 ? candidates_.size()
                                       : std::min(candidates_.size(), static_cast<size_t>(options_.top_k));
  if (k < candidates_.size())
    std::nth_element(begin, begin + static_cast<ptrdiff_t>(k), candidates_.end(), better);

  const float highest =
      std::max_element(begin, begin + static_cast<ptrdiff_t>(k), [](const Candidate& a, const Candidate& b) {
        return a.value < b.value;
      })->value;
  // Differences first: a tiny temperature makes them -infinity and leaves the highest at 0, where dividing
  // first would give infinity less infinity.
  const auto weight = [&](const Candidate& c) -> uint64_t {
    if (c.value == highest) return static_cast<uint64_t>(kUnit);
    return static_cast<uint64_t>(Exp((c.value - highest) / options_.temperature) * kUnit);
  };
  uint64_t total = 0;
  for (size_t i = 0; i < k; ++i) total += weight(candidates_[i]);

  // Candidates are put in order (value descending, id ascending) only as far as they are looked at.
  size_t ordered = 0, step = 64;
  const auto at = [&](size_t i) -> const Candidate& {
    while (i >= ordered) {
      const size_t next = std::min(k, ordered + step);
      const auto from = begin + static_cast<ptrdiff_t>(ordered), to = begin + static_cast<ptrdiff_t>(next);
      if (next < k) std::nth_element(from, to, begin + static_cast<ptrdiff_t>(k), better);
      std::sort(from, to, better);
      ordered = next;
      step *= 8;
    }
    return candidates_[i];
  };

  // top-p and min-p: a prefix of that order, at least one long. `kept` is its weight.
  uint64_t kept = total;
  if (options_.top_p < 1 || options_.min_p > 0) {
    const auto share = static_cast<uint64_t>(std::lround(std::ldexp(options_.top_p, kShareBits)));
    const auto need =
        static_cast<uint64_t>((Wide{total} * share + ((Wide{1} << kShareBits) - 1)) >> kShareBits);
    const auto least = static_cast<uint64_t>(options_.min_p * kUnit);
    kept = 0;
    for (size_t i = 0; i < k && kept < need; ++i) {
      const uint64_t w = weight(at(i));
      if (i > 0 && w < least) break;
      kept += w;
    }
  }

  // A 64-bit draw scaled to [0, kept): each id's chance is its weight's share to within 2^-64.
  const auto target = static_cast<uint64_t>(Wide{engine::Draw64(options_.seed, draws_++)} * kept >> 64);
  uint64_t passed = 0;
  for (size_t i = 0;; ++i) {
    const Candidate& c = at(i);
    passed += weight(c);
    if (passed > target) return c.id;
  }
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  if (static_cast<int64_t>(logits.size()) < usable_vocab_) {
    return Status(Code::kBadInput,
                  fmt::format("{} logits given; the vocabulary has {} ids", logits.size(), usable_vocab_));
  }
  Gather(logits);
  if (candidates_.empty()) {
    return Status(Code::kBadInput,
                  "no id is left to choose: every logit is NaN, -infinity or banned by logit_bias");
  }
  int32_t id = 0;
  if (options_.temperature == 0) {
    // Ids ascend, and the first of equals stays: ties to the lower id.
    id = std::max_element(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
           return Mutated(Mutation::kGreedyTieToTheHigher) ? a.value <= b.value : a.value < b.value;
         })->id;
  } else {
    id = Draw();
  }
  seen_[static_cast<size_t>(id)] = 1;
  ++generated_[static_cast<size_t>(id)];
  return id;
}

void Sampler::Observe(std::span<const int32_t> prompt) {
  for (const int32_t id : prompt) {
    if (id >= 0 && id < usable_vocab_) seen_[static_cast<size_t>(id)] = 1;
  }
}

void Sampler::Reset() {
  draws_ = 0;
  std::fill(generated_.begin(), generated_.end(), 0);
  std::fill(seen_.begin(), seen_.end(), 0);
}

}  // namespace glint
