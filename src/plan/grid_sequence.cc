#include "plan/grid_sequence.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutation.h"

namespace glint::plan {
namespace {

// Orders marks, cuts and clones in time; also names sequences.
uint64_t NextSerial() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

struct GridSequence::MarkImpl final : StateMark {
  int64_t position() const override { return trunk.position; }
  uint64_t bytes() const override { return sizeof(float) * static_cast<uint64_t>(fixed_floats); }

  uint64_t owner = 0, serial = 0;
  int64_t fixed_floats = 0, capacity = 0;
  Line trunk, mtp;  // without their cuts
  std::unique_ptr<StateMemory> fixed;
};

void GridSequence::Line::Cut(uint64_t serial, int64_t to) {
  while (!cuts.empty() && cuts.back().second >= to) cuts.pop_back();  // a later and deeper cut says more
  cuts.emplace_back(serial, to);
}

// Whether rows [0, below) are as they were at the time `since`.
bool GridSequence::Line::Untouched(uint64_t since, int64_t below) const {
  return std::none_of(cuts.begin(), cuts.end(),
                      [&](const auto& cut) { return cut.first > since && cut.second < below; });
}

GridSequence::GridSequence(const StateLayout& layout, std::unique_ptr<StateMemory> memory, bool poison)
    : layout_(layout), memory_(std::move(memory)), poison_(poison), id_(NextSerial()) {
  // Going back must work where memory has run out.
  constexpr size_t kMostCuts = 16;  // there are seldom more than two
  for (Line* line : {&trunk_, &mtp_}) line->cuts.reserve(kMostCuts);
  PoisonDead();
}

void GridSequence::Advance(Pass pass, int64_t rows) {
  Line& line = pass == Pass::kTrunk ? trunk_ : mtp_;
  const int64_t block = layout_.BlockStart(line.position);
  line.position += rows;
  line.raw_from = std::max(line.raw_from, line.position - layout_.raw_ring);
  if (layout_.BlockStart(line.position) != block) PoisonDead();  // within a block nothing dies
}

Result<std::unique_ptr<StateMark>> GridSequence::Mark() const {
  auto mark = std::make_unique<MarkImpl>();
  mark->owner = id_;
  mark->serial = NextSerial();
  mark->fixed_floats = layout_.fixed_floats;
  mark->capacity = layout_.capacity;
  mark->trunk = {trunk_.position, trunk_.raw_from, {}};
  mark->mtp = {mtp_.position, mtp_.raw_from, {}};
  auto fixed = memory_->Another(layout_.fixed_floats);
  if (!fixed.ok()) return fixed.status();
  mark->fixed = std::move(*fixed);
  Status status = mark->fixed->CopyFrom(*memory_, 0, 0, layout_.fixed_floats);
  if (!status.ok()) return status;
  return std::unique_ptr<StateMark>(std::move(mark));
}

Status GridSequence::Return(const StateMark& mark) {
  const auto* m = dynamic_cast<const MarkImpl*>(&mark);
  const bool ours =
      m != nullptr && m->fixed_floats == layout_.fixed_floats && m->capacity == layout_.capacity &&
      (m->owner == id_ || std::any_of(ancestors_.begin(), ancestors_.end(), [&](const auto& ancestor) {
         return ancestor.first == m->owner && m->serial < ancestor.second;
       }));
  if (!ours) return {Code::kBadInput, "the mark was taken from another sequence"};
  if (!trunk_.Untouched(m->serial, m->trunk.position) || !mtp_.Untouched(m->serial, m->mtp.position)) {
    return {Code::kBadInput,
            fmt::format("the mark at position {} is void: the sequence was since cut back below it",
                        m->trunk.position)};
  }
  const int64_t kept = Mutated(Mutation::kMarkKeepsHalf) ? m->fixed_floats / 2 : m->fixed_floats;
  if (Status status = memory_->CopyFrom(*m->fixed, 0, 0, kept); !status.ok()) return status;
  const uint64_t now = NextSerial();
  trunk_.Cut(now, m->trunk.position);
  mtp_.Cut(now, m->mtp.position);
  trunk_.position = m->trunk.position, trunk_.raw_from = m->trunk.raw_from;
  mtp_.position = m->mtp.position, mtp_.raw_from = m->mtp.raw_from;
  PoisonDead();
  return {};
}

// The raw rows of the pool that is open at `position` must still be there.
bool GridSequence::CanRebuildPool(const Line& line, int64_t position) const {
  const int64_t pool_start = layout_.PoolStart(position);
  return pool_start == position || pool_start >= line.raw_from;
}

Status GridSequence::Truncate(int64_t position) {
  const int64_t start = layout_.BlockStart(trunk_.position);
  if (position < 0 || position > trunk_.position) {
    return {Code::kBadInput, fmt::format("cannot truncate to position {}: the sequence has {} tokens",
                                         position, trunk_.position)};
  }
  if (position == trunk_.position) return {};
  if (position < start || !CanRebuildPool(trunk_, position)) {
    return {
        Code::kBadInput,
        fmt::format("cannot truncate from position {} to {}: state before {} is not kept; return to a mark",
                    trunk_.position, position, start)};
  }
  // Rows are forgotten by forgetting them: S is the block's start, every other row lies at its own position.
  trunk_.Cut(NextSerial(), position);
  trunk_.position = Mutated(Mutation::kTruncateKeepsARow) ? position + 1 : position;
  PoisonDead();
  return {};
}

Status GridSequence::TruncateMtp(int64_t position) {
  if (position < 0 || position > mtp_.position) {
    return {Code::kBadInput,
            fmt::format("cannot truncate to row {}: the MTP block has {} rows", position, mtp_.position)};
  }
  if (position == mtp_.position) return {};
  if (!CanRebuildPool(mtp_, position)) {
    return {Code::kBadInput,
            fmt::format(
                "cannot truncate the MTP block from row {} to {}: raw rows of its open pool are kept from {} "
                "on, or choose a multiple of {}",
                mtp_.position, position, mtp_.raw_from, layout_.kpool)};
  }
  if (Mutated(Mutation::kMtpNotTruncated)) return {};
  mtp_.Cut(NextSerial(), position);
  mtp_.position = position;
  mtp_.raw_from = std::min(mtp_.raw_from, position);
  PoisonDead();
  return {};
}

void GridSequence::Clear() {
  // A device that cannot even zero memory fails every later pass too, and says so there.
  if (!Mutated(Mutation::kClearKeepsState)) (void)memory_->Zero();
  for (Line* line : {&trunk_, &mtp_}) {
    line->Cut(NextSerial(), 0);
    line->position = line->raw_from = 0;
  }
  PoisonDead();
}

Result<std::unique_ptr<SequenceState>> GridSequence::Clone() const {
  auto other = memory_->Another(layout_.total_floats);
  if (!other.ok()) return other.status();
  std::unique_ptr<GridSequence> copy = Over(std::move(*other));
  if (Status status = copy->CopyFrom(*this); !status.ok()) return status;
  return std::unique_ptr<SequenceState>(std::move(copy));
}

Status GridSequence::CopyFrom(const SequenceState& source) {
  const auto* other = dynamic_cast<const GridSequence*>(&source);
  if (other == this) return {};
  if (other == nullptr || other->layout_.fixed_floats != layout_.fixed_floats ||
      other->layout_.parts.size() != layout_.parts.size() || other->layout_.mtp != layout_.mtp) {
    return {Code::kBadInput, "a sequence takes the state of one of the same model and backend only"};
  }
  const StateLayout& from = other->layout_;
  if (std::max(other->trunk_.position, other->mtp_.position) > layout_.capacity) {
    return {Code::kNoRoom,
            fmt::format("a sequence of {} tokens does not fit into {}",
                        std::max(other->trunk_.position, other->mtp_.position), layout_.capacity)};
  }
  Status status = memory_->CopyFrom(*other->memory_, 0, 0, layout_.fixed_floats);
  const auto copy = [&](const StateLayout::Part& to, const StateLayout::Part& of, int64_t floats) {
    if (status.ok()) status = memory_->CopyFrom(*other->memory_, of.offset, to.offset, floats);
  };
  for (size_t l = 0; l < layout_.parts.size();
       ++l) {  // only rows in use, so that untouched capacity stays free
    const auto& p = layout_.parts[l];
    if (p.latent.floats == 0) continue;
    const int64_t rows =
        static_cast<int64_t>(l) == layout_.layers ? other->mtp_.position : other->trunk_.position;
    copy(p.latent, from.parts[l].latent, rows * layout_.kv_lora);
    if (!Mutated(Mutation::kCopyWithoutPooledKeys))
      copy(p.pooled, from.parts[l].pooled, rows / layout_.kpool * layout_.index_dim);
  }
  if (!status.ok()) return status;
  trunk_ = other->trunk_;
  mtp_ = other->mtp_;
  // A new name: marks of what this was before hold no more, those of `other` until now do.
  id_ = NextSerial();
  ancestors_ = other->ancestors_;
  ancestors_.emplace_back(other->id_, NextSerial());
  PoisonDead();
  return {};
}

std::vector<StatePart> GridSequence::Parts(int64_t position, int64_t mtp_position) const {
  using Kind = StatePart::Kind;
  std::vector<StatePart> parts;
  const int64_t block = layout_.BlockStart(position);
  for (int64_t l = 0; l <= layout_.layers; ++l) {
    const bool mtp = l == layout_.layers;
    if (mtp && !layout_.mtp) continue;
    const auto add = [&](Kind kind, int64_t first, int64_t end) {
      const Rows rows = RowsOf(kind, static_cast<int>(l));
      if (first < end) parts.push_back({kind, static_cast<int>(l), first, end - first, rows.width});
    };
    if (layout_.parts[l].kda) {
      add(Kind::kKdaState, 0, layout_.parts[l].s.floats / layout_.head_dim);
      for (const Kind kind : {Kind::kKdaKf, Kind::kKdaDelta, Kind::kKdaG}) add(kind, block, position);
      add(Kind::kConv, std::max<int64_t>(0, block - (layout_.conv_ring - layout_.block)), position);
      continue;
    }
    const int64_t end = mtp ? mtp_position : position;
    // The trunk is cut back within its block only; the MTP block as far as the ring holds rows.
    const int64_t raw =
        mtp ? std::max(std::min(mtp_.raw_from, end), end - layout_.raw_ring) : layout_.PoolStart(block);
    add(Kind::kLatent, 0, end);
    add(Kind::kPooledKey, 0, end / layout_.kpool);
    for (const Kind kind : {Kind::kRawKey, Kind::kRawGate}) add(kind, raw, end);
  }
  return parts;
}

GridSequence::Rows GridSequence::RowsOf(StatePart::Kind kind, int layer) const {
  using Kind = StatePart::Kind;
  const StateLayout& l = layout_;
  if (layer < 0 || layer > l.layers || (layer == l.layers && !l.mtp)) return {};
  const auto& p = l.parts[layer];
  const bool of_kda = kind <= Kind::kConv;
  if (of_kda != p.kda || kind >= Kind::kCount) return {};
  switch (kind) {
    case Kind::kKdaState:
      return {p.s.offset, l.head_dim, 0, p.s.floats / l.head_dim};
    case Kind::kKdaKf:
      return {p.kf.offset, l.kda_width, l.block, l.capacity};
    case Kind::kKdaDelta:
      return {p.delta.offset, l.kda_width, l.block, l.capacity};
    case Kind::kKdaG:
      return {p.g.offset, l.kda_width, l.block, l.capacity};
    case Kind::kConv:
      return {p.conv.offset, 3 * l.kda_width, l.conv_ring, l.capacity};
    case Kind::kLatent:
      return {p.latent.offset, l.kv_lora, 0, l.capacity};
    case Kind::kPooledKey:
      return {p.pooled.offset, l.index_dim, 0, l.capacity / l.kpool};
    case Kind::kRawKey:
      return {p.raw_key.offset, l.index_dim, l.raw_ring, l.capacity};
    case Kind::kRawGate:
      return {p.raw_gate.offset, l.index_dim, l.raw_ring, l.capacity};
    case Kind::kCount:
      break;
  }
  return {};
}

template <class F>
Status GridSequence::ForStretches(const StatePart& part, F&& fn) const {
  const Rows rows = RowsOf(part.kind, part.layer);
  const int64_t most = rows.ring > 0 ? std::min(rows.ring, rows.end) : rows.end;
  if (rows.width == 0 || part.width != rows.width || part.rows < 0 || part.first < 0 || part.rows > most ||
      part.first > rows.end - part.rows) {
    return {Code::kBadInput,
            fmt::format("no such part of the state: {} of layer {}, rows {} to {} of {} floats",
                        Name(part.kind), part.layer, part.first, part.first + part.rows, part.width)};
  }
  for (int64_t done = 0; done < part.rows;) {
    const int64_t row = part.first + done, at = rows.ring > 0 ? row % rows.ring : row;
    const int64_t count = rows.ring > 0 ? std::min(part.rows - done, rows.ring - at) : part.rows;
    Status status = fn(done * rows.width, rows.at + at * rows.width, count * rows.width);
    if (!status.ok()) return status;
    done += count;
  }
  return {};
}

Status GridSequence::Read(const StatePart& part, float* out) const {
  return ForStretches(part, [&](int64_t inside, int64_t at, int64_t floats) {
    return memory_->Read(at, floats, out + inside);
  });
}

Status GridSequence::Write(const StatePart& part, const float* in) {
  if (part.kind == StatePart::Kind::kRawKey && part.layer == layout_.layers)
    mtp_raw_written_ = std::min(mtp_raw_written_, part.first);
  return ForStretches(part, [&](int64_t inside, int64_t at, int64_t floats) {
    return memory_->Write(at, floats, in + inside);
  });
}

Status GridSequence::Place(int64_t position, int64_t mtp_position) {
  const int64_t capacity = layout_.capacity;
  if (position < 0 || position > capacity || mtp_position < 0 ||
      mtp_position > (layout_.mtp ? capacity : 0)) {
    return {Code::kBadInput, fmt::format("a sequence of {} tokens has no positions {} and {} (MTP block)",
                                         capacity, position, mtp_position)};
  }
  const int64_t mtp_raw = std::min(std::exchange(mtp_raw_written_, kNoRow), mtp_position);
  if (mtp_raw > layout_.PoolStart(mtp_position) && mtp_position % layout_.kpool != 0) {
    return {Code::kBadInput,
            fmt::format("raw rows of the MTP block from {} on do not rebuild its open pool at {}", mtp_raw,
                        mtp_position)};
  }
  const uint64_t now = NextSerial();
  trunk_.Cut(now, 0);
  mtp_.Cut(now, 0);
  trunk_.position = position;
  trunk_.raw_from = layout_.PoolStart(layout_.BlockStart(position));
  mtp_.position = mtp_position;
  mtp_.raw_from = mtp_raw;
  PoisonDead();
  return {};
}

void GridSequence::PoisonDead() {
  if (!poison_ || layout_.total_floats == 0) return;
  // All parts are taken out, and put back into memory that is NaN everywhere.
  const auto parts = Parts(trunk_.position, mtp_.position);
  std::vector<std::vector<float>> kept;
  for (const auto& part : parts) {
    auto& floats = kept.emplace_back(static_cast<size_t>(part.rows * part.width));
    if (!Read(part, floats.data()).ok()) return;
  }
  if (!memory_->FillNan().ok()) return;
  const int64_t written = mtp_raw_written_;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!Write(parts[i], kept[i].data()).ok()) return;
  }
  mtp_raw_written_ = written;
}

}  // namespace glint::plan
