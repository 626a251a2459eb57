// The verifier over a backend that goes wrong on purpose: in one entry of one output or state, by one ulp.
#include "plan/verify.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "cpu/backend.h"
#include "tests/support/small_model.h"

namespace glint::plan {
namespace {

using test::MakeSmall;
using test::SmallModel;

// What goes wrong after a step of a plan that levers serve: plans without levers are left alone, they are the reference.
struct Fault {
  Stage stage = Stage::kCount;
  int layer = -1;
  Pass pass = Pass::kTrunk;
  enum class Kind : uint8_t {
    kSlot,
    kState,
    kNeighbour,
    kOtherState,
    kFinal,
    kShift,
    kUnwritten
  } kind = Kind::kSlot;
  Slot slot = Slot::kCount;  // kSlot, kNeighbour (the slot overwritten), kShift, kUnwritten
  StatePart::Kind part = StatePart::Kind::kCount;
  int64_t entry = 0;
};

// A device with a fault, around the CPU.
class FaultyBackend final : public Backend {
 public:
  FaultyBackend(const SmallModel& m, std::vector<Lever> levers)
      : cpu_(cpu::MakeBackend(m.hp, m.weights, 2, {false, true})), hp_(m.hp), levers_(std::move(levers)) {}

  std::string_view name() const override { return "faulty"; }
  std::span<const Lever> levers() const override { return levers_.empty() ? cpu_->levers() : levers_; }
  uint64_t StateBytes(int64_t capacity, bool mtp) const override { return cpu_->StateBytes(capacity, mtp); }
  Result<std::unique_ptr<SequenceState>> NewState(int64_t capacity, bool mtp) override {
    return cpu_->NewState(capacity, mtp);
  }
  Status Run(const Plan& plan, const Batch& batch, const Observer& observer) override {
    return cpu_->Run(plan, batch, observer);
  }
  Status RunTimed(const Plan& plan, const Batch& batch, std::span<StepTime> times, double* whole) override {
    return cpu_->RunTimed(plan, batch, times, whole);
  }
  Result<Limits> MeasureLimits(const Progress& progress) override { return cpu_->MeasureLimits(progress); }
  Result<std::unique_ptr<Execution>> Begin(const Plan& plan, const Batch& batch) override {
    auto inner = cpu_->Begin(plan, batch);
    if (!inner.ok()) return inner;
    return std::unique_ptr<Execution>(new FaultyExecution(*this, plan, batch, std::move(*inner)));
  }

  Fault fault;
  float shift = 0;  // kShift: added to every entry

 private:
  class FaultyExecution final : public Execution {
   public:
    FaultyExecution(FaultyBackend& b, const Plan& plan, const Batch& batch, std::unique_ptr<Execution> inner)
        : b_(b), plan_(plan), batch_(batch), inner_(std::move(inner)) {}
    Status RunStep(size_t step) override {
      const Step& s = plan_.steps[step];
      const Fault& f = b_.fault;
      const bool here =
          !plan_.levers.empty() && f.stage == s.stage && f.layer == s.layer && f.pass == plan_.pass;
      if (here && f.kind == Fault::Kind::kUnwritten) return {};
      if (Status status = inner_->RunStep(step); !status.ok() || !here) return status;
      const Segment& seg = batch_.segments[0];
      if (f.kind == Fault::Kind::kFinal) {
        Nudge(batch_.final_out[f.entry]);
      } else if (f.kind == Fault::Kind::kState || f.kind == Fault::Kind::kOtherState) {
        const bool trunk = plan_.pass == Pass::kTrunk;
        for (const StatePart& part : seg.state->Parts(seg.state->position() + (trunk ? seg.rows : 0),
                                                      seg.state->mtp_position() + (trunk ? 0 : seg.rows))) {
          if (part.kind != f.part || (f.kind == Fault::Kind::kState && part.layer != f.layer)) continue;
          std::vector<float> floats(static_cast<size_t>(part.rows * part.width));
          EXPECT_TRUE(seg.state->Read(part, floats.data()).ok());
          Nudge(floats[static_cast<size_t>(f.entry)]);
          return seg.state->Write(part, floats.data());
        }
      } else {
        std::vector<float> floats(static_cast<size_t>(Width(f.slot, b_.hp_)) * batch_.tokens.size());
        if (Status status = inner_->Read(f.slot, floats.data()); !status.ok()) return status;
        if (f.kind == Fault::Kind::kShift) {
          for (float& x : floats) x += b_.shift;
        } else {
          Nudge(floats[static_cast<size_t>(f.entry)]);
        }
        return inner_->Write(f.slot, floats.data());
      }
      return {};
    }
    Status Read(Slot slot, void* out) const override { return inner_->Read(slot, out); }
    Status Write(Slot slot, const void* in) override { return inner_->Write(slot, in); }
    Status CopySlot(const Execution& from, Slot slot) override {
      return inner_->CopySlot(*dynamic_cast<const FaultyExecution&>(from).inner_, slot);
    }
    Status Finish() override { return inner_->Finish(); }

