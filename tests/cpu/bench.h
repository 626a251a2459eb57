// One stage alone, on inputs that the test makes up.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cpu/stages.h"
#include "tests/support/small_model.h"

namespace glint::test {

class Bench {
 public:
  Bench(const SmallModel& m, int rows, int64_t capacity = 4096, int threads = 1)
      : model_(m), rows_(rows), pool_(threads), per_worker_(static_cast<size_t>(threads)) {
    auto made = cpu::SequenceState::Create(plan::StateLayout(m.hp, capacity, true));
    EXPECT_TRUE(made.ok());
    state = std::move(*made);
    uint64_t total = 0;
    places_.resize(static_cast<size_t>(plan::Slot::kCount));
    for (size_t s = 0; s < places_.size(); ++s) {
      places_[s].offset = total;
      places_[s].bytes = 4 * static_cast<uint64_t>(plan::Width(static_cast<plan::Slot>(s), m.hp) * rows);
      total += (places_[s].bytes + 63) / 64 * 64;
    }
    memory_.resize(total + 64);
    std::memset(memory_.data(), 0xff, memory_.size());
    scratch_.set_poison(true);
    for (auto& s : per_worker_) s.set_poison(true);
  }

  float* Floats(plan::Slot slot) {
    return reinterpret_cast<float*>(Base() + places_[static_cast<size_t>(slot)].offset);
  }
  int32_t* Ints(plan::Slot slot) { return reinterpret_cast<int32_t*>(Floats(slot)); }

  // Runs over `rows` rows that continue the sequence at `position`; the state's own position is not looked at.
  void Run(cpu::StageFunction stage, int layer, int64_t position, int rows, const cpu::Kernels& kernels,
           bool batched) {
    plan::Step step;
    step.layer = layer;
    plan::Batch batch;
    const cpu::SegmentView segment{state.get(), position, 0, rows};
    const model::Layer* weights =
        layer < model_.hp.layers ? &model_.weights.layers[layer] : &model_.weights.nextn[0].block;
    const cpu::StepContext context{model_.hp,
                                   model_.weights,
                                   step,
                                   plan::Pass::kTrunk,
                                   weights,
                                   batch,
                                   {&segment, 1},
                                   rows,
                                   {&kernels, pool_.threads() > 1 ? &pool_ : nullptr, batched},
                                   places_,
                                   Base(),
                                   scratch_,
                                   per_worker_,
                                   0};
    stage(context);
  }

  std::unique_ptr<cpu::SequenceState> state;

 private:
  std::byte* Base() { return memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64; }

  const SmallModel& model_;
  int rows_;
  ThreadPool pool_;
  cpu::Scratch scratch_;
  std::vector<cpu::Scratch> per_worker_;
  std::vector<plan::BufferLayout::Place> places_;
  std::vector<std::byte> memory_;
};

inline std::vector<const cpu::Kernels*> AllKernels() {
  std::vector<const cpu::Kernels*> all = {&cpu::ScalarKernels()};
  for (const auto* k :
       {cpu::Avx2Kernels(), cpu::Avx512Kernels(), cpu::Avx512VbmiKernels(), cpu::NeonKernels()}) {
    if (k != nullptr) all.push_back(k);
  }
  return all;
}

}  // namespace glint::test
