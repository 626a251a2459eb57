#include "glint/sampler.h"
#include "base/mutation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/math.h"
#include "base/no_room.h"
#include "cpu/kernels.h"
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

// Candidates by value in so many buckets, of which only those are put in order that a draw has to look into.
constexpr uint32_t kBuckets = 2048;
constexpr float kBeyond = kBuckets;  // where those go that have no weight
// Weights are zero this far below the highest: e^-28 < 2^-40.
constexpr float kDepth = 28;
// Values compared at once; a NaN is no value.
constexpr size_t kLanes = 16;

float Highest(const float* values, size_t n) {
  float lane[kLanes];
  std::fill(lane, lane + kLanes, -Infinity());
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) lane[l] = values[i + l] > lane[l] ? values[i + l] : lane[l];
  }
  for (; i < n; ++i) lane[0] = values[i] > lane[0] ? values[i] : lane[0];
  return *std::max_element(lane, lane + kLanes);
}

// Whether one of kLanes entries is `bucket`.
bool AnyOf(const uint16_t* entries, uint32_t bucket) {
  const auto wanted = static_cast<uint16_t>(bucket);
  uint16_t all = 0xffff;
  for (size_t i = 0; i < kLanes; ++i) all &= entries[i] == wanted ? 0 : 0xffff;
  return all != 0xffff;
}

// Of what is above -infinity; +infinity if there is none.
float LowestFinite(const float* values, size_t n) {
  float lane[kLanes];
  std::fill(lane, lane + kLanes, Infinity());
  const auto lower = [](float x, float than) {
    const float value = x > -Infinity() ? x : than;
    return value < than ? value : than;
  };
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) lane[l] = lower(values[i + l], lane[l]);
  }
  for (; i < n; ++i) lane[0] = lower(values[i], lane[0]);
  return *std::min_element(lane, lane + kLanes);
}

}  // namespace

Sampler::Sampler(SamplerOptions options, int64_t usable_vocab)
    : options_(std::move(options)),
      usable_vocab_(usable_vocab),
      generated_(static_cast<size_t>(usable_vocab)),
      seen_(static_cast<size_t>(usable_vocab)),
      penalties_(options_.repetition_penalty != 1 || options_.presence_penalty != 0 ||
                 options_.frequency_penalty != 0) {
  if (options_.logit_bias.empty()) return;
  bias_.resize(static_cast<size_t>(usable_vocab));
  for (const auto& [id, bias] : options_.logit_bias) {
    bias_[static_cast<size_t>(id)] += bias;
    touched_.push_back(id);
  }
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  biased_ = touched_.size();
}

Result<Sampler> Sampler::Create(const SamplerOptions& options, int64_t usable_vocab) try {
  if (usable_vocab < 1 || usable_vocab > std::numeric_limits<int32_t>::max()) {
    return Status(Code::kBadInput,
                  fmt::format("a vocabulary of {} entries can't be sampled from", usable_vocab));
  }
  Status status = CheckOptions(options, usable_vocab);
  if (!status.ok()) return status;
  return Sampler(options, usable_vocab);
} catch (...) {
  return NoRoomOrRethrow();
}

float Sampler::Changed(int32_t id, float logit) const {
  const auto i = static_cast<size_t>(id);
  if (!bias_.empty()) logit += bias_[i];
  if (!penalties_) return logit;
  if (seen_[i]) logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
  if (generated_[i]) {
    logit -= options_.presence_penalty;
    logit -= options_.frequency_penalty * static_cast<float>(generated_[i]);
  }
  return logit;
}

const float* Sampler::Values(std::span<const float> logits) {
  if (touched_.empty()) return logits.data();
  values_.assign(logits.begin(), logits.begin() + usable_vocab_);
  for (const int32_t id : touched_)
    values_[static_cast<size_t>(id)] = Changed(id, logits[static_cast<size_t>(id)]);
  return values_.data();
}

