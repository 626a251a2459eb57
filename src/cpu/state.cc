#include "cpu/state.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

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
      conv_ring(hp.block + hp.conv_kernel - 1),
      raw_ring(hp.block + hp.index_kpool),
      kda_width(hp.kda_width()),
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

SequenceState::SequenceState(const StateLayout& layout, Pages pages)
    : layout_(layout), pages_(std::move(pages)), id_(NextSerial()) {}

Result<std::unique_ptr<SequenceState>> SequenceState::Create(const StateLayout& layout) {
  auto pages = Pages::Reserve(layout.bytes());
  if (!pages.ok()) return pages.status();
  return std::unique_ptr<SequenceState>(new SequenceState(layout, std::move(*pages)));
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
  line.position += rows;
  line.raw_from = std::max(line.raw_from, line.position - layout_.raw_ring);
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
  if (m->bytes() != 0) std::memcpy(pages_.data(), m->fixed.data(), m->bytes());
  const uint64_t now = NextSerial();
  trunk_.Cut(now, m->trunk.position);
  mtp_.Cut(now, m->mtp.position);
  trunk_.position = m->trunk.position, trunk_.raw_from = m->trunk.raw_from;
  mtp_.position = m->mtp.position, mtp_.raw_from = m->mtp.raw_from;
  return {};
}

// The raw rows of the pool that is open at `position` must still be there.
bool SequenceState::CanRebuildPool(const Line& line, int64_t position) const {
  const int64_t pool_start = position - position % layout_.kpool;
  return pool_start == position || pool_start >= line.raw_from;
}

Status SequenceState::Truncate(int64_t position) {
  const int64_t start = trunk_.position - trunk_.position % layout_.block;
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
  trunk_.position = position;
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
  mtp_.Cut(NextSerial(), position);
  mtp_.position = position;
  mtp_.raw_from = std::min(mtp_.raw_from, position);
  return {};
}

void SequenceState::Clear() {
  pages_.Zero();
  for (Line* line : {&trunk_, &mtp_}) {
    line->Cut(NextSerial(), 0);
    line->position = line->raw_from = 0;
  }
}

Result<std::unique_ptr<plan::SequenceState>> SequenceState::Clone() const {
  auto copy = Create(layout_);
  if (!copy.ok()) return copy.status();
  SequenceState& c = **copy;
  const auto copy_floats = [&](int64_t offset, int64_t floats) {
    std::memcpy(c.pages_.data() + 4 * offset, pages_.data() + 4 * offset, static_cast<size_t>(4 * floats));
  };
  copy_floats(0, layout_.fixed_floats);
  for (size_t l = 0; l < layout_.parts.size();
       ++l) {  // only rows in use, so that untouched capacity stays free
    const auto& p = layout_.parts[l];
    if (p.latent.floats == 0) continue;
    const int64_t rows = static_cast<int64_t>(l) == layout_.layers ? mtp_.position : trunk_.position;
    copy_floats(p.latent.offset, rows * layout_.kv_lora);
    copy_floats(p.pooled.offset, rows / layout_.kpool * layout_.index_dim);
  }
  c.trunk_ = trunk_;
  c.mtp_ = mtp_;
  c.ancestors_ = ancestors_;
  c.ancestors_.emplace_back(id_, NextSerial());
  return std::unique_ptr<plan::SequenceState>(std::move(*copy));
}

}  // namespace glint::cpu
