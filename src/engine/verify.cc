#include "engine/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/memory.h"
#include "engine/model_impl.h"
#include "engine/session_impl.h"

namespace glint::engine {
namespace {

using plan::Lever;
using plan::Pass;
using plan::Plan;
using Levers = VerifyOptions::Levers;

// Cases that go beside one canonical pass: their buffers and sequences stay below this, however many cases there are.
constexpr uint64_t kGroupBytes = uint64_t{1} << 30;

bool Names(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

int32_t ArgMax(std::span<const float> logits, int64_t usable) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.begin() + usable) - logits.begin());
}

class Verification {
 public:
  Verification(ModelImpl& model, const VerifyOptions& options) : m_(model), o_(options) {}

  Result<VerifyReport> Run() {
    if (Status status = Check(); !status.ok()) return status;
    pieces_ = PromptPieces(Prompt(), o_.chunk, m_.data.hparams.block);
    report_.rows = pieces_;
    report_.rows.insert(report_.rows.end(), static_cast<size_t>(o_.decode), 1);
    if (Status status = MakeCases(); !status.ok()) return status;
    if (Status status = CheckMemory(); !status.ok()) return status;
    const size_t group = o_.levers == Levers::kPlan ? 1 : GroupSize();
    groups_ = (report_.cases.size() + group - 1) / group;
    for (size_t first = 0; first < report_.cases.size(); first += group, ++group_) {
      const size_t count = std::min(group, report_.cases.size() - first);
      if (Status status = RunGroup(std::span(report_.cases).subspan(first, count)); !status.ok())
        return status;
    }
    std::set<std::string_view> used;
    for (const auto& [key, plan] : plans_) {
      for (const Lever* lever : plan.levers) used.insert(lever->name);
    }
    for (const Lever& lever : m_.backend->levers()) {
      if (used.contains(lever.name)) report_.levers.emplace_back(lever.name);
    }
    return std::move(report_);
  }

 private:
  int64_t Prompt() const { return static_cast<int64_t>(o_.prompt.size()); }
  int64_t Tokens() const { return Prompt() + o_.decode; }
  int MostRows() const {
    return static_cast<int>(*std::max_element(report_.rows.begin(), report_.rows.end()));
  }

  Status Check() const {
    const auto& hp = m_.data.hparams;
    if (o_.prompt.empty()) return {Code::kBadInput, "a prompt of no tokens: nothing would be compared"};
    for (const int32_t id : o_.prompt) {
      if (id < 0 || id >= hp.vocab_size) {
        return {Code::kBadInput, fmt::format("token id {}; ids go from 0 to {}", id, hp.vocab_size - 1)};
      }
    }
    if (o_.decode < 0 || o_.chunk < 0) return {Code::kBadInput, "a negative number of tokens"};
    if (hp.context_length > 0 && Tokens() > hp.context_length) {
      return {Code::kBadInput,
              fmt::format("{} tokens; {} was made for {}", Tokens(), m_.data.name, hp.context_length)};
    }
    if (o_.mtp && m_.data.weights.nextn.empty()) {
      return {Code::kBadInput, "the model has no MTP block (or was opened without it)"};
    }
    return {};
  }

  bool Excluded(const Lever& lever) const {
    return !lever.available || Names(m_.choice.without, lever.name) || Names(m_.choice.with, lever.name);
  }

