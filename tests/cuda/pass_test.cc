// Passes on the GPU against the CPU's canonical stages: every stage on the same inputs, then whole passes, bit by bit.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <random>

#include "cpu/backend.h"
#include "cuda/backend.h"
#include "cuda/tiles.h"
#include "model/model_data.h"
#include "plan/backend.h"
#include "plan/best.h"
#include "tests/cuda/gpu_test_base.h"
#include "tests/support/small_model.h"

namespace glint::test {
namespace {

using plan::Pass;
using plan::Slot;

// A model on both devices, and one sequence on each.
class Both {
 public:
  Both(model::ModelData data, int64_t capacity, bool poison = true) : data_(std::move(data)) {
    cpu_ = cpu::MakeBackend(data_.hparams, data_.weights, 2);
    auto gpu = cuda::MakeBackend(data_, 0, {}, {poison});
    EXPECT_TRUE(gpu.ok()) << gpu.status().message();
    gpu_ = std::move(*gpu);
    mtp_ = !data_.weights.nextn.empty();
    capacity_ = capacity;
    on_cpu_ = NewState(*cpu_);
    on_gpu_ = NewState(*gpu_);
  }
  const model::HParams& hp() const { return data_.hparams; }
  plan::Backend& cpu() { return *cpu_; }
  plan::Backend& gpu() { return *gpu_; }
  plan::SequenceState& on_cpu() { return *on_cpu_; }
  plan::SequenceState& on_gpu() { return *on_gpu_; }
  bool mtp() const { return mtp_; }

  std::unique_ptr<plan::SequenceState> NewState(plan::Backend& backend) {
    auto state = backend.NewState(capacity_, mtp_);
    EXPECT_TRUE(state.ok()) << state.status().message();
    return std::move(*state);
  }
  plan::Plan Plan(plan::Backend& backend, Pass pass, size_t rows, bool keep_all,
                  plan::LeverChoice choice = {}) {
    auto plan = plan::MakePlan({.hparams = &data_.hparams,
                                .weights = &data_.weights,
                                .levers = backend.levers(),
                                .choice = std::move(choice),
                                .pass = pass,
                                .rows = static_cast<int>(rows),
                                .keep_all = keep_all});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return std::move(*plan);
  }

