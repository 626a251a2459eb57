#include "plan/verify.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "plan/compare.h"

namespace glint::plan {
namespace {

// Canonical plans kept: decoding, and the pieces of a prompt, of two passes.
constexpr size_t kPlansKept = 8;

bool ByLever(const Step& step) { return step.lever != nullptr || !step.modifiers.empty(); }

// Levers of the step with a tolerance. Their errors may add up.
std::vector<const Lever*> Tolerant(const Step& step) {
  std::vector<const Lever*> levers;
  if (step.lever != nullptr && !step.lever->bitwise) levers.push_back(step.lever);
  for (const Lever* m : step.modifiers) {
    if (!m->bitwise) levers.push_back(m);
  }
  return levers;
}
double ToleranceOf(const Step& step) {
  double sum = 0;
  for (const Lever* lever : Tolerant(step)) sum += lever->tolerance;
  return sum;
}

// Which parts of the state a stage writes.
bool Writes(Stage stage, StatePart::Kind kind) {
  using Kind = StatePart::Kind;
  switch (kind) {
    case Kind::kKdaState:
    case Kind::kKdaKf:
    case Kind::kKdaDelta:
    case Kind::kKdaG:
      return stage == Stage::kKdaRecur;
    case Kind::kConv:
      return stage == Stage::kKdaConv;
    case Kind::kLatent:
      return stage == Stage::kDsaKv;
    case Kind::kPooledKey:
    case Kind::kRawKey:
    case Kind::kRawGate:
      return stage == Stage::kDsaIndex;
    case Kind::kCount:
      break;
  }
  return false;
}

bool Writes(const Step& step, const StatePart& part) {
  return part.layer == step.layer &&
         std::any_of(step.covers.begin(), step.covers.end(), [&](Stage s) { return Writes(s, part.kind); });
}

}  // namespace

// The caller's batch once more, over sequences that follow the caller's from pass to pass.
struct Verifier::Shadow {
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<Segment> segments;
  std::vector<float> logits, final;
  Batch batch;

  Status Follow(const Batch& of, const model::HParams& hp) {
    segments.assign(of.segments.begin(), of.segments.end());
    states.resize(std::max(states.size(), segments.size()));
    for (size_t i = 0; i < segments.size(); ++i) {
      auto& state = states[i];
      const SequenceState& original = *segments[i].state;
      if (state == nullptr || state->capacity() < original.capacity() || !state->CopyFrom(original).ok()) {
        state.reset();
        auto copy = original.Clone();
        if (!copy.ok()) return copy.status();
        state = std::move(*copy);
      }
      segments[i].state = state.get();
    }
    batch = of;
    batch.segments = segments;
    if (of.logits != nullptr) {
      logits.resize(of.wanted.size() * static_cast<size_t>(hp.vocab_size));
      batch.logits = logits.data();
    }
    batch.best = nullptr;  // follows from logits
    if (of.final_out != nullptr) {
      final.resize(of.tokens.size() * static_cast<size_t>(hp.hidden));
      batch.final_out = final.data();
    }
    return {};
  }
};

// One plan under test in a pass.
struct Verifier::Side {
  const Plan* plan;
  Batch batch;
  std::unique_ptr<Execution> run;
  size_t step = 0;  // of the plan: the one in progress, or the next
  size_t begin = 0,
         end = 0;  // canonical steps it covers: [begin, end) while in progress, begin == end before
  std::optional<Difference> found;

  const Step& Current() const { return plan->steps[step]; }
};

// A canonical pass and the plans beside it, step by step.
class Verifier::Lockstep {
 public:
  // leads: the one side's values are what the pass goes on with; otherwise the canonical ones are.
  Lockstep(Verifier& verifier, const Plan& canonical, const Batch& batch, std::vector<Side> sides, bool leads)
      : v_(verifier), canonical_(canonical), batch_(batch), sides_(std::move(sides)), leads_(leads) {}