  // Two levers touch where one's outputs may meet the other's steps: a stage of both, or stages one after the other.
  static bool Touch(const Lever& a, const Lever& b, const std::vector<plan::Step>& steps) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool in_a = a.Covers(steps[i].stage), in_b = b.Covers(steps[i].stage);
      if (in_a && in_b) return true;
      if (i + 1 == steps.size()) break;
      const plan::Stage next = steps[i + 1].stage;
      if ((in_a && b.Covers(next)) || (in_b && a.Covers(next))) return true;
    }
    return false;
  }
  static bool Exclusive(const Lever& a, const Lever& b) {
    if (a.kind != Lever::Kind::kReplace || b.kind != Lever::Kind::kReplace) return false;
    const auto in_both = [&](plan::Stage stage) { return b.Covers(stage); };
    return std::any_of(a.covers.begin(), a.covers.end(), in_both) ||
           std::any_of(a.or_covers.begin(), a.or_covers.end(), in_both);
  }

  Status MakeCases() {
    if (o_.levers == Levers::kPlan) {
      report_.cases.emplace_back();
      return {};
    }
    std::vector<const Lever*> tried;
    for (const Lever& lever : m_.backend->levers()) {
      if (!Excluded(lever)) tried.push_back(&lever);
    }
    if (!m_.choice.with.empty())
      report_.cases.emplace_back();  // what was asked for by name, and nothing else
    if (o_.levers == Levers::kEach) {
      for (const Lever* lever : tried) report_.cases.push_back({{std::string(lever->name)}, 0, {}});
      return {};
    }
    std::vector<plan::Step> steps;
    for (const Pass pass : {Pass::kTrunk, Pass::kMtp}) {
      if (pass == Pass::kMtp && !o_.mtp) continue;
      auto canonical =
          plan::MakePlan(plan::CanonicalRequest(*m_.backend, m_.data.hparams, m_.data.weights, pass, 1));
      if (!canonical.ok()) return canonical.status();
      steps.insert(steps.end(), canonical->steps.begin(), canonical->steps.end());
    }
    for (size_t i = 0; i < tried.size(); ++i) {
      for (size_t j = i + 1; j < tried.size(); ++j) {
        if (!Touch(*tried[i], *tried[j], steps) || Exclusive(*tried[i], *tried[j])) continue;
        report_.cases.push_back({{std::string(tried[i]->name), std::string(tried[j]->name)}, 0, {}});
      }
    }
    return {};
  }

  // The plan of a case for a pass of `rows` rows, made once.
  Result<const Plan*> PlanFor(const VerifyReport::Case& c, Pass pass, int rows) {
    const auto key = std::tuple(c.levers, pass, rows);
    if (const auto found = plans_.find(key); found != plans_.end()) return &found->second;
    plan::LeverChoice choice = m_.choice;
    if (o_.levers != Levers::kPlan) {
      choice.with.insert(choice.with.end(), c.levers.begin(), c.levers.end());
      choice.without = {"all"};
    }
    auto plan = plan::MakePlan({.hparams = &m_.data.hparams,
                                .weights = &m_.data.weights,
                                .levers = m_.backend->levers(),
                                .choice = std::move(choice),
                                .pass = pass,
                                .rows = rows});
    if (!plan.ok()) return plan.status();
    return &plans_.emplace(key, std::move(*plan)).first->second;
  }

  Result<uint64_t> BytesOfCase(const VerifyReport::Case& c) {
    uint64_t buffers = 0;
    for (const Pass pass : {Pass::kTrunk, Pass::kMtp}) {
      if (pass == Pass::kMtp && !o_.mtp) continue;
      const auto plan = PlanFor(c, pass, MostRows());
      if (!plan.ok()) return plan.status();
      buffers = std::max(buffers, (*plan)->buffers.total_bytes);
    }
    return buffers + m_.backend->StateBytes(Tokens(), o_.mtp) +
           4 * static_cast<uint64_t>(2 * m_.data.hparams.vocab_size + MostRows() * m_.data.hparams.hidden);
  }

  Status CheckMemory() {
    uint64_t most = 0;
    for (const auto& c : report_.cases) {
      const auto bytes = BytesOfCase(c);
      if (!bytes.ok()) return bytes.status();
      most = std::max(most, *bytes);
    }
    case_bytes_ = std::max<uint64_t>(most, 1);
    const auto canonical = plan::MakePlan(
        plan::CanonicalRequest(*m_.backend, m_.data.hparams, m_.data.weights, Pass::kTrunk, MostRows()));
    if (!canonical.ok()) return canonical.status();
    const uint64_t state = m_.backend->StateBytes(Tokens(), o_.mtp);
    const uint64_t needed = canonical->buffers.total_bytes + state + case_bytes_;
    const auto room = m_.backend->Room();
    if (room.bytes >= needed) return {};
    return {Code::kNoRoom,
            fmt::format(
                "verifying {} tokens takes {} (two sequences {}, buffers {}), but {} leaves {}; a smaller "
                "chunk or a shorter prompt takes less",
                Tokens(), FormatBytes(needed), FormatBytes(2 * state), FormatBytes(needed - 2 * state),
                room.limited_by, FormatBytes(room.bytes))};
  }
  size_t GroupSize() const {
    const uint64_t room = std::min(kGroupBytes, m_.backend->Room().bytes / 4);
    return static_cast<size_t>(std::clamp<uint64_t>(room / case_bytes_, 1, 64));
  }

  static bool AllDiffer(std::span<const VerifyReport::Case> cases) {
    return std::all_of(cases.begin(), cases.end(), [](const auto& c) { return c.difference.has_value(); });
  }

  // All passes of the prompt and the tokens after it, for cases that go side by side.
  Status RunGroup(std::span<VerifyReport::Case> cases) {
    const auto& hp = m_.data.hparams;
    const std::lock_guard lock(m_.mutex);
    auto state = m_.backend->NewState(Tokens(), o_.mtp);
    if (!state.ok()) return state.status();
    plan::Verifier verifier(*m_.backend, hp, m_.data.weights);
    verifier.progress = [&](double share) {
      if (!o_.progress) return true;
      const auto total = static_cast<uint64_t>(Tokens());
      const auto inside =
          static_cast<uint64_t>((pass_now_ == Pass::kMtp ? 1 : share) * static_cast<double>(rows_now_));
      return o_.progress(group_ * total + done_ + inside, groups_ * total);
    };
    done_ = 0;
    std::vector<int32_t> tokens;
    tokens.reserve(static_cast<size_t>(Tokens()));  // pieces of it are spans
    tokens.insert(tokens.end(), o_.prompt.begin(), o_.prompt.end());
    for (const int64_t rows : report_.rows) {
      const auto piece = std::span(tokens).subspan(done_, static_cast<size_t>(rows));
      rows_now_ = static_cast<uint64_t>(rows);
      if (Status status = OnePass(verifier, cases, Pass::kTrunk, **state, piece); !status.ok()) return status;
      const bool more = done_ + rows_now_ < tokens.size();
      const int32_t next =
          more ? tokens[done_ + rows_now_]
               : ArgMax(std::span(logits_).last(static_cast<size_t>(hp.vocab_size)), m_.usable_vocab);
      if (!more && tokens.size() < static_cast<size_t>(Tokens())) tokens.push_back(next);
      if (o_.mtp && !AllDiffer(cases)) {
        std::vector<int32_t> nexts(piece.begin() + 1, piece.end());
        nexts.push_back(next);
        const std::vector<float> hidden = final_;
        Status status = OnePass(verifier, cases, Pass::kMtp, **state, nexts, hidden.data());
        if (!status.ok()) return status;
      }
      done_ += static_cast<size_t>(rows);
      if (AllDiffer(cases)) break;
    }
    report_.generated.assign(tokens.begin() + Prompt(), tokens.end());
    Add(verifier.tally());
    return {};
  }

  // logits_ and final_ get what the pass gave.
  Status OnePass(plan::Verifier& verifier, std::span<VerifyReport::Case> cases, Pass pass,
                 plan::SequenceState& state, std::span<const int32_t> tokens, const float* hidden = nullptr) {
    const auto& hp = m_.data.hparams;
    const auto rows = static_cast<int>(tokens.size());
    pass_now_ = pass;
    // Two rows where there are several: neither all rows nor one.
    const int logit_rows = std::min(rows, 2);
    std::vector<int32_t> wanted;
    for (int r = rows - logit_rows; r < rows; ++r) wanted.push_back(r);
    logits_.assign(wanted.size() * static_cast<size_t>(hp.vocab_size), 0);
    final_.assign(tokens.size() * static_cast<size_t>(hp.hidden), 0);
    const plan::Segment segment{&state, pass == Pass::kTrunk ? state.position() : state.mtp_position(), 0,
                                rows};
    const plan::Batch batch{.tokens = tokens,
                            .segments = {&segment, 1},
                            .hidden_in = hidden,
                            .wanted = wanted,
                            .logits = logits_.data(),
                            .final_out = final_.data()};
    std::vector<VerifyReport::Case*> live;
    std::vector<const Plan*> plans;
    for (auto& c : cases) {
      if (c.difference) continue;
      const auto plan = PlanFor(c, pass, rows);
      if (!plan.ok()) return plan.status();
      c.steps += static_cast<uint64_t>(
          std::count_if((*plan)->steps.begin(), (*plan)->steps.end(),
                        [](const plan::Step& s) { return s.lever != nullptr || !s.modifiers.empty(); }));
      live.push_back(&c);
      plans.push_back(*plan);
    }
    if (o_.levers == Levers::kPlan) {
      auto found = verifier.Run(*plans[0], batch);
      if (!found.ok()) return found.status();
      live[0]->difference = std::move(*found);
      return {};
    }
    auto found = verifier.RunBeside(plans, batch);
    if (!found.ok()) return found.status();
    for (size_t i = 0; i < live.size(); ++i) live[i]->difference = std::move((*found)[i]);
    return {};
  }

  void Add(const plan::Tally& t) {
    plan::Tally& sum = report_.tally;
    sum.passes += t.passes, sum.steps += t.steps;
    sum.slots += t.slots, sum.values += t.values;
    sum.parts += t.parts, sum.state_values += t.state_values;
    for (const auto& m : t.measured) {
      const auto at = std::find_if(sum.measured.begin(), sum.measured.end(),
                                   [&](const auto& s) { return s.lever == m.lever; });
      if (at == sum.measured.end()) {
        sum.measured.push_back(m);
      } else {
        at->largest = std::max(at->largest, m.largest);
      }
    }
  }

  ModelImpl& m_;
  const VerifyOptions& o_;
  VerifyReport report_;
  std::vector<int64_t> pieces_;
  std::map<std::tuple<std::vector<std::string>, Pass, int>, Plan> plans_;  // addresses stay
  uint64_t case_bytes_ = 1;                                                // the largest
  size_t group_ = 0, groups_ = 1;
  uint64_t done_ = 0, rows_now_ = 0;  // tokens of the group
  Pass pass_now_ = Pass::kTrunk;
  std::vector<float> logits_, final_;
};

}  // namespace

bool VerifyReport::clean() const {
  return std::none_of(cases.begin(), cases.end(), [](const Case& c) { return c.difference.has_value(); });
}

std::vector<int64_t> PromptPieces(int64_t prompt, int64_t chunk, int64_t block) {
  std::vector<int64_t> pieces;
  const auto cut = [&](int64_t rows, int64_t most) {
    for (; rows > 0; rows -= pieces.back()) pieces.push_back(std::min(rows, most));
  };
  if (chunk > 0) {
    cut(prompt, chunk);
    return pieces;
  }
  // Two thirds, so that both pieces have several rows, and inside a block: the second goes on with kept rows.
  int64_t first = prompt * 2 / 3;
  if (first % block == 0) first -= std::min(first, block / 2 + 1);
  cut(first, kChunkRows);
  cut(prompt - first, kChunkRows);
  return pieces;
}

Result<VerifyReport> Verify(const Model& model, const VerifyOptions& options) {
  return Verification(*model.impl(), options).Run();
}

}  // namespace glint::engine
