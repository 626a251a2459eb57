// Passes deep in a context, and of many rows: positions around every boundary of the selection and of the lengths the model is made for.
// The caches are not computed but filled with random numbers, the same on both devices, so that no depth costs more than its memory.
#include <fmt/core.h>

#include <algorithm>
#include <random>

#include "cpu/backend.h"
#include "cuda/backend.h"
#include "model/model_data.h"
#include "plan/backend.h"
#include "plan/plan.h"
#include "tests/cuda/gpu_test_base.h"

namespace glint::test {
namespace {

class GpuDepth : public GpuTest<> {
 protected:
  void Load(const std::string& spec) {
    seed_ = std::random_device{}();
    rng_.seed(seed_);
    auto loaded = model::LoadSynthetic(spec);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    data_ = std::move(*loaded);
    auto gpu = cuda::MakeBackend(data_, 0, {});
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    gpu_ = std::move(*gpu);
  }
  // The logits of all rows.
  std::vector<float> Run(plan::Backend& backend, plan::SequenceState& state, std::span<const int32_t> tokens,
                         bool last_only = false) {
    const auto rows = static_cast<int>(tokens.size());
    const auto plan = plan::MakePlan({.hparams = &data_.hparams,
                                      .weights = &data_.weights,
                                      .levers = backend.levers(),
                                      .choice = {},
                                      .pass = plan::Pass::kTrunk,
                                      .rows = rows});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    std::vector<int32_t> wanted;
    for (int r = last_only ? rows - 1 : 0; r < rows; ++r) wanted.push_back(r);
    std::vector<float> logits(wanted.size() * static_cast<size_t>(data_.hparams.vocab_size), NAN);
    const plan::Segment segment{&state, state.position(), 0, rows};
    plan::Batch batch;
    batch.tokens = tokens;
    batch.segments = {&segment, 1};
    batch.wanted = wanted;
    batch.logits = logits.data();
    const Status status = backend.Run(*plan, batch);
    EXPECT_TRUE(status.ok()) << status.message();
    return logits;
  }
  std::vector<int32_t> Tokens(int64_t n) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t& t : tokens)
      t = static_cast<int32_t>(rng_() % static_cast<uint64_t>(data_.hparams.vocab_size));
    return tokens;
  }

  uint64_t seed_ = 0;
  std::mt19937_64 rng_;
  model::ModelData data_;
  std::unique_ptr<plan::Backend> gpu_;
};

void ExpectSameStates(const plan::SequenceState& a, const plan::SequenceState& b) {
  ASSERT_EQ(a.position(), b.position());
  const auto parts = a.Parts(a.position(), 0);
  ASSERT_EQ(parts, b.Parts(b.position(), 0));
  for (const plan::StatePart& part : parts) {
    std::vector<float> of_a(static_cast<size_t>(part.rows * part.width)), of_b(of_a.size());
    ASSERT_TRUE(a.Read(part, of_a.data()).ok());
    ASSERT_TRUE(b.Read(part, of_b.data()).ok());
    ASSERT_EQ(FirstDifference(of_a, of_b), -1) << plan::Name(part.kind) << " of layer " << part.layer;
  }
}