   private:
    static void Nudge(float& x) { x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) ^ 1u); }
    FaultyBackend& b_;
    const Plan& plan_;
    const Batch batch_;
    std::unique_ptr<Execution> inner_;
  };

  std::unique_ptr<Backend> cpu_;
  const model::HParams& hp_;
  std::vector<Lever> levers_;
};

class VerifyTest : public testing::Test {
 protected:
  VerifyTest() {
    MakeSmall(model_, seed_, false);
    Use({});
  }

  void Use(std::vector<Lever> levers) {
    backend_ = std::make_unique<FaultyBackend>(model_, std::move(levers));
    verifier_ = std::make_unique<Verifier>(*backend_, model_.hp, model_.weights);
    state_ = std::move(*backend_->NewState(200, true));
  }

  Plan MakePlanFor(Pass pass, int rows, LeverChoice choice = {}) {
    auto plan = MakePlan({.hparams = &model_.hp,
                          .weights = &model_.weights,
                          .levers = backend_->levers(),
                          .choice = std::move(choice),
                          .pass = pass,
                          .rows = rows});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return std::move(*plan);
  }

  // A batch of random tokens that continues state_.
  const Batch& MakeBatch(Pass pass, int rows) {
    tokens_ = model_.Tokens(rows);
    wanted_ = {rows - 1};
    segment_ = {state_.get(), pass == Pass::kTrunk ? state_->position() : state_->mtp_position(), 0, rows};
    logits_.assign(static_cast<size_t>(model_.hp.vocab_size), NAN);
    final_.assign(static_cast<size_t>(rows * model_.hp.hidden), NAN);
    if (pass == Pass::kMtp) {
      hidden_.resize(final_.size());
      for (float& x : hidden_) x = model_.Normal();
    }
    batch_ = {tokens_, {&segment_, 1}, pass == Pass::kMtp ? hidden_.data() : nullptr,
              wanted_, logits_.data(), final_.data()};
    return batch_;
  }

  std::optional<Difference> Run(Pass pass, int rows, LeverChoice choice = {}) {
    const Plan plan = MakePlanFor(pass, rows, std::move(choice));
    auto found = verifier_->Run(plan, MakeBatch(pass, rows));
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? *found : std::nullopt;
  }

  std::vector<float> StateFloats() {
    std::vector<float> all;
    for (const StatePart& part : state_->Parts(state_->position(), state_->mtp_position())) {
      const size_t at = all.size();
      all.resize(at + static_cast<size_t>(part.rows * part.width));
      EXPECT_TRUE(state_->Read(part, all.data() + at).ok());
    }
    return all;
  }

  const uint64_t seed_ = std::random_device{}();
  SmallModel model_;
  std::unique_ptr<FaultyBackend> backend_;
  std::unique_ptr<Verifier> verifier_;
  std::unique_ptr<SequenceState> state_;
  std::vector<int32_t> tokens_, wanted_;
  Segment segment_{};
  std::vector<float> logits_, final_, hidden_;
  Batch batch_;
};