 private:
  model::ModelData data_;
  std::unique_ptr<plan::Backend> cpu_, gpu_;
  std::unique_ptr<plan::SequenceState> on_cpu_, on_gpu_;
  int64_t capacity_ = 0;
  bool mtp_ = false;
};

struct Batch {
  std::vector<int32_t> tokens, wanted;
  std::vector<float> hidden, logits, final;
  plan::Segment segment{};
  plan::Batch view;
  Batch(const model::HParams& hp, Pass pass, plan::SequenceState& state, std::vector<int32_t> ids,
        const float* hidden_in)
      : tokens(std::move(ids)) {
    const auto rows = static_cast<int>(tokens.size());
    for (int r = 0; r < rows; ++r) wanted.push_back(r);
    logits.resize(tokens.size() * static_cast<size_t>(hp.vocab_size));
    final.resize(tokens.size() * static_cast<size_t>(hp.hidden));
    segment = {&state, pass == Pass::kTrunk ? state.position() : state.mtp_position(), 0, rows};
    view.tokens = tokens;
    view.segments = {&segment, 1};
    view.hidden_in = hidden_in;
    view.wanted = wanted;
    view.logits = logits.data();
    view.final_out = final.data();
  }
};

void CompareStates(plan::SequenceState& a, plan::SequenceState& b, int64_t position, int64_t mtp_position) {
  const auto parts = a.Parts(position, mtp_position);
  ASSERT_EQ(parts, b.Parts(position, mtp_position));
  for (const plan::StatePart& part : parts) {
    std::vector<float> of_a(static_cast<size_t>(part.rows * part.width)), of_b(of_a.size());
    ASSERT_TRUE(a.Read(part, of_a.data()).ok());
    ASSERT_TRUE(b.Read(part, of_b.data()).ok());
    const int64_t at = FirstDifference(of_a, of_b);
    ASSERT_EQ(at, -1) << plan::Name(part.kind) << " of layer " << part.layer << ", row "
                      << part.first + at / part.width << ", entry " << at % part.width << ": "
                      << of_a[static_cast<size_t>(at)] << " on the CPU, " << of_b[static_cast<size_t>(at)]
                      << " on the GPU";
  }
}

// Each step on both devices with the CPU's inputs; outputs and, at the end, states must be the same.
void StepByStep(Both& both, Pass pass, const std::vector<int32_t>& tokens, const float* hidden,
                std::vector<float>* final, plan::LeverChoice choice) {
  const auto cpu_plan = both.Plan(both.cpu(), pass, tokens.size(), true);
  const auto gpu_plan = both.Plan(both.gpu(), pass, tokens.size(), true, std::move(choice));
  Batch of_cpu(both.hp(), pass, both.on_cpu(), tokens, hidden),
      of_gpu(both.hp(), pass, both.on_gpu(), tokens, hidden);
  auto cpu = both.cpu().Begin(cpu_plan, of_cpu.view);
  auto gpu = both.gpu().Begin(gpu_plan, of_gpu.view);
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  // Either plan may have steps of several stages: what was written since both last stood at the end of a step is compared where
  // they do so again, as far as both keep it.
  const auto keeps = [](const plan::Step& step, Slot slot) {
    return std::find(step.out.begin(), step.out.end(), slot) != step.out.end();
  };
  size_t c = 0, g = 0, first_c = 0, first_g = 0, of_c = 0, of_g = 0;  // steps, and stages in them
  while (c < cpu_plan.steps.size() || g < gpu_plan.steps.size()) {
    if (of_c <= of_g) {
      ASSERT_LT(c, cpu_plan.steps.size());
      ASSERT_TRUE((*cpu)->RunStep(c).ok());
      of_c += cpu_plan.steps[c++].covers.size();
    } else {
      ASSERT_LT(g, gpu_plan.steps.size());
      const Status status = (*gpu)->RunStep(g);
      ASSERT_TRUE(status.ok()) << status.message();
      of_g += gpu_plan.steps[g++].covers.size();
    }
    if (of_c != of_g) continue;
    for (; first_g < g; ++first_g) {
      const plan::Step& step = gpu_plan.steps[first_g];
      for (const Slot slot : step.out) {
        const bool kept =
            std::any_of(cpu_plan.steps.begin() + static_cast<std::ptrdiff_t>(first_c),
                        cpu_plan.steps.begin() + static_cast<std::ptrdiff_t>(c),
                        [&](const plan::Step& of_cpu_plan) { return keeps(of_cpu_plan, slot); });
        const size_t count = tokens.size() * static_cast<size_t>(plan::Width(slot, both.hp()));
        if (!kept || count == 0) continue;
        std::vector<float> want(count), got(count);
        ASSERT_TRUE((*cpu)->Read(slot, want.data()).ok());
        const Status read = (*gpu)->Read(slot, got.data());
        ASSERT_TRUE(read.ok()) << read.message();
        const int64_t at = FirstDifference(want, got);
        ASSERT_EQ(at, -1) << plan::Name(step.stage)
                          << (step.lever == nullptr ? "" : fmt::format(" by {}", step.lever->name))
                          << " of layer " << step.layer << ", " << plan::Name(slot) << ", row "
                          << at / plan::Width(slot, both.hp()) << ", entry "
                          << at % plan::Width(slot, both.hp()) << ": " << want[static_cast<size_t>(at)]
                          << " on the CPU, " << got[static_cast<size_t>(at)] << " on the GPU";
      }
    }
    first_c = c;
  }
  ASSERT_TRUE((*cpu)->Finish().ok());
  const Status finished = (*gpu)->Finish();
  ASSERT_TRUE(finished.ok()) << finished.message();
  if (final != nullptr) *final = of_cpu.final;
  ASSERT_EQ(FirstDifference(of_cpu.final, of_gpu.final), -1) << "final rows";
  ASSERT_EQ(FirstDifference(of_cpu.logits, of_gpu.logits), -1) << "logits";
  ASSERT_NO_FATAL_FAILURE(
      CompareStates(both.on_cpu(), both.on_gpu(), both.on_cpu().position(), both.on_cpu().mtp_position()));
}

std::vector<int32_t> Tokens(std::mt19937_64& rng, const model::HParams& hp, int64_t n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng() % static_cast<uint64_t>(hp.vocab_size));
  return tokens;
}

struct Model {
  std::string name, source;
  int64_t tokens;
  bool any_hc = false;  // each site's hc.fn in another format
};

std::vector<Model> Models() {
  const std::string reference = GLINT_TEST_DATA "/reference/";
  return {
      {"SmallF32", "small:0:3", 90},
      {"SmallQ8", "small:1:4", 90},
      {"SmallPool8", "small:1:8", 90},
      {"SmallPool20", "small:0:20", 90},
      {"Micro", reference + "micro", 60},
      {"Tile", "tile", 60},
      {"TinyQ4K", "tiny,recipe=q4_k", 150},
      {"TinyQ8Iq3", "tiny,recipe=q8_0-iq3_xxs", 150},
      {"TinyWidth1024", "tiny,hidden=1024,recipe=q4_k", 34},  // clusters of 4
      {"TinyWidth2048", "tiny,hidden=2048,recipe=q8_0", 34},  // of 8
      {"TinyAnyHc", "tiny,layers=12,hidden=1024,recipe=q8_0", 34, true},
      {"Released", "glm-5.3-flash,layers=5,experts=12,vocab=2048,recipe=q8_0-iq3_xxs", 45},
  };
}

class GpuPass : public GpuTest<testing::TestWithParam<Model>> {
 protected:
  void Load(model::ModelData* data) {
    std::string source = GetParam().source;
    seed_ = std::random_device{}();
    rng_.seed(seed_);
    if (source.starts_with("small:")) {
      MakeSmall(small_, seed_, source[6] == '1', std::stoll(source.substr(8)));
      data->hparams = small_.hp;
      data->weights = small_.weights;
      return;
    }
    if (source == "tile") {  // too large for the tests' own data
      const char* const directory = std::getenv("GLINT_REFERENCE_DIR");
      if (directory == nullptr) GTEST_SKIP() << "GLINT_REFERENCE_DIR is not set";
      source = std::string(directory) + "/tile";
    }
    auto loaded = std::filesystem::exists(source) ? model::Load(source) : model::LoadSynthetic(source);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    *data = std::move(*loaded);
    if (GetParam().any_hc) VaryHc(data->weights);
  }
  void VaryHc(model::Weights& weights) {
    std::vector<const quant::Format*> formats;
    for (const quant::Format& format : quant::Formats())
      if (cuda::FindTileLayout(format.type) != nullptr) formats.push_back(&format);
    size_t turn = 0;
    for (model::Layer& layer : weights.layers) {
      for (model::Matrix* const fn : {&layer.hc_attn.fn, &layer.hc_ffn.fn}) {
        const quant::Format& format = *formats[turn++ % formats.size()];
        std::vector<float> values(static_cast<size_t>(fn->rows * fn->columns));
        std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(fn->columns)));
        for (float& x : values) x = normal(rng_);
        fn->type = format.type;
        fn->row_bytes = *quant::RowBytes(format, static_cast<uint64_t>(fn->columns));
        auto& blocks = blocks_.emplace_back(fn->bytes());
        format.encode(values.data(), nullptr, blocks.data(), values.size());
        fn->data = blocks.data();
      }
    }
    EXPECT_GE(turn, formats.size());
  }
  uint64_t seed_ = 0;
  std::mt19937_64 rng_;
  SmallModel small_;
  std::deque<std::vector<std::byte>> blocks_;
};

