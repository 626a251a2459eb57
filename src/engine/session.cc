#include "glint/session.h"
#include "base/mutation.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/memory.h"
#include "base/no_room.h"
#include "engine/session_impl.h"

namespace glint {
namespace engine {
namespace {

// Selected positions are 32-bit.
constexpr int64_t kMostContext = std::numeric_limits<int32_t>::max();

Status CheckContext(const ModelImpl& model, int64_t context) {
  const int64_t made_for = model.data.hparams.context_length;
  const int64_t most = made_for > 0 ? std::min(made_for, kMostContext) : kMostContext;
  if (context >= 1 && context <= most) return {};
  return {Code::kBadInput,
          fmt::format("context is {} tokens; {} takes 1 to {}", context, model.data.name, most)};
}

Status CheckIds(std::span<const int32_t> ids, int64_t vocab) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      return {Code::kBadInput,
              fmt::format("token {} of {} is id {}; ids go from 0 to {}", i, ids.size(), ids[i], vocab - 1)};
    }
  }
  return {};
}

Status CheckRoom(int64_t position, size_t more, int64_t capacity) {
  if (more <= static_cast<size_t>(capacity - position)) return {};
  return {Code::kNoRoom, fmt::format("{} tokens do not fit: the context of {} has room for {} more", more,
                                     capacity, capacity - position)};
}

Status CheckFloats(const char* what, size_t given, size_t rows, int64_t width) {
  const size_t wanted = rows * static_cast<size_t>(width);
  if (given == wanted) return {};
  return {Code::kBadInput,
          fmt::format("`{}` holds {} floats; {} rows of {} are {}", what, given, rows, width, wanted)};
}

size_t RowsOf(LogitRows which, size_t tokens) {
  if (which == LogitRows::kAll) return tokens;
  return which == LogitRows::kLast && tokens > 0 ? 1 : 0;
}

}  // namespace

Status SessionImpl::Usable() const {
  if (!failed.ok()) return failed;
  if (!lost) return {};
  return {Code::kNoRoom,
          "memory ran out inside an earlier pass, and the state with it; rewind to a checkpoint, or reset"};
}

Status SessionImpl::CheckTokens(std::span<const int32_t> ids) const {
  if (Status status = CheckIds(ids, model->data.hparams.vocab_size); !status.ok()) return status;
  return CheckRoom(state->position(), ids.size(), state->capacity());
}

Status SessionImpl::Keep(Status status) {
  if (status.code() == Code::kDevice && failed.ok()) {
    failed = {Code::kDevice, "the session ended when the device failed: " + status.message()};
  }
  return status;
}

Status SessionImpl::Pass(plan::Pass pass, std::span<const int32_t> ids, const float* hidden_in,
                         LogitRows which, float* logits, float* final_out, int32_t* best) {
  if (Status status = Usable(); !status.ok()) return status;
  const int rows = static_cast<int>(ids.size());
  std::vector<int32_t> wanted(RowsOf(which, ids.size()));
  for (size_t i = 0; i < wanted.size(); ++i)
    wanted[i] = static_cast<int32_t>(
        ids.size() - wanted.size() + i -
        (Mutated(Mutation::kLogitsOfTheRowBefore) && wanted.size() < ids.size() ? 1 : 0));
  const plan::Segment segment{
      .state = state.get(),
      .position = pass == plan::Pass::kTrunk ? state->position() : state->mtp_position(),
      .first_row = 0,
      .rows = rows};
  const plan::Batch batch{.tokens = ids,
                          .segments = {&segment, 1},
                          .hidden_in = hidden_in,
                          .wanted = wanted,
                          .logits = logits,
                          .final_out = final_out,
                          .best = best,
                          .usable_vocab = model->usable_vocab};
  const std::lock_guard lock(model->mutex);
  const auto plan = model->PlanFor(pass, rows, static_cast<bool>(observer));
  if (!plan.ok()) return plan.status();
  // What a pass writes inside a block is forgotten with its rows; at a block's end it writes over what came before.
  const int64_t block = model->data.hparams.block;
  lost = segment.position / block != (segment.position + rows) / block;  // if an exception leaves here
  Status status = Keep(Run(**plan, batch));
  lost = false;
  return status;
}

