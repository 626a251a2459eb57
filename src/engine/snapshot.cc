#include "engine/snapshot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "base/no_room.h"
#include "engine/session_impl.h"

namespace glint::engine {
namespace {

using Kind = plan::StatePart::Kind;

// Floats that are read or written at once, at most (but one piece): bounds the memory beside the snapshot, and lets others' passes in between.
constexpr int64_t kStretchFloats = int64_t{1} << 20;

size_t CommonLength(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(end.first - a.begin());
}

// Rows of a layer's caches and where they lie in a piece.
struct Lane {
  plan::StatePart part;  // one piece's rows, at the beginning
  int64_t at;
  int64_t floats() const { return part.rows * part.width; }
};

// Calls fn(lane, first piece, pieces) for stretches of pieces [from, to) of every layer, until it fails.
template <class F>
Status ForStretches(const RowsLayout& layout, int64_t from, int64_t to, F&& fn) {
  for (const auto& l : layout.layers) {
    const Lane lanes[] = {{{Kind::kLatent, l.layer, 0, layout.tokens, l.latent_width}, l.latent_at},
                          {{Kind::kPooledKey, l.layer, 0, layout.pools, l.pooled_width}, l.pooled_at}};
    for (const Lane& lane : lanes) {
      const int64_t most = std::max<int64_t>(1, kStretchFloats / lane.floats());
      for (int64_t piece = from; piece < to; piece += most) {
        if (Status status = fn(lane, piece, std::min(most, to - piece)); !status.ok()) return status;
      }
    }
  }
  return {};
}

plan::StatePart PartOf(const Lane& lane, int64_t piece, int64_t pieces) {
  plan::StatePart part = lane.part;
  part.first = piece * lane.part.rows;
  part.rows = pieces * lane.part.rows;
  return part;
}

Status NotFinite(const plan::StatePart& part) {
  return {Code::kUnsupported,
          fmt::format("{} of layer {}: not every number is finite, so nothing can go on from this state",
                      Name(part.kind), part.layer)};
}

Status NoState(const plan::StatePart& part) {
  return {Code::kBadFile, fmt::format("the kept state is not this model's: {} of layer {}, rows {} to {}",
                                      Name(part.kind), part.layer, part.first, part.first + part.rows)};
}

// Of a state's part, how many rows lie in whole pieces.
int64_t RowsInPieces(const RowsLayout& layout, const plan::StatePart& part, int64_t pieces) {
  if (layout.Find(part.layer) == nullptr) return 0;
  if (part.kind == Kind::kLatent) return pieces * layout.tokens;
  return part.kind == Kind::kPooledKey ? pieces * layout.pools : 0;
}

bool RawOfMtp(const plan::StatePart& part, int64_t layers) {
  return part.layer == layers && (part.kind == Kind::kRawKey || part.kind == Kind::kRawGate);
}

// Whether `own` is what is left of `wanted`, a part of the state, beside pieces. The MTP block's raw rows reach back as far as they are known.
bool Serves(const plan::StatePart& own, const plan::StatePart& wanted, int64_t in_pieces, int64_t layers) {
  const bool same = own.kind == wanted.kind && own.layer == wanted.layer && own.width == wanted.width &&
                    own.first + own.rows == wanted.first + wanted.rows;
  return same &&
         (RawOfMtp(wanted, layers) ? own.first >= wanted.first : own.first == wanted.first + in_pieces);
}

}  // namespace

bool AllFinite(std::span<const float> floats) {
  constexpr uint32_t kExponent = 0x7f800000;
  bool finite = true;
  for (const float f : floats) {
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof(bits));
    finite &= (bits & kExponent) != kExponent;
  }
  return finite;
}

RowsLayout RowsLayout::Of(const Model& model) {
  const auto& hp = model.impl()->data.hparams;
  RowsLayout layout;
  layout.tokens = std::lcm(hp.block, std::max<int64_t>(hp.index_kpool, 1));
  layout.pools = layout.tokens / std::max<int64_t>(hp.index_kpool, 1);
  for (int64_t l = 0; l < hp.layers; ++l) {
    if (hp.mixers[static_cast<size_t>(l)] != model::Mixer::kDsa) continue;
    Layer layer{.layer = static_cast<int>(l),
                .latent_width = hp.kv_lora_rank,
                .pooled_width = hp.index_head_dim,
                .latent_at = layout.floats};
    layer.pooled_at = layer.latent_at + layout.tokens * layer.latent_width;
    layout.floats = layer.pooled_at + layout.pools * layer.pooled_width;
    layout.layers.push_back(layer);
  }
  return layout;
}