INSTANTIATE_TEST_SUITE_P(Models, GpuPass, testing::ValuesIn(Models()),
                         [](const auto& p) { return p.param.name; });

TEST_P(GpuPass, EveryStageHasTheCpusBits) {
  model::ModelData data;
  ASSERT_NO_FATAL_FAILURE(Load(&data));
  if (IsSkipped()) return;
  SCOPED_TRACE(seed_);
  for (const bool canonical : {true, false}) {
    SCOPED_TRACE(canonical ? "canonical" : "with levers");
    Both both(data, GetParam().tokens + 8);
    const plan::LeverChoice choice{{},
                                   canonical ? std::vector<std::string>{"all"} : std::vector<std::string>{}};
    for (int64_t done = 0; done < GetParam().tokens;) {
      const int64_t rows =
          std::min<int64_t>(GetParam().tokens - done, std::array{1, 2, 5, 8, 17, 37}[rng_() % 6]);
      SCOPED_TRACE(fmt::format("rows {} to {}", done, done + rows));
      const auto tokens = Tokens(rng_, both.hp(), rows);
      std::vector<float> final;
      ASSERT_NO_FATAL_FAILURE(StepByStep(both, Pass::kTrunk, tokens, nullptr, &final, choice));
      if (both.mtp()) {
        ASSERT_NO_FATAL_FAILURE(StepByStep(both, Pass::kMtp, tokens, final.data(), nullptr, choice));
      }
      done += rows;
    }
  }
}

