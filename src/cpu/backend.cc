#include "cpu/backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/context.h"
#include "cpu/stages.h"
#include "cpu/state.h"

namespace glint::cpu {
namespace {

using plan::Batch;
using plan::Pass;
using plan::Plan;
using plan::Slot;
using plan::Step;

class Backend final : public plan::Backend {
 public:
  Backend(const model::HParams& hp, const model::Weights& weights, int threads, const BackendOptions& options)
      : hp_(hp), weights_(weights), options_(options), pool_(std::max(1, threads)) {
    per_worker_.resize(static_cast<size_t>(pool_.threads()));
    scratch_.set_poison(options.poison);
    for (Scratch& s : per_worker_) s.set_poison(options.poison);
  }

  std::string_view name() const override { return "cpu"; }
  std::span<const plan::Lever> levers() const override { return Levers(); }

  uint64_t StateBytes(int64_t capacity, bool mtp) const override {
    if (capacity > kMostTokens) return std::numeric_limits<uint64_t>::max();
    return StateLayout(hp_, capacity, mtp).bytes();
  }

  Result<std::unique_ptr<plan::SequenceState>> NewState(int64_t capacity, bool mtp) override {
    if (capacity < 1 || capacity > kMostTokens) {
      return Status(Code::kBadInput,
                    fmt::format("a sequence of {} tokens; 1 to {} are possible", capacity, kMostTokens));
    }
    if (mtp && weights_.nextn.empty()) {
      return Status(Code::kBadInput, "this model has no MTP block (or was loaded without it)");
    }
    auto state = SequenceState::Create(StateLayout(hp_, capacity, mtp));
    if (!state.ok()) return state.status();
    return std::unique_ptr<plan::SequenceState>(std::move(*state));
  }

  Status Run(const Plan& plan, const Batch& batch, const plan::Observer& observer) override {
    if (auto status = Check(plan, batch); !status.ok()) return status;
    const auto rows = static_cast<int64_t>(batch.tokens.size());
    if (rows == 0) return {};
    if (buffers_.bytes() < plan.buffers.total_bytes) {
      auto pages = Pages::Reserve(plan.buffers.total_bytes);
      if (!pages.ok()) return pages.status();
      buffers_ = std::move(*pages);
    }
    if (options_.poison) std::memset(buffers_.data(), 0xff, plan.buffers.total_bytes);

    std::vector<SegmentView> segments;
    for (const plan::Segment& s : batch.segments) {
      segments.push_back({static_cast<SequenceState*>(s.state), s.position, s.first_row, s.rows});
    }
    for (const Step& step : plan.steps) {
      const StageFunction function = step.lever != nullptr ? Replacement(*step.lever) : Canonical(step.stage);
      const StepContext context{hp_,
                                weights_,
                                step,
                                plan.pass,
                                LayerOf(step),
                                batch,
                                segments,
                                rows,
                                HowFor(step),
                                plan.buffers.places,
                                buffers_.data(),
                                scratch_,
                                per_worker_,
                                options_.share_all ? 0 : kWorthSharing};
      if (options_.poison) Poison(plan, step);
      function(context);
      if (observer) {
        const SlotFinder finder{&plan, &batch, buffers_.data()};
        observer({plan, step, static_cast<int>(rows), &SlotFinder::Find, &finder});
      }
    }
    for (const SegmentView& s : segments) s.state->Advance(plan.pass, s.rows);
    return {};
  }

 private:
  // Positions are int32 in the selected lists.
  static constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

  struct SlotFinder {
    const Plan* plan;
    const Batch* batch;
    const std::byte* buffers;
    static const void* Find(const void* self, Slot slot) {
      const auto& f = *static_cast<const SlotFinder*>(self);
      if (slot == Slot::kLogits) return f.batch->logits;
      const auto& place = f.plan->buffers.places[static_cast<size_t>(slot)];
      return place.bytes == 0 ? nullptr : f.buffers + place.offset;
    }
  };