  Status Run() {
    if (Status status = Begin(); !status.ok()) return status;
    for (size_t c = 0; c < canonical_.steps.size(); ++c) {
      for (Side& side : sides_) {
        if (side.found || side.end != c) continue;
        side.begin = c;
        side.end = c + side.Current().covers.size();
        if (Status status = Start(side); !status.ok()) return status;
      }
      if (Status status = Poison(*reference_, batch_, canonical_.steps[c]); !status.ok()) return status;
      if (Status status = reference_->RunStep(c); !status.ok()) return status;
      for (Side& side : sides_) {
        if (side.found || side.end != c + 1) continue;
        if (Status status = Complete(side); !status.ok()) return status;
        ++side.step;
      }
      if (leads_ && sides_[0].found) return {};
      const double done = static_cast<double>(c + 1) / static_cast<double>(canonical_.steps.size());
      if (v_.progress && !v_.progress(done)) return {Code::kBadInput, "interrupted"};
    }
    for (Side& side : sides_) {
      if (side.found) continue;
      if (Status status = CompareStatesLeft(side); !status.ok()) return status;
      if (side.found) continue;
      if (Status status = side.run->Finish(); !status.ok()) return status;
    }
    if (leads_ && sides_[0].found) return {};
    ++v_.tally_.passes;
    return reference_->Finish();
  }

  std::vector<Side>& sides() { return sides_; }

 private:
  using Bits = std::vector<uint32_t>;

  Status Begin() {
    auto reference = v_.backend_.Begin(canonical_, batch_);
    if (!reference.ok()) return reference.status();
    reference_ = std::move(*reference);
    for (Side& side : sides_) {
      auto run = v_.backend_.Begin(*side.plan, side.batch);
      if (!run.ok()) return run.status();
      side.run = std::move(*run);
    }
    for (const Segment& s : batch_.segments) {
      const bool trunk = canonical_.pass == Pass::kTrunk;
      parts_.push_back(s.state->Parts(s.state->position() + (trunk ? s.rows : 0),
                                      s.state->mtp_position() + (trunk ? 0 : s.rows)));
    }
    return {};
  }

  bool Follows(const Side& side) const { return !leads_ && !ByLever(side.Current()); }

  Status Start(Side& side) {
    if (Follows(side)) return {};
    for (const Slot slot : side.Current().in) {
      if (Status status = CompareSlot(side, slot, Difference::Where::kInput, 0); !status.ok()) return status;
      if (side.found) return {};
    }
    if (Status status = Poison(*side.run, side.batch, side.Current()); !status.ok()) return status;
    return side.run->RunStep(side.step);
  }

  // What a step only writes holds NaN before it: what it left unwritten shows, and fresh memory lends it no zeros.
  Status Poison(Execution& run, const Batch& batch, const Step& step) {
    for (const Slot slot : step.out) {
      if (std::find(step.in.begin(), step.in.end(), slot) != step.in.end()) continue;
      if (slot == Slot::kLogits && batch.wanted.empty()) continue;
      got_.assign(static_cast<size_t>(RowsOf(slot) * Width(slot, v_.hp_)), 0xffffffffu);
      if (Status status = run.Write(slot, got_.data()); !status.ok()) return status;
    }
    return {};
  }

  int64_t RowsOf(Slot slot) const {
    return static_cast<int64_t>(slot == Slot::kLogits ? batch_.wanted.size() : batch_.tokens.size());
  }

  Status Complete(Side& side) {
    const Step& step = side.Current();
    if (Follows(side)) return TakeOver(*side.run, side.batch, *reference_, batch_, step);
    const double tolerance = ToleranceOf(step);
    if (ByLever(step)) ++v_.tally_.steps;
    for (const Slot slot : step.out) {
      if (slot == Slot::kLogits && batch_.wanted.empty()) continue;
      if (Status status = CompareSlot(side, slot, Difference::Where::kOutput, tolerance); !status.ok())
        return status;
      if (side.found) return {};
    }
    if (Status status = CompareFinalOut(side, step); !status.ok() || side.found) return status;
    if (Status status = CompareStates(side, step, tolerance); !status.ok() || side.found) return status;
    if (tolerance == 0) return {};
    return leads_ ? TakeOver(*reference_, batch_, *side.run, side.batch, step)
                  : TakeOver(*side.run, side.batch, *reference_, batch_, step);
  }

  // What the step wrote, from one execution and its states into the other's.
  Status TakeOver(Execution& to, const Batch& to_batch, const Execution& from, const Batch& from_batch,
                  const Step& step) {
    for (const Slot slot : step.out) {
      if (slot == Slot::kLogits && from_batch.wanted.empty()) continue;
      if (Status status = to.CopySlot(from, slot); !status.ok()) return status;
    }
    if (!step.advances_state) return {};
    for (size_t s = 0; s < parts_.size(); ++s) {
      for (const StatePart& part : parts_[s]) {
        if (!Writes(step, part)) continue;
        Bits& floats = Sized(got_, part.rows * part.width);
        const auto* source = from_batch.segments[s].state;
        auto* target = to_batch.segments[s].state;
        if (Status status = source->Read(part, AsFloats(floats)); !status.ok()) return status;
        if (Status status = target->Write(part, AsFloats(floats)); !status.ok()) return status;
      }
    }
    return {};
  }

