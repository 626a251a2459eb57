#include "engine/profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "engine/session_impl.h"
#include "engine/synthetic_depth.h"
#include "glint/session.h"
#include "plan/edits.h"

namespace glint::engine {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs of each kind where nobody says how many: half a second's worth, within these bounds.
constexpr double kEnough = 0.5;
constexpr int kFewest = 5, kMost = 31;

// Rows of a piece of a prompt at this depth: passes end on the grid.
int64_t PromptRows(const model::HParams& hp, const ProfileOptions& options) {
  return std::min(options.prompt_rows, kChunkRows - options.depth % hp.block);
}
int64_t DecodeTokens(const model::HParams& hp, const ProfileOptions& options) {
  return options.decode_tokens > 0 ? options.decode_tokens : hp.block;
}

// What a phase does again and again from the same state.
class Phase {
 public:
  virtual ~Phase() = default;
  // The passes of one run; `timed` null: nobody looks. Returns the seconds of each with what is outside.
  virtual Result<std::vector<double>> Run(std::vector<plan::PassTimes>* timed) = 0;
};

class PrefillPhase final : public Phase {
 public:
  PrefillPhase(Session& session, std::span<const int32_t> ids, int64_t vocab)
      : session_(session), ids_(ids), logits_(static_cast<size_t>(vocab)) {}

  Result<std::vector<double>> Run(std::vector<plan::PassTimes>* timed) override {
    if (timed != nullptr) {
      session_.impl().timer = [timed](std::vector<plan::StepTime> times, double whole) {
        timed->push_back({std::move(times), whole, 0});
      };
    }
    const double start = Seconds();
    const Status status = session_.Append(ids_, LogitRows::kLast, logits_);
    const double seconds = Seconds() - start;
    session_.impl().timer = nullptr;
    if (!status.ok()) return status;
    if (timed != nullptr) timed->back().outside = seconds - timed->back().whole;
    return std::vector{seconds};
  }

 private:
  Session& session_;
  std::span<const int32_t> ids_;
  std::vector<float> logits_;
};

class DecodePhase final : public Phase {
 public:
  DecodePhase(Session& session, Sampler sampler, int32_t first, int64_t tokens, int64_t vocab)
      : session_(session),
        sampler_(std::move(sampler)),
        tokens_{first},
        wanted_(static_cast<size_t>(tokens)),
        logits_(static_cast<size_t>(vocab)) {}

  // The first run decides the tokens; all later ones sample as it did, and take the same.
  Result<std::vector<double>> Run(std::vector<plan::PassTimes>* timed) override {
    sampler_.Reset();
    std::vector<double> all;
    for (size_t i = 0; i < wanted_; ++i) {
      if (timed != nullptr) {
        session_.impl().timer = [timed](std::vector<plan::StepTime> times, double whole) {
          timed->push_back({std::move(times), whole, 0});
        };
      }
      const double start = Seconds();
      const auto next = Next({&tokens_[i], 1});
      const double seconds = Seconds() - start;
      session_.impl().timer = nullptr;
      if (!next.ok()) return next.status();
      if (timed != nullptr) timed->back().outside = seconds - timed->back().whole;
      if (tokens_.size() == i + 1) tokens_.push_back(*next);
      all.push_back(seconds);
    }
    return all;
  }

  std::span<const int32_t> tokens() const { return std::span(tokens_).first(wanted_); }

 private:
  // The token after this one, as `glint run` would choose it.
  Result<int32_t> Next(std::span<const int32_t> token) {
    if (sampler_.is_argmax()) {
      int32_t best = -1;
      Status status = session_.AppendBest(token, &best);
      if (status.ok() && best < 0) status = {Code::kBadInput, "no logit is a number to choose by"};
      return status.ok() ? Result<int32_t>(best) : Result<int32_t>(status);
    }
    const Status status = session_.Append(token, LogitRows::kLast, logits_);
    return status.ok() ? sampler_.Sample(logits_) : Result<int32_t>(status);
  }

  Session& session_;
  Sampler sampler_;
  std::vector<int32_t> tokens_;
  size_t wanted_;
  std::vector<float> logits_;
};

class Measurement {
 public:
  Measurement(const Model& model, std::span<const int32_t> ids, const ProfileOptions& options)
      : model_(*model.impl()), handle_(model), ids_(ids), options_(options), hp_(model_.data.hparams) {}

  Result<ProfileReport> Run() {
    if (Status status = Check(); !status.ok()) return status;
    const int64_t more = std::max(options_.prefill ? PromptRows(hp_, options_) : 0,
                                  options_.decode ? DecodeTokens(hp_, options_) : 0);
    auto session = Session::Create(handle_, {.context = options_.depth + more});
    if (!session.ok()) return session.status();
    session_ = &*session;

    if (Status status = MeasureLimits(&report_.before); !status.ok()) return status;
    const Progress filling = Report("filling the context");
    const auto context = ids_.first(static_cast<size_t>(options_.depth));
    if (Status status = options_.real_tokens > 0
                            ? AppendSynthetically(*session, context, options_.real_tokens, filling)
                            : session->Append(context, LogitRows::kNone, {}, filling);
        !status.ok()) {
      return status;
    }
    if (session->position() != options_.depth) return Status(Code::kBadInput, "interrupted");
    auto start = session->Checkpoint();
    if (!start.ok()) return start.status();
    start_ = *start;

    if (options_.prefill) {
      if (Status status = Prefill(); !status.ok()) return status;
    }
    if (options_.decode) {
      if (Status status = Decode(); !status.ok()) return status;
    }
    if (Status status = MeasureLimits(&report_.after); !status.ok()) return status;
    return std::move(report_);
  }

