// Proof while it runs: the canonical stages beside what levers serve, on the same inputs, in buffers and states of their own; every
// output and every state is compared. Knows plans and backends, no kernels.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/backend.h"

namespace glint::plan {

// The first entry in which a plan differs from the canonical stages.
struct Difference {
  enum class Where : uint8_t {
    kOutput,     // what the step wrote
    kInput,      // what the step reads: right when it was written, another step wrote over it
    kState,      // what the step left in the sequence's state
    kStateLeft,  // of the state after the pass: right after each step, another step wrote over it
    kFinalOut,   // the copy of the final rows that the caller asked for
  } where = Where::kOutput;
  Pass pass = Pass::kTrunk;
  int rows = 0;               // of the pass
  std::vector<Stage> stages;  // that the step serves; empty for kStateLeft
  int layer = -1;             // as in Step; kStateLeft: the part's
  Step::Site site = Step::Site::kNone;
  std::string lever;  // the replacement that served it; empty: canonical
  std::vector<std::string> modifiers;
  std::string place;            // name of the slot or of the part of the state
  int64_t row = 0, column = 0;  // row: of the batch; of a state: absolute position (StatePart says of what)
  int64_t position = -1;        // absolute position of the row of a slot
  bool integers = false;
  uint32_t got = 0, want = 0;  // the bits
  // Floats between the two, 0 for integers and where one is NaN.
  uint64_t ulps = 0;
  double bound = 0;  // 0: the same bits were due; else the largest |got - want| that its levers declare
};

// Several lines for people: where, what, both values, ulps.
std::string Describe(const Difference& difference);
// "layer 3 hc.pre (ffn)"; without a layer just the stages.
std::string StepName(const Difference& difference);

// What was compared.
struct Tally {
  uint64_t passes = 0, steps = 0;        // steps served by levers, canonical ones not counted
  uint64_t slots = 0, values = 0;        // outputs of those steps
  uint64_t parts = 0, state_values = 0;  // of states
  // Of each lever with a tolerance: the largest difference seen, as the tolerance is meant (relative to the slot's largest entry).
  // A step that several of them serve counts for each.
  struct Measured {
    std::string lever;
    double tolerance = 0, largest = 0;
  };
  std::vector<Measured> measured;
};

// What the reference of a pass is planned as: without levers, and no two slots share bytes, so that it is not at the mercy of
// what it judges.
PlanRequest CanonicalRequest(const Backend& backend, const model::HParams& hp, const model::Weights& weights,
                             Pass pass, int rows);

// Threads: as the backend. Keeps buffers and shadow sequences from pass to pass. The backend and the model must outlive it.
class Verifier {
 public:
  Verifier(Backend& backend, const model::HParams& hp, const model::Weights& weights);
  ~Verifier();
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  // The pass as Backend::Run does it: the batch's logits, final rows and states are the plan's, in the plan's own buffers. Beside it every
  // step is done canonically over shadows. After a lever with a tolerance the shadows go on with its values. A difference
  // ends the pass; the states are then as before it.
  Result<std::optional<Difference>> Run(const Plan& plan, const Batch& batch);

  // The canonical pass: the batch's logits, final rows and states are canonical. Beside it each plan does the steps that levers serve, over
  // shadows and in buffers of its own; the other steps' results it takes over. So that trying each of many levers costs one
  // canonical pass. A plan that differs stops there, the others go on. [plans]; plans of one kind of pass, and at least one: without any
  // nothing runs.
  Result<std::vector<std::optional<Difference>>> RunBeside(std::span<const Plan* const> plans,
                                                           const Batch& batch);

  // Called after each step with the share of the pass that is done; false stops the pass with kBadInput "interrupted". Then, as
  // after any failed Status, the states of Run are as before it; of those of RunBeside only the destruction is valid.
  std::function<bool(double)> progress;

  const Tally& tally() const { return tally_; }

 private:
  struct Side;
  struct Shadow;
  class Lockstep;
  Result<std::shared_ptr<const Plan>> CanonicalPlan(Pass pass, int rows);

  Backend& backend_;
  const model::HParams& hp_;
  const model::Weights& weights_;
  Tally tally_;
  std::vector<std::shared_ptr<const Plan>> canonical_;  // most recently used last
  std::vector<std::unique_ptr<Shadow>> shadows_;
};

}  // namespace glint::plan
