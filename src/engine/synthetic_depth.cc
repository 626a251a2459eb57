#include "engine/synthetic_depth.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/no_room.h"
#include "engine/session_impl.h"

namespace glint::engine {
namespace {

using plan::StatePart;

// What `part` holds at its place, read from where the state of `from` tokens has it: a whole number of blocks before.
class Repeater {
 public:
  Repeater(SessionImpl& session, int64_t from, int64_t depth)
      : session_(session), from_(from), depth_(depth) {}

  Status Fill(const StatePart& part) {
    switch (part.kind) {
      case StatePart::Kind::kKdaState:
        return {};  // as it is
      case StatePart::Kind::kLatent:
        return Repeat(part, Period());
      case StatePart::Kind::kPooledKey:
        return Repeat(part, Period() / session_.model->data.hparams.index_kpool);
      default:
        return Shift(part);
    }
  }

 private:
  int64_t Period() const { return from_ - from_ % session_.model->data.hparams.block; }

  // Rows of the block that the state stands in, and of the little before it.
  Status Shift(const StatePart& part) {
    StatePart source = part;
    source.first -= depth_ - from_;
    rows_.resize(static_cast<size_t>(part.rows * part.width));
    Status status = session_.state->Read(source, rows_.data());
    return status.ok() ? session_.state->Write(part, rows_.data()) : status;
  }
  // Rows [0, period) again and again behind them.
  Status Repeat(const StatePart& part, int64_t period) {
    StatePart piece = part;
    piece.first = 0, piece.rows = period;
    rows_.resize(static_cast<size_t>(period * part.width));
    Status status = session_.state->Read(piece, rows_.data());
    for (piece.first = period; status.ok() && piece.first < part.rows; piece.first += period) {
      piece.rows = std::min(period, part.rows - piece.first);
      status = session_.state->Write(piece, rows_.data());
    }
    return status;
  }

  SessionImpl& session_;
  int64_t from_, depth_;
  std::vector<float> rows_;
};

// Reads up to `from` and makes up the rest up to `depth`. An error may leave anything behind, which the caller's mark sets right.
Status Fill(Session& session, std::span<const int32_t> tokens, int64_t from, int64_t depth,
            const Progress& progress) try {
  SessionImpl& impl = session.impl();
  const auto to_read = tokens.first(static_cast<size_t>(from - session.position()));
  const auto total = static_cast<uint64_t>(tokens.size());
  bool stopped = false;
  Status status = session.Append(to_read, LogitRows::kNone, {}, [&](uint64_t done, uint64_t) {
    stopped = progress && !progress(done, total);
    return !stopped;
  });
  if (!status.ok()) return status;
  if (stopped) return {Code::kBadInput, "interrupted"};

  Repeater repeater(impl, from, depth);
  const auto parts = impl.state->Parts(depth, 0);
  const std::lock_guard lock(impl.model->mutex);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (status = repeater.Fill(parts[i]); !status.ok()) return impl.Keep(status);
    const uint64_t done = to_read.size() + (total - to_read.size()) * (i + 1) / parts.size();
    if (progress && !progress(done, total)) return {Code::kBadInput, "interrupted"};
  }
  impl.tokens.insert(impl.tokens.end(), tokens.begin() + static_cast<std::ptrdiff_t>(to_read.size()),
                     tokens.end());
  return impl.Keep(impl.state->Place(depth, 0));
} catch (...) {
  return NoRoomOrRethrow();
}

}  // namespace

Status AppendSynthetically(Session& session, std::span<const int32_t> tokens, int64_t real,
                           const Progress& progress) try {
  SessionImpl& impl = session.impl();
  const auto& hp = impl.model->data.hparams;
  const int64_t block = hp.block, least = 2 * std::max(block, hp.index_kpool), start = session.position(),
                depth = start + static_cast<int64_t>(tokens.size());
  if (real < least) {
    return {
        Code::kBadInput,
        fmt::format("a context of this model is made up from {} tokens or more, not from {}", least, real)};
  }
  // The caches go on as they began only from the same place in a block.
  const int64_t from = std::max(start, real) + (depth - std::max(start, real)) % block;
  if (depth <= from) return session.Append(tokens, LogitRows::kNone, {}, progress);
  if (!impl.checkpoints.empty() || impl.state->mtp_position() > 0)
    return {Code::kBadInput, "a context is made up for sessions without checkpoints and MTP block only"};
  if (Status status = impl.Usable(); !status.ok()) return status;
  if (Status status = impl.CheckTokens(tokens); !status.ok()) return status;
  // Brings back what reading and writing change.
  const auto before = impl.state->Mark();
  if (!before.ok()) return impl.Keep(before.status());
  Status status = Fill(session, tokens, from, depth, progress);
  if (status.ok() || !impl.failed.ok()) return status;
  if (Status back = impl.state->Return(**before); !back.ok()) return impl.Keep(back);
  impl.lost = false;
  impl.tokens.resize(static_cast<size_t>(start));
  return status;
} catch (...) {
  return NoRoomOrRethrow();
}

std::string DescribeSynthetic(int64_t real) { return fmt::format(", made up from about {}", real); }

}  // namespace glint::engine
