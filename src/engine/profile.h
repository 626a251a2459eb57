// Measures where the time of a model's passes goes: plan/profile.h and plan/pricing.h applied to a session.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "glint/model.h"
#include "glint/sampler.h"
#include "plan/limits.h"
#include "plan/pricing.h"
#include "plan/profile.h"

namespace glint::engine {

// Rows of a piece of a prompt, if nothing else is asked for.
inline constexpr int64_t kProfiledPrompt = 256;

struct ProfileOptions {
  int64_t depth = 256;                    // tokens in the context before what is measured
  int64_t prompt_rows = kProfiledPrompt;  // at most kChunkRows; fewer where the depth is off the grid
  int64_t decode_tokens =
      0;  // 0: a block of the grid, so that its end is in the mean as often as in the long run
  int64_t real_tokens =
      0;  // 0, or how many of the context's are read: what is kept of the others repeats them (synthetic_depth.h)
  int repetitions = 0;  // timed and untimed runs, in turns, and rounds of a price; 0: 5, or more while short
  bool prefill = true, decode = true, per_layer = false;
  bool limits = true;                       // measure them; without them no share of the bandwidth is known
  std::vector<std::string> ablate, repeat;  // stages, or "all"
  SamplerOptions sampler;                   // what decoding samples with, once a token
  // What is going on ("filling the context", "timing prefill", ...) and how far it is.
  std::function<Progress(const std::string& what)> progress = {};
};

struct PhaseProfile {
  std::string name;  // "prefill" or "decode"
  int64_t rows = 1;  // a pass
  int repetitions = 0;
  std::shared_ptr<const plan::Plan> plan;
  std::vector<plan::PassShape> shapes;  // [passes] of a run
  std::vector<double> experts;  // distinct ones by layer that the shapes speak of; empty: expected ones
  std::vector<plan::PassTimes> typical;  // the run of median length, pass by pass
  plan::Profile profile;
  std::vector<plan::Price> ablated, repeated;
};

struct ProfileReport {
  // Before the measurement and after it; none where memory does not suffice, with the reason.
  std::optional<plan::Limits> before, after;
  std::string no_limits;
  std::vector<PhaseProfile> phases;
  // Bytes a second that shares are of: the best of both; 0: not known.
  double read_bandwidth() const;
};

// `ids`: what fills the context, at least `TokensNeeded` of them. kBadInput for a depth the model was not made for, a stage that is not
// there, an id out of range; kNoRoom.
Result<ProfileReport> MeasureProfile(const Model& model, std::span<const int32_t> ids,
                                     const ProfileOptions& options);

// kBadInput for a depth the model was not made for; to be asked before so many ids are made.
Status CheckDepth(const Model& model, const ProfileOptions& options);
// Tokens that fill the context and make the prompt's piece.
int64_t TokensNeeded(const Model& model, const ProfileOptions& options);

}  // namespace glint::engine