TEST_F(VerifyTest, ACleanPassHasTheBitsOfRun) {
  SCOPED_TRACE(seed_);
  auto other = std::move(*backend_->NewState(200, true));
  for (const int rows : {21, 1, 13, 1, 16}) {
    for (const Pass pass : {Pass::kTrunk, Pass::kMtp}) {
      const auto found = Run(pass, rows);
      ASSERT_FALSE(found) << Describe(*found);
      const auto logits = logits_, final = final_;
      Segment segment = segment_;
      segment.state = other.get();
      Batch batch = batch_;
      batch.segments = {&segment, 1};
      ASSERT_TRUE(backend_->Run(MakePlanFor(pass, rows), batch, {}).ok());
      EXPECT_EQ(logits_, logits);
      EXPECT_EQ(final_, final);
    }
    EXPECT_EQ(state_->position(), other->position());
    EXPECT_EQ(state_->mtp_position(), other->mtp_position());
  }
  const Tally& t = verifier_->tally();
  EXPECT_EQ(t.passes, 10u);
  uint64_t steps = 0;
  for (const int rows : {21, 1, 13, 1, 16})
    steps += MakePlanFor(Pass::kTrunk, rows).steps.size() + MakePlanFor(Pass::kMtp, rows).steps.size();
  EXPECT_EQ(t.steps, steps);  // every step has a modifier here
  EXPECT_GT(t.values, t.slots);
  EXPECT_GT(t.parts, 0u);
}

// Every output of every stage, in every layer that has it, and every part of the state.
TEST_F(VerifyTest, OneUlpInAnyOutputIsFoundWhereItIs) {
  SCOPED_TRACE(seed_);
  ASSERT_FALSE(Run(Pass::kTrunk, 19));
  ASSERT_FALSE(Run(Pass::kMtp, 19));
  for (const Pass pass : {Pass::kTrunk, Pass::kMtp}) {
    for (const int rows : {1, 6}) {
      const Plan plan = MakePlanFor(pass, rows);
      for (const Step& step : plan.steps) {
        for (const Slot slot : step.out) {
          if (slot == Slot::kLogits) continue;  // its rows are the wanted ones
          const int64_t width = Width(slot, model_.hp);
          const int64_t row = rows - 1,
                        column = static_cast<int64_t>(model_.rng() % static_cast<uint64_t>(width));
          backend_->fault = {step.stage, step.layer,          pass, Fault::Kind::kSlot, slot,
                             {},         row * width + column};
          const auto before = StateFloats();
          const int64_t position = state_->position(), mtp_position = state_->mtp_position();
          const auto found = Run(pass, rows);
          ASSERT_TRUE(found) << Name(step.stage) << " " << Name(slot);
          // hc.pre stands twice in a layer; the first is found.
          EXPECT_EQ(found->stages, step.covers) << Name(slot);
          EXPECT_EQ(found->layer, step.layer);
          EXPECT_EQ(found->where, Difference::Where::kOutput);
          EXPECT_EQ(found->place, Name(slot));
          EXPECT_EQ(found->row, row) << Name(slot);
          EXPECT_EQ(found->column, column);
          EXPECT_EQ(found->position, (pass == Pass::kTrunk ? position : mtp_position) + row);
          EXPECT_EQ(found->got ^ found->want, 1u);
          EXPECT_EQ(found->ulps, HoldsIntegers(slot) ? 0u : 1u);
          EXPECT_EQ(found->lever, step.lever != nullptr ? step.lever->name : "");
          EXPECT_FALSE(found->modifiers.empty());
          // The pass did not happen.
          EXPECT_EQ(state_->position(), position);
          EXPECT_EQ(state_->mtp_position(), mtp_position);
          EXPECT_EQ(StateFloats(), before);
          const std::string text = Describe(*found);
          EXPECT_NE(text.find(std::string(Name(slot))), std::string::npos) << text;
          EXPECT_NE(text.find(std::string(Name(step.stage))), std::string::npos) << text;
        }
      }
    }
  }
  backend_->fault = {};
  EXPECT_FALSE(Run(Pass::kTrunk, 30));
}

