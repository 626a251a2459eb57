#include "base/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <array>
#include <bit>
#include <new>

namespace glint {

uint64_t Hash64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string Hex(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

struct Hasher::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  if (state_->xxh == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_->xxh.get());
}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::AddBytes(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size());
}

void Hasher::AddNumber(uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (std::byte& b : bytes) b = static_cast<std::byte>(value), value >>= 8;
  AddBytes(bytes);
}

void Hasher::AddFloat(float value) { AddNumber(std::bit_cast<uint32_t>(value)); }

void Hasher::AddText(std::string_view text) {
  AddNumber(text.size());
  AddBytes(std::as_bytes(std::span(text)));
}

Hash128 Hasher::Value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh.get());
  return {hash.high64, hash.low64};
}

}  // namespace glint