  // The engine has checked what a user can get wrong; this guards the memory against our own mistakes.
  Status Check(const Plan& plan, const Batch& batch) const {
    const auto rows = static_cast<int64_t>(batch.tokens.size());
    if (rows > plan.max_rows) {
      return {Code::kInternal, fmt::format("a batch of {} rows for a plan of {}", rows, plan.max_rows)};
    }
    if (plan.pass == Pass::kMtp && rows > 0 && batch.hidden_in == nullptr) {
      return {Code::kInternal, "an MTP pass without hidden rows"};
    }
    for (const int32_t token : batch.tokens) {
      if (token < 0 || token >= hp_.vocab_size) {
        return {Code::kBadInput,
                fmt::format("token id {} is not below the vocabulary's size {}", token, hp_.vocab_size)};
      }
    }
    for (const int32_t row : batch.wanted) {
      if (row < 0 || row >= rows)
        return {Code::kInternal, fmt::format("logits wanted of row {} of {}", row, rows)};
    }
    int64_t next_row = 0;
    for (const plan::Segment& s : batch.segments) {
      const auto* state = dynamic_cast<const SequenceState*>(s.state);
      if (state == nullptr || s.first_row != next_row || s.rows < 1) {
        return {Code::kInternal, "segments must be CPU sequences and cover the rows in order"};
      }
      next_row += s.rows;
      if (plan.pass == Pass::kMtp && !state->layout().mtp) {
        return {Code::kBadInput, "the sequence was made without caches for the MTP block"};
      }
      const int64_t position = plan.pass == Pass::kTrunk ? state->position() : state->mtp_position();
      if (s.position != position) {
        return {Code::kInternal,
                fmt::format("a segment begins at position {}, its sequence is at {}", s.position, position)};
      }
      if (position + s.rows > state->capacity()) {
        return {Code::kNoRoom, fmt::format("{} tokens do not fit: {} of {} are in use", s.rows, position,
                                           state->capacity())};
      }
    }
    if (next_row != rows)
      return {Code::kInternal, fmt::format("segments cover {} of {} rows", next_row, rows)};
    for (const Step& step : plan.steps) {
      if (step.lever != nullptr && Replacement(*step.lever) == nullptr) {
        return {Code::kInternal, fmt::format("lever '{}' is not one of the CPU's", step.lever->name)};
      }
    }
    return {};
  }

  const model::Layer* LayerOf(const Step& step) const {
    if (step.layer < 0) return nullptr;
    return step.layer < hp_.layers ? &weights_.layers[step.layer] : &weights_.nextn[0].block;
  }

  How HowFor(const Step& step) {
    How how{&ScalarKernels(), nullptr, false};
    const Kernels* by_name[3] = {nullptr, nullptr, nullptr};
    for (const plan::Lever* m : step.modifiers) {
      if (m->name == "simd.avx2") by_name[2] = Avx2Kernels();
      if (m->name == "simd.avx512") by_name[0] = Avx512Kernels();
      if (m->name == "simd.neon") by_name[1] = NeonKernels();
      if (m->name == "threads" && pool_.threads() > 1) how.pool = &pool_;
      if (m->name == "batch") how.batched = true;
    }
    for (const Kernels* kernels : by_name) {
      if (kernels == nullptr) continue;
      how.kernels = kernels;
      break;
    }
    return how;
  }

  // What a step only writes holds NaN before it, whoever used the bytes last.
  void Poison(const Plan& plan, const Step& step) {
    for (const Slot slot : step.out) {
      const auto& place = plan.buffers.places[static_cast<size_t>(slot)];
      if (std::find(step.in.begin(), step.in.end(), slot) != step.in.end() || place.bytes == 0) continue;
      std::memset(buffers_.data() + place.offset, 0xff, place.bytes);
    }
  }

  const model::HParams& hp_;
  const model::Weights& weights_;
  const BackendOptions options_;
  ThreadPool pool_;
  Pages buffers_;
  Scratch scratch_;
  std::vector<Scratch> per_worker_;
};

}  // namespace

std::unique_ptr<plan::Backend> MakeBackend(const model::HParams& hp, const model::Weights& weights,
                                           int threads, const BackendOptions& options) {
  return std::make_unique<Backend>(hp, weights, threads, options);
}

}  // namespace glint::cpu
