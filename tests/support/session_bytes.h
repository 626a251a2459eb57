// Makes the checksums of an edited session file right again, so that what lies behind them is reached.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/hash.h"
#include "engine/session_file.h"

namespace glint::test {

inline uint64_t NumberAt(const std::string& file, size_t at, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, file.data() + at, bytes);
  return value;
}
inline void PutNumber(std::string& file, size_t at, size_t bytes, uint64_t value) {
  std::memcpy(file.data() + at, &value, bytes);
}

// Of the sections (those that lie within the file) and of the header.
inline void Seal(std::string& file) {
  using namespace engine;
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  const uint64_t header = NumberAt(file, 12, 4);
  if (header < kSessionHashAt + 8 || header > file.size()) return;
  for (size_t at = kSessionFixedBytes; at + kSessionSectionBytes <= header; at += kSessionSectionBytes) {
    const uint64_t offset = NumberAt(file, at + 40, 8), length = NumberAt(file, at + 48, 8);
    if (offset <= file.size() && length <= file.size() - offset)
      PutNumber(file, at + 56, 8, Hash64(bytes.subspan(offset, length)));
  }
  Hasher hash;
  hash.AddBytes(bytes.first(kSessionHashAt));
  hash.AddBytes(bytes.first(header).subspan(kSessionHashAt + 8));
  PutNumber(file, kSessionHashAt, 8, hash.Value().low);
}

}  // namespace glint::test
