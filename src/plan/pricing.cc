#include "plan/pricing.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>

#include "plan/edits.h"

namespace glint::plan {
namespace {

// Stages whose runs stand between two whole ones: more save baselines, fewer keep what is compared closer together.
constexpr size_t kTogether = 4;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Runner {
 public:
  Runner(const PriceRequest& request, const StateMark& mark)
      : r_(request),
        mark_(mark),
        passes_(request.tokens.size() / static_cast<size_t>(request.rows)),
        vocab_(static_cast<size_t>(request.hparams->vocab_size)),
        logits_(vocab_),
        reference_(passes_ * vocab_) {}

  // Seconds of the passes of a run of this plan, from the mark and back to it. checked: the logits must be the reference's.
  Result<std::vector<double>> Run(const Plan& plan, bool checked) {
    std::vector<double> seconds(passes_);
    for (size_t p = 0; p < passes_; ++p) {
      if (Status status = Pass(plan, p, &seconds[p]); !status.ok()) return Abandon(std::move(status));
      if (checked) {
        if (Status status = Compare(p); !status.ok()) return Abandon(std::move(status));
      }
    }
    if (Status status = r_.state->Return(mark_); !status.ok()) return status;
    return seconds;
  }

  // Takes the logits of the plan as it is for what they have to be.
  Status TakeReference() {
    for (size_t p = 0; p < passes_; ++p) {
      double pass = 0;
      if (Status status = Pass(*r_.plan, p, &pass); !status.ok()) return Abandon(std::move(status));
      std::copy(logits_.begin(), logits_.end(), reference_.begin() + static_cast<std::ptrdiff_t>(p * vocab_));
    }
    return r_.state->Return(mark_);
  }

  // Fills every slot with what one whole pass leaves: all of it in range.
  Status Refresh() {
    double seconds = 0;
    if (Status status = Pass(*r_.plan, 0, &seconds); !status.ok()) return Abandon(std::move(status));
    return r_.state->Return(mark_);
  }

  size_t passes() const { return passes_; }

 private:
  Status Pass(const Plan& plan, size_t p, double* seconds) {
    const auto rows = static_cast<size_t>(r_.rows);
    const Segment segment{
        .state = r_.state, .position = r_.state->position(), .first_row = 0, .rows = static_cast<int>(rows)};
    const auto last = static_cast<int32_t>(rows - 1);
    Batch batch;
    batch.tokens = r_.tokens.subspan(p * rows, rows);
    batch.segments = {&segment, 1};
    batch.wanted = {&last, 1};
    batch.logits = logits_.data();
    const double start = Seconds();
    Status status = r_.backend->Run(plan, batch);
    *seconds = Seconds() - start;
    return status;
  }

  Status Compare(size_t p) const {
    const float* const want = reference_.data() + p * vocab_;
    if (std::memcmp(want, logits_.data(), vocab_ * sizeof(float)) == 0) return {};
    size_t at = 0;
    const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
    while (bits(want[at]) == bits(logits_[at])) ++at;
    return {Code::kInternal, fmt::format("the logits changed: pass {}, entry {} is {:.9g} and was {:.9g}", p,
                                         at, logits_[at], want[at])};
  }

  Status Abandon(Status status) {
    if (Status back = r_.state->Return(mark_); !back.ok()) return back;
    return status;
  }

  const PriceRequest& r_;
  const StateMark& mark_;
  const size_t passes_, vocab_;
  std::vector<float> logits_, reference_;
};

struct Arm {
  Price* price;
  Plan plan;
  std::vector<std::vector<double>> differences;  // [rounds][passes]
};

}  // namespace

Result<std::vector<Price>> PriceStages(Pricing how, const PriceRequest& request,
                                       std::span<const Stage> stages) {
  const bool repeat = how == Pricing::kRepeat;
  std::vector<Price> prices(stages.size());
  std::vector<Arm> arms;
  for (size_t i = 0; i < stages.size(); ++i) {
    Price& price = prices[i];
    price.stage = stages[i];
    price.served_by = ServedBy(*request.plan, stages[i]);
    price.calls = static_cast<int>(StepsOf(*request.plan, stages[i]).size());
    if (!repeat) {
      arms.push_back({&price, Without(*request.plan, stages[i]), {}});
    } else if (auto plan = Repeating(*request.plan, stages[i]); plan.ok()) {
      arms.push_back({&price, std::move(*plan), {}});
    } else {
      price.refused = plan.status().message();
    }
  }
  if (arms.empty() || request.tokens.empty()) return prices;

  auto mark = request.state->Mark();
  if (!mark.ok()) return mark.status();
  Runner runner(request, **mark);
  if (Status status = runner.TakeReference(); !status.ok()) return status;

  const size_t groups = (arms.size() + kTogether - 1) / kTogether;
  const uint64_t total = static_cast<uint64_t>(request.rounds) * 2 * (arms.size() + groups);
  uint64_t done = 0;
  const auto run = [&](const Plan& plan, const Price* price) -> Result<std::vector<double>> {
    if (request.progress && !request.progress(done, total)) return Status(Code::kBadInput, "interrupted");
    ++done;
    const bool edited = price != nullptr;
    if (edited && !repeat) {
      if (Status status = runner.Refresh(); !status.ok()) return status;
    }
    auto seconds = runner.Run(plan, repeat || !edited);
    if (!seconds.ok() && edited) {
      return Status(seconds.status().code(),
                    fmt::format("{} of {} ({}): {}", repeat ? "repetition" : "ablation", Name(price->stage),
                                price->served_by, seconds.status().message()));
    }
    return seconds;
  };

  for (size_t first = 0; first < arms.size(); first += kTogether) {
    const std::span group(arms.data() + first, std::min(kTogether, arms.size() - first));
    std::vector<std::vector<double>> baselines;  // [rounds][passes]
    for (int round = 0; round < request.rounds; ++round) {
      std::vector<std::vector<double>> means(group.size() + 1, std::vector<double>(runner.passes()));
      for (const bool back : {false, true}) {
        for (size_t i = 0; i < means.size(); ++i) {
          const size_t turn = back ? group.size() - i : i;  // 0: the whole plan
          auto seconds =
              turn == 0 ? run(*request.plan, nullptr) : run(group[turn - 1].plan, group[turn - 1].price);
          if (!seconds.ok()) return seconds.status();
          for (size_t p = 0; p < means[turn].size(); ++p) means[turn][p] += (*seconds)[p] / 2;
        }
      }
      for (size_t i = 0; i < group.size(); ++i) {
        auto& difference = group[i].differences.emplace_back(runner.passes());
        for (size_t p = 0; p < difference.size(); ++p)
          difference[p] = (means[i + 1][p] - means[0][p]) * (repeat ? 1 : -1);
      }
      baselines.push_back(std::move(means[0]));
    }
    for (Arm& arm : group) {
      arm.price->seconds = TypicalOf(arm.differences);
      arm.price->baseline = TypicalOf(baselines);
    }
  }
  if (request.progress) request.progress(total, total);
  return prices;
}

}  // namespace glint::plan