 private:
  Status Check() const {
    const int64_t needed = TokensNeeded(handle_, options_);
    if (Status status = CheckDepth(handle_, options_); !status.ok()) return status;
    if (static_cast<int64_t>(ids_.size()) < needed) {
      return {Code::kBadInput,
              fmt::format("{} tokens to fill the context with; {} are needed", ids_.size(), needed)};
    }
    return {};
  }

  Progress Report(const std::string& what) const {
    return options_.progress ? options_.progress(what) : Progress{};
  }

  // Not having the memory for it is no reason not to profile.
  Status MeasureLimits(std::optional<plan::Limits>* limits) {
    if (!options_.limits) {
      report_.no_limits = "it was not measured";
      return {};
    }
    const Progress progress = Report("measuring the memory");
    const std::lock_guard lock(model_.mutex);
    auto measured = model_.backend->MeasureLimits(progress);
    if (measured.ok()) {
      *limits = std::move(*measured);
    } else if (measured.status().code() == Code::kNoRoom) {
      report_.no_limits = measured.status().message();
    } else {
      return measured.status();
    }
    return {};
  }

  Result<std::shared_ptr<const plan::Plan>> PlanFor(int64_t rows, bool keep_all) {
    const std::lock_guard lock(model_.mutex);
    return model_.PlanFor(plan::Pass::kTrunk, static_cast<int>(rows), keep_all);
  }

  Status Prefill() {
    PhaseProfile phase;
    phase.name = "prefill";
    phase.rows = PromptRows(hp_, options_);
    const auto ids = ids_.subspan(static_cast<size_t>(options_.depth), static_cast<size_t>(phase.rows));
    PrefillPhase runs(*session_, ids, hp_.vocab_size);
    if (Status status = CountExperts(ids, &phase.experts); !status.ok()) return status;
    plan::PassShape shape;
    shape.rows = phase.rows;
    shape.position = options_.depth;
    phase.shapes = {shape};
    return Measure(phase, runs, ids);
  }

  Status Decode() {
    PhaseProfile phase;
    phase.name = "decode";
    auto sampler = Sampler::Create(options_.sampler, model_.usable_vocab);
    if (!sampler.ok()) return sampler.status();
    const int64_t tokens = DecodeTokens(hp_, options_);
    DecodePhase runs(*session_, std::move(*sampler), ids_[static_cast<size_t>(options_.depth)], tokens,
                     hp_.vocab_size);
    for (int64_t i = 0; i < tokens; ++i) {
      plan::PassShape shape;
      shape.position = options_.depth + i;
      phase.shapes.push_back(shape);
    }
    if (auto seconds = runs.Run(nullptr); !seconds.ok()) return seconds.status();
    if (Status status = session_->Rewind(start_); !status.ok()) return status;
    return Measure(phase, runs, runs.tokens());
  }

  // Looks at one pass over the ids, which also serves to warm up.
  Status CountExperts(std::span<const int32_t> ids, std::vector<double>* experts) {
    experts->assign(static_cast<size_t>(hp_.layers) + 1,
                    plan::ExpectedExperts(hp_, static_cast<int64_t>(ids.size())));
    session_->impl().observer = [&](const plan::StepView& view) {
      const auto& out = view.step.out;
      if (std::find(out.begin(), out.end(), plan::Slot::kExpertIds) == out.end()) return;
      std::vector<bool> chosen(static_cast<size_t>(hp_.experts));
      const int32_t* const id = view.Ints(plan::Slot::kExpertIds);
      for (int64_t i = 0; i < view.rows * hp_.experts_used; ++i) chosen[static_cast<size_t>(id[i])] = true;
      (*experts)[static_cast<size_t>(view.step.layer)] =
          static_cast<double>(std::count(chosen.begin(), chosen.end(), true));
    };
    Status status = session_->Append(ids, LogitRows::kNone, {});
    session_->impl().observer = nullptr;
    if (!status.ok()) return status;
    return session_->Rewind(start_);
  }