// One pass: every candidate's weight is added to its bucket's, and the bucket remembered. Buckets cut the range of values evenly, from the
// highest down to where weights are zero, so the order of buckets is the order of candidates but for those inside one.
void Sampler::Rank(const float* values, float highest) {
  constexpr size_t kChunk = 512;
  const auto n = static_cast<size_t>(usable_vocab_);
  const float temperature = options_.temperature;
  const bool counted = options_.top_k > 0;
  const float range = std::isinf(highest) ? 0.0f : (highest - LowestFinite(values, n)) / temperature;
  highest_ = highest;
  const float scale = range > 1e-3f ? static_cast<float>(kBuckets - 1) / std::min(range, kDepth) : 0.0f;
  scale_ = scale;
  bucket_.resize(n);
  weights_.assign(kBuckets + 1, 0);
  counts_.assign(kBuckets + 1, 0);
  const cpu::Kernels& kernels = cpu::FastestKernels();
  for (size_t begin = 0; begin < n; begin += kChunk) {
    const size_t count = std::min(kChunk, n - begin);
    const float* const in = values + begin;
    uint16_t* const bucket = bucket_.data() + begin;
    float depth[kChunk], weight[kChunk];
    int32_t place[kChunk];
    // Differences first: a tiny temperature makes them -infinity and leaves the highest at 0, where dividing first would give infinity
    // less infinity.
    if (std::isinf(highest)) {
      for (size_t i = 0; i < count; ++i) depth[i] = in[i] == highest ? 0.0f : -Infinity();
    } else {
      for (size_t i = 0; i < count; ++i) depth[i] = (in[i] - highest) / temperature;
    }
    kernels.exp(depth, weight, static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) {  // a NaN is no candidate
      const float units = weight[i] * kUnit, down = -depth[i] * scale;
      weight[i] = units > 0.0f ? units : 0.0f;
      depth[i] = down < kBeyond ? down : kBeyond;
    }
    for (size_t i = 0; i < count; ++i) place[i] = static_cast<int32_t>(depth[i]);
    for (size_t i = 0; i < count; ++i) {
      bucket[i] = static_cast<uint16_t>(place[i]);
      weights_[static_cast<size_t>(place[i])] += static_cast<uint64_t>(static_cast<int64_t>(weight[i]));
    }
    for (size_t i = 0; counted && i < count; ++i) ++counts_[bucket[i]];
  }
}

void Sampler::Members(const float* values, uint32_t bucket) {
  members_.clear();
  const size_t n = bucket_.size();
  for (size_t begin = 0; begin < n; begin += kLanes) {
    const size_t end = std::min(begin + kLanes, n);
    if (end - begin == kLanes && !AnyOf(&bucket_[begin], bucket)) continue;
    for (size_t i = begin; i < end; ++i) {
      if (bucket_[i] == bucket) members_.push_back({values[i], static_cast<int32_t>(i), 0});
    }
  }
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  };
  if (!std::is_sorted(members_.begin(), members_.end(), better))
    std::sort(members_.begin(), members_.end(), better);
  for (Candidate& c : members_) {
    c.weight = c.value == highest_
                   ? static_cast<uint64_t>(kUnit)
                   : static_cast<uint64_t>(Exp((c.value - highest_) / options_.temperature) * kUnit);
  }
}

