// A forward pass as data: the list of steps a planner makes once and an executor runs many times.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/glm_flash/hparams.h"
#include "model/glm_flash/weights.h"
#include "plan/stage.h"

namespace glint::plan {

// A faster way of doing what canonical stages define. All levers of a backend stand in one table.
struct Lever {
  enum class Kind : uint8_t {
    kReplace,  // implements the run of stages in `covers` in place of their canonical steps
    kModifier,  // changes how the steps named in `covers` are carried out (SIMD, threads, batching); several may
                // act on one step, beside at most one kReplace
  };
  std::string_view name;
  Kind kind;
  std::vector<Stage> covers;  // kReplace: consecutive stages; kModifier: each stage it acts on
  bool bitwise;  // false: within `tolerance` of the canonical outputs, relative to their largest entry
  double tolerance;
  bool by_default;
  int min_rows, max_rows;    // batch rows for which it applies; max_rows 0 = any
  bool available;            // on this machine (instruction set, device)
  std::string_view summary;  // one line for `glint plan` and docs
  // kReplace: another run that it implements in the same way (a site's stages differ by a norm's name); empty: none.
  std::vector<Stage> or_covers = {};
  bool across_layers = false;  // kReplace: its runs may begin in one layer and end in the next
  bool keeps_inside = false;   // kReplace: slots that only its own stages read have buffers as well

  bool Covers(Stage stage) const;  // in either run
};

// Which lever settings the user asked for: exact names; "all" in `without` means the canonical plan.
struct LeverChoice {
  std::vector<std::string> with, without;
};

struct Step {
  Stage stage;                // first (usually only) stage served
  std::vector<Stage> covers;  // all of them
  int layer = -1;             // of `stage`: trunk layer; hp.layers for the MTP block; -1 outside layers
  enum class Site : uint8_t { kNone, kAttn, kFfn } site = Site::kNone;  // of hc.pre, hc.post
  const Lever* lever = nullptr;  // the kReplace lever serving it; null = canonical
  std::vector<const Lever*> modifiers;
  std::vector<Slot> in, out;
  bool advances_state = false;
  uint64_t weight_bytes = 0;  // bytes of weights it reads for one row (8 of 288 experts, one embedding row)
};

// Buffers are laid out by liveness: slots whose lives do not overlap share bytes.
struct BufferLayout {
  // A slot may be written anew many times; its lives all lie between first_step and last_step.
  struct Place {
    uint64_t offset = 0, bytes = 0;
    int first_step = -1, last_step = -1;
  };
  std::vector<Place>
      places;  // [Slot::kCount]; bytes 0 = not used by this plan, or the caller's memory (logits)
  uint64_t total_bytes = 0;
};

struct Plan {
  uint64_t id = 0;  // no other plan of this process has it
  Pass pass;
  int max_rows;  // rows the buffers are laid out for
  std::vector<Step> steps;
  BufferLayout buffers;
  std::vector<const Lever*> levers;  // in use anywhere, in table order
};

struct PlanRequest {
  const model::HParams* hparams;
  const model::Weights* weights;
  std::span<const Lever> levers;  // the backend's table; outlives the plan
  LeverChoice choice;
  Pass pass = Pass::kTrunk;
  int rows = 1;  // batch shape: levers with min_rows above it are not laid
  // dsa.attend and mtp.input also give out what they make on the way (kMix, kJoined), where no lever replaces them.
  bool look_inside = false;
  bool keep_all = false;  // no sharing of buffers, so that every slot can be looked at after its step
};

// kBadInput for an unknown or unavailable lever name (the message lists the known ones) or two levers over one stage by
// request.
Result<Plan> MakePlan(const PlanRequest& request);

// The choice with GLINT_WITH / GLINT_WITHOUT (comma-separated) added before it.
LeverChoice WithEnvironment(LeverChoice choice);

}  // namespace glint::plan