TEST_F(VerifyTest, OneUlpInAnyPartOfTheStateIsFound) {
  SCOPED_TRACE(seed_);
  ASSERT_FALSE(Run(Pass::kTrunk, 19));
  ASSERT_FALSE(Run(Pass::kMtp, 19));
  const auto stage_of = [](StatePart::Kind kind) {
    using Kind = StatePart::Kind;
    if (kind == Kind::kConv) return Stage::kKdaConv;
    if (kind < Kind::kConv) return Stage::kKdaRecur;
    return kind == Kind::kLatent ? Stage::kDsaKv : Stage::kDsaIndex;
  };
  for (const Pass pass : {Pass::kTrunk, Pass::kMtp}) {
    const int rows = 5;
    const bool trunk = pass == Pass::kTrunk;
    const auto parts =
        state_->Parts(state_->position() + (trunk ? rows : 0), state_->mtp_position() + (trunk ? 0 : rows));
    for (const StatePart& part : parts) {
      if ((part.layer == model_.hp.layers) == trunk) continue;
      const auto entry = static_cast<int64_t>(model_.rng() % static_cast<uint64_t>(part.rows * part.width));
      backend_->fault = {stage_of(part.kind), part.layer, pass, Fault::Kind::kState,
                         Slot::kCount,        part.kind,  entry};
      const auto found = Run(pass, rows);
      ASSERT_TRUE(found) << Name(part.kind);
      EXPECT_EQ(found->where, Difference::Where::kState);
      EXPECT_EQ(found->place, Name(part.kind));
      EXPECT_EQ(found->layer, part.layer);
      EXPECT_EQ(found->row, part.first + entry / part.width);
      EXPECT_EQ(found->column, entry % part.width);
    }
  }
}

TEST_F(VerifyTest, WhatIsWrittenOverIsFoundWhereItIsRead) {
  SCOPED_TRACE(seed_);
  // moe.route leaves x alone; moe.gate_up reads it next.
  backend_->fault = {Stage::kMoeRoute, 1, Pass::kTrunk, Fault::Kind::kNeighbour, Slot::kX, {}, 3};
  auto found = Run(Pass::kTrunk, 4);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->where, Difference::Where::kInput);
  EXPECT_EQ(found->place, "x");
  EXPECT_EQ(found->stages, std::vector{Stage::kMoeGateUp});
  EXPECT_NE(Describe(*found).find("buffers overlap"), std::string::npos) << Describe(*found);
  // ffn.norm of the last layer writes into the latent rows of an earlier one.
  backend_->fault = {Stage::kFfnNorm,          3, Pass::kTrunk, Fault::Kind::kOtherState, Slot::kCount,
                     StatePart::Kind::kLatent, 2};
  found = Run(Pass::kTrunk, 4);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->where, Difference::Where::kStateLeft);
  EXPECT_EQ(found->place, "latent");
  EXPECT_EQ(found->layer, 1);
  EXPECT_EQ(found->column, 2);
  // The copy of the final rows.
  backend_->fault = {Stage::kHeadNorm, -1, Pass::kTrunk,        Fault::Kind::kFinal,
                     Slot::kCount,     {}, model_.hp.hidden + 5};
  found = Run(Pass::kTrunk, 4);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->where, Difference::Where::kFinalOut);
  EXPECT_EQ(found->row, 1);
  EXPECT_EQ(found->column, 5);
  // A stage that does nothing: memory that happens to be zero, or right from the pass before, does not help it.
  for (const Stage stage : {Stage::kDsaQ, Stage::kMoeCombine, Stage::kHeadLogits}) {
    backend_->fault = {
        stage, stage == Stage::kHeadLogits ? -1 : 1, Pass::kTrunk, Fault::Kind::kUnwritten, {}, {}, 0};
    found = Run(Pass::kTrunk, 4);
    ASSERT_TRUE(found) << Name(stage);
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(found->got)));
    EXPECT_EQ(found->ulps, 0u);
  }
}