// The same tokens in other chunks, with and without levers and graphs, beside other sequences: the same logits.
TEST_P(GpuPass, BitsDoNotDependOnChunksLeversOrCompany) {
  model::ModelData data;
  ASSERT_NO_FATAL_FAILURE(Load(&data));
  if (IsSkipped()) return;
  SCOPED_TRACE(seed_);
  Both both(data, GetParam().tokens + 8, false);
  const auto tokens = Tokens(rng_, both.hp(), GetParam().tokens);
  const auto vocab = static_cast<size_t>(both.hp().vocab_size);
  std::vector<float> want;
  const auto run = [&](plan::Backend& backend, plan::SequenceState& state, int64_t chunk,
                       plan::LeverChoice choice) {
    std::vector<float> all;
    while (state.position() < GetParam().tokens) {
      const int64_t rows = std::min(chunk, GetParam().tokens - state.position());
      const auto first = tokens.begin() + state.position();
      Batch batch(both.hp(), Pass::kTrunk, state, {first, first + rows}, nullptr);
      const auto plan = both.Plan(backend, Pass::kTrunk, batch.tokens.size(), false, choice);
      const Status status = backend.Run(plan, batch.view);
      EXPECT_TRUE(status.ok()) << status.message();
      if (!status.ok()) break;
      all.insert(all.end(), batch.logits.begin(), batch.logits.end());
    }
    return all;
  };
  want = run(both.cpu(), both.on_cpu(), 64, {});
  for (const int64_t chunk : {1, 3, 8, 13, 64, 512}) {
    for (const std::vector<std::string>& without : {std::vector<std::string>{},
                                                    {"graph"},
                                                    {"mma"},
                                                    {"hc.block"},
                                                    {"hc.moe"},
                                                    {"hc.moe", "hc.block", "hc.fused"},
                                                    {"moe.beside"},
                                                    {"kda.fused"},
                                                    {"kda.fused", "mma"},
                                                    {"dsa.inputs"},
                                                    {"all"}}) {
      if (chunk > 8 && !without.empty() && without[0] == "graph") continue;
      SCOPED_TRACE(fmt::format("chunks of {}, without {}", chunk, without.empty() ? "nothing" : without[0]));
      auto state = both.NewState(both.gpu());
      const auto got = run(both.gpu(), *state, chunk, {{}, without});
      ASSERT_EQ(got.size(), want.size());
      const int64_t at = FirstDifference(want, got);
      ASSERT_EQ(at, -1) << "token " << at / static_cast<int64_t>(vocab);
    }
  }
  // Choices in place of logits: with a graph and step by step.
  for (const std::vector<std::string>& without : {std::vector<std::string>{}, {"graph"}}) {
    auto state = both.NewState(both.gpu());
    for (const int64_t rows : {1, 1, 3, 8, 1, 17}) {
      const auto first = tokens.begin() + state->position();
      Batch batch(both.hp(), Pass::kTrunk, *state, {first, first + rows}, nullptr);
      const int64_t position = state->position();
      std::vector<int32_t> best(static_cast<size_t>(rows), -7);
      batch.view.logits = nullptr;
      batch.view.best = best.data();
      batch.view.usable_vocab = both.hp().vocab_size - (position > 4 ? 1 : 0);
      const auto plan = both.Plan(both.gpu(), Pass::kTrunk, batch.tokens.size(), false, {{}, without});
      const Status status = both.gpu().Run(plan, batch.view);
      ASSERT_TRUE(status.ok()) << status.message();
      for (int64_t r = 0; r < rows; ++r) {
        const auto logits = std::span(want).subspan(static_cast<size_t>(position + r) * vocab,
                                                    static_cast<size_t>(batch.view.usable_vocab));
        ASSERT_EQ(best[static_cast<size_t>(r)], plan::BestId(logits)) << "token " << position + r;
      }
    }
  }
  // Two sequences decoded together, one of them ours.
  auto ours = both.NewState(both.gpu()), other = both.NewState(both.gpu());
  auto plan = both.Plan(both.gpu(), Pass::kTrunk, 3, false);
  std::vector<float> got;
  for (int64_t t = 0; t < std::min<int64_t>(GetParam().tokens, 40); ++t) {
    const std::vector<int32_t> ids = {tokens[static_cast<size_t>(GetParam().tokens - 1 - t)],
                                      tokens[static_cast<size_t>(t)], tokens[static_cast<size_t>(t)]};
    const plan::Segment segments[] = {{other.get(), t, 0, 1}, {ours.get(), t, 1, 1}};
    plan::Batch batch;
    batch.tokens = std::span(ids).first(2);
    batch.segments = segments;
    const int32_t wanted[] = {1};
    std::vector<float> logits(vocab);
    batch.wanted = wanted;
    batch.logits = logits.data();
    const Status status = both.gpu().Run(plan, batch);
    ASSERT_TRUE(status.ok()) << status.message();
    got.insert(got.end(), logits.begin(), logits.end());
  }
  ASSERT_EQ(FirstDifference(got, std::span(want).first(got.size())), -1);
}