  Status CompareSlot(Side& side, Slot slot, Difference::Where where, double tolerance) {
    const int64_t width = Width(slot, v_.hp_);
    Bits &got = Sized(got_, RowsOf(slot) * width), &want = Sized(want_, RowsOf(slot) * width);
    if (Status status = side.run->Read(slot, got.data()); !status.ok()) return status;
    if (Status status = reference_->Read(slot, want.data()); !status.ok()) return status;
    if (where == Difference::Where::kOutput && ByLever(side.Current())) {
      ++v_.tally_.slots;
      v_.tally_.values += got.size();
    }
    const bool integers = HoldsIntegers(slot);
    const auto mismatch = Judge(side.Current(), integers ? 0 : tolerance, integers);
    if (!mismatch) return {};
    Difference& d = Found(side, where, Name(slot), *mismatch, width, integers, integers ? 0 : tolerance);
    if (slot == Slot::kLogits) d.row = batch_.wanted[static_cast<size_t>(d.row)];
    for (const Segment& s : batch_.segments) {
      if (d.row >= s.first_row && d.row < s.first_row + s.rows) d.position = s.position + d.row - s.first_row;
    }
    return {};
  }

  // The final rows that the caller wanted are a copy of a slot: held to the slot of the reference.
  Status CompareFinalOut(Side& side, const Step& step) {
    if (side.batch.final_out == nullptr ||
        std::find(step.covers.begin(), step.covers.end(), Stage::kHeadNorm) == step.covers.end()) {
      return {};
    }
    const int64_t width = v_.hp_.hidden, entries = static_cast<int64_t>(batch_.tokens.size()) * width;
    Bits& got = Sized(got_, entries);
    Bits& want = Sized(want_, entries);
    std::copy_n(reinterpret_cast<const uint32_t*>(side.batch.final_out), entries, got.data());
    if (Status status = reference_->Read(Slot::kFinal, want.data()); !status.ok()) return status;
    const double tolerance = ToleranceOf(step);
    if (const auto mismatch = Judge(step, tolerance, false)) {
      Found(side, Difference::Where::kFinalOut, "final_out", *mismatch, width, false, tolerance);
    }
    return {};
  }

  Status CompareStates(Side& side, const Step& step, double tolerance) {
    if (!step.advances_state) return {};
    for (size_t s = 0; s < parts_.size(); ++s) {
      for (const StatePart& part : parts_[s]) {
        if (!Writes(step, part)) continue;
        if (Status status = ReadBoth(side, s, part); !status.ok()) return status;
        if (ByLever(step)) {
          ++v_.tally_.parts;
          v_.tally_.state_values += got_.size();
        }
        const auto mismatch = Judge(step, tolerance, false);
        if (!mismatch) continue;
        Found(side, Difference::Where::kState, Name(part.kind), *mismatch, part.width, false, tolerance)
            .row += part.first;
        return {};
      }
    }
    return {};
  }

  // After the last step: no step may have written into what was another's.
  Status CompareStatesLeft(Side& side) {
    for (size_t s = 0; s < parts_.size(); ++s) {
      for (const StatePart& part : parts_[s]) {
        if (Status status = ReadBoth(side, s, part); !status.ok()) return status;
        const auto mismatch = FirstOtherBits(got_, want_, false);
        if (!mismatch) continue;
        --side.step;  // the last one
        Difference& d =
            Found(side, Difference::Where::kStateLeft, Name(part.kind), *mismatch, part.width, false, 0);
        d.row += part.first;
        d.layer = part.layer;
        d.stages.clear();
        d.lever.clear();
        d.modifiers.clear();
        d.site = Step::Site::kNone;
        return {};
      }
    }
    return {};
  }

  Status ReadBoth(const Side& side, size_t segment, const StatePart& part) {
    Bits &got = Sized(got_, part.rows * part.width), &want = Sized(want_, part.rows * part.width);
    Status status = side.batch.segments[segment].state->Read(part, AsFloats(got));
    return status.ok() ? batch_.segments[segment].state->Read(part, AsFloats(want)) : status;
  }

