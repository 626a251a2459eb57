#include "engine/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/memory.h"
#include "engine/random.h"
#include "engine/session_impl.h"
#include "engine/synthetic_depth.h"
#include "glint/session.h"
#include "plan/step_bytes.h"

namespace glint::engine {
namespace {

// Passes before a depth that are made untimed after each return to the mark: the first touches what the return wrote and
// wakes the threads, the second runs as any later one.
constexpr int64_t kLeadPasses = 2;

// What a decoded token counts in the progress shown, in tokens of prefill.
constexpr uint64_t kDecodeWeight = 4;

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

int64_t MostRows(const BenchSettings& settings) {
  return *std::max_element(settings.rows.begin(), settings.rows.end());
}

Status Interrupted() { return {Code::kBadInput, "interrupted"}; }

Status Named(const BenchArm& arm, const Status& status) {
  return status.ok() ? status
                     : Status(status.code(), fmt::format("arm '{}': {}", arm.name, status.message()));
}

// One arm at its current depth.
class Lane {
 public:
  static Result<Lane> Create(const BenchArm& arm, const BenchSettings& settings,
                             const BenchControl& control) {
    auto session = Session::Create(arm.model, {.context = settings.Context()});
    if (!session.ok()) return session.status();
    return Lane(arm, control, settings, std::move(*session));
  }

  // Fills the context on from where the last depth left it, and marks the place that samples start from.
  Status GoTo(int64_t depth, const std::function<void(uint64_t)>& show) {
    Status status = Return();
    if (!status.ok()) return status;
    session_.Forget(mark_);
    depth_ = depth;
    const int64_t lead = kLeadPasses * MostRows(*settings_);
    const int64_t from = session_.position(), to = std::max(depth - lead, from);
    const Progress progress = [&](uint64_t done, uint64_t) {
      show(done);
      return !control_->interrupted();
    };
    status = settings_->real_tokens > 0
                 ? AppendSynthetically(session_, Tokens(from, to), settings_->real_tokens, progress)
                 : session_.Append(Tokens(from, to), LogitRows::kNone, {}, progress);
    if (status.ok() && control_->interrupted()) status = Interrupted();
    if (!status.ok()) return status;
    auto mark = session_.Checkpoint();
    if (!mark.ok()) return mark.status();
    mark_ = *mark;
    marked_ = true;
    return {};
  }

  // What a sample of each kind does, on a fork whose passes are verified.
  Status Check() {
    if (!arm_->check) return {};
    for (const BenchWork& work : settings_->Works()) {
      auto fork = session_.Fork();
      if (!fork.ok()) return fork.status();
      SessionImpl& impl = fork->impl();
      impl.options.check = true;
      impl.verifier = std::make_unique<plan::Verifier>(*impl.model->backend, impl.model->data.hparams,
                                                       impl.model->data.weights);
      const auto ignored = Time(*fork, work);
      if (!ignored.ok()) return ignored.status();
    }
    return {};
  }

  // Seconds of a sample from the current depth on.
  Result<double> Time(const BenchWork& work) {
    Status status = Return();
    return status.ok() ? Time(session_, work) : Result<double>(status);
  }

 private:
  Lane(const BenchArm& arm, const BenchControl& control, const BenchSettings& settings, Session session)
      : arm_(&arm), control_(&control), settings_(&settings), session_(std::move(session)) {
    best_.resize(static_cast<size_t>(MostRows(settings)));
  }

  std::span<const int32_t> Tokens(int64_t from, int64_t to) const {
    return std::span(arm_->tokens).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
  }

  Status Return() { return marked_ ? session_.Rewind(mark_) : Status(); }

  // The tokens between the mark and the depth untimed, then those of the sample.
  Result<double> Time(Session& session, const BenchWork& work) {
    const int64_t tokens = settings_->Tokens(work);
    const int64_t piece = work.phase == BenchPhase::kDecode ? work.rows
                          : arm_->chunk > 0                 ? arm_->chunk
                                                            : tokens;
    // What is less than a piece goes first, so that the last untimed passes are as those timed.
    const int64_t odd = (depth_ - session.position()) % piece;
    Status status = Append(session, work, session.position() + odd, piece);
    if (status.ok()) status = Append(session, work, depth_, piece);
    const Clock::time_point start = Clock::now();
    if (status.ok()) status = Append(session, work, depth_ + tokens, piece);
    const double seconds = Seconds(start, Clock::now());
    return status.ok() ? Result<double>(seconds) : Result<double>(status);
  }