const RowsLayout::Layer* RowsLayout::Find(int layer) const {
  const auto found =
      std::find_if(layers.begin(), layers.end(), [&](const Layer& l) { return l.layer == layer; });
  return found == layers.end() ? nullptr : &*found;
}

RowsPiece::RowsPiece(std::vector<float> floats, Gauge gauge)
    : floats_(std::move(floats)), gauge_(std::move(gauge)) {
  if (gauge_ != nullptr) *gauge_ += floats_.size() * sizeof(float);
}

RowsPiece::~RowsPiece() {
  if (gauge_ != nullptr) *gauge_ -= floats_.size() * sizeof(float);
}

uint64_t Snapshot::own_bytes() const {
  uint64_t bytes =
      sizeof(*this) + data_.tokens.size() * sizeof(int32_t) + data_.rows.size() * sizeof(data_.rows[0]);
  for (const auto& own : data_.own) bytes += sizeof(own) + own.floats.size() * sizeof(float);
  return bytes;
}

Result<std::shared_ptr<const Snapshot>> Snapshot::Take(const Session& session, int64_t position,
                                                       const Snapshot* like, RowsPiece::Gauge gauge) try {
  const SessionImpl& s = session.impl();
  if (Status status = s.Usable(); !status.ok()) return status;
  if (position < s.BlockStart() || position > s.state->position()) {
    return Status(Code::kBadInput,
                  fmt::format("a snapshot at position {} of a session at {}; {} to {} are possible", position,
                              s.state->position(), s.BlockStart(), s.state->position()));
  }
  const RowsLayout layout = RowsLayout::Of(Model(s.model));
  const auto& prints = s.model->fingerprints();
  SnapshotData data;
  data.model = prints.trunk;
  data.tokenizer = s.model->tokenizer_fingerprint;
  data.tokens.assign(s.tokens.begin(), s.tokens.begin() + position);
  data.mtp = s.options.mtp;
  if (data.mtp) {
    data.mtp_model = prints.mtp;
    // MTP row p was made from token p + 1.
    const int64_t all = s.state->mtp_position();
    data.mtp_position =
        position == s.state->position() ? all : std::min(all, std::max<int64_t>(position - 1, 0));
  }

  // The pieces: shared as far as the tokens are the same, the others read in long stretches.
  const int64_t pieces = position / layout.tokens;
  int64_t shared = 0;
  if (like != nullptr && like->data_.model == data.model) {
    const auto common = static_cast<int64_t>(CommonLength(like->data_.tokens, data.tokens));
    shared = std::min({common / layout.tokens, std::ssize(like->data_.rows), pieces});
    data.rows.assign(like->data_.rows.begin(), like->data_.rows.begin() + shared);
  }
  std::vector<std::vector<float>> fresh(static_cast<size_t>(pieces - shared));
  for (auto& floats : fresh) floats.resize(static_cast<size_t>(layout.floats));
  std::vector<float> stretch;
  const auto read = [&](const plan::StatePart& part, std::vector<float>& out) -> Status {
    out.resize(static_cast<size_t>(part.rows * part.width));
    {
      const std::lock_guard lock(s.model->mutex);
      if (Status status = s.state->Read(part, out.data()); !status.ok()) return status;
    }
    return AllFinite(out) ? Status() : NotFinite(part);
  };
  Status status =
      ForStretches(layout, shared, pieces, [&](const Lane& lane, int64_t piece, int64_t count) -> Status {
        if (Status failed = read(PartOf(lane, piece, count), stretch); !failed.ok()) return failed;
        for (int64_t i = 0; i < count; ++i) {
          std::copy_n(stretch.begin() + i * lane.floats(), lane.floats(),
                      fresh[static_cast<size_t>(piece - shared + i)].begin() + lane.at);
        }
        return {};
      });
  if (!status.ok()) return status;
  data.rows.reserve(static_cast<size_t>(pieces));
  for (auto& floats : fresh) data.rows.push_back(std::make_shared<const RowsPiece>(std::move(floats), gauge));

  for (plan::StatePart part : s.state->Parts(position, data.mtp_position)) {
    const int64_t in_pieces = RowsInPieces(layout, part, pieces);
    part.first += in_pieces, part.rows -= in_pieces;
    if (part.rows == 0) continue;
    data.own.push_back({part, {}});
    if (status = read(part, data.own.back().floats); !status.ok()) return status;
  }
  return std::make_shared<const Snapshot>(std::move(data));
} catch (...) {
  return NoRoomOrRethrow();
}