Status SessionImpl::Run(const plan::Plan& plan, const plan::Batch& batch) {
  if (timer) {
    std::vector<plan::StepTime> times(plan.steps.size());
    double whole = 0;
    Status status = model->backend->RunTimed(plan, batch, times, &whole);
    if (status.ok()) timer(std::move(times), whole);
    return status;
  }
  if (verifier == nullptr) return model->backend->Run(plan, batch, observer);
  if (observer) return {Code::kInternal, "a session that checks every pass can't be observed"};
  const auto found = verifier->Run(plan, batch);
  if (!found.ok()) return found.status();
  if (!*found) return {};
  return {Code::kInternal, "the check found a difference: " + plan::Describe(**found)};
}

std::unique_ptr<SessionImpl> SessionImpl::Make(std::shared_ptr<ModelImpl> model,
                                               const SessionOptions& options,
                                               std::unique_ptr<plan::SequenceState> state) {
  auto impl = std::make_unique<SessionImpl>();
  impl->model = std::move(model);
  impl->options = options;
  impl->state = std::move(state);
  if (options.check) {
    const model::ModelData& data = impl->model->data;
    impl->verifier = std::make_unique<plan::Verifier>(*impl->model->backend, data.hparams, data.weights);
  }
  return impl;
}

uint64_t SessionImpl::CheckBytes(const ModelImpl& model, const SessionOptions& options) {
  if (!options.check) return 0;
  const int rows = static_cast<int>(std::clamp<int64_t>(options.context, 1, model.backend->prompt_rows()));
  const model::ModelData& data = model.data;
  const plan::PlanRequest reference =
      plan::CanonicalRequest(*model.backend, data.hparams, data.weights, plan::Pass::kTrunk, rows);
  plan::PlanRequest own = reference;
  own.choice = model.choice, own.keep_all = false;
  const auto buffers = [](const plan::PlanRequest& request) -> uint64_t {
    const auto plan = plan::MakePlan(request);
    return plan.ok() ? plan->buffers.total_bytes : 0;
  };
  // The plan's buffers are taken once more: a pass that is verified has its own.
  return model.backend->StateBytes(options.context, options.mtp) + buffers(reference) + buffers(own);
}

int64_t SessionImpl::BlockStart() const {
  return state->position() - state->position() % model->data.hparams.block;
}

Status SessionImpl::ReturnTo(int64_t position) {
  if (position < BlockStart() || lost) {
    const auto kept = std::find_if(checkpoints.rbegin(), checkpoints.rend(),
                                   [&](const Kept& k) { return k.mark->position() == position; });
    if (kept == checkpoints.rend())
      return {Code::kInternal, fmt::format("no checkpoint at position {}", position)};
    if (Status status = state->Return(*kept->mark); !status.ok()) return status;
    lost = false;
  } else if (position < state->position()) {
    // MTP row p was made from token p + 1.
    const int64_t mtp =
        std::min(state->mtp_position(),
                 std::max<int64_t>(Mutated(Mutation::kMtpRowSurvivesARewind) ? position : position - 1, 0));
    if (state->mtp_position() > mtp) {
      if (Status status = state->TruncateMtp(mtp); !status.ok()) return status;
    }
    if (Status status = state->Truncate(position); !status.ok()) return status;
  }
  tokens.resize(static_cast<size_t>(position));
  while (!checkpoints.empty() && checkpoints.back().mark->position() > position) checkpoints.pop_back();
  return {};
}

