#include "engine/batch.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "base/no_room.h"
#include "engine/session_impl.h"

namespace glint::engine {
namespace {

size_t WantedRows(const BatchWork& work) {
  if (work.which == LogitRows::kAll) return work.tokens.size();
  return work.which == LogitRows::kLast ? 1 : 0;
}

Status Check(const ModelImpl& model, const BatchWork& work, int64_t most_rows) {
  if (work.session == nullptr) return {Code::kBadInput, "a work without a session"};
  const SessionImpl& session = work.session->impl();
  if (session.model.get() != &model) return {Code::kBadInput, "the session is another model's"};
  if (Status status = session.Usable(); !status.ok()) return status;
  if (work.tokens.empty()) return {Code::kBadInput, "a work without tokens"};
  if (Status status = session.CheckTokens(work.tokens); !status.ok()) return status;
  const size_t rows = WantedRows(work);
  if (!work.best.empty() && !work.logits.empty())
    return {Code::kBadInput, "logits and choices are both wanted; one of them can be had"};
  if (!work.best.empty() && work.best.size() != rows)
    return {Code::kBadInput, fmt::format("`best` holds {} ids; {} are wanted", work.best.size(), rows)};
  const size_t floats = rows * static_cast<size_t>(model.data.hparams.vocab_size);
  if (work.best.empty() && work.logits.size() != floats) {
    return {Code::kBadInput, fmt::format("`logits` holds {} floats; {} rows of {} are {}", work.logits.size(),
                                         rows, model.data.hparams.vocab_size, floats)};
  }
  if (static_cast<int64_t>(work.tokens.size()) > most_rows) {
    return {Code::kBadInput,
            fmt::format("{} tokens at once; a shared pass takes {}", work.tokens.size(), most_rows)};
  }
  return {};
}

bool NeedsItsOwnPass(const SessionImpl& session) {
  return session.verifier != nullptr || session.observer || session.timer;
}

void Alone(BatchWork& work) {
  Session& session = *work.session;
  if (work.best.empty()) {
    work.status = session.Append(work.tokens, work.which, work.logits);
  } else if (work.which == LogitRows::kLast) {
    work.status = session.AppendBest(work.tokens, work.best.data());
  } else {
    work.status = session.AppendBestOfEach(work.tokens, work.best);
  }
}

// By doubling: sequences grow by one token a pass.
void Reserve(std::vector<int32_t>& tokens, size_t more) {
  const size_t needed = tokens.size() + more;
  if (tokens.capacity() < needed) tokens.reserve(std::max(needed, 2 * tokens.capacity()));
}

// A pass over checked works, as the backend wants it.
class SharedPass {
 public:
  SharedPass(ModelImpl& model, std::span<BatchWork* const> works) : model_(model), works_(works) {
    const auto vocab = static_cast<size_t>(model.data.hparams.vocab_size);
    float* next = nullptr;
    bool any_best = false, in_a_row = true;
    for (const BatchWork* work : works) {
      SessionImpl& session = work->session->impl();
      const size_t first = tokens_.size(), count = work->tokens.size(), rows = WantedRows(*work);
      segments_.push_back({.state = session.state.get(),
                           .position = session.state->position(),
                           .first_row = static_cast<int>(first),
                           .rows = static_cast<int>(count)});
      tokens_.insert(tokens_.end(), work->tokens.begin(), work->tokens.end());
      Reserve(session.tokens, count);  // nothing fails once the pass is done
      for (size_t r = count - rows; r < count; ++r) wanted_.push_back(static_cast<int32_t>(first + r));
      any_best = any_best || !work->best.empty();
      if (work->logits.empty()) continue;
      if (next == nullptr) logits_ = work->logits.data();
      in_a_row = in_a_row && (next == nullptr || next == work->logits.data());
      next = work->logits.data() + work->logits.size();
    }
    direct_ = in_a_row && !any_best;
    if (any_best) best_.resize(wanted_.size());
    if (direct_ || logits_ == nullptr) return;
    copies_.resize(wanted_.size() * vocab);
    logits_ = copies_.data();
  }