  // got_ against want_.
  std::optional<Mismatch> Judge(const Step& step, double tolerance, bool integers) {
    if (tolerance == 0) return FirstOtherBits(got_, want_, integers);
    const Closeness close = Compare(got_, want_, tolerance);
    for (const Lever* lever : Tolerant(step)) {
      auto& list = v_.tally_.measured;
      auto at = std::find_if(list.begin(), list.end(), [&](const auto& m) { return m.lever == lever->name; });
      if (at == list.end()) at = list.insert(at, {std::string(lever->name), lever->tolerance, 0});
      if (close.scale > 0) at->largest = std::max(at->largest, close.largest / close.scale);
    }
    scale_ = close.scale;
    return close.first;
  }

  Difference& Found(Side& side, Difference::Where where, std::string_view place, const Mismatch& mismatch,
                    int64_t width, bool integers, double tolerance) {
    const Step& step = side.Current();
    Difference& d = side.found.emplace();
    d.where = where;
    d.pass = canonical_.pass;
    d.rows = static_cast<int>(batch_.tokens.size());
    d.stages = step.covers;
    d.layer = step.layer;
    d.site = step.site;
    if (step.lever != nullptr) d.lever = step.lever->name;
    for (const Lever* m : step.modifiers) d.modifiers.emplace_back(m->name);
    d.place = place;
    d.row = static_cast<int64_t>(mismatch.at) / width;
    d.column = static_cast<int64_t>(mismatch.at) % width;
    d.integers = integers;
    d.got = mismatch.got, d.want = mismatch.want;
    if (!integers) d.ulps = UlpsBetween(d.got, d.want);
    if (tolerance > 0) d.bound = tolerance * scale_;
    return d;
  }

  static Bits& Sized(Bits& bits, int64_t n) {
    bits.resize(static_cast<size_t>(n));
    return bits;
  }
  // Parts are read as floats; here only their bits count.
  static float* AsFloats(Bits& bits) { return reinterpret_cast<float*>(bits.data()); }

  Verifier& v_;
  const Plan& canonical_;
  const Batch& batch_;  // of the reference
  std::vector<Side> sides_;
  const bool leads_;
  std::unique_ptr<Execution> reference_;
  std::vector<std::vector<StatePart>> parts_;  // of each segment's state after the pass
  Bits got_, want_;
  double scale_ = 0;  // of the last Judge with a tolerance
};

PlanRequest CanonicalRequest(const Backend& backend, const model::HParams& hp, const model::Weights& weights,
                             Pass pass, int rows) {
  return {.hparams = &hp,
          .weights = &weights,
          .levers = backend.levers(),
          .choice = {.with = {}, .without = {"all"}},
          .pass = pass,
          .rows = rows,
          .keep_all = true};
}

Verifier::Verifier(Backend& backend, const model::HParams& hp, const model::Weights& weights)
    : backend_(backend), hp_(hp), weights_(weights) {}
Verifier::~Verifier() = default;

Result<std::shared_ptr<const Plan>> Verifier::CanonicalPlan(Pass pass, int rows) {
  const auto found = std::find_if(canonical_.begin(), canonical_.end(),
                                  [&](const auto& p) { return p->pass == pass && p->max_rows == rows; });
  if (found != canonical_.end()) {
    std::rotate(found, found + 1, canonical_.end());
    return canonical_.back();
  }
  auto plan = MakePlan(CanonicalRequest(backend_, hp_, weights_, pass, rows));
  if (!plan.ok()) return plan.status();
  if (canonical_.size() == kPlansKept) canonical_.erase(canonical_.begin());
  canonical_.push_back(std::make_shared<const Plan>(std::move(*plan)));
  return canonical_.back();
}

Result<std::optional<Difference>> Verifier::Run(const Plan& plan, const Batch& batch) {
  if (batch.tokens.empty()) return std::optional<Difference>();
  const auto canonical = CanonicalPlan(plan.pass, static_cast<int>(batch.tokens.size()));
  if (!canonical.ok()) return canonical.status();
  if (shadows_.empty()) shadows_.push_back(std::make_unique<Shadow>());
  Shadow& shadow = *shadows_[0];
  if (Status status = shadow.Follow(batch, hp_); !status.ok()) return status;
  shadow.batch.final_out = nullptr;  // its slot is looked at

  std::vector<std::unique_ptr<StateMark>> before;
  for (const Segment& s : batch.segments) {
    auto mark = s.state->Mark();
    if (!mark.ok()) return mark.status();
    before.push_back(std::move(*mark));
  }
  std::vector<Side> sides(1);
  sides[0].plan = &plan;
  sides[0].batch = batch;
  Lockstep pass(*this, **canonical, shadow.batch, std::move(sides), true);
  const Status status = pass.Run();
  auto& found = pass.sides()[0].found;
  if (status.ok() && !found) return std::optional<Difference>();
  for (size_t i = 0; i < before.size(); ++i) {
    if (Status back = batch.segments[i].state->Return(*before[i]); !back.ok()) return back;
  }
  if (!status.ok()) return status;
  return std::move(found);
}

Result<std::vector<std::optional<Difference>>> Verifier::RunBeside(std::span<const Plan* const> plans,
                                                                   const Batch& batch) {
  std::vector<std::optional<Difference>> differences(plans.size());
  if (batch.tokens.empty() || plans.empty()) return differences;
  const auto canonical = CanonicalPlan(plans[0]->pass, static_cast<int>(batch.tokens.size()));
  if (!canonical.ok()) return canonical.status();
  std::vector<Side> sides;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (shadows_.size() == i) shadows_.push_back(std::make_unique<Shadow>());
    if (Status status = shadows_[i]->Follow(batch, hp_); !status.ok()) return status;
    Side& side = sides.emplace_back();
    side.plan = plans[i];
    side.batch = shadows_[i]->batch;
  }
  Lockstep pass(*this, **canonical, batch, std::move(sides), false);
  if (Status status = pass.Run(); !status.ok()) return status;
  for (size_t i = 0; i < plans.size(); ++i) differences[i] = std::move(pass.sides()[i].found);
  return differences;
}