int32_t Sampler::Draw(const float* values) {
  // What is kept: the buckets before `last`, and of it the first `most` members.
  uint32_t last = kBuckets;
  size_t most = 0;
  uint64_t total = 0, last_weight = 0;
  size_t left = options_.top_k > 0 ? static_cast<size_t>(options_.top_k) : static_cast<size_t>(usable_vocab_);
  for (uint32_t b = 0; b < kBuckets; ++b) {
    if (options_.top_k > 0 && counts_[b] > left) {
      Members(values, b);
      last = b, most = left;
      for (size_t i = 0; i < most; ++i) last_weight += members_[i].weight;
      total += last_weight;
      break;
    }
    total += weights_[b];
    left -= counts_[b];
  }
  // fn(candidate) in order, from bucket b on, for those of it that are kept; false ends it.
  const auto each = [&](uint32_t b, auto&& fn) {
    Members(values, b);
    return std::all_of(members_.begin(), members_.end(), fn);
  };
  const auto weight_of = [&](uint32_t b) { return b == last ? last_weight : weights_[b]; };

  // top-p and min-p: a prefix of that order, at least one long. `kept` is its weight.
  uint64_t kept = total;
  if (options_.top_p < 1 || options_.min_p > 0) {
    const auto share = static_cast<uint64_t>(std::lround(std::ldexp(options_.top_p, kShareBits)));
    const auto need =
        static_cast<uint64_t>((Wide{total} * share + ((Wide{1} << kShareBits) - 1)) >> kShareBits);
    const auto least = static_cast<uint64_t>(options_.min_p * kUnit);
    // Buckets before this one hold no weight below `least`, by a margin beyond all roundings.
    const double safe = least == 0 ? kBuckets : (-std::log(double{options_.min_p}) - 1e-3) * scale_ - 2;
    bool first = true, more = true;
    kept = 0;
    for (uint32_t b = 0; more && b <= last && b < kBuckets && kept < need; ++b) {
      if (b < safe && kept + weight_of(b) < need) {
        kept += weight_of(b);
        first = false;  // the highest is in bucket 0
        continue;
      }
      more = each(b, [&](const Candidate& c) {
        if (kept >= need || (!first && c.weight < least)) return false;
        first = false;
        kept += c.weight;
        return true;
      });
    }
  }

  // A 64-bit draw scaled to [0, kept): each id's chance is its weight's share to within 2^-64.
  const auto target = static_cast<uint64_t>(Wide{engine::Draw64(options_.seed, draws_++)} * kept >> 64);
  uint64_t passed = 0;
  int32_t chosen = -1;
  for (uint32_t b = 0; chosen < 0; ++b) {
    if (passed + weight_of(b) <= target) {
      passed += weight_of(b);
      continue;
    }
    each(b, [&](const Candidate& c) {
      passed += c.weight;
      if (passed > target) chosen = c.id;
      return chosen < 0;
    });
  }
  return chosen;
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) try {
  if (static_cast<int64_t>(logits.size()) < usable_vocab_) {
    return Status(Code::kBadInput,
                  fmt::format("{} logits given; the vocabulary has {} ids", logits.size(), usable_vocab_));
  }
  const float* const values = Values(logits);
  const auto n = static_cast<size_t>(usable_vocab_);
  const float highest = Highest(values, n);
  if (highest == -Infinity()) {
    return Status(Code::kBadInput,
                  "no id is left to choose: every logit is NaN, -infinity or banned by logit_bias");
  }
  int32_t id = 0;
  if (options_.temperature == 0) {
    // Ties to the lower id.
    for (size_t i = 0; i < n; ++i) {
      if (values[i] != highest) continue;
      id = static_cast<int32_t>(i);
      if (!Mutated(Mutation::kGreedyTieToTheHigher)) break;
    }
  } else {
    Rank(values, highest);
    id = Draw(values);
  }
  See(id);
  ++generated_[static_cast<size_t>(id)];
  return id;
} catch (...) {
  return NoRoomOrRethrow();
}

void Sampler::See(int32_t id) {
  const auto i = static_cast<size_t>(id);
  if (seen_[i]) return;
  if (penalties_ &&
      !std::binary_search(touched_.begin(), touched_.begin() + static_cast<ptrdiff_t>(biased_), id))
    touched_.push_back(id);
  seen_[i] = 1;
}

bool Sampler::is_argmax() const { return options_.temperature == 0 && bias_.empty() && !penalties_; }

void Sampler::Observe(std::span<const int32_t> prompt) {
  for (const int32_t id : prompt) {
    if (id >= 0 && id < usable_vocab_) See(id);
  }
}

void Sampler::Reset() {
  draws_ = 0;
  std::fill(generated_.begin(), generated_.end(), 0);
  std::fill(seen_.begin(), seen_.end(), 0);
  touched_.resize(biased_);
}

}  // namespace glint
