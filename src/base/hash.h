// XXH3: checksums of files and fingerprints of models. For accidents, not for enemies: who wants two inputs with one value can
// make them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace glint {

struct Hash128 {
  uint64_t high = 0, low = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// XXH3 with 64 bits, seed 0.
uint64_t Hash64(std::span<const std::byte> bytes);
// 32 hexadecimal digits, the high half first: XXH3-128's canonical form.
std::string Hex(const Hash128& hash);

// XXH3 with 128 bits of what is added, in order. Numbers count as 8 bytes, little-endian, and strings with their length before
// them, so that different lists of values are different bytes.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  ~Hasher();
  void AddBytes(std::span<const std::byte> bytes);
  void AddNumber(uint64_t value);
  void AddFloat(float value);  // its bits
  void AddText(std::string_view text);
  Hash128 Value() const;  // of what was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace glint