std::string StepName(const Difference& d) {
  std::vector<std::string_view> stages;
  for (const Stage stage : d.stages) stages.push_back(Name(stage));
  std::string name = d.pass == Pass::kMtp ? "MTP block"
                     : d.layer >= 0       ? fmt::format("layer {}", d.layer)
                                          : "";
  if (!stages.empty()) name += fmt::format("{}{}", name.empty() ? "" : " ", fmt::join(stages, " "));
  if (d.site != Step::Site::kNone) name += d.site == Step::Site::kAttn ? " (attn)" : " (ffn)";
  return name;
}

namespace {

std::string Value(const Difference& d, uint32_t bits) {
  if (d.integers) return fmt::format("{}", static_cast<int32_t>(bits));
  return fmt::format("{:.9g} (0x{:08x})", std::bit_cast<float>(bits), bits);
}

}  // namespace

std::string Describe(const Difference& d) {
  std::string text = StepName(d);
  if (d.where == Difference::Where::kStateLeft) {
    text += ": after the pass";
  } else if (d.lever.empty()) {
    text += ", canonical";
  } else {
    text += fmt::format(", lever {}", d.lever);
  }
  if (!d.modifiers.empty()) text += fmt::format(", with {}", fmt::join(d.modifiers, ", "));
  text += fmt::format("; a pass of {} {}\n  ", d.rows, d.rows == 1 ? "row" : "rows");
  switch (d.where) {
    case Difference::Where::kOutput:
      text += fmt::format("output '{}'", d.place);
      break;
    case Difference::Where::kInput:
      text += fmt::format("input '{}', right when it was written, was written over since: buffers overlap;",
                          d.place);
      break;
    case Difference::Where::kState:
      text += fmt::format("state '{}'", d.place);
      break;
    case Difference::Where::kStateLeft:
      text += fmt::format("state '{}', right after its own step, was written over since;", d.place);
      break;
    case Difference::Where::kFinalOut:
      text += "the copy of the final rows";
      break;
  }
  const bool state = d.where == Difference::Where::kState || d.where == Difference::Where::kStateLeft;
  text += fmt::format(" {} {}", state ? "at" : "row", d.row);
  if (d.position >= 0) text += fmt::format(" (position {})", d.position);
  text += fmt::format(", column {}\n  is {}\n  canonical stages give {}\n  ", d.column, Value(d, d.got),
                      Value(d, d.want));
  if (d.integers) {
    text += fmt::format("{} apart", int64_t{static_cast<int32_t>(d.got)} - static_cast<int32_t>(d.want));
  } else if (d.ulps == 0) {
    text += "one is not a number";
  } else {
    text += fmt::format("{} {} apart", d.ulps, d.ulps == 1 ? "ulp" : "ulps");
  }
  if (d.bound > 0) text += fmt::format("; its levers promise to stay within {:.3g}", d.bound);
  return text + "\n";
}

}  // namespace glint::plan
