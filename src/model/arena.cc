#include "model/arena.h"

#include <fmt/core.h>

#include <limits>
#include <new>

namespace glint::model {
namespace {
constexpr std::align_val_t kAlignment{64};
}

void Arena::Free::operator()(std::byte* block) const { ::operator delete(block, kAlignment); }

Result<std::span<std::byte>> Arena::Bytes(uint64_t bytes, std::string_view what) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) {
    return Status(Code::kNoRoom, fmt::format("{}: {} bytes can not be addressed", what, bytes));
  }
  auto* block = static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
  if (block == nullptr) {
    return Status(Code::kNoRoom, fmt::format("{}: the system has no {} bytes of memory left", what, bytes));
  }
  blocks_.emplace_back(block);
  bytes_ += bytes;
  return std::span<std::byte>(block, bytes);
}

Result<std::span<float>> Arena::Floats(uint64_t count, std::string_view what) {
  if (count > std::numeric_limits<uint64_t>::max() / sizeof(float)) {
    return Status(Code::kNoRoom, fmt::format("{}: {} numbers can not be addressed", what, count));
  }
  auto bytes = Bytes(count * sizeof(float), what);
  if (!bytes.ok()) return bytes.status();
  return std::span<float>(reinterpret_cast<float*>(bytes->data()), count);
}

}  // namespace glint::model