// Two tokens up to the depth and three over it, one by one and together; contexts that are full to the last token, too.
TEST_F(GpuDepth, DecodesAsTheCpuAtEveryDepth) {
  ASSERT_NO_FATAL_FAILURE(Load("tiny,context=300000"));
  SCOPED_TRACE(seed_);
  const auto cpu = cpu::MakeBackend(data_.hparams, data_.weights, 2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<int64_t> depths;
  for (int64_t depth = 2048; depth <= 2056; ++depth) depths.push_back(depth);
  for (const int64_t depth : {4096, 131072, 262144, 262145}) depths.push_back(depth);
  for (const int64_t depth : depths) {
    SCOPED_TRACE(fmt::format("a context of {} tokens", depth));
    const int64_t start = depth - 5;
    auto on_cpu = cpu->NewState(depth, false), on_gpu = gpu_->NewState(depth, false),
         in_one = gpu_->NewState(depth, false);
    ASSERT_TRUE(on_cpu.ok() && on_gpu.ok() && in_one.ok());
    for (const plan::StatePart& part : (*on_cpu)->Parts(start, 0)) {
      std::vector<float> values(static_cast<size_t>(part.rows * part.width));
      for (float& v : values) v = uniform(rng_);
      for (plan::SequenceState* state : {on_cpu->get(), on_gpu->get(), in_one->get()})
        ASSERT_TRUE(state->Write(part, values.data()).ok());
    }
    for (plan::SequenceState* state : {on_cpu->get(), on_gpu->get(), in_one->get()})
      ASSERT_TRUE(state->Place(start, 0).ok());
    const auto tokens = Tokens(5);
    const auto want = Run(*cpu, **on_cpu, tokens);
    std::vector<float> got;
    for (const int32_t& token : tokens) {
      const auto of_one = Run(*gpu_, **on_gpu, {&token, 1});
      got.insert(got.end(), of_one.begin(), of_one.end());
    }
    ASSERT_EQ(FirstDifference(want, got), -1);
    ASSERT_EQ(FirstDifference(want, Run(*gpu_, **in_one, tokens)), -1);
    ASSERT_NO_FATAL_FAILURE(ExpectSameStates(**on_cpu, **on_gpu));
    ASSERT_NO_FATAL_FAILURE(ExpectSameStates(**on_cpu, **in_one));
  }
}

// Attention of the released shape around its longest lists: passes of many rows against those of few, which share no kernel, and as many
// of the rows as take no minute against the CPU.
TEST_F(GpuDepth, LongListsOfTheReleasedShapeHaveTheCpusBits) {
  ASSERT_NO_FATAL_FAILURE(Load("glm-5.3-flash,layers=4,dense=4,dense_ffn=512,vocab=1024,recipe=q8_0"));
  SCOPED_TRACE(seed_);
  const auto cpu = cpu::MakeBackend(data_.hparams, data_.weights, 2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  constexpr int64_t kStart = 2030, kOnCpu = 26, kRows = 170;
  constexpr int64_t kChunks[] = {kRows, kOnCpu, 20, 1};
  for (const int64_t start : {kStart, int64_t{100}}) {
    SCOPED_TRACE(fmt::format("from position {}", start));
    auto on_cpu = cpu->NewState(start + kOnCpu, false);
    ASSERT_TRUE(on_cpu.ok());
    std::vector<std::unique_ptr<plan::SequenceState>> states;
    for ([[maybe_unused]] const int64_t chunk : kChunks) {
      auto state = gpu_->NewState(start + kRows, false);
      ASSERT_TRUE(state.ok()) << state.status().message();
      states.push_back(std::move(*state));
    }
    for (const plan::StatePart& part : (*on_cpu)->Parts(start, 0)) {
      std::vector<float> values(static_cast<size_t>(part.rows * part.width));
      for (float& v : values) v = uniform(rng_);
      ASSERT_TRUE((*on_cpu)->Write(part, values.data()).ok());
      for (const auto& state : states) ASSERT_TRUE(state->Write(part, values.data()).ok());
    }
    ASSERT_TRUE((*on_cpu)->Place(start, 0).ok());
    const auto tokens = Tokens(kRows);
    const auto of_cpu = Run(*cpu, **on_cpu, std::span(tokens).first(kOnCpu));
    std::vector<float> want;
    for (size_t i = 0; i < states.size(); ++i) {
      SCOPED_TRACE(fmt::format("chunks of {}", kChunks[i]));
      ASSERT_TRUE(states[i]->Place(start, 0).ok());
      std::vector<float> got;
      for (int64_t at = 0; at < kRows; at += kChunks[i]) {
        const auto rows = static_cast<size_t>(std::min(kChunks[i], kRows - at));
        const auto of_chunk =
            Run(*gpu_, *states[i], std::span(tokens).subspan(static_cast<size_t>(at), rows));
        got.insert(got.end(), of_chunk.begin(), of_chunk.end());
      }
      if (HasFailure()) return;
      if (i == 0) want = got;
      ASSERT_EQ(FirstDifference(std::span(of_cpu), std::span(got).first(of_cpu.size())), -1);
      ASSERT_EQ(FirstDifference(want, got), -1);
      ASSERT_NO_FATAL_FAILURE(ExpectSameStates(*states[0], *states[i]));
    }
  }
}

// A prompt of 16,384 tokens at once, and in chunks around powers of two down to one token at its end.
TEST_F(GpuDepth, ChunksOfUpTo16384RowsGiveTheSameBits) {
  ASSERT_NO_FATAL_FAILURE(Load("tiny,context=20000"));
  SCOPED_TRACE(seed_);
  constexpr int64_t kTokens = 16384;
  const auto tokens = Tokens(kTokens);
  std::vector<float> want;
  std::unique_ptr<plan::SequenceState> first;
  for (const int64_t chunk : {int64_t{512}, kTokens, kTokens - 1, int64_t{4097}, int64_t{1023}}) {
    SCOPED_TRACE(fmt::format("chunks of {}", chunk));
    auto state = gpu_->NewState(kTokens, false);
    ASSERT_TRUE(state.ok()) << state.status().message();
    std::vector<float> got;
    while ((*state)->position() < kTokens) {
      const auto at = static_cast<size_t>((*state)->position());
      const auto rows = static_cast<size_t>(std::min(chunk, kTokens - (*state)->position()));
      got = Run(*gpu_, **state, std::span(tokens).subspan(at, rows), true);
      if (HasFailure()) return;
    }
    if (first == nullptr) {
      want = got;
      first = std::move(*state);
      continue;
    }
    ASSERT_EQ(FirstDifference(want, got), -1);
    ASSERT_NO_FATAL_FAILURE(ExpectSameStates(*first, **state));
  }
}

}  // namespace
}  // namespace glint::test