  Status Measure(PhaseProfile& phase, Phase& runs, std::span<const int32_t> tokens) {
    auto plan = PlanFor(phase.rows, false);
    if (!plan.ok()) return plan.status();
    phase.plan = std::move(*plan);
    for (auto& shape : phase.shapes) shape.experts = phase.experts;
    for (const auto* names :
         {&options_.ablate, &options_.repeat}) {  // what is not there shows before the work
      if (auto stages = plan::FindStages(*phase.plan, *names); !stages.ok()) return stages.status();
    }

    const auto warm = runs.Run(nullptr);
    if (!warm.ok()) return warm.status();
    if (Status status = session_->Rewind(start_); !status.ok()) return status;
    phase.repetitions = options_.repetitions;
    if (phase.repetitions == 0) {
      const double seconds = std::accumulate(warm->begin(), warm->end(), 0.0);
      phase.repetitions = static_cast<int>(std::clamp(kEnough / seconds, double{kFewest}, double{kMost}));
    }
    const auto total = 2 * static_cast<uint64_t>(phase.repetitions);
    const Progress progress = Report("timing " + phase.name);
    std::vector<std::vector<plan::PassTimes>> timed(static_cast<size_t>(phase.repetitions));
    std::vector<std::vector<double>> untimed;
    uint64_t done = 0;
    for (size_t r = 0; r < timed.size(); ++r) {
      for (const bool first : {true, false}) {  // in turns, each going first as often: drift then cancels
        const bool look = first == (r % 2 == 0);
        auto seconds = runs.Run(look ? &timed[r] : nullptr);
        if (!seconds.ok()) return seconds.status();
        if (!look) untimed.push_back(std::move(*seconds));
        if (Status status = session_->Rewind(start_); !status.ok()) return status;
        if (progress && !progress(++done, total)) return {Code::kBadInput, "interrupted"};
      }
    }
    phase.profile = plan::MakeProfile({.plan = *phase.plan,
                                       .hparams = hp_,
                                       .weights = model_.data.weights,
                                       .shapes = phase.shapes,
                                       .timed = timed,
                                       .untimed = untimed,
                                       .per_layer = options_.per_layer});
    const auto total_of = [](const std::vector<plan::PassTimes>& run) {
      double sum = 0;
      for (const auto& pass : run) sum += pass.whole + pass.outside;
      return sum;
    };
    std::sort(timed.begin(), timed.end(),
              [&](const auto& a, const auto& b) { return total_of(a) < total_of(b); });
    phase.typical = std::move(timed[timed.size() / 2]);

    for (const bool repeat : {false, true}) {
      if (Status status = Price(phase, repeat, tokens); !status.ok()) return status;
    }
    report_.phases.push_back(std::move(phase));  // what its shapes look at moves along
    return {};
  }

  Status Price(PhaseProfile& phase, bool repeat, std::span<const int32_t> tokens) {
    const auto& names = repeat ? options_.repeat : options_.ablate;
    if (names.empty()) return {};
    const auto stages = plan::FindStages(*phase.plan, names);
    if (!stages.ok()) return stages.status();
    auto plan = PlanFor(phase.rows, true);
    if (!plan.ok()) return plan.status();
    plan::PriceRequest request{
        .backend = model_.backend.get(),
        .state = session_->impl().state.get(),
        .hparams = &hp_,
        .plan = plan->get(),
        .tokens = tokens,
        .rows = phase.rows,
        .rounds = phase.repetitions,
        .progress = Report((repeat ? "repeating stages of " : "leaving out stages of ") + phase.name)};
    const std::lock_guard lock(model_.mutex);
    auto prices =
        plan::PriceStages(repeat ? plan::Pricing::kRepeat : plan::Pricing::kAblate, request, *stages);
    if (!prices.ok()) return prices.status();
    for (plan::Price& price : *prices) {
      for (const size_t i : plan::StepsOf(*phase.plan, price.stage)) {
        for (const auto& shape : phase.shapes)
          price.bytes += plan::BytesOf(phase.plan->steps[i], hp_, model_.data.weights, shape);
      }
      price.bytes *= 1 / static_cast<double>(phase.shapes.size());
    }
    (repeat ? phase.repeated : phase.ablated) = std::move(*prices);
    return {};
  }

  ModelImpl& model_;
  const Model& handle_;
  std::span<const int32_t> ids_;
  const ProfileOptions& options_;
  const model::HParams& hp_;
  Session* session_ = nullptr;
  CheckpointId start_;
  ProfileReport report_;
};

}  // namespace

double ProfileReport::read_bandwidth() const {
  return std::max(before ? before->read.best : 0, after ? after->read.best : 0);
}

int64_t TokensNeeded(const Model& model, const ProfileOptions& options) {
  const auto& hp = model.impl()->data.hparams;
  return options.depth +
         std::max(options.prefill ? PromptRows(hp, options) : 0, options.decode ? int64_t{1} : 0);
}

Status CheckDepth(const Model& model, const ProfileOptions& options) {
  const auto& data = model.impl()->data;
  const auto& hp = data.hparams;
  const int64_t made_for = hp.context_length;
  const int64_t end = options.depth + std::max(options.prefill ? PromptRows(hp, options) : 0,
                                               options.decode ? DecodeTokens(hp, options) : 0);
  if (options.depth >= 0 && (made_for == 0 || end <= made_for)) return {};
  return {Code::kBadInput,
          fmt::format("a depth of {} and {} tokens measured there make {}; {} was made for {}", options.depth,
                      end - options.depth, end, data.name, made_for)};
}

Result<ProfileReport> MeasureProfile(const Model& model, std::span<const int32_t> ids,
                                     const ProfileOptions& options) {
  return Measurement(model, ids, options).Run();
}

}  // namespace glint::engine