  // Up to position `to` in calls of `piece` tokens: each with the greedy choice after its last token, as who generates would want it,
  // or after every one, as who verifies drafts would.
  Status Append(Session& session, const BenchWork& work, int64_t to, int64_t piece) {
    const bool drafts = work.phase == BenchPhase::kDecode && work.rows > 1;
    const Progress progress = [this](uint64_t, uint64_t) { return !control_->interrupted(); };
    for (int64_t at = session.position(); at < to; at += piece) {
      const Clock::time_point call = Clock::now();
      const auto tokens = Tokens(at, std::min(at + piece, to));
      Status status = drafts
                          ? session.AppendBestOfEach(tokens, std::span(best_).first(tokens.size()), progress)
                          : session.AppendBest(tokens, best_.data(), progress);
      if (status.ok() && control_->interrupted()) status = Interrupted();
      if (!status.ok()) return status;
      if (arm_->slow > 0) {
        const double until = Seconds(call, Clock::now()) * (1 + arm_->slow);
        while (Seconds(call, Clock::now()) < until) continue;
      }
    }
    return {};
  }

  const BenchArm* arm_;
  const BenchControl* control_;
  const BenchSettings* settings_;
  Session session_;
  std::vector<int32_t> best_;  // [rows of the largest pass]
  CheckpointId mark_;
  bool marked_ = false;
  int64_t depth_ = 0;
};

// Progress in tokens of prefill; decoded tokens count as kDecodeWeight. The number of blocks at depths to come is taken for that of
// the last known one.
class Meter {
 public:
  Meter(const BenchSettings& s, size_t arms, const Progress& progress)
      : settings_(s), arms_(arms), progress_(progress), depths_left_(s.depths.size()) {
    fill_left_ = arms * static_cast<uint64_t>(s.depths.back());
    blocks_ = s.blocks;
  }
  void Filled(uint64_t more) { done_ += more, fill_left_ -= std::min(more, fill_left_), Show(0); }
  void Sampled(const BenchWork& work) { done_ += Of(work), Show(0); }
  void BeginDepth() { --depths_left_, here_ = done_, SetBlocks(blocks_); }
  void SetBlocks(int blocks) { blocks_ = blocks, end_of_depth_ = here_ + Depth(); }
  void Show(uint64_t more) const {
    const uint64_t total = std::max(end_of_depth_, done_ + more) + depths_left_ * Depth() + fill_left_;
    if (progress_) progress_(done_ + more, total);
  }

 private:
  // A pass of a few tokens takes about as long as of one.
  uint64_t Of(const BenchWork& work) const {
    return work.phase == BenchPhase::kPrefill ? static_cast<uint64_t>(settings_.prefill)
                                              : static_cast<uint64_t>(settings_.decode) * kDecodeWeight;
  }
  uint64_t Depth() const {
    uint64_t sample = 0;
    for (const BenchWork& work : settings_.Works()) sample += Of(work);
    return arms_ * static_cast<uint64_t>(2 * blocks_ + settings_.warmup) * sample;
  }