// What a sequence keeps survives the way between the devices, marks and truncation.
TEST_P(GpuPass, StatesGoThereAndBack) {
  model::ModelData data;
  ASSERT_NO_FATAL_FAILURE(Load(&data));
  if (IsSkipped()) return;
  SCOPED_TRACE(seed_);
  Both both(data, GetParam().tokens + 8);
  // The first row of a block: the rows after it can be forgotten again.
  const int64_t start = 2 * both.hp().block + 1;
  const auto tokens = Tokens(rng_, both.hp(), start);
  const auto append = [&](plan::Backend& backend, plan::SequenceState& state, std::vector<int32_t> ids) {
    Batch batch(both.hp(), Pass::kTrunk, state, std::move(ids), nullptr);
    const auto plan = both.Plan(backend, Pass::kTrunk, batch.tokens.size(), false);
    const Status status = backend.Run(plan, batch.view);
    EXPECT_TRUE(status.ok()) << status.message();
    return batch.logits;
  };
  append(both.cpu(), both.on_cpu(), tokens);
  for (const plan::StatePart& part : both.on_cpu().Parts(start, 0)) {
    std::vector<float> values(static_cast<size_t>(part.rows * part.width));
    ASSERT_TRUE(both.on_cpu().Read(part, values.data()).ok());
    const Status status = both.on_gpu().Write(part, values.data());
    ASSERT_TRUE(status.ok()) << status.message();
  }
  ASSERT_TRUE(both.on_gpu().Place(start, 0).ok());
  auto mark = both.on_gpu().Mark();
  ASSERT_TRUE(mark.ok()) << mark.status().message();
  auto clone = both.on_gpu().Clone();
  ASSERT_TRUE(clone.ok()) << clone.status().message();
  const std::vector<int32_t> next = {tokens[1], tokens[2], tokens[3]};
  const auto want = append(both.cpu(), both.on_cpu(), next);
  ASSERT_EQ(FirstDifference(want, append(both.gpu(), both.on_gpu(), next)), -1);
  ASSERT_EQ(FirstDifference(want, append(both.gpu(), **clone, next)), -1);
  ASSERT_TRUE(both.on_gpu().Return(**mark).ok());
  ASSERT_EQ(FirstDifference(want, append(both.gpu(), both.on_gpu(), next)), -1);
  ASSERT_TRUE(both.on_gpu().Truncate(start + 1).ok());
  const std::vector<int32_t> rest = {tokens[2], tokens[3]};
  ASSERT_EQ(FirstDifference(std::span(want).subspan(static_cast<size_t>(both.hp().vocab_size)),
                            append(both.gpu(), both.on_gpu(), rest)),
            -1);
}