TEST_F(VerifyTest, ATolerantLeverIsHeldToItsBoundAndTheShadowsFollowIt) {
  SCOPED_TRACE(seed_);
  const Lever tolerant{.name = "rough",
                       .kind = Lever::Kind::kModifier,
                       .covers = {Stage::kDsaKv},
                       .bitwise = false,
                       .tolerance = 0.125,
                       .by_default = true,
                       .min_rows = 1,
                       .max_rows = 0,
                       .available = true,
                       .summary = "a test's lever"};
  Use({tolerant});
  backend_->fault = {Stage::kDsaKv, 1, Pass::kTrunk, Fault::Kind::kShift, Slot::kLatent, {}, 0};
  backend_->shift = 1e-3f;
  // The slot is off by less than the bound, and everything after it differs from a canonical run: but it is judged on its own inputs.
  auto found = Run(Pass::kTrunk, 7);
  // The state was not shifted along with the slot: the shadow takes over what the state holds.
  ASSERT_FALSE(found) << Describe(*found);
  ASSERT_EQ(verifier_->tally().measured.size(), 1u);
  const Tally::Measured& m = verifier_->tally().measured[0];
  EXPECT_EQ(m.lever, "rough");
  EXPECT_GT(m.largest, 1e-5);
  EXPECT_LT(m.largest, 0.125);
  backend_->shift = 10;
  found = Run(Pass::kTrunk, 7);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place, "latent");
  EXPECT_GT(found->bound, 0);
  EXPECT_NE(Describe(*found).find("promise"), std::string::npos);
  // The same error in a lever that promises bits.
  Lever exact = tolerant;
  exact.bitwise = true;
  Use({exact});
  backend_->fault = {Stage::kDsaKv, 1, Pass::kTrunk, Fault::Kind::kShift, Slot::kLatent, {}, 0};
  backend_->shift = 1e-3f;
  found = Run(Pass::kTrunk, 7);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bound, 0);
}

// One canonical pass, many plans: each is judged alone.
TEST_F(VerifyTest, PlansBesideACanonicalPass) {
  SCOPED_TRACE(seed_);
  const auto canonical_state = std::move(*backend_->NewState(200, true));
  std::vector<Lever> levers;
  for (const Lever& lever : backend_->levers()) {
    if (lever.available) levers.push_back(lever);
  }
  for (const int rows : {18, 1, 9}) {
    for (const Pass pass : {Pass::kTrunk, Pass::kMtp}) {
      std::vector<Plan> plans;
      for (const Lever& lever : levers)
        plans.push_back(MakePlanFor(pass, rows, {{std::string(lever.name)}, {"all"}}));
      std::vector<const Plan*> pointers;
      for (const Plan& plan : plans) pointers.push_back(&plan);
      // kda.block alone has a fault.
      backend_->fault = {Stage::kKdaRecur,       2, Pass::kTrunk, Fault::Kind::kState, {},
                         StatePart::Kind::kKdaG, 1};
      const auto found = verifier_->RunBeside(pointers, MakeBatch(pass, rows));
      ASSERT_TRUE(found.ok()) << found.status().message();
      ASSERT_EQ(found->size(), levers.size());
      for (size_t i = 0; i < levers.size(); ++i) {
        const auto covers = [&](Stage stage) {
          return std::find(levers[i].covers.begin(), levers[i].covers.end(), stage) != levers[i].covers.end();
        };
        const bool concerned = pass == Pass::kTrunk && covers(Stage::kKdaRecur) && rows >= levers[i].min_rows;
        EXPECT_EQ((*found)[i].has_value(), concerned) << levers[i].name << ", " << rows << " rows";
        if ((*found)[i]) {
          EXPECT_EQ((*found)[i]->place, "kda g");
        }
      }
      // The caller's batch got the canonical pass.
      const auto logits = logits_, final = final_;
      Segment segment = segment_;
      segment.state = canonical_state.get();
      Batch batch = batch_;
      batch.segments = {&segment, 1};
      ASSERT_TRUE(backend_->Run(MakePlanFor(pass, rows, {{}, {"all"}}), batch, {}).ok());
      EXPECT_EQ(logits_, logits);
      EXPECT_EQ(final_, final);
    }
  }
}

TEST_F(VerifyTest, StopsWhenAskedTo) {
  SCOPED_TRACE(seed_);
  ASSERT_FALSE(Run(Pass::kTrunk, 19));
  const auto before = StateFloats();
  int calls = 0;
  double last = 0;
  verifier_->progress = [&](double share) {
    EXPECT_GT(share, last);
    last = share;
    return ++calls < 20;
  };
  const Plan plan = MakePlanFor(Pass::kTrunk, 5);
  const auto found = verifier_->Run(plan, MakeBatch(Pass::kTrunk, 5));
  EXPECT_EQ(found.status().code(), Code::kBadInput);
  EXPECT_EQ(found.status().message(), "interrupted");
  EXPECT_EQ(calls, 20);
  EXPECT_EQ(state_->position(), 19);
  EXPECT_EQ(StateFloats(), before);
  verifier_->progress = {};
  EXPECT_FALSE(Run(Pass::kTrunk, 5));
}

}  // namespace
}  // namespace glint::plan
