// `glint verify`: a prompt and some tokens after it, every step of every pass held to the canonical stages.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "glint/model.h"
#include "plan/verify.h"

namespace glint::engine {

struct VerifyOptions {
  enum class Levers : uint8_t {
    kPlan,   // the plan as run and chat use it
    kEach,   // the canonical plan and one lever, for every lever that the model's choice does not exclude
    kPairs,  // the same for every two levers that share a stage or serve neighbours
  } levers = Levers::kPlan;
  std::vector<int32_t> prompt;  // at least one id
  int64_t decode = 8;           // tokens after it, each the likeliest
  // Rows of a pass at most. 0: the prompt in two passes that meet inside a block of the grid.
  int64_t chunk = 0;
  bool mtp = false;  // the MTP block over the same rows as well; the model must have it
  // Tokens done and in all (an estimate where a plan differs and stops); false stops with kBadInput "interrupted".
  std::function<bool(uint64_t, uint64_t)> progress;
};

struct VerifyReport {
  struct Case {
    std::vector<std::string> levers;  // tried beside those asked for by name; empty: the plan itself
    uint64_t steps = 0;               // it served, in all passes
    std::optional<plan::Difference> difference;
  };
  std::vector<Case> cases;
  std::vector<std::string> levers;  // in use in some pass of some case, in table order
  plan::Tally tally;
  std::vector<int64_t> rows;  // of the passes of one case, MTP passes not counted
  std::vector<int32_t> generated;

  bool clean() const;
};

// kBadInput: no or bad tokens, more than the model's context. kNoRoom: shadows and buffers do not fit (with numbers).
Result<VerifyReport> Verify(const Model& model, const VerifyOptions& options);

// The passes that `prompt` tokens take (VerifyOptions::chunk).
std::vector<int64_t> PromptPieces(int64_t prompt, int64_t chunk, int64_t block);

}  // namespace glint::engine