  const BenchSettings& settings_;
  size_t arms_;
  const Progress& progress_;
  size_t depths_left_;
  int blocks_;
  uint64_t done_ = 0, fill_left_ = 0, here_ = 0, end_of_depth_ = 0;
};

Status CheckArms(std::span<const BenchArm> arms, const BenchSettings& settings) {
  if (arms.empty() || settings.depths.empty() || settings.blocks < 1 || settings.rows.empty()) {
    return {Code::kBadInput, "nothing to measure: no arm, no depth, no block or no number of rows"};
  }
  if (*std::min_element(settings.rows.begin(), settings.rows.end()) < 1)
    return {Code::kBadInput, "a pass has at least one row"};
  for (const BenchArm& arm : arms) {
    if (static_cast<int64_t>(arm.tokens.size()) < settings.Context()) {
      return Named(arm, {Code::kBadInput, fmt::format("{} tokens are given, {} are needed", arm.tokens.size(),
                                                      settings.Context())});
    }
  }
  for (const BenchArm& arm : arms) {  // all of its device
    uint64_t needed = 0;
    int count = 0;
    for (const BenchArm& other : arms) {
      if (other.model.device() != arm.model.device()) continue;
      ++count;
      // The mark holds what does not grow with the context.
      needed += Session::MemoryNeeded(other.model, {.context = settings.Context()}) +
                Session::MemoryNeeded(other.model, {.context = 1});
    }
    const auto room = arm.model.impl()->backend->Room();
    if (room.bytes >= needed) continue;
    return {Code::kNoRoom,
            fmt::format("{} arms at a depth of {} tokens need {} of state, but {} leaves {}; take fewer arms "
                        "or smaller depths",
                        count, settings.depths.back(), FormatBytes(needed), room.limited_by,
                        FormatBytes(room.bytes))};
  }
  return {};
}

// One depth: fills the contexts up to it and takes its samples.
class DepthRun {
 public:
  DepthRun(std::span<const BenchArm> arms, std::vector<Lane>& lanes, const BenchSettings& settings, int depth,
           Meter& meter, std::vector<BenchSample>& samples)
      : arms_(arms), lanes_(lanes), settings_(settings), depth_(depth), meter_(meter), samples_(samples) {}

  // kBadInput "interrupted" somewhere in between; the samples taken until then are there.
  Status Measure() {
    if (Status status = Fill(); !status.ok()) return status;
    meter_.BeginDepth();
    for (int arm = 0; arm < Arms(); ++arm) {
      if (Status status = LaneOf(arm).Check(); !status.ok()) return Named(ArmOf(arm), status);
    }
    if (Status status = WarmUp(); !status.ok()) return status;
    int blocks = settings_.blocks;
    for (int block = 0; block < blocks; ++block) {
      const Clock::time_point start = Clock::now();
      if (Status status = Block(block); !status.ok()) return status;
      if (block == 0) {
        blocks = BlocksFor(Seconds(start, Clock::now()));
        meter_.SetBlocks(blocks);
      }
    }
    return {};
  }

 private:
  int Arms() const { return static_cast<int>(arms_.size()); }

  Status Fill() {
    const auto depth = static_cast<size_t>(depth_);
    const int64_t from = depth == 0 ? 0 : settings_.depths[depth - 1], to = settings_.depths[depth];
    for (int arm = 0; arm < Arms(); ++arm) {
      Status status = LaneOf(arm).GoTo(to, [&](uint64_t done) { meter_.Show(done); });
      if (!status.ok()) return Named(ArmOf(arm), status);
      meter_.Filled(static_cast<uint64_t>(to - from));
    }
    return {};
  }

  Status WarmUp() {
    for (const BenchWork& work : settings_.Works()) {
      for (int number = 0; number < settings_.warmup; ++number) {
        for (int arm = 0; arm < Arms(); ++arm) {
          if (Status status = Take(work, arm, -1, number); !status.ok()) return status;
        }
      }
    }
    return {};
  }

  Status Block(int block) {
    for (const BenchWork& work : settings_.Works()) {
      const std::vector<int> order = BlockOrder(Arms(), block);
      for (int position = 0; position < static_cast<int>(order.size()); ++position) {
        Status status = Take(work, order[static_cast<size_t>(position)], block, position);
        if (!status.ok()) return status;
      }
    }
    return {};
  }

  int BlocksFor(double seconds_a_block) const {
    const double fit = settings_.seconds / std::max(seconds_a_block, 1e-9);
    return std::max(settings_.blocks, static_cast<int>(std::min<double>(fit, settings_.most_blocks)));
  }

