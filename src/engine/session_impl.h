// The one object that holds all state of a sequence.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "engine/model_impl.h"
#include "glint/session.h"
#include "plan/backend.h"
#include "plan/verify.h"

namespace glint::engine {

struct SessionImpl {
  std::shared_ptr<ModelImpl> model;
  SessionOptions options;
  std::unique_ptr<plan::SequenceState> state;
  std::vector<int32_t> tokens;  // [state->position()]

  struct Kept {
    uint64_t id;
    std::unique_ptr<plan::StateMark> mark;
  };
  std::vector<Kept> checkpoints;  // positions ascend, ids too
  uint64_t next_checkpoint = 1;
  // Memory ran out inside a pass that leaves a block of the grid: the recurrent state may be that of no position. A checkpoint or Reset
  // brings the sequence back; until then everything else is refused.
  bool lost = false;
  // The device failed in a call of this session, or has been found dead by one: everything but looking at it is refused with this.
  Status failed;
  // Whether the session can be worked with: ok, `failed`, or that it is lost.
  Status Usable() const;
  // Hands a call's status on, and keeps it in `failed` if the device is to blame.
  Status Keep(Status status);

  // For instruments and tests: called after each step; plans then keep every slot apart. Not with `check`.
  plan::Observer observer;
  std::unique_ptr<plan::Verifier> verifier;  // where options.check
  // For instruments: where set, passes are timed step by step, and it is told when each ran and the seconds of the whole pass.
  std::function<void(std::vector<plan::StepTime> times, double whole)> timer;

  // What Append refuses before it begins: kBadInput for ids out of range, kNoRoom for more than there is room for.
  Status CheckTokens(std::span<const int32_t> ids) const;

  // One pass over rows that continue the sequence; the arguments are those of plan::Batch, already checked.
  // best: null, or the greedy choice for each of those rows; logits may then be null.
  Status Pass(plan::Pass pass, std::span<const int32_t> tokens, const float* hidden_in, LogitRows which,
              float* logits, float* final_out, int32_t* best = nullptr);

  // A pass by its plan: timed, verified or neither.
  Status Run(const plan::Plan& plan, const plan::Batch& batch);

  // Sets model, options and state, and what follows from them.
  static std::unique_ptr<SessionImpl> Make(std::shared_ptr<ModelImpl> model, const SessionOptions& options,
                                           std::unique_ptr<plan::SequenceState> state);
  // Beside the state itself: bytes that `check` takes.
  static uint64_t CheckBytes(const ModelImpl& model, const SessionOptions& options);

  // First position of the block of the grid that the next token falls into.
  int64_t BlockStart() const;
  // Back to `position`, which is inside the current block or a kept mark's; forgets later tokens and
  // checkpoints.
  Status ReturnTo(int64_t position);
};

// Rows that a pass of the instruments takes at most; a session's: plan::Backend::prompt_rows. Cuts fall on the grid. The bits
// don't depend on either.
inline constexpr int64_t kChunkRows = 512;

}  // namespace glint::engine
