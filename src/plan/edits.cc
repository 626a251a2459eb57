#include "plan/edits.h"

#include <fmt/core.h>

#include <algorithm>

namespace glint::plan {
namespace {

constexpr std::string_view kAll = "all";

template <class List, class T>
bool Contains(const List& list, const T& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

std::string Join(std::span<const Stage> stages) {
  std::string text;
  for (const Stage stage : stages) text += (text.empty() ? "" : ", ") + std::string(Name(stage));
  return text;
}

// Why doing the step again would change something, in words; empty if it would not.
std::string WhyNot(const Step& step) {
  for (const Stage stage : step.covers) {
    if (Idempotent(stage)) continue;
    const auto io = Io(stage, Pass::kTrunk);
    return fmt::format("{} {}", Name(stage),
                       io.advances_state ? "advances the sequence's state" : "updates its result in place");
  }
  for (const Slot slot : step.out)
    if (Contains(step.in, slot)) return fmt::format("it updates {} in place", Name(slot));
  return {};
}

// Whether nobody after step `after` reads the slot before it is written anew.
bool Dead(const Plan& plan, Slot slot, size_t after) {
  if (slot == Slot::kLogits) return false;
  for (size_t i = after + 1; i < plan.steps.size(); ++i) {
    if (Contains(plan.steps[i].in, slot)) return false;
    if (Contains(plan.steps[i].out, slot)) return true;
  }
  return true;
}

// The last step of the layer behind which step `i` may be done again without a trace: what it writes is dead, it writes no state, and
// the indices it reads are still its own (floats may have changed: nobody sees what comes of them).
size_t LatestRepetition(const Plan& plan, size_t i) {
  const Step& step = plan.steps[i];
  if (step.advances_state) return i;
  size_t latest = i;
  for (size_t k = i + 1; k < plan.steps.size() && plan.steps[k].layer == step.layer; ++k) {
    for (const Slot slot : {Slot::kExpertIds, Slot::kSelected, Slot::kSelectedCount})
      if (Contains(step.in, slot) && Contains(plan.steps[k].out, slot)) return latest;
    if (std::all_of(step.out.begin(), step.out.end(), [&](Slot slot) { return Dead(plan, slot, k); }))
      latest = k;
  }
  return latest;
}

}  // namespace

bool Idempotent(const Step& step) { return WhyNot(step).empty(); }

std::vector<size_t> StepsOf(const Plan& plan, Stage stage) {
  std::vector<size_t> steps;
  for (size_t i = 0; i < plan.steps.size(); ++i)
    if (Contains(plan.steps[i].covers, stage)) steps.push_back(i);
  return steps;
}

std::vector<Stage> StagesOf(const Plan& plan) {
  std::vector<Stage> stages;
  for (const Stage stage : AllStages())
    if (!StepsOf(plan, stage).empty()) stages.push_back(stage);
  return stages;
}

std::string ServedBy(const Plan& plan, Stage stage) {
  std::vector<std::string> ways;
  for (const size_t i : StepsOf(plan, stage)) {
    const Step& step = plan.steps[i];
    std::string way(step.lever != nullptr ? step.lever->name : "canonical");
    for (size_t m = 0; m < step.modifiers.size(); ++m)
      way += (m == 0 ? " + " : " ") + std::string(step.modifiers[m]->name);
    if (step.covers.size() > 1) {
      auto others = step.covers;
      std::erase(others, stage);
      way += fmt::format(" (with {})", Join(others));
    }
    if (!Contains(ways, way)) ways.push_back(std::move(way));
  }
  std::string text;
  for (const auto& way : ways) text += (text.empty() ? "" : "; ") + way;
  return text;
}

Plan Without(const Plan& plan, Stage stage) {
  Plan edited = plan;
  std::erase_if(edited.steps, [&](const Step& step) { return Contains(step.covers, stage); });
  return edited;
}

Result<Plan> Repeating(const Plan& plan, Stage stage) {
  std::vector<std::vector<size_t>> again(plan.steps.size());  // [steps] what is done again behind each
  for (const size_t i : StepsOf(plan, stage)) {
    if (const std::string why = WhyNot(plan.steps[i]); !why.empty()) {
      return Status(Code::kBadInput,
                    fmt::format("{} can't be repeated: {}, so twice is not once", Name(stage), why));
    }
    again[LatestRepetition(plan, i)].push_back(i);
  }
  Plan edited = plan;
  edited.steps.clear();
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    edited.steps.push_back(plan.steps[i]);
    for (const size_t repeated : again[i]) edited.steps.push_back(plan.steps[repeated]);
  }
  return edited;
}

Status CheckStageNames(std::span<const std::string> names) {
  for (const auto& name : names) {
    Stage stage;
    if (name == kAll || FindStage(name, &stage)) continue;
    return {Code::kBadInput,
            fmt::format("unknown stage '{}'; there are: {}; or all", name, Join(AllStages()))};
  }
  return {};
}

Result<std::vector<Stage>> FindStages(const Plan& plan, std::span<const std::string> names) {
  if (Status status = CheckStageNames(names); !status.ok()) return status;
  const auto there = StagesOf(plan);
  if (Contains(names, kAll)) return there;
  std::vector<Stage> stages;
  for (const auto& name : names) {
    Stage stage{};
    FindStage(name, &stage);
    if (!Contains(there, stage)) {
      return Status(Code::kBadInput, fmt::format("stage {} is not in this pass of this model; there are: {}",
                                                 name, Join(there)));
    }
    if (!Contains(stages, stage)) stages.push_back(stage);
  }
  return stages;
}

}  // namespace glint::plan
