#include "cpu/state.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/mutation.h"

namespace glint::cpu {
namespace {

// Orders marks, cuts and clones in time; also names sequences.
uint64_t NextSerial() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Result<Pages> Pages::Reserve(uint64_t bytes) {
  Pages pages;
  if (bytes == 0) return pages;
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Status(Code::kNoRoom,
                  fmt::format("the system refused {} bytes for the state of a sequence", bytes));
  }
  pages.data_ = static_cast<std::byte*>(data);
  pages.bytes_ = bytes;
  return pages;
}

Result<Pages> Pages::ReserveLarge(uint64_t bytes) {
  auto pages = Reserve(bytes);
#ifdef MADV_HUGEPAGE
  if (pages.ok() && bytes > 0)
    (void)madvise(pages->data_, bytes, MADV_HUGEPAGE);  // a wish: refused, all is as before
#endif
  return pages;
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void Pages::Zero() {
  if (data_ == nullptr) return;
  if (madvise(data_, bytes_, MADV_DONTNEED) != 0) std::memset(data_, 0, bytes_);
}

StateLayout::StateLayout(const model::HParams& hp, int64_t room, bool with_mtp)
    : capacity(room),
      block(hp.block),
      kpool(hp.index_kpool),
      layers(hp.layers),
      mtp(with_mtp),
      conv_ring(hp.block + hp.conv_kernel - (Mutated(Mutation::kConvRingOneShort) ? 3 : 1)),
      raw_ring(hp.block + hp.index_kpool),
      kda_width(hp.kda_width()),
      head_dim(hp.kda_head_dim),
      kv_lora(hp.kv_lora_rank),
      index_dim(hp.index_head_dim) {
  parts.resize(static_cast<size_t>(layers) + 1);
  const auto take = [this](Part& part, int64_t floats) {
    part = {total_floats, floats};
    total_floats += (floats + 15) / 16 * 16;  // every part on its own cache line
  };
  for (int64_t l = 0; l <= layers; ++l) {
    LayerParts& p = parts[l];
    if (l == layers && !mtp) continue;
    p.kda = l < layers && hp.mixers[l] == model::Mixer::kKda;
    if (p.kda) {
      take(p.s, hp.kda_heads * hp.kda_head_dim * hp.kda_head_dim);
      for (Part* rows : {&p.kf, &p.delta, &p.g}) take(*rows, block * kda_width);
      take(p.conv, conv_ring * 3 * kda_width);
    } else {
      for (Part* ring : {&p.raw_key, &p.raw_gate}) take(*ring, raw_ring * index_dim);
    }
  }
  fixed_floats = total_floats;
  for (int64_t l = 0; l <= layers; ++l) {
    LayerParts& p = parts[l];
    if (p.kda || (l == layers && !mtp)) continue;
    take(p.latent, capacity * kv_lora);
    take(p.pooled, capacity / kpool * index_dim);
  }
}

struct SequenceState::MarkImpl final : plan::StateMark {
  int64_t position() const override { return trunk.position; }
  uint64_t bytes() const override { return fixed.bytes(); }

  uint64_t owner = 0, serial = 0;
  int64_t fixed_floats = 0, capacity = 0;
  Line trunk, mtp;  // without their cuts
  Pages fixed;
};

void SequenceState::Line::Cut(uint64_t serial, int64_t to) {
  while (!cuts.empty() && cuts.back().second >= to) cuts.pop_back();  // a later and deeper cut says more
  cuts.emplace_back(serial, to);
}

// Whether rows [0, below) are as they were at the time `since`.
bool SequenceState::Line::Untouched(uint64_t since, int64_t below) const {
  return std::none_of(cuts.begin(), cuts.end(),
                      [&](const auto& cut) { return cut.first > since && cut.second < below; });
}

SequenceState::SequenceState(const StateLayout& layout, Pages pages, bool poison)
    : layout_(layout), pages_(std::move(pages)), poison_(poison), id_(NextSerial()) {
  // Going back must work where memory has run out.
  constexpr size_t kMostCuts = 16;  // there are seldom more than two
  for (Line* line : {&trunk_, &mtp_}) line->cuts.reserve(kMostCuts);
}

Result<std::unique_ptr<SequenceState>> SequenceState::Create(const StateLayout& layout, bool poison) {
  auto pages = Pages::Reserve(layout.bytes());
  if (!pages.ok()) return pages.status();
  std::unique_ptr<SequenceState> state(new SequenceState(layout, std::move(*pages), poison));
  state->PoisonDead();
  return state;
}

KdaState SequenceState::Kda(int layer) {
  const auto& p = layout_.parts[layer];
  return {At(p.s), At(p.kf), At(p.delta), At(p.g), At(p.conv)};
}

DsaState SequenceState::Dsa(int layer) {
  const auto& p = layout_.parts[layer];
  return {At(p.latent), At(p.pooled), At(p.raw_key), At(p.raw_gate)};
}

void SequenceState::Advance(plan::Pass pass, int64_t rows) {
  Line& line = pass == plan::Pass::kTrunk ? trunk_ : mtp_;
  const int64_t block = layout_.BlockStart(line.position);
  line.position += rows;
  line.raw_from = std::max(line.raw_from, line.position - layout_.raw_ring);
  if (layout_.BlockStart(line.position) != block) PoisonDead();  // within a block nothing dies
}

Result<std::unique_ptr<plan::StateMark>> SequenceState::Mark() const {
  auto mark = std::make_unique<MarkImpl>();
  mark->owner = id_;
  mark->serial = NextSerial();
  mark->fixed_floats = layout_.fixed_floats;
  mark->capacity = layout_.capacity;
  mark->trunk = {trunk_.position, trunk_.raw_from, {}};
  mark->mtp = {mtp_.position, mtp_.raw_from, {}};
  auto pages = Pages::Reserve(sizeof(float) * static_cast<uint64_t>(layout_.fixed_floats));
  if (!pages.ok()) return pages.status();
  mark->fixed = std::move(*pages);
  if (mark->bytes() != 0) std::memcpy(mark->fixed.data(), pages_.data(), mark->bytes());
  return std::unique_ptr<plan::StateMark>(std::move(mark));
}

Status SequenceState::Return(const plan::StateMark& mark) {
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
  const uint64_t kept = Mutated(Mutation::kMarkKeepsHalf) ? m->bytes() / 2 : m->bytes();
  if (kept != 0) std::memcpy(pages_.data(), m->fixed.data(), kept);
  const uint64_t now = NextSerial();
  trunk_.Cut(now, m->trunk.position);
  mtp_.Cut(now, m->mtp.position);
  trunk_.position = m->trunk.position, trunk_.raw_from = m->trunk.raw_from;
  mtp_.position = m->mtp.position, mtp_.raw_from = m->mtp.raw_from;
  PoisonDead();
  return {};
}

// The raw rows of the pool that is open at `position` must still be there.
bool SequenceState::CanRebuildPool(const Line& line, int64_t position) const {
  const int64_t pool_start = layout_.PoolStart(position);
  return pool_start == position || pool_start >= line.raw_from;
}

Status SequenceState::Truncate(int64_t position) {
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

Status SequenceState::TruncateMtp(int64_t position) {
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

void SequenceState::Clear() {
  if (!Mutated(Mutation::kClearKeepsState)) pages_.Zero();
  for (Line* line : {&trunk_, &mtp_}) {
    line->Cut(NextSerial(), 0);
    line->position = line->raw_from = 0;
  }
  PoisonDead();
}

Result<std::unique_ptr<plan::SequenceState>> SequenceState::Clone() const {
  auto copy = Create(layout_, poison_);
  if (!copy.ok()) return copy.status();
  if (Status status = (*copy)->CopyFrom(*this); !status.ok()) return status;
  return std::unique_ptr<plan::SequenceState>(std::move(*copy));
}

Status SequenceState::CopyFrom(const plan::SequenceState& source) {
  const auto* other = dynamic_cast<const SequenceState*>(&source);
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
  if (layout_.fixed_floats != 0) {
    std::memcpy(pages_.data(), other->pages_.data(),
                sizeof(float) * static_cast<size_t>(layout_.fixed_floats));
  }
  for (size_t l = 0; l < layout_.parts.size();
       ++l) {  // only rows in use, so that untouched capacity stays free
    const auto& p = layout_.parts[l];
    if (p.latent.floats == 0) continue;
    const int64_t rows =
        static_cast<int64_t>(l) == layout_.layers ? other->mtp_.position : other->trunk_.position;
    std::copy_n(other->At(from.parts[l].latent), rows * layout_.kv_lora, At(p.latent));
    if (!Mutated(Mutation::kCopyWithoutPooledKeys))
      std::copy_n(other->At(from.parts[l].pooled), rows / layout_.kpool * layout_.index_dim, At(p.pooled));
  }
  trunk_ = other->trunk_;
  mtp_ = other->mtp_;
  // A new name: marks of what this was before hold no more, those of `other` until now do.
  id_ = NextSerial();
  ancestors_ = other->ancestors_;
  ancestors_.emplace_back(other->id_, NextSerial());
  PoisonDead();
  return {};
}

std::vector<plan::StatePart> SequenceState::Parts(int64_t position, int64_t mtp_position) const {
  using Kind = plan::StatePart::Kind;
  std::vector<plan::StatePart> parts;
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

SequenceState::Rows SequenceState::RowsOf(plan::StatePart::Kind kind, int layer) const {
  using Kind = plan::StatePart::Kind;
  const StateLayout& l = layout_;
  if (layer < 0 || layer > l.layers || (layer == l.layers && !l.mtp)) return {};
  const auto& p = l.parts[layer];
  const bool of_kda = kind <= Kind::kConv;
  if (of_kda != p.kda || kind >= Kind::kCount) return {};
  switch (kind) {
    case Kind::kKdaState:
      return {At(p.s), l.head_dim, 0, p.s.floats / l.head_dim};
    case Kind::kKdaKf:
      return {At(p.kf), l.kda_width, l.block, l.capacity};
    case Kind::kKdaDelta:
      return {At(p.delta), l.kda_width, l.block, l.capacity};
    case Kind::kKdaG:
      return {At(p.g), l.kda_width, l.block, l.capacity};
    case Kind::kConv:
      return {At(p.conv), 3 * l.kda_width, l.conv_ring, l.capacity};
    case Kind::kLatent:
      return {At(p.latent), l.kv_lora, 0, l.capacity};
    case Kind::kPooledKey:
      return {At(p.pooled), l.index_dim, 0, l.capacity / l.kpool};
    case Kind::kRawKey:
      return {At(p.raw_key), l.index_dim, l.raw_ring, l.capacity};
    case Kind::kRawGate:
      return {At(p.raw_gate), l.index_dim, l.raw_ring, l.capacity};
    case Kind::kCount:
      break;
  }
  return {};
}

template <class F>
Status SequenceState::ForStretches(const plan::StatePart& part, F&& fn) const {
  const Rows rows = RowsOf(part.kind, part.layer);
  const int64_t most = rows.ring > 0 ? std::min(rows.ring, rows.end) : rows.end;
  if (rows.data == nullptr || part.width != rows.width || part.rows < 0 || part.first < 0 ||
      part.rows > most || part.first > rows.end - part.rows) {
    return {Code::kBadInput,
            fmt::format("no such part of the state: {} of layer {}, rows {} to {} of {} floats",
                        Name(part.kind), part.layer, part.first, part.first + part.rows, part.width)};
  }
  for (int64_t done = 0; done < part.rows;) {
    const int64_t row = part.first + done, at = rows.ring > 0 ? row % rows.ring : row;
    const int64_t count = rows.ring > 0 ? std::min(part.rows - done, rows.ring - at) : part.rows;
    fn(done * rows.width, rows.data + at * rows.width, count * rows.width);
    done += count;
  }
  return {};
}

Status SequenceState::Read(const plan::StatePart& part, float* out) const {
  return ForStretches(
      part, [&](int64_t at, const float* from, int64_t floats) { std::copy_n(from, floats, out + at); });
}

Status SequenceState::Write(const plan::StatePart& part, const float* in) {
  if (part.kind == plan::StatePart::Kind::kRawKey && part.layer == layout_.layers)
    mtp_raw_written_ = std::min(mtp_raw_written_, part.first);
  return ForStretches(part, [&](int64_t at, float* to, int64_t floats) { std::copy_n(in + at, floats, to); });
}

Status SequenceState::Place(int64_t position, int64_t mtp_position) {
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

void SequenceState::PoisonDead() {
  if (!poison_ || pages_.bytes() == 0) return;
  // All parts are taken out, and put back into memory that is NaN everywhere.
  const auto parts = Parts(trunk_.position, mtp_.position);
  std::vector<std::vector<float>> kept;
  for (const auto& part : parts) {
    auto& floats = kept.emplace_back(static_cast<size_t>(part.rows * part.width));
    if (!Read(part, floats.data()).ok()) return;
  }
  std::memset(pages_.data(), 0xff, pages_.bytes());
  const int64_t written = mtp_raw_written_;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!Write(parts[i], kept[i].data()).ok()) return;
  }
  mtp_raw_written_ = written;
}

}  // namespace glint::cpu