Result<Session> Snapshot::Restore(const Model& model, const SessionOptions& options) const try {
  ModelImpl& m = *model.impl();
  const auto& prints = m.fingerprints();
  if (data_.model != prints.trunk || data_.tokenizer != m.tokenizer_fingerprint ||
      (options.mtp && (!data_.mtp || data_.mtp_model != prints.mtp))) {
    return Status(Code::kBadInput, options.mtp && !data_.mtp
                                       ? "the state was kept without the MTP block's rows"
                                       : "the state was kept with another model");
  }
  if (position() > options.context) {
    return Status(Code::kNoRoom, fmt::format("the state has {} tokens, a context of {} does not hold them",
                                             position(), options.context));
  }
  const RowsLayout layout = RowsLayout::Of(model);
  const int64_t pieces = position() / layout.tokens, layers = m.data.hparams.layers;
  const int64_t mtp_position = options.mtp ? data_.mtp_position : 0;
  if (std::ssize(data_.rows) != pieces ||
      std::any_of(data_.rows.begin(), data_.rows.end(),
                  [&](const auto& piece) { return std::ssize(piece->floats()) != layout.floats; })) {
    return Status(Code::kBadFile, "the kept state is not this model's: its caches have another size");
  }
  auto session = Session::Create(model, options);
  if (!session.ok()) return session.status();
  SessionImpl& s = session->impl();

  // All parts there must be, in their order, before the first is written.
  std::vector<const SnapshotData::Own*> own;
  for (const auto& o : data_.own) {
    if (options.mtp || o.part.layer != layers) own.push_back(&o);
  }
  size_t next = 0;
  int64_t raw_keys_from = -1;
  for (const plan::StatePart& part : s.state->Parts(position(), mtp_position)) {
    const int64_t in_pieces = RowsInPieces(layout, part, pieces);
    if (part.rows == in_pieces) continue;
    if (RawOfMtp(part, layers) && (next == own.size() || !Serves(own[next]->part, part, 0, layers)))
      continue;  // none is known
    if (next == own.size() || !Serves(own[next]->part, part, in_pieces, layers) ||
        std::ssize(own[next]->floats) != own[next]->part.rows * part.width) {
      return NoState(part);
    }
    if (RawOfMtp(part, layers)) {
      if (part.kind == Kind::kRawKey) raw_keys_from = own[next]->part.first;
      if (part.kind == Kind::kRawGate && raw_keys_from != own[next]->part.first) return NoState(part);
    }
    ++next;
  }
  if (next != own.size()) return NoState(own[next]->part);

  const auto write = [&](const plan::StatePart& part, const float* from) {
    const std::lock_guard lock(m.mutex);
    return s.Keep(s.state->Write(part, from));
  };
  std::vector<float> stretch;
  Status status = ForStretches(layout, 0, pieces, [&](const Lane& lane, int64_t piece, int64_t count) {
    stretch.resize(static_cast<size_t>(count * lane.floats()));
    for (int64_t i = 0; i < count; ++i) {
      const auto floats = data_.rows[static_cast<size_t>(piece + i)]->floats();
      std::copy_n(floats.begin() + lane.at, lane.floats(), stretch.begin() + i * lane.floats());
    }
    return write(PartOf(lane, piece, count), stretch.data());
  });
  for (const auto* o : own) {
    if (status.ok()) status = write(o->part, o->floats.data());
  }
  if (!status.ok()) return status;
  {
    const std::lock_guard lock(m.mutex);
    if (status = s.state->Place(position(), mtp_position); !status.ok()) return status;
  }
  s.tokens = data_.tokens;
  return session;
} catch (...) {
  return NoRoomOrRethrow();
}

}  // namespace glint::engine
