#include "cpu/state.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace glint::cpu {
namespace {

class HostMemory final : public plan::StateMemory {
 public:
  static Result<std::unique_ptr<plan::StateMemory>> Make(int64_t count) {
    auto pages = Pages::Reserve(sizeof(float) * static_cast<uint64_t>(count));
    if (!pages.ok()) return pages.status();
    return std::unique_ptr<plan::StateMemory>(new HostMemory(std::move(*pages)));
  }
  float* data() const { return reinterpret_cast<float*>(pages_.data()); }
  int64_t floats() const override { return static_cast<int64_t>(pages_.bytes() / sizeof(float)); }
  Status Read(int64_t at, int64_t count, float* out) const override {
    std::copy_n(data() + at, count, out);
    return {};
  }
  Status Write(int64_t at, int64_t count, const float* in) override {
    std::copy_n(in, count, data() + at);
    return {};
  }
  Status CopyFrom(const StateMemory& from, int64_t from_at, int64_t at, int64_t count) override {
    const auto* other = dynamic_cast<const HostMemory*>(&from);
    if (other == nullptr) return {Code::kInternal, "state of another device"};
    std::copy_n(other->data() + from_at, count, data() + at);
    return {};
  }
  Status Zero() override {
    pages_.Zero();
    return {};
  }
  Status FillNan() override {
    std::memset(pages_.data(), 0xff, pages_.bytes());
    return {};
  }
  Result<std::unique_ptr<StateMemory>> Another(int64_t count) const override { return Make(count); }

 private:
  explicit HostMemory(Pages pages) : pages_(std::move(pages)) {}
  Pages pages_;
};

}  // namespace

Result<Pages> Pages::Reserve(uint64_t bytes, const char* purpose) {
  Pages pages;
  if (bytes == 0) return pages;
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Status(Code::kNoRoom, fmt::format("the system refused {} bytes for {}", bytes, purpose));
  }
  pages.data_ = static_cast<std::byte*>(data);
  pages.bytes_ = bytes;
  return pages;
}

Result<Pages> Pages::ReserveLarge(uint64_t bytes, const char* purpose) {
  auto pages = Reserve(bytes, purpose);
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

SequenceState::SequenceState(const plan::StateLayout& layout, std::unique_ptr<plan::StateMemory> memory,
                             bool poison)
    : GridSequence(layout, std::move(memory), poison) {}

Result<std::unique_ptr<SequenceState>> SequenceState::Create(const plan::StateLayout& layout, bool poison) {
  auto memory = HostMemory::Make(layout.total_floats);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<SequenceState>(new SequenceState(layout, std::move(*memory), poison));
}

std::unique_ptr<plan::GridSequence> SequenceState::Over(std::unique_ptr<plan::StateMemory> memory) const {
  return std::unique_ptr<plan::GridSequence>(new SequenceState(layout(), std::move(memory), poison()));
}

float* SequenceState::At(const plan::StateLayout::Part& part) {
  return static_cast<HostMemory&>(memory()).data() + part.offset;
}

KdaState SequenceState::Kda(int layer) {
  const auto& p = layout().parts[layer];
  return {At(p.s), At(p.kf), At(p.delta), At(p.g), At(p.conv)};
}

DsaState SequenceState::Dsa(int layer) {
  const auto& p = layout().parts[layer];
  return {At(p.latent), At(p.pooled), At(p.raw_key), At(p.raw_gate)};
}

}  // namespace glint::cpu