  Status Take(const BenchWork& work, int arm, int block, int position) {
    const auto seconds = LaneOf(arm).Time(work);
    if (!seconds.ok()) return Named(ArmOf(arm), seconds.status());
    samples_.push_back({arm, depth_, work.phase, block, position, *seconds, work.rows});
    meter_.Sampled(work);
    return {};
  }

  const BenchArm& ArmOf(int arm) const { return arms_[static_cast<size_t>(arm)]; }
  Lane& LaneOf(int arm) { return lanes_[static_cast<size_t>(arm)]; }

  std::span<const BenchArm> arms_;
  std::vector<Lane>& lanes_;
  const BenchSettings& settings_;
  int depth_;
  Meter& meter_;
  std::vector<BenchSample>& samples_;
};

}  // namespace

std::string_view Name(BenchPhase phase) { return phase == BenchPhase::kPrefill ? "prefill" : "decode"; }

std::vector<BenchWork> BenchSettings::Works() const {
  std::vector<BenchWork> works;
  if (prefill > 0) works.push_back({.phase = BenchPhase::kPrefill});
  for (const int count : rows) {
    if (decode > 0) works.push_back({.phase = BenchPhase::kDecode, .rows = count});
  }
  return works;
}

int64_t BenchSettings::Sample() const {
  int64_t most = 0;
  for (const BenchWork& work : Works()) most = std::max(most, Tokens(work));
  return most;
}

int64_t BenchSettings::Context() const {
  const int64_t deepest = depths.empty() ? 0 : *std::max_element(depths.begin(), depths.end());
  return std::max<int64_t>(deepest + Sample(), 1);
}

std::vector<int> BlockOrder(int arms, int block) {
  // Who is first in the blocks of this group: a shuffle (Fisher and Yates) of its own.
  std::vector<int> firsts(static_cast<size_t>(arms));
  std::iota(firsts.begin(), firsts.end(), 0);
  const auto group = static_cast<uint64_t>(block / arms);
  for (int left = arms; left > 1; --left) {
    const uint64_t draw = Draw64(group, static_cast<uint64_t>(left)) % static_cast<uint64_t>(left);
    std::swap(firsts[static_cast<size_t>(draw)], firsts[static_cast<size_t>(left) - 1]);
  }
  const int first = firsts[static_cast<size_t>(block % arms)];
  std::vector<int> order;
  order.reserve(2 * static_cast<size_t>(arms));
  for (int i = 0; i < arms; ++i) order.push_back((first + i) % arms);
  for (int i = arms; i-- > 0;) order.push_back((first + i) % arms);
  return order;
}

Result<double> DecodeBytes(const Model& model, int64_t depth, int rows) {
  ModelImpl& impl = *model.impl();
  const std::lock_guard lock(impl.mutex);
  const auto plan = impl.PlanFor(plan::Pass::kTrunk, rows, false);
  if (!plan.ok()) return plan.status();
  double bytes = 0;
  for (const plan::Step& step : (*plan)->steps) {
    const plan::StepBytes of = plan::BytesOf(step, impl.data.hparams, impl.data.weights,
                                             {.rows = rows, .position = depth, .wanted = rows});
    bytes += of.weights + of.state + of.cache;
  }
  return bytes;
}

std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(Draw64(seed, i) % static_cast<uint64_t>(vocab));
  return ids;
}

Result<BenchRun> RunBench(std::span<const BenchArm> arms, const BenchSettings& settings,
                          const BenchControl& control) {
  if (Status status = CheckArms(arms, settings); !status.ok()) return status;
  std::vector<Lane> lanes;
  for (const BenchArm& arm : arms) {
    auto lane = Lane::Create(arm, settings, control);
    if (!lane.ok()) return Named(arm, lane.status());
    lanes.push_back(std::move(*lane));
  }
  BenchRun run;
  Meter meter(settings, arms.size(), control.progress);
  for (size_t depth = 0; depth < settings.depths.size(); ++depth) {
    Status status = DepthRun(arms, lanes, settings, static_cast<int>(depth), meter, run.samples).Measure();
    if (!status.ok() && control.interrupted()) return run;
    if (!status.ok()) return status;
  }
  run.complete = true;
  return run;
}

}  // namespace glint::engine
