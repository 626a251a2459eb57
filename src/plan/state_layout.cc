#include "plan/state_layout.h"

#include <fmt/core.h>

#include "base/mutation.h"

namespace glint::plan {

StateLayout::StateLayout(const model::HParams& hp, int64_t room, bool with_mtp)
    : capacity(room),
      block(hp.block),
      kpool(hp.index_kpool),
      layers(hp.layers),
      mtp(with_mtp),
      conv_ring(hp.block + hp.conv_kernel - (Mutated(Mutation::kConvRingOneShort) ? 3 : 1)),
      raw_ring(hp.block + hp.index_kpool),
      kda_width(hp.kda_width()),
      head_dim(hp.kda_head_dim),
      kv_lora(hp.kv_lora_rank),
      index_dim(hp.index_head_dim) {
  parts.resize(static_cast<size_t>(layers) + 1);
  const auto take = [this](Part& part, int64_t floats) {
    part = {total_floats, floats};
    total_floats += (floats + 15) / 16 * 16;  // every part on its own cache line
  };
  for (int64_t l = 0; l <= layers; ++l) {
    LayerParts& p = parts[l];
    if (l == layers && !mtp) continue;
    p.kda = l < layers && hp.mixers[l] == model::Mixer::kKda;
    if (p.kda) {
      take(p.s, hp.kda_heads * hp.kda_head_dim * hp.kda_head_dim);
      for (Part* rows : {&p.kf, &p.delta, &p.g}) take(*rows, block * kda_width);
      take(p.conv, conv_ring * 3 * kda_width);
    } else {
      for (Part* ring : {&p.raw_key, &p.raw_gate}) take(*ring, raw_ring * index_dim);
    }
  }
  fixed_floats = total_floats;
  for (int64_t l = 0; l <= layers; ++l) {
    LayerParts& p = parts[l];
    if (p.kda || (l == layers && !mtp)) continue;
    take(p.latent, capacity * kv_lora);
    take(p.pooled, capacity / kpool * index_dim);
  }
}

uint64_t StateBytes(const model::HParams& hp, int64_t capacity, bool mtp) {
  if (capacity > kMostTokens) return std::numeric_limits<uint64_t>::max();
  return StateLayout(hp, capacity, mtp).bytes();
}

Result<StateLayout> NewStateLayout(const model::HParams& hp, bool has_mtp, int64_t capacity, bool mtp) {
  if (capacity < 1 || capacity > kMostTokens) {
    return Status(Code::kBadInput,
                  fmt::format("a sequence of {} tokens; 1 to {} are possible", capacity, kMostTokens));
  }
  if (mtp && !has_mtp)
    return Status(Code::kBadInput, "this model has no MTP block (or was loaded without it)");
  return StateLayout(hp, capacity, mtp);
}

}  // namespace glint::plan