  Status Run() {
    const plan::Batch batch{.tokens = tokens_,
                            .segments = segments_,
                            .wanted = wanted_,
                            .logits = logits_,
                            .best = best_.empty() ? nullptr : best_.data(),
                            .usable_vocab = model_.usable_vocab};
    const std::lock_guard lock(model_.mutex);
    const auto plan = model_.PlanFor(plan::Pass::kTrunk, static_cast<int>(tokens_.size()), false);
    if (!plan.ok()) return plan.status();
    // What a pass writes inside a block is forgotten with its rows; at a block's end it writes over what came before.
    const int64_t block = model_.data.hparams.block;
    const auto leaves = [block](const plan::Segment& s) {
      return s.position / block != (s.position + s.rows) / block;
    };
    for (size_t i = 0; i < works_.size(); ++i) works_[i]->session->impl().lost = leaves(segments_[i]);
    Status status = model_.backend->Run(**plan, batch, {});  // an exception leaves the marks
    for (const BatchWork* work : works_) {
      work->session->impl().lost = false;
      status = work->session->impl().Keep(std::move(status));
    }
    return status;
  }

  // After success: hands out what came back.
  void Deliver() {
    const auto vocab = static_cast<size_t>(model_.data.hparams.vocab_size);
    size_t row = 0;
    for (BatchWork* work : works_) {
      const size_t rows = WantedRows(*work);
      if (!work->best.empty())
        std::copy_n(best_.begin() + static_cast<ptrdiff_t>(row), rows, work->best.begin());
      if (!work->logits.empty() && !direct_)
        std::copy_n(logits_ + row * vocab, rows * vocab, work->logits.data());
      auto& tokens = work->session->impl().tokens;
      tokens.insert(tokens.end(), work->tokens.begin(), work->tokens.end());
      row += rows;
      work->status = {};
    }
  }

 private:
  ModelImpl& model_;
  const std::span<BatchWork* const> works_;
  std::vector<int32_t> tokens_, wanted_, best_;
  std::vector<plan::Segment> segments_;
  std::vector<float> copies_;  // where the works' own memory is not in one piece
  float* logits_ = nullptr;
  bool direct_ = false;
};

Status TryTogether(ModelImpl& model, std::span<BatchWork* const> works) try {
  SharedPass pass(model, works);
  if (Status status = pass.Run(); !status.ok()) return status;
  pass.Deliver();
  return {};
} catch (...) {
  return NoRoomOrRethrow();
}

void Together(ModelImpl& model, std::span<BatchWork* const> works) {
  if (works.empty()) return;
  if (works.size() == 1) return Alone(*works[0]);
  const Status status = TryTogether(model, works);
  if (status.ok()) return;
  for (BatchWork* work : works) {
    if (status.code() == Code::kDevice) {
      work->status = work->session->impl().failed;
    } else {
      Alone(*work);
    }
  }
}

void Append(ModelImpl& model, std::span<BatchWork> works) {
  const int64_t most = model.backend->prompt_rows();
  std::unordered_set<const SessionImpl*> seen;
  std::vector<BatchWork*> pass;
  int64_t rows = 0;
  for (BatchWork& work : works) {
    work.status = Check(model, work, most);
    if (!work.status.ok()) continue;
    SessionImpl& session = work.session->impl();
    if (!seen.insert(&session).second) {
      work.status = {Code::kBadInput, "the session appears twice among the works"};
      continue;
    }
    if (NeedsItsOwnPass(session)) {
      Alone(work);
      continue;
    }
    const auto more = static_cast<int64_t>(work.tokens.size());
    if (rows + more > most) {
      Together(model, pass);
      pass.clear();
      rows = 0;
    }
    pass.push_back(&work);
    rows += more;
  }
  Together(model, pass);
}

}  // namespace

int64_t MostBatchRows(const Model& model) { return model.impl()->backend->prompt_rows(); }

int64_t GridBlock(const Model& model) { return model.impl()->data.hparams.block; }

void AppendTogether(const Model& model, std::span<BatchWork> works) {
  for (BatchWork& work : works) work.status = {Code::kInternal, "not reached"};
  try {
    Append(*model.impl(), works);
  } catch (...) {
    const Status status = NoRoomOrRethrow();
    for (BatchWork& work : works) {
      if (work.status.code() == Code::kInternal) work.status = status;
    }
  }
}

}  // namespace glint::engine