namespace {

// The rows a pass over `left` more takes, so that its end falls on the grid.
int64_t ChunkRows(const SessionImpl& s, int64_t position, int64_t left) {
  const int64_t block = s.model->data.hparams.block;
  const int64_t most = std::max(s.model->backend->prompt_rows() / block, int64_t{1}) * block;
  return std::min(left, most - position % block);
}

// What memory it lacks is an error here, where a mark may bring the state back.
Status TrunkPass(SessionImpl& s, std::span<const int32_t> ids, LogitRows which, float* logits,
                 float* final_out, int32_t* best) try {
  return s.Pass(plan::Pass::kTrunk, ids, nullptr, which, logits, final_out, best);
} catch (...) {
  return NoRoomOrRethrow();
}

// best: null, or where the choices after the tokens that `which` names go, in place of their logits.
Status Append(SessionImpl& s, std::span<const int32_t> ids, LogitRows which, std::span<float> logits,
              int32_t* best, std::span<float> hidden, bool want_hidden,
              const std::function<bool(uint64_t, uint64_t)>& progress) {
  const auto& hp = s.model->data.hparams;
  if (Status status = s.Usable(); !status.ok()) return status;
  if (Status status = CheckIds(ids, hp.vocab_size); !status.ok()) return status;
  if (best == nullptr) {
    Status status = CheckFloats("logits", logits.size(), RowsOf(which, ids.size()), hp.vocab_size);
    if (!status.ok()) return status;
  }
  if (want_hidden) {
    if (Status status = CheckFloats("hidden", hidden.size(), ids.size(), hp.hidden); !status.ok())
      return status;
  }
  const int64_t start = s.state->position(), total = static_cast<int64_t>(ids.size());
  if (Status status = CheckRoom(start, ids.size(), s.state->capacity()); !status.ok()) return status;

  // A pass that fails leaves the state as it was before that pass; this mark brings back what earlier passes
  // of this call changed. A call of one pass needs none, and a prompt's many passes cost far more than
  // copying the state once.
  std::unique_ptr<plan::StateMark> before;
  if (ChunkRows(s, start, total) < total) {
    auto mark = s.state->Mark();
    if (!mark.ok()) return mark.status();
    before = std::move(*mark);
  }
  s.tokens.reserve(static_cast<size_t>(start + total));
  for (int64_t done = 0; done < total;) {
    const int64_t rows = ChunkRows(s, start + done, total - done);
    const auto part = ids.subspan(static_cast<size_t>(done), static_cast<size_t>(rows));
    const bool wants_logits = which == LogitRows::kAll || (which == LogitRows::kLast && done + rows == total);
    float* const logits_out =
        which == LogitRows::kAll && best == nullptr ? logits.data() + done * hp.vocab_size : logits.data();
    int32_t* const best_out = best != nullptr && which == LogitRows::kAll ? best + done : best;
    bool stopped = false;
    if (s.verifier != nullptr && progress) {  // its passes are slow: the caller may stop inside one
      s.verifier->progress = [&](double) {
        stopped = !progress(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
        return !stopped;
      };
    }
    Status status = TrunkPass(s, part, wants_logits ? which : LogitRows::kNone, logits_out,
                              want_hidden ? hidden.data() + done * hp.hidden : nullptr,
                              wants_logits ? best_out : nullptr);
    if (s.verifier != nullptr) s.verifier->progress = {};
    if (stopped) return status;
    if (!status.ok()) {
      if (before != nullptr && (done > 0 || s.lost) && status.code() != Code::kDevice) {
        if (Status back = s.state->Return(*before); !back.ok()) return back;
        s.lost = false;
        s.tokens.resize(static_cast<size_t>(start));
      }
      return status;
    }
    s.tokens.insert(s.tokens.end(), part.begin(), part.end());
    done += rows;
    if (progress && !progress(static_cast<uint64_t>(done), static_cast<uint64_t>(total)) && done < total) {
      return {Code::kBadInput, "interrupted"};
    }
  }
  return {};
}

}  // namespace
}  // namespace engine

using engine::SessionImpl;

uint64_t Session::MemoryNeeded(const Model& model, const SessionOptions& options) {
  return model.impl()->backend->StateBytes(options.context, options.mtp) +
         SessionImpl::CheckBytes(*model.impl(), options);
}

Result<Session> Session::Create(const Model& model, const SessionOptions& options) try {
  auto& shared = *model.impl();
  if (Status status = engine::CheckContext(shared, options.context); !status.ok()) return status;
  if (options.mtp && !model.has_mtp()) {
    return Status(Code::kBadInput, "the session wants the MTP block, but the model was opened without it");
  }
  const std::lock_guard lock(shared.mutex);
  const auto plan = shared.PlanFor(
      plan::Pass::kTrunk, static_cast<int>(std::min(shared.backend->prompt_rows(), options.context)), false);
  if (!plan.ok()) return plan.status();
  const uint64_t state = MemoryNeeded(model, options), buffers = (*plan)->buffers.total_bytes;
  const auto room = shared.backend->Room();
  if (room.bytes < buffers || room.bytes - buffers < state) {
    return Status(
        Code::kNoRoom,
        fmt::format("a context of {} tokens needs {} ({}caches and state {}, buffers {}), but {} leaves {}; "
                    "ask for a smaller context",
                    options.context, FormatBytes(state + buffers), options.check ? "to be checked, " : "",
                    FormatBytes(state), FormatBytes(buffers), room.limited_by, FormatBytes(room.bytes)));
  }
  auto made = shared.backend->NewState(options.context, options.mtp);
  if (!made.ok()) return made.status();
  return Session(SessionImpl::Make(model.impl(), options, std::move(*made)));
} catch (...) {
  return NoRoomOrRethrow();
}

