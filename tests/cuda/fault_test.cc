// A device that fails in the middle of a load, a pass or a measurement, and one whose memory others have: an error that says what, all
// memory given back, and whatever else uses the device none the worse.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/memory.h"
#include "cuda/backend.h"
#include "cuda/limits.h"
#include "cuda/status.h"
#include "cuda/weights.h"
#include "engine/model_impl.h"
#include "glint/session.h"
#include "model/model_data.h"
#include "plan/backend.h"
#include "plan/plan.h"
#include "tests/cuda/gpu_test_base.h"

namespace glint::test {
namespace {

using cuda::FailingChecks;

constexpr cudaError_t kGone = cudaErrorDevicesUnavailable;

uint64_t FreeMemory() {
  size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

// Other programs may take a little meanwhile.
void ExpectGivenBack(uint64_t before) { EXPECT_GE(FreeMemory() + (uint64_t{64} << 20), before); }

void ExpectGone(const Status& status) {
  ASSERT_EQ(status.code(), Code::kDevice) << status.message();
  EXPECT_NE(status.message().find(cudaGetErrorName(kGone)), std::string::npos) << status.message();
  EXPECT_GT(status.message().find(cudaGetErrorName(kGone)), 5u)
      << "what was being done: " << status.message();
}

class GpuFault : public GpuTest<> {
 protected:
  static model::ModelData Tiny() {
    auto data = model::LoadSynthetic("tiny,recipe=q8_0-iq3_xxs");
    EXPECT_TRUE(data.ok()) << data.status().message();
    return std::move(*data);
  }
};

// Each check in turn is the first that sees the device gone.
TEST_F(GpuFault, AtEveryCheckOfALoad) {
  const auto data = Tiny();
  int64_t checks = 0;
  {
    const FailingChecks none(INT64_MAX, kGone);
    const auto backend = cuda::MakeBackend(data, 0, {});
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    checks = none.made();  // before those of its end
  }
  ASSERT_GT(checks, 50);
  const uint64_t before = FreeMemory();
  for (int64_t n = 0; n < checks; ++n) {
    SCOPED_TRACE(n);
    std::optional<FailingChecks> failing(std::in_place, n, kGone);
    const auto backend = cuda::MakeBackend(data, 0, {});
    failing.reset();
    ASSERT_FALSE(backend.ok());
    ASSERT_NO_FATAL_FAILURE(ExpectGone(backend.status()));
  }
  ExpectGivenBack(before);
  const auto backend = cuda::MakeBackend(data, 0, {});
  EXPECT_TRUE(backend.ok()) << backend.status().message();
}

// Memory that runs out at any of the places where some is taken is another error.
TEST_F(GpuFault, MemoryThatRunsOutInALoad) {
  const auto data = Tiny();
  for (int64_t n = 0; n < 12; ++n) {
    SCOPED_TRACE(n);
    const FailingChecks failing(n, cudaErrorMemoryAllocation, true);
    const auto backend = cuda::MakeBackend(data, 0, {});
    ASSERT_FALSE(backend.ok());
    EXPECT_EQ(backend.status().code(), Code::kNoRoom) << backend.status().message();
  }
}

// A graph captured anew, one that is there, and steps one by one; all that was made before and after is right.
TEST_F(GpuFault, AtEveryCheckOfAPass) {
  const auto data = Tiny();
  auto made = cuda::MakeBackend(data, 0, {});
  ASSERT_TRUE(made.ok()) << made.status().message();
  plan::Backend& backend = **made;
  const std::vector<int32_t> tokens{1, 2, 3};
  const std::vector<int32_t> wanted{2};
  std::vector<float> logits(static_cast<size_t>(data.hparams.vocab_size));
  const auto run = [&](const std::vector<std::string>& without) -> Status {
    const auto plan = plan::MakePlan({.hparams = &data.hparams,
                                      .weights = &data.weights,
                                      .levers = backend.levers(),
                                      .choice = {{}, without},
                                      .pass = plan::Pass::kTrunk,
                                      .rows = 3});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    auto state = backend.NewState(64, false);
    if (!state.ok()) return state.status();
    const plan::Segment segment{state->get(), 0, 0, 3};
    std::fill(logits.begin(), logits.end(), NAN);
    plan::Batch batch;
    batch.tokens = tokens;
    batch.segments = {&segment, 1};
    batch.wanted = wanted;
    batch.logits = logits.data();
    return backend.Run(*plan, batch);
  };
  for (const std::vector<std::string>& without : {std::vector<std::string>{}, {"graph"}}) {
    SCOPED_TRACE(without.empty() ? "graph" : "steps");
    ASSERT_TRUE(run(without).ok());
    const std::vector<float> want = logits;
    int64_t checks = 0;
    {
      const FailingChecks none(INT64_MAX, kGone);
      ASSERT_TRUE(run(without).ok());  // a plan has an id of its own, so that this captures again
      checks = none.made();
    }
    ASSERT_GT(checks, 50);
    const uint64_t before = FreeMemory();
    for (int64_t n = 0; n < checks; ++n) {
      SCOPED_TRACE(n);
      std::optional<FailingChecks> failing(std::in_place, n, kGone);
      const Status status = run(without);
      failing.reset();
      ASSERT_NO_FATAL_FAILURE(ExpectGone(status));
      if (n % 16 != 0 && n + 1 != checks) continue;
      const Status after = run(without);
      ASSERT_TRUE(after.ok()) << after.message();
      ASSERT_EQ(FirstDifference(want, logits), -1);
    }
    ExpectGivenBack(before);
  }
}

TEST_F(GpuFault, AtEveryCheckOfTheLimits) {
  auto context = cuda::Context::Create(0);
  ASSERT_TRUE(context.ok()) << context.status().message();
  int64_t checks = 0;
  {
    const FailingChecks none(INT64_MAX, kGone);
    ASSERT_TRUE(cuda::MeasureLimits(*context).ok());
    checks = none.made();
  }
  const uint64_t before = FreeMemory();
  for (int64_t n = 0; n < checks; n += n < 8 || n + 8 > checks ? 1 : 37) {
    SCOPED_TRACE(n);
    std::optional<FailingChecks> failing(std::in_place, n, kGone);
    const auto limits = cuda::MeasureLimits(*context);
    failing.reset();
    ASSERT_FALSE(limits.ok());
    ASSERT_NO_FATAL_FAILURE(ExpectGone(limits.status()));
  }
  ExpectGivenBack(before);
  const auto limits = cuda::MeasureLimits(*context);
  ASSERT_TRUE(limits.ok()) << limits.status().message();
  ASSERT_TRUE(limits->host.has_value());
  const plan::HostLimits& host = *limits->host;
  for (const plan::Cost& cost : {host.launch, host.early_launch, host.barrier}) {
    EXPECT_GE(cost.median, cost.best);
    EXPECT_TRUE(cost.best > 0 || context->device().major < 9);
  }
  EXPECT_GT(host.to_device.best, 0);
  EXPECT_GE(host.from_device.best, host.from_device.median);
}

// The session that was at work ends; the program, the model and another session go on.
TEST_F(GpuFault, ASessionEndsWithItsDevice) {
  auto model = Model::Synthetic("tiny", {.device = "cuda"});
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto session = Session::Create(*model, {.context = 64}), other = Session::Create(*model, {.context = 64});
  ASSERT_TRUE(session.ok() && other.ok());
  const std::vector<int32_t> tokens{1, 2, 3};
  std::vector<float> logits(static_cast<size_t>(model->vocab_size()));
  ASSERT_TRUE(session->Append(tokens, LogitRows::kLast, logits).ok());
  const auto want = logits;
  {
    const FailingChecks failing(2, kGone);
    ExpectGone(session->Append(tokens, LogitRows::kLast, logits));
  }
  const Status again = session->Append(tokens, LogitRows::kLast, logits);
  ExpectGone(again);
  EXPECT_NE(again.message().find("ended"), std::string::npos) << again.message();
  EXPECT_FALSE(session->Checkpoint().ok());
  EXPECT_FALSE(session->Fork().ok());
  EXPECT_FALSE(session->RewindTo(0).ok());
  ASSERT_TRUE(other->Append(tokens, LogitRows::kLast, logits).ok());
  EXPECT_EQ(FirstDifference(want, logits), -1);
}

TEST_F(GpuFault, AGpuThatDoesNotAnswerIsNotChosenInSilence) {
  const FailingChecks failing(0, kGone);
  const auto model = Model::Synthetic("tiny", {.device = "auto"});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->device(), "cpu");
  const auto& notes = model->impl()->data.notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("does not answer"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find(cudaGetErrorName(kGone)), std::string::npos) << notes[0];
  ExpectGone(Model::Synthetic("tiny", {.device = "cuda"}).status());
}

// Another's memory: nearly all is taken, and a load is refused with the numbers before it takes any; so is a context.
TEST_F(GpuFault, MemoryThatOthersHave) {
  constexpr uint64_t kLeft = uint64_t{256} << 20;
  const auto loaded = model::LoadSynthetic("glm-5.3-flash,layers=3,experts=8", {.weights_elsewhere = true});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const model::ModelData& data = *loaded;
  ASSERT_GT(cuda::DeviceWeights::Bytes(data.weights), 2 * kLeft);
  auto context = cuda::Context::Create(0);
  ASSERT_TRUE(context.ok());
  ASSERT_TRUE(cuda::MakeBackend(data, 0, {}).ok());  // what the runtime takes once for itself
  auto model = Model::Synthetic("tiny,context=4000000", {.device = "cuda"});
  ASSERT_TRUE(model.ok()) << model.status().message();

  // From large to small until little is left, as others' programs would have it.
  std::vector<void*> held;
  for (uint64_t bytes = uint64_t{16} << 30; bytes >= uint64_t{16} << 20;) {
    void* memory = nullptr;
    if (FreeMemory() > bytes + kLeft && cudaMalloc(&memory, bytes) == cudaSuccess) {
      held.push_back(memory);
    } else {
      cudaGetLastError();
      bytes /= 2;
    }
  }
  const uint64_t left = FreeMemory();
  const auto backend = cuda::MakeBackend(data, 0, {});
  const auto session = Session::Create(*model, {.context = 4'000'000});
  EXPECT_EQ(FreeMemory(), left);
  for (void* memory : held) cudaFree(memory);
  ASSERT_FALSE(backend.ok()) << FormatBytes(left) << " were left";
  EXPECT_EQ(backend.status().code(), Code::kNoRoom);
  for (const std::string& part : {FormatBytes(left) + " free of ", context->device().name,
                                  std::string("close what else uses this GPU")})
    EXPECT_NE(backend.status().message().find(part), std::string::npos)
        << part << ": " << backend.status().message();
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code(), Code::kNoRoom) << session.status().message();
  EXPECT_NE(session.status().message().find("the memory of GPU 0 (" + context->device().name),
            std::string::npos)
      << session.status().message();
  const auto after = cuda::MakeBackend(data, 0, {});
  EXPECT_TRUE(after.ok()) << after.status().message();
}

}  // namespace
}  // namespace glint::test