// One row and eight, whose kernels are others than those of the prompt before them: small enough for compute-sanitizer.
TEST_P(GpuPass, OneAndEightRowsAfterAPrompt) {
  model::ModelData data;
  ASSERT_NO_FATAL_FAILURE(Load(&data));
  if (IsSkipped()) return;
  SCOPED_TRACE(seed_);
  Both both(data, GetParam().tokens + 8, false);
  for (const int64_t rows : {2 * both.hp().block + 1, int64_t{1}, int64_t{8}}) {
    SCOPED_TRACE(fmt::format("{} rows", rows));
    const auto tokens = Tokens(rng_, both.hp(), rows);
    std::vector<float> of[2];
    for (const bool gpu : {false, true}) {
      auto& state = gpu ? both.on_gpu() : both.on_cpu();
      auto& backend = gpu ? both.gpu() : both.cpu();
      Batch batch(both.hp(), Pass::kTrunk, state, tokens, nullptr);
      const auto plan = both.Plan(backend, Pass::kTrunk, batch.tokens.size(), false);
      const Status status = backend.Run(plan, batch.view);
      ASSERT_TRUE(status.ok()) << status.message();
      of[gpu ? 1 : 0] = batch.logits;
    }
    ASSERT_EQ(FirstDifference(of[0], of[1]), -1);
  }
}

// Deep in a long context: every stage behind states whose rows repeat, so that pools tie too.
class GpuDepth : public GpuTest<testing::TestWithParam<int64_t>> {};

INSTANTIATE_TEST_SUITE_P(Depths, GpuDepth,
                         testing::Values(2047, 2049, 2056, 4096, 32769, 131072, 262143, 262144));

TEST_P(GpuDepth, EveryStageHasTheCpusBits) {
  const int64_t depth = GetParam();
  auto data = model::LoadSynthetic("glm-5.3-flash,layers=4,experts=12,vocab=512,recipe=q8_0-iq3_xxs");
  ASSERT_TRUE(data.ok()) << data.status().message();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}, depth {}", seed, depth));
  std::mt19937_64 rng(seed);
  constexpr int64_t kRows[] = {1, 3, 8, 33};
  Both both(std::move(*data), depth + 33, false);
  std::vector<float> values(size_t{4096} * 512);
  std::normal_distribution<float> normal;
  for (float& v : values) v = normal(rng);
  for (const int64_t rows : kRows) {
    SCOPED_TRACE(fmt::format("{} rows", rows));
    for (const plan::StatePart& part : both.on_cpu().Parts(depth, 0)) {
      plan::StatePart piece = part;
      const int64_t most = static_cast<int64_t>(values.size()) / part.width;
      for (int64_t done = 0; done < part.rows; done += piece.rows) {
        piece.first = part.first + done;
        piece.rows = std::min(most, part.rows - done);
        ASSERT_TRUE(both.on_cpu().Write(piece, values.data()).ok());
        ASSERT_TRUE(both.on_gpu().Write(piece, values.data()).ok());
      }
    }
    ASSERT_TRUE(both.on_cpu().Place(depth, 0).ok());
    ASSERT_TRUE(both.on_gpu().Place(depth, 0).ok());
    ASSERT_NO_FATAL_FAILURE(
        StepByStep(both, Pass::kTrunk, Tokens(rng, both.hp(), rows), nullptr, nullptr, {}));
  }
}

}  // namespace
}  // namespace glint::test