Session::Session(std::unique_ptr<SessionImpl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Status Session::Append(std::span<const int32_t> tokens, LogitRows which, std::span<float> logits,
                       const std::function<bool(uint64_t, uint64_t)>& progress) try {
  return impl_->Keep(engine::Append(*impl_, tokens, which, logits, nullptr, {}, false, progress));
} catch (...) {
  return NoRoomOrRethrow();
}

Status Session::AppendBest(std::span<const int32_t> tokens, int32_t* best,
                           const std::function<bool(uint64_t, uint64_t)>& progress) try {
  return impl_->Keep(engine::Append(*impl_, tokens, LogitRows::kLast, {}, best, {}, false, progress));
} catch (...) {
  return NoRoomOrRethrow();
}

Status Session::AppendBestOfEach(std::span<const int32_t> tokens, std::span<int32_t> best,
                                 const std::function<bool(uint64_t, uint64_t)>& progress) try {
  if (best.size() != tokens.size()) {
    return {Code::kBadInput,
            fmt::format("`best` holds {} ids; {} tokens are as many", best.size(), tokens.size())};
  }
  return impl_->Keep(engine::Append(*impl_, tokens, LogitRows::kAll, {}, best.data(), {}, false, progress));
} catch (...) {
  return NoRoomOrRethrow();
}

Status Session::AppendWithHidden(std::span<const int32_t> tokens, LogitRows which, std::span<float> logits,
                                 std::span<float> hidden) try {
  return impl_->Keep(engine::Append(*impl_, tokens, which, logits, nullptr, hidden, true, {}));
} catch (...) {
  return NoRoomOrRethrow();
}

Status Session::AppendMtp(std::span<const int32_t> next, std::span<const float> hidden,
                          std::span<float> logits, std::span<float> hidden_out) try {
  SessionImpl& s = *impl_;
  const auto& hp = s.model->data.hparams;
  if (!s.options.mtp) return {Code::kBadInput, "this session was made without the MTP block"};
  if (Status status = engine::CheckIds(next, hp.vocab_size); !status.ok()) return status;
  if (Status status = engine::CheckFloats("hidden", hidden.size(), next.size(), hp.hidden); !status.ok())
    return status;
  if (!logits.empty()) {
    Status status = engine::CheckFloats("logits", logits.size(), next.size(), hp.vocab_size);
    if (!status.ok()) return status;
  }
  if (!hidden_out.empty()) {
    Status status = engine::CheckFloats("hidden_out", hidden_out.size(), next.size(), hp.hidden);
    if (!status.ok()) return status;
  }
  const int64_t start = s.state->mtp_position(), total = static_cast<int64_t>(next.size());
  if (Status status = engine::CheckRoom(start, next.size(), s.state->capacity()); !status.ok()) return status;
  for (int64_t done = 0; done < total;) {
    const int64_t rows = engine::ChunkRows(s, start + done, total - done);
    Status status =
        s.Pass(plan::Pass::kMtp, next.subspan(static_cast<size_t>(done), static_cast<size_t>(rows)),
               hidden.data() + done * hp.hidden, logits.empty() ? LogitRows::kNone : LogitRows::kAll,
               logits.empty() ? nullptr : logits.data() + done * hp.vocab_size,
               hidden_out.empty() ? nullptr : hidden_out.data() + done * hp.hidden);
    if (!status.ok()) {
      if (done > 0 && status.code() != Code::kDevice) {
        if (Status back = s.state->TruncateMtp(start); !back.ok()) return back;
      }
      return status;
    }
    done += rows;
  }
  return {};
} catch (...) {
  return NoRoomOrRethrow();
}

Status Session::TruncateMtp(int64_t position) try {
  if (position < 0 || position > impl_->state->mtp_position()) {
    return {Code::kBadInput, fmt::format("the MTP block can't go to row {}: it has {} rows", position,
                                         impl_->state->mtp_position())};
  }
  if (Status status = impl_->Usable(); !status.ok()) return status;
  return impl_->Keep(impl_->state->TruncateMtp(position));
} catch (...) {
  return NoRoomOrRethrow();
}

int64_t Session::position() const { return impl_->state->position(); }
int64_t Session::mtp_position() const { return impl_->state->mtp_position(); }
int64_t Session::capacity() const { return impl_->state->capacity(); }
std::span<const int32_t> Session::tokens() const { return impl_->tokens; }
uint64_t Session::memory_bytes() const {
  uint64_t bytes = impl_->state->bytes() + SessionImpl::CheckBytes(*impl_->model, impl_->options);
  for (const auto& kept : impl_->checkpoints) bytes += kept.mark->bytes();
  return bytes;
}

Result<CheckpointId> Session::Checkpoint() try {
  if (Status status = impl_->Usable(); !status.ok()) return status;
  auto mark = impl_->state->Mark();
  if (!mark.ok()) return impl_->Keep(mark.status());
  impl_->checkpoints.push_back({impl_->next_checkpoint, std::move(*mark)});
  return CheckpointId{impl_->next_checkpoint++};
} catch (...) {
  return NoRoomOrRethrow();
}

Status Session::Rewind(CheckpointId id) try {
  if (!impl_->failed.ok()) return impl_->failed;
  auto& kept = impl_->checkpoints;
  const auto found = std::find_if(kept.begin(), kept.end(), [&](const auto& k) { return k.id == id.value; });
  if (found == kept.end()) {
    return {Code::kBadInput,
            fmt::format("there is no checkpoint {}: it is another session's, or the session was rewound "
                        "to before it",
                        id.value)};
  }
  if (Status status = impl_->state->Return(*found->mark); !status.ok()) return impl_->Keep(status);
  impl_->lost = false;
  impl_->tokens.resize(static_cast<size_t>(found->mark->position()));
  kept.erase(found + 1, kept.end());
  return {};
} catch (...) {
  return NoRoomOrRethrow();
}

void Session::Forget(CheckpointId id) {
  std::erase_if(impl_->checkpoints, [&](const auto& kept) { return kept.id == id.value; });
}

Status Session::RewindTo(int64_t position) try {
  if (!impl_->failed.ok()) return impl_->failed;
  const auto where = Rewindable();
  if (std::binary_search(where.begin(), where.end(), position)) return impl_->Keep(impl_->ReturnTo(position));
  const auto above = std::lower_bound(where.begin(), where.end(), position);
  std::string nearest;
  if (above != where.begin()) nearest = fmt::format("{}", *(above - 1));
  if (above != where.end()) nearest += fmt::format("{}{}", nearest.empty() ? "" : " and ", *above);
  return {Code::kBadInput,
          fmt::format("the session (at {}) can't go to position {}: no state of it is kept; nearest are {}",
                      this->position(), position, nearest)};
} catch (...) {
  return NoRoomOrRethrow();
}

std::vector<int64_t> Session::Rewindable() const {
  std::vector<int64_t> positions;
  const int64_t block = impl_->BlockStart();
  for (const auto& kept : impl_->checkpoints) {
    const int64_t at = kept.mark->position();
    if ((at < block || impl_->lost) && (positions.empty() || positions.back() != at)) positions.push_back(at);
  }
  for (int64_t p = block; p <= position() && !impl_->lost; ++p) positions.push_back(p);
  return positions;
}

Result<Session> Session::Fork() const try {
  if (Status status = impl_->Usable(); !status.ok()) return status;
  const uint64_t needed = impl_->state->bytes() + SessionImpl::CheckBytes(*impl_->model, impl_->options);
  const auto room = impl_->model->backend->Room();
  if (room.bytes < needed) {
    return Status(Code::kNoRoom, fmt::format("a fork needs {}, but {} leaves {}", FormatBytes(needed),
                                             room.limited_by, FormatBytes(room.bytes)));
  }
  auto state = impl_->state->Clone();
  if (!state.ok()) return state.status();
  auto impl = SessionImpl::Make(impl_->model, impl_->options, std::move(*state));
  impl->tokens = impl_->tokens;
  return Session(std::move(impl));
} catch (...) {
  return NoRoomOrRethrow();
}

void Session::Reset() {
  impl_->state->Clear();
  impl_->lost = false;
  impl_->tokens.clear();
  impl_->checkpoints.clear();
}

}  // namespace glint
