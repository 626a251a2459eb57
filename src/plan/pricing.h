// The price of a stage from outside: what a pass costs less without it, or more with it done twice.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "plan/backend.h"
#include "plan/profile.h"

namespace glint::plan {

enum class Pricing : uint8_t {
  kAblate,  // leave it out: the passes' outputs are wrong and dropped
  kRepeat,  // do it once more: the logits must be the same bits
};

// One run is passes of `rows` tokens each that continue the sequence. All runs start from the state as it is now; it is brought back
// after each, and at the end.
struct PriceRequest {
  Backend* backend;
  SequenceState* state;
  const model::HParams* hparams;
  const Plan* plan;  // for `rows` rows, made with keep_all
  std::span<const int32_t> tokens;
  int64_t rows = 1;
  int rounds = 5;
  Progress progress = {};  // counts runs
};

struct Price {
  Stage stage{};
  std::string served_by;
  int calls = 0;        // steps a pass that serve it
  StepBytes bytes;      // filled by who knows the passes' shapes
  Quartiles seconds;    // a pass (TypicalOf): the rounds' differences, pass by pass
  Quartiles baseline;   // of a whole pass
  std::string refused;  // why it has no price; the rest is then empty
  bool resolved() const { return seconds.low > 0; }  // otherwise it is lost in the noise
};

// Whole runs (A) and edited ones (B, C, ...) take turns as A B C ... C B A, up to four stages at a time, so that a steady drift of the
// machine's speed cancels in each round's difference. Every whole run, and every repeated one, is held to the bits of the first.
// kInternal, with the place and both values, where they differ. kRepeat: a stage that is not idempotent is refused in its Price.
Result<std::vector<Price>> PriceStages(Pricing how, const PriceRequest& request,
                                       std::span<const Stage> stages);

}  // namespace glint::plan
